package storagetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// adminRules check what operators do with queues, and what a server asks a store
// about itself.
func adminRules() []rule {
	return []rule{
		{name: "a_queue_keeps_all_its_settings", clocks: settable, run: queueSettings},
		{name: "a_name_is_taken_once", clocks: bothClocks, run: queueExists},
		{name: "the_number_of_queues_is_bounded", clocks: bothClocks, run: queueLimit},
		{name: "an_update_needs_the_present_version", clocks: settable, run: queueVersions},
		{name: "a_pause_raises_the_version_where_it_changes_something", clocks: bothClocks, run: queuePause},
		{name: "E11_queues_are_listed_by_bytes_in_pages", clocks: bothClocks, run: queuePages},
		{name: "unknown_queues_are_told", clocks: bothClocks, run: queueUnknown},
		{name: "stats_count_every_state", clocks: settable, run: queueStats},
		{name: "D11_now_is_the_storage_clock", clocks: settable, run: storageNow},
		{name: "D7_ready_on_a_fresh_database", clocks: bothClocks, run: storageReady},
		{name: "D5_another_store_sees_the_same", clocks: bothClocks, run: anotherStore},
		{name: "maintenance_breaks_no_promise", clocks: settable, run: maintain},
	}
}

func odd() storage.QueueSettings {
	return storage.QueueSettings{
		Paused:       true,
		DefaultLease: 1234 * time.Millisecond, MinLease: 7 * time.Millisecond, MaxLease: 7 * 24 * time.Hour,
		MaxAttempts:        3,
		Retry:              storage.RetryPolicy{Min: 1500 * time.Millisecond, Max: 90 * time.Minute, Multiplier: 1.25, Jitter: 0.375},
		MaxInFlight:        17,
		MaxClaimsPerSecond: 0.5,
		Ordering:           storage.OrderingBlockOnDead,
		CompletedRetention: 36 * time.Hour,
		DeadRetention:      90 * 24 * time.Hour,
		MaxMessages:        1 << 40,
	}
}

func queueSettings(t *testing.T, e *env) {
	q, err := e.store.CreateQueue(t.Context(), "odd", odd(), 0)
	require.NoError(t, err)
	require.Equal(t, odd(), q.QueueSettings)
	require.Positive(t, q.ID)
	require.Positive(t, q.Version)
	sameTime(t, e.now, q.CreateTime, "create time")
	byName, err := e.store.GetQueue(t.Context(), "odd")
	require.NoError(t, err)
	require.Equal(t, q, byName)
	byID, err := e.store.GetQueueByID(t.Context(), q.ID)
	require.NoError(t, err)
	require.Equal(t, q, byID)
	listed, err := e.store.ListQueues(t.Context(), "odc", 1)
	require.NoError(t, err)
	require.Equal(t, []storage.Queue{q}, listed)

	// And every one of them can be changed.
	e.advance(t, time.Minute)
	updated, err := e.store.UpdateQueue(t.Context(), "odd", settings(), q.Version)
	require.NoError(t, err)
	require.Equal(t, settings(), updated.QueueSettings)
	require.Greater(t, updated.Version, q.Version)
	require.Equal(t, q.ID, updated.ID)
	sameTime(t, q.CreateTime, updated.CreateTime, "create time")
	again, err := e.store.GetQueue(t.Context(), "odd")
	require.NoError(t, err)
	require.Equal(t, updated, again)
}

func queueExists(t *testing.T, e *env) {
	e.unchanged(t, func() {
		_, err := e.store.CreateQueue(t.Context(), e.queue.Name, odd(), 0)
		require.ErrorIs(t, err, storage.ErrQueueExists)
	})
	got, err := e.store.GetQueue(t.Context(), e.queue.Name)
	require.NoError(t, err)
	require.Equal(t, settings(), got.QueueSettings)
}

func queueLimit(t *testing.T, e *env) {
	all, err := e.store.ListQueues(t.Context(), "", 1000)
	require.NoError(t, err)
	e.unchanged(t, func() {
		_, err = e.store.CreateQueue(t.Context(), "one-too-many", settings(), len(all))
		require.ErrorIs(t, err, storage.ErrQueueLimit)
	})
	_, err = e.store.CreateQueue(t.Context(), "the-last", settings(), len(all)+1)
	require.NoError(t, err)
	_, err = e.store.CreateQueue(t.Context(), "one-too-many", settings(), len(all)+1)
	require.ErrorIs(t, err, storage.ErrQueueLimit)
	_, err = e.store.CreateQueue(t.Context(), "the-last", settings(), len(all)+1)
	require.ErrorIs(t, err, storage.ErrQueueExists, "a queue that is there is no new one")
	_, err = e.store.CreateQueue(t.Context(), "no-bound", settings(), 0)
	require.NoError(t, err)
}

func queueVersions(t *testing.T, e *env) {
	s := settings()
	s.MaxAttempts = 4
	q1, err := e.store.UpdateQueue(t.Context(), e.queue.Name, s, e.queue.Version)
	require.NoError(t, err)
	require.Greater(t, q1.Version, e.queue.Version)
	e.unchanged(t, func() {
		_, err = e.store.UpdateQueue(t.Context(), e.queue.Name, settings(), e.queue.Version)
		require.ErrorIs(t, err, storage.ErrVersionMismatch)
		_, err = e.store.UpdateQueue(t.Context(), e.queue.Name, settings(), q1.Version+1)
		require.ErrorIs(t, err, storage.ErrVersionMismatch)
	})
	q2, err := e.store.UpdateQueue(t.Context(), e.queue.Name, settings(), 0)
	require.NoError(t, err, "0 updates whatever is there")
	require.Greater(t, q2.Version, q1.Version)
	_, err = e.store.UpdateQueue(t.Context(), e.queue.Name, s, q1.Version)
	require.ErrorIs(t, err, storage.ErrVersionMismatch)
}

func queuePause(t *testing.T, e *env) {
	paused, err := e.store.SetPaused(t.Context(), e.queue.Name, true)
	require.NoError(t, err)
	require.True(t, paused.Paused)
	require.Greater(t, paused.Version, e.queue.Version)
	again, err := e.store.SetPaused(t.Context(), e.queue.Name, true)
	require.NoError(t, err)
	require.Equal(t, paused, again, "nothing changed, so the version stays")
	resumed, err := e.store.SetPaused(t.Context(), e.queue.Name, false)
	require.NoError(t, err)
	require.False(t, resumed.Paused)
	require.Greater(t, resumed.Version, paused.Version)
	require.Equal(t, settings(), resumed.QueueSettings, "no other setting changed")
}

func queuePages(t *testing.T, e *env) {
	names := []string{"page", "page ", "page/", "pageA", "pagea", "page\u00e9", "page\uFFFD", "page\U0001F600", "pagf"}
	for i := range 11 {
		names = append(names, fmt.Sprintf("page-%02d", i))
	}
	for _, name := range names {
		_, err := e.store.CreateQueue(t.Context(), name, settings(), 0)
		require.NoError(t, err)
	}
	slices.Sort(names) // Go compares strings by bytes.
	var got []string
	after := "pag"
	for {
		page, err := e.store.ListQueues(t.Context(), after, 3)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), 3)
		if len(page) == 0 {
			break
		}
		for _, q := range page {
			after = q.Name
			if q.Name <= "pagf" {
				got = append(got, q.Name)
			}
		}
		if after > "pagf" {
			break
		}
	}
	require.Equal(t, names, got)
}

func queueUnknown(t *testing.T, e *env) {
	e.unchanged(t, func() {
		_, err := e.store.GetQueue(t.Context(), "no such queue")
		require.ErrorIs(t, err, storage.ErrQueueNotFound)
		_, err = e.store.GetQueueByID(t.Context(), 1<<30)
		require.ErrorIs(t, err, storage.ErrQueueNotFound)
		_, err = e.store.UpdateQueue(t.Context(), "no such queue", settings(), 0)
		require.ErrorIs(t, err, storage.ErrQueueNotFound)
		_, err = e.store.UpdateQueue(t.Context(), "no such queue", settings(), 1)
		require.ErrorIs(t, err, storage.ErrQueueNotFound)
		_, err = e.store.SetPaused(t.Context(), "no such queue", true)
		require.ErrorIs(t, err, storage.ErrQueueNotFound)
	})
}

func queueStats(t *testing.T, e *env) {
	stats := func() storage.QueueStats {
		t.Helper()
		s, err := e.store.QueueStats(t.Context(), e.queue.ID)
		require.NoError(t, err)
		sameTime(t, e.now, s.AsOf, "as of")
		if !s.OldestReady.IsZero() {
			require.Equal(t, time.UTC, s.OldestReady.Location())
		}
		s.AsOf = time.Time{}
		return s
	}
	require.Equal(t, storage.QueueStats{}, stats(), "an empty queue")
	e.on(e.newQueue(t, settings())).many(t, 3) // another queue is not counted
	e.many(t, 10)
	oldest := e.now
	e.advance(t, time.Second)
	e.many(t, 2, delay(time.Minute))
	require.Equal(t, storage.QueueStats{Ready: 10, Delayed: 2, OldestReady: oldest}, stats())

	short := e.claimAs(t, "A", 2, 10*time.Second)
	long := e.claimAs(t, "A", 5, time.Hour)
	require.Equal(t, storage.QueueStats{Ready: 3, Delayed: 2, Leased: 7, OldestReady: oldest}, stats())
	e.complete(t, long[0])
	e.complete(t, long[1])
	require.Equal(t, storage.ItemApplied, e.settle(t, settlement(long[2], storage.ActionDeadLetter))[0].Status)
	retry := settlement(long[3], storage.ActionRetry)
	retry.Delay = time.Minute
	require.Equal(t, storage.ItemApplied, e.settle(t, retry)[0].Status)
	require.Equal(t, storage.QueueStats{Ready: 3, Delayed: 3, Leased: 3, Completed: 2, Dead: 1, OldestReady: oldest}, stats())
	e.advance(t, 10*time.Second)
	require.Equal(t, storage.QueueStats{Ready: 3, Delayed: 3, Leased: 1, LeaseExpired: 2, Completed: 2, Dead: 1, OldestReady: oldest}, stats())
	require.Len(t, e.claimAs(t, "B", 5, time.Hour), 5, "three ready and two expired")
	require.Equal(t, storage.QueueStats{Delayed: 3, Leased: 6, Completed: 2, Dead: 1}, stats())
	require.Equal(t, storage.ItemLost, e.settle(t, settlement(short[0], storage.ActionComplete))[0].Status)
	e.advance(t, time.Minute)
	s := stats()
	require.EqualValues(t, 3, s.Ready, "delayed messages that are ready are ready, moved or not")
	require.Zero(t, s.Delayed)
	sameTime(t, oldest.Add(time.Second+time.Minute), s.OldestReady, "the oldest ready time")
}

func storageNow(t *testing.T, e *env) {
	for range 3 {
		e.advance(t, e.tick)
		now, err := e.store.Now(t.Context())
		require.NoError(t, err)
		sameTime(t, e.now, now, "Now")
	}
}

func storageReady(t *testing.T, e *env) {
	require.NoError(t, e.store.Ready(t.Context()))
	require.Equal(t, e.caps, e.store.Capabilities(), "they never change")
	require.NotEmpty(t, e.caps.Durability)
	require.NotEmpty(t, e.caps.Version)
}

func anotherStore(t *testing.T, e *env) {
	other := e.through(e.other)
	require.Equal(t, e.caps.Name, other.store.Capabilities().Name)
	require.NoError(t, other.store.Ready(t.Context()))
	ref := e.one(t)
	require.Equal(t, e.get(t, ref), other.get(t, ref))
	c := other.claimOneAs(t, "B", time.Hour)
	require.Equal(t, ref, c.Message.Ref)
	e.claimNothing(t)
	require.Equal(t, storage.ItemApplied, e.renew(t, renewal(c, time.Hour))[0].Status, "a claim holds on every server")
	e.complete(t, c)
	require.Equal(t, storage.StateCompleted, other.get(t, ref).State)
}

func maintain(t *testing.T, e *env) {
	e.many(t, 6)
	first := e.claimWithID(t, "A", claimID(1), 2)
	for i, a := range actions {
		c := e.claimOneAs(t, "B", time.Hour)
		require.Equal(t, storage.ItemApplied, e.settle(t, settlement(c, a.action))[0].Status, "%d", i)
	}
	e.one(t, keyed("key", "content"))
	for range 2 {
		require.NoError(t, e.store.Maintain(t.Context()))
	}
	again := e.claimWithID(t, "A", claimID(1), 2)
	require.Equal(t, storage.ClaimReplayed, again.Status)
	require.Equal(t, first.Messages, again.Messages)
	require.Equal(t, storage.EnqueueDuplicate, e.enqueueResult(t, e.message(keyed("key", "content")))[0].Status)

	// A claim that is renewed keeps its claim id for as long as a client would repeat.
	for range 20 {
		e.advance(t, 20*time.Second)
		require.Equal(t, storage.ItemApplied, e.renew(t, renewal(first.Messages[0], lease))[0].Status)
	}
	require.NoError(t, e.store.Maintain(t.Context()))
	again = e.claimWithID(t, "A", claimID(1), 2)
	require.Equal(t, storage.ClaimReplayed, again.Status)
	require.Equal(t, refsOf(first.Messages[:1]), refsOf(again.Messages))
}
