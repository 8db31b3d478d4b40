package storagetest

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// ordered sets an ordering key.
func ordered(key string) func(*storage.NewMessage) {
	return func(m *storage.NewMessage) { m.OrderingKey = key }
}

// claimKeyed claims and requires messages in this order.
func (e *env) claimKeyed(t *testing.T, want ...storage.Ref) []storage.Claimed {
	t.Helper()
	got := e.claimN(t, 100)
	require.Equal(t, want, refsOf(got), "what is claimable, in order")
	return got
}

// settleReady settles and requires that every item is applied; it tells whether the queue was
// named as one in which another message became claimable.
func (e *env) settleReady(t *testing.T, items ...storage.Settlement) bool {
	t.Helper()
	res, err := e.store.Settle(t.Context(), storage.SettleParams{Items: items})
	require.NoError(t, err, "settle")
	e.checkNow(t, res.Now)
	for i, got := range res.Items {
		require.Equal(t, storage.ItemApplied, got.Status, "item %d", i)
	}
	return slices.Contains(res.Ready, e.queue.ID)
}

// completeNext completes a head and requires that the next one of its key was named ready.
func (e *env) completeNext(t *testing.T, c storage.Claimed) {
	t.Helper()
	require.True(t, e.settleReady(t, settlement(c, storage.ActionComplete)), "the queue has another message to claim")
}

// checkKeys requires that every key of the queue that has live messages has one head, but for
// the blocked ones, which have none.
func (e *env) checkKeys(t *testing.T, blocked ...string) {
	t.Helper()
	live := map[string]int64{}
	for _, m := range e.list(t, storage.ListMessagesParams{States: []storage.State{storage.StatePending, storage.StateProcessing}, Limit: 100}) {
		live[m.OrderingKey]++
	}
	var want int64
	for key, n := range live {
		if key == "" {
			continue
		}
		want += n
		if !slices.Contains(blocked, key) {
			want-- // its head
		}
	}
	stats, err := e.store.QueueStats(t.Context(), e.queue.ID)
	require.NoError(t, err)
	require.Equal(t, want, stats.Blocked, "O9: messages behind the heads of %v", live)
}

// drain takes and completes everything that can be taken, moving the clock on to what is
// delayed or leased, and returns it in the order of delivery. It fails where something is
// left that never becomes claimable (O9), other than what is named.
func (e *env) drain(t *testing.T, stay ...storage.Ref) []storage.Ref {
	t.Helper()
	var order []storage.Ref
	for idle := 0; idle < 100; {
		e.sweepAll(t, 1000)
		res := e.claimResult(t, storage.ClaimParams{Calls: []storage.ClaimCall{call("drain", 100, time.Hour)}})
		got := res.Calls[0].Messages
		seen := map[string]bool{}
		for _, c := range got {
			key := c.Message.OrderingKey
			require.False(t, key != "" && seen[key], "O3: two of the key %q in a batch", key)
			seen[key] = true
			order = append(order, c.Message.Ref)
			e.complete(t, c)
		}
		if len(got) > 0 {
			idle = 0
			continue
		}
		idle++
		var next time.Time
		left := e.list(t, storage.ListMessagesParams{States: []storage.State{storage.StatePending, storage.StateProcessing}, Limit: 100})
		left = slices.DeleteFunc(left, func(m storage.Message) bool { return slices.Contains(stay, m.Ref) })
		if len(left) == 0 {
			break
		}
		for _, m := range left {
			for _, at := range []time.Time{m.LeaseEnd, m.ReadyTime, m.ExpireTime} {
				if at.After(res.Now) && (next.IsZero() || at.Before(next)) {
					next = at
				}
			}
		}
		require.False(t, next.IsZero(), "O9: neither settled nor ever claimable: %v", left)
		e.waitClock(t, next)
	}
	for _, ref := range stay {
		require.Equal(t, storage.StatePending, e.get(t, ref).State, "%v waits", ref)
	}
	return order
}
