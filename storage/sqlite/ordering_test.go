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

// keyRow is a row of a key as a test writes it, with plain SQL: such as the rules let nobody
// make one, and as what came later may leave it.
type keyRow struct {
	position, place int
	state           storage.State
	leased          bool // its lease runs
}

// writeKey makes a key with these messages and gives its id.
func writeKey(t *testing.T, s *Store, queueID int32, key string, blockedBy any, rows ...keyRow) int64 {
	t.Helper()
	var id int64
	require.NoError(t, openDB(t, s, false).QueryRowContext(t.Context(),
		"INSERT INTO ordering_key (queue_id, key, blocked_by) VALUES (?, ?, ?) RETURNING id", queueID, key, blockedBy).Scan(&id))
	for _, r := range rows {
		end := -1
		if r.leased {
			end = 1
		}
		_, err := openDB(t, s, false).ExecContext(t.Context(), `
			INSERT INTO message (position, queue_id, place, priority, ready_time, state, token, lease_end, attempt, max_attempts, key_id,
			                     create_time, wire_bytes, content_type, idempotency_key, payload_bytes, payload)
			VALUES (?1, ?2, ?3, 0, 0, ?4, zeroblob(16), `+clockExpr+` + ?5 * 3600000, 1, 0, ?6, 0, 0, '', '', 0, x'')`,
			r.position, queueID, r.place, r.state, end, id)
		require.NoError(t, err)
	}
	return id
}

func writeDead(t *testing.T, s *Store, queueID int32, position int, state storage.State) {
	t.Helper()
	_, err := openDB(t, s, false).ExecContext(t.Context(), `
		INSERT INTO dead (position, queue_id, state, finish_time, action, dead_reason, attempt, max_attempts, priority, ready_time, create_time,
		                  worker_id, last_error, reason_code, content_type, idempotency_key, ordering_key, wire_bytes, payload_bytes, payload)
		VALUES (?1, ?2, ?3, `+clockExpr+`, 0, 1, 1, 0, 0, 0, 0, '', '', '', '', '', '', 0, 0, x'')`, position, queueID, state)
	require.NoError(t, err)
}

func orderedQueue(t *testing.T, s *Store, name string, mode storage.OrderingMode) storage.Queue {
	t.Helper()
	q, err := s.CreateQueue(t.Context(), name, storage.QueueSettings{CompletedRetention: time.Hour, Ordering: mode}, 0)
	require.NoError(t, err)
	return q
}

// TestO1_TheDatabaseRefusesTwoHeads, whoever asks.
func TestO1_TheDatabaseRefusesTwoHeads(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "q.db"))
	q := orderedQueue(t, s, "heads", storage.OrderingSkipDead)
	writeKey(t, s, q.ID, "a", nil, keyRow{position: 1}, keyRow{position: 2, place: placeParked})
	for _, place := range []int{placeReady, placeDelayed} {
		_, err := openDB(t, s, false).ExecContext(t.Context(), "UPDATE message SET place = ? WHERE position = 2", place)
		require.ErrorContains(t, err, "UNIQUE constraint failed")
	}
	_, err := openDB(t, s, false).ExecContext(t.Context(), "UPDATE message SET place = 1 WHERE position = 1")
	require.NoError(t, err, "the head itself may be delayed")
}

// TestO9_KeysThatArePutRight goes over every state in which a key can stand, and looks what
// SweepKeys makes of it: which message is the head afterwards, and what is left of the key.
func TestO9_KeysThatArePutRight(t *testing.T) {
	const gone, none = -1, 0
	live := func(place int) keyRow { return keyRow{position: 20, place: place} }
	behind := keyRow{position: 30, place: placeParked}
	processing := func(position int, leased bool) keyRow {
		return keyRow{position: position, state: storage.StateProcessing, leased: leased}
	}
	skip, block := storage.OrderingSkipDead, storage.OrderingBlockOnDead
	for _, c := range []struct {
		name      string
		mode      storage.OrderingMode
		blockedBy any
		dead      storage.State // of the message at position 10; 0 for none
		rows      []keyRow
		head      int // position, none, or gone for a key that is removed
		blocked   bool
	}{
		{name: "right", mode: skip, rows: []keyRow{live(placeReady), behind}, head: 20},
		{name: "right and delayed", mode: skip, rows: []keyRow{live(placeDelayed), behind}, head: 20},
		{name: "idle", mode: skip, head: gone},
		{name: "idle after a dead message", mode: skip, dead: storage.StateDead, head: gone},
		{name: "no head", mode: skip, rows: []keyRow{live(placeParked), behind}, head: 20},
		{name: "the wrong head", mode: skip, rows: []keyRow{live(placeParked), {position: 30}}, head: 20},
		{name: "the wrong head, whose lease is over", mode: skip, rows: []keyRow{live(placeParked), processing(30, false)}, head: 20},
		{name: "the wrong head, that somebody has", mode: skip, rows: []keyRow{live(placeParked), processing(30, true)}, head: 30},
		{name: "the wrong head, marked", mode: skip, rows: []keyRow{live(placeParked), {position: 30, state: storage.StateSettling}}, head: 30},
		{name: "a parked one whose lease is over", mode: skip, rows: []keyRow{{position: 20, place: placeParked, state: storage.StateProcessing}, behind}, head: 20},
		{name: "blocked", mode: block, blockedBy: 10, dead: storage.StateDead, rows: []keyRow{live(placeParked), behind}, head: none, blocked: true},
		{name: "blocked and empty", mode: block, blockedBy: 10, dead: storage.StateDead, head: none, blocked: true},
		{name: "blocked, but for one before", mode: block, blockedBy: 10, dead: storage.StateDead, rows: []keyRow{{position: 5, place: placeParked}, behind}, head: 5, blocked: true},
		{name: "the dead one is gone", mode: block, blockedBy: 10, rows: []keyRow{live(placeParked), behind}, head: 20},
		{name: "the dead one was cancelled since", mode: block, blockedBy: 10, dead: storage.StateCancelled, rows: []keyRow{live(placeParked)}, head: 20},
		{name: "the dead one is live again", mode: block, blockedBy: 20, rows: []keyRow{live(placeParked), behind}, head: 20},
		{name: "the dead one is gone, and all others", mode: block, blockedBy: 10, head: gone},
		{name: "the queue does not block any more", mode: skip, blockedBy: 10, dead: storage.StateDead, rows: []keyRow{live(placeParked)}, head: 20},
		{name: "the queue does not block any more, and it is empty", mode: skip, blockedBy: 10, dead: storage.StateDead, head: gone},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := openAt(t, filepath.Join(t.TempDir(), "q.db"))
			q := orderedQueue(t, s, "put right", c.mode)
			right := orderedQueue(t, s, "right", c.mode)
			writeKey(t, s, right.ID, "a", nil, keyRow{position: 1}, keyRow{position: 2, place: placeParked})
			if c.dead != 0 {
				writeDead(t, s, q.ID, 10, c.dead)
			}
			before := none
			for _, r := range c.rows {
				if r.place != placeParked {
					before = r.position
				}
			}
			id := writeKey(t, s, q.ID, "a", c.blockedBy, c.rows...)
			res, err := s.SweepKeys(t.Context(), storage.SweepKeysParams{Limit: 10})
			require.NoError(t, err)
			wantReady := []int32(nil)
			if c.head > 0 && c.head != before {
				wantReady = []int32{q.ID}
			}
			require.Equal(t, wantReady, res.Ready)
			require.Zero(t, res.Next)
			if c.head == gone {
				require.Equal(t, 1, res.Removed)
				require.Zero(t, count(t, s, "SELECT count(*) FROM ordering_key WHERE id = ?", id))
				return
			}
			require.Zero(t, res.Removed)
			require.Equal(t, c.head, count(t, s, "SELECT coalesce(max(position), 0) FROM message WHERE key_id = ? AND place < 2", id))
			require.Equal(t, len(c.rows), count(t, s, "SELECT count(*) FROM message WHERE key_id = ?", id))
			require.Equal(t, c.blocked, count(t, s, "SELECT blocked_by IS NOT NULL FROM ordering_key WHERE id = ?", id) == 1)
			res, err = s.SweepKeys(t.Context(), storage.SweepKeysParams{Limit: 10})
			require.NoError(t, err)
			require.Empty(t, res.Ready, "and that is all")
		})
	}
}

// TestC11_SweepKeysThatFindsNothing does not wait for the write lock, which somebody else holds.
func TestC11_SweepKeysThatFindsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "q.db")
	s, err := Open(t.Context(), Config{Path: path, BusyTimeout: 20 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	q := orderedQueue(t, s, "idle", storage.OrderingSkipDead)
	writeKey(t, s, q.ID, "a", nil, keyRow{position: 1}, keyRow{position: 2, place: placeParked})
	lock, err := openDB(t, openAt(t, path), false).Conn(t.Context())
	require.NoError(t, err)
	_, err = lock.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)
	_, err = s.SweepKeys(t.Context(), storage.SweepKeysParams{Limit: 10})
	require.NoError(t, err)
	_, err = lock.ExecContext(t.Context(), "DELETE FROM message WHERE position = 1")
	require.NoError(t, err)
	_, err = lock.ExecContext(t.Context(), "COMMIT")
	require.NoError(t, err)
	_, err = lock.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)
	_, err = s.SweepKeys(t.Context(), storage.SweepKeysParams{Limit: 10})
	require.ErrorIs(t, err, storage.ErrUnavailable, "with something to do, it needs the lock")
	_, err = lock.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	require.NoError(t, lock.Close())
	res, err := s.SweepKeys(t.Context(), storage.SweepKeysParams{Limit: 10})
	require.NoError(t, err)
	require.Equal(t, []int32{q.ID}, res.Ready)
}

// TestO9_SweepKeysInBatches: one transaction puts a bounded number of keys right.
func TestO9_SweepKeysInBatches(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "q.db"))
	q := orderedQueue(t, s, "batches", storage.OrderingSkipDead)
	const n = 2*upkeepRows + 10
	for i := range n {
		writeKey(t, s, q.ID, fmt.Sprint(i), nil)
	}
	writeKey(t, s, q.ID, "used", nil, keyRow{position: 1, place: placeParked})
	res, err := s.SweepKeys(t.Context(), storage.SweepKeysParams{Limit: n + 1})
	require.NoError(t, err)
	require.Equal(t, n, res.Removed)
	require.Equal(t, []int32{q.ID}, res.Ready)
	require.Equal(t, 1, count(t, s, "SELECT count(*) FROM ordering_key"))
}

// fillKey inserts parked messages of a key with plain SQL, behind a head that is delayed.
func fillKey(t *testing.T, s *Store, queueID int32, key string, n int) {
	t.Helper()
	_, err := s.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: queueID, OrderingKey: key, Delay: time.Hour}}})
	require.NoError(t, err)
	fill(t, s, queueID, n, 0)
	_, err = openDB(t, s, false).ExecContext(t.Context(), `UPDATE message SET place = 2, key_id = (SELECT id FROM ordering_key WHERE queue_id = ?1 AND key = ?2)
		WHERE queue_id = ?1 AND place = 0`, queueID, key)
	require.NoError(t, err)
}

// TestO8_CostOfAnotherKey compares the time of a whole cycle of one message of a key on an
// empty table with that beside a key of very many that are parked. The bound is far above the
// noise and far below a walk over them.
func TestO8_CostOfAnotherKey(t *testing.T) {
	if testing.Short() {
		t.Skip("fills 200,000 rows")
	}
	s := openAt(t, filepath.Join(t.TempDir(), "q.db"))
	q := orderedQueue(t, s, "cost", storage.OrderingSkipDead)
	empty := costOfKey(t, s, q.ID)
	fillKey(t, s, q.ID, "parked", 200_000)
	// What was written so far is not what is measured.
	_, err := openDB(t, s, false).ExecContext(t.Context(), "PRAGMA wal_checkpoint(TRUNCATE)")
	require.NoError(t, err)
	parked := costOfKey(t, s, q.ID)
	t.Logf("a cycle of one keyed message: empty %v, 200k of another key %v", empty, parked)
	require.Less(t, parked, 3*empty+20*time.Millisecond)

	// The crowded key itself moves on at the cost of one message.
	moved := make([]time.Duration, 11)
	for i := range moved {
		var head int64
		require.NoError(t, openDB(t, s, false).QueryRowContext(t.Context(), "SELECT min(position) FROM message").Scan(&head))
		start := time.Now()
		res, err := s.Cancel(t.Context(), storage.CancelParams{QueueID: q.ID, Ref: storage.Ref{QueueID: q.ID, Position: head}})
		moved[i] = time.Since(start)
		require.NoError(t, err)
		require.True(t, res.Ready)
	}
	t.Logf("a cancel of the head of 200k: %v", slices.Min(moved))
	require.Less(t, slices.Min(moved), 3*empty+20*time.Millisecond)
	st, err := s.QueueStats(t.Context(), q.ID)
	require.NoError(t, err)
	require.EqualValues(t, 199_989, st.Blocked)
}

// costOfKey is the best of some cycles of one message of a key of its own: what others do on
// the machine makes some of them slower, and none quicker.
func costOfKey(t *testing.T, s *Store, queueID int32) time.Duration {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	var took []time.Duration
	for i := range 11 {
		start := time.Now()
		_, err := s.Enqueue(ctx, storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: queueID, OrderingKey: fmt.Sprint("other ", i%3)}}})
		require.NoError(t, err)
		c, err := s.Claim(ctx, storage.ClaimParams{QueueID: queueID, Calls: []storage.ClaimCall{{Max: 10, Lease: time.Hour}}})
		require.NoError(t, err)
		require.Len(t, c.Calls[0].Messages, 1)
		m := c.Calls[0].Messages[0]
		st, err := s.Settle(ctx, storage.SettleParams{Items: []storage.Settlement{{Ref: m.Message.Ref, Token: m.Token, Action: storage.ActionComplete}}})
		require.NoError(t, err)
		require.Equal(t, storage.ItemApplied, st.Items[0].Status)
		took = append(took, time.Since(start))
	}
	return slices.Min(took)
}
