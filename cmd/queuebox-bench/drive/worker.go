package drive

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	queuebox "github.com/queuebox/queuebox/client/go"
)

// workers runs the Worker of client/go with many handlers, each of which completes one message
// and waits until that is durable. Producers beside it call EnqueueBatch, or many callers Enqueue, on a client of their own.
type workers struct {
	handlers int
	// single is how many callers enqueue one message each; where it is 0, producers enqueue batches.
	single int

	spec              Spec
	producing, client *queuebox.Client
	bodies            *bodies
}

func (w workers) open(_ context.Context, s Spec) (load, error) {
	w.spec, w.bodies = s, newBodies(s.Payload, nil)
	var err error
	quiet := queuebox.WithLogger(slog.New(slog.DiscardHandler))
	if w.producing, err = queuebox.Dial(s.Server, quiet); err != nil {
		return nil, fmt.Errorf("producer: %w", err)
	}
	if w.client, err = queuebox.Dial(s.Server, quiet); err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	return &w, nil
}

func (w *workers) close() {
	_ = w.client.Close()
	_ = w.producing.Close()
}

func (w *workers) fill(ctx context.Context, n int) error {
	for ; n > 0; n -= producerBatch {
		if err := w.enqueue(ctx, min(n, producerBatch)); err != nil {
			return err
		}
	}
	return nil
}

func (w *workers) enqueue(ctx context.Context, n int) error {
	if n == 1 {
		_, err := w.producing.Enqueue(ctx, w.spec.Queue, queuebox.NewMessage{Payload: w.bodies.bytes()})
		return err
	}
	batch := make([]queuebox.NewMessage, n)
	for i := range batch {
		batch[i].Payload = w.bodies.bytes()
	}
	_, err := w.producing.EnqueueBatch(ctx, w.spec.Queue, batch)
	return err
}

func (w *workers) run(ctx context.Context, handler queuebox.Handler) error {
	worker := queuebox.NewWorker(w.client, queuebox.WorkerConfig{Queue: w.spec.Queue, Concurrency: w.handlers, StopTimeout: 5 * time.Second})
	return worker.Run(ctx, handler)
}

func (w *workers) cycle(ctx context.Context, m *Meter) error {
	enqueuers, batch, between := producers, producerBatch, producerBalance
	if w.single > 0 {
		enqueuers, batch, between = w.single, 1, singleBalance
	}
	b := newBalance(between)
	return crowd(ctx, enqueuers+1, func(ctx context.Context, i int) error {
		if i == enqueuers {
			return w.run(ctx, func(_ context.Context, h *queuebox.Handle) error {
				if b.start(ctx, 1) != nil {
					_, err := h.Release(context.WithoutCancel(ctx), 0) // the window is over
					return err
				}
				start := time.Now()
				// The context of the handle ends with its settlement; the call is not to.
				if _, err := h.Complete(context.WithoutCancel(ctx)); err != nil {
					return err
				}
				m.Took(StepComplete, start)
				m.Done(1)
				b.completed(1)
				return nil
			})
		}
		for {
			if err := b.reserve(ctx, batch); err != nil {
				return err
			}
			start := time.Now()
			if err := w.enqueue(ctx, batch); err != nil {
				return err
			}
			m.Took(StepEnqueue, start)
			b.enqueued(batch)
		}
	})
}

func (w *workers) latency(ctx context.Context, rate int, m *Meter) error {
	started := newStarts(m, w.spec.Payload)
	return crowd(ctx, 2, func(ctx context.Context, i int) error {
		if i == 0 {
			return paced(ctx, rate, func(ctx context.Context) error {
				_, err := w.producing.Enqueue(ctx, w.spec.Queue, queuebox.NewMessage{Payload: started.body(w.spec.Payload)})
				return err
			}, m)
		}
		return w.run(ctx, func(_ context.Context, h *queuebox.Handle) error {
			started.handle(h.Message().Payload)
			start := time.Now()
			if _, err := h.Complete(context.WithoutCancel(ctx)); err != nil {
				return err
			}
			m.Took(StepComplete, start)
			m.Done(1)
			return nil
		})
	})
}
