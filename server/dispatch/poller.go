package dispatch

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// run is the poller of a queue. It ends when nobody waits.
func (q *queue) run() {
	defer q.d.work.end()
	for {
		q.mu.Lock()
		if q.waiting.Len() == 0 {
			q.stop()
			q.mu.Unlock()
			q.d.retire(q)
			return
		}
		cause, wait := q.next(q.d.cfg.Now())
		q.mu.Unlock()
		if wait > 0 {
			q.sleep(wait)
			continue
		}
		q.lookSafely(cause)
	}
}

// stop ends the poller. What it knows holds for as long as nothing happens to the queue, so that
// a caller who comes back at once, as a Work stream does after each delivery, costs no look.
func (q *queue) stop() {
	q.running, q.look, q.tail = false, false, false
	q.stopped = q.d.cfg.Now()
}

// start begins a poller. Where the last one knew the queue to be empty a moment ago, and nothing
// has happened since, it goes on where that one stopped.
func (q *queue) start() {
	q.running = true
	if q.empty && q.stopped.Add(restart).After(q.d.cfg.Now()) {
		return
	}
	q.empty = false
	q.due, q.retryAt, q.pollAt, q.limitAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	q.limit = storage.LimitNone
	q.spin, q.poll = 0, q.d.cfg.PollInterval
}

func (q *queue) sleep(wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-q.signal:
	case <-timer.C:
	}
}

// next says why to look now, or how long to wait. The lock is held.
func (q *queue) next(now time.Time) (Cause, time.Duration) {
	if wait := q.notBefore.Sub(now); wait > 0 {
		return "", wait
	}
	if q.look {
		return q.cause, 0
	}
	if q.pollAt.IsZero() {
		q.pollAt = now.Add(q.pollPause())
	}
	at, cause := q.pollAt, CausePoll
	for _, t := range []time.Time{q.due, q.leases.next(), q.retryAt, q.limitAt} {
		if !t.IsZero() && t.Before(at) {
			at, cause = t, CauseTimer
		}
	}
	return cause, at.Sub(now)
}

// pollPause is the present pause with up to a fiftieth taken off, so that the polls
// of many queues and servers drift apart.
func (q *queue) pollPause() time.Duration {
	return q.poll - time.Duration(float64(q.poll)*q.d.cfg.Jitter()/50)
}

// lookSafely looks, and where that panics answers everybody: a waiter that nobody
// looks for would hang until its deadline.
func (q *queue) lookSafely(cause Cause) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		q.d.log.Error("panic while claiming", "queue", q.name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		q.mu.Lock()
		defer q.mu.Unlock()
		q.fail(q.all(), fmt.Errorf("claim: panic: %v", p))
	}()
	q.lookOnce(cause)
}

// flight is a statement with the waiters that it asks for.
type flight struct {
	cause   Cause
	tail    bool
	calls   []*waiter
	params  storage.ClaimParams
	sent    time.Time
	timer   bool   // a delay or a lease ended before the look
	retried bool   // the look repeats one that could not have what was ready
	last    uint64 // the last waiter that was there when the look began
	freed   uint64 // queue.freed when the look began
}

func (q *queue) lookOnce(cause Cause) {
	if !q.known() {
		if !q.resolve(cause) {
			return
		}
	}
	f := q.pick(cause)
	if len(f.calls) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(q.d.base, q.d.cfg.StatementTimeout)
	defer cancel()
	q.d.cfg.Metrics.Statement(f.cause)
	f.sent = q.d.cfg.Now()
	res, err := q.d.store.Claim(ctx, f.params)
	if err == nil && len(res.Calls) != len(f.calls) {
		err = fmt.Errorf("claim: %d answers for %d calls", len(res.Calls), len(f.calls))
	}
	q.deal(f, res, err)
}

func (q *queue) known() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.info.ID != 0
}

// ErrNoAnswer is why the context of a look or a statement ends that takes too long: it is no deadline
// of a caller, whose own may be later (D3).
var ErrNoAnswer = fmt.Errorf("%w: the database did not answer in time", storage.ErrUnavailable)

// resolve looks whether the queue exists by now.
func (q *queue) resolve(cause Cause) bool {
	q.mu.Lock()
	q.begin()
	present := q.all()
	q.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(q.d.base, q.d.cfg.StatementTimeout, ErrNoAnswer)
	defer cancel()
	info, ok, err := q.d.cfg.Resolve(ctx, q.name)

	if ok && err == nil {
		q.d.mu.Lock()
		q.d.byID[info.ID] = q
		q.d.mu.Unlock()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		q.fail(present, err)
		return false
	}
	q.errorPause = 0
	if !ok {
		for _, w := range present {
			if w.state == stateWaiting {
				w.looked = true
			}
		}
		q.empty = !q.look
		q.endExpired()
		return false
	}
	q.learn(info)
	q.lookFor(cause)
	return true
}

// begin marks the start of a look: what happens from here on asks for another one.
// The lock is held.
func (q *queue) begin() {
	now := q.d.cfg.Now()
	q.look, q.tail = false, false
	q.pollAt = now.Add(q.pollPause())
}

// all returns the waiters in order. The lock is held.
func (q *queue) all() []*waiter {
	out := make([]*waiter, 0, q.waiting.Len())
	for e := q.waiting.Front(); e != nil; e = e.Next() {
		out = append(out, e.Value.(*waiter))
	}
	return out
}

// pick begins a look: it takes waiters in the order of their arrival into one
// statement. A call with its own bound on bytes is alone in its statement, as is every call
// where claims are not joined, and two calls with one claim id are never in the same.
func (q *queue) pick(cause Cause) *flight {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.d.cfg.Now()
	f := &flight{cause: cause, tail: q.tail}
	f.params = storage.ClaimParams{QueueID: q.info.ID, MaxWireBytes: q.d.cfg.MaxWireBytes}
	f.timer = q.overdue(now)
	if !q.due.IsZero() && !q.due.After(now) {
		f.timer = true
	}
	f.retried = !q.retryAt.IsZero() && !q.retryAt.After(now)
	// The result tells the next ready time; a message that is enqueued while the
	// statement runs sets it again.
	q.due, q.retryAt, q.limitAt = time.Time{}, time.Time{}, time.Time{}
	q.begin()
	if q.claimed.Add(frontLife).Before(now) {
		q.fronts.forget() // nobody has kept them honest
	}
	q.lookBelow(now)
	f.params.ScanFrom, f.params.DueFrom = q.fronts.begin(now, q.d.servers.areTold())

	f.last, f.freed = q.seq, q.freed
	rows, ids := 0, map[storage.ClaimID]bool{}
	for _, w := range q.all() {
		if !w.deadline.IsZero() && w.deadline.Sub(now) < MinDeadline {
			q.endLate(w)
			continue
		}
		id := w.req.ClaimID
		if f.tail && w.looked || id != (storage.ClaimID{}) && ids[id] {
			continue
		}
		if rows >= maxRows || len(f.calls) >= maxRows {
			break
		}
		if w.req.MaxPayloadBytes > 0 && len(f.calls) > 0 {
			break
		}
		if id != (storage.ClaimID{}) {
			ids[id] = true
		}
		want := min(w.req.Max, maxRows-rows)
		rows += want
		w.state = stateFlying
		f.calls = append(f.calls, w)
		f.params.Calls = append(f.params.Calls, storage.ClaimCall{
			Max: want, Lease: w.lease, WorkerID: w.req.WorkerID, ClaimID: id,
			MaxPayloadBytes: w.req.MaxPayloadBytes,
		})
		if w.req.MaxPayloadBytes > 0 || q.d.cfg.ClaimsAlone {
			break
		}
	}
	if len(f.calls) == 0 && q.waiting.Len() > 0 {
		// Those for whom it was have left. What was known of the next look is forgotten by now, so
		// the others need one.
		q.lookFor(CauseMore)
	}
	return f
}

// endLate answers a waiter whose deadline is too near for a claim. The lock is held.
func (q *queue) endLate(w *waiter) {
	if w.looked {
		q.finishEmpty(w, NoneReady)
		return
	}
	q.finishEmpty(w, DeadlineTooShort)
}

// deal hands out the rows of a statement, and gives back those of callers that went away
// meanwhile.
func (q *queue) deal(f *flight, res storage.ClaimResult, err error) {
	for _, a := range q.handOut(f, res, err) {
		q.d.GiveBack(a) // not under the lock of the queue: it takes that of the dispatcher
	}
}

// handOut hands out the rows of a statement in the order of the calls. It returns the answers
// of those who went away.
func (q *queue) handOut(f *flight, res storage.ClaimResult, err error) (gone []Answer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		// Its rows may be leased, and a database that failed may have lost what it had promised.
		q.belowAt = q.belowSoon(q.d.cfg.Now())
		q.failWaited()
		q.fail(f.calls, err)
		return nil
	}
	q.claimed = q.d.cfg.Now()
	q.fronts.end(res)
	q.now, q.sent, q.later = res.Now, f.sent, !res.NextReady.IsZero()
	q.errorPause, q.notBefore = 0, time.Time{}
	dealt, unfed := 0, 0
	for i, w := range f.calls {
		out := res.Calls[i]
		a := Answer{
			Messages: out.Messages, Replayed: out.Status == storage.ClaimReplayed, Now: res.Now, Sent: f.sent,
			queueID: q.info.ID, claimID: w.req.ClaimID,
		}
		switch {
		case out.Status == storage.ClaimIDReused:
			q.finish(w, reply{err: ErrClaimIDReused})
		case a.Replayed, len(out.Messages) > 0:
			q.remember(out.Messages, res.Now)
			if !a.Replayed {
				dealt += len(out.Messages)
			}
			if len(out.Messages) == 0 {
				a.Empty = NoneReady
			}
			q.finish(w, reply{answer: a})
			if w.gone {
				gone = append(gone, a)
			}
			// Another call with this claim id can be answered with the same leases now.
			if q.ids[w.req.ClaimID] > 0 {
				q.unlook(w.req.ClaimID)
			}
		default:
			unfed++
			w.looked, w.state = true, stateWaiting
			if w.gone {
				q.remove(w)
				w.state = stateDone
			}
		}
	}
	q.after(f, res, dealt, unfed)
	q.endExpired()
	return gone
}

// unlook makes the waiters with a claim id be looked at again. The lock is held.
func (q *queue) unlook(id storage.ClaimID) {
	for _, w := range q.all() {
		if w.req.ClaimID == id {
			w.looked = false
		}
	}
	q.lookFor(CauseCall)
}

// remember notes when the leases end. The lock is held.
func (q *queue) remember(ms []storage.Claimed, now time.Time) {
	local := q.d.cfg.Now()
	for i := range ms {
		m := &ms[i].Message
		q.leases.grant(m, local.Add(m.LeaseEnd.Sub(now)))
	}
}

// after decides when to look next. The lock is held.
func (q *queue) after(f *flight, res storage.ClaimResult, dealt, unfed int) {
	now := q.d.cfg.Now()
	if dealt > 0 {
		q.spin = 0
	}
	q.adapt(f.cause, dealt)
	if q.limit = res.Limit; q.limit != storage.LimitNone {
		q.limited(f, res, now)
		return
	}
	if unfed == 0 && !res.End || res.More && dealt > 0 {
		// Every call was served, and more may be there.
		if q.waiting.Len() > 0 {
			q.lookFor(CauseMore)
		}
		return
	}
	if !res.NextReady.IsZero() && res.NextReady.After(res.Now) {
		at := now.Add(res.NextReady.Sub(res.Now))
		if q.due.IsZero() || at.Before(q.due) {
			q.due = at
		}
	}
	// Something should have been there: somebody else holds its row, or it was moved
	// into the ready set just now. Try again soon, but never in a tight loop.
	overdue := !res.NextReady.IsZero() && !res.NextReady.After(res.Now)
	if f.timer && !f.retried {
		q.spin = 0
	}
	if dealt == 0 && (f.timer || f.retried || overdue || res.More) {
		q.spin = min(max(2*q.spin, minSpin), maxSpin)
		if q.spin < maxSpin {
			q.retryAt = now.Add(q.spin)
		} else if res.More || overdue {
			q.retryAt = now.Add(maxSpin)
		}
	}
	q.settleLooks(f)
	q.empty = !q.look
}

// limited decides when to look next where a limit of the queue left less than was asked for:
// not before it may leave more. The lock is held.
func (q *queue) limited(f *flight, res storage.ClaimResult, now time.Time) {
	q.d.cfg.Metrics.Limited(res.Limit)
	switch wait := res.LimitEnd.Sub(res.Now); {
	case res.LimitEnd.IsZero(): // a settlement tells, or the poll
	case wait > 0:
		q.spin = 0
		q.limitAt = now.Add(max(wait, minLimit))
	default:
		// A lease that looks over still counts: somebody else has locked its row.
		q.spin = min(max(2*q.spin, minSpin), maxSpin)
		q.limitAt = now.Add(q.spin)
	}
	q.settleLooks(f)
	if res.Limit == storage.LimitInFlight && q.freed != f.freed {
		// A lease ended while the statement ran, perhaps after it had counted.
		q.lookFor(CauseWake)
	}
	q.empty = !q.look
}

// settleLooks notes that the queue was found empty, which counts for everybody who was
// there when the look began. Only a claim id may still find something: leases that it
// got before. The lock is held.
func (q *queue) settleLooks(f *flight) {
	again := false
	for _, w := range q.all() {
		if w.seq > f.last || w.looked {
			continue
		}
		if w.req.ClaimID == (storage.ClaimID{}) {
			w.looked = true
		} else {
			again = true
		}
	}
	if again && !q.look {
		q.lookFor(CauseMore)
		q.tail = true
	}
}

// adapt makes polls more frequent while polls, and nothing else, find messages: then
// another server enqueues and the engine cannot tell. The lock is held.
func (q *queue) adapt(cause Cause, dealt int) {
	if q.d.notifies || cause != CausePoll {
		return
	}
	if dealt > 0 {
		q.poll = max(q.poll/2, min(minPoll, q.d.cfg.PollInterval))
	} else {
		q.poll = min(2*q.poll, q.d.cfg.PollInterval)
	}
}

// endExpired answers those whose wait is over and who have been looked for, and
// everybody while draining. The lock is held.
func (q *queue) endExpired() {
	now := q.d.cfg.Now()
	draining := q.d.draining.Load()
	for _, w := range q.all() {
		switch {
		case w.state != stateWaiting:
		case draining:
			q.finishEmpty(w, Draining)
		case w.looked && (w.expired || !w.until.After(now)):
			q.finishEmpty(w, NoneReady)
		}
	}
}

// failWaited answers those, after a statement that failed, for whom none could be made for longer than
// a statement may take: the database hangs. Calls that go alone stand one behind the other, each for
// as long as its statement may take, and the last of them would wait for minutes, without
// an answer at its deadline. Who was looked for goes on waiting until his wait ends. The lock is held.
func (q *queue) failWaited() {
	now := q.d.cfg.Now()
	for _, w := range q.all() {
		if w.state == stateWaiting && !w.looked && now.Sub(w.since) >= q.d.cfg.StatementTimeout {
			q.finish(w, reply{err: errWaited})
		}
	}
}

// fail answers waiters with an error and makes the next look wait, twice as long as
// the last time, so that a broken database is not asked in a loop. The lock is held.
func (q *queue) fail(ws []*waiter, err error) {
	for _, w := range ws {
		if w.state == stateDone {
			continue
		}
		q.finish(w, reply{err: err})
	}
	q.empty = false // what there is was not seen, and when the next delay ends is forgotten
	q.errorPause = min(max(2*q.errorPause, minSpin), maxSpin)
	q.notBefore = q.d.cfg.Now().Add(q.errorPause)
	if q.waiting.Len() > 0 {
		q.lookFor(CauseCall)
	}
}
