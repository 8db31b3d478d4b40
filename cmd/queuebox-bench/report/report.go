// Package report holds what a run of the benchmark found, and shows it: as a table, JSON,
// Markdown and a chart. It knows nothing of how it was measured.
package report

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/queuebox/queuebox/cmd/queuebox-bench/drive"
)

// Report is everything that was measured, measure by measure. A run replaces the measures that it
// took and leaves the others, so every figure stands with its own date, and ratios are made
// within a measure only.
type Report struct {
	Measures []Measure `json:"measures"`
}

// Measure is a group of contenders that ran in turns on one database server.
type Measure struct {
	Name  string    `json:"name"`
	Title string    `json:"title"`
	Taken time.Time `json:"taken"`
	// Revision is what was built.
	Revision string   `json:"revision"`
	Machine  string   `json:"machine"`
	Postgres string   `json:"postgres"`
	Settings []string `json:"settings"`
	// Window is the length of one in seconds, Rounds how many each contender had.
	Window float64 `json:"window"`
	Rounds int     `json:"rounds"`
	// Warmup is in seconds, too.
	Warmup float64 `json:"warmup,omitempty"`
	// Command is the command line of the run.
	Command string `json:"command,omitempty"`
	// Quick is set for a smoke test, whose figures mean nothing.
	Quick   bool `json:"quick,omitempty"`
	Payload int  `json:"payload"`
	// Bodies says what a payload consists of; empty is one letter repeated, as it was at first.
	Bodies  string `json:"bodies,omitempty"`
	Backlog int    `json:"backlog"`

	Contenders []Contender `json:"contenders"`
}

// Contender is one program in one shape.
type Contender struct {
	Name     string `json:"name"`
	Title    string `json:"title"`
	Version  string `json:"version"`
	Settings string `json:"settings"`
	// Skipped says why it did not run.
	Skipped string   `json:"skipped,omitempty"`
	Windows []Window `json:"windows,omitempty"`
}

// Window is what one window brought, and what it cost. A cost of -1 could not be read.
type Window struct {
	Round int `json:"round"`
	drive.Result

	ClientCPU   float64 `json:"client_cpu"`
	ServerCPU   float64 `json:"server_cpu"`
	DatabaseCPU float64 `json:"database_cpu"`
	// MachineCPU is the processor time of everything on the machine, LoadBefore the load average of
	// the minute before the window.
	MachineCPU float64 `json:"machine_cpu,omitempty"`
	LoadBefore float64 `json:"load_before,omitempty"`
	Statements float64 `json:"statements"`
	WAL        float64 `json:"wal"`
}

// Rate is messages a second.
func (w *Window) Rate() float64 { return w.per(float64(w.Messages), w.Seconds) }

func (*Window) per(a, b float64) float64 {
	if b <= 0 || a < 0 {
		return unknown
	}
	return a / b
}

// Figure is one number that a window has.
type Figure func(*Window) float64

// unknown stands for a figure that a window does not have.
const unknown = -1

// The figures of a window, each for one message.
var (
	Rate        Figure = (*Window).Rate
	ClientCPU   Figure = func(w *Window) float64 { return w.per(w.ClientCPU*1e6, float64(w.Messages)) }
	ServerCPU   Figure = func(w *Window) float64 { return w.per(w.ServerCPU*1e6, float64(w.Messages)) }
	DatabaseCPU Figure = func(w *Window) float64 { return w.per(w.DatabaseCPU*1e6, float64(w.Messages)) }
	AllCPU      Figure = func(w *Window) float64 {
		if w.ClientCPU < 0 || w.ServerCPU < 0 || w.DatabaseCPU < 0 {
			return unknown
		}
		return w.per((w.ClientCPU+w.ServerCPU+w.DatabaseCPU)*1e6, float64(w.Messages))
	}
	Statements Figure = func(w *Window) float64 { return w.per(w.Statements, float64(w.Messages)) }
	WAL        Figure = func(w *Window) float64 { return w.per(w.WAL, float64(w.Messages)) }
)

// Others is how many cores the rest of the machine used in a window: all that is not of the client,
// the server or the database.
func (w *Window) Others() float64 {
	if w.MachineCPU <= 0 || AllCPU(w) == unknown {
		return unknown
	}
	return max(0, w.per(w.MachineCPU-w.ClientCPU-w.ServerCPU-w.DatabaseCPU, w.Seconds))
}

// Calls is how many calls of a step a window has, behind its percentiles.
func Calls(step string) Figure {
	return func(w *Window) float64 {
		s, ok := w.Steps[step]
		if !ok || s.Count == 0 {
			return unknown
		}
		return float64(s.Count)
	}
}

// Percentile is a figure of a step: 50, 95 or 99.
func Percentile(step string, p int) Figure {
	return func(w *Window) float64 {
		s, ok := w.Steps[step]
		if !ok || s.Count == 0 {
			return unknown
		}
		switch p {
		case 50:
			return s.P50
		case 95:
			return s.P95
		default:
			return s.P99
		}
	}
}

// Median is the median of a figure over the windows of a contender; false where no window has it.
func (c *Contender) Median(f Figure) (float64, bool) {
	var all []float64
	for i := range c.Windows {
		if v := f(&c.Windows[i]); v != unknown {
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	return median(all), true
}

// Contender finds one that ran; nil where there is none or it was skipped.
func (m *Measure) Contender(name string) *Contender {
	if m == nil {
		return nil
	}
	for i := range m.Contenders {
		if c := &m.Contenders[i]; c.Name == name && len(c.Windows) > 0 {
			return c
		}
	}
	return nil
}

// Measure finds a measure; nil where it was not taken.
func (r *Report) Measure(name string) *Measure {
	for i := range r.Measures {
		if r.Measures[i].Name == name {
			return &r.Measures[i]
		}
	}
	return nil
}

// Put replaces the measure of the same name, or adds it. order is that of the names.
func (r *Report) Put(m Measure, order []string) {
	r.Measures = append(slices.DeleteFunc(r.Measures, func(old Measure) bool { return old.Name == m.Name }), m)
	slices.SortStableFunc(r.Measures, func(a, b Measure) int {
		return cmp.Compare(slices.Index(order, a.Name), slices.Index(order, b.Name))
	})
}

// Load reads a report; an empty one where there is no file.
func Load(path string) (*Report, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Report{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	r := &Report{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("report in %s: %w", path, err)
	}
	return r, nil
}

// Save writes it as JSON.
func (r *Report) Save(path string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return Replace(path, append(text, '\n'))
}

// Replace writes a file aside and moves it, so that an interrupt leaves the old one.
func Replace(path string, content []byte) error {
	aside := path + ".new"
	if err := os.WriteFile(aside, content, 0o644); err != nil { //nolint:gosec // a report that anybody may read
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(aside, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
