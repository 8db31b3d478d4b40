package sqlite

import (
	"context"
	"fmt"
	"slices"

	"github.com/queuebox/queuebox/storage"
)

// purgeKinds are gone through one after the other: finished messages first, so that one which
// ends meanwhile is not counted twice. Next holds the index of the kind in its two lowest bits
// and the position above them.
var purgeKinds = []kind{kindCompleted, kindDead, kindPending}

// Purge implements storage.Operator. The messages are looked for on a snapshot, and those found
// are judged again under the write lock, which is held for what goes alone.
func (s *Store) Purge(ctx context.Context, p storage.PurgeParams) (storage.BatchResult, error) {
	i, after := int(p.After&3), p.After>>2
	for ; i < len(purgeKinds); i, after = i+1, 0 {
		k := purgeKinds[i]
		if !k.holds(p.Filter) {
			continue
		}
		found, err := s.search(ctx, "purge", k, p.Filter, after, p.DryRun)
		if err != nil {
			return storage.BatchResult{}, err
		}
		found = found.cut(p.Limit, p.DryRun)
		res := storage.BatchResult{Count: len(found.rows), Next: found.last<<2 | int64(i)}
		if found.last == 0 {
			res.Next = int64(i+1) % int64(len(purgeKinds))
		}
		switch {
		case len(found.rows) == 0 && found.last == 0:
			continue
		case p.DryRun || len(found.rows) == 0:
			res.Now, err = s.Now(ctx)
		default:
			err = s.purge(ctx, k, p.Filter, found, &res)
		}
		if err != nil {
			return storage.BatchResult{}, err
		}
		return res, nil
	}
	now, err := s.Now(ctx)
	return storage.BatchResult{Now: now}, err
}

// holds tells whether a filter can mean messages of a kind at all.
func (k kind) holds(f storage.ListMessagesParams) bool {
	has := func(states ...storage.State) bool {
		return len(f.States) == 0 || slices.ContainsFunc(states, func(s storage.State) bool { return slices.Contains(f.States, s) })
	}
	switch k {
	case kindCompleted:
		return has(storage.StateCompleted) && len(f.DeadReasons) == 0
	case kindDead:
		return has(storage.StateDead, storage.StateCancelled)
	default:
		return has(storage.StatePending) && len(f.DeadReasons) == 0
	}
}

// purge deletes what was found and is meant still.
func (s *Store) purge(ctx context.Context, k kind, f storage.ListMessagesParams, what found, res *storage.BatchResult) error {
	f.Positions = positionsOf(what.rows)
	return s.writeAlone(ctx, "purge", func(quiet context.Context, c *session) (verdict, error) {
		var err error
		if res.Now, err = c.now(quiet); err != nil {
			return rollback, err
		}
		rows, err := c.pick(quiet, k, f)
		if err != nil || len(rows) == 0 {
			res.Count = 0
			return rollback, err
		}
		res.Count = len(rows)
		ready, err := c.purge(quiet, k, f.QueueID, rows)
		res.Ready = len(ready) > 0
		return commit, err
	})
}

// purge deletes messages of a kind and lets their ordering keys go on. The caller holds the
// write lock since before it picked them.
func (c *session) purge(ctx context.Context, k kind, queueID int32, rows []picked) ([]int32, error) {
	positions := positionsOf(rows)
	list, err := toJSON(positions)
	if err != nil {
		return nil, err
	}
	keys := make(keySet)
	switch k {
	case kindPending:
		keyed, err := c.keyedRows(ctx, list)
		if err != nil {
			return nil, err
		}
		keys.add(keyed)
	case kindDead:
		// It may be the one behind which its key waits.
		if err := c.orderingKeys(ctx, queueID, rows, keys, false); err != nil {
			return nil, err
		}
	}
	n, err := c.forget(ctx, k.remove, positions)
	if err != nil {
		return nil, err
	}
	if n != len(positions) {
		return nil, fmt.Errorf("purge: %d messages picked, %d removed", len(positions), n)
	}
	if _, err := c.exec(ctx, qPurgeHistoryDelete, list); err != nil {
		return nil, err
	}
	return c.promote(ctx, keys.sorted())
}
