package storagetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// orderingRules check what an ordering key promises: O1 to O6, E1, E9, and O9 after each.
func orderingRules() []rule {
	return []rule{
		{name: "O1_one_live_lease_a_key", clocks: bothClocks, run: orderingOneLease},
		{name: "O1_D5_across_two_stores", clocks: bothClocks, run: orderingTwoStores},
		{name: "O3_never_two_of_one_key_in_a_batch", clocks: bothClocks, run: orderingBatch},
		{name: "O3_C19_nor_in_the_calls_of_one_claim", clocks: settable, run: orderingCalls},
		{name: "O4_keys_are_independent", clocks: settable, run: orderingIndependent},
		{name: "O4_an_empty_key_is_no_order", clocks: bothClocks, run: orderingEmptyKey},
		{name: "O4_the_same_key_in_two_queues", clocks: settable, run: orderingTwoQueues},
		{name: "O4_E11_keys_compare_by_bytes", clocks: settable, run: orderingBytes},
		{name: "O5_by_position_alone", clocks: bothClocks, run: orderingPosition},
		{name: "O5_C9_the_priority_of_a_key_is_that_of_its_head", clocks: settable, run: orderingPriority},
		{name: "O6_a_delayed_head_holds_its_key", clocks: bothClocks, run: orderingDelayed},
		{name: "O6_C3_a_leased_head_holds_its_key", clocks: bothClocks, run: orderingLeased},
		{name: "O6_a_head_that_waits_for_its_retry_holds_its_key", clocks: settable, run: func(t *testing.T, e *env) { orderingPutBack(t, e, storage.ActionRetry) }},
		{name: "O6_a_head_that_was_released_with_a_delay_holds_its_key", clocks: settable, run: func(t *testing.T, e *env) { orderingPutBack(t, e, storage.ActionRelease) }},
		{name: "O6_a_promoted_head_is_ready_at_its_own_time_or_now", clocks: settable, run: orderingPromoted},
		{name: "O6_C2_a_promoted_head_to_the_tick", clocks: settable, run: orderingPromotedTick},
		{name: "E1_a_duplicate_takes_no_place", clocks: bothClocks, run: orderingDuplicate},
		{name: "E3_E9_a_refused_batch_leaves_nothing_in_its_key", clocks: settable, run: orderingRefused},
		{name: "E9_a_batch_of_keyed_and_unkeyed_messages", clocks: bothClocks, run: orderingMixed},
		{name: "E8_the_ordering_key_is_read_back", clocks: settable, run: orderingRead},
		{name: "R1_R4_a_renewal_keeps_the_head", clocks: settable, run: orderingRenewed},
	}
}

func orderingOneLease(t *testing.T, e *env) {
	refs := e.many(t, 3, ordered("a"))
	c := e.claimKeyed(t, refs[0])
	for range 2 {
		e.claimNothing(t)
	}
	e.checkKeys(t)
	e.completeNext(t, c[0])
	c = e.claimKeyed(t, refs[1])
	e.claimNothing(t)
	e.completeNext(t, c[0])
	c = e.claimKeyed(t, refs[2])
	e.complete(t, c[0])
	e.claimNothing(t)
	// The key is as good as new.
	last := e.many(t, 2, ordered("a"))
	require.Equal(t, last, e.drain(t))
}

func orderingTwoStores(t *testing.T, e *env) {
	stores := []*env{e, e.through(e.other)}
	refs := e.many(t, 6, ordered("a"))
	for i, ref := range refs {
		c := stores[i%2].claimKeyed(t, ref)
		stores[(i+1)%2].claimNothing(t)
		stores[i%2].complete(t, c[0])
	}
	for i := range 4 {
		refs[i] = stores[i%2].one(t, ordered("b"))
	}
	require.Equal(t, refs[:4], stores[1].drain(t))
}

func orderingBatch(t *testing.T, e *env) {
	const keys, n = 4, 100
	var ms []storage.NewMessage
	for i := range n {
		ms = append(ms, e.message(ordered(fmt.Sprint("key ", i%keys))))
	}
	refs := e.enqueue(t, ms...)
	for i := 0; i < n; i += keys {
		cs := e.claimKeyed(t, refs[i:i+keys]...)
		var items []storage.Settlement
		for _, c := range cs {
			s := settlement(c, storage.ActionComplete)
			s.Result = nil
			items = append(items, s)
		}
		require.Equal(t, i+keys < n, e.settleReady(t, items...))
	}
	e.claimNothing(t)
}

func orderingCalls(t *testing.T, e *env) {
	a, b := e.many(t, 5, ordered("a")), e.many(t, 5, ordered("b"))
	free := e.many(t, 3)
	res := e.claimResult(t, storage.ClaimParams{Calls: []storage.ClaimCall{call("A", 1, lease), call("B", 3, lease), call("C", 9, lease)}})
	require.Equal(t, []storage.Ref{a[0]}, refsOf(res.Calls[0].Messages))
	require.Equal(t, []storage.Ref{b[0], free[0], free[1]}, refsOf(res.Calls[1].Messages))
	require.Equal(t, []storage.Ref{free[2]}, refsOf(res.Calls[2].Messages))
	e.checkKeys(t)
}

func orderingIndependent(t *testing.T, e *env) {
	a, b := e.many(t, 3, ordered("a")), e.many(t, 3, ordered("b"))
	c := e.claimKeyed(t, a[0], b[0])
	e.completeNext(t, c[1])
	c = append(c, e.claimKeyed(t, b[1])...)
	e.completeNext(t, c[2])
	e.claimKeyed(t, b[2])
	require.Equal(t, storage.StateProcessing, e.get(t, a[0]).State, "nobody touched the other key")
	e.checkKeys(t)
	require.Equal(t, append([]storage.Ref{a[1]}, a[2]), func() []storage.Ref {
		e.completeNext(t, c[0])
		order := e.drain(t)
		return slices.DeleteFunc(order, func(ref storage.Ref) bool { return ref == b[2] })
	}())
}

func orderingEmptyKey(t *testing.T, e *env) {
	refs := e.many(t, 5, ordered(""))
	e.claimKeyed(t, refs...)
}

func orderingTwoQueues(t *testing.T, e *env) {
	other := e.on(e.newQueue(t, settings()))
	refs := e.enqueue(t, e.message(ordered("a")), other.message(ordered("a")), e.message(ordered("a")), other.message(ordered("a")))
	c := e.claimKeyed(t, refs[0])
	other.claimKeyed(t, refs[1])
	e.completeNext(t, c[0])
	e.claimKeyed(t, refs[2])
	other.claimNothing(t)
	e.checkKeys(t)
	other.checkKeys(t)
}

func orderingBytes(t *testing.T, e *env) {
	keys := []string{"a", "A", "a ", " a", "á", "a\u0301", "ａ", "ss", "ß", "%", "_", "'", "a\u200b"}
	var ms []storage.NewMessage
	for _, key := range keys {
		ms = append(ms, e.message(ordered(key)), e.message(ordered(key)))
	}
	refs := e.enqueue(t, ms...)
	for i, c := range e.claimN(t, 100) {
		require.Equal(t, refs[2*i], c.Message.Ref, "%q is a key of its own", keys[i])
		require.Equal(t, keys[i], c.Message.OrderingKey)
	}
	e.checkKeys(t)
}

func orderingPosition(t *testing.T, e *env) {
	refs := e.enqueue(t,
		e.message(ordered("a"), priority(-5)),
		e.message(ordered("a"), priority(9)),
		e.message(ordered("a"), priority(2147483647)),
		e.message(ordered("a"), priority(-2147483648)),
		e.message(ordered("a"), priority(0)))
	for _, ref := range refs {
		c := e.claimKeyed(t, ref)
		e.complete(t, c[0])
	}
	// Across calls, too.
	for i := range refs {
		refs[i] = e.one(t, ordered("b"), priority(int32(i*i%3)))
	}
	require.Equal(t, refs, e.drain(t))
}

func orderingPriority(t *testing.T, e *env) {
	low := e.enqueue(t, e.message(ordered("low"), priority(1)), e.message(ordered("low"), priority(100)))
	high := e.enqueue(t, e.message(ordered("high"), priority(5)), e.message(ordered("high"), priority(-100)))
	free := e.one(t, priority(3))
	e.advance(t, time.Second)
	cs := e.claimKeyed(t, high[0], free, low[0])
	e.completeNext(t, cs[2])
	e.completeNext(t, cs[0])
	e.claimKeyed(t, low[1], high[1])
}

func orderingDelayed(t *testing.T, e *env) {
	head := e.one(t, ordered("a"), delay(10*short))
	behind := e.one(t, ordered("a"))
	free := e.one(t)
	e.complete(t, e.claimKeyed(t, free)[0])
	e.claimNothing(t)
	e.checkKeys(t)
	if e.settable() {
		res := e.claimResult(t, storage.ClaimParams{Calls: []storage.ClaimCall{call("A", 1, lease)}})
		sameTime(t, e.get(t, head).ReadyTime, res.NextReady, "the head is what is waited for")
	}
	e.waitClock(t, e.get(t, head).ReadyTime)
	c := e.claimKeyed(t, head)
	e.claimNothing(t)
	e.completeNext(t, c[0])
	e.claimKeyed(t, behind)
}

func orderingLeased(t *testing.T, e *env) {
	refs := e.many(t, 2, ordered("a"))
	c := e.claimAs(t, "A", 1, 3*short)
	require.Equal(t, refs[:1], refsOf(c))
	e.claimNothing(t)
	if e.settable() {
		e.advanceTo(t, c[0].Message.LeaseEnd.Add(-e.tick))
		e.claimNothing(t)
	}
	e.waitClock(t, c[0].Message.LeaseEnd)
	again := e.claimN(t, 10)
	require.Equal(t, refs[:1], refsOf(again), "the head once more, and not the one behind it")
	require.EqualValues(t, 2, again[0].Message.Attempt)
	e.requireLost(t, c[0], storage.LostSuperseded)
	e.checkKeys(t)
	e.completeNext(t, again[0])
	e.claimKeyed(t, refs[1])
}

func orderingPutBack(t *testing.T, e *env, a storage.Action) {
	t.Helper()
	refs := e.many(t, 3, ordered("a"))
	free := e.one(t)
	cs := e.claimKeyed(t, refs[0], free)
	s := settlement(cs[0], a)
	e.settle(t, s)
	e.claimNothing(t)
	e.checkKeys(t)
	e.advance(t, s.Delay-e.tick)
	e.claimNothing(t)
	e.advance(t, e.tick)
	cs = e.claimKeyed(t, refs[0])
	s = settlement(cs[0], a)
	s.Delay = 0
	e.settle(t, s)
	// Ready at once, it is still the head.
	cs = e.claimKeyed(t, refs[0])
	e.completeNext(t, cs[0])
	cs = e.claimKeyed(t, refs[1])
	e.completeNext(t, cs[0])
	e.claimKeyed(t, refs[2])
}

func orderingPromoted(t *testing.T, e *env) {
	refs := e.enqueue(t, e.message(ordered("a")), e.message(ordered("a")), e.message(ordered("a"), delay(10*time.Second)), e.message(ordered("a"), delay(time.Second)))
	own := e.now.Add(10 * time.Second)
	c := e.claimKeyed(t, refs[0])
	e.advance(t, time.Second)
	between := e.one(t)
	e.advance(t, time.Second)
	e.completeNext(t, c[0])
	later := e.one(t)
	sameTime(t, e.now, e.get(t, refs[1]).ReadyTime, "a time that has passed: now")
	c = e.claimKeyed(t, between, refs[1], later)
	e.settle(t, settlement(c[1], storage.ActionComplete))
	sameTime(t, own, e.get(t, refs[2]).ReadyTime, "its own delay")
	e.claimNothing(t)
	res := e.claimResult(t, storage.ClaimParams{Calls: []storage.ClaimCall{call("A", 1, lease)}})
	sameTime(t, own, res.NextReady, "what is waited for")
	e.checkKeys(t)
	e.advance(t, 20*time.Second)
	c = e.claimKeyed(t, refs[2])
	e.completeNext(t, c[0])
	sameTime(t, e.now, e.get(t, refs[3]).ReadyTime, "a delay that ended behind the head")
	e.claimKeyed(t, refs[3])
}

func orderingPromotedTick(t *testing.T, e *env) {
	for _, left := range []time.Duration{e.tick, 0} {
		key := fmt.Sprint("key ", left)
		refs := e.enqueue(t, e.message(ordered(key)), e.message(ordered(key), delay(time.Second)))
		at := e.now.Add(time.Second)
		c := e.claimKeyed(t, refs[0])
		e.advanceTo(t, at.Add(-left))
		e.settle(t, settlement(c[0], storage.ActionComplete))
		if left > 0 {
			e.claimNothing(t)
		}
		e.advanceTo(t, at)
		e.complete(t, e.claimKeyed(t, refs[1])[0])
	}
}

func orderingDuplicate(t *testing.T, e *env) {
	first := e.message(ordered("a"), keyed("1", "content"))
	refs := e.enqueue(t, first, e.message(ordered("a")))
	c := e.claimKeyed(t, refs[0])
	require.Equal(t, storage.EnqueueDuplicate, e.enqueueResult(t, first)[0].Status)
	e.completeNext(t, c[0])
	c = e.claimKeyed(t, refs[1])
	require.Equal(t, storage.EnqueueDuplicate, e.enqueueResult(t, first)[0].Status, "completed by now")
	e.complete(t, c[0])
	e.claimNothing(t)

	// Before a new one in a batch, of an old message and of one of the same batch.
	second := e.message(ordered("b"), keyed("2", "content"))
	got := e.enqueueResult(t, first, e.message(ordered("a")), second, second, e.message(ordered("b")))
	require.Equal(t, []storage.EnqueueStatus{
		storage.EnqueueDuplicate, storage.EnqueueInserted, storage.EnqueueInserted, storage.EnqueueDuplicate, storage.EnqueueInserted,
	}, []storage.EnqueueStatus{got[0].Status, got[1].Status, got[2].Status, got[3].Status, got[4].Status})
	e.checkKeys(t)
	require.Equal(t, []storage.Ref{got[1].Ref, got[2].Ref, got[4].Ref}, e.drain(t))
}

func orderingRefused(t *testing.T, e *env) {
	e.enqueue(t, e.message(keyed("key", "content")))
	e.complete(t, e.claimOne(t))
	got := e.enqueueResult(t, e.message(ordered("a")), e.message(ordered("a"), keyed("key", "other")), e.message(ordered("b")))
	require.Equal(t, storage.EnqueueKeyReused, got[1].Status)
	e.claimNothing(t)
	refs := e.enqueue(t, e.message(ordered("a")), e.message(ordered("b")))
	e.claimKeyed(t, refs...)
	e.checkKeys(t)
}

func orderingMixed(t *testing.T, e *env) {
	other := e.on(e.newQueue(t, settings()))
	refs := e.enqueue(t,
		e.message(), e.message(ordered("a")), other.message(ordered("a")), e.message(ordered("b")), e.message(),
		e.message(ordered("a")), other.message(), e.message(ordered("b"), keyed("key", "content")), e.message(keyed("free", "content")))
	for i := 1; i < len(refs); i++ {
		require.Greater(t, refs[i].Position, refs[i-1].Position, "positions rise in the order of the messages")
	}
	// All have one ready time, so the position decides.
	cs := e.claimKeyed(t, refs[0], refs[1], refs[3], refs[4], refs[8])
	other.claimKeyed(t, refs[2], refs[6])
	var items []storage.Settlement
	for _, c := range cs {
		items = append(items, settlement(c, storage.ActionComplete))
	}
	require.True(t, e.settleReady(t, items...))
	e.claimKeyed(t, refs[5], refs[7])
	e.checkKeys(t)
}

func orderingRead(t *testing.T, e *env) {
	refs := e.enqueue(t, e.message(ordered("a")), e.message(ordered("a")), e.message(ordered("b")), e.message())
	is := func(want ...string) {
		t.Helper()
		for i, ref := range refs {
			require.Equal(t, want[i], e.get(t, ref).OrderingKey)
		}
		require.Equal(t, []storage.Ref{refs[1], refs[0]}, refsOfMessages(e.list(t, storage.ListMessagesParams{OrderingKey: "a", Limit: 100})))
		require.Empty(t, e.list(t, storage.ListMessagesParams{OrderingKey: "A", Limit: 100}))
	}
	is("a", "a", "b", "")
	cs := e.claimKeyed(t, refs[0], refs[2], refs[3])
	require.Equal(t, []string{"a", "b", ""}, []string{cs[0].Message.OrderingKey, cs[1].Message.OrderingKey, cs[2].Message.OrderingKey})
	is("a", "a", "b", "")
	e.complete(t, cs[0])
	e.settle(t, settlement(cs[1], storage.ActionDeadLetter))
	e.cancel(t, refs[1])
	is("a", "a", "b", "")
	e.sweepKeys(t, 100)
	is("a", "a", "b", "")
}

func orderingRenewed(t *testing.T, e *env) {
	refs := e.many(t, 2, ordered("a"))
	c := e.claimKeyed(t, refs[0])[0]
	for range 3 {
		e.advance(t, lease-e.tick)
		require.Equal(t, storage.ItemApplied, e.renew(t, renewal(c, lease))[0].Status)
		e.claimNothing(t)
	}
	e.checkKeys(t)
	e.completeNext(t, c)
	e.claimKeyed(t, refs[1])
}
