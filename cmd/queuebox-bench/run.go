package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/queuebox/queuebox/cmd/queuebox-bench/drive"
	"github.com/queuebox/queuebox/cmd/queuebox-bench/report"
)

// runCmd is what a run can be told.
type runCmd struct {
	Measures   []string      `help:"Measures to take, all where none is named: throughput, payload-4k, ordering, published, latency, alone." placeholder:"NAME"`
	Contenders []string      `help:"Contenders to run, all where none is named; those whose names begin with one of these." placeholder:"PREFIX"`
	Window     time.Duration `help:"Length of a window." default:"3s"`
	Warmup     time.Duration `help:"What runs before a window and is not measured." default:"1s"`
	Rounds     int           `help:"Windows of each contender." default:"3"`
	Backlog    int           `help:"Messages that stand in a queue before the first window." default:"100000"`
	Quick      bool          `help:"A smoke test: some of the contenders, one short window, a small backlog. Its figures mean nothing, and no target is judged."`

	ServerBinary string `help:"Server to measure, instead of one built from --source." placeholder:"PATH"`
	Source       string `help:"Clone to build the server from; by default the one around the working directory." placeholder:"DIR"`

	Output
}

// Output says where a report goes.
type Output struct {
	JSON     string `help:"JSON file of the report; the measures of this run replace those in it." default:"queuebox-bench.json" placeholder:"PATH"`
	Markdown string `help:"Page that has the section between the markers of this program." placeholder:"PATH"`
	Charts   string `help:"Directory that the SVG charts are written to." placeholder:"DIR"`
}

// write shows a report everywhere.
func (o *Output) write(r *report.Report) error {
	if err := r.Table(os.Stdout); err != nil {
		return err
	}
	if o.Charts != "" {
		if err := r.Charts(o.Charts); err != nil {
			return err
		}
	}
	if o.Markdown != "" {
		return r.Page(o.Markdown)
	}
	return nil
}

// reportCmd shows what was measured before.
type reportCmd struct{ Output }

func (c *reportCmd) Run() error {
	r, err := report.Load(c.JSON)
	if err != nil {
		return err
	}
	return c.write(r)
}

// smoke is what --quick changes.
func (c *runCmd) smoke() {
	c.Window, c.Warmup, c.Rounds, c.Backlog = time.Second, time.Second, 1, 2000
	// Its figures are worth nothing, so they never stand in for others.
	c.Markdown, c.Charts = "", ""
	if _, err := os.Stat(c.JSON); err == nil {
		c.JSON = ""
	}
}

func (c *runCmd) Run(ctx context.Context) error {
	if c.Quick {
		c.smoke()
	}
	plan, err := c.plan()
	if err != nil {
		return err
	}
	r, err := report.Load(c.JSON)
	if err != nil {
		return err
	}
	s, err := openSession(ctx, c.ServerBinary, c.Source, os.Stderr)
	if err != nil {
		return err
	}
	s.node.offline = c.Quick
	defer s.close() //nolint:contextcheck // it must clean up where ctx has ended
	for _, m := range plan {
		taken, err := c.take(ctx, s, &m)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		// Each measure is kept as soon as it is there.
		r.Put(*taken, order())
		if c.JSON == "" {
			continue
		}
		if err := r.Save(c.JSON); err != nil {
			return err
		}
	}
	if c.Quick {
		s.say("it runs here; the figures of --quick mean nothing")
	}
	return errors.Join(c.write(r), errors.Join(s.failures...))
}

func order() []string {
	all := measures()
	names := make([]string, 0, len(all))
	for _, m := range all {
		names = append(names, m.name)
	}
	return names
}

// commandLine is what this run was started with, for its report. Paths are the business of the
// machine that it ran on.
func commandLine() string {
	line := []string{"queuebox-bench"}
	for _, a := range os.Args[1:] {
		if !strings.ContainsRune(a, filepath.Separator) {
			line = append(line, a)
		}
	}
	return strings.Join(line, " ")
}

// plan is what is to be measured.
func (c *runCmd) plan() ([]measure, error) {
	for _, name := range c.Measures {
		if !slices.Contains(order(), name) {
			return nil, fmt.Errorf("there is no measure %q, only %s", name, strings.Join(order(), ", "))
		}
	}
	var out []measure
	for _, m := range measures() {
		if len(c.Measures) > 0 && !slices.Contains(c.Measures, m.name) {
			continue
		}
		m.contenders = slices.DeleteFunc(m.contenders, func(x contender) bool {
			return c.Quick && !x.quick || len(c.Contenders) > 0 && !slices.ContainsFunc(c.Contenders, func(p string) bool { return strings.HasPrefix(x.name, p) })
		})
		if len(m.contenders) > 0 {
			out = append(out, m)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no contender has such a name")
	}
	return out, nil
}

// running is a contender with what it runs on.
type running struct {
	contender

	system   system
	instance instance
	command  []string
	found    *report.Contender
}

// take runs one measure: all contenders are prepared, then they have their windows in turns.
func (c *runCmd) take(ctx context.Context, s *session, m *measure) (*report.Measure, error) {
	s.payload = m.payload
	s.say("%s: %d contenders, %d rounds of %s", m.title, len(m.contenders), c.Rounds, c.Window)
	out := &report.Measure{
		Name: m.name, Title: m.title, Taken: time.Now().UTC().Truncate(time.Second),
		Revision: s.revision, Machine: s.machine, Postgres: s.postgres.Version, Settings: s.settings(),
		Window: c.Window.Seconds(), Rounds: c.Rounds, Payload: m.payload, Backlog: c.standing(m),
		Bodies: drive.Bodies, Command: commandLine(), Warmup: c.Warmup.Seconds(), Quick: c.Quick,
	}
	out.Contenders = make([]report.Contender, len(m.contenders))
	all := make([]*running, 0, len(m.contenders))
	systems := s.systems()
	for i, x := range m.contenders {
		found := &out.Contenders[i]
		found.Name, found.Title, found.Settings = x.name, x.title, x.settings
		r := &running{contender: x, system: systems[x.system], found: found}
		if r.system == nil {
			return nil, fmt.Errorf("%s has no system %q", x.name, x.system)
		}
		r.instance.database = strings.ReplaceAll(m.name+"_"+x.name, "-", "_")
		if err := r.system.missing(ctx); err != nil {
			s.skip(r, err.Error())
			continue
		}
		found.Version, r.command = r.system.version(ctx), s.command(r.system)
		if x.do == drive.Burn {
			all = append(all, r)
			continue
		}
		if err := c.prepare(ctx, s, m, r); err != nil {
			if err := s.fail(ctx, r, err); err != nil {
				return nil, err
			}
		}
		if found.Skipped == "" {
			all = append(all, r)
		}
	}
	for round := range c.Rounds {
		for i := range all {
			r := all[turn(i, round, len(all))]
			if r.found.Skipped != "" {
				continue
			}
			if err := c.once(ctx, s, m, r, round+1); err != nil {
				if err := s.fail(ctx, r, err); err != nil {
					return nil, err
				}
			}
		}
	}
	return out, nil
}

// turn is who is i-th in a round. Every other round goes backwards, so that nobody always comes
// after the same neighbour, whose tables may still be vacuumed.
func turn(i, round, n int) int {
	if round%2 == 1 {
		return n - 1 - i
	}
	return i
}

// skip says loudly that a contender does not run.
func (s *session) skip(r *running, reason string) {
	r.found.Skipped = reason
	s.say("  SKIPPED %s: %s", r.title, reason)
}

// fail ends a contender that broke, and lets the others go on; the run ends with its error all the
// same. After an interrupt nobody goes on.
func (s *session) fail(ctx context.Context, r *running, err error) error {
	err = fmt.Errorf("%s: %w", r.title, err)
	if ctx.Err() != nil {
		return err
	}
	s.failures = append(s.failures, err)
	s.say("  FAILED %v", err)
	r.found.Skipped, r.found.Windows = "it failed: "+err.Error(), nil
	return nil
}

// prepare makes database and schema and fills the queue.
func (c *runCmd) prepare(ctx context.Context, s *session, m *measure, r *running) error {
	if err := r.system.prepare(ctx, &r.instance); err != nil {
		return err
	}
	backlog := r.backlog
	switch backlog {
	case none:
		return nil
	case 0:
		backlog = c.standing(m)
	}
	s.say("  %s: filling %d messages", r.title, backlog)
	spec := c.spec(s, m, r)
	spec.Do, spec.Count = drive.Fill, backlog
	_, err := c.turn(ctx, s, spec, r)
	return err
}

// standing is the backlog of a measure: its own, or a smaller one of the run.
func (c *runCmd) standing(m *measure) int {
	if m.backlog > 0 {
		return min(m.backlog, c.Backlog)
	}
	return c.Backlog
}

func (c *runCmd) spec(s *session, m *measure, r *running) drive.Spec {
	spec := drive.Spec{
		Load: r.load, Do: drive.Cycle, Queue: "bench", Payload: m.payload, Keys: r.keys, Rate: r.rate,
		Warmup: c.Warmup, Window: c.Window, Database: s.postgres.URL(r.instance.database),
	}
	if r.do != "" {
		spec.Do = r.do
	}
	spec.Count = c.standing(m) // what is burnt down; nothing else asks
	return spec
}

// turn lets a client run against the server of its contender.
func (c *runCmd) turn(ctx context.Context, s *session, spec drive.Spec, r *running) (*report.Window, error) {
	if err := r.system.start(ctx, &r.instance); err != nil {
		return nil, err
	}
	defer r.system.stop(&r.instance)
	spec.Server = r.instance.address
	w, err := s.window(ctx, r.command, spec, &r.instance)
	if skipped, ok := errors.AsType[*skippedError](err); ok {
		s.skip(r, skipped.reason)
		return nil, nil //nolint:nilnil // it has said why it has no window
	}
	return w, err
}

// once runs one window.
func (c *runCmd) once(ctx context.Context, s *session, m *measure, r *running, round int) error {
	if r.do == drive.Burn {
		// What is burnt down is filled anew, in a database that has no history.
		r.instance.database = fmt.Sprintf("%s_%s_%d", m.name, strings.ReplaceAll(r.name, "-", "_"), round)
		if err := c.prepare(ctx, s, m, r); err != nil || r.found.Skipped != "" {
			return err
		}
	}
	w, err := c.turn(ctx, s, c.spec(s, m, r), r)
	if err != nil || r.found.Skipped != "" {
		return err
	}
	if w == nil {
		return errors.New("the client ended without measuring")
	}
	w.Round = round
	r.found.Windows = append(r.found.Windows, *w)
	s.say("  round %d  %-48s %10s messages/s", round, r.title, report.Number(w.Rate(), 0))
	return nil
}
