package storagetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// orderRules check C9: priority, then ready time, then position.
func orderRules() []rule {
	return []rule{
		{name: "C9_larger_priority_first", clocks: bothClocks, run: orderPriority},
		{name: "C9_then_the_earlier_ready_time", clocks: settable, run: orderReadyTime},
		{name: "C9_then_the_smaller_position", clocks: bothClocks, run: orderPosition},
		{name: "C9_retries_and_releases_stand_at_their_new_ready_time", clocks: settable, run: orderRetries},
		{name: "C9_an_expired_lease_keeps_its_priority", clocks: settable, run: orderExpired},
		{name: "C9_rows_are_dealt_to_the_calls_in_their_order", clocks: settable, run: orderCalls},
		{name: "C9_one_at_a_time_gives_the_same_order_as_all_at_once", clocks: settable, run: orderSingle},
	}
}

func orderPriority(t *testing.T, e *env) {
	priorities := []int32{0, 5, -3, 2147483647, -2147483648, 1}
	refs := map[int32]storage.Ref{}
	for _, p := range priorities {
		refs[p] = e.one(t, priority(p))
	}
	var want []storage.Ref
	for _, p := range []int32{2147483647, 5, 1, 0, -3, -2147483648} {
		want = append(want, refs[p])
	}
	require.Equal(t, want, refsOf(e.claimN(t, 10)))
}

func orderReadyTime(t *testing.T, e *env) {
	last := e.one(t, delay(3*time.Second))
	third := e.one(t, delay(3*time.Second-e.tick))
	second := e.one(t, delay(time.Second))
	first := e.one(t)
	early := e.one(t, delay(5*time.Second), priority(1))
	e.advance(t, 10*time.Second)
	require.Equal(t, []storage.Ref{early, first, second, third, last}, refsOf(e.claimN(t, 10)))
}

func orderPosition(t *testing.T, e *env) {
	// One call, so one ready time: the position alone decides.
	refs := e.many(t, 50)
	for i := 1; i < len(refs); i++ {
		require.Greater(t, refs[i].Position, refs[i-1].Position, "positions rise in the order of the messages")
	}
	later := e.many(t, 3)
	require.Greater(t, later[0].Position, refs[49].Position, "positions rise from call to call")
	require.Equal(t, append(refs, later...), refsOf(e.claimN(t, 100)))
}

func orderRetries(t *testing.T, e *env) {
	a, b, c := e.one(t), e.one(t), e.one(t)
	cs := e.claimN(t, 3)
	require.Equal(t, []storage.Ref{a, b, c}, refsOf(cs))
	retry := settlement(cs[0], storage.ActionRetry)
	retry.Delay = 2 * time.Second
	release := settlement(cs[1], storage.ActionRelease)
	release.Delay = time.Second
	now := settlement(cs[2], storage.ActionRetry)
	now.Delay = 0
	for _, got := range e.settle(t, retry, release, now) {
		require.Equal(t, storage.ItemApplied, got.Status)
	}
	e.advance(t, 1500*time.Millisecond)
	fresh := e.one(t)
	e.advance(t, time.Second)
	require.Equal(t, []storage.Ref{c, b, fresh, a}, refsOf(e.claimN(t, 10)))
}

func orderExpired(t *testing.T, e *env) {
	low, high := e.one(t), e.one(t, priority(9))
	require.Len(t, e.claimAs(t, "A", 2, 10*time.Second), 2)
	e.advance(t, 20*time.Second)
	middle := e.one(t, priority(4))
	lowest := e.one(t, priority(-1))
	require.Equal(t, []storage.Ref{high, middle, low, lowest}, refsOf(e.claimN(t, 10)))
}

func orderCalls(t *testing.T, e *env) {
	var refs []storage.Ref
	for i := range 8 {
		refs = append(refs, e.one(t, priority(int32(-i))))
	}
	res := e.claimResult(t, storage.ClaimParams{Calls: []storage.ClaimCall{
		call("A", 1, time.Minute), call("B", 3, time.Hour), call("C", 2, time.Second), call("A", 9, 2*time.Hour), call("D", 5, time.Hour),
	}})
	require.Equal(t, refs[:1], refsOf(res.Calls[0].Messages))
	require.Equal(t, refs[1:4], refsOf(res.Calls[1].Messages))
	require.Equal(t, refs[4:6], refsOf(res.Calls[2].Messages))
	require.Equal(t, refs[6:], refsOf(res.Calls[3].Messages))
	require.Equal(t, storage.ClaimServed, res.Calls[4].Status)
	require.Empty(t, res.Calls[4].Messages)
	// The stored rows have the lease and the worker of their own call.
	for i, want := range []string{"A", "B", "B", "B", "C", "C", "A", "A"} {
		require.Equal(t, want, e.get(t, refs[i]).WorkerID, "row %d", i)
	}
	e.advance(t, time.Second)
	require.Equal(t, refs[4:6], refsOf(e.claimN(t, 10)), "only the leases of C are over")
}

func orderSingle(t *testing.T, e *env) {
	fill := func(e *env) map[storage.Ref]int {
		place := map[storage.Ref]int{}
		for i := range 24 {
			ref := e.one(t, priority(int32(i%4)), delay(time.Duration(i%5)*time.Second))
			place[ref] = i
		}
		return place
	}
	other := e.on(e.newQueue(t, settings()))
	placeA, placeB := fill(e), fill(other)
	e.advance(t, 10*time.Second)
	all := e.claimN(t, 24)
	require.Len(t, all, 24)
	for i := range all {
		c := other.claimOne(t)
		require.Equal(t, placeA[all[i].Message.Ref], placeB[c.Message.Ref], "place %d", i)
	}
}
