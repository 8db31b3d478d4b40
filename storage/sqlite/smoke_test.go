package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/sqlite"
)

func settings() storage.QueueSettings {
	return storage.QueueSettings{
		DefaultLease: 30 * time.Second, MinLease: time.Second, MaxLease: 12 * time.Hour, MaxAttempts: 20,
		Retry:    storage.RetryPolicy{Min: time.Second, Max: time.Hour, Multiplier: 2, Jitter: 0.2},
		Ordering: storage.OrderingSkipDead, CompletedRetention: time.Hour,
	}
}

func openFile(t *testing.T, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestCycle(t *testing.T) {
	ctx := t.Context()
	s := openFile(t, filepath.Join(t.TempDir(), "queue box?#%.db"))
	q, err := s.CreateQueue(ctx, "orders", settings(), 0)
	require.NoError(t, err)
	require.Equal(t, settings(), q.QueueSettings)
	_, err = s.CreateQueue(ctx, "orders", settings(), 0)
	require.ErrorIs(t, err, storage.ErrQueueExists)

	e, err := s.Enqueue(ctx, storage.EnqueueParams{Messages: []storage.NewMessage{
		{QueueID: q.ID, Payload: []byte("a"), Attributes: map[string]string{"k": "ü"}, IdempotencyKey: "x", WireBytes: 10},
		{QueueID: q.ID, Payload: nil, WireBytes: 10},
		{QueueID: q.ID, Payload: []byte("a"), IdempotencyKey: "x", WireBytes: 10},
		{QueueID: q.ID, Payload: []byte("d"), Delay: time.Hour, WireBytes: 10},
	}})
	require.NoError(t, err)
	require.Equal(t, storage.EnqueueDuplicate, e.Items[2].Status)
	require.Equal(t, e.Items[0].Ref, e.Items[2].Ref)

	c, err := s.Claim(ctx, storage.ClaimParams{QueueID: q.ID, Calls: []storage.ClaimCall{
		{Max: 1, Lease: time.Minute, WorkerID: "w1", ClaimID: storage.ClaimID{1}}, {Max: 5, Lease: time.Hour, WorkerID: "w2"},
	}})
	require.NoError(t, err)
	require.Len(t, c.Calls[0].Messages, 1)
	require.Len(t, c.Calls[1].Messages, 1)
	m := c.Calls[0].Messages[0]
	require.Equal(t, map[string]string{"k": "ü"}, m.Message.Attributes)

	rep, err := s.Claim(ctx, storage.ClaimParams{QueueID: q.ID, Calls: []storage.ClaimCall{{Max: 1, Lease: time.Minute, WorkerID: "w1", ClaimID: storage.ClaimID{1}}}})
	require.NoError(t, err)
	require.Equal(t, storage.ClaimReplayed, rep.Calls[0].Status)
	require.Equal(t, c.Calls[0].Messages, rep.Calls[0].Messages)

	empty, err := s.Claim(ctx, storage.ClaimParams{QueueID: q.ID, Calls: []storage.ClaimCall{{Max: 1, Lease: time.Minute}}})
	require.NoError(t, err)
	require.Empty(t, empty.Calls[0].Messages)
	require.False(t, empty.NextReady.IsZero())

	r, err := s.Renew(ctx, storage.RenewParams{Items: []storage.Renewal{{Ref: m.Message.Ref, Token: m.Token, MaxLease: time.Hour}}})
	require.NoError(t, err)
	require.Equal(t, storage.ItemApplied, r.Items[0].Status)

	m2 := c.Calls[1].Messages[0]
	st, err := s.Settle(ctx, storage.SettleParams{Items: []storage.Settlement{
		{Ref: m.Message.Ref, Token: m.Token, Action: storage.ActionComplete},
		{Ref: m2.Message.Ref, Token: m2.Token, Action: storage.ActionRetry, Error: "boom"},
		{Ref: m2.Message.Ref, Token: m2.Token, Action: storage.ActionRetry, Error: "boom"},
		{Ref: m2.Message.Ref, Token: m2.Token, Action: storage.ActionComplete},
		{Ref: storage.Ref{QueueID: q.ID, Position: 999}, Token: m2.Token, Action: storage.ActionComplete},
	}})
	require.NoError(t, err)
	require.Equal(t, storage.ItemApplied, st.Items[0].Status)
	require.Equal(t, storage.ItemApplied, st.Items[1].Status)
	require.Equal(t, storage.ItemAlreadySettled, st.Items[2].Status)
	require.Equal(t, st.Items[1].AvailableTime, st.Items[2].AvailableTime)
	require.Equal(t, storage.ItemSettled, st.Items[3].Status)
	require.Equal(t, storage.ItemNotFound, st.Items[4].Status)

	l, err := s.ListMessages(ctx, storage.ListMessagesParams{QueueID: q.ID, Limit: 2, Payload: true})
	require.NoError(t, err)
	require.Len(t, l.Messages, 2)
	require.NotZero(t, l.Next)
	l, err = s.ListMessages(ctx, storage.ListMessagesParams{QueueID: q.ID, Limit: 2, Before: l.Next})
	require.NoError(t, err)
	require.Len(t, l.Messages, 1)
	require.Zero(t, l.Next)
	require.Equal(t, storage.StateCompleted, l.Messages[0].State)
	stats, err := s.QueueStats(ctx, q.ID)
	require.NoError(t, err)
	require.EqualValues(t, 1, stats.Completed)
	require.EqualValues(t, 2, stats.Delayed)
	require.NoError(t, s.Ready(ctx))
	require.NoError(t, s.Maintain(ctx))
}
