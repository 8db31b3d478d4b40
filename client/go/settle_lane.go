package queuebox

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

const (
	// settleFlights is how many calls of one lane are under way at a time. What is settled
	// meanwhile goes into the next one. More of them make smaller batches and no more speed.
	settleFlights = 1
	// maxSettlements is the most items in one BatchSettle, and the most follow-ups in all of them.
	maxSettlements = 1000
	// maxSettleBytes bounds the size of one BatchSettle, far below what any server takes. A
	// larger settlement goes alone.
	maxSettleBytes = 2 << 20
	// settleStall is how long a settlement waits for a call that is under way before it counts
	// as stalled and another call is begun beside it: one row that somebody else has locked
	// must not hold up every other handle of the process. maxStalled bounds those.
	settleStall = 200 * time.Millisecond
	maxStalled  = 16
)

// settlement is one handle's settlement on its way; the handle repeats it where it must.
type settlement struct {
	op        string
	item      *queueboxv1.SettleItem
	queue     string
	token     string
	bytes     int
	followUps int
	timeout   time.Duration
	// deadline is the local end of the lease: nothing is sent at it or after it.
	deadline time.Time

	// answer brings what became of a try that waited for its lane.
	answer chan settleAnswer
	// sent is guarded by the mutex of the lane while the settlement waits in it.
	sent bool
}

// settleAnswer is what became of one try.
type settleAnswer struct {
	settled Settled
	err     error
	// sent: the try may have reached a server; logged: the log has its error already.
	sent, logged bool
}

// settler joins the settlements of all handles of a client by natural batching: the first one is
// sent at once as a call of its own, and what is settled while it is under way goes out as one
// BatchSettle when it is answered. There is no timer that waits for more, so one alone pays
// nothing. There is a lane for each range of timeouts, so that a handle with a short lease does
// not cut the time of the others short, and one for completions with follow-ups, which the
// database takes one by one.
type settler struct {
	client *Client
	lanes  [8][2]settleLane
}

func newSettler(c *Client) *settler {
	s := &settler{client: c}
	for i := range s.lanes {
		for j := range s.lanes[i] {
			s.lanes[i][j].client = c
		}
	}
	return s
}

// lane returns the lane of a settlement: within one, timeouts differ by less than a factor of two.
func (s *settler) lane(st *settlement) *settleLane {
	i := min(bits.Len64(uint64(st.timeout/(100*time.Millisecond))), len(s.lanes)-1)
	if st.followUps > 0 {
		return &s.lanes[i][1]
	}
	return &s.lanes[i][0]
}

// try makes one attempt, joined with others where calls are under way.
func (s *settler) try(ctx context.Context, st *settlement) settleAnswer {
	if _, own := metadata.FromOutgoingContext(ctx); own || s.client.separate {
		// What the caller wants sent with his call, credentials for example, is not for the
		// settlements of others.
		return s.client.settleAlone(ctx, st)
	}
	return s.lane(st).try(ctx, st)
}

// settleLane is one lane. Its goroutine lives while settlements wait.
type settleLane struct {
	client *Client

	mu      sync.Mutex
	waiting []*settlement
	// since is when the first of those that wait came, or became the first.
	since time.Time
	// flying counts the calls under way, stalled those begun beside them for their slowness.
	flying, stalled int
	// guard fires while something waits, and looks for calls that are stalled.
	guard *time.Timer
	armed bool
}

func (l *settleLane) try(ctx context.Context, st *settlement) settleAnswer {
	l.mu.Lock()
	if l.flying < settleFlights {
		l.flying++
		l.mu.Unlock()
		answer := l.client.settleAlone(ctx, st)
		l.landed()
		return answer
	}
	st.sent = false
	if st.answer == nil {
		st.answer = make(chan settleAnswer, 1)
	}
	l.wait(st)
	l.mu.Unlock()

	select {
	case answer := <-st.answer:
		return answer
	case <-ctx.Done():
		return l.leave(ctx, st)
	}
}

// wait queues a settlement. The mutex is held.
func (l *settleLane) wait(st *settlement) {
	if len(l.waiting) == 0 {
		l.since = now()
	}
	l.waiting = append(l.waiting, st)
	if l.armed {
		return
	}
	l.armed = true
	if l.guard == nil {
		l.guard = time.AfterFunc(settleStall, l.look)
	} else {
		l.guard.Reset(settleStall)
	}
}

// leave takes a settlement out whose caller waits no longer. The call that carries it, if one
// does, goes on for the others.
func (l *settleLane) leave(ctx context.Context, st *settlement) settleAnswer {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case answer := <-st.answer:
		return answer
	default:
	}
	if st.sent {
		return settleAnswer{err: fromRPC(st.op, status.FromContextError(ctx.Err()).Err()), sent: true}
	}
	if i := slices.Index(l.waiting, st); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	return settleAnswer{err: fmt.Errorf("queuebox: %s: %w", st.op, ctx.Err())}
}

// landed ends a call that was sent from the goroutine of its caller. What came meanwhile is sent
// from a goroutine of the client, since no caller should wait for the calls of others.
func (l *settleLane) landed() {
	l.mu.Lock()
	if len(l.waiting) == 0 {
		l.flying--
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	if !l.client.start(l.fly) {
		l.closed(&l.flying)
	}
}

// fly sends what waits until nothing does.
func (l *settleLane) fly() {
	for {
		batch := l.take()
		if batch == nil {
			return
		}
		l.client.settleBatch(batch)
	}
}

// take returns the next batch, or nil after it has ended the flight.
func (l *settleLane) take() []*settlement {
	if l.client.life.Err() != nil {
		l.closed(&l.flying)
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late(now())
	batch := l.cut()
	if batch == nil {
		l.flying--
	}
	return batch
}

// cut takes the next batch from those that wait: as many as one call may carry. The mutex is held.
func (l *settleLane) cut() []*settlement {
	n, bytes, followUps := 0, 0, 0
	for _, st := range l.waiting {
		bytes += st.bytes
		followUps += st.followUps
		if n > 0 && (n == maxSettlements || bytes > maxSettleBytes || followUps > maxSettlements) {
			break
		}
		st.sent = true
		n++
	}
	if n == 0 {
		return nil
	}
	if n == len(l.waiting) {
		batch := l.waiting
		l.waiting = nil
		return batch
	}
	batch := slices.Clone(l.waiting[:n])
	l.waiting = slices.Delete(l.waiting, 0, n)
	l.since = now()
	return batch
}

// late answers those whose lease ended locally while they waited: a settlement that was not sent
// by then is not sent any more (K2, K3). The mutex is held.
func (l *settleLane) late(at time.Time) {
	l.waiting = slices.DeleteFunc(l.waiting, func(st *settlement) bool {
		if at.Before(st.deadline) {
			return false
		}
		st.answer <- settleAnswer{err: localLoss(st.op)}
		return true
	})
}

// look begins another call where those under way are stalled. It is run by the guard.
func (l *settleLane) look() {
	l.mu.Lock()
	at := now()
	l.late(at)
	if len(l.waiting) == 0 {
		l.armed = false
		l.mu.Unlock()
		return
	}
	pause := settleStall
	begin := false
	if waited := at.Sub(l.since); waited < settleStall {
		pause -= waited
	} else if begin = l.stalled < maxStalled; begin {
		l.stalled++
	}
	l.guard.Reset(pause)
	l.mu.Unlock()
	if begin && !l.client.start(l.flyOnce) {
		l.closed(&l.stalled)
	}
}

// flyOnce sends one batch beside calls that are stalled.
func (l *settleLane) flyOnce() {
	l.mu.Lock()
	batch := l.cut()
	l.mu.Unlock()
	if batch != nil {
		l.client.settleBatch(batch)
	}
	l.mu.Lock()
	l.stalled--
	l.mu.Unlock()
}

// closed answers those that wait in a client that was closed, and ends a flight of the counter.
func (l *settleLane) closed(flights *int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*flights--
	for _, st := range l.waiting {
		st.answer <- settleAnswer{err: ErrClosed}
	}
	l.waiting = nil
}
