package mysql_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// E6: a statement of many callers waits for an ordering key that somebody holds no longer than
// it was told, though the database counts such a wait in seconds, and tells who needs that key.
func TestE6AJoinedCallWaitsForNoHeldOrderingKey(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "keys")
	message := func(key string) storage.NewMessage {
		return storage.NewMessage{QueueID: q.ID, OrderingKey: key, Payload: []byte("x")}
	}
	ms := []storage.NewMessage{message("held"), message("free"), message("free too")}
	_, err := d.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: ms})
	require.NoError(t, err)
	claims, err := d.store.Claim(t.Context(), storage.ClaimParams{QueueID: q.ID, Calls: []storage.ClaimCall{{Max: 3, Lease: time.Hour}}})
	require.NoError(t, err)
	items := make([]storage.Settlement, 0, len(ms))
	for _, c := range claims.Calls[0].Messages {
		items = append(items, storage.Settlement{Ref: c.Message.Ref, Token: c.Token, Action: storage.ActionComplete})
	}
	require.Len(t, items, 3)

	holder := d.begin(t)
	holder.lockKey(t, q.ID, "held")
	// The database itself would wait two seconds.
	const soonest = time.Second
	const wait = 20 * time.Millisecond
	start := time.Now()
	_, err = d.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: ms, LockWait: wait})
	require.ErrorIs(t, err, storage.ErrLocked)
	res, err := d.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: ms, LockWait: wait, FindHeld: true})
	require.NoError(t, err)
	require.Equal(t, []storage.EnqueueStatus{storage.EnqueueHeld, 0, 0},
		[]storage.EnqueueStatus{res.Items[0].Status, res.Items[1].Status, res.Items[2].Status})
	settled, err := d.store.Settle(t.Context(), storage.SettleParams{Items: items, LockWait: wait})
	require.NoError(t, err)
	only, err := d.store.Settle(t.Context(), storage.SettleParams{Items: items[:1], LockWait: wait})
	require.NoError(t, err)
	require.Less(t, time.Since(start), soonest)
	require.Equal(t, []storage.ItemStatus{storage.ItemHeld, storage.ItemApplied, storage.ItemApplied},
		[]storage.ItemStatus{settled.Items[0].Status, settled.Items[1].Status, settled.Items[2].Status})
	require.Equal(t, storage.ItemHeld, only.Items[0].Status)
	require.False(t, only.Now.IsZero())
	require.Equal(t, "1", d.lines(t, "SELECT COUNT(*) FROM message")[0], "nothing was inserted")

	holder.run(t, "ROLLBACK")
	settled, err = d.store.Settle(t.Context(), storage.SettleParams{Items: items, LockWait: wait})
	require.NoError(t, err)
	require.Equal(t, []storage.ItemStatus{storage.ItemApplied, storage.ItemAlreadySettled, storage.ItemAlreadySettled},
		[]storage.ItemStatus{settled.Items[0].Status, settled.Items[1].Status, settled.Items[2].Status})
	_, err = d.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: ms, LockWait: wait})
	require.NoError(t, err)
}
