package report

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// bar is a row of a chart: the median, and a line from the least to the most.
type bar struct {
	label              string
	value, least, most float64
	ours               bool
}

// What a chart measures, in pixels.
const (
	chartWidth  = 960
	labelWidth  = 340
	numberWidth = 110
	rowHeight   = 24
	headHeight  = 44
)

// Charts writes one chart for each measure that has something to draw.
func (r *Report) Charts(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // charts that anybody may look at
		return fmt.Errorf("charts: %w", err)
	}
	for i := range r.Measures {
		m := &r.Measures[i]
		text := m.chart()
		if text == "" {
			continue
		}
		if err := Replace(filepath.Join(dir, m.Name+".svg"), []byte(text)); err != nil {
			return err
		}
	}
	return nil
}

// chart draws the rates of a measure; where the rate was given, the latency.
func (m *Measure) chart() string {
	f, unit, digits := Rate, "messages/s, median of the windows", 0
	switch m.Name {
	case LatencyOf:
		f, unit, digits = Percentile("enqueue-to-start", 50), "ms from enqueue to start, p50, median of the windows", 2
	case Alone:
		f, unit, digits = Percentile("complete", 50), "ms of one completion, p50, median of the windows", 2
	}
	var bars []bar
	for i := range m.Contenders {
		c := &m.Contenders[i]
		var all []float64
		for j := range c.Windows {
			if v := f(&c.Windows[j]); v != unknown {
				all = append(all, v)
			}
		}
		if len(all) > 0 {
			bars = append(bars, bar{c.Title, median(all), slices.Min(all), slices.Max(all), strings.HasPrefix(c.Name, "queuebox")})
		}
	}
	if len(bars) == 0 {
		return ""
	}
	return draw(m.Title, unit, bars, digits)
}

// draw makes the SVG of horizontal bars. It brings its own background, so that it can be read on
// a dark page too.
func draw(title, unit string, bars []bar, digits int) string {
	most := 0.0
	for _, b := range bars {
		most = max(most, b.most)
	}
	if most == 0 {
		most = 1
	}
	height := headHeight + len(bars)*rowHeight + 12
	scale := float64(chartWidth-labelWidth-numberWidth) / most
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="13">`+"\n", chartWidth, height)
	fmt.Fprintf(&s, `<title>%s</title>`+"\n", escape(title))
	fmt.Fprintf(&s, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", chartWidth, height)
	fmt.Fprintf(&s, `<text x="12" y="20" font-size="15" font-weight="bold" fill="#1f2328">%s</text>`+"\n", escape(title))
	fmt.Fprintf(&s, `<text x="12" y="37" font-size="11" fill="#59636e">%s; the thin line goes from the least to the most</text>`+"\n", escape(unit))
	for i, b := range bars {
		y := headHeight + i*rowHeight
		color := "#8c959f"
		if b.ours {
			color = "#0969da"
		}
		fmt.Fprintf(&s, `<text x="%d" y="%d" text-anchor="end" fill="#1f2328">%s</text>`+"\n", labelWidth-8, y+16, escape(b.label))
		fmt.Fprintf(&s, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", labelWidth, y+4, b.value*scale, rowHeight-8, color)
		fmt.Fprintf(&s, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%[2]d" stroke="#1f2328" stroke-width="1.5"/>`+"\n", labelWidth+b.least*scale, y+rowHeight/2, labelWidth+b.most*scale)
		fmt.Fprintf(&s, `<text x="%.1f" y="%d" fill="#1f2328">%s</text>`+"\n", labelWidth+b.most*scale+6, y+16, Number(b.value, digits))
	}
	s.WriteString("</svg>\n")
	return s.String()
}

func escape(text string) string {
	var s strings.Builder
	_ = xml.EscapeText(&s, []byte(text)) // a strings.Builder takes everything
	return s.String()
}
