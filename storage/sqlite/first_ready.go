package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"math"

	"github.com/queuebox/queuebox/storage"
)

// maxPresent bounds the priorities without a place that FirstReady names.
const maxPresent = 64

// FirstReady implements storage.Store, on one snapshot. W7.
func (s *Store) FirstReady(ctx context.Context, p storage.FirstReadyParams) (storage.FirstReadyResult, error) {
	var res storage.FirstReadyResult
	below := scanHints(p.Below)
	err := s.read(ctx, "first ready", func(c *session) error {
		res = storage.FirstReadyResult{}
		var err error
		if res.Now, err = c.now(ctx); err != nil {
			return err
		}
		look := func(priority int32, before int64) error {
			f := storage.FirstReady{Priority: priority}
			var at int64
			err := c.one(ctx, qFirstReady, args(p.QueueID, priority, before, res.Now.UnixMilli()), &at, &f.Position)
			switch {
			case err == nil:
				f.Found, f.ReadyTime = true, fromMillis(at)
			case !errors.Is(err, sql.ErrNoRows):
				return err
			}
			res.Priorities = append(res.Priorities, f)
			return nil
		}
		for priority, before := range below {
			if err := look(priority, before); err != nil {
				return err
			}
		}
		for from, others := int64(math.MaxInt32), 0; others < maxPresent; {
			var priority int32
			err := c.one(ctx, qClaimPriority, args(p.QueueID, from), &priority)
			if errors.Is(err, sql.ErrNoRows) {
				break
			}
			if err != nil {
				return err
			}
			from = int64(priority) - 1
			if _, ok := below[priority]; ok {
				continue
			}
			if err := look(priority, math.MaxInt64); err != nil {
				return err
			}
			others++
		}
		storage.SortFirstReady(res.Priorities)
		return nil
	})
	if err != nil {
		return storage.FirstReadyResult{}, err
	}
	return res, nil
}
