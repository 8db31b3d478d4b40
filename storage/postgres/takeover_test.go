package postgres_test

import (
	"crypto/sha256"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// TestTakeoverOfAFreeKeyRacesADuplicate checks E2 and E5: the message of a key has passed
// its retention, and two enqueues of the key come at once. One of them takes the key over;
// the other one waited for the lock of the key, and must see the new message.
func TestTakeoverOfAFreeKeyRacesADuplicate(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "takeover")
	message := storage.NewMessage{
		QueueID: q.ID, Payload: []byte("x"), WireBytes: 100, IdempotencyKey: "k", ContentHash: sha256.Sum256([]byte("x")),
	}
	params := storage.EnqueueParams{Messages: []storage.NewMessage{message}}
	_, err := d.store.Enqueue(t.Context(), params)
	require.NoError(t, err)
	items := settle(t, d.store, completions(claim(t, d.store, q.ID, 1, time.Minute))...)
	require.Equal(t, storage.ItemApplied, items[0].Status)
	// The completion has passed its retention.
	d.exec(t, "UPDATE queuebox.queue SET completed_retention_us = 0 WHERE queue_id = $1", q.ID)

	// A session holds the key, so that all enqueues reach its lock with their snapshots.
	held := d.connect(t)
	tx, err := held.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT 1 FROM queuebox.idempotency_key WHERE queue_id = $1 FOR UPDATE", q.ID)
	require.NoError(t, err)
	const n = 4
	var wg sync.WaitGroup
	results := make([]storage.EnqueueResult, n)
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { results[i], errs[i] = d.store.Enqueue(t.Context(), params) })
	}
	require.Eventually(t, func() bool {
		return len(d.lines(t, `SELECT 'x' FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`)) == n
	}, time.Minute, time.Millisecond)
	require.NoError(t, tx.Rollback(t.Context()))
	wg.Wait()
	inserted := 0
	for i := range n {
		require.NoError(t, errs[i])
		if results[i].Items[0].Status == storage.EnqueueInserted {
			inserted++
		}
	}
	require.Equal(t, 1, inserted, "one message for one key")
	require.Len(t, d.lines(t, "SELECT position::text FROM queuebox.message WHERE queue_id = $1", q.ID), 1)
}
