package rowlock

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	qRedriveLock statement = "redrive_lock"
	qRedriveCopy statement = "redrive_copy"
	qDeadDelete  statement = "dead_delete"
)

// Redrive implements storage.Operator: a look without locks at a page of the dead messages,
// and a transaction that moves those found.
func (s *Store) Redrive(ctx context.Context, p storage.RedriveParams) (storage.BatchResult, error) {
	p.Filter.States = []storage.State{storage.StateDead}
	found, err := s.search(ctx, "redrive", pileDead, p.Filter, p.After, p.DryRun)
	if err != nil {
		return storage.BatchResult{}, err
	}
	found = found.cut(p.Limit, p.DryRun)
	out := storage.BatchResult{Count: len(found.rows), Next: found.last}
	if p.DryRun || len(found.rows) == 0 {
		out.Now, err = s.Now(ctx)
		return out, err
	}
	var names []keyName
	for _, m := range found.rows {
		if m.orderingKey != "" {
			names = append(names, keyName{queueID: p.Filter.QueueID, name: m.orderingKey})
		}
	}
	_, held, err := s.operate(ctx, "redrive", func(c *session) (lockedKeys, bool, error) {
		if len(names) == 0 {
			return lockedKeys{}, true, nil
		}
		k, err := c.lockNames(ctx, names, skipTaken)
		return k, hasAll(k, names), err
	}, func(c *session, k lockedKeys) (verdict, error) {
		var err error
		out.Count, err = c.redrive(ctx, p, found.rows, k)
		if err != nil {
			return rollback, err
		}
		out.Now, err = c.now(ctx)
		return verdict(out.Count > 0), err
	})
	if err != nil {
		return storage.BatchResult{}, err
	}
	if len(held) > 0 {
		// It is the head at once, unless somebody holds a lease (O7): a claim that only looked at
		// the head must not keep it one.
		if err := s.headsAgain(ctx, "redrive: heads", held); err != nil {
			s.log.DebugContext(ctx, "heads are left to the sweep of the keys", "error", err)
		}
	}
	out.Left = len(found.rows) - out.Count
	out.Ready = out.Count > 0
	return out, nil
}

// hasAll tells whether each of the named keys is locked.
func hasAll(k lockedKeys, names []keyName) bool {
	for _, n := range names {
		if _, ok := k.named[n]; !ok {
			return false
		}
	}
	return true
}

// redrive moves those of the dead messages to the live ones that nobody else holds, and whose
// ordering keys the transaction has.
func (c *session) redrive(ctx context.Context, p storage.RedriveParams, rows []picked, k lockedKeys) (int, error) {
	var (
		ids  []int64
		keys = make(map[int64]int64)
	)
	for _, m := range rows {
		if m.orderingKey != "" {
			id, ok := k.named[keyName{queueID: p.Filter.QueueID, name: m.orderingKey}]
			if !ok {
				continue
			}
			keys[m.id] = id
		}
		ids = append(ids, m.id)
	}
	if len(ids) == 0 {
		return 0, nil
	}
	locked := make(map[int64]bool, len(ids))
	err := c.each(ctx, qRedriveLock, args(a("queue_id", p.Filter.QueueID), c.ids(ids)), func(rows *sql.Rows) error {
		var (
			id   int64
			name string
		)
		err := rows.Scan(&id, &name)
		locked[id] = true
		return err
	})
	if err != nil || len(locked) == 0 {
		return 0, err
	}
	// The clock is read when the locks are had, and is one for all of them.
	now, err := c.now(ctx)
	if err != nil {
		return 0, err
	}
	moved := make([][]any, 0, len(locked))
	gone := make([]int64, 0, len(locked))
	for _, id := range ids {
		if !locked[id] {
			continue
		}
		after := (p.Delay + time.Duration(len(moved))*p.Step).Microseconds()
		moved, gone = append(moved, []any{id, after, keys[id]}), append(gone, id)
	}
	v := c.s.engine.Values
	copied, err := c.change(ctx, qRedriveCopy, c.list(moved), a("now", v.Time(now)), a("max_attempts", p.MaxAttempts))
	if err != nil {
		return 0, err
	}
	removed, err := c.change(ctx, qDeadDelete, a("queue_id", p.Filter.QueueID), c.ids(gone))
	if err == nil && (copied != removed || int(copied) != len(moved)) {
		err = fmt.Errorf("redrive: %d messages locked, %d copied, %d removed", len(moved), copied, removed)
	}
	return len(moved), err
}
