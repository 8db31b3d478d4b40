package server

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// heartbeatQueue is how many answers may wait for a caller that does not read. When it is
// full the server stops reading too.
const heartbeatQueue = 4

type heartbeatStream = grpc.BidiStreamingServer[queueboxv1.HeartbeatRequest, queueboxv1.HeartbeatResponse]

// Heartbeat renews leases over one stream: one answer to each request (T1), a signal
// with sequence 0 when the stream should move to another connection (T5) or when a claim that
// it has shown is lost or should be stopped (T6). Breaking the stream changes no lease (T2).
func (a *api) Heartbeat(stream heartbeatStream) error {
	a.metrics.heartbeats.Inc()
	defer a.metrics.heartbeats.Dec()
	h := &heartbeat{api: a, stream: stream, watch: a.signals.open(), bytes: a.streamBytes.open(connection(stream.Context())), read: make(chan error, 1), sent: make(chan error, 1)}
	h.out = newOutbox(h.watch, heartbeatQueue, stream.Send, func(rs []*queueboxv1.Revocation, clock time.Time) *queueboxv1.HeartbeatResponse {
		return &queueboxv1.HeartbeatResponse{Revocations: rs, ServerTime: stamp(clock)}
	})
	defer h.watch.close()
	defer h.bytes.close()
	h.out.answered = h.bytes.give
	// Both goroutines end with the stream's context, which ends when this method
	// returns: a blocked Recv or Send has no other way to be ended.
	ctx := stream.Context()
	go func() { h.read <- h.reading(ctx) }()
	go func() { h.sent <- h.out.run(ctx) }()
	return h.serve(ctx)
}

// heartbeat is one open stream.
type heartbeat struct {
	api    *api
	stream heartbeatStream
	// out holds the answers; the reader closes it when it ends.
	out *outbox[queueboxv1.HeartbeatResponse]
	// watch holds the claims that the stream has shown, and what is to be told of them (T6).
	watch *watch
	// bytes is what its frames take of the memory for all streams.
	bytes *streamAccount
	read  chan error
	sent  chan error
}

// serve watches over the stream until it ends.
func (h *heartbeat) serve(ctx context.Context) error {
	var age, leave <-chan time.Time
	if d, ok := h.api.streamAge(ctx); ok {
		timer := time.NewTimer(d)
		defer timer.Stop()
		age = timer.C
	}
	draining := h.api.streams.draining
	for {
		select {
		case <-draining:
			age, draining = nil, nil
			leave = h.sayLeave(ctx)
		case <-age:
			age, draining = nil, nil
			leave = h.sayLeave(ctx)
		case <-leave:
			return nil
		case <-h.out.cut:
			return h.api.cutOff(ctx)
		case err := <-h.sent:
			// The writer ends after the reader, when all answers are sent, or with the stream.
			if err != nil {
				return err
			}
			return <-h.read
		}
	}
}

// sayLeave sends the signal and returns the time at which the stream ends.
func (h *heartbeat) sayLeave(ctx context.Context) <-chan time.Time {
	signal := &queueboxv1.HeartbeatResponse{Draining: true}
	// The signal matters more than its clock.
	signal.ServerTime, _ = h.api.serverTime(ctx)
	h.out.signals <- signal
	return time.After(leaveTime)
}

// reading answers the requests, one after the other: while an answer waits to be sent
// and the queue is full, nothing is read (T4).
func (h *heartbeat) reading(ctx context.Context) error {
	defer close(h.out.frames)
	for {
		if err := h.bytes.room(ctx); err != nil {
			return err
		}
		req, err := h.stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		size := frameBytes(req, len(req.GetRenewals()))
		if err := h.bytes.admit(size); err != nil {
			return err
		}
		resp, err := h.api.heartbeat(ctx, req, h.watch)
		if err != nil {
			return err
		}
		select {
		case h.out.frames <- outgoing[queueboxv1.HeartbeatResponse]{frame: resp, size: size}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// heartbeat answers one request. An error is one of the whole request and ends the
// stream; what is wrong with a renewal stands in its place.
func (a *api) heartbeat(ctx context.Context, req *queueboxv1.HeartbeatRequest, w *watch) (resp *queueboxv1.HeartbeatResponse, err error) {
	defer func() {
		// The interceptor that catches panics does not see this goroutine.
		if p := recover(); p != nil {
			a.metrics.panics.Inc()
			err = caught(p)
		}
	}()
	c := &check{}
	if req.GetSequence() < 1 {
		c.wrong("sequence", "is below 1; 0 is for the signals of the server")
	}
	if len(req.GetRenewals()) > 0 || req.GetQueue() != "" {
		c.queue("queue", req.GetQueue())
	}
	c.text("worker_id", req.GetWorkerId())
	c.batch("renewals", len(req.GetRenewals()))
	if err := c.err(); err != nil {
		return nil, err
	}
	resp = &queueboxv1.HeartbeatResponse{Sequence: req.GetSequence()}
	results, now, err := a.renewResults(ctx, req.GetQueue(), req.GetRenewals(), w)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		// A renewal that failed is not a claim that is lost: the stream goes on.
		results = a.failedRenewals(ctx, req.GetRenewals(), err)
	}
	resp.Results = results
	resp.ServerTime = stamp(now)
	if resp.GetServerTime() == nil {
		// While the database is away a ping is answered without its clock.
		resp.ServerTime, _ = a.serverTime(ctx)
	}
	return resp, nil
}

// failedRenewals answers every renewal with the error of the whole statement.
func (a *api) failedRenewals(ctx context.Context, items []*queueboxv1.RenewItem, err error) []*queueboxv1.RenewResult {
	failure := a.errors.item(ctx, err)
	results := make([]*queueboxv1.RenewResult, len(items))
	for i, item := range items {
		results[i] = &queueboxv1.RenewResult{
			MessageId: item.GetMessageId(), ClaimToken: item.GetClaimToken(),
			Outcome: &queueboxv1.RenewResult_Error{Error: failure},
		}
	}
	return results
}
