package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
)

// limitState is what limit_state.sql reads under the lock of a limit.
type limitState struct {
	now          time.Time
	paused       bool
	maxInFlight  int32
	maxPerSecond float64
	bucket       storage.Bucket
	leased       int64
	firstEnd     time.Time // the earliest lease end among those
	oldest       *int64    // the oldest slot that counts and stays
	moved        []int64   // the positions that lose an old slot and still count
	gone         []int64   // the slots to remove
	next         time.Time // as claimRows.next
}

func (l *limitState) limited() bool { return l.maxInFlight > 0 || l.maxPerSecond > 0 }

// claimLimited claims from a queue with a limit (L1, L2), in two round trips and one
// transaction: the row of claim_limit is locked, a later statement reads what the limit
// leaves, and the claim takes no more than that. out.limited is false where the queue has
// no limit (any more), and then nothing happened.
func (s *Store) claimLimited(ctx context.Context, p storage.ClaimParams, todo []int) (out claimRows, known []int, err error) {
	for try := 0; ; try++ {
		locked, err := s.tryLimited(ctx, p, todo, &out, &known)
		if err != nil {
			return claimRows{}, known, err
		}
		if locked || !out.limited || try > 0 {
			return out, known, nil
		}
		// Settings that came another way than through UpdateQueue have no row to lock yet.
		q, err := s.GetQueueByID(ctx, p.QueueID)
		if err != nil {
			return claimRows{}, known, err
		}
		if err := s.write(ctx, "claim: limit", step{sql: s.sql.limitSet, args: []any{q.Name}}); err != nil {
			return claimRows{}, known, err
		}
	}
}

// tryLimited is one transaction of claimLimited. locked is false where there was no row to
// lock, and then nothing was taken.
func (s *Store) tryLimited(ctx context.Context, p storage.ClaimParams, todo []int, out *claimRows, known *[]int) (locked bool, err error) {
	var (
		l       limitState
		filled  int64
		allowed int
		why     storage.Limit
		want    int
	)
	first := append(make([]step, 0, 4),
		step{sql: s.sql.limitLock, args: []any{p.QueueID}, scan: each(
			func() { locked = false },
			func(pgx.Rows) error { locked = true; return nil },
		)},
		step{sql: s.sql.limitFill, args: []any{p.QueueID}, scan: one(func(r pgx.Rows) error { return r.Scan(&filled) })},
		step{sql: s.sql.limitState, args: []any{p.QueueID}, scan: each(
			func() { l = limitState{} },
			l.scan,
		)},
	)
	first = append(first, s.lookForCalls(p, bind(p, todo), known)...)
	err = s.transact(ctx, "claim", first, func() ([]step, bool) {
		*out = claimRows{now: l.now, next: l.next, limited: l.limited()}
		fresh := without(todo, *known)
		if !locked || !out.limited || l.paused || len(fresh) == 0 {
			return nil, false
		}
		want = wanted(p, fresh)
		allowed, why = l.leaves(want)
		b := bind(p, fresh)
		b.atMost(allowed)
		if allowed == 0 {
			return nil, filled > 0 // what the fill found is worth keeping
		}
		return []step{b.step(p, s.sql.claimLimited, out,
			l.bucket.Full, l.maxPerSecond, l.maxInFlight > 0, l.moved, l.oldest, l.gone)}, true
	})
	if err != nil {
		return locked, err
	}
	out.limited = l.limited()
	out.sort()
	if why != storage.LimitNone && len(out.rows) == allowed {
		out.limit, out.limitEnd = why, l.end(why, out.rows)
	}
	return locked, nil
}

func (l *limitState) scan(r pgx.Rows) error {
	var end, next *time.Time
	err := r.Scan(&l.now, &l.paused, &l.maxInFlight, &l.maxPerSecond, &l.bucket.Rate, &l.bucket.Full,
		&l.leased, &end, &l.oldest, &l.moved, &l.gone, &next)
	l.now, l.firstEnd, l.next = l.now.UTC(), utc(end), utc(next)
	if l.maxPerSecond > 0 {
		l.bucket = l.bucket.At(l.maxPerSecond, l.now)
	}
	return err
}

// leaves tells how many of the messages wanted may go, and which limit it is where not all.
func (l *limitState) leaves(want int) (allowed int, why storage.Limit) {
	allowed = want
	if l.maxPerSecond > 0 {
		if n := l.bucket.Tokens(l.now); n < allowed {
			allowed, why = n, storage.LimitRate
		}
	}
	if l.maxInFlight > 0 {
		if n := max(0, int(l.maxInFlight)-int(l.leased)); n <= allowed && n < want {
			allowed, why = n, storage.LimitInFlight
		}
	}
	return allowed, why
}

// end is when the limit lets the next message through, after these were taken.
func (l *limitState) end(why storage.Limit, rows []storage.Claimed) time.Time {
	if why == storage.LimitRate {
		b := l.bucket
		if len(rows) > 0 {
			b = b.Take(l.now, len(rows))
		}
		return b.Next()
	}
	first := l.firstEnd
	for _, row := range rows {
		if end := row.Message.LeaseEnd; first.IsZero() || end.Before(first) {
			first = end
		}
	}
	return first
}

func without(all, some []int) []int {
	return slices.DeleteFunc(slices.Clone(all), func(i int) bool { return slices.Contains(some, i) })
}
