package storagetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// giveBackRules check C15: a caller that vanished keeps nothing.
func giveBackRules() []rule {
	return []rule{
		{name: "C15_given_back_messages_are_claimable_at_once_with_the_attempt_refunded", clocks: bothClocks, run: giveBack},
		{name: "C15_what_a_repeat_received_is_never_given_back", clocks: bothClocks, run: giveBackAfterReplay},
		{name: "C15_a_repeat_after_the_give_back_gets_no_old_token", clocks: bothClocks, run: replayAfterGiveBack},
		{name: "C14_C15_a_repeat_that_found_nothing_held_keeps_the_id_from_a_give_back", clocks: settable, run: giveBackAfterEmptyReplay},
		{name: "C15_a_give_back_fails_on_the_fence_item_by_item", clocks: settable, run: giveBackFence},
		{name: "C15_a_give_back_at_the_lease_end_changes_nothing", clocks: settable, run: giveBackLate},
		{name: "C15_the_token_of_a_claim_given_back_is_lost", clocks: settable, run: giveBackToken},
	}
}

func giveBack(t *testing.T, e *env) {
	refs := e.many(t, 4)
	for _, id := range []storage.ClaimID{{}, claimID(1)} {
		got := e.claimWithID(t, "A", id, 3)
		require.Len(t, got.Messages, 3)
		require.Equal(t, 3, e.giveBack(t, storage.GiveBackParams{ClaimID: id, Claims: held(got.Messages...)}))
		for _, ref := range refs {
			m := e.get(t, ref)
			require.Equal(t, storage.StatePending, m.State)
			require.Zero(t, m.Attempt, "attempt refunded")
		}
	}
	again := e.claimN(t, 10)
	require.ElementsMatch(t, refs, refsOf(again))
	for _, c := range again {
		require.EqualValues(t, 1, c.Message.Attempt)
	}
}

func giveBackAfterReplay(t *testing.T, e *env) {
	e.many(t, 3)
	first := e.claimWithID(t, "A", claimID(1), 2)
	require.Len(t, first.Messages, 2)
	again := e.through(e.other).claimWithID(t, "A", claimID(1), 2)
	require.Equal(t, storage.ClaimReplayed, again.Status)
	rows := []map[string]string{e.liveRow(t, first.Messages[0].Message.Ref), e.liveRow(t, first.Messages[1].Message.Ref)}
	require.Zero(t, e.giveBack(t, storage.GiveBackParams{ClaimID: claimID(1), Claims: held(first.Messages...)}))
	for i, row := range rows {
		require.Equal(t, row, e.liveRow(t, first.Messages[i].Message.Ref), "the repeat keeps its rows")
	}
	for _, c := range again.Messages {
		e.complete(t, c)
	}
}

func giveBackAfterEmptyReplay(t *testing.T, e *env) {
	e.one(t)
	first := e.claimWithID(t, "A", claimID(1), 1)
	require.Len(t, first.Messages, 1)
	e.complete(t, first.Messages[0])
	again := e.claimWithID(t, "A", claimID(1), 1)
	require.Equal(t, storage.ClaimReplayed, again.Status)
	require.Empty(t, again.Messages)
	require.Zero(t, e.giveBack(t, storage.GiveBackParams{ClaimID: claimID(1), Claims: held(first.Messages...)}))
	require.Equal(t, storage.ClaimIDReused, e.claimWithID(t, "B", claimID(1), 1).Status, "its caller has had an answer")
}

func replayAfterGiveBack(t *testing.T, e *env) {
	e.many(t, 2)
	first := e.claimWithID(t, "A", claimID(1), 2)
	require.Len(t, first.Messages, 2)
	require.Equal(t, 2, e.giveBack(t, storage.GiveBackParams{ClaimID: claimID(1), Claims: held(first.Messages...)}))
	// Whether the repeat is empty or a claim of its own is the backend's choice; what
	// was given back is nobody's.
	again := e.claimWithID(t, "A", claimID(1), 2)
	if again.Status == storage.ClaimReplayed {
		require.Empty(t, again.Messages)
		require.Len(t, e.claimN(t, 2), 2, "both are claimable")
		return
	}
	require.Equal(t, storage.ClaimServed, again.Status)
	require.Len(t, again.Messages, 2)
	for i, c := range again.Messages {
		require.NotEqual(t, first.Messages[i].Token, c.Token)
		require.EqualValues(t, 1, c.Message.Attempt)
		e.complete(t, c)
	}
}

func giveBackFence(t *testing.T, e *env) {
	e.many(t, 3)
	first := e.claimAs(t, "A", 1, time.Second)
	second := e.claimAs(t, "A", 1, time.Hour)
	third := e.claimAs(t, "A", 1, time.Hour)
	e.complete(t, second[0])
	e.advance(t, time.Second)
	next := e.claimOneAs(t, "B", time.Hour)
	require.Equal(t, first[0].Message.Ref, next.Message.Ref)
	row := e.liveRow(t, next.Message.Ref)
	n := e.giveBack(t, storage.GiveBackParams{Claims: append(held(first[0], second[0], third[0]),
		storage.HeldClaim{Ref: storage.Ref{QueueID: e.queue.ID, Position: 1 << 60}, Token: storage.Token{1}},
		storage.HeldClaim{Ref: next.Message.Ref})})
	require.Equal(t, 1, n, "the one that is still held")
	require.Equal(t, row, e.liveRow(t, next.Message.Ref), "the claim of B is untouched")
	require.Equal(t, storage.StateCompleted, e.get(t, second[0].Message.Ref).State)
	require.Equal(t, storage.StatePending, e.get(t, third[0].Message.Ref).State)
	require.Zero(t, e.get(t, third[0].Message.Ref).Attempt)
}

func giveBackLate(t *testing.T, e *env) {
	e.one(t)
	c := e.claimOne(t)
	e.advance(t, lease)
	row := e.liveRow(t, c.Message.Ref)
	require.Zero(t, e.giveBack(t, storage.GiveBackParams{Claims: held(c)}))
	require.Equal(t, row, e.liveRow(t, c.Message.Ref))
}

func giveBackToken(t *testing.T, e *env) {
	ref := e.one(t)
	c := e.claimOne(t)
	require.Equal(t, 1, e.giveBack(t, storage.GiveBackParams{Claims: held(c)}))
	e.unchanged(t, func() {
		for _, a := range actions {
			got := e.settle(t, settlement(c, a.action))[0]
			require.Equal(t, storage.ItemLost, got.Status, a.name)
			require.Equal(t, storage.LostNotClaimed, got.Cause, a.name)
		}
		require.Equal(t, storage.ItemLost, e.renew(t, renewal(c, lease))[0].Status)
		require.Zero(t, e.giveBack(t, storage.GiveBackParams{Claims: held(c)}), "a second time")
	})
	again := e.claimOne(t)
	require.Equal(t, ref, again.Message.Ref)
	require.NotEqual(t, c.Token, again.Token)
}
