package server

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

const (
	// workFlights is how many frames of one stream may be answered at a time. While as many
	// are under way, or their answers are not sent, the server reads no other. A frame whose
	// message somebody holds is under way for seconds, and those behind it must not wait as long:
	// a renewal among them may be urgent. What they take is bounded in bytes, over all streams.
	workFlights = 256
	// maxCredit bounds the credit that a stream has in hand.
	maxCredit = 100_000
)

type workStream = grpc.BidiStreamingServer[queueboxv1.WorkRequest, queueboxv1.WorkResponse]

// Work delivers messages over one stream as they become claimable, never more than the
// credit given (T3), and answers the frames of the worker: settlements and renewals, each
// frame once (T1). It brings the same signals as Heartbeat does (T5, T6).
//
// Four goroutines serve a stream: one reads, one sends, one claims, and this one watches over
// them. For each frame that is being answered there is one more, up to workFlights.
func (a *api) Work(stream workStream) error {
	a.metrics.workStreams.Inc()
	defer a.metrics.workStreams.Dec()
	ctx := stream.Context()
	w := &work{
		api: a, stream: stream, watch: a.signals.open(), bytes: a.streamBytes.open(connection(ctx)),
		slots: make(chan struct{}, workFlights), more: make(chan struct{}, 1), idle: make(chan struct{}),
		read: make(chan error, 1), sent: make(chan error, 1), failed: make(chan error, 1),
	}
	defer w.watch.close()
	defer w.bytes.close()
	w.watch.freed = w.more
	w.out = newOutbox(w.watch, 0, stream.Send, func(rs []*queueboxv1.Revocation, clock time.Time) *queueboxv1.WorkResponse {
		return &queueboxv1.WorkResponse{Revocations: rs, ServerTime: stamp(clock)}
	})
	w.claiming, w.stopClaiming = context.WithCancel(ctx)
	defer w.stopClaiming()
	// They end with the stream's context, which ends when this method returns: a blocked
	// Recv or Send has no other way to be ended.
	go func() { w.read <- w.reading(ctx) }()
	go func() { w.sent <- w.out.run(ctx) }()
	return w.serve(ctx)
}

// work is one open stream.
type work struct {
	api    *api
	stream workStream
	// watch holds what the stream has delivered and renewed, out what it has to send.
	watch *watch
	out   *outbox[queueboxv1.WorkResponse]
	// bytes is what its frames and deliveries take of the memory for all streams.
	bytes *streamAccount
	// start is set by the reader before anything is delivered; others ask for opened.
	start *queueboxv1.WorkStart
	// claiming ends when nothing more is to be delivered.
	claiming     context.Context //nolint:containedctx // a part of the life of the stream
	stopClaiming context.CancelFunc
	// slots are taken by the frames that are being answered.
	slots chan struct{}
	// more says that there may be more to deliver: credit was given, or a claim has ended.
	more chan struct{}
	// read and sent bring the ends of the reader and the writer, failed what else ends the
	// stream.
	read, sent, failed chan error

	mu sync.Mutex
	// credit in hand.
	credit int
	// running counts what was begun and has not ended: the frames that are being answered,
	// and the deliverer. Once closed is set nothing begins; idle is closed when all has ended.
	running int
	closed  bool
	idle    chan struct{}
}

// begin counts something that begins; false where the stream is about to end.
func (w *work) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.running++
	return true
}

func (w *work) done() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running--; w.closed && w.running == 0 {
		close(w.idle)
	}
}

// close lets nothing more begin.
func (w *work) close() {
	w.stopClaiming()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		if w.closed = true; w.running == 0 {
			close(w.idle)
		}
	}
}

// fail ends the stream with an error.
func (w *work) fail(err error) {
	select {
	case w.failed <- err:
	default: // it ends with another one
	}
}

// serve watches over the stream until it ends. What was begun is finished first, and
// answered where the caller still reads.
func (w *work) serve(ctx context.Context) error {
	var age, leave <-chan time.Time
	if d, ok := w.api.streamAge(ctx); ok {
		timer := time.NewTimer(d)
		defer timer.Stop()
		age = timer.C
	}
	draining, read, sent, failed := w.api.streams.draining, w.read, w.sent, w.failed
	var idle <-chan struct{}
	var result error
	// told: the worker was asked to go elsewhere, and works on there.
	release, told := false, false
	end := func(err error, byClient bool) {
		if idle != nil {
			return // it ends already
		}
		age, leave, draining, read, failed = nil, nil, nil, nil, nil
		result, release = err, byClient && !told
		w.close()
		idle = w.idle
	}
	for {
		select {
		case <-draining:
			age, draining, told = nil, nil, true
			leave = w.sayLeave(ctx)
		case <-age:
			age, draining, told = nil, nil, true
			leave = w.sayLeave(ctx)
		case <-leave:
			end(nil, false)
		case err := <-read:
			// The client has said all it wants to say, or a frame was bad.
			end(err, err == nil || broken(ctx, err))
		case err := <-failed:
			// A frame that was being answered fails, too, where the client goes away.
			end(err, ctx.Err() != nil)
		case err := <-sent:
			// The writer ends before the others only where the connection breaks.
			sent = nil
			end(err, broken(ctx, err))
		case <-w.out.cut:
			// Nothing can be waited for: a Send hangs until this method returns.
			return w.api.cutOff(ctx)
		case <-idle:
			if release && w.opened().GetReleaseOnClose() {
				w.api.endLeases(ctx, w.watch.held())
			}
			return result
		}
	}
}

// broken tells whether the stream ended because its client, or the connection, went away.
func broken(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return true
	}
	if _, ok := errors.AsType[*apiError](err); ok {
		return false
	}
	code := status.Code(err)
	return code == codes.Canceled || code == codes.DeadlineExceeded || code == codes.Unavailable
}

// sayLeave ends the deliveries, tells the worker and returns the time at which the stream
// ends.
func (w *work) sayLeave(ctx context.Context) <-chan time.Time {
	w.stopClaiming()
	signal := &queueboxv1.WorkResponse{Draining: true}
	// The signal matters more than its clock.
	signal.ServerTime, _ = w.api.serverTime(ctx)
	w.out.signals <- signal
	return time.After(leaveTime)
}

// reading takes the frames of the worker. It ends with nil when the worker has said that no
// other will come.
func (w *work) reading(ctx context.Context) error {
	for {
		if err := w.bytes.room(ctx); err != nil {
			return err
		}
		req, err := w.stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := w.checkFrame(req); err != nil {
			return err
		}
		size := frameBytes(req, len(req.GetSettlements())+len(req.GetRenewals()))
		if err := w.bytes.admit(size); err != nil {
			return err
		}
		if w.start == nil {
			if err := w.checkLease(ctx, req.GetStart()); err != nil {
				return err
			}
			w.open(req.GetStart())
		}
		w.give(int(req.GetCredit()))
		if req.GetSequence() == 0 {
			continue
		}
		select {
		case w.slots <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if !w.begin() {
			return nil
		}
		go w.answer(ctx, req, size)
	}
}

// open begins to deliver.
func (w *work) open(start *queueboxv1.WorkStart) {
	w.mu.Lock()
	w.start = start
	w.mu.Unlock()
	w.watch.keep(start.GetMaxOutstandingBytes() > 0 || start.GetReleaseOnClose())
	if w.begin() {
		go w.deliver(w.claiming)
	}
}

// opened is the first frame, nil where there was none yet.
func (w *work) opened() *queueboxv1.WorkStart {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.start
}

// give adds to the credit.
func (w *work) give(n int) {
	if n == 0 {
		return
	}
	w.mu.Lock()
	w.credit += n
	w.mu.Unlock()
	poke(w.more)
}

// inHand is the credit that is left.
func (w *work) inHand() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.credit
}
