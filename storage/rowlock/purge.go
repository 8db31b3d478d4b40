package rowlock

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/queuebox/queuebox/storage"
)

const (
	qPurgeCompletedLock   statement = "purge_completed_lock"
	qPurgeDeadLock        statement = "purge_dead_lock"
	qPurgePendingLock     statement = "purge_pending_lock"
	qPurgeCompletedDelete statement = "purge_completed_delete"
	qPurgePendingDelete   statement = "purge_pending_delete"
	qPurgeHistory         statement = "purge_history"
	qPurgeKeysLock        statement = "purge_keys_lock"
	qPurgeKeysLeft        statement = "purge_keys_left"
	qPurgeKeysDelete      statement = "purge_keys_delete"
)

// purgePiles are gone through one after the other: finished messages first, so that one which
// ends meanwhile is not counted twice. Next holds the index of the kind in its two lowest bits
// and the id above them.
var purgePiles = []pile{pileCompleted, pileDead, pilePending}

// Purge implements storage.Operator: a look without locks at a page of one kind of messages,
// and a transaction that deletes those found.
func (s *Store) Purge(ctx context.Context, p storage.PurgeParams) (storage.BatchResult, error) {
	i, after := int(p.After&3), p.After>>2
	for ; i < len(purgePiles); i, after = i+1, 0 {
		k := purgePiles[i]
		if !k.holds(p.Filter) {
			continue
		}
		found, err := s.search(ctx, "purge", k, p.Filter, after, p.DryRun)
		if err != nil {
			return storage.BatchResult{}, err
		}
		found = found.cut(p.Limit, p.DryRun)
		out := storage.BatchResult{Count: len(found.rows), Next: found.last<<2 | int64(i)}
		if found.last == 0 {
			out.Next = int64(i+1) % int64(len(purgePiles))
		}
		switch {
		case len(found.rows) == 0 && found.last == 0:
			continue
		case p.DryRun || len(found.rows) == 0:
			out.Now, err = s.Now(ctx)
		default:
			err = s.purge(ctx, k, p.Filter, found.rows, &out)
		}
		if err != nil {
			return storage.BatchResult{}, err
		}
		return out, nil
	}
	now, err := s.Now(ctx)
	return storage.BatchResult{Now: now}, err
}

// holds tells whether a filter can mean messages of a kind at all.
func (k pile) holds(f storage.ListMessagesParams) bool {
	has := func(states ...storage.State) bool {
		return len(f.States) == 0 || slices.ContainsFunc(states, func(s storage.State) bool { return slices.Contains(f.States, s) })
	}
	switch k {
	case pileCompleted:
		return has(storage.StateCompleted) && len(f.DeadReasons) == 0
	case pileDead:
		return has(storage.StateDead, storage.StateCancelled)
	default:
		return has(storage.StatePending) && len(f.DeadReasons) == 0
	}
}

// purge deletes what was found and nobody holds. Live messages need their ordering keys, and
// so does a dead one behind which its key waits.
func (s *Store) purge(ctx context.Context, k pile, f storage.ListMessagesParams, rows []picked, out *storage.BatchResult) error {
	var names []keyName
	needs := func(m picked) bool { return m.orderingKey != "" && (k == pilePending || k == pileDead && m.blocks) }
	for _, m := range rows {
		if needs(m) {
			names = append(names, keyName{queueID: f.QueueID, name: m.orderingKey})
		}
	}
	ready, _, err := s.operate(ctx, "purge", func(c *session) (lockedKeys, bool, error) {
		if len(names) == 0 {
			return lockedKeys{}, true, nil
		}
		locked, err := c.lockNames(ctx, names, skipTaken)
		return locked, hasAll(locked, names), err
	}, func(c *session, locked lockedKeys) (verdict, error) {
		var may []int64
		for _, m := range rows {
			_, ok := locked.named[keyName{queueID: f.QueueID, name: m.orderingKey}]
			if ok || !needs(m) {
				may = append(may, m.id)
			}
		}
		n, err := c.purge(ctx, k, f, may)
		if err != nil {
			return rollback, err
		}
		out.Count = n
		out.Now, err = c.now(ctx)
		return verdict(n > 0), err
	})
	out.Left, out.Ready = len(rows)-out.Count, len(ready) > 0
	return err
}

// doomed is a message that the transaction has locked, to delete it.
type doomed struct {
	id, position   int64
	idempotencyKey string
}

// purge deletes those of the messages that nobody else holds, with their idempotency keys and
// their history.
func (c *session) purge(ctx context.Context, k pile, f storage.ListMessagesParams, ids []int64) (int, error) {
	filter, err := filterArgs(c.s.engine.Values, f)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	var rows []doomed
	err = c.each(ctx, k.hold, append(filter, c.ids(ids)), func(r *sql.Rows) error {
		var m doomed
		var orderingKey string
		err := r.Scan(&m.id, &m.idempotencyKey, &orderingKey)
		m.position = positionOf(m.id, orderingKey != "")
		rows = append(rows, m)
		return err
	})
	if err != nil {
		return 0, err
	}
	if rows, err = c.freeNames(ctx, f.QueueID, rows); err != nil || len(rows) == 0 {
		return 0, err
	}
	gone := make([]int64, len(rows))
	for i, m := range rows {
		gone[i] = m.id
	}
	if _, err := c.change(ctx, qPurgeHistory, a("queue_id", f.QueueID), c.ids(gone)); err != nil {
		return 0, err
	}
	n, err := c.change(ctx, k.drop, a("queue_id", f.QueueID), c.ids(gone))
	if err == nil && int(n) != len(gone) {
		err = fmt.Errorf("purge: %d messages locked, %d removed", len(gone), n)
	}
	return int(n), err
}

// freeNames removes the idempotency keys that name the messages, and leaves the messages out
// whose keys somebody else has: nobody who has a message waits for a key.
func (c *session) freeNames(ctx context.Context, queueID int32, rows []doomed) ([]doomed, error) {
	var list [][]any
	for _, m := range rows {
		if m.idempotencyKey != "" {
			list = append(list, []any{queueID, c.s.engine.Values.NameText(m.idempotencyKey), m.position})
		}
	}
	if len(list) == 0 {
		return rows, nil
	}
	locked, err := c.idsOf(ctx, qPurgeKeysLock, c.list(list))
	if err != nil {
		return nil, err
	}
	left, err := c.idsOf(ctx, qPurgeKeysLeft, c.list(list))
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(k []any) bool { return !locked[k[2].(int64)] }) //nolint:forcetypeassert // It is what stands there.
	if len(list) > 0 {
		if _, err := c.change(ctx, qPurgeKeysDelete, c.list(list)); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(rows, func(m doomed) bool { return left[m.position] && !locked[m.position] }), nil
}
