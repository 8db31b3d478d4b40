package storagetest

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// countRules check the counts that are taken beside, by one store at a time, and kept for
// everybody (L3).
func countRules() []rule {
	return []rule{
		{name: "L3_counts_are_kept_for_every_server", clocks: settable, run: countsKept},
		{name: "L3_counts_of_one_queue_are_taken_at_once", clocks: bothClocks, run: countsOfOne},
		{name: "L3_counts_of_many_messages", clocks: settable, run: countsOfMany},
		{name: "L3_one_store_counts_at_a_time", clocks: bothClocks, run: countsByOne},
		{name: "L3_E7_an_expired_message_is_not_ready", clocks: settable, run: countsExpired},
		{name: "L3_counts_of_unknown_queues", clocks: bothClocks, run: countsUnknown},
	}
}

func (e *env) stored(t *testing.T) storage.QueueStats {
	t.Helper()
	st, err := e.store.StoredStats(t.Context(), e.queue.ID)
	require.NoError(t, err)
	return st
}

// count counts all queues and tells how many those were.
func (e *env) count(t *testing.T, queues ...int32) int {
	t.Helper()
	res, err := e.store.Count(t.Context(), storage.CountParams{Queues: queues})
	require.NoError(t, err)
	return res.Counted
}

func countsKept(t *testing.T, e *env) {
	e.advance(t, time.Hour)
	e.many(t, 5)
	e.one(t, delay(time.Minute))
	e.complete(t, e.claimOne(t))
	e.claimOne(t)
	other := e.through(e.other)
	require.Equal(t, storage.QueueStats{}, e.stored(t), "nobody has counted yet")
	require.GreaterOrEqual(t, e.count(t), 1)
	want, err := e.store.QueueStats(t.Context(), e.queue.ID)
	require.NoError(t, err)
	require.Equal(t, want, e.stored(t))
	require.Equal(t, want, other.stored(t))
	require.EqualValues(t, 3, want.Ready)
	require.EqualValues(t, 5, want.Live())
	sameTime(t, e.now, want.AsOf, "as of")

	// It is not time yet, for nobody.
	e.many(t, 2)
	e.unchanged(t, func() {
		require.Zero(t, e.count(t))
		require.Zero(t, other.count(t))
	})
	e.advance(t, storage.CountEvery-e.tick)
	require.Zero(t, other.count(t))
	// After a rest, whoever comes first counts.
	e.advance(t, time.Hour)
	require.GreaterOrEqual(t, other.count(t), 1)
	require.EqualValues(t, 6, e.stored(t).Ready)
	sameTime(t, e.now, e.stored(t).AsOf, "as of")
}

func countsOfOne(t *testing.T, e *env) {
	for n := int64(1); n < 4; n++ {
		e.one(t)
		require.Equal(t, 1, e.count(t, e.queue.ID), "whether or not it is time")
		require.Equal(t, n, e.stored(t).Ready)
	}
	other := e.newQueue(t, settings())
	require.Equal(t, 1, e.count(t, other.ID))
	require.Zero(t, e.on(other).stored(t).Live())
	require.False(t, e.on(other).stored(t).AsOf.IsZero(), "an empty queue has counts too")
}

// countsOfMany has more rows of each kind than a page of counting.
func countsOfMany(t *testing.T, e *env) {
	const n = 1100
	e.advance(t, time.Hour)
	for range 3 {
		e.many(t, 1000)
	}
	e.many(t, 300)
	for _, a := range []storage.Action{storage.ActionComplete, storage.ActionDeadLetter} {
		for left := n; left > 0; {
			got := e.claimN(t, min(left, 550))
			items := make([]storage.Settlement, len(got))
			for i, c := range got {
				items[i] = settlement(c, a)
			}
			for _, s := range e.settle(t, items...) {
				require.Equal(t, storage.ItemApplied, s.Status)
			}
			left -= len(got)
		}
	}
	require.Len(t, e.claimN(t, 50), 50)
	small := e.on(e.newQueue(t, settings()))
	small.many(t, 3)
	require.GreaterOrEqual(t, e.count(t), 2)
	st := e.stored(t)
	require.Equal(t, [5]int64{n - 50, 50, n, n, n}, [5]int64{st.Ready, st.Leased, st.Completed, st.Dead, st.Live()})
	require.EqualValues(t, 3, small.stored(t).Ready)
}

func countsByOne(t *testing.T, e *env) {
	if e.settable() {
		e.advance(t, time.Hour)
	} else {
		// It is time again at some time soon.
		eventually(t, "it is time to count", func() bool { return e.count(t) > 0 })
		eventually(t, "it is time to count again", func() bool {
			e.one(t)
			return e.through(e.other).count(t) > 0
		})
		return
	}
	e.many(t, 3)
	var mu sync.Mutex
	var wg sync.WaitGroup
	counted := 0
	for i := range 8 {
		s := []storage.Store{e.store, e.other}[i%2]
		wg.Go(func() {
			res, err := s.Count(t.Context(), storage.CountParams{})
			mu.Lock()
			defer mu.Unlock()
			if err == nil && res.Counted > 0 {
				counted++
			}
		})
	}
	wg.Wait()
	require.Equal(t, 1, counted)
	require.EqualValues(t, 3, e.stored(t).Ready)
}

func countsExpired(t *testing.T, e *env) {
	e.one(t, func(m *storage.NewMessage) { m.ExpireTime = e.now.Add(time.Minute) })
	e.one(t)
	e.count(t, e.queue.ID)
	require.EqualValues(t, 2, e.stored(t).Ready)
	e.advance(t, time.Minute)
	e.count(t, e.queue.ID)
	require.EqualValues(t, 1, e.stored(t).Ready, "nobody will get it any more")
}

func countsUnknown(t *testing.T, e *env) {
	e.unchanged(t, func() {
		require.Zero(t, e.count(t, 1<<30))
		_, err := e.store.StoredStats(t.Context(), 1<<30)
		require.ErrorIs(t, err, storage.ErrQueueNotFound)
	})
}
