package rowlock

import (
	"context"
	"database/sql"

	"github.com/queuebox/queuebox/storage"
)

// findHeld answers the messages of which another session holds a key (storage.EnqueueHeld); some
// is false where there is none. Each key is tried in a statement of its own, which waits for
// nobody and lets go what it had.
func (s *Store) findHeld(ctx context.Context, messages []storage.NewMessage) (out storage.EnqueueResult, some bool, err error) {
	var held map[keyName]bool // idempotency keys
	ordering := make(map[keyName]bool)
	err = s.read(ctx, "enqueue: find held keys", func(c *session) error {
		held = make(map[keyName]bool)
		for i := range messages {
			name := keyName{messages[i].QueueID, messages[i].IdempotencyKey}
			if _, known := held[name]; known || name.name == "" {
				continue
			}
			list := c.list([][]any{{name.queueID, c.s.engine.Values.NameText(name.name)}})
			err := c.each(ctx, qIdempotencyTry, args(list), func(*sql.Rows) error { return nil })
			if held[name] = err != nil; err != nil && !s.engine.Errors.LockTimeout(err) {
				return err
			}
		}
		clear(ordering)
		if err := c.heldNames(ctx, orderingKeys(messages), ordering); err != nil {
			return err
		}
		out.Now, err = c.now(ctx)
		return err
	})
	if err != nil {
		return out, false, err
	}
	out.Items = make([]storage.Enqueued, len(messages))
	for i := range messages {
		m := &messages[i]
		if held[keyName{m.QueueID, m.IdempotencyKey}] || ordering[keyName{m.QueueID, m.OrderingKey}] {
			out.Items[i].Status, some = storage.EnqueueHeld, true
		}
	}
	return out, some, nil
}

// heldNames notes which of the ordering keys that have a row somebody else has locked.
func (c *session) heldNames(ctx context.Context, names []keyName, held map[keyName]bool) error {
	if len(names) == 0 {
		return nil
	}
	byID := make(map[int64]keyName)
	err := c.each(ctx, qKeyIDs, args(c.names(distinctNames(names))), func(rows *sql.Rows) error {
		var id int64
		var n keyName
		err := rows.Scan(&id, &n.queueID, &n.name)
		byID[id], held[n] = n, true
		return err
	})
	if err != nil || len(byID) == 0 {
		return err
	}
	ids := make([]int64, 0, len(byID))
	for id := range byID {
		ids = append(ids, id)
	}
	return c.each(ctx, qKeyLockFree, args(c.ids(ids)), func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan(&id)
		delete(held, byID[id])
		return err
	})
}
