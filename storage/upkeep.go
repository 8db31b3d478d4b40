package storage

import (
	"context"
	"time"
)

// Upkeep is what a replica does by itself, with nobody calling. All of it is safe on
// every replica at once, works in small transactions (no row is locked for longer than
// 100 ms) and never waits for a row: what somebody else has locked is left for the next
// time.
type Upkeep interface {
	// Sweep ends messages that no claim may take any more.
	Sweep(ctx context.Context, p SweepParams) (SweepResult, error)
	// Retain deletes finished messages that have passed the retention of their queue.
	Retain(ctx context.Context, p RetainParams) (RetainResult, error)
	// SweepKeys looks at ordering keys, a page at a time: it removes those that no message
	// needs any more, and puts right a key that has no head or the wrong one, which can be
	// where a row was locked by somebody while its key moved on (O9).
	SweepKeys(ctx context.Context, p SweepKeysParams) (SweepKeysResult, error)
	// Count takes the counts of queues and keeps them for StoredStats. Of all stores that
	// are asked to count everything, on any server, one does it at a time, about every two
	// seconds and resting twenty times as long as the last count took; the others do nothing.
	// One that was killed is replaced within seconds.
	Count(ctx context.Context, p CountParams) (CountResult, error)
	// Cancel ends a message, or asks its holder to (S14). ErrMessageNotFound where the
	// queue has no such message; ErrUnavailable where its row is locked for longer than the
	// wait, and then nothing changed.
	Cancel(ctx context.Context, p CancelParams) (CancelResult, error)
}

// SweepParams ends messages that no claim may take any more: those on their last
// attempt whose lease is over become DEAD (LEASE_EXPIRED, C18), those asked to be
// cancelled whose lease is over become CANCELLED (S14), and those not claimed whose
// expire time has passed become DEAD (EXPIRED, E7). The attempt stays counted.
type SweepParams struct {
	// Refs are messages to look at, where the caller knows which. Empty looks at the live
	// messages in the order of their references, from After on.
	Refs []Ref
	// After is the Next of the sweep before; the zero Ref starts anew.
	After Ref
	// Limit bounds the rows looked at; at least 1.
	Limit int
}

// SweepResult tells what a sweep did.
type SweepResult struct {
	Dead      int // LEASE_EXPIRED
	Expired   int // EXPIRED
	Cancelled int
	// Ready names the queues in which the next message of a key became claimable. It may
	// name one too many.
	Ready []int32
	// Overdue names the queues in which a page has met messages whose lease is over and which a
	// claim may take, and on a backend that heeds ClaimParams.DueFrom those whose delay was over
	// some seconds ago, each with the earliest ready time of them: whoever granted the lease may be
	// gone, and a scan hint of somebody else may lie behind them (W7). In no order. A sweep of Refs
	// need not tell.
	Overdue []QueueReady
	// Next is where to go on; the zero Ref says that the end was reached.
	Next Ref
	Now  time.Time
}

// AddOverdue adds a message to Overdue.
func (r *SweepResult) AddOverdue(queueID int32, ready time.Time) {
	for i := range r.Overdue {
		if o := &r.Overdue[i]; o.QueueID == queueID {
			if ready.Before(o.ReadyTime) {
				o.ReadyTime = ready
			}
			return
		}
	}
	r.Overdue = append(r.Overdue, QueueReady{QueueID: queueID, ReadyTime: ready})
}

// SweepKeysParams is a page of ordering keys.
type SweepKeysParams struct {
	// After is the Next of the page before; 0 starts anew.
	After int64
	// Limit bounds the keys looked at; at least 1.
	Limit int
	// IdleFor asks to leave what is kept of a key until nothing has used it for about so long:
	// where the next message of the key has to make it anew, a database that keeps old versions
	// of rows for somebody's snapshot has one more in its indexes each time. A backend to which
	// that does not matter may remove it at once. With 0 every backend does.
	IdleFor time.Duration
}

// SweepKeysResult tells what became of them.
type SweepKeysResult struct {
	Removed int
	// Queues are those that the keys of the page belong to.
	Queues []int32
	// Ready names the queues in which a message became claimable.
	Ready []int32
	// Next is where to go on; 0 says that the end was reached.
	Next int64
	Now  time.Time
}

// RetainParams deletes finished messages that have passed the retention of their queue,
// counted from when they finished, with their idempotency keys and their history (D6).
type RetainParams struct {
	// Limit bounds the rows deleted by this call; at least 1. Whole partitions are dropped
	// besides where the backend has them.
	Limit int
}

// RetainResult tells what went.
type RetainResult struct {
	Deleted           int
	PartitionsDropped int
	// More: the limit was met, so call again soon.
	More bool
	Now  time.Time
}

// Vacuumer is what a backend has besides that vacuums by itself: its database keeps what rows
// were before they changed until somebody removes it.
type Vacuumer interface {
	// Vacuums tells what this process has done so far. It asks nobody.
	Vacuums() VacuumStats
}

// VacuumStats counts the vacuums of tables.
type VacuumStats struct {
	// Done removed most of what was dead. InVain removed little, since some session holds a snapshot
	// in which it lives. TimedOut took too long and were given up, Failed failed in another way.
	Done, InVain, TimedOut, Failed int64
	// Took is the time of all of them together.
	Took time.Duration
	// Last is when the last one was done, on the clock of the process; zero where none was.
	Last time.Time
	// Tables is how many tables the role may vacuum, as was seen last, and Dead how many rows of
	// them are dead.
	Tables int
	Dead   int64
	// OldestSnapshot is for how long the transaction has been open that keeps dead rows for the sake
	// of its snapshot, as was seen last; 0 where there is none or its age is not known.
	OldestSnapshot time.Duration
}

// CountParams says what to count.
type CountParams struct {
	// Queues are counted now, whoever counts the others. Empty counts all, where it is time.
	Queues []int32
}

// CountResult tells how many queues were counted.
type CountResult struct {
	Counted int
}

// The pace of counts, the same for every backend.
const (
	// CountEvery is the least time between two counts.
	CountEvery = 2 * time.Second
	// CountRest is how many times as long as a count took is rested after it.
	CountRest = 20
)

// CancelParams names a message by its reference, or by its idempotency key where Ref is
// zero.
type CancelParams struct {
	QueueID        int32
	Ref            Ref
	IdempotencyKey string
}

// CancelResult tells the state after the call: StateCancelled, or StateProcessing where
// a worker holds the message and was asked to stop (S14), or the final state of a
// message that was finished before, which stays as it is.
type CancelResult struct {
	Ref   Ref
	State State
	// Ready: the next message of its key may be claimed now.
	Ready bool
	Now   time.Time
}
