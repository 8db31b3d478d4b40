package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// TestD8_CommitThatFails: nobody knows what a failed commit left in the log, and the next
// call works on a connection of its own.
func TestD8_CommitThatFails(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "q.db"))
	err := s.write(t.Context(), "test", func(quiet context.Context, c *session) (verdict, error) {
		// Ended behind the back of write, so that its COMMIT has nothing to commit.
		return commit, c.control(quiet, "ROLLBACK")
	})
	require.ErrorIs(t, err, storage.ErrOutcomeUnknown)
	require.NotErrorIs(t, err, storage.ErrUnavailable)
	_, err = s.CreateQueue(t.Context(), "after", storage.QueueSettings{}, 0)
	require.NoError(t, err)
}

// TestD8_CallerLeavesBeforeTheEnd of what it writes: nothing happened, and the store goes on.
func TestD8_CallerLeavesBeforeTheEnd(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "q.db"))
	ctx, cancel := context.WithCancel(t.Context())
	err := s.write(ctx, "test", func(quiet context.Context, c *session) (verdict, error) {
		_, err := c.exec(quiet, qQueueInsert, append(args("gone"), settingsArgs(storage.QueueSettings{})...)...)
		cancel()
		return commit, err
	})
	require.ErrorIs(t, err, storage.ErrUnavailable)
	_, err = s.GetQueue(t.Context(), "gone")
	require.ErrorIs(t, err, storage.ErrQueueNotFound)

	_, err = s.CreateQueue(t.Context(), "after", storage.QueueSettings{}, 0)
	require.NoError(t, err, "the writer is free")
}

// TestClassify tells errors by their kind alone.
func TestClassify(t *testing.T) {
	require.NoError(t, classify(nil))
	for _, err := range []error{context.Canceled, context.DeadlineExceeded, sql.ErrConnDone, driver.ErrBadConn} {
		require.ErrorIs(t, classify(fmt.Errorf("x: %w", err)), storage.ErrUnavailable)
		require.ErrorIs(t, classify(fmt.Errorf("x: %w", err)), err)
	}
	for _, err := range []error{storage.ErrQueueExists, storage.ErrOutcomeUnknown, storage.ErrMessageNotFound} {
		require.Equal(t, err, classify(err))
	}
	s := openAt(t, filepath.Join(t.TempDir(), "q.db"))
	_, err := openDB(t, s, false).ExecContext(t.Context(), "SELECT * FROM nothing")
	require.Error(t, err)
	require.NotErrorIs(t, classify(err), storage.ErrUnavailable, "a wrong statement is a defect")
	_, err = openDB(t, s, true).ExecContext(t.Context(), "DELETE FROM queue")
	require.ErrorIs(t, classify(err), storage.ErrUnavailable, "readers cannot write")
}

// TestS3_Backoff keeps the delay of a retry inside the bounds of the policy.
func TestS3_Backoff(t *testing.T) {
	p := storage.RetryPolicy{Min: time.Second, Max: time.Hour, Multiplier: 2, Jitter: 0.2}
	for _, c := range []struct {
		attempt int32
		draw    float64
		want    int64
	}{
		{1, 0, 1000},
		{1, 0.5, 900},
		{2, 0, 2000},
		{3, 0, 4000},
		{12, 0, 2_048_000},
		{13, 0, 3_600_000},
		{math.MaxInt32, 0, 3_600_000},
	} {
		require.Equal(t, c.want, backoff(p, c.attempt, c.draw), "attempt %d, draw %v", c.attempt, c.draw)
	}
	require.InDelta(t, 800, backoff(p, 1, 0.999999), 1)
	require.EqualValues(t, 0, backoff(storage.RetryPolicy{}, 5, 0.5))
}

// TestClock_IsExactToTheMillisecond: a fraction of a second is not exact in binary, so the
// clock expression must round before it cuts.
func TestClock_IsExactToTheMillisecond(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "q.db"))
	var wrong int
	require.NoError(t, openDB(t, s, true).QueryRowContext(t.Context(), `
		WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99999)
		SELECT count(*) FROM (SELECT 1767225600000 + i * 7919 AS ms FROM n)
		WHERE CAST(round(unixepoch(ms / 1000.0, 'unixepoch', 'subsec') * 1000) AS INTEGER) <> ms`).Scan(&wrong))
	require.Zero(t, wrong)

	before := time.Now().UnixMilli()
	now, err := s.Now(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, now.UnixMilli(), before)
	require.LessOrEqual(t, now.UnixMilli(), time.Now().UnixMilli())
}
