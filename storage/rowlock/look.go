package rowlock

import (
	"context"
	"database/sql"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const qLook statement = "look"

// Look implements storage.Store: one statement that most often returns no row, and the facts of
// those claims that are not held any more. T6.
func (s *Store) Look(ctx context.Context, claims []storage.HeldClaim) (storage.RenewResult, error) {
	var (
		items []storage.Renewed
		gone  []int
		now   time.Time
	)
	err := s.read(ctx, "look", func(c *session) error {
		items, gone = make([]storage.Renewed, len(claims)), nil
		list := make([][]any, len(claims))
		for i, h := range claims {
			items[i].Status = storage.ItemApplied
			list[i] = append([]any{i}, c.claimRow(h)...)
		}
		steps := []step{clock(&now)}
		if len(claims) > 0 {
			steps = append(steps, reading(qLook, args(c.list(list)), func(rows *sql.Rows) error {
				var i int
				var asked sql.NullBool
				err := rows.Scan(&i, &asked)
				if items[i].CancelRequested = asked.Bool; !asked.Valid {
					gone = append(gone, i)
				}
				return err
			}))
		}
		return c.together(ctx, steps...)
	})
	if err != nil {
		return storage.RenewResult{}, err
	}
	if len(gone) == 0 {
		return storage.RenewResult{Items: items, Now: now}, nil
	}
	lost := make([]storage.HeldClaim, len(gone))
	for k, i := range gone {
		lost[k] = claims[i]
	}
	all, now, err := s.diagnose(ctx, "look", lost)
	if err != nil {
		return storage.RenewResult{}, err
	}
	for k, i := range gone {
		if !all[k].held() {
			items[i] = all[k].renewed()
		}
	}
	return storage.RenewResult{Items: items, Now: now}, nil
}
