package server

import (
	"cmp"
	"context"
	"errors"
	"time"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/server/dispatch"
	"github.com/queuebox/queuebox/storage"
)

const (
	// minWorkPause and maxWorkPause bound the pause after a claim that failed, or that came
	// back empty at once.
	minWorkPause = 50 * time.Millisecond
	maxWorkPause = 2 * time.Second
	// workPatience is how long the claims of a stream may fail before it ends: the worker may
	// have a better way to the database than through this server.
	workPatience = 30 * time.Second
	// byteLook is the pause between two looks for leases that have run out, while their bytes
	// keep a stream from claiming.
	byteLook = time.Second
)

// delivering is what the deliverer of a stream knows from one claim to the next.
type delivering struct {
	req dispatch.Request
	// need is the room that the next payload may take, as the last ones tell.
	need int64
	// failing is since when claims fail, zero while they do not; pause the present one.
	failing time.Time
	pause   time.Duration
}

// deliver claims and sends until the claiming ends.
func (w *work) deliver(ctx context.Context) {
	defer w.done()
	defer func() {
		// The interceptor that catches panics does not see this goroutine.
		if p := recover(); p != nil {
			w.api.metrics.panics.Inc()
			w.fail(caught(p))
		}
	}()
	leaseMs := w.start.GetLeaseMs()
	d := &delivering{req: dispatch.Request{
		Name: w.start.GetQueue(), WorkerID: w.start.GetWorkerId(), Wait: w.api.cfg.MaxWait,
		LeaseFor: func(q storage.Queue) (time.Duration, error) {
			lease, err := leaseOf(q, "start.lease_ms", leaseMs)
			if lease == 0 {
				lease = q.DefaultLease
			}
			return lease, err
		},
	}}
	for w.wanted(ctx, d) {
		began := w.api.now()
		answer, err := w.claim(ctx, d)
		switch {
		case ctx.Err() != nil:
			w.api.dispatch.GiveBack(answer) //nolint:contextcheck // the give-back outlives the stream
			return
		case err != nil:
			if !w.patient(ctx, d, err) {
				return
			}
		case len(answer.Messages) > 0:
			d.failing, d.pause = time.Time{}, 0
			if w.tooLarge(d, answer) { //nolint:contextcheck // the give-back outlives the stream
				continue
			}
			if !w.send(ctx, d, answer) {
				return
			}
		case answer.Empty == dispatch.Draining:
			return // the worker is told
		case answer.Empty == dispatch.DeadlineTooShort:
			return // the worker itself ends the stream in a moment
		default:
			// An empty answer comes after a wait. One that does not must not make a loop.
			if d.failing = (time.Time{}); w.api.now().Sub(began) >= minWorkPause {
				d.pause = 0
				continue
			}
			d.rest(ctx)
		}
	}
}

// wanted waits until there is credit, and room for a payload where bytes are bounded, and
// says how much of both there is in the request; false when the claiming ends.
func (w *work) wanted(ctx context.Context, d *delivering) bool {
	for ctx.Err() == nil {
		if w.inHand() == 0 {
			select {
			case <-w.more:
			case <-ctx.Done():
			}
			continue
		}
		if err := w.bytes.room(ctx); err != nil {
			return false
		}
		n := w.inHand()
		room, ok := w.watch.room(w.start.GetMaxOutstandingBytes(), d.need)
		if !ok {
			// Nobody tells of a lease that has run out.
			if !pokedWithin(ctx, w.more, byteLook) {
				w.watch.forgetOver()
			}
			continue
		}
		if room >= w.api.answerBytes {
			room = 0 // the limit of a frame is tighter, and holds for every claim
		}
		d.req.Max, d.req.MaxPayloadBytes = min(n, maxClaimMessages), room
		return true
	}
	return false
}

// pokedWithin waits until something is told, or some time has passed, or ctx ends.
func pokedWithin(ctx context.Context, told <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-told:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}

// claim makes one claim, with the settings of the queue as they are by now.
func (w *work) claim(ctx context.Context, d *delivering) (dispatch.Answer, error) {
	q, err := w.api.catalog.get(ctx, d.req.Name)
	switch {
	case errors.Is(err, storage.ErrQueueNotFound):
		d.req.Queue = storage.Queue{} // the claim waits: the queue may appear
	case err != nil:
		return dispatch.Answer{}, err
	default:
		d.req.Queue = q
	}
	return w.api.dispatch.Claim(ctx, d.req)
}

// patient waits after a claim that failed; false where the stream ends for it. What is wrong
// with the request ends it at once, a database that is away only when it stays away.
func (w *work) patient(ctx context.Context, d *delivering, err error) bool {
	now := w.api.now()
	if d.failing.IsZero() {
		d.failing = now
	}
	if _, ok := errors.AsType[*apiError](err); ok || now.Sub(d.failing) >= cmp.Or(w.api.cfg.workPatience, workPatience) {
		w.fail(err)
		return false
	}
	d.rest(ctx)
	return true
}

// rest waits, twice as long as the last time.
func (d *delivering) rest(ctx context.Context) {
	d.pause = min(max(2*d.pause, minWorkPause), maxWorkPause)
	rest(ctx, d.pause)
}

// tooLarge gives back the one message that does not fit beside what is outstanding: a claim
// may always return one. It is asked for again when there is room.
func (w *work) tooLarge(d *delivering, answer dispatch.Answer) bool {
	limit := w.start.GetMaxOutstandingBytes()
	size := int64(len(answer.Messages[0].Message.Payload))
	if limit == 0 || len(answer.Messages) > 1 {
		return false
	}
	if _, ok := w.watch.room(limit, size); ok {
		return false
	}
	d.need = size
	w.api.dispatch.GiveBack(answer)
	return true
}

// send sends the messages of an answer. Those that could not be sent go back (C15).
func (w *work) send(ctx context.Context, d *delivering, answer dispatch.Answer) bool {
	a, ms := w.api, answer.Messages
	a.noteClaims(answer)
	d.need = 0
	for i := range ms {
		d.need = max(d.need, int64(len(ms[i].Message.Payload)))
	}
	w.mu.Lock()
	w.credit -= len(ms)
	w.mu.Unlock()
	size := deliveryBytes(ms)
	w.bytes.take(size)
	defer w.bytes.give(size)
	// What happens to the claims from here on is not missed, and told after them.
	w.watch.deliver(ms)
	err := w.out.put(ctx, outgoing[queueboxv1.WorkResponse]{build: func() *queueboxv1.WorkResponse {
		out := wireClaims(d.req.Name, ms, answer.Now, a.now().Sub(answer.Sent))
		return &queueboxv1.WorkResponse{Deliveries: out, ServerTime: stamp(answer.Now)}
	}})
	w.watch.delivered(ms, answer.Now, answer.Sent, err)
	if err != nil {
		a.dispatch.GiveBack(answer) //nolint:contextcheck // the give-back outlives the stream
		return false
	}
	a.metrics.claimed(d.req.Name, len(ms))
	a.metrics.workDelivered.Add(float64(len(ms)))
	return true
}
