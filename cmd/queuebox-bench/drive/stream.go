package drive

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// streams works a queue over Work streams, one a connection: every frame of deliveries is
// answered by one frame with their completions and as much new credit. Producers beside it call
// BatchEnqueue.
type streams struct {
	*callers
}

const (
	streamCredit    = 1000
	producers       = 2
	producerBatch   = 1000
	producerBalance = 8000
	// singleBalance is that of those who enqueue singly: it is full before the warm-up is over, so
	// that as much is enqueued in a window as is completed.
	singleBalance = 2000
)

func openStream(ctx context.Context, s Spec) (load, error) {
	l, err := callers{callers: connections, batch: 1}.open(ctx, s)
	if err != nil {
		return nil, err
	}
	return &streams{l.(*callers)}, nil //nolint:forcetypeassert // it is what open makes
}

type workStream = grpc.BidiStreamingClient[queueboxv1.WorkRequest, queueboxv1.WorkResponse]

func (l *streams) start(ctx context.Context, i int, credit int32) (workStream, error) {
	stream, err := l.stubs[i%len(l.stubs)].Work(ctx)
	if err != nil {
		return nil, missing(err)
	}
	err = stream.Send(&queueboxv1.WorkRequest{
		Start:    &queueboxv1.WorkStart{Queue: l.spec.Queue, WorkerId: workerName(i), ReleaseOnClose: true},
		Credit:   credit,
		Sequence: 1,
	})
	if err != nil {
		// The status of a stream stands in its receiving half.
		_, err = stream.Recv()
	}
	return stream, missing(err)
}

func (l *streams) cycle(ctx context.Context, m *Meter) error {
	b := newBalance(producerBalance)
	return crowd(ctx, producers+connections, func(ctx context.Context, i int) error {
		if i < producers {
			return l.produce(ctx, l.stubs[i], b, m)
		}
		return l.work(ctx, i, m, func(n int) error { return b.start(ctx, n) }, func(n int) {
			m.Done(n)
			b.completed(n)
		})
	})
}

// burn works off n messages; nothing is enqueued beside it.
func (l *streams) burn(ctx context.Context, n int, begin func(), m *Meter) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := countdown(n, m, cancel)
	begin()
	return crowd(ctx, connections, func(ctx context.Context, i int) error {
		return l.work(ctx, i, m, func(int) error { return nil }, done)
	})
}

// work completes what one stream delivers: begin comes before the messages of a frame are
// handled, done once they are completed. The answers are read while begin waits: what they tell is
// what lets others go on.
func (l *streams) work(ctx context.Context, i int, m *Meter, begin func(n int) error, done func(n int)) error {
	group, ctx := errgroup.WithContext(ctx) // the stream ends with the first of the two below
	stream, err := l.start(ctx, i, streamCredit)
	if err != nil {
		return err
	}
	// There are never more frames than messages that the credit allows.
	frames := make(chan []*queueboxv1.ClaimedMessage, streamCredit)
	var mu sync.Mutex
	sent := map[int64]time.Time{}
	group.Go(func() error {
		defer close(frames)
		for {
			frame, err := stream.Recv()
			if err != nil {
				return missing(err)
			}
			if results := frame.GetSettleResults(); len(results) > 0 {
				if err := settled(results); err != nil {
					return err
				}
				mu.Lock()
				m.Took(StepComplete, sent[frame.GetSequence()])
				delete(sent, frame.GetSequence())
				mu.Unlock()
				done(len(results))
			}
			if deliveries := frame.GetDeliveries(); len(deliveries) > 0 {
				frames <- deliveries
			}
		}
	})
	group.Go(func() error {
		sequence := int64(1)
		for {
			var deliveries []*queueboxv1.ClaimedMessage
			select {
			case deliveries = <-frames:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if deliveries == nil {
				return nil // the reader says why
			}
			if err := begin(len(deliveries)); err != nil {
				return err
			}
			sequence++
			mu.Lock()
			sent[sequence] = time.Now()
			mu.Unlock()
			err := stream.Send(&queueboxv1.WorkRequest{
				Sequence:    sequence,
				Credit:      int32(len(deliveries)),
				Settlements: completions(l.spec.Queue, deliveries),
			})
			if err != nil {
				return fmt.Errorf("send on a work stream: %w", err)
			}
		}
	})
	return group.Wait()
}

// produce enqueues batches as room comes.
func (l *streams) produce(ctx context.Context, s stubs, b *balance, m *Meter) error {
	for {
		if err := b.reserve(ctx, producerBatch); err != nil {
			return err
		}
		start := time.Now()
		if err := l.enqueue(ctx, s, producerBatch); err != nil {
			return err
		}
		m.Took(StepEnqueue, start)
		b.enqueued(producerBatch)
	}
}

// latency lets one stream take what is enqueued singly.
func (l *streams) latency(ctx context.Context, rate int, m *Meter) error {
	started := newStarts(m, l.spec.Payload)
	return crowd(ctx, 2, func(ctx context.Context, i int) error {
		if i == 0 {
			return paced(ctx, rate, func(ctx context.Context) error {
				_, err := l.stubs[0].Enqueue(ctx, &queueboxv1.EnqueueRequest{Queue: l.spec.Queue, Payload: started.body(l.spec.Payload)})
				return err
			}, m)
		}
		stream, err := l.start(ctx, i, streamCredit)
		if err != nil {
			return err
		}
		sent := map[int64]time.Time{}
		for sequence := int64(2); ; sequence++ {
			frame, err := stream.Recv()
			if err != nil {
				return missing(err)
			}
			if results := frame.GetSettleResults(); len(results) > 0 {
				m.Took(StepComplete, sent[frame.GetSequence()])
				delete(sent, frame.GetSequence())
				m.Done(len(results))
			}
			if len(frame.GetDeliveries()) == 0 {
				continue
			}
			for _, d := range frame.GetDeliveries() {
				started.handle(bytes.TrimSpace(d.GetMessage().GetPayload()))
			}
			sent[sequence] = time.Now()
			err = stream.Send(&queueboxv1.WorkRequest{
				Sequence:    sequence,
				Credit:      int32(len(frame.GetDeliveries())),
				Settlements: completions(l.spec.Queue, frame.GetDeliveries()),
			})
			if err != nil {
				return fmt.Errorf("send on a work stream: %w", err)
			}
		}
	})
}
