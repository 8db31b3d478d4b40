package postgres

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
)

// What one statement of Sweep ends at most. A message that ends is copied, payload and
// all, under its lock.
const (
	sweepRows  = 500
	sweepBytes = 4 << 20
)

// Sweep implements storage.Upkeep. A page is one statement; messages that are named take
// more than one only where many large ones end at once, and messages with ordering keys end
// in transactions of their own.
func (s *Store) Sweep(ctx context.Context, p storage.SweepParams) (storage.SweepResult, error) {
	return s.sweepAt(ctx, p, time.Now()) //nolint:forbidigo // The pace of this process, not the time of a message.
}

func (s *Store) sweepAt(ctx context.Context, p storage.SweepParams, now time.Time) (storage.SweepResult, error) {
	limit := max(p.Limit, 1)
	if len(p.Refs) == 0 {
		return s.sweepLive(ctx, p.After, int64(limit), now)
	}
	refs := slices.Clone(p.Refs[:min(limit, len(p.Refs))])
	slices.SortFunc(refs, compareRefs)
	var sum storage.SweepResult
	ordered, err := s.sweepNamed(ctx, refs, false, &sum)
	if err != nil {
		return sum, err
	}
	return sum, s.sweepKeyed(ctx, ordered, &sum)
}

// sweepLive looks at a page of the live messages, and before the first one at some of what is left
// out of the pages, since nothing lived there.
func (s *Store) sweepLive(ctx context.Context, behind storage.Ref, limit int64, now time.Time) (sum storage.SweepResult, err error) {
	for spent := time.Duration(0); behind == (storage.Ref{}) && spent < lookTime; {
		piece, ok := s.emptyMessages.again(now)
		if !ok {
			break
		}
		page, err := s.sweepOnce(ctx, sweepPage{parts: []stretch{piece}, looks: limit})
		if err != nil {
			return sum, err
		}
		s.emptyMessages.looked(piece, page.rows, int64(len(page.rows)) >= limit, page.took)
		if err := s.sweepAdd(ctx, page, &sum); err != nil {
			return sum, err
		}
		spent += max(page.took, lookTime/lookPieces)
	}
	parts := s.emptyMessages.parts(behind)
	page, err := s.sweepOnce(ctx, sweepPage{parts: parts, looks: limit, costly: s.emptyMessages.costly})
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			s.emptyMessages.failed()
		}
		return sum, err
	}
	s.emptyMessages.met(now, parts, page.newest, page.rows, page.Next != (storage.Ref{}), page.took)
	sum.Next = page.Next
	if end := parts[len(parts)-1].to; sum.Next == (storage.Ref{}) && end != lastPlace {
		sum.Next = storage.Ref{QueueID: end.QueueID, Position: end.Position - 1}
	}
	return sum, s.sweepAdd(ctx, page, &sum)
}

// sweepAdd adds up what a page did, and ends its messages with ordering keys.
func (s *Store) sweepAdd(ctx context.Context, page sweptPage, sum *storage.SweepResult) error {
	sum.Dead += page.Dead
	sum.Expired += page.Expired
	sum.Cancelled += page.Cancelled
	sum.Overdue = append(sum.Overdue, page.Overdue...)
	if !page.Now.IsZero() {
		sum.Now = page.Now
	}
	return s.sweepKeyed(ctx, page.keyed, sum)
}

// sweepKeyed ends messages with ordering keys, as many at a time as one statement ends.
func (s *Store) sweepKeyed(ctx context.Context, refs []storage.Ref, sum *storage.SweepResult) error {
	slices.SortFunc(refs, compareRefs)
	for some := range slices.Chunk(refs, sweepRows) {
		if _, err := s.sweepNamed(ctx, some, true, sum); err != nil {
			return err
		}
	}
	return nil
}

// sweepNamed ends those of the messages that end, in their order, and adds up what became of
// them. keyed are those that wait for the lock of their keys.
func (s *Store) sweepNamed(ctx context.Context, refs []storage.Ref, ordered bool, sum *storage.SweepResult) (keyed []storage.Ref, err error) {
	for {
		page, err := s.sweepOnce(ctx, sweepPage{refs: refs, ordered: ordered})
		sum.Dead += page.Dead
		sum.Expired += page.Expired
		sum.Cancelled += page.Cancelled
		sum.Ready = unite(sum.Ready, page.Ready...)
		if !page.Now.IsZero() {
			sum.Now = page.Now
		}
		keyed = append(keyed, page.keyed...)
		if err != nil || !page.cut {
			return keyed, err
		}
		keyed = slices.DeleteFunc(keyed, func(r storage.Ref) bool { return compareRefs(r, page.Next) > 0 })
		refs = slices.DeleteFunc(slices.Clone(refs), func(r storage.Ref) bool { return compareRefs(r, page.Next) <= 0 })
	}
}

// sweepPage says what one statement looks at.
type sweepPage struct {
	refs    []storage.Ref
	parts   []stretch
	looks   int64
	ordered bool          // refs have ordering keys
	costly  time.Duration // from which on it tells what it looked at
}

// sweptPage is what it did.
type sweptPage struct {
	storage.SweepResult

	cut   bool          // the bounds of the statement ended it early
	keyed []storage.Ref // messages with ordering keys that end

	took   time.Duration
	newest int64         // the highest position that it looked at
	rows   []storage.Ref // what it looked at, in order; nil where that cost little
}

// sweepOnce runs the statement.
func (s *Store) sweepOnce(ctx context.Context, p sweepPage) (out sweptPage, err error) {
	ids, positions := splitRefs(p.refs)
	fromIDs, fromPositions, toIDs, toPositions := splitStretches(p.parts)
	var ready []int32
	steps := []step{{
		sql: s.sql.sweep,
		args: []any{
			ids, positions, fromIDs, fromPositions, p.looks, int64(sweepRows), int64(sweepBytes), p.ordered,
			toIDs, toPositions, p.costly.Microseconds(),
		},
		scan: one(func(r pgx.Rows) error {
			var (
				now                      time.Time
				dead, expired, cancelled int64
				keyedIDs                 []int32
				keyedPositions           []int64
				queueID                  *int32
				position                 *int64
				early                    *bool
				newest                   *int64
				us                       int64
				rowIDs                   []int32
				rowPositions             []int64
				overdueIDs               []int32
				overdueTimes             []time.Time
			)
			err := r.Scan(&now, &dead, &expired, &cancelled, &keyedIDs, &keyedPositions, &queueID, &position, &early,
				&newest, &us, &rowIDs, &rowPositions, &overdueIDs, &overdueTimes)
			if err != nil {
				return err
			}
			out = sweptPage{cut: is(early), took: time.Duration(us) * time.Microsecond}
			if newest != nil {
				out.newest = *newest
			}
			if out.took >= p.costly {
				out.rows = make([]storage.Ref, 0, len(rowIDs))
			}
			for i, id := range rowIDs {
				out.rows = append(out.rows, storage.Ref{QueueID: id, Position: rowPositions[i]})
			}
			out.SweepResult = storage.SweepResult{Dead: int(dead), Expired: int(expired), Cancelled: int(cancelled), Now: now.UTC()}
			for i, id := range overdueIDs {
				out.Overdue = append(out.Overdue, storage.QueueReady{QueueID: id, ReadyTime: overdueTimes[i].UTC()})
			}
			for i, id := range keyedIDs {
				out.keyed = append(out.keyed, storage.Ref{QueueID: id, Position: keyedPositions[i]})
			}
			if queueID != nil {
				out.Next = storage.Ref{QueueID: *queueID, Position: *position}
			}
			return nil
		}),
	}}
	if p.ordered {
		steps = s.withFreeKeys(p.refs, &ready, steps...)
	}
	if err := s.write(ctx, "sweep", steps...); err != nil {
		return sweptPage{}, err
	}
	out.Ready = ready
	return out, nil
}
