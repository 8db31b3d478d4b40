package dispatch

import (
	"container/list"
	"sync"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// waiterState is where a waiter stands. It changes under the lock of its queue.
type waiterState int

const (
	stateWaiting waiterState = iota
	// stateFlying: a statement that asks for this waiter is running.
	stateFlying
	// stateDone: the answer is in the channel, or the waiter left.
	stateDone
)

// waiter is one call of Claim that waits.
type waiter struct {
	req      Request
	since    time.Time // when the call came
	until    time.Time // end of the wait
	deadline time.Time // of the caller, zero where it has none
	answer   chan reply

	// Under the lock of the queue:
	state   waiterState
	place   *list.Element
	seq     uint64
	lease   time.Duration
	looked  bool // a look that began after the waiter came has found nothing for it
	expired bool // the wait is over; the look that is due ends it
	gone    bool // the caller left while a statement ran
}

type reply struct {
	answer Answer
	err    error
}

// queue holds the waiters of one queue, and what is known about when to look.
type queue struct {
	d    *Dispatcher
	name string
	// signal wakes the poller out of its pause.
	signal chan struct{}

	mu      sync.Mutex
	info    storage.Queue // ID 0: not known to exist
	waiting *list.List    // of *waiter, in order of arrival
	ids     map[storage.ClaimID]int
	seq     uint64 // of the waiter that came last
	running bool

	// look is set when there is a reason to look now, with its cause; tail narrows that
	// look to the waiters that had none.
	look  bool
	cause Cause
	tail  bool
	// empty: the last look found the end of what is ready, and nothing has happened since; also
	// for a while after the poller stopped, at stopped.
	empty   bool
	stopped time.Time

	// due is when the next delayed message is ready; retryAt when something that was
	// ready but could not be had is tried again; pollAt the next poll; notBefore the end
	// of the pause after an error. Local time, zero where there is none.
	due, retryAt, pollAt, notBefore time.Time
	// limit is what kept messages back from the last look, limitAt when that may be over
	// without anybody telling; freed counts the leases that were told to be over.
	limit   storage.Limit
	limitAt time.Time
	freed   uint64
	leases  leases
	fronts  fronts
	// claimed is when the last claim was answered, belowAt when the next look below the fronts
	// is due, looksBelow that one is under way. Local time.
	claimed, belowAt time.Time
	looksBelow       bool
	// retiring: a timer will look whether the queue can be forgotten.
	retiring   bool
	spin       time.Duration
	errorPause time.Duration
	poll       time.Duration
	// now, sent and later belong to the last look; later: it saw a delayed message.
	now, sent time.Time
	later     bool
}

func newQueue(d *Dispatcher, name string) *queue {
	return &queue{
		d: d, name: name, signal: make(chan struct{}, 1),
		waiting: list.New(), ids: map[storage.ClaimID]int{}, poll: d.cfg.PollInterval,
	}
}

// register adds a waiter at the end and starts the poller where none runs. The
// dispatcher's lock is held.
func (q *queue) register(w *waiter, waits bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.req.Queue.ID != 0 {
		q.learn(w.req.Queue)
	}
	if q.info.ID != 0 && !q.setLease(w) {
		return
	}
	q.seq++
	w.seq = q.seq
	w.place = q.waiting.PushBack(w)
	if w.req.ClaimID != (storage.ClaimID{}) {
		q.ids[w.req.ClaimID]++
	}
	// A poller that knows the queue to be empty need not look for one more that waits:
	// it will look when something happens, and once a second. A call with a claim id may
	// be the repeat of one that was served, so it is looked at once.
	running := q.running
	if !running {
		q.start()
	}
	if q.empty && waits && w.req.ClaimID == (storage.ClaimID{}) {
		w.looked = true
	} else {
		q.lookFor(CauseCall)
	}
	if !running {
		q.d.work.begin()
		go q.run()
	}
}

// learn notes the queue, as it is by now. Where it was unknown, those who wait get
// their lease, or an error where they asked for one that the queue does not allow. The
// lock is held.
func (q *queue) learn(info storage.Queue) {
	unknown := q.info.ID == 0
	if q.info.ID != info.ID {
		q.fronts.forget()
		q.belowAt = time.Time{}
	}
	q.info = info
	if !unknown {
		return
	}
	q.empty = false // what nobody looked for
	for _, w := range q.all() {
		q.setLease(w)
	}
}

// setLease finds the lease of a waiter; where that fails the waiter is answered.
func (q *queue) setLease(w *waiter) bool {
	lease, err := w.req.LeaseFor(q.info)
	if err != nil {
		q.finish(w, reply{err: err})
		return false
	}
	w.lease = lease
	return true
}

// lookFor makes the poller look. The lock is held.
func (q *queue) lookFor(cause Cause) {
	if !q.look {
		q.look, q.cause = true, cause
	}
	if cause != CauseMore {
		q.tail = false
	}
	q.empty = false
	q.nudge()
}

func (q *queue) nudge() {
	select {
	case q.signal <- struct{}{}:
	default:
	}
}

// finish answers a waiter and removes it. The lock is held.
func (q *queue) finish(w *waiter, r reply) {
	q.remove(w)
	w.state = stateDone
	w.answer <- r
}

func (q *queue) remove(w *waiter) {
	if w.place == nil {
		return
	}
	q.waiting.Remove(w.place)
	w.place = nil
	if id := w.req.ClaimID; id != (storage.ClaimID{}) {
		if q.ids[id]--; q.ids[id] == 0 {
			delete(q.ids, id)
		}
	}
}

// finishEmpty answers a waiter that got nothing. The lock is held.
func (q *queue) finishEmpty(w *waiter, why Empty) {
	switch {
	case why != NoneReady:
	case q.info.ID == 0:
		why = QueueUnknown
	case q.limit == storage.LimitInFlight:
		why = InFlightLimit
	case q.limit == storage.LimitRate:
		why = RateLimit
	}
	a := Answer{Empty: why}
	if w.looked {
		a.Now, a.Sent, a.Later = q.now, q.sent, q.later
	}
	q.finish(w, reply{answer: a})
}

// expire ends the wait of a waiter, or leaves that to the look that is due.
func (q *queue) expire(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.expired = true
	if w.state == stateWaiting && w.looked {
		q.finishEmpty(w, NoneReady)
		q.nudge()
	}
}

// leave removes a waiter whose caller went away; true with the answer where it was
// answered already.
func (q *queue) leave(w *waiter) (reply, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch w.state {
	case stateWaiting:
		q.remove(w)
		w.state = stateDone
		q.nudge()
	case stateFlying:
		w.gone = true
	case stateDone:
		select {
		case r := <-w.answer:
			return r, true
		default:
		}
	}
	return reply{}, false
}

// drain answers everybody for whom no statement runs.
func (q *queue) drain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for e := q.waiting.Front(); e != nil; {
		w := e.Value.(*waiter)
		e = e.Next()
		if w.state == stateWaiting {
			q.finishEmpty(w, Draining)
		}
	}
	q.nudge()
}

func (q *queue) wake() { q.wakeSince(time.Time{}) }

// wakeSince is wake where messages became claimable whose ready time is not before since, on
// the clock of the database; zero where none did.
func (q *queue) wakeSince(since time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !since.IsZero() {
		q.fronts.lowerAll(since)
	}
	q.happened()
}

// overdueSince is wakeSince where a front hides messages that are ready since then. One that
// nobody may take now, for its queue is paused, stays before the fronts and wakes nobody again.
func (q *queue) overdueSince(ready time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.fronts.hides(ready) {
		q.fronts.lowerAll(ready)
		q.happened()
	}
}

// happened makes the poller look, and one that starts later too. The lock is held.
func (q *queue) happened() {
	if q.running {
		q.lookFor(CauseWake)
	}
	q.empty = false
}

// missed is wake where it is not known what became claimable, nor since when it is ready.
func (q *queue) missed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.belowAt = q.belowSoon(q.d.cfg.Now())
	q.happened()
}

// delayed says that a message is ready at local time at, and on the clock of the database at
// ready.
func (q *queue) delayed(at, ready time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.fronts.lowerAll(ready)
	switch {
	case !q.running:
		q.empty = false
	case q.due.IsZero() || at.Before(q.due):
		q.due = at
		q.nudge()
	}
}

func (q *queue) leaseEnds(position int64, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before := q.leases.next()
	q.fronts.clear(position)
	q.leases.set(position, at)
	if !q.running {
		q.forgetEnded(q.d.cfg.Now())
		return
	}
	if next := q.leases.next(); before.IsZero() || next.Before(before) {
		q.nudge()
	}
}

func (q *queue) settled(positions []int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, position := range positions {
		q.leases.drop(position)
		q.fronts.clear(position)
	}
	q.freed += uint64(len(positions))
	if q.limit == storage.LimitInFlight {
		q.happened()
	}
}

// unlimited tells whether a look was made that no limit of leases has cut short.
func (q *queue) unlimited() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.running && q.limit != storage.LimitInFlight
}

func (q *queue) liveLeases(now time.Time) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.running {
		q.forgetEnded(now)
	}
	return q.leases.len()
}

// forgetEnded is for leases that end while no poller runs. One that starts at once afterwards has
// no timer for them. The lock is held.
func (q *queue) forgetEnded(now time.Time) {
	if q.overdue(now) {
		q.empty = false
	}
}

func (q *queue) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting.Len()
}
