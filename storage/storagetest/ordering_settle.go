package storagetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// orderingSettleRules check what ends or moves a keyed message: the key goes on, once, and
// what is promised of every message holds of this one too.
func orderingSettleRules() []rule {
	rules := []rule{
		{name: "S3_O9_a_batch_over_many_keys", clocks: bothClocks, run: orderingSettleBatch},
		{name: "S7_a_message_named_twice_moves_its_key_on_once", clocks: settable, run: orderingSettleTwice},
		{name: "S2_S8_a_lost_claim_moves_nothing", clocks: settable, run: orderingLostClaim},
		{name: "C14_the_repeat_of_a_claim_of_heads", clocks: bothClocks, run: orderingReplay},
		{name: "C15_a_claim_given_back_keeps_the_head", clocks: bothClocks, run: orderingGiveBack},
		{name: "C18_E7_O9_a_sweep_by_pages_over_keys", clocks: settable, run: orderingSweepPages},
		{name: "C18_a_sweep_by_references_of_heads_and_followers", clocks: settable, run: orderingSweepRefs},
		{name: "S14_cancel_of_a_follower", clocks: settable, run: orderingCancelFollower},
		{name: "S14_cancel_of_a_claimed_head", clocks: settable, run: orderingCancelClaimed},
		{name: "S14_cancel_of_a_head_whose_lease_is_over", clocks: bothClocks, run: orderingCancelExpired},
	}
	for _, act := range actions {
		rules = append(rules, rule{
			name: "S3_S5_S6_" + act.name + "_of_a_head_and_its_repeats", clocks: bothClocks,
			run: func(t *testing.T, e *env) { orderingSettled(t, e, act.action, act.outcome) },
		})
	}
	return rules
}

func orderingSettled(t *testing.T, e *env, a storage.Action, outcome storage.Outcome) {
	t.Helper()
	refs := e.many(t, 3, ordered("a"))
	c := e.claimKeyed(t, refs[0])[0]
	s := settlement(c, a)
	s.Delay = 0
	got := e.settle(t, s)[0]
	require.Equal(t, storage.ItemApplied, got.Status)
	require.Equal(t, outcome, got.Outcome)
	next := refs[1]
	if a == storage.ActionRetry || a == storage.ActionRelease {
		next = refs[0]
	}
	repeat := func() {
		t.Helper()
		e.unchanged(t, func() {
			res, err := e.store.Settle(t.Context(), storage.SettleParams{Items: []storage.Settlement{s, settlement(c, other(a))}})
			require.NoError(t, err)
			require.Equal(t, storage.ItemAlreadySettled, res.Items[0].Status, "S5")
			require.Equal(t, facts(got), facts(res.Items[0]))
			require.Equal(t, storage.ItemSettled, res.Items[1].Status, "S6")
			require.Equal(t, outcome, res.Items[1].Outcome)
		})
	}
	repeat()
	cs := e.claimKeyed(t, next)
	repeat()
	e.claimNothing(t)
	e.completeNext(t, cs[0])
	repeat()
	e.checkKeys(t)
	want := refs[slices.Index(refs, next)+1:]
	require.Equal(t, want, e.drain(t))
	repeat()
}

func orderingSettleBatch(t *testing.T, e *env) {
	const keys = 40
	var ms []storage.NewMessage
	for i := range 3 * keys {
		ms = append(ms, e.message(ordered(fmt.Sprint("key ", i%keys))))
	}
	refs := e.enqueue(t, ms...)
	free := e.many(t, 4)
	cs := e.claimKeyed(t, slices.Concat(refs[:keys], free)...)
	var items []storage.Settlement
	for i, c := range cs {
		s := settlement(c, actions[i%4].action)
		if i%8 == 0 {
			s.Result = nil
		}
		s.Delay = time.Hour
		items = append(items, s)
	}
	require.True(t, e.settleReady(t, items...))
	e.checkKeys(t)
	var want []storage.Ref
	for i := range keys {
		// Completed and dead ones go on; retried and released ones wait.
		if a := actions[i%4].action; a == storage.ActionComplete || a == storage.ActionDeadLetter {
			want = append(want, refs[keys+i])
		}
	}
	got := e.claimN(t, 100)
	require.Equal(t, want, refsOf(got))
	items = items[:0]
	for _, c := range got {
		items = append(items, settlement(c, storage.ActionComplete))
	}
	require.True(t, e.settleReady(t, items...))
	require.Len(t, e.claimN(t, 100), len(want), "and again")
	e.checkKeys(t)
}

func orderingSettleTwice(t *testing.T, e *env) {
	refs := e.many(t, 3, ordered("a"))
	c := e.claimKeyed(t, refs[0])[0]
	done := settlement(c, storage.ActionComplete)
	got := e.settle(t, done, settlement(c, storage.ActionDeadLetter), done)
	require.Equal(t, []storage.ItemStatus{storage.ItemApplied, storage.ItemSettled, storage.ItemAlreadySettled},
		[]storage.ItemStatus{got[0].Status, got[1].Status, got[2].Status})
	e.checkKeys(t)
	require.Equal(t, refs[1:], e.drain(t))
}

func orderingLostClaim(t *testing.T, e *env) {
	refs := e.many(t, 2, ordered("a"))
	c := e.claimKeyed(t, refs[0])[0]
	e.unchanged(t, func() {
		for _, act := range actions {
			got := e.settle(t, settlementOf(refs[1], c.Token, act.action), settlementOf(refs[0], never, act.action))
			require.Equal(t, storage.ItemLost, got[0].Status, act.name)
			require.Equal(t, storage.ItemLost, got[1].Status, act.name)
		}
	})
	e.advance(t, lease)
	e.requireLost(t, c, storage.LostLeaseExpired)
	e.checkKeys(t)
	require.Equal(t, refs, e.drain(t))
}

func orderingReplay(t *testing.T, e *env) {
	a, b := e.many(t, 2, ordered("a")), e.many(t, 2, ordered("b"))
	first := e.claimWithID(t, "A", claimID(1), 4)
	require.Equal(t, []storage.Ref{a[0], b[0]}, refsOf(first.Messages))
	again := e.through(e.other).claimWithID(t, "A", claimID(1), 4)
	require.Equal(t, storage.ClaimReplayed, again.Status)
	require.Equal(t, first.Messages, again.Messages)
	e.completeNext(t, first.Messages[0])
	again = e.claimWithID(t, "A", claimID(1), 4)
	require.Equal(t, storage.ClaimReplayed, again.Status)
	require.Equal(t, []storage.Ref{b[0]}, refsOf(again.Messages), "the next one of the key is not of that claim")
	e.claimKeyed(t, a[1])
	e.checkKeys(t)
}

func orderingGiveBack(t *testing.T, e *env) {
	a, b := e.many(t, 2, ordered("a")), e.many(t, 2, ordered("b"))
	for range 2 {
		cs := e.claimN(t, 10)
		require.ElementsMatch(t, []storage.Ref{a[0], b[0]}, refsOf(cs))
		require.Equal(t, 2, e.giveBack(t, storage.GiveBackParams{Claims: held(cs...)}))
		require.Zero(t, e.get(t, a[0]).Attempt, "attempt refunded")
		e.checkKeys(t)
	}
	cs := e.claimN(t, 10)
	require.ElementsMatch(t, []storage.Ref{a[0], b[0]}, refsOf(cs), "not the ones behind them")
	e.claimNothing(t)
	for _, c := range cs {
		e.completeNext(t, c)
	}
	require.ElementsMatch(t, []storage.Ref{a[1], b[1]}, refsOf(e.claimN(t, 10)))
}

func orderingSweepPages(t *testing.T, e *env) {
	e.sweepAll(t, 100) // what other tests left behind
	const keys = 10
	var heads, behind []storage.Ref
	for i := range keys {
		key := ordered(fmt.Sprint("key ", i))
		head := []func(*storage.NewMessage){key, maxAttempts(1)}
		if i%2 == 1 {
			head = []func(*storage.NewMessage){key, expires(e.now.Add(time.Second))}
		}
		refs := e.enqueue(t, e.message(head...), e.message(key, expires(e.now.Add(2*time.Second))), e.message(key))
		heads, behind = append(heads, refs[0]), append(behind, refs[2])
	}
	require.Len(t, e.claimAs(t, "A", 100, time.Second), keys)
	e.advance(t, 2*time.Second)
	var ready []int32
	var after storage.Ref
	dead := 0
	for {
		res, err := e.store.Sweep(t.Context(), storage.SweepParams{After: after, Limit: 4})
		require.NoError(t, err)
		dead += res.Dead + res.Expired
		ready = append(ready, res.Ready...)
		if after = res.Next; after == (storage.Ref{}) {
			break
		}
	}
	require.Equal(t, 2*keys, dead, "each head, and each that expired behind it")
	require.Contains(t, ready, e.queue.ID)
	for _, ref := range heads {
		require.Equal(t, storage.StateDead, e.get(t, ref).State)
	}
	e.checkKeys(t)
	require.ElementsMatch(t, behind, refsOf(e.claimN(t, 100)))
}

func orderingSweepRefs(t *testing.T, e *env) {
	refs := e.enqueue(t, e.message(ordered("a"), maxAttempts(1)), e.message(ordered("a"), expires(e.now.Add(time.Second))), e.message(ordered("a")),
		e.message(ordered("b"), maxAttempts(1)), e.message(ordered("b")))
	require.Len(t, e.claimAs(t, "A", 10, 2*time.Second), 2)
	e.advance(t, time.Second)
	res := e.sweep(t, refs...)
	require.Equal(t, [2]int{0, 1}, [2]int{res.Dead, res.Expired}, "a follower dies without its head")
	e.checkKeys(t)
	e.claimNothing(t)
	e.advance(t, time.Second)
	res = e.sweep(t, refs[:3]...)
	require.Equal(t, [2]int{1, 0}, [2]int{res.Dead, res.Expired})
	require.Contains(t, res.Ready, e.queue.ID)
	e.checkKeys(t)
	e.claimKeyed(t, refs[2])
	require.Equal(t, storage.StateProcessing, e.get(t, refs[3]).State, "nobody asked about that one")
	require.Contains(t, e.through(e.other).sweep(t, refs...).Ready, e.queue.ID)
	e.claimKeyed(t, refs[4])
}

func orderingCancelFollower(t *testing.T, e *env) {
	refs := e.many(t, 4, ordered("a"))
	c := e.claimKeyed(t, refs[0])[0]
	for _, ref := range []storage.Ref{refs[3], refs[1]} {
		row := e.liveRow(t, refs[0])
		require.Equal(t, storage.StateCancelled, e.cancel(t, ref))
		e.requireCancelled(t, ref, 0)
		require.Equal(t, row, e.liveRow(t, refs[0]), "the head does not notice")
		e.claimNothing(t)
		e.checkKeys(t)
	}
	e.completeNext(t, c)
	e.complete(t, e.claimKeyed(t, refs[2])[0])
	e.claimNothing(t)
}

func orderingCancelClaimed(t *testing.T, e *env) {
	refs := e.many(t, 4, ordered("a"))
	for i, a := range []storage.Action{storage.ActionRetry, storage.ActionComplete, storage.ActionDeadLetter} {
		c := e.claimKeyed(t, refs[i])[0]
		res, err := e.store.Cancel(t.Context(), storage.CancelParams{QueueID: e.queue.ID, Ref: refs[i]})
		require.NoError(t, err)
		require.Equal(t, storage.StateProcessing, res.State)
		require.False(t, res.Ready, "its holder has it still")
		e.claimNothing(t)
		require.True(t, e.renew(t, renewal(c, lease))[0].CancelRequested)
		require.True(t, e.settleReady(t, settlement(c, a)))
		want := map[storage.Action]storage.State{
			storage.ActionRetry: storage.StateCancelled, storage.ActionComplete: storage.StateCompleted, storage.ActionDeadLetter: storage.StateDead,
		}[a]
		require.Equal(t, want, e.get(t, refs[i]).State)
		e.checkKeys(t)
	}
	e.claimKeyed(t, refs[3])
}

func orderingCancelExpired(t *testing.T, e *env) {
	refs := e.many(t, 2, ordered("a"))
	c := e.claimAs(t, "A", 1, short)
	e.waitClock(t, c[0].Message.LeaseEnd)
	res, err := e.store.Cancel(t.Context(), storage.CancelParams{QueueID: e.queue.ID, Ref: refs[0]})
	require.NoError(t, err)
	require.Equal(t, storage.StateCancelled, res.State)
	require.True(t, res.Ready)
	e.checkKeys(t)
	e.claimKeyed(t, refs[1])
	e.requireLost(t, c[0], storage.LostCancelled)
}
