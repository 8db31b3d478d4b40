package report

import (
	"errors"
	"fmt"
	"os"
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

// Markdown shows the report as a section of a page, with the charts beside it in benchmarks/.
func (r *Report) Markdown() string {
	var s strings.Builder
	s.WriteString("### Targets\n\n")
	s.WriteString("The ratios are medians of those within a round; the least and the most of them stand in parentheses.\n\n")
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
	fmt.Fprintf(s, "Taken %s at revision `%s`, on %s, PostgreSQL %s; %d rounds of windows of %s s, payload %s bytes",
		m.Taken.Format("2006-01-02 15:04 MST"), m.Revision, m.Machine, m.Postgres, m.Rounds, Number(m.Window, 1), Number(float64(m.Payload), 0))
	if m.Name != LatencyOf {
		fmt.Fprintf(s, ", backlog %s", Number(float64(m.Backlog), 0))
	}
	s.WriteString(".\n\n")
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
	s.WriteString("\nHow many times the messages/s of each peer, median (least–most) within a round:\n\n| against |")
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
