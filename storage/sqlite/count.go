package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// countIdle is how old counts may be that have not changed: keeping them costs a write.
const countIdle = 5 * time.Second

// QueueStats implements storage.Admin.
func (s *Store) QueueStats(ctx context.Context, queueID int32) (storage.QueueStats, error) {
	var st storage.QueueStats
	err := s.read(ctx, "queue stats", func(c *session) (err error) {
		st, err = c.count(ctx, queueID)
		return err
	})
	return st, err
}

// count counts a queue on a snapshot.
func (c *session) count(ctx context.Context, queueID int32) (storage.QueueStats, error) {
	var st storage.QueueStats
	err := c.one(ctx, qStatsFinished, args(queueID), &st.Completed, &st.Dead)
	if errors.Is(err, sql.ErrNoRows) {
		return st, storage.ErrQueueNotFound
	}
	if err != nil {
		return st, err
	}
	var oldest, oldestDue sql.NullInt64
	var notYet, due, asOf int64
	err = c.one(ctx, qStatsLive, args(queueID), &st.Ready, &notYet, &st.Leased, &st.LeaseExpired, &oldest, &asOf)
	if err != nil {
		return st, err
	}
	if err := c.one(ctx, qStatsDelayed, args(queueID), &st.Delayed, &due, &oldestDue); err != nil {
		return st, err
	}
	var over int64
	if err := c.one(ctx, qStatsParked, args(queueID), &st.Blocked, &over); err != nil {
		return st, err
	}
	var completed, dead, ready, delayed int64
	if err := c.one(ctx, qStatsMarked, args(queueID), &completed, &dead, &ready, &delayed); err != nil {
		return st, err
	}
	st.LeaseExpired += over
	st.Completed += completed
	st.Dead += dead
	st.Ready += due + ready
	st.Delayed += notYet + delayed
	st.OldestReady, st.AsOf = fromNullMillis(oldest), fromMillis(asOf)
	if t := fromNullMillis(oldestDue); !t.IsZero() && (st.OldestReady.IsZero() || t.Before(st.OldestReady)) {
		st.OldestReady = t
	}
	return st, nil
}

// StoredStats implements storage.Admin.
func (s *Store) StoredStats(ctx context.Context, queueID int32) (storage.QueueStats, error) {
	var st storage.QueueStats
	err := s.read(ctx, "stored stats", func(c *session) (err error) {
		st, err = c.stored(ctx, queueID)
		return err
	})
	return st, err
}

// stored reads the counts that were kept; AsOf is zero where there are none.
func (c *session) stored(ctx context.Context, queueID int32) (storage.QueueStats, error) {
	var asOf, oldest sql.NullInt64
	var n [7]sql.NullInt64
	err := c.one(ctx, qStatsStored, args(queueID), &asOf, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6], &oldest)
	if errors.Is(err, sql.ErrNoRows) {
		return storage.QueueStats{}, storage.ErrQueueNotFound
	}
	return storage.QueueStats{
		AsOf: fromNullMillis(asOf), Ready: n[0].Int64, Delayed: n[1].Int64, Blocked: n[2].Int64, Leased: n[3].Int64,
		LeaseExpired: n[4].Int64, Completed: n[5].Int64, Dead: n[6].Int64, OldestReady: fromNullMillis(oldest),
	}, err
}

// Count implements storage.Upkeep. It counts beside the writer, each queue on a snapshot of
// its own, and keeps what has changed in one write. The time of the next count stands in the
// file, so that of several servers one counts and the others find that it is not time.
func (s *Store) Count(ctx context.Context, p storage.CountParams) (storage.CountResult, error) {
	began := time.Now() //nolint:forbidigo // measures how long the count takes
	ids, all := p.Queues, len(p.Queues) == 0
	if all {
		due, err := s.countDue(ctx)
		if err != nil || !due {
			return storage.CountResult{}, err
		}
		if ids, err = s.queuesToCount(ctx); err != nil {
			return storage.CountResult{}, err
		}
	}
	var res storage.CountResult
	counts := map[int32]storage.QueueStats{}
	for _, id := range ids {
		err := s.read(ctx, "count", func(c *session) error {
			st, err := c.count(ctx, id)
			if err != nil {
				return err
			}
			old, err := c.stored(ctx, id)
			res.Counted++
			age := st.AsOf.Sub(old.AsOf)
			if old.AsOf = st.AsOf; !all || age >= countIdle || old != st {
				counts[id] = st
			}
			return err
		})
		if err != nil && !errors.Is(err, storage.ErrQueueNotFound) {
			return storage.CountResult{}, err
		}
	}
	rest := storage.CountRest * time.Since(began)
	if len(counts) == 0 && rest <= storage.CountEvery {
		// Whoever asks next asks no sooner than that, so nothing is kept; but what has not changed
		// may be what another server has counted just now.
		if all {
			if due, err := s.countDue(ctx); err != nil || !due {
				return storage.CountResult{}, err
			}
		}
		return res, nil
	}
	kept, err := s.keepCounts(ctx, counts, all, max(rest, storage.CountEvery))
	if err != nil || !kept {
		return storage.CountResult{}, err
	}
	return res, nil
}

// countDue tells whether it is time to count all queues.
func (s *Store) countDue(ctx context.Context) (due bool, err error) {
	err = s.read(ctx, "count", func(c *session) error { return c.one(ctx, qCountDue, nil, &due) })
	return due, err
}

func (s *Store) queuesToCount(ctx context.Context) (ids []int32, err error) {
	err = s.read(ctx, "count", func(c *session) error {
		return c.each(ctx, qCountQueues, args(0, -1), func(rows *row) error {
			var id int32
			err := rows.Scan(&id)
			ids = append(ids, id)
			return err
		})
	})
	return ids, err
}

// keepCounts keeps counts, and, where all were taken, when to count again; not where another
// server was faster.
func (s *Store) keepCounts(ctx context.Context, counts map[int32]storage.QueueStats, all bool, rest time.Duration) (kept bool, err error) {
	err = s.write(ctx, "count", func(quiet context.Context, c *session) (verdict, error) {
		if kept = true; all {
			if err := c.one(quiet, qCountDue, nil, &kept); err != nil || !kept {
				return rollback, err
			}
		}
		for id, st := range counts {
			_, err := c.exec(quiet, qCountPut, id, toInstant(st.AsOf), st.Ready, st.Delayed, st.Blocked, st.Leased,
				st.LeaseExpired, st.Completed, st.Dead, toInstant(st.OldestReady))
			if err != nil {
				return rollback, err
			}
		}
		if all {
			if _, err := c.exec(quiet, qCountDone, toMillis(rest)); err != nil {
				return rollback, err
			}
		}
		return commit, nil
	})
	return kept, err
}
