package report

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// The markers of the section in a page that a run replaces.
const (
	markBegin = "<!-- What stands from here to the end mark is written by queuebox-bench. -->"
	markEnd   = "<!-- End of what queuebox-bench writes. -->"
)

// ErrNoMarkers says that a page has no place for the section.
var ErrNoMarkers = errors.New("the page does not have both markers of queuebox-bench, one after the other")

// Page replaces the section of a page.
func (r *Report) Page(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	page, err := splice(string(text), r.Markdown())
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return Replace(path, []byte(page))
}

// splice puts a section between the markers.
func splice(page, section string) (string, error) {
	head, rest, ok := strings.Cut(page, markBegin)
	if !ok {
		return "", ErrNoMarkers
	}
	_, foot, ok := strings.Cut(rest, markEnd)
	if !ok {
		return "", ErrNoMarkers
	}
	return head + markBegin + "\n\n" + strings.TrimSpace(section) + "\n\n" + markEnd + foot, nil
}

// howFormed says what a figure of the section is.
const howFormed = `A figure in a table is formed column by column over the windows of a contender: the median of them, which of two windows is their mean. A
percentile is that of the calls of one window, whose numbers stand in a column of their own in the order of the steps; over the windows it is formed in the
same way. A ratio divides the figures of one round, and stands as the median of the rounds (of two rounds the mean), with the least and the most of them in parentheses. So it is not the ratio of two figures of a table, and where least and most lie far apart neither
of them is worth much. This holds for the ratios that look good as well as for the others: a p99 of one bad moment of a peer makes a target met as that of one of ours makes it missed.

Three targets are set between unlike things, a batch of 1000 against single calls or 256 callers against 64. The line below each has the same with like on both sides.

`

// Markdown shows the report as a section of a page, with the charts beside it in benchmarks/.
func (r *Report) Markdown() string {
	var s strings.Builder
	s.WriteString("### Targets\n\n")
	s.WriteString(howFormed)
	s.WriteString("| measure | target | measured | |\n|---|---|---|---|\n")
	for _, v := range r.Verdicts() {
		fmt.Fprintf(&s, "| %s | %s | %s | %s |\n", v.What, v.Target, v.Measured, v.Word())
	}
	for i := range r.Measures {
		r.Measures[i].markdown(&s)
	}
	return s.String()
}

func (m *Measure) markdown(s *strings.Builder) {
	fmt.Fprintf(s, "\n### %s\n\n", m.Title)
	s.WriteString(m.conditions() + "\n\n")
	if m.chart() != "" {
		fmt.Fprintf(s, "![%s](benchmarks/%s.svg)\n\n", m.Title, m.Name)
	}
	columns := m.columns()
	s.WriteString("| contender |")
	for _, c := range columns {
		s.WriteString(" " + c.title + " |")
	}
	s.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for i := range m.Contenders {
		c := &m.Contenders[i]
		if len(c.Windows) == 0 {
			fmt.Fprintf(s, "| %s | skipped: %s |%s\n", c.Title, oneLine(c.Skipped), strings.Repeat(" |", max(len(columns)-1, 0)))
			continue
		}
		fmt.Fprintf(s, "| %s |", c.Title)
		for _, column := range columns {
			s.WriteString(" " + column.cell(c) + " |")
		}
		s.WriteString("\n")
	}
	m.ratios(s)
	s.WriteString("\nVersions and settings:\n\n")
	for i := range m.Contenders {
		c := &m.Contenders[i]
		fmt.Fprintf(s, "- %s (%s): %s\n", c.Title, c.Version, c.Settings)
	}
}

// conditions says under which a measure was taken.
func (m *Measure) conditions() string {
	var s strings.Builder
	if m.Quick {
		s.WriteString("A smoke test: its figures mean nothing. ")
	}
	fmt.Fprintf(&s, "Taken %s at revision `%s`, on %s, PostgreSQL %s", m.Taken.Format("2006-01-02 15:04 MST"), m.Revision, m.Machine, m.Postgres)
	if m.Command != "" {
		fmt.Fprintf(&s, ", by `%s`", m.Command)
	}
	seconds, load, others := m.span((*Window).length), m.span((*Window).load), m.span((*Window).Others)
	windows := Number(m.Window, 1)
	if m.Name == Published && seconds != "" {
		windows = seconds // each ends with its last message
	}
	fmt.Fprintf(&s, "; rounds: %d, windows of %s s", m.Rounds, windows)
	if m.Name == Published {
		s.WriteString(" (each from the start of the client's work to its last message, without a warm-up)")
	} else if m.Warmup > 0 {
		fmt.Fprintf(&s, " after a warm-up of %s s", Number(m.Warmup, 1))
	}
	fmt.Fprintf(&s, ", a figure is the %s; payload %s bytes of %s", m.middle(), Number(float64(m.Payload), 0), cmp.Or(m.Bodies, "one letter repeated"))
	if m.Name != LatencyOf {
		fmt.Fprintf(&s, ", backlog %s", Number(float64(m.Backlog), 0))
	}
	s.WriteString(".")
	if load != "" {
		fmt.Fprintf(&s, " The load average before a window was %s, in which the windows before it are counted.", load)
	}
	if others != "" {
		fmt.Fprintf(&s, " All else on the machine, the kernel's own threads among it, used %s cores during the windows.", others)
	}
	return s.String()
}

// middle names what a figure is of its windows.
func (m *Measure) middle() string {
	switch m.Rounds {
	case 1:
		return "only window"
	case 2:
		return "mean of two"
	}
	return "median"
}

func (w *Window) length() float64 { return w.Seconds }

func (w *Window) load() float64 {
	if w.LoadBefore <= 0 {
		return unknown
	}
	return w.LoadBefore
}

// span is the least and the most of a figure over all windows; empty where none has it.
func (m *Measure) span(f Figure) string {
	var all []float64
	for i := range m.Contenders {
		for j := range m.Contenders[i].Windows {
			if v := f(&m.Contenders[i].Windows[j]); v != unknown {
				all = append(all, v)
			}
		}
	}
	if len(all) == 0 {
		return ""
	}
	least, most := Number(slices.Min(all), 2), Number(slices.Max(all), 2)
	if least == most {
		return least
	}
	return least + "–" + most
}

// ratios compares the shapes of ours with each peer.
func (m *Measure) ratios(s *strings.Builder) {
	if m.Name != Throughput && m.Name != Payload4K {
		return
	}
	var ours, peers []*Contender
	for i := range m.Contenders {
		c := &m.Contenders[i]
		switch {
		case len(c.Windows) == 0 || c.Name == "echo":
		case strings.HasPrefix(c.Name, "queuebox"):
			ours = append(ours, c)
		default:
			peers = append(peers, c)
		}
	}
	if len(ours) == 0 || len(peers) == 0 {
		return
	}
	s.WriteString("\nHow many times the messages/s of each peer, " + m.middle() + " (least–most) of those within a round:\n\n| against |")
	for _, c := range ours {
		s.WriteString(" " + strings.TrimPrefix(c.Title, "QueueBox ") + " |")
	}
	s.WriteString("\n|---|" + strings.Repeat("---|", len(ours)) + "\n")
	for _, p := range peers {
		fmt.Fprintf(s, "| %s |", p.Title)
		for _, c := range ours {
			cell := "–"
			if ratio, ok := Compare(c, p, Rate); ok {
				cell = ratio.String()
			}
			s.WriteString(" " + cell + " |")
		}
		s.WriteString("\n")
	}
}

// oneLine makes text fit into a cell; what a program wrote before it broke may be long.
func oneLine(text string) string {
	const most = 200
	line := []rune(strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", "/"))
	if len(line) > most {
		return string(line[:most]) + "…"
	}
	return string(line)
}
