// Package stream is the load of a worker that works over Work streams: what the benchmarks of
// this repository measure them with.
package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// Load is what the streams of a Run have in common.
type Load struct {
	Queue string
	// Window is how many messages each stream may hold at a time.
	Window int
	// Frames bounds the settlement frames of a stream that are not answered.
	Frames int
}

// Run opens a stream on each connection and completes n messages with them. It returns how
// many deliveries a frame had, and settlements, on average.
func (l Load) Run(ctx context.Context, conns []*grpc.ClientConn, n int) (deliveries, settlements float64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	all := &tally{want: int64(n), done: make(chan struct{})}
	var wg sync.WaitGroup
	for _, conn := range conns {
		s := &stream{load: l, all: all, wake: make(chan struct{}, 1)}
		if s.wire, err = queueboxv1.NewWorkerServiceClient(conn).Work(ctx); err != nil {
			return 0, 0, err
		}
		first := &queueboxv1.WorkRequest{Start: &queueboxv1.WorkStart{Queue: l.Queue, WorkerId: "bench"}, Credit: int32(l.Window)}
		if err = s.wire.Send(first); err != nil {
			return 0, 0, err
		}
		for _, run := range []func(context.Context) error{s.receive, s.settle} {
			wg.Go(func() {
				if err := run(ctx); err != nil && !all.over() {
					cancel(err)
				}
			})
		}
	}
	select {
	case <-all.done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	cancel(nil)
	wg.Wait()
	return per(all.delivered.Load(), all.frames.Load()), per(all.completed.Load(), all.settles.Load()), err
}

func per(n, of int64) float64 { return float64(n) / float64(max(1, of)) }

// tally counts over all streams.
type tally struct {
	want                                  int64
	delivered, frames, completed, settles atomic.Int64
	done                                  chan struct{}
}

func (t *tally) complete(n int) {
	if after := t.completed.Add(int64(n)); after >= t.want && after-int64(n) < t.want {
		close(t.done)
	}
}

func (t *tally) over() bool { return t.completed.Load() >= t.want }

type stream struct {
	load Load
	all  *tally
	wire grpc.BidiStreamingClient[queueboxv1.WorkRequest, queueboxv1.WorkResponse]
	wake chan struct{}

	mu      sync.Mutex
	pending []*queueboxv1.SettleItem
	flights int
}

// receive takes deliveries, whose work is done at once, and answers.
func (s *stream) receive(context.Context) error {
	for {
		out, err := s.wire.Recv()
		if err != nil {
			return err
		}
		if out.GetDraining() || len(out.GetRevocations()) > 0 {
			return errors.New("a signal that nobody asked for")
		}
		for _, r := range out.GetSettleResults() {
			if r.GetError() != nil {
				return fmt.Errorf("item: %v", r.GetError())
			}
		}
		s.mu.Lock()
		for _, m := range out.GetDeliveries() {
			s.pending = append(s.pending, &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_Complete{Complete: &queueboxv1.CompleteRequest{
				MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(),
			}}})
		}
		if out.GetSequence() > 0 {
			s.flights--
		}
		s.mu.Unlock()
		if n := len(out.GetDeliveries()); n > 0 {
			s.all.frames.Add(1)
			s.all.delivered.Add(int64(n))
		}
		select {
		case s.wake <- struct{}{}:
		default:
		}
		s.all.complete(len(out.GetSettleResults()))
	}
}

// settle sends what is done, with credit for as many again: at once where few frames are
// under way, else with what comes meanwhile.
func (s *stream) settle(ctx context.Context) error {
	sequence := int64(0)
	for {
		s.mu.Lock()
		n := min(len(s.pending), 1000)
		if s.flights >= s.load.Frames {
			n = 0
		}
		items := s.pending[:n:n]
		if n > 0 {
			s.pending = s.pending[n:]
			s.flights++
		}
		s.mu.Unlock()
		if n == 0 {
			select {
			case <-s.wake:
				continue
			case <-ctx.Done():
				return nil
			}
		}
		sequence++
		s.all.settles.Add(1)
		if err := s.wire.Send(&queueboxv1.WorkRequest{Sequence: sequence, Settlements: items, Credit: int32(n)}); err != nil {
			return nil //nolint:nilerr // the receiver knows why
		}
	}
}
