package queuebox

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

const (
	// maxCredit is the most credit that a stream has in hand; no server has to take more.
	maxCredit = 50_000
	// pingAfter is the silence after which a stream is asked whether it still works, and
	// streamPatience the silence after which it does not. The first frame asks too, so a proxy
	// that holds streams back is found out.
	pingAfter      = 20 * time.Second
	streamPatience = 40 * time.Second
	openPatience   = 10 * time.Second
	// shortStream is what a stream that ended in an error must have lasted to count as one
	// that works.
	shortStream = 5 * time.Second
	// streamTries is how many streams in a row may fail before the worker claims by single
	// calls for a while: minFallback, then twice as long each time, up to maxFallback.
	streamTries = 3
	minFallback = time.Minute
	maxFallback = 16 * time.Minute
	// closePatience is how long a stream that was half-closed may take to end.
	closePatience = 2 * time.Second
)

// errSilent ends a stream from which nothing comes.
var errSilent = errors.New("queuebox: work: the stream does not answer")

// deliver brings messages until ctx ends or an error comes that will not go away: over a Work
// stream, or by claims where that is not wanted or does not work.
func (r *run) deliver(ctx context.Context) error {
	if r.config.Delivery == DeliverPoll || r.config.MaxBytes != 0 {
		return r.poll(ctx, time.Time{})
	}
	var (
		pause    = pauses{base: 25 * time.Millisecond, limit: 2 * time.Second}
		fallback = minFallback
		failures = 0
	)
	for {
		if !r.waitForSlot(ctx) {
			return nil
		}
		s, err := r.stream(ctx)
		e, _ := errors.AsType[*Error](err)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the end of ctx is how a run is stopped
		case r.client.life.Err() != nil:
			return ErrClosed
		case err == nil:
			failures = 0
		case e != nil && e.Code() == codes.Unimplemented:
			failures = streamTries
		case hopeless(err):
			return err
		case s.works():
			r.logger.WarnContext(ctx, "work stream broke, opening another", "error", err)
			failures = 0
		default:
			r.logger.WarnContext(ctx, "work stream failed", "error", err)
			failures++
		}
		if failures >= streamTries {
			// Where a server or a proxy on the way has no streams, single calls do as well.
			r.logger.WarnContext(ctx, "no work streams here, claiming by single calls for a while", "for", fallback, "error", err)
			if err := r.poll(ctx, now().Add(fallback)); err != nil || ctx.Err() != nil {
				return err
			}
			failures, fallback = 0, min(2*fallback, maxFallback)
			continue
		}
		if s.works() && s.ended.Sub(s.began) >= shortStream {
			pause.failures, fallback = 0, minFallback
		}
		var asked time.Duration
		if e != nil {
			asked = e.RetryDelay
		}
		if r.client.sleep(ctx, pause.next(asked)) != nil && ctx.Err() != nil {
			return nil //nolint:nilerr // the end of ctx is how a run is stopped
		}
	}
}

// waitForSlot waits until there is a free slot: a stream without credit brings nothing.
func (r *run) waitForSlot(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case r.slots <- struct{}{}:
		<-r.slots
		return ctx.Err() == nil
	}
}

// session is one Work stream.
type session struct {
	run    *run
	stream grpc.BidiStreamingClient[queueboxv1.WorkRequest, queueboxv1.WorkResponse]
	// began and ended are the life of the stream; heard is when the last frame came, in
	// nanoseconds since began, 0 where none did.
	began, ended time.Time
	heard        atomic.Int64
	delivered    bool
	// credit is what was given and not used, kept what is still to be given; each stands for a slot
	// that is taken.
	credit, kept atomic.Int64
	// used tells the sender that credit was used, where it had to wait for that; gave tells the
	// receiver that credit was given, where it has a message that was not asked for.
	used, gave chan struct{}
	// leave is closed when no more credit shall be given: the stream is half-closed then.
	leave chan struct{}
}

// works tells whether the stream did what it is for, or would have.
func (s *session) works() bool {
	return s.delivered || s.heard.Load() > 0 && s.ended.Sub(s.began) >= shortStream
}

// stream works over one stream until it ends. Its error is nil where the server ended it as it
// should, or ctx did.
func (r *run) stream(ctx context.Context) (*session, error) {
	// An orderly end needs the stream for longer than ctx lasts, so it has an end of its own.
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stopLife := context.AfterFunc(r.client.life, func() { cancel(ErrClosed) }) //nolint:contextcheck // the client may end before the stream
	defer stopLife()
	// Until it is open there is nothing to end in order: without a connection this waits.
	stopOpening := context.AfterFunc(ctx, func() { cancel(ErrStopped) })

	s := &session{run: r, began: now(), used: make(chan struct{}, 1), gave: make(chan struct{}, 1), leave: make(chan struct{})}
	var err error
	s.stream, err = r.client.worker.Work(life, grpc.WaitForReady(true))
	s.began = now()
	if !stopOpening() && err == nil {
		err = context.Cause(life)
	}
	if err != nil {
		s.ended = now()
		return s, s.cause(life, err)
	}

	sent := make(chan struct{})
	go func() {
		defer close(sent)
		s.send(ctx, life, cancel)
	}()
	err = s.receive(ctx)
	s.ended = now()
	cancel(nil) // ends the sender, and the stream where it has not ended
	<-sent
	for range s.credit.Load() + s.kept.Load() {
		<-r.slots
	}
	if errors.Is(err, io.EOF) {
		return s, nil
	}
	return s, s.cause(life, err)
}

// cause names what ended a stream.
func (s *session) cause(life context.Context, err error) error {
	switch why := context.Cause(life); {
	case errors.Is(why, errSilent), errors.Is(why, ErrClosed), errors.Is(why, ErrStopped):
		return why
	default:
		return fromRPC("work", err)
	}
}

// send gives credit for free slots, asks a silent stream whether it works, and half-closes it in
// the end. What was freed while a frame was on its way is in the next one.
func (s *session) send(ctx, life context.Context, cancel context.CancelCauseFunc) {
	r := s.run
	req := &queueboxv1.WorkRequest{
		Start:    &queueboxv1.WorkStart{Queue: r.config.Queue, WorkerId: r.config.WorkerID, LeaseMs: milliseconds(r.config.Lease)},
		Sequence: 1, // so that it is answered
	}
	sequence := int64(1)
	watch := time.NewTimer(openPatience)
	defer watch.Stop()
	asked := true
	for {
		if req != nil {
			if s.stream.Send(req) != nil {
				return // the receiver is told why
			}
		}
		if req = s.give(); req != nil {
			continue
		}
		free := r.slots
		if s.credit.Load()+s.kept.Load() >= maxCredit {
			free = nil
		}
		select {
		case <-life.Done():
			return
		case <-ctx.Done():
			s.halfClose(life, cancel)
			return
		case <-s.leave:
			s.halfClose(life, cancel)
			return
		case <-s.used:
		case free <- struct{}{}:
			if ctx.Err() != nil {
				<-r.slots
				continue
			}
			s.keep()
		case <-watch.C:
			silence := now().Sub(s.began) - time.Duration(s.heard.Load())
			switch {
			case s.heard.Load() == 0 && silence >= openPatience, asked && silence >= streamPatience:
				cancel(errSilent)
				return
			case silence >= pingAfter && !asked:
				sequence++
				req = &queueboxv1.WorkRequest{Sequence: sequence}
				asked = true
			case silence < pingAfter:
				asked = false
			}
			watch.Reset(pingAfter / 2)
		}
	}
}

// keep takes all free slots beside the one that is taken. The handlers that are about to free
// theirs run first, so that one frame asks for them all.
func (s *session) keep() {
	runtime.Gosched()
	n := int64(1)
	for most := maxCredit - s.credit.Load() - s.kept.Load(); n < most; n++ {
		select {
		case s.run.slots <- struct{}{}:
			continue
		default:
		}
		break
	}
	s.kept.Add(n)
}

// give makes the frame that asks for what is kept, nil where that has time: while the server has
// more credit in hand than that, and it is less than a quarter of all slots. So a worker that is
// mostly idle does not send a frame for each message.
func (s *session) give() *queueboxv1.WorkRequest {
	n := s.kept.Load()
	if n == 0 || 4*n < int64(cap(s.run.slots)) && s.credit.Load() > n {
		return nil
	}
	s.credit.Add(n)
	s.kept.Add(-n)
	poke(s.gave)
	return &queueboxv1.WorkRequest{Credit: int32(n)}
}

// halfClose says that nothing more is wanted. The server ends the stream then, after what is on
// its way; one that does not is not waited for.
func (s *session) halfClose(life context.Context, cancel context.CancelCauseFunc) {
	if s.stream.CloseSend() != nil {
		return
	}
	patience := time.NewTimer(min(closePatience, s.run.config.StopTimeout/20))
	defer patience.Stop()
	select {
	case <-life.Done():
	case <-patience.C:
		cancel(errSilent)
	}
}

// receive takes in what comes until the stream ends.
func (s *session) receive(ctx context.Context) error {
	left := false
	for {
		resp, err := s.stream.Recv()
		if err != nil {
			return err
		}
		received := now()
		s.heard.Store(max(int64(received.Sub(s.began)), 1))
		if len(resp.GetDeliveries()) > 0 {
			s.delivered = true
			if err := s.take(ctx, resp.GetDeliveries(), received); err != nil {
				return err
			}
		}
		for _, revoked := range resp.GetRevocations() {
			s.run.revoked(revoked)
		}
		if resp.GetDraining() && !left {
			left = true
			close(s.leave) // T5: what was claimed still comes, and the next stream brings the rest
		}
	}
}

// take begins with what was delivered.
func (s *session) take(ctx context.Context, deliveries []*queueboxv1.ClaimedMessage, received time.Time) error {
	r := s.run
	handles, err := r.client.take(ctx, ClaimOptions{Queue: r.config.Queue, Lease: r.config.Lease}, deliveries, received)
	if err != nil {
		return err
	}
	for _, h := range handles {
		r.begin(ctx, h, s.slot(ctx))
	}
	return nil
}

// slot takes the slot that a message was asked for with. One that was not asked for, from a server
// that delivers more than it may, waits for a free one; false where the worker stops first.
func (s *session) slot(ctx context.Context) bool {
	for {
		if s.credit.Load() > 0 {
			left := s.credit.Add(-1) // the sender only adds
			if kept := s.kept.Load(); left <= kept || left+1+kept >= maxCredit {
				poke(s.used)
			}
			return true
		}
		select {
		case s.run.slots <- struct{}{}:
			return true
		case <-s.gave:
		case <-ctx.Done():
			return false
		}
	}
}

// poke wakes whoever waits on c, now or next.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// revoked takes in a signal about a claim (T6). One that is settled already means nothing more.
func (r *run) revoked(v *queueboxv1.Revocation) {
	r.mu.Lock()
	var found *Handle
	for h := range r.live {
		if h.token == v.GetClaimToken() && h.message.ID == v.GetMessageId() {
			found = h
			break
		}
	}
	r.mu.Unlock()
	if found != nil {
		found.signal(v.GetClaimLost())
	}
}

// signal takes in what the server says of the claim unasked.
func (h *Handle) signal(lost bool) {
	h.renewer.mu.Lock()
	defer h.renewer.mu.Unlock()
	switch {
	case h.state != held:
		// The answer to the settlement says what is true.
	case lost:
		h.renewer.lose(h, signalledLoss())
	default:
		h.ask()
	}
}
