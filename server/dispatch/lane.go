package dispatch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// ErrLaneFull says that so much waits for the statements of a lane that another call is
// refused: nothing of it has happened.
var ErrLaneFull = errors.New("dispatch: too many calls wait for the database")

// Share is whose turn it is in a lane: the callers of one connection on one queue take turns
// with those of others, so that neither a queue nor a caller fills a statement.
type Share struct {
	Queue int32
	// Conn tells connections apart; it must be comparable.
	Conn any
}

// Size is what a call takes of a statement.
type Size struct {
	Items int
	Bytes int64
}

// verdict is what a statement has left of a call.
type verdict int8

const (
	// done: the call is answered.
	done verdict = iota
	// again: nothing has happened for the call, and it can be joined once more.
	again
	// after: as again, but only after the others have been run.
	after
	// alone: somebody holds what the call needs, so it waits for that by itself, beside the lane.
	alone
)

// laneConfig of a lane. All fields but slow are needed.
type laneConfig[C any] struct {
	name string
	// flights is the number of statements at a time. One is best where calls are joined:
	// what arrives meanwhile makes the next statement larger.
	flights int
	// statement bounds a statement, and waiting what waits for one. A call that is larger
	// than either still goes, alone.
	statement, waiting Size
	// timeout is the deadline of a statement. It is not the caller's: who leaves cancels
	// nobody else.
	timeout time.Duration
	now     func() time.Time
	// run runs one statement for calls, and notes the answers in them. It says what became of
	// each call; nil says that all are answered. brief tells that the calls were locked out by
	// somebody, so that it should wait even less, and find out who is held up where it can.
	run func(ctx context.Context, calls []C, brief bool) ([]verdict, error)
	// caught makes an error of a panic.
	caught func(p any) error
	// slow takes the calls that somebody holds up; nil where they wait here.
	slow    *lane[C]
	metrics LaneMetrics
}

// LaneMetrics is told what lanes do.
type LaneMetrics interface {
	// Joined is told of every statement of a lane, with how many calls and items it holds.
	Joined(lane string, calls, items int)
	// Refused counts the calls for which there was no room, Split the statements that were run
	// again in parts.
	Refused(lane string)
	Split(lane string)
}

// lane joins concurrent calls into statements. While nothing runs, a call runs its statement
// itself and at once. What arrives meanwhile waits, and forms the next one as soon as that has
// ended: there is no timer, and nobody lingers for others.
type lane[C any] struct {
	laneConfig[C]

	base context.Context //nolint:containedctx // statements live with the server, not with a caller

	mu sync.Mutex
	// splits counts the statements that run beside the lane for calls that were locked out.
	splits  int
	closed  bool
	running int
	work    sync.WaitGroup
	shares  map[Share]*share[C]
	// turn is the share whose turn is next, in a ring of all that have calls waiting.
	turn  *share[C]
	room  Size
	calls int
	conns map[any]Size
}

// share holds the waiting calls of one Share in the order of their arrival.
type share[C any] struct {
	key         Share
	first, last *ticket[C]
	prev, next  *share[C]
}

// ticket is a call on its way through a lane.
type ticket[C any] struct {
	call  C
	key   Share
	size  Size
	since time.Time
	// in is the lane where it waits, nil once it was taken. It changes under the lock of that
	// lane, and so do the next ones.
	in         atomic.Pointer[lane[C]]
	share      *share[C]
	prev, next *ticket[C]
	// left tells that its caller has gone.
	left   atomic.Bool
	answer chan error
}

func newLane[C any](base context.Context, cfg laneConfig[C]) *lane[C] {
	return &lane[C]{laneConfig: cfg, base: base, shares: map[Share]*share[C]{}, conns: map[any]Size{}}
}

// do takes a call through the lane. A caller that leaves before his call was taken into a
// statement leaves no trace; one that leaves later has to wait for its end, so that what it
// changed is known.
func (l *lane[C]) do(ctx context.Context, key Share, size Size, call C) error {
	t := &ticket[C]{call: call, key: key, size: size, answer: make(chan error, 1)}
	l.mu.Lock()
	switch {
	case l.closed:
		l.mu.Unlock()
		return errClosed
	case l.running < l.flights && l.turn == nil:
		l.running++
		l.work.Add(1)
		l.mu.Unlock()
		l.fly([]*ticket[C]{t}, time.Time{})
		l.land()
	case !l.fits(key, size):
		l.mu.Unlock()
		l.metrics.Refused(l.name)
		return ErrLaneFull
	default:
		l.push(t)
		l.mu.Unlock()
	}
	select {
	case err := <-t.answer:
		return err
	case <-ctx.Done():
		if leave(t) {
			return context.Cause(ctx)
		}
		return <-t.answer
	}
}

// errClosed answers who comes, or still waits, when the server ends.
var errClosed = fmt.Errorf("%w: the server has ended", storage.ErrUnavailable)

// errWaited answers who has waited for longer than a statement may take: the database hangs.
var errWaited = fmt.Errorf("%w: the statements before it took too long", storage.ErrUnavailable)

// fits tells whether there is room for another call to wait. One connection gets half of it
// at most, so that it shuts nobody else out.
func (l *lane[C]) fits(key Share, size Size) bool {
	mine := l.conns[key.Conn]
	if mine.Items == 0 && l.room.Items < l.waiting.Items && l.room.Bytes < l.waiting.Bytes {
		return true // and so for one that is larger than all of it
	}
	return l.room.Items+size.Items <= l.waiting.Items && l.room.Bytes+size.Bytes <= l.waiting.Bytes &&
		mine.Items+size.Items <= l.waiting.Items/2 && mine.Bytes+size.Bytes <= l.waiting.Bytes/2
}

// push makes a call wait. The caller has the lock.
func (l *lane[C]) push(t *ticket[C]) {
	if t.since.IsZero() {
		t.since = l.now()
	}
	s := l.shares[t.key]
	if s == nil {
		s = &share[C]{key: t.key}
		l.shares[t.key] = s
		if l.turn == nil {
			s.prev, s.next, l.turn = s, s, s
		} else { // last in the ring
			s.prev, s.next = l.turn.prev, l.turn
			s.prev.next, s.next.prev = s, s
		}
	}
	t.in.Store(l)
	t.share, t.prev, t.next = s, s.last, nil
	if s.last == nil {
		s.first = t
	} else {
		s.last.next = t
	}
	s.last = t
	l.count(t, 1)
}

// drop takes a call out of those that wait. The caller has the lock.
func (l *lane[C]) drop(t *ticket[C]) {
	s := t.share
	if t.prev == nil {
		s.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		s.last = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.in.Store(nil)
	t.share, t.prev, t.next = nil, nil, nil
	l.count(t, -1)
	if s.first != nil {
		return
	}
	delete(l.shares, s.key)
	if s.next == s {
		l.turn = nil
		return
	}
	s.prev.next, s.next.prev = s.next, s.prev
	if l.turn == s {
		l.turn = s.next
	}
}

func (l *lane[C]) count(t *ticket[C], sign int) {
	add := func(s Size) Size {
		return Size{Items: s.Items + sign*t.size.Items, Bytes: s.Bytes + int64(sign)*t.size.Bytes}
	}
	l.room = add(l.room)
	l.calls += sign
	if mine := add(l.conns[t.key.Conn]); mine == (Size{}) {
		delete(l.conns, t.key.Conn)
	} else {
		l.conns[t.key.Conn] = mine
	}
}

// leave takes a call out whose caller went away; false where it was taken into a statement.
func leave[C any](t *ticket[C]) bool {
	t.left.Store(true)
	l := t.in.Load()
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.in.Load() != l {
		return false
	}
	l.drop(t)
	return true
}

// next takes the calls of the next statement: from one share after the other as much as each
// of them may have at a time, and in each the oldest first. Nil where nobody waits.
func (l *lane[C]) next() []*ticket[C] {
	l.mu.Lock()
	defer l.mu.Unlock()
	var (
		taken   []*ticket[C]
		size    Size
		quantum = max(1, l.statement.Items/10)
		now     = l.now()
	)
	for l.turn != nil && !l.closed {
		s := l.turn
		for mine := 0; s.first != nil && mine < quantum; {
			t := s.first
			if now.Sub(t.since) > l.timeout {
				l.drop(t)
				t.answer <- errWaited
				continue
			}
			if len(taken) > 0 && (size.Items+t.size.Items > l.statement.Items || size.Bytes+t.size.Bytes > l.statement.Bytes) {
				return taken // it is the first of the next one
			}
			l.drop(t)
			taken = append(taken, t)
			size.Items += t.size.Items
			size.Bytes += t.size.Bytes
			mine += t.size.Items
		}
		if l.turn == s {
			l.turn = s.next
		}
	}
	if len(taken) == 0 {
		l.running--
	}
	return taken
}

// land ends the statement that a caller has run himself. Where others wait by now, a goroutine
// goes on for as long as that is so: a caller owes nobody more than his own statement.
func (l *lane[C]) land() {
	l.mu.Lock()
	if l.turn == nil {
		l.running--
		l.mu.Unlock()
		l.work.Done()
		return
	}
	l.mu.Unlock()
	go l.serve()
}

// serve runs statements until nobody waits.
func (l *lane[C]) serve() {
	defer l.work.Done()
	for {
		// Those whose answers have just been given, and whose next calls are on their way, come
		// first: what they ask for is joined too. This costs no time where nobody is.
		runtime.Gosched()
		ts := l.next()
		if len(ts) == 0 {
			return
		}
		l.fly(ts, time.Time{})
	}
}

// fly runs one statement and answers its calls. until is not zero where they were locked out:
// until then it is found out whom of them somebody holds up.
func (l *lane[C]) fly(ts []*ticket[C], until time.Time) {
	calls := make([]C, len(ts))
	items := 0
	for i, t := range ts {
		calls[i] = t.call
		items += t.size.Items
	}
	l.metrics.Joined(l.name, len(calls), items)
	verdicts, err := l.guarded(calls, !until.IsZero())
	locked := errors.Is(err, storage.ErrLocked)
	switch {
	case err == nil && verdicts == nil:
		answer(ts, nil)
	case err == nil:
		l.sort(ts, verdicts, until)
	case !divisible(err):
		answer(ts, err)
	case locked && l.slow != nil && (len(ts) == 1 || !until.IsZero() && l.now().After(until)):
		for _, t := range ts {
			l.slow.take(t)
		}
	case len(ts) == 1:
		answer(ts, err)
	case locked && until.IsZero():
		l.metrics.Split(l.name)
		l.aside(ts)
	default:
		// One of them did it, and nothing has happened for the others. Halves find it in few
		// statements.
		l.metrics.Split(l.name)
		l.fly(ts[:len(ts)/2], until)
		l.fly(ts[len(ts)/2:], until)
	}
}

const (
	// maxAside bounds the statements that run beside a lane for calls that were locked out, and
	// fewAside is how many calls are not worth another one.
	maxAside = 4
	fewAside = 50
	// splitTime bounds the search among them by halves. Who was not told apart by then goes to
	// the slow lane with those whom somebody holds up.
	splitTime = 300 * time.Millisecond
)

// aside goes on beside the lane with calls that were locked out together. To find out whom
// somebody holds up takes a moment for each of them, and no neighbour waits for that (E6). Where
// too much goes on beside it already, the lane waits.
func (l *lane[C]) aside(ts []*ticket[C]) {
	until := l.now().Add(splitTime)
	l.mu.Lock()
	parts := min((len(ts)+fewAside-1)/fewAside, maxAside-l.splits)
	l.splits += parts
	l.mu.Unlock()
	if parts == 0 {
		l.fly(ts, until)
		return
	}
	size := (len(ts) + parts - 1) / parts
	for range parts {
		part := ts[:min(size, len(ts))]
		ts = ts[len(part):]
		l.work.Go(func() {
			if len(part) > 0 {
				l.fly(part, until)
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.splits--
		})
	}
}

// divisible tells whether an error proves that nothing has happened, and may be the doing of
// one call alone (D8). After any other one the calls are not run again: the database may have
// done what they ask for, or would fail them all once more.
func divisible(err error) bool {
	return errors.Is(err, storage.ErrRefused) || errors.Is(err, storage.ErrLocked) || errors.Is(err, storage.ErrQueueNotFound)
}

// sort answers the calls that are done and runs the others again.
func (l *lane[C]) sort(ts []*ticket[C], verdicts []verdict, until time.Time) {
	var joined, later []*ticket[C]
	for i, t := range ts {
		switch verdicts[i] {
		case done:
			t.answer <- nil
		case again:
			joined = append(joined, t)
		case after:
			later = append(later, t)
		case alone:
			if l.slow != nil {
				l.slow.take(t)
			} else {
				t.answer <- storage.ErrLocked
			}
		}
	}
	for _, part := range [][]*ticket[C]{joined, later} {
		switch {
		case len(part) == len(ts): // no step forward, which run never asks for
			answer(part, errors.New("dispatch: a statement settles nothing"))
		case len(part) > 0:
			l.fly(part, until)
		}
	}
}

func answer[C any](ts []*ticket[C], err error) {
	for _, t := range ts {
		t.answer <- err
	}
}

// guarded runs one statement under the deadline of the lane. A panic is the error of all of its
// calls: what it has left is not known.
func (l *lane[C]) guarded(calls []C, brief bool) (verdicts []verdict, err error) {
	ctx, cancel := context.WithTimeout(l.base, l.timeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			verdicts, err = nil, l.caught(p)
		}
	}()
	return l.run(ctx, calls, brief)
}

// take makes a call wait here that another lane has given up.
func (l *lane[C]) take(t *ticket[C]) {
	t.since = l.now()
	l.mu.Lock()
	switch {
	case l.closed:
		l.mu.Unlock()
		t.answer <- errClosed
		return
	case t.left.Load():
		l.mu.Unlock()
		t.answer <- storage.ErrLocked // which nobody hears
		return
	case !l.fits(t.key, t.size):
		l.mu.Unlock()
		l.metrics.Refused(l.name)
		t.answer <- ErrLaneFull
		return
	}
	l.push(t)
	starts := l.running < l.flights
	if starts {
		l.running++
		l.work.Add(1)
	}
	l.mu.Unlock()
	if starts {
		go l.serve()
	}
}

// waits tells how many items wait for a statement.
func (l *lane[C]) waits() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.room.Items
}

// callers tells how many calls wait for a statement.
func (l *lane[C]) callers() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}

// close answers all that wait and lets nobody in. The statements that run end with base; wait
// waits for them.
func (l *lane[C]) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for l.turn != nil {
		t := l.turn.first
		l.drop(t)
		t.answer <- errClosed
	}
}

func (l *lane[C]) wait() { l.work.Wait() }
