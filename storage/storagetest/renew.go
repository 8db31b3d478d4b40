package storagetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// renewRules check R1 to R5 and R7 for leases that hold; what is refused is in the
// fence rules.
func renewRules() []rule {
	return []rule{
		{name: "R1_sets_lease_end_to_clock_plus_lease_not_added", clocks: settable, run: renewSets},
		{name: "R1_a_shorter_lease_shortens", clocks: settable, run: renewShortens},
		{name: "R1_zero_repeats_the_last_length_cut_to_the_maximum", clocks: settable, run: renewZero},
		{name: "R2_renewed_one_tick_before_the_lease_end_refused_at_it", clocks: settable, run: renewAtEnd},
		{name: "R4_touches_nothing_but_the_lease", clocks: settable, run: renewTouches},
		{name: "R5_one_lost_item_fails_no_other_and_answers_are_in_place", clocks: bothClocks, run: renewBatch},
		{name: "R5_items_of_many_queues_in_one_batch", clocks: bothClocks, run: renewQueues},
		{name: "R5_the_same_claim_twice_in_one_batch", clocks: settable, run: renewTwice},
		{name: "R7_no_cap_on_the_total_lease", clocks: settable, run: renewForEver},
		{name: "R5_an_empty_batch", clocks: bothClocks, run: renewEmpty},
	}
}

func renewSets(t *testing.T, e *env) {
	ref := e.one(t)
	c := e.claimOneAs(t, "A", time.Minute)
	for _, d := range []time.Duration{time.Minute, time.Hour, 1500 * time.Millisecond} {
		e.advance(t, time.Second)
		got := e.renew(t, renewal(c, d))[0]
		require.Equal(t, storage.ItemApplied, got.Status)
		sameTime(t, e.now.Add(d), got.LeaseEnd, "the answer")
		require.False(t, got.CancelRequested)
		sameTime(t, e.now.Add(d), e.get(t, ref).LeaseEnd, "the row")
	}
}

func renewShortens(t *testing.T, e *env) {
	ref := e.one(t)
	c := e.claimOneAs(t, "A", time.Hour)
	require.Equal(t, storage.ItemApplied, e.renew(t, renewal(c, time.Second))[0].Status)
	e.advance(t, time.Second-e.tick)
	e.claimNothing(t)
	e.advance(t, e.tick)
	require.Equal(t, ref, e.claimOne(t).Message.Ref)
}

func renewZero(t *testing.T, e *env) {
	e.one(t)
	c := e.claimOneAs(t, "A", 40*time.Second)
	zero := func(most time.Duration) time.Time {
		t.Helper()
		e.advance(t, time.Second)
		got := e.renew(t, storage.Renewal{Ref: c.Message.Ref, Token: c.Token, MaxLease: most})[0]
		require.Equal(t, storage.ItemApplied, got.Status)
		return got.LeaseEnd
	}
	sameTime(t, e.now.Add(41*time.Second), zero(maxLease), "the length of the claim")
	require.Equal(t, storage.ItemApplied, e.renew(t, renewal(c, 90*time.Second))[0].Status)
	sameTime(t, e.now.Add(91*time.Second), zero(maxLease), "the length of the last renewal")
	sameTime(t, e.now.Add(91*time.Second), zero(90*time.Second), "exactly the maximum")
	sameTime(t, e.now.Add(21*time.Second), zero(20*time.Second), "cut to the maximum")
}

func renewAtEnd(t *testing.T, e *env) {
	ref := e.one(t)
	c := e.claimOneAs(t, "A", 10*time.Second)
	e.advance(t, 10*time.Second-e.tick)
	require.Equal(t, storage.ItemApplied, e.renew(t, renewal(c, 10*time.Second))[0].Status)
	e.advance(t, 10*time.Second)
	row := e.liveRow(t, ref)
	e.unchanged(t, func() {
		got := e.renew(t, renewal(c, 10*time.Second))[0]
		require.Equal(t, storage.ItemLost, got.Status)
		require.Equal(t, storage.LostLeaseExpired, got.Cause)
	})
	require.Equal(t, row, e.liveRow(t, ref))
}

func renewTouches(t *testing.T, e *env) {
	e.many(t, 2, priority(3))
	cs := e.claimN(t, 2)
	require.Len(t, cs, 2)
	e.advance(t, time.Second)
	before, neighbour := e.liveRow(t, cs[0].Message.Ref), e.liveRow(t, cs[1].Message.Ref)
	m := e.get(t, cs[0].Message.Ref)
	require.Equal(t, storage.ItemApplied, e.renew(t, renewal(cs[0], time.Hour))[0].Status)
	after := e.liveRow(t, cs[0].Message.Ref)
	var changed []string
	for column, value := range after {
		if before[column] != value {
			changed = append(changed, column)
		}
	}
	require.NotEmpty(t, changed)
	for _, column := range changed {
		require.Contains(t, column, "lease", "a renewal writes the lease alone; it changed %v", changed)
	}
	require.Equal(t, neighbour, e.liveRow(t, cs[1].Message.Ref))
	m.LeaseEnd = e.now.Add(time.Hour)
	require.Equal(t, m, e.get(t, cs[0].Message.Ref), "token, attempt, state, schedule and order untouched")
	e.complete(t, cs[0])
}

func renewBatch(t *testing.T, e *env) {
	e.many(t, 100)
	cs := e.claimAs(t, "A", 100, time.Hour)
	require.Len(t, cs, 100)
	items := make([]storage.Renewal, 100)
	for i, c := range cs {
		items[i] = renewal(c, time.Duration(i+3600)*time.Second)
	}
	items[10].Token = storage.Token{1}
	items[20].Ref.Position = 1 << 60
	items[30].Token = storage.Token{}
	items[40].Ref.QueueID = 1 << 30
	e.complete(t, cs[50])
	want := map[int]storage.ItemStatus{
		10: storage.ItemLost, 20: storage.ItemNotFound, 30: storage.ItemLost, 40: storage.ItemNotFound, 50: storage.ItemSettled,
	}
	got := e.renew(t, items...)
	for i := range items {
		if status, ok := want[i]; ok {
			require.Equal(t, status, got[i].Status, "item %d", i)
			continue
		}
		require.Equal(t, storage.ItemApplied, got[i].Status, "item %d", i)
		require.WithinDuration(t, got[i].LeaseEnd, e.get(t, cs[i].Message.Ref).LeaseEnd, 0)
		if e.settable() {
			sameTime(t, e.now.Add(items[i].Lease), got[i].LeaseEnd, "the answer stands in its place")
		}
	}
	require.Equal(t, storage.OutcomeCompleted, got[50].Outcome)
}

func renewQueues(t *testing.T, e *env) {
	other := e.on(e.newQueue(t, settings()))
	e.one(t)
	other.one(t)
	a, b := e.claimOne(t), other.claimOne(t)
	got := e.renew(t, renewal(b, time.Hour), renewal(a, time.Minute))
	require.Equal(t, storage.ItemApplied, got[0].Status)
	require.Equal(t, storage.ItemApplied, got[1].Status)
	require.True(t, got[0].LeaseEnd.After(got[1].LeaseEnd))
	// The position of one queue with the id of another names nothing.
	cross := storage.Renewal{
		Ref:   storage.Ref{QueueID: e.newQueue(t, settings()).ID, Position: a.Message.Ref.Position},
		Token: a.Token, Lease: time.Hour, MaxLease: maxLease,
	}
	require.Equal(t, storage.ItemNotFound, e.renew(t, cross)[0].Status)
}

func renewTwice(t *testing.T, e *env) {
	ref := e.one(t)
	c := e.claimOne(t)
	stale := renewal(c, time.Hour)
	stale.Token[3]++
	got := e.renew(t, renewal(c, time.Hour), stale, renewal(c, time.Hour))
	require.Equal(t, storage.ItemApplied, got[0].Status)
	require.Equal(t, storage.ItemLost, got[1].Status)
	require.Equal(t, storage.ItemApplied, got[2].Status)
	sameTime(t, e.now.Add(time.Hour), e.get(t, ref).LeaseEnd, "the row")
}

func renewForEver(t *testing.T, e *env) {
	ref := e.one(t)
	c := e.claimOneAs(t, "A", time.Minute)
	for range 30 {
		e.advance(t, time.Minute-time.Second)
		require.Equal(t, storage.ItemApplied, e.renew(t, renewal(c, time.Minute))[0].Status)
	}
	require.EqualValues(t, 1, e.get(t, ref).Attempt)
	e.complete(t, c)
}

func renewEmpty(t *testing.T, e *env) {
	e.unchanged(t, func() {
		require.Empty(t, e.renew(t))
		require.Empty(t, e.settle(t))
	})
}
