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
// more than one only where many large ones end at once.
func (s *Store) Sweep(ctx context.Context, p storage.SweepParams) (storage.SweepResult, error) {
	limit := max(p.Limit, 1)
	if len(p.Refs) == 0 {
		out, _, err := s.sweepOnce(ctx, nil, p.After, int64(limit))
		return out, err
	}
	refs := slices.Clone(p.Refs[:min(limit, len(p.Refs))])
	slices.SortFunc(refs, compareRefs)
	var sum storage.SweepResult
	for {
		out, cut, err := s.sweepOnce(ctx, refs, storage.Ref{}, 0)
		sum.Dead += out.Dead
		sum.Expired += out.Expired
		sum.Cancelled += out.Cancelled
		sum.Now = out.Now
		if err != nil || !cut {
			return sum, err
		}
		refs = slices.DeleteFunc(refs, func(r storage.Ref) bool { return compareRefs(r, out.Next) <= 0 })
	}
}

// sweepOnce runs the statement. cut says that its own bounds ended it early.
func (s *Store) sweepOnce(ctx context.Context, refs []storage.Ref, after storage.Ref, looks int64) (out storage.SweepResult, cut bool, err error) {
	var (
		ids       = make([]int32, 0, len(refs))
		positions = make([]int64, 0, len(refs))
	)
	for _, r := range refs {
		ids, positions = append(ids, r.QueueID), append(positions, r.Position)
	}
	err = s.write(ctx, "sweep", step{
		sql: s.sql.sweep, args: []any{ids, positions, after.QueueID, after.Position, looks, int64(sweepRows), int64(sweepBytes)},
		scan: one(func(r pgx.Rows) error {
			var (
				now                      time.Time
				dead, expired, cancelled int64
				queueID                  *int32
				position                 *int64
				early                    *bool
			)
			if err := r.Scan(&now, &dead, &expired, &cancelled, &queueID, &position, &early); err != nil {
				return err
			}
			out = storage.SweepResult{Dead: int(dead), Expired: int(expired), Cancelled: int(cancelled), Now: now.UTC()}
			if queueID != nil {
				out.Next = storage.Ref{QueueID: *queueID, Position: *position}
			}
			cut = is(early)
			return nil
		}),
	})
	if err != nil {
		return storage.SweepResult{}, false, err
	}
	return out, cut, nil
}
