package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/queuebox/queuebox/storage"
)

// Redrive implements storage.Operator. The messages are looked for on a snapshot, and those
// found are judged again under the write lock, which is held for what moves alone.
func (s *Store) Redrive(ctx context.Context, p storage.RedriveParams) (storage.BatchResult, error) {
	p.Filter.States = []storage.State{storage.StateDead}
	found, err := s.search(ctx, "redrive", kindDead, p.Filter, p.After, p.DryRun)
	if err != nil {
		return storage.BatchResult{}, err
	}
	found = found.cut(p.Limit, p.DryRun)
	res := storage.BatchResult{Count: len(found.rows), Next: found.last}
	if p.DryRun || len(found.rows) == 0 {
		res.Now, err = s.Now(ctx)
		return res, err
	}
	p.Filter.Positions = positionsOf(found.rows)
	err = s.writeAlone(ctx, "redrive", func(quiet context.Context, c *session) (verdict, error) {
		var err error
		if res.Now, err = c.now(quiet); err != nil {
			return rollback, err
		}
		rows, err := c.pick(quiet, kindDead, p.Filter)
		if err != nil {
			return rollback, err
		}
		res.Count = len(rows)
		return verdict(len(rows) > 0), c.redrive(quiet, p, rows)
	})
	if err != nil {
		return storage.BatchResult{}, err
	}
	res.Ready = res.Count > 0
	return res, nil
}

// redrive moves dead messages to the live ones. The caller holds the write lock since before
// it picked them.
func (c *session) redrive(ctx context.Context, p storage.RedriveParams, rows []picked) error {
	if len(rows) == 0 {
		return nil
	}
	keys := make(keySet)
	if err := c.orderingKeys(ctx, p.Filter.QueueID, rows, keys, true); err != nil {
		return err
	}
	list, err := toJSON(positionsOf(rows))
	if err != nil {
		return err
	}
	copied, err := c.exec(ctx, qRedriveCopy, list, p.Delay.Nanoseconds(), p.Step.Nanoseconds(), p.MaxAttempts)
	if err != nil {
		return err
	}
	removed, err := c.exec(ctx, qRedriveDelete, list)
	if err == nil && (copied != removed || copied != int64(len(rows))) {
		err = fmt.Errorf("redrive: %d messages picked, %d copied, %d removed", len(rows), copied, removed)
	}
	if err == nil {
		_, err = c.promote(ctx, keys.sorted())
	}
	return err
}

// orderingKeys notes the ordering keys of messages that are not live, as far as they have a
// row; with add, it makes those that are missing.
func (c *session) orderingKeys(ctx context.Context, queueID int32, rows []picked, keys keySet, add bool) error {
	seen := make(map[string]bool)
	for _, m := range rows {
		if m.orderingKey == "" || seen[m.orderingKey] {
			continue
		}
		seen[m.orderingKey] = true
		var id int64
		var behind bool
		a := args(queueID, m.orderingKey)
		err := c.one(ctx, qOrderingKeyGet, a, &id, &behind)
		if errors.Is(err, sql.ErrNoRows) {
			if !add {
				continue
			}
			err = c.one(ctx, qOrderingKeyPut, a, &id)
		}
		if err != nil {
			return err
		}
		keys[id] = struct{}{}
	}
	return nil
}
