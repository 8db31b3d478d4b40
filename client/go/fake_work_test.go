package queuebox

import (
	"context"
	"io"
	"time"

	"google.golang.org/grpc"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

type workServer = grpc.BidiStreamingServer[queueboxv1.WorkRequest, queueboxv1.WorkResponse]

// Work delivers what was put into the fake, never more than the credit. Frames with a sequence are
// answered; a half-closed stream ends. What cannot be sent is offered again.
func (f *fake) Work(stream workServer) error {
	n := f.note("work", nil)
	if f.onWork != nil {
		if handled, err := f.onWork(n, stream); handled {
			return err
		}
	}
	ctx := stream.Context()
	frames := make(chan *queueboxv1.WorkRequest)
	ended := make(chan error, 1)
	go func() {
		for {
			req, err := stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			select {
			case frames <- req:
			case <-ctx.Done():
				return
			}
		}
	}()
	signals := make(chan *queueboxv1.WorkResponse, 16)
	f.mu.Lock()
	f.streams = append(f.streams, signals)
	f.mu.Unlock()
	credit := 0
	for {
		if credit > 0 {
			f.mu.Lock()
			k := min(len(f.ready), credit)
			got := f.ready[:k:k]
			f.ready = f.ready[k:]
			f.mu.Unlock()
			if k > 0 {
				credit -= k
				if err := stream.Send(&queueboxv1.WorkResponse{Deliveries: got}); err != nil {
					f.mu.Lock()
					f.ready = append(got, f.ready...)
					f.mu.Unlock()
					return err
				}
				continue
			}
		}
		var arrived chan struct{}
		if credit > 0 {
			arrived = f.arrived
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-ended:
			if err == io.EOF { //nolint:errorlint // as gRPC documents it
				return nil
			}
			return err
		case <-arrived:
		case signal := <-signals:
			if err := stream.Send(signal); err != nil {
				return err
			}
		case req := <-frames:
			f.note("frame", req)
			credit += int(req.GetCredit())
			if req.GetSequence() > 0 {
				if err := stream.Send(&queueboxv1.WorkResponse{Sequence: req.GetSequence()}); err != nil {
					return err
				}
			}
		}
	}
}

// signal sends a frame on every stream that was opened.
func (f *fake) signal(resp *queueboxv1.WorkResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.streams {
		select {
		case s <- resp:
		default:
		}
	}
}

// asked returns when messages were asked for, and how many: by credit and by claims.
func (f *fake) asked() (at []time.Duration, n []int) {
	for _, c := range f.seen("frame", "claim") {
		k := 0
		switch req := c.req.(type) {
		case *queueboxv1.WorkRequest:
			k = int(req.GetCredit())
		case *queueboxv1.ClaimRequest:
			k = int(req.GetMaxMessages())
		}
		if k != 0 {
			at, n = append(at, c.at), append(n, k)
		}
	}
	return at, n
}
