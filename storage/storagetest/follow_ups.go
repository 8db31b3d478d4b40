package storagetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/faults"
)

// followUpRules check S10: what a completion enqueues is there with it, or not at all. That a
// claim which is not held enqueues nothing is checked with the other writes of the fence.
func followUpRules() []rule {
	return []rule{
		{name: "S10_they_are_there_with_the_completion", clocks: bothClocks, run: followUps},
		{name: "S10_E7_a_delayed_one", clocks: settable, run: followUpDelayed},
		{name: "S10_S6_none_for_a_claim_that_was_settled_in_another_way", clocks: settable, run: followUpSettled},
		{name: "S10_S14_a_cancel_that_was_asked_for_stops_none", clocks: settable, run: followUpCancelled},
		{name: "S10_S11_in_a_batch_each_item_for_itself", clocks: bothClocks, run: followUpBatch},
		{name: "S10_S11_a_message_named_twice_has_one_set", clocks: settable, run: followUpTwice},
		{name: "S5_a_repeat_answers_the_same_ids_and_writes_nothing", clocks: settable, run: followUpRepeat},
		{name: "S5_D8_the_repeat_after_a_lost_answer", clocks: bothClocks, run: followUpLost},
		{name: "S10_E1_a_duplicate_is_answered_in_place", clocks: bothClocks, run: followUpDuplicate},
		{name: "S10_E1_the_same_key_twice_is_one_message", clocks: settable, run: followUpKeyTwice},
		{name: "S10_E3_a_reused_key_refuses_it_whole", clocks: bothClocks, run: followUpReused},
		{name: "S10_E3_two_that_contradict_each_other", clocks: settable, run: followUpContradict},
		{name: "S10_E5_a_key_whose_message_is_past_its_retention", clocks: settable, run: followUpKeyFree},
		{name: "S10_O5_into_the_key_of_the_completed_message", clocks: bothClocks, run: followUpSameKey},
		{name: "S10_O6_a_delayed_one_holds_the_key_of_the_completed_message", clocks: settable, run: followUpSameKeyDelayed},
		{name: "S10_O4_into_other_keys", clocks: bothClocks, run: followUpOtherKeys},
		{name: "S10_O7_behind_a_dead_message", clocks: settable, run: followUpBlocked},
		{name: "S10_a_queue_that_is_not_there", clocks: bothClocks, run: followUpNoQueue},
		{name: "S10_E6_a_key_that_somebody_holds_is_unknown", clocks: bothClocks, run: followUpKeyHeld, skip: needsHeldKeys},
	}
}

// completion completes with follow-ups.
func completion(ref storage.Ref, token storage.Token, followUps ...storage.NewMessage) storage.Settlement {
	return storage.Settlement{Ref: ref, Token: token, Action: storage.ActionComplete, Result: []byte("result"), FollowUps: followUps}
}

func completionOf(c storage.Claimed, followUps ...storage.NewMessage) storage.Settlement {
	return completion(c.Message.Ref, c.Token, followUps...)
}

// completeWith completes and requires that it is applied, with an answer for each follow-up.
// It returns their references and the queues that were named ready.
func (e *env) completeWith(t *testing.T, c storage.Claimed, followUps ...storage.NewMessage) ([]storage.Ref, []int32) {
	t.Helper()
	res, err := e.store.Settle(t.Context(), storage.SettleParams{Items: []storage.Settlement{completionOf(c, followUps...)}})
	require.NoError(t, err)
	e.checkNow(t, res.Now)
	got := res.Items[0]
	require.Equal(t, storage.ItemApplied, got.Status)
	require.Equal(t, storage.OutcomeCompleted, got.Outcome)
	require.Len(t, got.FollowUps, len(followUps))
	require.Len(t, got.Duplicates, len(followUps))
	for i, ref := range got.FollowUps {
		require.Equal(t, followUps[i].QueueID, ref.QueueID)
	}
	require.Equal(t, storage.StateCompleted, e.get(t, c.Message.Ref).State)
	require.Equal(t, "result", string(e.get(t, c.Message.Ref).Result))
	return got.FollowUps, res.Ready
}

func followUps(t *testing.T, e *env) {
	other := e.on(e.newQueue(t, settings()))
	e.one(t)
	c := e.claimOne(t)
	refs, ready := e.completeWith(
		t, c,
		e.message(payload([]byte("first")), priority(3)),
		other.message(payload([]byte("second")), maxAttempts(7)),
		e.message(payload([]byte("third"))),
	)
	require.Contains(t, ready, e.queue.ID)
	require.Contains(t, ready, other.queue.ID)
	require.Greater(t, refs[0].Position, c.Message.Ref.Position)
	require.Greater(t, refs[2].Position, refs[0].Position)
	got := e.claimKeyed(t, refs[0], refs[2])
	require.Equal(t, "first", string(got[0].Message.Payload))
	require.EqualValues(t, 3, got[0].Message.Priority)
	require.EqualValues(t, 1, got[0].Message.Attempt)
	require.Equal(t, e.queue.MaxAttempts, got[0].Message.MaxAttempts, "the setting of the queue")
	second := other.claimKeyed(t, refs[1])[0]
	require.Equal(t, "second", string(second.Message.Payload))
	require.EqualValues(t, 7, second.Message.MaxAttempts)

	// A chain: the follow-up of a follow-up, through the other store.
	last, _ := e.through(e.other).completeWith(t, got[0], e.message())
	require.Equal(t, last, refsOf(e.claimN(t, 10)))
}

func followUpDelayed(t *testing.T, e *env) {
	e.one(t)
	refs, ready := e.completeWith(t, e.claimOne(t), e.message(delay(10*time.Second)))
	require.Contains(t, ready, e.queue.ID, "somebody has to know of its time")
	e.advance(t, 10*time.Second-e.tick)
	e.claimNothing(t)
	e.advance(t, e.tick)
	require.Equal(t, refs, refsOf(e.claimN(t, 10)))
}

func followUpSettled(t *testing.T, e *env) {
	for _, a := range actions {
		if a.action == storage.ActionComplete {
			continue
		}
		e.one(t)
		c := e.claimOne(t)
		s := settlement(c, a.action)
		s.Delay = time.Hour
		require.Equal(t, storage.ItemApplied, e.settle(t, s)[0].Status)
		e.unchanged(t, func() {
			got := e.settle(t, completionOf(c, e.message()))[0]
			require.Equal(t, storage.ItemSettled, got.Status)
			require.Equal(t, a.outcome, got.Outcome)
			require.Empty(t, got.FollowUps)
		})
	}
}

func followUpCancelled(t *testing.T, e *env) {
	ref := e.one(t)
	c := e.claimOne(t)
	_, err := e.store.Cancel(t.Context(), storage.CancelParams{QueueID: e.queue.ID, Ref: ref})
	require.NoError(t, err)
	refs, _ := e.completeWith(t, c, e.message())
	require.Equal(t, refs, refsOf(e.claimN(t, 10)))
}

func followUpBatch(t *testing.T, e *env) {
	e.many(t, 6)
	e.enqueueResult(t, e.message(keyed("taken", "content"), delay(time.Hour)))
	cs := e.claimN(t, 6)
	lostClaim := completionOf(cs[1], e.message(payload([]byte("1"))))
	lostClaim.Token = never
	reused := completionOf(cs[2], e.message(payload([]byte("2"))), e.message(keyed("taken", "other content")))
	res, err := e.store.Settle(t.Context(), storage.SettleParams{Items: []storage.Settlement{
		completionOf(cs[0], e.message(payload([]byte("0")))), lostClaim, reused, settlement(cs[3], storage.ActionComplete),
		completionOf(cs[4], e.message(payload([]byte("4a"))), e.message(payload([]byte("4b")))), settlement(cs[5], storage.ActionDeadLetter),
	}})
	require.NoError(t, err)
	var statuses []storage.ItemStatus
	for _, got := range res.Items {
		statuses = append(statuses, got.Status)
	}
	require.Equal(t, []storage.ItemStatus{
		storage.ItemApplied, storage.ItemLost, storage.ItemKeyReused, storage.ItemApplied, storage.ItemApplied, storage.ItemApplied,
	}, statuses)
	require.Equal(t, 1, res.Items[2].KeyReused)
	require.Empty(t, res.Items[2].FollowUps)
	require.Empty(t, res.Items[3].FollowUps)
	got := e.claimN(t, 10)
	require.ElementsMatch(t, slices.Concat(res.Items[0].FollowUps, res.Items[4].FollowUps), refsOf(got))
	for _, c := range cs[1:3] {
		e.complete(t, c) // held as before
	}
}

func followUpTwice(t *testing.T, e *env) {
	e.one(t)
	c := e.claimOne(t)
	got := e.settle(t, completionOf(c, e.message()), completionOf(c, e.message()), settlement(c, storage.ActionRetry))
	statuses := map[storage.ItemStatus]int{}
	for i, item := range got {
		statuses[item.Status]++
		if i < 2 && item.Status == storage.ItemAlreadySettled {
			require.Equal(t, facts(got[1-i]), facts(item))
		}
	}
	if statuses[storage.ItemApplied] != 1 {
		t.Fatalf("%v: one of them is applied", statuses)
	}
	if got[2].Status == storage.ItemApplied {
		e.claimNothing(t)
		return
	}
	require.Len(t, e.claimN(t, 10), 1)
}

func followUpRepeat(t *testing.T, e *env) {
	other := e.on(e.newQueue(t, settings()))
	e.one(t)
	c := e.claimOne(t)
	s := completionOf(c, e.message(keyed("k", "k")), other.message(ordered("o")), e.message())
	first := e.settle(t, s)[0]
	require.Equal(t, storage.ItemApplied, first.Status)
	same := func(when string, s storage.Settlement) {
		t.Helper()
		for _, on := range []*env{e, e.through(e.other)} {
			e.unchanged(t, func() {
				again := on.settle(t, s)[0]
				require.Equal(t, storage.ItemAlreadySettled, again.Status, when)
				require.Equal(t, facts(first), facts(again), when)
			})
		}
	}
	e.advance(t, time.Second)
	same("at once", s)
	same("with the token alone", settlement(c, storage.ActionComplete))
	same("with other follow-ups", completionOf(c, e.message(keyed("k", "other content"))))
	for _, on := range []*env{e, other} {
		for _, got := range on.claimN(t, 10) {
			on.complete(t, got)
		}
	}
	same("after they were completed", s)
	e.advance(t, 50*time.Minute)
	same("for as long as the completion is kept", s)
}

func followUpLost(t *testing.T, e *env) {
	broken := faults.Wrap(e.store)
	for round := range 5 {
		e.one(t)
		c := e.claimOne(t)
		key := fmt.Sprint("round ", round)
		s := completionOf(c, e.message(), e.message(keyed(key, key)))
		if round%2 == 0 {
			broken.Inject(faults.Settle, faults.Fault{Lose: true, Times: 1})
		} else {
			broken.Inject(faults.Settle, faults.Fault{Cut: true, Times: 1})
		}
		_, err := broken.Settle(t.Context(), storage.SettleParams{Items: []storage.Settlement{s}})
		require.ErrorIs(t, err, storage.ErrOutcomeUnknown)
		res, err := broken.Settle(t.Context(), storage.SettleParams{Items: []storage.Settlement{s}})
		require.NoError(t, err)
		require.Contains(t, []storage.ItemStatus{storage.ItemApplied, storage.ItemAlreadySettled}, res.Items[0].Status)
		got := e.claimN(t, 10)
		require.Equal(t, res.Items[0].FollowUps, refsOf(got), "one set")
		for _, f := range got {
			e.complete(t, f)
		}
	}
}

func followUpDuplicate(t *testing.T, e *env) {
	known := e.one(t, keyed("k", "k"))
	c := e.claimOne(t)
	e.complete(t, c)
	e.one(t)
	c = e.claimOne(t)
	s := completionOf(c, e.message(), e.message(keyed("k", "k")), e.message(keyed("new", "new")))
	got := e.settle(t, s)[0]
	require.Equal(t, storage.ItemApplied, got.Status)
	require.Equal(t, []bool{false, true, false}, got.Duplicates)
	require.Equal(t, known, got.FollowUps[1], "a completed message too, as long as it is kept")
	require.Equal(t, facts(got), facts(e.settle(t, s)[0]), "S5")
	require.Equal(t, []storage.Ref{got.FollowUps[0], got.FollowUps[2]}, refsOf(e.claimN(t, 10)))
	again := e.enqueueResult(t, e.message(keyed("new", "new")))[0]
	require.Equal(t, storage.EnqueueDuplicate, again.Status, "its key is taken from now on")
	require.Equal(t, got.FollowUps[2], again.Ref)
}

func followUpKeyTwice(t *testing.T, e *env) {
	e.one(t)
	got := e.settle(t, completionOf(e.claimOne(t), e.message(keyed("k", "k")), e.message(keyed("k", "k"))))[0]
	require.Equal(t, storage.ItemApplied, got.Status)
	require.Equal(t, []bool{false, true}, got.Duplicates)
	require.Equal(t, got.FollowUps[0], got.FollowUps[1])
	require.Equal(t, got.FollowUps[:1], refsOf(e.claimN(t, 10)))
}

func followUpReused(t *testing.T, e *env) {
	e.one(t, keyed("k", "k"), delay(time.Hour))
	for _, key := range []string{"", "ordered"} {
		ref := e.one(t, ordered(key))
		e.one(t, ordered("other"), delay(time.Hour))
		c := e.claimOne(t)
		require.Equal(t, ref, c.Message.Ref)
		row := e.liveRow(t, ref)
		e.unchanged(t, func() {
			got := e.settle(t, completionOf(
				c, e.message(), e.message(keyed("free", "free")), e.message(ordered("other")),
				e.message(keyed("k", "other content")),
			))[0]
			require.Equal(t, storage.ItemKeyReused, got.Status)
			require.Equal(t, 3, got.KeyReused)
			require.Empty(t, got.FollowUps)
		})
		require.Equal(t, row, e.liveRow(t, ref))
		require.Equal(t, storage.ItemApplied, e.renew(t, renewal(c, time.Hour))[0].Status, "the claim is held as before")
		refs, _ := e.completeWith(t, c, e.message(keyed("free", "free"+key)))
		require.Equal(t, refs, refsOf(e.claimN(t, 10)))
		e.queue = e.newQueue(t, settings())
		e.one(t, keyed("k", "k"), delay(time.Hour))
	}
}

func followUpContradict(t *testing.T, e *env) {
	e.one(t)
	c := e.claimOne(t)
	e.unchanged(t, func() {
		got := e.settle(t, completionOf(c, e.message(keyed("k", "k")), e.message(keyed("k", "other content"))))[0]
		require.Equal(t, storage.ItemKeyReused, got.Status)
		require.Equal(t, 1, got.KeyReused)
	})
	e.complete(t, c)
}

func followUpKeyFree(t *testing.T, e *env) {
	old := e.one(t, keyed("k", "k"))
	e.complete(t, e.claimOne(t))
	e.advance(t, e.queue.CompletedRetention)
	e.one(t)
	refs, _ := e.completeWith(t, e.claimOne(t), e.message(keyed("k", "other content")))
	require.NotEqual(t, old, refs[0])
	require.Equal(t, refs, refsOf(e.claimN(t, 10)))
}

func followUpSameKey(t *testing.T, e *env) {
	first := e.many(t, 3, ordered("a"))
	c := e.claimKeyed(t, first[0])[0]
	refs, ready := e.completeWith(t, c, e.message(ordered("a")), e.message(ordered("a")))
	require.Contains(t, ready, e.queue.ID)
	require.Equal(t, slices.Concat(first[1:], refs), e.drain(t), "first those that were there, then the follow-ups")

	// Nothing was there before: the follow-up is the head at once.
	e.one(t, ordered("b"))
	refs, _ = e.completeWith(t, e.claimOne(t), e.message(ordered("b")), e.message(ordered("b")))
	require.Equal(t, refs, e.drain(t))
}

func followUpSameKeyDelayed(t *testing.T, e *env) {
	e.one(t, ordered("a"))
	refs, _ := e.completeWith(t, e.claimOne(t), e.message(ordered("a"), delay(10*time.Second)), e.message(ordered("a")))
	e.claimNothing(t)
	e.checkKeys(t)
	e.advance(t, 10*time.Second)
	c := e.claimKeyed(t, refs[0])[0]
	e.completeNext(t, c)
	e.claimKeyed(t, refs[1])
}

func followUpOtherKeys(t *testing.T, e *env) {
	b := e.one(t, ordered("b"))
	held := e.claimKeyed(t, b)[0]
	a := e.many(t, 2, ordered("a"))
	c := e.claimKeyed(t, a[0])[0]
	refs, _ := e.completeWith(
		t, c, e.message(ordered("b")), e.message(ordered("c")), e.message(ordered("c")), e.message(), e.message(ordered("b")),
	)
	e.checkKeys(t)
	got := e.claimN(t, 10)
	require.ElementsMatch(t, []storage.Ref{a[1], refs[1], refs[3]}, refsOf(got))
	for _, next := range got {
		e.complete(t, next)
	}
	e.completeNext(t, held)
	require.ElementsMatch(t, []storage.Ref{refs[0], refs[2], refs[4]}, e.drain(t))
	require.Less(t, refs[0].Position, refs[4].Position)
}

func followUpBlocked(t *testing.T, e *env) {
	s := settings()
	s.Ordering = storage.OrderingBlockOnDead
	e = e.on(e.newQueue(t, s))
	e.one(t, ordered("a"))
	require.Equal(t, storage.ItemApplied, e.settle(t, settlement(e.claimOne(t), storage.ActionDeadLetter))[0].Status)
	e.one(t)
	refs, _ := e.completeWith(t, e.claimOne(t), e.message(ordered("a")), e.message(ordered("b")))
	e.checkKeys(t, "a")
	require.Equal(t, refs[1:], refsOf(e.claimN(t, 10)))
}

func followUpNoQueue(t *testing.T, e *env) {
	e.one(t, ordered("a"))
	c := e.claimOne(t)
	e.unchanged(t, func() {
		for _, m := range []storage.NewMessage{
			{QueueID: 1 << 30, WireBytes: 100},
			{QueueID: 1 << 30, WireBytes: 100, OrderingKey: "a"},
			{QueueID: 1 << 30, WireBytes: 100, IdempotencyKey: "k"},
		} {
			_, err := e.store.Settle(t.Context(), storage.SettleParams{Items: []storage.Settlement{completionOf(c, e.message(), m)}})
			require.ErrorIs(t, err, storage.ErrQueueNotFound)
		}
	})
	e.complete(t, c)
}

func followUpKeyHeld(t *testing.T, e *env) {
	end := e.in.HoldIdempotencyKey(t, e.queue.ID, "k")
	defer func() { end(false) }()
	e.many(t, 2)
	cs := e.claimAs(t, "A", 2, time.Hour)
	got := e.settle(t, completionOf(cs[0], e.message(keyed("k", "k"))), completionOf(cs[1], e.message(keyed("free", "free"))))
	require.Equal(t, storage.ItemUnknown, got[0].Status, "it waited, and nothing changed")
	require.Equal(t, storage.ItemApplied, got[1].Status, "no neighbour waits with it for long")
	require.Equal(t, got[1].FollowUps, refsOf(e.claimN(t, 10)))
	end(false)
	end = func(bool) {}
	refs, _ := e.completeWith(t, cs[0], e.message(keyed("k", "k")))
	require.Equal(t, refs, refsOf(e.claimN(t, 10)))
}
