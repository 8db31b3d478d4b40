package drive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// ErrSkip says that this server or machine cannot run a load; it wraps the reason.
var ErrSkip = errors.New("cannot run here")

// load is a client program.
type load interface {
	// fill enqueues n messages.
	fill(ctx context.Context, n int) error
	// cycle runs whole cycles until ctx ends, and returns nil then.
	cycle(ctx context.Context, m *Meter) error
	close()
}

// burner is a load that can work off what is there, without enqueuing.
type burner interface {
	burn(ctx context.Context, n int, begin func(), m *Meter) error
}

// latency is a load that can measure from enqueue to the start of a handler.
type latency interface {
	latency(ctx context.Context, rate int, m *Meter) error
}

// loads make the client programs, by the name in a spec.
func loads() map[string]func(context.Context, Spec) (load, error) {
	return map[string]func(context.Context, Spec) (load, error){
		"queuebox-unary-1":     callers{callers: 1, batch: 1}.open,
		"queuebox-unary-8":     callers{callers: 8, batch: 1}.open,
		"queuebox-unary-64":    callers{callers: 64, batch: 1}.open,
		"queuebox-unary-256":   callers{callers: 256, batch: 1}.open,
		"queuebox-batch-100":   callers{callers: 8, batch: 100}.open,
		"queuebox-batch-1000":  callers{callers: 4, batch: 1000}.open,
		"queuebox-stream":      openStream,
		"queuebox-worker-256":  workers{handlers: 256}.open,
		"queuebox-worker-2000": workers{handlers: 2000}.open,
		// Enqueued singly, by as many callers as what they are compared with has.
		"queuebox-worker-256-single":  workers{handlers: 256, single: 256}.open,
		"queuebox-worker-2000-single": workers{handlers: 2000, single: riverInserters}.open,
		"river":                       riverShape{}.open,
		"nats-jetstream":              natsShape{}.open,
		"river-single":                riverShape{single: true}.open,
		"pgmq-delete-1":               tableShape{callers: 16, batch: 1}.open,
		"pgmq-delete-100":             tableShape{callers: 8, batch: 100}.open,
		"pgmq-delete-1000":            tableShape{callers: 4, batch: 1000}.open,
		"pgmq-archive-100":            tableShape{callers: 8, batch: 100, archive: true}.open,
		"pgmq-archive-1000":           tableShape{callers: 4, batch: 1000, archive: true}.open,
		"pgmq-archive-1-caller":       tableShape{callers: 1, batch: 1, archive: true}.open,
	}
}

// Run does what the spec says and tells of it on w.
func Run(ctx context.Context, s Spec, w io.Writer) error {
	err := run(ctx, s, w)
	if errors.Is(err, ErrSkip) {
		return Say(w, Event{Event: EventSkip, Reason: err.Error()})
	}
	return err
}

func run(ctx context.Context, s Spec, w io.Writer) error {
	open := loads()[s.Load]
	if open == nil {
		return fmt.Errorf("there is no load %q", s.Load)
	}
	l, err := open(ctx, s)
	if err != nil {
		return err
	}
	defer l.close()
	m := &Meter{}
	begin := func() {
		m.Open()
		// Who reads has ended where this fails, and then so does the run.
		_ = Say(w, Event{Event: EventBegin, CPU: ownCPU()})
	}
	switch s.Do {
	case Fill:
		return l.fill(ctx, s.Count)
	case Burn:
		b, ok := l.(burner)
		if !ok {
			return fmt.Errorf("%w: %s has no burn-down", ErrSkip, s.Load)
		}
		if err := b.burn(ctx, s.Count, begin, m); err != nil {
			return err
		}
		m.Close()
		cpu := ownCPU()
		return Say(w, Event{Event: EventEnd, CPU: cpu, Result: m.Result()})
	case Latency:
		lat, ok := l.(latency)
		if !ok {
			return fmt.Errorf("%w: %s does not measure latency", ErrSkip, s.Load)
		}
		return window(ctx, s, w, m, begin, func(ctx context.Context) error { return lat.latency(ctx, s.Rate, m) })
	default:
		return window(ctx, s, w, m, begin, func(ctx context.Context) error { return l.cycle(ctx, m) })
	}
}

// window runs work for the warm-up and the measured part.
func window(ctx context.Context, s Spec, w io.Writer, m *Meter, begin func(), work func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- work(ctx) }()
	// wait returns early where the work ends before its time, which is always a failure.
	wait := func(d time.Duration) error {
		select {
		case err := <-ended:
			if err == nil {
				err = fmt.Errorf("%s ended before its window did", s.Load)
			}
			return err
		case <-time.After(d):
			return nil
		}
	}
	if err := wait(s.Warmup); err != nil {
		return err
	}
	begin()
	if err := wait(s.Window); err != nil {
		return err
	}
	m.Close()
	cpu := ownCPU()
	if err := Say(w, Event{Event: EventEnd, CPU: cpu, Result: m.Result()}); err != nil {
		return err
	}
	cancel()
	return <-ended
}

// crowd runs n workers until ctx ends or one fails; then all end.
func crowd(ctx context.Context, n int, work func(ctx context.Context, i int) error) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := work(inner, i); err != nil && inner.Err() == nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(inner)
}
