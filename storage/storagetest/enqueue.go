package storagetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// enqueueRules check E1, E3 to E5, E7's delay and E9.
func enqueueRules() []rule {
	return []rule{
		{name: "E1_the_same_key_twice_is_one_row", clocks: settable, run: enqueueTwice},
		{name: "E1_whatever_the_state_of_the_message", clocks: settable, run: enqueueAnyState},
		{name: "E1_the_same_key_twice_in_one_call", clocks: bothClocks, run: enqueueTwiceInOne},
		{name: "E1_a_duplicate_between_new_messages", clocks: bothClocks, run: enqueueMixed},
		{name: "E1_the_duplicate_through_another_store", clocks: bothClocks, run: enqueueElsewhere},
		{name: "E3_the_same_key_with_other_content_is_refused", clocks: settable, run: enqueueReused},
		{name: "E3_E9_one_reused_key_leaves_the_whole_call_out", clocks: bothClocks, run: enqueueReusedBatch},
		{name: "E3_two_contents_under_one_key_in_one_call", clocks: bothClocks, run: enqueueReusedInOne},
		{name: "E4_another_queue_is_another_key", clocks: bothClocks, run: enqueueOtherQueue},
		{name: "E7_a_delay_hides_the_message_until_then", clocks: settable, run: enqueueDelay},
		{name: "E7_the_past_means_now", clocks: settable, run: enqueuePast},
		{name: "E9_all_or_nothing_and_in_order", clocks: bothClocks, run: enqueueAtomic},
		{name: "E9_a_call_that_fails_inserts_nothing", clocks: bothClocks, run: enqueueFails},
		{name: "the_limit_of_attempts_is_stored_at_enqueue", clocks: bothClocks, run: enqueueMaxAttempts},
		{name: "E9_an_empty_call", clocks: bothClocks, run: enqueueNothing},
	}
}

func (e *env) enqueueResult(t *testing.T, ms ...storage.NewMessage) []storage.Enqueued {
	t.Helper()
	res, err := e.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: ms})
	require.NoError(t, err, "enqueue")
	require.Len(t, res.Items, len(ms))
	e.checkNow(t, res.Now)
	return res.Items
}

func enqueueTwice(t *testing.T, e *env) {
	m := e.message(keyed("key", "content"))
	first := e.enqueueResult(t, m)[0]
	require.Equal(t, storage.EnqueueInserted, first.Status)
	require.Equal(t, storage.StatePending, first.State)
	sameTime(t, e.now, first.ReadyTime, "ready time")
	e.advance(t, time.Minute)
	e.unchanged(t, func() {
		again := e.enqueueResult(t, m)[0]
		require.Equal(t, storage.EnqueueDuplicate, again.Status)
		require.Equal(t, first.Ref, again.Ref, "the answer names the row")
		require.Equal(t, storage.StatePending, again.State)
	})
	require.Equal(t, []storage.Ref{first.Ref}, refsOf(e.claimN(t, 10)))
	require.Equal(t, "key", e.get(t, first.Ref).IdempotencyKey)
	// Messages without a key are never the same.
	require.Len(t, e.enqueue(t, e.message(), e.message()), 2)
}

func enqueueAnyState(t *testing.T, e *env) {
	m := e.message(keyed("key", "content"))
	ref := e.enqueue(t, m)[0]
	same := func(state storage.State) {
		t.Helper()
		got := e.enqueueResult(t, m)[0]
		require.Equal(t, storage.EnqueueDuplicate, got.Status)
		require.Equal(t, ref, got.Ref)
		require.Equal(t, state, got.State)
	}
	e.claimOneAs(t, "A", 10*time.Second)
	same(storage.StateProcessing)
	e.advance(t, 10*time.Second)
	same(storage.StateProcessing)
	c := e.claimOne(t)
	require.Equal(t, storage.ItemApplied, e.settle(t, settlement(c, storage.ActionRetry))[0].Status)
	same(storage.StatePending)
	e.advance(t, time.Minute)
	e.complete(t, e.claimOne(t))
	same(storage.StateCompleted)

	dead := e.message(keyed("dead", "content"))
	ref, m = e.enqueue(t, dead)[0], dead
	require.Equal(t, storage.ItemApplied, e.settle(t, settlement(e.claimOne(t), storage.ActionDeadLetter))[0].Status)
	same(storage.StateDead)
	e.claimNothing(t)
}

func enqueueTwiceInOne(t *testing.T, e *env) {
	m := e.message(keyed("key", "content"))
	got := e.enqueueResult(t, m, e.message(), m)
	require.Equal(t, storage.EnqueueInserted, got[0].Status)
	require.Equal(t, storage.EnqueueInserted, got[1].Status)
	require.Equal(t, storage.EnqueueDuplicate, got[2].Status)
	require.Equal(t, got[0].Ref, got[2].Ref)
	require.Len(t, e.claimN(t, 10), 2)
}

func enqueueMixed(t *testing.T, e *env) {
	m := e.message(keyed("key", "content"))
	first := e.enqueue(t, m)[0]
	got := e.enqueueResult(t, e.message(), m, e.message(keyed("other", "content")), e.message())
	require.Equal(t, storage.EnqueueInserted, got[0].Status)
	require.Equal(t, storage.EnqueueDuplicate, got[1].Status)
	require.Equal(t, first, got[1].Ref)
	require.Equal(t, storage.EnqueueInserted, got[2].Status)
	require.Equal(t, storage.EnqueueInserted, got[3].Status)
	require.Equal(t, []storage.Ref{first, got[0].Ref, got[2].Ref, got[3].Ref}, refsOf(e.claimN(t, 10)))
}

func enqueueElsewhere(t *testing.T, e *env) {
	other := e.through(e.other)
	m := e.message(keyed("key", "content"))
	first := e.enqueue(t, m)[0]
	again := other.enqueueResult(t, m)[0]
	require.Equal(t, storage.EnqueueDuplicate, again.Status)
	require.Equal(t, first, again.Ref)
}

func enqueueReused(t *testing.T, e *env) {
	first := e.enqueue(t, e.message(keyed("key", "content")))[0]
	reused := e.message(keyed("key", "other content"))
	refusedNow := func() {
		t.Helper()
		e.unchanged(t, func() {
			got := e.enqueueResult(t, reused)[0]
			require.Equal(t, storage.EnqueueKeyReused, got.Status)
			require.Equal(t, first, got.Ref, "the message that holds the key")
		})
	}
	refusedNow()
	c := e.claimOne(t)
	refusedNow()
	e.complete(t, c)
	refusedNow()
}

func enqueueReusedBatch(t *testing.T, e *env) {
	first := e.enqueue(t, e.message(keyed("key", "content")))[0]
	e.unchanged(t, func() {
		got := e.enqueueResult(t,
			e.message(), e.message(keyed("fresh", "content")), e.message(keyed("key", "other")), e.message(keyed("key", "content")))
		require.Equal(t, storage.EnqueueKeyReused, got[2].Status)
		require.Equal(t, first, got[2].Ref)
		for i := range []int{0, 1, 3} {
			require.NotEqual(t, storage.EnqueueKeyReused, got[[]int{0, 1, 3}[i]].Status)
		}
	})
	// The fresh key was not taken.
	require.Equal(t, storage.EnqueueInserted, e.enqueueResult(t, e.message(keyed("fresh", "another")))[0].Status)
}

func enqueueReusedInOne(t *testing.T, e *env) {
	e.unchanged(t, func() {
		got := e.enqueueResult(t, e.message(keyed("key", "one")), e.message(keyed("key", "two")))
		require.Equal(t, storage.EnqueueKeyReused, got[1].Status)
	})
}

func enqueueOtherQueue(t *testing.T, e *env) {
	other := e.on(e.newQueue(t, settings()))
	a, b := e.one(t, keyed("key", "content")), other.one(t, keyed("key", "another"))
	require.NotEqual(t, a, b)
	got := e.enqueueResult(t, other.message(keyed("key", "another")), e.message(keyed("key", "content")))
	require.Equal(t, storage.EnqueueDuplicate, got[0].Status)
	require.Equal(t, b, got[0].Ref)
	require.Equal(t, storage.EnqueueDuplicate, got[1].Status)
	require.Equal(t, a, got[1].Ref)
	// In one call too: the same key in two queues is two messages.
	e.enqueue(t, e.message(keyed("both", "x")), other.message(keyed("both", "y")))
}

func enqueueDelay(t *testing.T, e *env) {
	ready := e.now.Add(90 * time.Second)
	got := e.enqueueResult(t, e.message(delay(90*time.Second)),
		e.message(func(m *storage.NewMessage) { m.AvailableTime = ready }))
	for _, item := range got {
		require.Equal(t, storage.EnqueueInserted, item.Status)
		sameTime(t, ready, item.ReadyTime, "the answer")
		m := e.get(t, item.Ref)
		sameTime(t, ready, m.ReadyTime, "the row")
		sameTime(t, e.now, m.CreateTime, "create time")
		require.Equal(t, storage.StatePending, m.State)
	}
	e.claimNothing(t)
	e.advanceTo(t, ready.Add(-e.tick))
	e.claimNothing(t)
	e.advanceTo(t, ready)
	require.Len(t, e.claimN(t, 10), 2)
}

func enqueuePast(t *testing.T, e *env) {
	for _, past := range []time.Time{e.now, e.now.Add(-e.tick), e.now.Add(-time.Hour), time.Unix(1, 0)} {
		got := e.enqueueResult(t, e.message(func(m *storage.NewMessage) { m.AvailableTime = past }))[0]
		sameTime(t, e.now, got.ReadyTime, "the past means now")
		require.Equal(t, got.Ref, e.claimOne(t).Message.Ref)
	}
}

func enqueueAtomic(t *testing.T, e *env) {
	ms := make([]storage.NewMessage, 20)
	for i := range ms {
		ms[i] = e.message(payload([]byte{byte(i)}))
	}
	refs := e.enqueue(t, ms...)
	cs := e.claimN(t, 100)
	require.Equal(t, refs, refsOf(cs))
	for i, c := range cs {
		require.Equal(t, []byte{byte(i)}, c.Message.Payload, "answers in order")
	}
}

func enqueueFails(t *testing.T, e *env) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e.unchanged(t, func() {
		_, err := e.store.Enqueue(ctx, storage.EnqueueParams{
			Messages: []storage.NewMessage{e.message(), e.message(keyed("key", "content"))},
		})
		require.ErrorIs(t, err, storage.ErrUnavailable)
	})
	// A queue that is not there fails its whole call.
	e.unchanged(t, func() {
		lost := e.message()
		lost.QueueID = 1 << 30
		_, err := e.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{e.message(), lost}})
		require.ErrorIs(t, err, storage.ErrQueueNotFound)
	})
}

func enqueueMaxAttempts(t *testing.T, e *env) {
	refs := e.enqueue(t, e.message(), e.message(maxAttempts(3)))
	require.EqualValues(t, 20, e.get(t, refs[0]).MaxAttempts, "that of the queue")
	require.EqualValues(t, 3, e.get(t, refs[1]).MaxAttempts, "its own")
	s := settings()
	s.MaxAttempts = 7
	_, err := e.store.UpdateQueue(t.Context(), e.queue.Name, s, 0)
	require.NoError(t, err)
	require.EqualValues(t, 20, e.get(t, refs[0]).MaxAttempts, "stored at enqueue")
	require.EqualValues(t, 7, e.get(t, e.one(t)).MaxAttempts)
}

func enqueueNothing(t *testing.T, e *env) {
	e.unchanged(t, func() { require.Empty(t, e.enqueueResult(t)) })
}
