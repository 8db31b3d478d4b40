package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/queuebox/queuebox/storage"
)

// Retain implements storage.Upkeep: completed messages, then dead and cancelled ones, then
// the settlement history, as far as Limit goes. Deleted counts the messages. Each kind is
// looked for on a snapshot, so that a call that finds nothing keeps away from the write
// lock. Where it fails, what it deleted before stays deleted.
func (s *Store) Retain(ctx context.Context, p storage.RetainParams) (storage.RetainResult, error) {
	var res storage.RetainResult
	var err error
	if res.Now, err = s.Now(ctx); err != nil {
		return res, err
	}
	left := p.Limit
	for _, kind := range []struct{ find, remove query }{
		{qRetainCompletedFind, qRetainCompletedDelete},
		{qRetainDeadFind, qRetainDeadDelete},
	} {
		if left == 0 {
			break
		}
		found, deleted, err := s.retainMessages(ctx, kind.find, kind.remove, left)
		res.Deleted += deleted
		if err != nil {
			return res, err
		}
		left -= found
	}
	if left > 0 {
		n, err := s.retainHistory(ctx, left)
		if err != nil {
			return res, err
		}
		left -= n
	}
	res.More = left == 0
	return res, nil
}

// retainMessages deletes up to limit messages of one kind, and tells how many it found and
// how many of those it deleted: a retention may be longer by the time of the delete.
func (s *Store) retainMessages(ctx context.Context, find, remove query, limit int) (found, deleted int, err error) {
	var old []finding
	err = s.read(ctx, "retain", func(c *session) (err error) {
		old, err = c.find(ctx, find, args(limit))
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	err = inBatches(ctx, old, func(positions []int64) error {
		n := 0
		err := s.writeAlone(ctx, "retain", func(quiet context.Context, c *session) (verdict, error) {
			var err error
			n, err = c.forget(quiet, remove, positions)
			return verdict(n > 0), err
		})
		if err == nil {
			deleted += n
		}
		return err
	})
	return len(old), deleted, err
}

// forget deletes finished messages by q, with their idempotency keys, and tells how many.
func (c *session) forget(ctx context.Context, q query, positions []int64) (int, error) {
	list, err := toJSON(positions)
	if err != nil {
		return 0, err
	}
	type named struct {
		ref storage.Ref
		key string
	}
	var gone []named
	err = c.each(ctx, q, args(list), func(rows *row) error {
		var m named
		err := rows.Scan(&m.ref.QueueID, &m.ref.Position, &m.key)
		gone = append(gone, m)
		return err
	})
	if err != nil {
		return 0, err
	}
	for _, m := range gone {
		if m.key == "" {
			continue
		}
		if _, err := c.exec(ctx, qRetainKeyDelete, m.ref.QueueID, m.key, m.ref.Position); err != nil {
			return 0, err
		}
	}
	return len(gone), nil
}

// retainHistory deletes up to limit settlements that no promise covers any more (S5).
func (s *Store) retainHistory(ctx context.Context, limit int) (int, error) {
	some := false
	err := s.read(ctx, "retain", func(c *session) error {
		var one int
		err := c.one(ctx, qRetainHistoryFind, nil, &one)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		some = err == nil
		return err
	})
	if err != nil || !some {
		return 0, err
	}
	deleted := 0
	for deleted < limit {
		if deleted > 0 {
			if err := upkeepBreak(ctx); err != nil {
				return deleted, err
			}
		}
		batch := min(limit-deleted, upkeepRows)
		var n int64
		err := s.writeAlone(ctx, "retain", func(quiet context.Context, c *session) (verdict, error) {
			var err error
			n, err = c.exec(quiet, qRetainHistoryDelete, batch)
			return verdict(n > 0), err
		})
		if err != nil {
			return deleted, err
		}
		deleted += int(n)
		if n < int64(batch) {
			break
		}
	}
	return deleted, nil
}
