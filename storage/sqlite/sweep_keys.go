package sqlite

import (
	"context"

	"github.com/queuebox/queuebox/storage"
)

// SweepKeys implements storage.Upkeep. A page is looked at on a snapshot, so that a call that
// finds nothing to do keeps away from the write lock (C11); what it finds is looked at again
// under the lock. Where it fails, what it did before stays done.
func (s *Store) SweepKeys(ctx context.Context, p storage.SweepKeysParams) (storage.SweepKeysResult, error) {
	var res storage.SweepKeysResult
	var found []finding
	err := s.read(ctx, "sweep keys", func(c *session) error {
		var err error
		if res.Now, err = c.now(ctx); err != nil {
			return err
		}
		var page []int64
		err = c.each(ctx, qKeyPage, args(p.After, p.Limit), func(rows *row) error {
			var id int64
			err := rows.Scan(&id)
			page = append(page, id)
			return err
		})
		if err != nil || len(page) == 0 {
			return err
		}
		if len(page) == p.Limit {
			res.Next = page[len(page)-1]
		}
		states, err := c.look(ctx, page)
		for _, k := range states {
			res.Queues = mergeReady(res.Queues, []int32{k.queueID})
			if promote, _ := k.next(); promote || k.stale() || k.idle() {
				found = append(found, finding{position: k.id})
			}
		}
		return err
	})
	if err != nil {
		return storage.SweepKeysResult{}, err
	}
	err = inBatches(ctx, found, func(keyIDs []int64) error {
		var removed int64
		var ready []int32
		err := s.writeAlone(ctx, "sweep keys", func(quiet context.Context, c *session) (verdict, error) {
			var err error
			removed, ready, err = c.tidy(quiet, keyIDs)
			return commit, err
		})
		if err != nil {
			return err
		}
		res.Removed += int(removed)
		res.Ready = mergeReady(res.Ready, ready)
		return nil
	})
	return res, err
}

// tidy removes those of the keys that nothing needs, and puts the others right.
func (c *session) tidy(ctx context.Context, keyIDs []int64) (int64, []int32, error) {
	states, err := c.look(ctx, keyIDs)
	if err != nil {
		return 0, nil, err
	}
	var idle []int64
	var used []keyState
	for _, k := range states {
		if k.idle() {
			idle = append(idle, k.id)
		} else {
			used = append(used, k)
		}
	}
	var removed int64
	if len(idle) > 0 {
		list, err := toJSON(idle)
		if err != nil {
			return 0, nil, err
		}
		if removed, err = c.exec(ctx, qKeyDelete, list); err != nil {
			return 0, nil, err
		}
	}
	ready, err := c.arrange(ctx, used)
	return removed, ready, err
}
