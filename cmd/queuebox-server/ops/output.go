package ops

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// document is a message as one line of JSON. Protojson varies its spaces on purpose, which
// would make two runs of a script differ, so they are taken out. Fields at their zero value
// are there, so that a script need not tell zero from missing.
func document(m proto.Message) ([]byte, error) {
	raw, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("answer as JSON: %w", err)
	}
	var line bytes.Buffer
	if err := json.Compact(&line, raw); err != nil {
		return nil, fmt.Errorf("answer as JSON: %w", err)
	}
	return line.Bytes(), nil
}

// print writes a message as one line of JSON.
func (s *session) print(m proto.Message) error {
	line, err := document(m)
	if err != nil {
		return err
	}
	return write(s.Stdout, append(line, '\n'))
}

// printOf is print for an answer that does not say which queue it is about: the name stands in
// front of its fields.
func (s *session) printOf(queue string, m proto.Message) error {
	line, err := document(m)
	if err != nil {
		return err
	}
	name, err := json.Marshal(queue)
	if err != nil {
		return fmt.Errorf("answer as JSON: %w", err)
	}
	out := append([]byte(`{"queue":`), name...)
	if len(line) > len("{}") {
		out = append(out, ',')
	}
	return write(s.Stdout, append(append(out, line[1:]...), '\n'))
}

// say writes a line for people to standard output.
func (s *session) say(format string, args ...any) error {
	return write(s.Stdout, fmt.Appendf(nil, format+"\n", args...))
}

// note writes a line to standard error. That nobody reads it ends no command.
func (e *Env) note(format string, args ...any) {
	_, _ = fmt.Fprintf(e.Stderr, format+"\n", args...)
}

func write(w io.Writer, b []byte) error {
	if _, err := w.Write(b); err != nil {
		return fmt.Errorf("standard output: %w", err)
	}
	return nil
}

// table prints rows in columns. It is no text/tabwriter, because a list is printed page by
// page: the widths stay from one page to the next, and only grow.
type table struct {
	w      io.Writer
	widths []int
	rows   [][]string
}

func newTable(w io.Writer, head ...string) *table {
	t := &table{w: w, widths: make([]int, len(head))}
	t.add(head...)
	return t
}

// add takes a row of as many cells as the head has. An empty cell is shown as a dash.
func (t *table) add(cells ...string) {
	for i, cell := range cells {
		if cell == "" {
			cells[i] = "-"
		}
		cells[i] = harmless(cells[i])
		t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cells[i]))
	}
	t.rows = append(t.rows, cells)
}

// flush prints the rows so far.
func (t *table) flush() error {
	var text strings.Builder
	for _, row := range t.rows {
		for i, cell := range row {
			text.WriteString(cell)
			if i < len(row)-1 {
				text.WriteString(strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		text.WriteByte('\n')
	}
	t.rows = t.rows[:0]
	return write(t.w, []byte(text.String()))
}

// facts prints names and values below each other; those without a value are left out.
func (s *session) facts(pairs ...[2]string) error {
	width := 0
	for _, p := range pairs {
		if p[1] != "" {
			width = max(width, len(p[0]))
		}
	}
	var text strings.Builder
	for _, p := range pairs {
		if p[1] != "" {
			fmt.Fprintf(&text, "%-*s  %s\n", width, p[0], harmless(p[1]))
		}
	}
	return write(s.Stdout, []byte(text.String()))
}

// harmless replaces what a terminal would obey: an error text or a worker's name may come from
// anybody who can enqueue.
func harmless(s string) string { return replaceControls(s, "") }

func replaceControls(s, keep string) string {
	clean := func(r rune) bool {
		return strings.ContainsRune(keep, r) || (unicode.IsPrint(r) && r != utf8.RuneError)
	}
	if strings.IndexFunc(s, func(r rune) bool { return !clean(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if clean(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// cut shortens a text that may be long. It is never used for an identifier.
func cut(s string, runes int) string {
	if utf8.RuneCountInString(s) <= runes {
		return s
	}
	return string([]rune(s)[:runes-1]) + "…"
}

// span is a duration as people say it: the two largest units, or one where it is small.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return strconv.FormatFloat(d.Truncate(100*time.Millisecond).Seconds(), 'f', -1, 64) + "s"
	case d < time.Hour:
		return units(d, time.Minute, "m", time.Second, "s")
	case d < day:
		return units(d, time.Hour, "h", time.Minute, "m")
	default:
		return units(d, day, "d", time.Hour, "h")
	}
}

func units(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := strconv.FormatInt(int64(d/large), 10) + largeName
	if rest := int64(d % large / small); rest > 0 {
		text += strconv.FormatInt(rest, 10) + smallName
	}
	return text
}

func spanMS(ms int64) string { return span(time.Duration(ms) * time.Millisecond) }

// moment is a time with its distance from now.
func moment(ts *timestamppb.Timestamp, now time.Time) string {
	if ts == nil {
		return ""
	}
	return fmt.Sprintf("%s (%s)", ts.AsTime().Format("2006-01-02T15:04:05.000Z07:00"), distance(ts.AsTime(), now))
}

func distance(t, now time.Time) string {
	if d := t.Sub(now); d > 0 {
		return "in " + span(d)
	}
	return span(now.Sub(t)) + " ago"
}

// many is a number of things.
func many(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return count(n) + " " + thing + "s"
}

// wasOrWere is the verb behind many.
func wasOrWere(n int64) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

// count is a number that people can read.
func count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 && digits[i-1] != '-' {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}
