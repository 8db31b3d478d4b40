package ops

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// progress tells how far a long command is: one line that is drawn over where a person looks
// at a terminal, else a line for every step.
type progress struct {
	w     io.Writer
	bar   bool
	done  string // what happened to what was counted: "redriven"
	total int64  // -1 where nobody knows
	count int64
	begun time.Time
	drawn time.Time
	width int // of what is on the line
}

const (
	barCells = 24
	barEvery = 100 * time.Millisecond
)

func newProgress(w io.Writer, bar bool, done string, total int64) *progress {
	return &progress{w: w, bar: bar, done: done, total: total, begun: time.Now()}
}

// add counts a step.
func (p *progress) add(n int64) {
	p.count += n
	now := time.Now()
	if p.bar && now.Sub(p.drawn) < barEvery {
		return
	}
	p.drawn = now
	p.print(p.text(now.Sub(p.begun)))
}

// end takes the bar away, since what comes next says how it ended.
func (p *progress) end() {
	if p.bar {
		p.print("")
		_, _ = io.WriteString(p.w, "\r")
	}
}

func (p *progress) print(text string) {
	if !p.bar {
		_, _ = fmt.Fprintln(p.w, text)
		return
	}
	_, _ = fmt.Fprintf(p.w, "\r%-*s", p.width, text)
	p.width = len(text)
}

func (p *progress) text(took time.Duration) string {
	speed := float64(p.count) / max(took.Seconds(), 0.001)
	text := fmt.Sprintf("%s %s", p.done, count(p.count))
	if p.total < 0 {
		return fmt.Sprintf("%s, %s/s", text, count(int64(speed)))
	}
	total := max(p.total, p.count)
	text += " of " + count(total)
	if p.bar && total > 0 {
		full := int(barCells * p.count / total)
		text = fmt.Sprintf("[%s%s] %s", strings.Repeat("#", full), strings.Repeat(".", barCells-full), text)
	}
	text += fmt.Sprintf(", %s/s", count(int64(speed)))
	if left := total - p.count; left > 0 && speed > 0 {
		text += ", " + span(time.Duration(float64(left)/speed*float64(time.Second)).Round(time.Second)) + " left"
	}
	return text
}
