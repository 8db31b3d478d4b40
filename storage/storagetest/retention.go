package storagetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// retentionRules check that what has passed its retention is not seen any more,
// whether or not its rows are there, and that its key is free (E5, D6).
func retentionRules() []rule {
	return []rule{
		{name: "E5_D6_a_completed_message_past_its_retention", clocks: settable, run: func(t *testing.T, e *env) {
			retention(t, e, storage.ActionComplete, storage.StateCompleted)
		}},
		{name: "E5_D6_a_dead_message_past_its_retention", clocks: settable, run: func(t *testing.T, e *env) {
			retention(t, e, storage.ActionDeadLetter, storage.StateDead)
		}},
		{name: "E5_D6_dead_messages_without_a_retention_stay", clocks: settable, run: retentionForEver},
		{name: "E5_D6_a_live_message_is_never_past_anything", clocks: settable, run: retentionLive},
		{name: "E5_D6_the_age_counts_from_when_it_finished", clocks: settable, run: retentionFromFinish},
	}
}

func retention(t *testing.T, e *env, a storage.Action, state storage.State) {
	t.Helper()
	s := settings()
	s.CompletedRetention, s.DeadRetention = 2*time.Hour, 2*time.Hour
	e = e.on(e.newQueue(t, s))
	m := e.message(keyed("key", "content"))
	ref := e.enqueue(t, m)[0]
	require.Equal(t, storage.ItemApplied, e.settle(t, settlement(e.claimOne(t), a))[0].Status)

	e.advance(t, 2*time.Hour-e.tick)
	require.NoError(t, e.store.Maintain(t.Context()))
	require.Equal(t, state, e.get(t, ref).State)
	require.Len(t, e.list(t, storage.ListMessagesParams{Limit: 10}), 1)
	got := e.enqueueResult(t, m)[0]
	require.Equal(t, storage.EnqueueDuplicate, got.Status)
	require.Equal(t, state, got.State)
	reused := e.message(keyed("key", "other content"))
	require.Equal(t, storage.EnqueueKeyReused, e.enqueueResult(t, reused)[0].Status)

	e.advance(t, 2*e.tick)
	_, err := e.store.GetMessage(t.Context(), ref, true)
	require.ErrorIs(t, err, storage.ErrMessageNotFound, "hidden, whether or not it is deleted")
	require.Empty(t, e.list(t, storage.ListMessagesParams{Limit: 10}))
	require.Empty(t, e.list(t, storage.ListMessagesParams{Limit: 10, Positions: []int64{ref.Position}}))
	stats, err := e.store.QueueStats(t.Context(), e.queue.ID)
	require.NoError(t, err)
	require.Zero(t, stats.Completed+stats.Dead)

	fresh := e.enqueueResult(t, reused)[0]
	require.Equal(t, storage.EnqueueInserted, fresh.Status, "the key is free again, for any content")
	require.NotEqual(t, ref, fresh.Ref)
	require.Equal(t, storage.EnqueueDuplicate, e.enqueueResult(t, reused)[0].Status)
	require.Equal(t, storage.EnqueueKeyReused, e.enqueueResult(t, m)[0].Status)
	require.Equal(t, []storage.Ref{fresh.Ref}, refsOf(e.claimN(t, 10)))
}

func retentionForEver(t *testing.T, e *env) {
	m := e.message(keyed("key", "content"))
	ref := e.enqueue(t, m)[0]
	require.Equal(t, storage.ItemApplied, e.settle(t, settlement(e.claimOne(t), storage.ActionDeadLetter))[0].Status)
	e.advance(t, 300*time.Hour)
	require.NoError(t, e.store.Maintain(t.Context()))
	require.Equal(t, storage.StateDead, e.get(t, ref).State)
	require.Equal(t, storage.EnqueueDuplicate, e.enqueueResult(t, m)[0].Status)
}

func retentionLive(t *testing.T, e *env) {
	s := settings()
	s.CompletedRetention, s.DeadRetention = 10*time.Minute, time.Minute
	e = e.on(e.newQueue(t, s))
	pending := e.enqueue(t, e.message(keyed("pending", "content"), delay(100*time.Hour)))[0]
	leased := e.enqueue(t, e.message(keyed("leased", "content")))[0]
	c := e.claimOne(t)
	for range 6 {
		e.advance(t, 5*time.Minute)
	}
	require.NoError(t, e.store.Maintain(t.Context()))
	require.Equal(t, storage.StatePending, e.get(t, pending).State)
	require.Equal(t, storage.StateProcessing, e.get(t, leased).State)
	require.Equal(t, storage.EnqueueDuplicate, e.enqueueResult(t, e.message(keyed("pending", "content")))[0].Status)
	require.Equal(t, storage.EnqueueDuplicate, e.enqueueResult(t, e.message(keyed("leased", "content")))[0].Status)
	require.Equal(t, storage.ItemLost, e.settle(t, settlement(c, storage.ActionComplete))[0].Status)
	e.complete(t, e.claimOne(t))
}

func retentionFromFinish(t *testing.T, e *env) {
	m := e.message(keyed("key", "content"))
	ref := e.enqueue(t, m)[0]
	e.advance(t, 10*time.Hour)
	e.complete(t, e.claimOne(t))
	e.advance(t, time.Hour-time.Second)
	require.Equal(t, storage.StateCompleted, e.get(t, ref).State)
	require.Equal(t, storage.EnqueueDuplicate, e.enqueueResult(t, m)[0].Status)
}
