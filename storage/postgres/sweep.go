package postgres

import (
	"context"
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
	limit := max(p.Limit, 1)
	if len(p.Refs) == 0 {
		page, err := s.sweepOnce(ctx, sweepPage{after: p.After, looks: int64(limit)})
		out := page.SweepResult
		if err != nil {
			return out, err
		}
		return out, s.sweepKeyed(ctx, page.keyed, &out)
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
	after   storage.Ref
	looks   int64
	ordered bool // refs have ordering keys
}

// sweptPage is what it did.
type sweptPage struct {
	storage.SweepResult

	cut   bool          // the bounds of the statement ended it early
	keyed []storage.Ref // messages with ordering keys that end
}

// sweepOnce runs the statement.
func (s *Store) sweepOnce(ctx context.Context, p sweepPage) (out sweptPage, err error) {
	ids, positions := splitRefs(p.refs)
	var ready []int32
	steps := []step{{
		sql: s.sql.sweep,
		args: []any{
			ids, positions, p.after.QueueID, p.after.Position, p.looks, int64(sweepRows), int64(sweepBytes), p.ordered,
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
			)
			err := r.Scan(&now, &dead, &expired, &cancelled, &keyedIDs, &keyedPositions, &queueID, &position, &early)
			if err != nil {
				return err
			}
			out = sweptPage{cut: is(early)}
			out.SweepResult = storage.SweepResult{Dead: int(dead), Expired: int(expired), Cancelled: int(cancelled), Now: now.UTC()}
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
