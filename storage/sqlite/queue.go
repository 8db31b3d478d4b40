package sqlite

import (
	"context"
	"errors"

	"github.com/queuebox/queuebox/storage"
)

func scanQueue(row interface{ Scan(...any) error }) (storage.Queue, error) {
	var (
		q                                             storage.Queue
		create                                        int64
		lease, minLease, maxLease, retryMin, retryMax int64
		completed, dead                               int64
	)
	err := row.Scan(&q.ID, &q.Name, &create, &q.Version, &q.Paused, &lease, &minLease, &maxLease, &q.MaxAttempts,
		&retryMin, &retryMax, &q.Retry.Multiplier, &q.Retry.Jitter, &q.MaxInFlight, &q.MaxClaimsPerSecond,
		&q.Ordering, &completed, &dead, &q.MaxMessages)
	q.CreateTime = fromMillis(create)
	q.DefaultLease, q.MinLease, q.MaxLease = fromDuration(lease), fromDuration(minLease), fromDuration(maxLease)
	q.Retry.Min, q.Retry.Max = fromDuration(retryMin), fromDuration(retryMax)
	q.CompletedRetention, q.DeadRetention = fromDuration(completed), fromDuration(dead)
	return q, err
}

// settingsArgs are the parameters after the name in queue_insert and queue_update.
func settingsArgs(s storage.QueueSettings) []any {
	return args(s.Paused, toMillis(s.DefaultLease), toMillis(s.MinLease), toMillis(s.MaxLease), s.MaxAttempts,
		toMillis(s.Retry.Min), toMillis(s.Retry.Max), s.Retry.Multiplier, s.Retry.Jitter, s.MaxInFlight,
		s.MaxClaimsPerSecond, s.Ordering, toMillis(s.CompletedRetention), toMillis(s.DeadRetention), s.MaxMessages)
}

// queueBy reads a queue by q, which is queue_get or queue_get_by_id.
func (c *session) queueBy(ctx context.Context, q query, key any) (storage.Queue, error) {
	var queue storage.Queue
	err := c.each(ctx, q, args(key), func(r *row) (err error) {
		queue, err = scanQueue(r)
		return err
	})
	if err == nil && queue.ID == 0 {
		err = storage.ErrQueueNotFound
	}
	return queue, err
}

// CreateQueue implements storage.Admin.
func (s *Store) CreateQueue(ctx context.Context, name string, settings storage.QueueSettings, maxQueues int) (storage.Queue, error) {
	var q storage.Queue
	err := s.write(ctx, "create queue", func(quiet context.Context, c *session) (verdict, error) {
		_, err := c.queueBy(quiet, qQueueGet, name)
		if err == nil {
			return rollback, storage.ErrQueueExists
		}
		if !errors.Is(err, storage.ErrQueueNotFound) {
			return rollback, err
		}
		if maxQueues > 0 {
			var n int
			if err := c.one(quiet, qQueueCount, nil, &n); err != nil {
				return rollback, err
			}
			if n >= maxQueues {
				return rollback, storage.ErrQueueLimit
			}
		}
		if _, err := c.exec(quiet, qQueueInsert, append(args(name), settingsArgs(settings)...)...); err != nil {
			return rollback, err
		}
		q, err = c.queueBy(quiet, qQueueGet, name)
		return commit, err
	})
	return q, err
}

// GetQueue implements storage.Admin.
func (s *Store) GetQueue(ctx context.Context, name string) (storage.Queue, error) {
	return s.getQueue(ctx, qQueueGet, name)
}

// GetQueueByID implements storage.Admin.
func (s *Store) GetQueueByID(ctx context.Context, id int32) (storage.Queue, error) {
	return s.getQueue(ctx, qQueueGetByID, id)
}

func (s *Store) getQueue(ctx context.Context, by query, key any) (storage.Queue, error) {
	var q storage.Queue
	err := s.read(ctx, "get queue", func(c *session) (err error) {
		q, err = c.queueBy(ctx, by, key)
		return err
	})
	return q, err
}

// ListQueues implements storage.Admin.
func (s *Store) ListQueues(ctx context.Context, after string, limit int) ([]storage.Queue, error) {
	var queues []storage.Queue
	err := s.read(ctx, "list queues", func(c *session) error {
		return c.each(ctx, qQueueList, args(after, limit), func(rows *row) error {
			q, err := scanQueue(rows)
			queues = append(queues, q)
			return err
		})
	})
	return queues, err
}

// UpdateQueue implements storage.Admin.
func (s *Store) UpdateQueue(ctx context.Context, name string, settings storage.QueueSettings, version int64) (storage.Queue, error) {
	var q storage.Queue
	err := s.write(ctx, "update queue", func(quiet context.Context, c *session) (verdict, error) {
		have, err := c.queueBy(quiet, qQueueGet, name)
		if err != nil {
			return rollback, err
		}
		if version != 0 && version != have.Version {
			return rollback, storage.ErrVersionMismatch
		}
		if _, err := c.exec(quiet, qQueueUpdate, append(args(name), settingsArgs(settings)...)...); err != nil {
			return rollback, err
		}
		if q, err = c.queueBy(quiet, qQueueGet, name); err != nil {
			return rollback, err
		}
		switch {
		case have.MaxInFlight == 0 && q.MaxInFlight > 0:
			_, err = c.exec(quiet, qLimitFill, q.ID)
		case have.MaxInFlight > 0 && q.MaxInFlight == 0:
			_, err = c.exec(quiet, qLimitForget, q.ID)
		}
		return commit, err
	})
	return q, err
}

// SetPaused implements storage.Admin.
func (s *Store) SetPaused(ctx context.Context, name string, paused bool) (storage.Queue, error) {
	var q storage.Queue
	err := s.write(ctx, "pause queue", func(quiet context.Context, c *session) (verdict, error) {
		n, err := c.exec(quiet, qQueuePause, name, paused)
		if err != nil {
			return rollback, err
		}
		q, err = c.queueBy(quiet, qQueueGet, name)
		return verdict(n > 0), err
	})
	return q, err
}
