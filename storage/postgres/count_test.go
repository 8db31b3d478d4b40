package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// A server that was killed while it counted is replaced within seconds, and one that only
// was slow hears that somebody took over.
func TestL3AKilledCounterIsReplaced(t *testing.T) {
	d := newDatabase(t, true)
	now := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	d.setClock(t, now)
	q := queue(t, d.store, "counted")
	enqueue(t, d.store, q.ID, 3)
	d.exec(t, `UPDATE queuebox.count_turn SET holder = gen_random_uuid(), held_until = $1`, now.Add(6*time.Second))
	count := func() int {
		t.Helper()
		res, err := d.store.Count(t.Context(), storage.CountParams{})
		require.NoError(t, err)
		return res.Counted
	}
	d.setClock(t, now.Add(6*time.Second-time.Microsecond))
	require.Zero(t, count(), "somebody else counts")
	d.setClock(t, now.Add(6*time.Second))
	require.Equal(t, 1, count())
	st, err := d.store.StoredStats(t.Context(), q.ID)
	require.NoError(t, err)
	require.EqualValues(t, 3, st.Ready)
}

// A statement of a count that somebody holds up for a second, as a database that hangs does, is
// not what the count has cost: nobody rests twenty times as long.
func TestL3AHeldUpCountIsNotRestedFor(t *testing.T) {
	d := newDatabase(t, false)
	queue(t, d.store, "counted")
	holder := d.session(t)
	holder.end(t, "BEGIN")
	holder.end(t, "SELECT 1 FROM queuebox.count_turn FOR UPDATE")
	done := background(func() (storage.CountResult, error) { return d.store.Count(t.Context(), storage.CountParams{}) })
	require.Eventually(t, func() bool {
		return d.lines(t, `SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database()
			AND wait_event_type = 'Lock' AND clock_timestamp() - query_start > interval '1 second'`)[0] != "0"
	}, 20*time.Second, 20*time.Millisecond)
	holder.end(t, "ROLLBACK")
	r := <-done
	require.NoError(t, r.err)
	require.Equal(t, 1, r.value.Counted)
	require.Equal(t, "true", d.lines(t, `SELECT (next_time < clock_timestamp() + interval '15 seconds')::text FROM queuebox.count_turn`)[0])
}

// A count reads pages of an index, whatever the tables held when it was planned, and holds no
// lock that anybody waits for.
func TestL3PlansOfCounts(t *testing.T) {
	d := newDatabase(t, false)
	q, other := queue(t, d.store, "count"), queue(t, d.store, "other")
	p := newPlanner(t, d)
	args := []string{repeat(1, "1"), repeat(1, "0"), repeat(1, "0"), repeat(1, "0"), "1000"}
	pinned(t, "count_page", p.explain(t, "count_page", args...)) // planned on empty tables
	d.fill(t, q.ID, 20000, pendingShape)
	d.fill(t, other.ID, 20000, pendingShape)
	plan := p.explain(t, "count_page", args...)
	pinned(t, "count_page", plan)
	t.Logf("a page of 1000 live messages: %d buffers", plan.buffers())
	require.LessOrEqual(t, plan.buffers(), 2*1000+200)
	for _, name := range []string{"stats_get", "count_queues"} {
		a := []string{"1"}
		if name == "count_queues" {
			a = append(a, "100")
		}
		pinned(t, name, p.explain(t, name, a...))
	}
}
