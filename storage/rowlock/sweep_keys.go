package rowlock

import (
	"context"
	"database/sql"
	"slices"

	"github.com/queuebox/queuebox/storage"
)

const (
	qKeyPage   statement = "key_page"
	qKeyDelete statement = "key_delete"
	qBlocked   statement = "blocked"
)

// keysAtOnce bounds the keys that one transaction of SweepKeys locks.
const keysAtOnce = 200

// SweepKeys implements storage.Upkeep. A page is looked at without locks, which is all where
// nothing is to be done (C11), and then each key that needs something again under its lock; one
// that somebody has is left for the next time. Where it fails, what it did before stays done.
func (s *Store) SweepKeys(ctx context.Context, p storage.SweepKeysParams) (storage.SweepKeysResult, error) {
	var (
		out        storage.SweepKeysResult
		idle, rest []int64
	)
	limit := max(p.Limit, 1)
	err := s.read(ctx, "sweep keys", func(c *session) (err error) {
		out, idle, rest = storage.SweepKeysResult{}, nil, nil
		if out.Now, err = c.now(ctx); err != nil {
			return err
		}
		var page []int64
		err = c.each(ctx, qKeyPage, args(a("after", p.After), a("limit", limit)), func(rows *sql.Rows) error {
			var id int64
			var queueID int32
			err := rows.Scan(&id, &queueID)
			page = append(page, id)
			out.Queues = unite(out.Queues, queueID)
			return err
		})
		if err != nil {
			return err
		}
		if len(page) == limit {
			out.Next = page[limit-1]
		}
		states, err := c.lookAtKeys(ctx, page)
		for _, k := range states {
			switch {
			case k.idle():
				idle = append(idle, k.id)
			case k.stale(), k.next() && (!k.head.Valid || k.pending):
				rest = append(rest, k.id)
			}
		}
		return err
	})
	if err != nil {
		return storage.SweepKeysResult{}, err
	}
	// Those that somebody waits for come first.
	for some := range slices.Chunk(append(rest, idle...), keysAtOnce) {
		var (
			removed int
			ready   []int32
		)
		err := s.write(ctx, "sweep keys", func(c *session) (_ verdict, err error) {
			removed, ready, err = c.tidy(ctx, some)
			return commit, err
		})
		if err != nil {
			return out, err
		}
		out.Removed += removed
		out.Ready = unite(out.Ready, ready...)
	}
	return out, nil
}

// tidy removes those of the keys that nothing needs, and puts the others right. Who was about to
// use a key that is gone finds that and runs again.
func (c *session) tidy(ctx context.Context, keys []int64) (removed int, ready []int32, err error) {
	locked, err := c.lockKeyIDs(ctx, keys, skipTaken)
	if err != nil {
		return 0, nil, err
	}
	states, err := c.lookAtKeys(ctx, locked.ids)
	if err != nil {
		return 0, nil, err
	}
	var idle []int64
	for _, k := range states {
		if k.idle() {
			idle = append(idle, k.id)
		}
	}
	if len(idle) > 0 {
		if err := c.exactly(ctx, qKeyDelete, len(idle), c.ids(idle)); err != nil {
			return 0, nil, err
		}
	}
	ready, _, err = c.arrange(ctx, slices.DeleteFunc(states, keyState.idle))
	return len(idle), ready, err
}

// Blocked implements storage.Admin.
func (s *Store) Blocked(ctx context.Context, queueID int32) (blocked bool, err error) {
	err = s.read(ctx, "blocked", func(c *session) error {
		return c.one(ctx, qBlocked, args(a("queue_id", queueID)), &blocked)
	})
	return blocked, err
}
