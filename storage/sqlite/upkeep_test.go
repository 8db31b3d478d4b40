package sqlite

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// upkeepQueue makes a queue whose completed messages are kept for an hour, dead ones for two.
func upkeepQueue(t *testing.T, s *Store, name string) storage.Queue {
	t.Helper()
	q, err := s.CreateQueue(t.Context(), name, storage.QueueSettings{
		CompletedRetention: time.Hour, DeadRetention: 2 * time.Hour,
	}, 0)
	require.NoError(t, err)
	return q
}

// count reads one number.
func count(t *testing.T, s *Store, text string, a ...any) int {
	t.Helper()
	var n int
	require.NoError(t, openDB(t, s, false).QueryRowContext(t.Context(), text, a...).Scan(&n))
	return n
}

// fillCompleted inserts completed messages of an age with plain SQL.
func fillCompleted(t *testing.T, s *Store, queueID int32, n int, age time.Duration) {
	t.Helper()
	_, err := openDB(t, s, false).ExecContext(t.Context(), `
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
		INSERT INTO completed (position, queue_id, finish_time, token, attempt, max_attempts, priority, ready_time, create_time, worker_id,
		                       last_error, reason_code, content_type, idempotency_key, ordering_key, payload_bytes, payload)
		SELECT (SELECT last FROM position_sequence) + i, ?2, `+clockExpr+` - ?3, x'00', 1, 1, 0, 0, 0, '', '', '', '', 'k' || i, '', 100, zeroblob(100)
		FROM n`, n, queueID, age.Milliseconds())
	require.NoError(t, err)
	_, err = openDB(t, s, false).ExecContext(t.Context(), "UPDATE position_sequence SET last = last + ?", n)
	require.NoError(t, err)
}

// TestC18_E7_S14_SweepEndsNoMore goes over every mix of what the sweep looks at, and compares
// with the rules written down anew.
func TestC18_E7_S14_SweepEndsNoMore(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "q.db"))
	q := upkeepQueue(t, s, "mix")
	now, err := s.Now(t.Context())
	require.NoError(t, err)
	past, future := now.Add(-time.Minute).UnixMilli(), now.Add(time.Hour).UnixMilli()
	type want struct {
		state  storage.State
		reason storage.DeadReason
	}
	wants := map[int64]want{}
	var sum storage.SweepResult
	position := int64(0)
	for _, state := range []storage.State{storage.StatePending, storage.StateProcessing, storage.StateSettling} {
		for _, leaseEnd := range []int64{past, future} {
			for _, cancel := range []bool{false, true} {
				for _, expire := range []any{nil, past, future} {
					for _, attempts := range [][2]int{{1, 0}, {1, 1}, {1, 2}} {
						position++
						w := want{state: state}
						used := state == storage.StateProcessing && attempts[1] > 0 && attempts[0] >= attempts[1]
						held := state == storage.StateSettling || state == storage.StateProcessing && leaseEnd == future
						switch {
						case held:
						case cancel:
							w = want{storage.StateCancelled, storage.DeadReasonNone}
							sum.Cancelled++
						case expire == past:
							w = want{storage.StateDead, storage.DeadReasonExpired}
							sum.Expired++
						case used:
							w = want{storage.StateDead, storage.DeadReasonLeaseExpired}
							sum.Dead++
						}
						wants[position] = w
						_, err := openDB(t, s, false).ExecContext(t.Context(), `
							INSERT INTO message (position, queue_id, place, priority, ready_time, state, token, lease_end, attempt, max_attempts,
							                     cancel_requested, create_time, expire_time, wire_bytes, content_type, idempotency_key, payload_bytes, payload)
							VALUES (?1, ?2, 0, 0, 0, ?3, zeroblob(16), ?4, ?5, ?6, ?7, 0, ?8, 0, '', '', 0, x'')`,
							position, q.ID, state, leaseEnd, attempts[0], attempts[1], cancel, expire)
						require.NoError(t, err)
					}
				}
			}
		}
	}
	var got storage.SweepResult
	pages := 0
	for p := (storage.SweepParams{Limit: 10}); ; pages++ {
		res, err := s.Sweep(t.Context(), p)
		require.NoError(t, err)
		got.Dead, got.Expired, got.Cancelled = got.Dead+res.Dead, got.Expired+res.Expired, got.Cancelled+res.Cancelled
		if p.After = res.Next; res.Next == (storage.Ref{}) {
			break
		}
	}
	require.Equal(t, sum, got)
	require.Equal(t, len(wants)/10, pages, "the limit bounds what is looked at")
	for position, w := range wants {
		var g want
		live := count(t, s, "SELECT count(*) FROM message WHERE position = ?", position)
		if live == 1 {
			require.NoError(t, openDB(t, s, false).QueryRowContext(t.Context(), "SELECT state FROM message WHERE position = ?", position).Scan(&g.state))
		} else {
			require.NoError(t, openDB(t, s, false).QueryRowContext(t.Context(), "SELECT state, dead_reason FROM dead WHERE position = ? AND action = 0", position).
				Scan(&g.state, &g.reason))
		}
		require.Equal(t, w, g, "position %d", position)
	}
	require.Equal(t, len(wants), count(t, s, "SELECT (SELECT count(*) FROM message) + (SELECT count(*) FROM dead)"))
}

// TestC18_SweepOfOneMessageNamedTwice: a message moves but once.
func TestC18_SweepOfOneMessageNamedTwice(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "q.db"))
	q := upkeepQueue(t, s, "twice")
	e, err := s.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: q.ID, ExpireTime: time.UnixMilli(1)}}})
	require.NoError(t, err)
	ref := e.Items[0].Ref
	foreign := storage.Ref{QueueID: q.ID + 1, Position: ref.Position}
	res, err := s.Sweep(t.Context(), storage.SweepParams{Refs: []storage.Ref{foreign}, Limit: 10})
	require.NoError(t, err)
	require.Zero(t, res.Expired, "it is of another queue")
	res, err = s.Sweep(t.Context(), storage.SweepParams{Refs: []storage.Ref{ref, foreign, ref}, Limit: 10})
	require.NoError(t, err)
	require.Equal(t, 1, res.Expired)
}

// TestC11_UpkeepThatFindsNothing does not wait for the write lock, which somebody else holds.
func TestC11_UpkeepThatFindsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "q.db")
	s, err := Open(t.Context(), Config{Path: path, BusyTimeout: 20 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	q := upkeepQueue(t, s, "idle")
	fill(t, s, q.ID, 100, 0)
	fillCompleted(t, s, q.ID, 10, 0)
	lock, err := openDB(t, openAt(t, path), false).Conn(t.Context())
	require.NoError(t, err)
	_, err = lock.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)

	swept, err := s.Sweep(t.Context(), storage.SweepParams{Limit: 1000})
	require.NoError(t, err)
	require.Zero(t, swept.Dead+swept.Expired+swept.Cancelled)
	retained, err := s.Retain(t.Context(), storage.RetainParams{Limit: 1000})
	require.NoError(t, err)
	require.Zero(t, retained.Deleted)
	require.False(t, retained.More)

	// And with something to do, it needs the lock.
	_, err = lock.ExecContext(t.Context(), "UPDATE message SET expire_time = 1 WHERE position = 1")
	require.NoError(t, err)
	_, err = lock.ExecContext(t.Context(), "COMMIT")
	require.NoError(t, err)
	_, err = lock.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)
	_, err = s.Sweep(t.Context(), storage.SweepParams{Limit: 1000})
	require.ErrorIs(t, err, storage.ErrUnavailable)
	_, err = lock.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	require.NoError(t, lock.Close())
	swept, err = s.Sweep(t.Context(), storage.SweepParams{Limit: 1000})
	require.NoError(t, err)
	require.Equal(t, 1, swept.Expired)
}

// TestD6_RetentionLetsWritersIn: while one call deletes very many rows, a writer of this
// process and one of another connection to the file both have their turns.
func TestD6_RetentionLetsWritersIn(t *testing.T) {
	const rows = 4000
	path := filepath.Join(t.TempDir(), "q.db")
	s, neighbour := openAt(t, path), openAt(t, path)
	q := upkeepQueue(t, s, "old")
	fillCompleted(t, s, q.ID, rows, 2*time.Hour)
	fillCompleted(t, s, q.ID, 7, 50*time.Minute)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	type writer struct {
		turns int
		err   error
	}
	done := make(chan writer, 2)
	for _, w := range []*Store{s, neighbour} {
		go func() {
			var res writer
			for ctx.Err() == nil && res.err == nil {
				_, res.err = w.Enqueue(context.WithoutCancel(ctx), storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: q.ID}}})
				res.turns++
			}
			done <- res
		}()
	}
	res, err := s.Retain(t.Context(), storage.RetainParams{Limit: rows})
	stop()
	require.NoError(t, err)
	require.Equal(t, rows, res.Deleted)
	turns := 0
	for range 2 {
		w := <-done
		require.NoError(t, w.err)
		require.Positive(t, w.turns, "each has its turn")
		turns += w.turns
	}
	// Who gets the file between two batches is up to the machine; that somebody does is not.
	require.Greater(t, turns, rows/upkeepRows/4, "between the batches")
	require.Equal(t, 7, count(t, s, "SELECT count(*) FROM completed"), "what is younger is kept")
}

// TestD6_Batches: a transaction of upkeep is bounded in rows and in bytes.
func TestD6_Batches(t *testing.T) {
	batches := func(found []finding) [][]int64 {
		var got [][]int64
		require.NoError(t, inBatches(t.Context(), found, func(positions []int64) error {
			got = append(got, slices.Clone(positions))
			return nil
		}))
		return got
	}
	require.Empty(t, batches(nil))
	small := make([]finding, 2*upkeepRows+1)
	for i := range small {
		small[i].position = int64(i)
	}
	got := batches(small)
	require.Len(t, got, 3)
	require.Len(t, got[0], upkeepRows)
	require.Equal(t, []int64{2 * upkeepRows}, got[2])
	require.Equal(t, [][]int64{{1}, {2, 3}, {4}},
		batches([]finding{{1, 10 * upkeepBytes}, {2, 1}, {3, upkeepBytes - 1}, {4, 1}}), "one that is large goes alone")

	err := inBatches(t.Context(), small, func([]int64) error { return storage.ErrUnavailable })
	require.ErrorIs(t, err, storage.ErrUnavailable)
	ctx, cancel := context.WithCancel(t.Context())
	err = inBatches(ctx, small, func([]int64) error { cancel(); return nil })
	require.ErrorIs(t, err, storage.ErrUnavailable, "a ctx that ends is seen between two")
}

// TestD6_E5_RetentionFreesTheKey of what it deletes and of nothing else, and the retention
// that counts is that of the delete, not that of the look before it.
func TestD6_E5_RetentionFreesTheKey(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "q.db"))
	q := upkeepQueue(t, s, "keys")
	fillCompleted(t, s, q.ID, 2, 90*time.Minute)
	_, err := openDB(t, s, false).ExecContext(t.Context(), `INSERT INTO idempotency_key (queue_id, key, position, content_hash, create_time)
		VALUES (?1, 'k1', 1, x'', 0), (?1, 'k2', 77, x'', 0)`, q.ID)
	require.NoError(t, err)

	forget := func(positions ...int64) (n int) {
		require.NoError(t, s.write(t.Context(), "test", func(quiet context.Context, c *session) (_ verdict, err error) {
			n, err = c.forget(quiet, qRetainCompletedDelete, positions)
			return commit, err
		}))
		return n
	}
	longer := q.QueueSettings
	longer.CompletedRetention = 3 * time.Hour
	_, err = s.UpdateQueue(t.Context(), q.Name, longer, 0)
	require.NoError(t, err)
	require.Zero(t, forget(1, 2), "the queue keeps them longer by now")
	_, err = s.UpdateQueue(t.Context(), q.Name, q.QueueSettings, 0)
	require.NoError(t, err)

	res, err := s.Retain(t.Context(), storage.RetainParams{Limit: 1})
	require.NoError(t, err)
	require.Equal(t, 1, res.Deleted)
	require.True(t, res.More)
	res, err = s.Retain(t.Context(), storage.RetainParams{Limit: 10})
	require.NoError(t, err)
	require.Equal(t, 1, res.Deleted)
	require.False(t, res.More)
	require.Zero(t, count(t, s, "SELECT count(*) FROM idempotency_key WHERE key = 'k1'"))
	require.Equal(t, 1, count(t, s, "SELECT count(*) FROM idempotency_key WHERE key = 'k2'"), "it names another message")
}

// TestD6_S5_HistoryGoesInBatches, never under ten minutes, and within the limit of a call.
func TestD6_S5_HistoryGoesInBatches(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "q.db"))
	brief, err := s.CreateQueue(t.Context(), "brief", storage.QueueSettings{CompletedRetention: time.Minute}, 0)
	require.NoError(t, err)
	long := upkeepQueue(t, s, "long")
	const old = 2*upkeepRows + 10
	add := func(queueID int32, from, n int, age time.Duration) {
		_, err := openDB(t, s, false).ExecContext(t.Context(), `
			WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?3)
			INSERT INTO settlement (position, token, queue_id, action, outcome, dead_reason, settle_time)
			SELECT ?2 + i, zeroblob(16), ?1, 2, 2, 0, `+clockExpr+` - ?4 FROM n`, queueID, from, n, age.Milliseconds())
		require.NoError(t, err)
	}
	add(brief.ID, 0, 5, 9*time.Minute)
	add(brief.ID, 1000, old, 11*time.Minute)
	add(long.ID, 2000, 5, 50*time.Minute)
	left := func() int { return count(t, s, "SELECT count(*) FROM settlement") }

	res, err := s.Retain(t.Context(), storage.RetainParams{Limit: old - 20})
	require.NoError(t, err)
	require.Zero(t, res.Deleted, "no message")
	require.True(t, res.More)
	require.Equal(t, 30, left())
	res, err = s.Retain(t.Context(), storage.RetainParams{Limit: old})
	require.NoError(t, err)
	require.False(t, res.More)
	require.Equal(t, 10, left(), fmt.Sprint("all that is promised: ", res))
}
