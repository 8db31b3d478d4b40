package rowlock

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	qQueueGet     statement = "queue_get"
	qQueueGetByID statement = "queue_get_by_id"
	qQueueHold    statement = "queue_hold"
	qQueueList    statement = "queue_list"
	qQueueCount   statement = "queue_count"
	qQueueTurn    statement = "queue_turn"
	qQueueInsert  statement = "queue_insert"
	qQueueUpdate  statement = "queue_update"
	qQueuePause   statement = "queue_pause"
)

// scanQueue reads {{queue_columns}}.
func scanQueue(rows *sql.Rows) (storage.Queue, error) {
	var (
		q                                                storage.Queue
		lease, least, most, first, last, completed, dead int64
	)
	err := rows.Scan(&q.ID, &q.Name, &q.Version, &q.CreateTime, &q.Paused, &lease, &least, &most, &q.MaxAttempts,
		&first, &last, &q.Retry.Multiplier, &q.Retry.Jitter, &q.MaxInFlight, &q.MaxClaimsPerSecond,
		&q.Ordering, &completed, &dead, &q.MaxMessages)
	q.CreateTime = q.CreateTime.UTC()
	q.DefaultLease, q.MinLease, q.MaxLease = microseconds(lease), microseconds(least), microseconds(most)
	q.Retry.Min, q.Retry.Max = microseconds(first), microseconds(last)
	q.CompletedRetention, q.DeadRetention = microseconds(completed), microseconds(dead)
	return q, err
}

// settingsArgs are the parameters of the settings in queue_insert and queue_update.
func settingsArgs(s storage.QueueSettings) []Arg {
	us := func(d time.Duration) int64 { return d.Microseconds() }
	return args(
		a("paused", s.Paused),
		a("default_lease_us", us(s.DefaultLease)), a("min_lease_us", us(s.MinLease)), a("max_lease_us", us(s.MaxLease)),
		a("max_attempts", s.MaxAttempts),
		a("retry_min_us", us(s.Retry.Min)), a("retry_max_us", us(s.Retry.Max)),
		a("retry_multiplier", s.Retry.Multiplier), a("retry_jitter", s.Retry.Jitter),
		a("max_in_flight", s.MaxInFlight), a("max_claims_per_second", s.MaxClaimsPerSecond),
		a("ordering_mode", int16(s.Ordering)),
		a("completed_retention_us", us(s.CompletedRetention)), a("dead_retention_us", us(s.DeadRetention)),
		a("max_messages", s.MaxMessages),
	)
}

// queueBy reads a queue by q, which selects {{queue_columns}}.
func (c *session) queueBy(ctx context.Context, q statement, key Arg) (storage.Queue, error) {
	var out storage.Queue
	found := false
	err := c.each(ctx, q, args(key), func(rows *sql.Rows) (err error) {
		found = true
		out, err = scanQueue(rows)
		return err
	})
	if err == nil && !found {
		err = storage.ErrQueueNotFound
	}
	return out, err
}

func (c *session) queueByName(ctx context.Context, name string) (storage.Queue, error) {
	return c.queueBy(ctx, qQueueGet, a("name", c.s.engine.Values.Name(name)))
}

func (c *session) queueByID(ctx context.Context, id int32) (storage.Queue, error) {
	return c.queueBy(ctx, qQueueGetByID, a("queue_id", id))
}

// holdQueue locks a queue and reads it.
func (c *session) holdQueue(ctx context.Context, name string) (storage.Queue, error) {
	return c.queueBy(ctx, qQueueHold, a("name", c.s.engine.Values.Name(name)))
}

// CreateQueue implements storage.Admin.
func (s *Store) CreateQueue(ctx context.Context, name string, settings storage.QueueSettings, maxQueues int) (storage.Queue, error) {
	var q storage.Queue
	err := s.write(ctx, "create queue", func(c *session) (verdict, error) {
		var turn int32
		if err := c.one(ctx, qQueueTurn, nil, &turn); err != nil {
			return rollback, err
		}
		_, err := c.queueByName(ctx, name)
		if err == nil {
			return rollback, storage.ErrQueueExists
		}
		if !errors.Is(err, storage.ErrQueueNotFound) {
			return rollback, err
		}
		if maxQueues > 0 {
			var n int
			if err := c.one(ctx, qQueueCount, nil, &n); err != nil {
				return rollback, err
			}
			if n >= maxQueues {
				return rollback, storage.ErrQueueLimit
			}
		}
		_, err = c.change(ctx, qQueueInsert, append(args(a("name", s.engine.Values.Name(name))), settingsArgs(settings)...)...)
		if s.engine.Errors.Duplicate(err) {
			return rollback, storage.ErrQueueExists
		}
		if err != nil {
			return rollback, err
		}
		if q, err = c.queueByName(ctx, name); err != nil {
			return rollback, err
		}
		return commit, c.noteLimit(ctx, q)
	})
	if err != nil {
		return storage.Queue{}, err
	}
	return q, nil
}

// GetQueue implements storage.Admin.
func (s *Store) GetQueue(ctx context.Context, name string) (storage.Queue, error) {
	return s.getQueue(ctx, func(c *session) (storage.Queue, error) { return c.queueByName(ctx, name) })
}

// GetQueueByID implements storage.Admin.
func (s *Store) GetQueueByID(ctx context.Context, id int32) (storage.Queue, error) {
	return s.getQueue(ctx, func(c *session) (storage.Queue, error) { return c.queueByID(ctx, id) })
}

func (s *Store) getQueue(ctx context.Context, get func(c *session) (storage.Queue, error)) (storage.Queue, error) {
	var q storage.Queue
	err := s.read(ctx, "get queue", func(c *session) (err error) {
		q, err = get(c)
		return err
	})
	if err != nil {
		return storage.Queue{}, err
	}
	return q, nil
}

// ListQueues implements storage.Admin.
func (s *Store) ListQueues(ctx context.Context, after string, limit int) ([]storage.Queue, error) {
	var out []storage.Queue
	by := args(a("after", s.engine.Values.Name(after)), a("limit", int64(max(limit, 0))))
	err := s.read(ctx, "list queues", func(c *session) error {
		out = nil
		return c.each(ctx, qQueueList, by, func(rows *sql.Rows) error {
			q, err := scanQueue(rows)
			out = append(out, q)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// UpdateQueue implements storage.Admin.
func (s *Store) UpdateQueue(ctx context.Context, name string, settings storage.QueueSettings, version int64) (storage.Queue, error) {
	return s.changeQueue(ctx, "update queue", name, func(c *session, q storage.Queue) (bool, error) {
		if version != 0 && version != q.Version {
			return false, storage.ErrVersionMismatch
		}
		n, err := c.change(ctx, qQueueUpdate, append(args(a("queue_id", q.ID)), settingsArgs(settings)...)...)
		return n > 0, err
	})
}

// SetPaused implements storage.Admin.
func (s *Store) SetPaused(ctx context.Context, name string, paused bool) (storage.Queue, error) {
	return s.changeQueue(ctx, "pause queue", name, func(c *session, q storage.Queue) (bool, error) {
		if q.Paused == paused {
			return false, nil
		}
		n, err := c.change(ctx, qQueuePause, a("queue_id", q.ID), a("paused", paused))
		return n > 0, err
	})
}

// changeQueue changes a queue under its lock, and under that of its limit, which comes first:
// a claim has that one while it reads the settings.
func (s *Store) changeQueue(ctx context.Context, what, name string, fn func(c *session, q storage.Queue) (bool, error)) (storage.Queue, error) {
	var q storage.Queue
	err := s.write(ctx, what, func(c *session) (verdict, error) {
		named, err := c.queueByName(ctx, name)
		if err != nil {
			return rollback, err
		}
		if _, _, err := c.lockLimit(ctx, named.ID); err != nil {
			return rollback, err
		}
		if q, err = c.holdQueue(ctx, name); err != nil {
			return rollback, err
		}
		changed, err := fn(c, q)
		if err != nil || !changed {
			return rollback, err
		}
		if q, err = c.queueByID(ctx, q.ID); err != nil {
			return rollback, err
		}
		return commit, c.noteLimit(ctx, q)
	})
	if err != nil {
		return storage.Queue{}, err
	}
	return q, nil
}
