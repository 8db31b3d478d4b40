package report

import (
	"fmt"
	"slices"
	"strings"
)

// Verdict is a target and what was measured.
type Verdict struct {
	What, Target, Measured string
	Known, Met             bool
	// Beside is set where there is no target: it only stands beside one, with like for like.
	Beside bool
}

// Word is met, not met or not measured.
func (v *Verdict) Word() string {
	switch {
	case !v.Known:
		return "not measured"
	case v.Beside:
		return "no target"
	case v.Met:
		return "met"
	}
	return "**not met**"
}

// target is a bound on a ratio of two contenders of one measure.
type target struct {
	what, measure string
	a, b          string
	fa, fb        Figure
	// unit says what the two are; bound is what the ratio may be, least is set where it must be
	// at least that, else it may be at most that.
	least   bool
	bound   float64
	stretch float64
}

// The measures of the benchmark.
const (
	Throughput = "throughput"
	Payload4K  = "payload-4k"
	Ordering   = "ordering"
	Published  = "published"
	LatencyOf  = "latency"
	Alone      = "alone"
)

const (
	batch1000  = "queuebox-batch-1000"
	worker2000 = "queuebox-worker-2000"
	unary256   = "queuebox-unary-256"
	stream     = "queuebox-stream"
	rivers     = "river"
	riverOne   = "river-single"
)

// faster asks that a makes at least bound times the messages of b.
func faster(what, measure, a, b string, bound, stretch float64) target {
	return target{what: what, measure: measure, a: a, b: b, fa: Rate, fb: Rate, least: true, bound: bound, stretch: stretch}
}

// beside compares what a target does not: like with like. It has no bound.
func beside(what, a, b string) target {
	return target{what: "– like for like: " + what, measure: Throughput, a: a, b: b, fa: Rate, fb: Rate}
}

// atMost asks that a figure of a is at most bound times that of b.
func atMost(what, measure, a, b string, f Figure, bound float64) target {
	return target{what: what, measure: measure, a: a, b: b, fa: f, fb: f, bound: bound}
}

// targets are those that this program can judge.
func targets() []target {
	all := []target{
		faster("batch 1000, messages/s, against River", Throughput, batch1000, rivers, 4, 5),
		faster("batch 1000 against graphile-worker with localQueue", Throughput, batch1000, "graphile-worker-local", 1.7, 2),
		faster("batch 1000 against raw SQL, read + delete 1000", Throughput, batch1000, "pgmq-delete-1000", 1, 1.2),
		faster("batch 1000 against raw SQL, read + archive 1000", Throughput, batch1000, "pgmq-archive-1000", 1.1, 1.3),
		faster("batch 1000 against NATS JetStream, double ack", Throughput, batch1000, "nats-jetstream", 1.5, 0),
		faster("batch 1000, an ordering key on every message, 10k keys, against unkeyed", Ordering, "queuebox-batch-1000-keyed", batch1000, 0.5, 0),
		faster("8 hot keys, 8 workers, against joining switched off", Ordering, "queuebox-hot-keys", "queuebox-hot-keys-unjoined", 2, 0),
		faster("Go Worker, 2000 handlers, against River", Throughput, worker2000, rivers, 3, 0),
		faster("Go Worker, 2000 handlers, enqueued in batches of 1000, against River inserting singly", Throughput, worker2000, riverOne, 7, 0),
		beside("Go Worker, 2000 handlers, against River, each enqueued singly by 64 callers", "queuebox-worker-2000-single", riverOne),
		faster("Go Worker, 256 handlers, enqueued in batches of 1000, against plain unary with 256 callers", Throughput, "queuebox-worker-256", unary256, 2.5, 0),
		beside("Go Worker, 256 handlers, against plain unary, each enqueued singly by 256 callers", "queuebox-worker-256-single", unary256),
		faster("plain unary, 256 callers, against River inserting singly from 64 callers", Throughput, unary256, riverOne, 1, 0),
		beside("plain unary against River inserting singly, 64 callers each", "queuebox-unary-64", riverOne),
		faster("plain unary, 256 callers, against raw SQL singly, 16 connections", Throughput, unary256, "pgmq-delete-1", 5, 0),
		faster("plain unary, 256 callers, against an echo server", Throughput, unary256, "echo", 0.6, 0),
		atMost("WAL a message, batch 1000, against River", Throughput, batch1000, rivers, WAL, 0.25),
		atMost("WAL a message, Work stream, against River", Throughput, stream, rivers, WAL, 0.25),
		atMost("WAL a message, unary with 256 callers, against River", Throughput, unary256, rivers, WAL, 1.0/3),
	}
	all = slices.Grow(all, 12)
	for _, rate := range []string{"200", "1000"} {
		for _, ours := range []struct{ name, title string }{{"queuebox-worker", "Go Worker"}, {"queuebox-unary", "waiting unary claims"}} {
			for _, p := range []int{50, 99} {
				all = append(all, atMost(
					fmt.Sprintf("enqueue to start, idle queue, %s messages/s, p%d, %s against River", rate, p, ours.title),
					LatencyOf, ours.name+"@"+rate, "river@"+rate, Percentile("enqueue-to-start", p), 1))
			}
			all = append(all, atMost(fmt.Sprintf("CPU at %s messages/s, %s against River", rate, ours.title), LatencyOf, ours.name+"@"+rate, "river@"+rate, AllCPU, 1.0/3))
		}
	}
	return all
}

// judged is a measure whose figures mean something; nil where there is none.
func (r *Report) judged(name string) *Measure {
	if m := r.Measure(name); m != nil && !m.Quick {
		return m
	}
	return nil
}

// Verdicts judges every target; those of which a contender did not run are not measured.
func (r *Report) Verdicts() []Verdict {
	if !slices.ContainsFunc(r.Measures, func(m Measure) bool { return !m.Quick }) {
		return nil // there is nothing, or nothing that means anything
	}
	var out []Verdict
	for _, t := range targets() {
		out = append(out, t.judge(r))
	}
	return append(out, r.statements(), r.alone())
}

func (t *target) judge(r *Report) Verdict {
	word := "at most"
	if t.least {
		word = "at least"
	}
	v := Verdict{What: t.what, Target: fmt.Sprintf("%s %sx", word, Number(t.bound, 2))}
	if t.bound == 0 {
		v.Target, v.Beside = "–", true
	}
	if t.stretch > 0 {
		v.Target += fmt.Sprintf(" (stretch %sx)", strings.TrimSuffix(Number(t.stretch, 1), ".0"))
	}
	m := r.judged(t.measure)
	ratio, ok := CompareTwo(m.Contender(t.a), t.fa, m.Contender(t.b), t.fb)
	if !ok {
		v.Measured = "–"
		return v
	}
	v.Known, v.Measured = true, ratio.String()+"x"
	if v.Beside {
		return v
	}
	if t.least {
		v.Met = ratio.Median >= t.bound
	} else {
		v.Met = ratio.Median <= t.bound
	}
	return v
}

// statements judges the number of statements of the plain calls.
func (r *Report) statements() Verdict {
	v := Verdict{What: "statements a message, plain unary, 256 callers", Target: "at most 0.2", Measured: "–"}
	c := r.judged(Throughput).Contender(unary256)
	if c == nil {
		return v
	}
	if n, ok := c.Median(Statements); ok {
		v.Known, v.Met, v.Measured = true, n <= 0.2, Number(n, 3)
	}
	return v
}

// alone judges one caller: a completion against the bare statement plus an echo call.
func (r *Report) alone() Verdict {
	v := Verdict{What: "one caller alone, p50 of Complete against the bare statement plus an echo call", Target: "at most 1.20x", Measured: "–"}
	m := r.judged(Alone)
	p50 := Percentile("complete", 50)
	ours, bare, echo := m.Contender("queuebox-unary-1"), m.Contender("bare-statement"), m.Contender("echo-1")
	if ours == nil || bare == nil || echo == nil {
		return v
	}
	// The two that are added are of the same round.
	sum := Contender{}
	for i := range bare.Windows {
		for j := range echo.Windows {
			if bare.Windows[i].Round == echo.Windows[j].Round {
				w := bare.Windows[i]
				total := p50(&w) + p50(&echo.Windows[j])
				w.Seconds, w.Messages = total, 1
				sum.Windows = append(sum.Windows, w)
			}
		}
	}
	ratio, ok := CompareTwo(ours, p50, &sum, func(w *Window) float64 { return w.Seconds })
	if ok {
		v.Known, v.Met, v.Measured = true, ratio.Median <= 1.2, ratio.String()+"x"
	}
	return v
}
