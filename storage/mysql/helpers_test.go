package mysql_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

func settings() storage.QueueSettings {
	return storage.QueueSettings{
		DefaultLease: 30 * time.Second, MinLease: time.Second, MaxLease: 12 * time.Hour, MaxAttempts: 20,
		Retry:    storage.RetryPolicy{Min: time.Second, Max: time.Hour, Multiplier: 2},
		Ordering: storage.OrderingSkipDead, CompletedRetention: time.Hour,
	}
}

func queue(t testing.TB, s storage.Store, name string) storage.Queue {
	t.Helper()
	q, err := s.CreateQueue(t.Context(), name, settings(), 0)
	require.NoError(t, err)
	return q
}

// enqueue inserts n small messages.
func enqueue(t testing.TB, s storage.Store, queueID int32, n int, change ...func(int, *storage.NewMessage)) []storage.Enqueued {
	t.Helper()
	p := storage.EnqueueParams{Messages: make([]storage.NewMessage, n)}
	for i := range p.Messages {
		payload := fmt.Sprintf("message %d", i)
		p.Messages[i] = storage.NewMessage{QueueID: queueID, Payload: []byte(payload), WireBytes: int64(len(payload)) + 100}
		for _, f := range change {
			f(i, &p.Messages[i])
		}
	}
	r, err := s.Enqueue(t.Context(), p)
	require.NoError(t, err)
	require.Len(t, r.Items, n)
	return r.Items
}

// under gives messages an ordering key.
func under(key string) func(int, *storage.NewMessage) {
	return func(_ int, m *storage.NewMessage) { m.OrderingKey = key }
}

func claim(t testing.TB, s storage.Store, queueID int32, n int, lease time.Duration) []storage.Claimed {
	t.Helper()
	r, err := s.Claim(t.Context(), storage.ClaimParams{
		QueueID: queueID, Calls: []storage.ClaimCall{{Max: n, Lease: lease, WorkerID: "w"}},
	})
	require.NoError(t, err)
	require.Len(t, r.Calls, 1)
	return r.Calls[0].Messages
}

func settle(t testing.TB, s storage.Store, items ...storage.Settlement) []storage.Settled {
	t.Helper()
	r, err := s.Settle(t.Context(), storage.SettleParams{Items: items})
	require.NoError(t, err)
	require.Len(t, r.Items, len(items))
	return r.Items
}

func completions(claimed []storage.Claimed) []storage.Settlement {
	out := make([]storage.Settlement, 0, len(claimed))
	for _, c := range claimed {
		out = append(out, storage.Settlement{Ref: c.Message.Ref, Token: c.Token, Action: storage.ActionComplete})
	}
	return out
}

// story sends messages around once, in every way.
func story(t *testing.T, s storage.Store, name string) {
	t.Helper()
	q := queue(t, s, name)
	_, err := s.SetPaused(t.Context(), name, false)
	require.NoError(t, err)
	items := enqueue(t, s, q.ID, 4)
	enqueue(t, s, q.ID, 1, func(_ int, m *storage.NewMessage) {
		m.IdempotencyKey, m.Attributes = "key", map[string]string{"a": "ü"}
	})
	again := enqueue(t, s, q.ID, 1, func(_ int, m *storage.NewMessage) { m.IdempotencyKey = "key" })
	require.Equal(t, storage.EnqueueDuplicate, again[0].Status)
	call := storage.ClaimParams{QueueID: q.ID, Calls: []storage.ClaimCall{{
		Max: 10, Lease: time.Minute, WorkerID: "w", ClaimID: storage.ClaimID{7},
	}}}
	r, err := s.Claim(t.Context(), call)
	require.NoError(t, err)
	claimed := r.Calls[0].Messages
	require.Len(t, claimed, 5)
	require.Equal(t, items[0].Ref, claimed[0].Message.Ref)
	require.Equal(t, "message 3", string(claimed[3].Message.Payload))
	require.Equal(t, map[string]string{"a": "ü"}, claimed[4].Message.Attributes)
	r, err = s.Claim(t.Context(), call)
	require.NoError(t, err)
	require.Equal(t, storage.ClaimReplayed, r.Calls[0].Status)
	require.Len(t, r.Calls[0].Messages, 5)
	renewed, err := s.Renew(t.Context(), storage.RenewParams{Items: []storage.Renewal{{Ref: claimed[4].Message.Ref, Token: claimed[4].Token}}})
	require.NoError(t, err)
	require.Equal(t, storage.ItemApplied, renewed.Items[0].Status)
	todo := completions(claimed)
	todo[1].Action, todo[1].Error = storage.ActionRetry, "later"
	todo[2].Action, todo[2].ReasonCode = storage.ActionDeadLetter, "bad"
	todo[3].Action = storage.ActionRelease
	for i, item := range settle(t, s, todo...) {
		require.Equal(t, storage.ItemApplied, item.Status, "item %d", i)
	}
	for i, item := range settle(t, s, todo...) {
		require.Equal(t, storage.ItemAlreadySettled, item.Status, "item %d", i)
	}
	stats, err := s.QueueStats(t.Context(), q.ID)
	require.NoError(t, err)
	require.EqualValues(t, 2, stats.Completed)
	require.EqualValues(t, 1, stats.Dead)
	page, err := s.ListMessages(t.Context(), storage.ListMessagesParams{QueueID: q.ID, Limit: 100})
	require.NoError(t, err)
	require.Len(t, page.Messages, 5)
	// The messages of a key one after the other, then the row of the key goes.
	ordered := enqueue(t, s, q.ID, 3, under("order"))
	for _, it := range ordered[:2] {
		next := completions(claim(t, s, q.ID, 10, time.Minute))
		next = slices.DeleteFunc(next, func(st storage.Settlement) bool { return st.Ref.Position&1 == 0 })
		require.Len(t, next, 1)
		require.Equal(t, it.Ref, next[0].Ref)
		require.Equal(t, storage.ItemApplied, settle(t, s, next...)[0].Status)
	}
	gone, err := s.Cancel(t.Context(), storage.CancelParams{QueueID: q.ID, Ref: ordered[2].Ref})
	require.NoError(t, err)
	require.Equal(t, storage.StateCancelled, gone.State)
	swept, err := s.SweepKeys(t.Context(), storage.SweepKeysParams{Limit: 100})
	require.NoError(t, err)
	require.Equal(t, 1, swept.Removed)
	_, err = s.Sweep(t.Context(), storage.SweepParams{Limit: 100})
	require.NoError(t, err)
	require.NoError(t, s.Maintain(t.Context()))
	require.NoError(t, s.Ready(t.Context()))
}

// shared claims the messages of a queue from several sides at once: at an isolation level
// other than READ COMMITTED they would fail one another by the dozen.
func shared(t *testing.T, s storage.Store, name string) {
	t.Helper()
	q := queue(t, s, name)
	enqueue(t, s, q.ID, 200)
	type end struct {
		n   int
		err error
	}
	done := make(chan end)
	for range 4 {
		go func() {
			n := 0
			for {
				r, err := s.Claim(t.Context(), storage.ClaimParams{QueueID: q.ID, Calls: []storage.ClaimCall{{Max: 7, Lease: time.Minute}}})
				if err != nil || len(r.Calls[0].Messages) == 0 {
					done <- end{n, err}
					return
				}
				n += len(r.Calls[0].Messages)
			}
		}()
	}
	sum := 0
	for range 4 {
		e := <-done
		require.NoError(t, e.err)
		sum += e.n
	}
	require.LessOrEqual(t, sum, 200)
	require.Equal(t, 200, sum+len(claim(t, s, q.ID, 200, time.Minute)))
}
