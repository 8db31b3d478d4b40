package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
)

func us(d int64) time.Duration { return time.Duration(d) * time.Microsecond }

func scanQueue(r pgx.Rows) (storage.Queue, error) {
	var (
		q                                                storage.Queue
		mode                                             int16
		lease, least, most, first, last, completed, dead int64
	)
	err := r.Scan(
		&q.ID, &q.Name, &q.Version, &q.CreateTime, &q.Paused, &lease, &least, &most, &q.MaxAttempts,
		&first, &last, &q.Retry.Multiplier, &q.Retry.Jitter, &q.MaxInFlight, &q.MaxClaimsPerSecond,
		&mode, &completed, &dead, &q.MaxMessages,
	)
	q.CreateTime = q.CreateTime.UTC()
	q.Ordering = storage.OrderingMode(mode)
	q.DefaultLease, q.MinLease, q.MaxLease = us(lease), us(least), us(most)
	q.Retry.Min, q.Retry.Max = us(first), us(last)
	q.CompletedRetention, q.DeadRetention = us(completed), us(dead)
	return q, err
}

func settingsArgs(s storage.QueueSettings) []any {
	return []any{
		s.Paused, s.DefaultLease.Microseconds(), s.MinLease.Microseconds(), s.MaxLease.Microseconds(), s.MaxAttempts,
		s.Retry.Min.Microseconds(), s.Retry.Max.Microseconds(), s.Retry.Multiplier, s.Retry.Jitter,
		s.MaxInFlight, s.MaxClaimsPerSecond, int16(s.Ordering),
		s.CompletedRetention.Microseconds(), s.DeadRetention.Microseconds(), s.MaxMessages,
	}
}

// oneQueue reads at most one queue.
func oneQueue(q *storage.Queue, found *bool) func(pgx.Rows) error {
	return each(func() { *found = false }, func(r pgx.Rows) (err error) {
		*found = true
		*q, err = scanQueue(r)
		return err
	})
}

// CreateQueue implements storage.Admin.
func (s *Store) CreateQueue(ctx context.Context, name string, settings storage.QueueSettings, maxQueues int) (storage.Queue, error) {
	var (
		made, old       storage.Queue
		isMade, existed bool
	)
	args := append([]any{name, int64(maxQueues)}, settingsArgs(settings)...)
	err := s.write(
		ctx, "create queue",
		step{sql: s.sql.queueLock},
		step{sql: s.sql.queueCreate, args: args, scan: oneQueue(&made, &isMade)},
		step{sql: s.sql.limitSet, args: []any{name}},
		step{sql: s.sql.queueGet, args: []any{name}, scan: oneQueue(&old, &existed)},
	)
	switch {
	case err != nil:
		return storage.Queue{}, err
	case isMade:
		return made, nil
	case existed:
		return storage.Queue{}, fmt.Errorf("postgres: create queue: %w", storage.ErrQueueExists)
	default:
		return storage.Queue{}, fmt.Errorf("postgres: create queue: %w", storage.ErrQueueLimit)
	}
}

// GetQueue implements storage.Admin.
func (s *Store) GetQueue(ctx context.Context, name string) (storage.Queue, error) {
	return s.getQueue(ctx, step{sql: s.sql.queueGet, args: []any{name}})
}

// GetQueueByID implements storage.Admin.
func (s *Store) GetQueueByID(ctx context.Context, id int32) (storage.Queue, error) {
	return s.getQueue(ctx, step{sql: s.sql.queueGetByID, args: []any{id}})
}

func (s *Store) getQueue(ctx context.Context, st step) (q storage.Queue, err error) {
	var found bool
	st.scan = oneQueue(&q, &found)
	if err := s.read(ctx, "get queue", st); err != nil {
		return storage.Queue{}, err
	}
	if !found {
		return storage.Queue{}, fmt.Errorf("postgres: get queue: %w", storage.ErrQueueNotFound)
	}
	return q, nil
}

// ListQueues implements storage.Admin.
func (s *Store) ListQueues(ctx context.Context, after string, limit int) ([]storage.Queue, error) {
	var out []storage.Queue
	err := s.read(ctx, "list queues", step{
		sql: s.sql.queueList, args: []any{after, int64(max(limit, 0))},
		scan: each(func() { out = nil }, func(r pgx.Rows) error {
			q, err := scanQueue(r)
			out = append(out, q)
			return err
		}),
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// UpdateQueue implements storage.Admin.
func (s *Store) UpdateQueue(ctx context.Context, name string, settings storage.QueueSettings, version int64) (storage.Queue, error) {
	args := append([]any{name, version}, settingsArgs(settings)...)
	q, err := s.changeQueue(ctx, "update queue", step{sql: s.sql.queueUpdate, args: args}, step{sql: s.sql.limitSet, args: []any{name}})
	if !errors.Is(err, storage.ErrQueueNotFound) || version == 0 {
		return q, err
	}
	// Not there, or there with another version.
	if _, err := s.GetQueue(ctx, name); err != nil {
		return storage.Queue{}, err
	}
	return storage.Queue{}, fmt.Errorf("postgres: update queue: %w", storage.ErrVersionMismatch)
}

// SetPaused implements storage.Admin.
func (s *Store) SetPaused(ctx context.Context, name string, paused bool) (storage.Queue, error) {
	return s.changeQueue(ctx, "pause queue", step{sql: s.sql.queuePause, args: []any{name, paused}})
}

func (s *Store) changeQueue(ctx context.Context, what string, st step, after ...step) (q storage.Queue, err error) {
	var found bool
	st.scan = oneQueue(&q, &found)
	if err := s.write(ctx, what, append([]step{st}, after...)...); err != nil {
		return storage.Queue{}, err
	}
	if !found {
		return storage.Queue{}, fmt.Errorf("postgres: %s: %w", what, storage.ErrQueueNotFound)
	}
	return q, nil
}
