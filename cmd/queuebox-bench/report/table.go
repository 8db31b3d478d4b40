package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/queuebox/queuebox/cmd/queuebox-bench/drive"
)

// column is one of a table of contenders.
type column struct {
	title string
	cell  func(*Contender) string
}

func figure(f Figure, digits int) func(*Contender) string {
	return func(c *Contender) string {
		v, ok := c.Median(f)
		if !ok {
			return "–"
		}
		return Number(v, digits)
	}
}

// steps shows the three percentiles of a step in milliseconds.
func steps(step string) func(*Contender) string {
	return func(c *Contender) string {
		var parts []string
		for _, p := range []int{50, 95, 99} {
			v, ok := c.Median(Percentile(step, p))
			if !ok {
				return "–"
			}
			parts = append(parts, Number(v, 2))
		}
		return strings.Join(parts, " / ")
	}
}

// calls shows how many calls of each step a window has: a percentile of few says little.
func calls(c *Contender) string {
	var parts []string
	for _, step := range []string{drive.StepEnqueue, drive.StepClaim, drive.StepComplete, drive.StepStart} {
		if v, ok := c.Median(Calls(step)); ok {
			parts = append(parts, Number(v, 0))
		}
	}
	if len(parts) == 0 {
		return "–"
	}
	return strings.Join(parts, " / ")
}

// Number writes a number with three significant digits or so: digits after the point are only
// for small ones.
func Number(v float64, digits int) string {
	switch {
	case v >= 100:
		digits = 0
	case v >= 10:
		digits = min(digits, 1)
	}
	text := strconv.FormatFloat(v, 'f', digits, 64)
	whole, rest, _ := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if rest == "" {
		return whole
	}
	return whole + "." + rest
}

func (r Ratio) String() string {
	if r.Rounds == 1 {
		return Number(r.Median, 2)
	}
	return fmt.Sprintf("%s (%s–%s)", Number(r.Median, 2), Number(r.Least, 2), Number(r.Most, 2))
}

// columns are those that at least one contender of the measure has something in.
func (m *Measure) columns() []column {
	all := []column{
		{"messages/s", figure(Rate, 0)},
		{"enqueue p50/p95/p99 ms", steps("enqueue")},
		{"claim p50/p95/p99 ms", steps("claim")},
		{"complete p50/p95/p99 ms", steps("complete")},
		{"enqueue to start p50/p95/p99 ms", steps("enqueue-to-start")},
		{"calls behind these, a window", calls},
		{"CPU µs/message client", figure(ClientCPU, 1)},
		{"server", figure(ServerCPU, 1)},
		{"database", figure(DatabaseCPU, 1)},
		{"statements/message", figure(Statements, 4)},
		{"WAL bytes/message", figure(WAL, 0)},
	}
	out := all[:0]
	for _, c := range all {
		for i := range m.Contenders {
			if len(m.Contenders[i].Windows) > 0 && c.cell(&m.Contenders[i]) != "–" {
				out = append(out, c)
				break
			}
		}
	}
	return out
}

// Table writes the report for a terminal.
func (r *Report) Table(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := range r.Measures {
		m := &r.Measures[i]
		_, _ = fmt.Fprintf(tw, "\n%s\n%s\n", m.Title, m.conditions())
		columns := m.columns()
		_, _ = fmt.Fprint(tw, "contender")
		for _, c := range columns {
			_, _ = fmt.Fprint(tw, "\t", c.title)
		}
		_, _ = fmt.Fprintln(tw)
		for j := range m.Contenders {
			c := &m.Contenders[j]
			if len(c.Windows) == 0 {
				_, _ = fmt.Fprintf(tw, "%s\tSKIPPED: %s\n", c.Title, oneLine(c.Skipped))
				continue
			}
			_, _ = fmt.Fprint(tw, c.Title)
			for _, column := range columns {
				_, _ = fmt.Fprint(tw, "\t", column.cell(c))
			}
			_, _ = fmt.Fprintln(tw)
		}
	}
	if slices.ContainsFunc(r.Measures, func(m Measure) bool { return m.Quick }) {
		_, _ = fmt.Fprint(tw, "\nFigures of --quick mean nothing; no target is judged by them.\n")
	}
	// A page has room for what was not measured.
	if verdicts := slices.DeleteFunc(r.Verdicts(), func(v Verdict) bool { return !v.Known }); len(verdicts) > 0 {
		_, _ = fmt.Fprint(tw, "\nTargets\nmeasure\ttarget\tmeasured\tverdict\n")
		for _, v := range verdicts {
			_, _ = fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", v.What, v.Target, v.Measured, v.Word())
		}
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("table: %w", err)
	}
	return nil
}
