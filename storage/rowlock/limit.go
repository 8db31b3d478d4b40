package rowlock

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	qLimitLock    statement = "limit_lock"
	qLimitAdd     statement = "limit_add"
	qLimitSet     statement = "limit_set"
	qLimitLeased  statement = "limit_leased"
	qLimitFilled  statement = "limit_filled"
	qLimitSlots   statement = "limit_slots"
	qLimitOver    statement = "limit_over"
	qLimitSlotAdd statement = "limit_slot_add"
	qLimitSlotSet statement = "limit_slot_set"
	qLimitForget  statement = "limit_forget"
	qLimitBucket  statement = "limit_bucket"
)

// limited tells whether a claim of the queue has to ask what its limits leave.
func limited(q storage.Queue) bool { return q.MaxInFlight > 0 || q.MaxClaimsPerSecond > 0 }

// limitRow is the row of claim_limit of a queue.
type limitRow struct {
	inFlight bool
	bucket   storage.Bucket
	// due says that leases are to be looked for which were granted while nobody counted.
	due bool
}

// lockLimit locks the limit of a queue, where it ever had one. It is the first lock of a
// transaction: whoever has it waits for nobody but, in a change of the queue, for its row.
func (c *session) lockLimit(ctx context.Context, queueID int32) (row limitRow, found bool, err error) {
	err = c.one(ctx, qLimitLock, args(a("queue_id", queueID)), &row.inFlight, &row.bucket.Rate, &row.bucket.Full, &row.due)
	if errors.Is(err, sql.ErrNoRows) {
		return row, false, nil
	}
	return row, err == nil, err
}

// noteLimit notes, in the transaction that has made or changed a queue, what of it is limited.
func (c *session) noteLimit(ctx context.Context, q storage.Queue) error {
	row, found, err := c.lockLimit(ctx, q.ID)
	counts := q.MaxInFlight > 0
	switch {
	case err != nil:
	case !found && limited(q):
		_, err = c.change(ctx, qLimitAdd, a("queue_id", q.ID), a("in_flight", counts))
	case found && row.inFlight != counts:
		if _, err = c.change(ctx, qLimitSet, a("queue_id", q.ID), a("in_flight", counts)); err == nil && !counts {
			_, err = c.change(ctx, qLimitForget, a("queue_id", q.ID))
		}
	}
	return err
}

// limits is what the limits of a queue leave to one claim of it (L1, L2). The transaction has
// the lock of claim_limit, so claims of the queue come one after the other, whoever serves
// them, and each counts what those before it took.
type limits struct {
	c *session
	// queue has the settings that were read under the lock.
	queue storage.Queue
	// allowed is how many messages the claim may take; why, where that is fewer than it wants,
	// says which limit it is.
	allowed int
	why     storage.Limit
	// wrote says that the transaction is worth a commit, whatever the claim finds.
	wrote bool

	bucket storage.Bucket
	// slots are those that there are; firstEnd is the earliest end of a lease of those that count.
	slots    []slot
	firstEnd time.Time
}

// slot is a row of claim_slot.
type slot struct {
	number int32
	id     int64
	// counts: its message is leased.
	counts bool
}

// limit finds out how many of the messages that a claim wants the limits of the queue leave. It
// is called before the claim looks for messages, and in the same transaction: what it decides
// holds until the commit. The claim takes no more than allowed, and calls spend then.
func (c *session) limit(ctx context.Context, queueID int32, want int) (*limits, error) {
	row, found, err := c.lockLimit(ctx, queueID)
	if err != nil {
		return nil, err
	}
	l := &limits{c: c, allowed: want}
	if l.queue, err = c.queueByID(ctx, queueID); err != nil {
		return nil, err
	}
	if !limited(l.queue) || l.queue.Paused {
		return l, nil
	}
	if !found {
		// Settings that came another way than through UpdateQueue have no row to lock yet.
		if err := c.noteLimit(ctx, l.queue); err != nil {
			return nil, err
		}
		l.wrote = true
		if row, found, err = c.lockLimit(ctx, queueID); err != nil {
			return nil, err
		}
		if !found {
			return nil, errAgain
		}
	}
	now, err := c.now(ctx)
	if err != nil {
		return nil, err
	}
	if l.queue.MaxClaimsPerSecond > 0 {
		l.bucket = row.bucket.At(l.queue.MaxClaimsPerSecond, now)
		if n := l.bucket.Tokens(now); n < l.allowed {
			l.allowed, l.why = n, storage.LimitRate
		}
	}
	if l.queue.MaxInFlight > 0 {
		leased, err := l.count(ctx, row.due)
		if err != nil {
			return nil, err
		}
		if n := max(0, int(l.queue.MaxInFlight)-leased); n <= l.allowed && n < want {
			l.allowed, l.why = n, storage.LimitInFlight
		}
	}
	return l, nil
}

// count tells how many leases run.
func (l *limits) count(ctx context.Context, fill bool) (leased int, err error) {
	over, err := l.look(ctx)
	if err == nil && fill {
		if err = l.fill(ctx); err == nil {
			over, err = l.look(ctx)
		}
	}
	if err != nil {
		return 0, err
	}
	if len(over) > 0 {
		// A lease that looks over may be renewed or marked by a transaction that has not committed.
		// It is over where this transaction gets the row, which nobody renews from then on.
		slices.Sort(over)
		ended, err := l.c.idsOf(ctx, qLimitOver, l.c.ids(over))
		if err != nil {
			return 0, err
		}
		for i := range l.slots {
			l.slots[i].counts = l.slots[i].counts && !ended[l.slots[i].id]
		}
	}
	for _, s := range l.slots {
		if s.counts {
			leased++
		}
	}
	return leased, nil
}

// look reads the slots, and gives the messages whose lease looks over.
func (l *limits) look(ctx context.Context) (over []int64, err error) {
	l.slots, l.firstEnd = nil, time.Time{}
	err = l.c.each(ctx, qLimitSlots, args(a("queue_id", l.queue.ID)), func(rows *sql.Rows) error {
		var (
			s    slot
			held int
			end  sql.NullTime
		)
		if err := rows.Scan(&s.number, &s.id, &held, &end); err != nil {
			return err
		}
		switch held {
		case 1:
			over = append(over, s.id)
		case 2:
			l.ends(utc(end))
		}
		s.counts = held > 0
		l.slots = append(l.slots, s)
		return nil
	})
	return over, err
}

// fill gives slots to the leases that were granted while nobody counted (L1).
func (l *limits) fill(ctx context.Context) error {
	queue := a("queue_id", l.queue.ID)
	var ids []int64
	err := l.c.each(ctx, qLimitLeased, args(queue), func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	})
	if err != nil {
		return err
	}
	if err := l.give(ctx, ids); err != nil {
		return err
	}
	l.wrote = true
	_, err = l.c.change(ctx, qLimitFilled, queue)
	return err
}

// give sees to it that each of the messages has a slot: that which it has, else one whose
// message is not leased any more, else a new one.
func (l *limits) give(ctx context.Context, ids []int64) error {
	has := make(map[int64]int, len(l.slots))
	var free []int
	next := int32(1)
	for i, s := range l.slots {
		has[s.id] = i
		next = max(next, s.number+1)
	}
	for _, id := range ids {
		if i, there := has[id]; there {
			l.slots[i].counts = true
		}
	}
	for i, s := range l.slots {
		if !s.counts {
			free = append(free, i)
		}
	}
	var set, add [][]any
	for _, id := range ids {
		if _, there := has[id]; there {
			continue
		}
		if len(free) > 0 {
			s := &l.slots[free[0]]
			s.id, s.counts = id, true
			set, free = append(set, []any{s.number, id}), free[1:]
			continue
		}
		l.slots = append(l.slots, slot{next, id, true})
		add = append(add, []any{next, id})
		next++
	}
	queue := a("queue_id", l.queue.ID)
	if len(set) > 0 {
		if _, err := l.c.change(ctx, qLimitSlotSet, queue, l.c.list(set)); err != nil {
			return err
		}
	}
	if len(add) > 0 {
		if _, err := l.c.change(ctx, qLimitSlotAdd, queue, l.c.list(add)); err != nil {
			return err
		}
	}
	return nil
}

// ends notes the end of a lease that counts.
func (l *limits) ends(end time.Time) {
	if !end.IsZero() && (l.firstEnd.IsZero() || end.Before(l.firstEnd)) {
		l.firstEnd = end
	}
}

// spend notes what the claim took, after it has leased it, and says in the answer which limit
// kept messages back.
func (l *limits) spend(ctx context.Context, taken []storage.Claimed, res *storage.ClaimResult) error {
	if len(taken) < l.allowed {
		l.why = storage.LimitNone // fewer were there than it left
	}
	if len(taken) > 0 && l.queue.MaxInFlight > 0 {
		ids := make([]int64, len(taken))
		for i, m := range taken {
			ids[i] = idOf(m.Message.Ref.Position)
			l.ends(m.Message.LeaseEnd)
		}
		if err := l.give(ctx, ids); err != nil {
			return err
		}
	}
	if len(taken) > 0 && l.queue.MaxClaimsPerSecond > 0 {
		// The bucket counts from the last of the claims, so that a wait before them gives nothing.
		now, err := l.c.now(ctx)
		if err != nil {
			return err
		}
		l.bucket = l.bucket.Take(now, len(taken))
		_, err = l.c.change(ctx, qLimitBucket, a("queue_id", l.queue.ID), a("rate", l.bucket.Rate), a("full_ns", l.bucket.Full))
		if err != nil {
			return err
		}
	}
	res.Limit = l.why
	if l.why != storage.LimitNone {
		res.More, res.End, res.LimitEnd = false, false, l.firstEnd
	}
	if l.why == storage.LimitRate {
		res.LimitEnd = l.bucket.Next()
	}
	return nil
}
