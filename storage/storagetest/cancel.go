package storagetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// cancelRules check how a producer ends a message (S14, R6).
func cancelRules() []rule {
	rules := []rule{
		{name: "S14_a_pending_message_is_cancelled_at_once", clocks: bothClocks, run: cancelPending},
		{name: "S14_a_delayed_message_is_cancelled_at_once", clocks: settable, run: cancelDelayed},
		{name: "S14_by_idempotency_key", clocks: settable, run: cancelByKey},
		{name: "S14_E1_the_key_of_a_cancelled_message_stays_taken", clocks: settable, run: cancelKeepsKey},
		{name: "S14_S8_no_such_message", clocks: settable, run: cancelNotFound},
		{name: "S14_a_finished_message_stays_as_it_is", clocks: settable, run: cancelFinished},
		{name: "S14_R6_the_holder_is_asked", clocks: bothClocks, run: cancelHeld},
		{name: "S14_asking_twice_changes_nothing_more", clocks: settable, run: cancelTwice},
		{name: "S14_retry_on_the_last_attempt", clocks: settable, run: cancelLastAttempt},
		{name: "S14_S8_at_the_lease_end_the_sweep_ends_it", clocks: bothClocks, run: cancelSwept},
		{name: "S14_S8_after_the_lease_end_it_is_cancelled_at_once", clocks: bothClocks, run: cancelExpiredLease},
		{name: "S14_C3_to_the_tick", clocks: settable, run: cancelTick},
		{name: "S14_S8_after_a_retry_the_old_token_is_still_answered", clocks: settable, run: cancelRetried},
		{name: "S14_C15_a_claim_that_was_given_back", clocks: settable, run: cancelGivenBack},
		{name: "S14_C14_a_repeat_of_the_claim_still_has_it", clocks: settable, run: cancelReplay},
		{name: "S14_S13_a_held_row_bounds_the_wait", clocks: settable, run: cancelHeldRow, skip: needsRowLocks},
	}
	for _, act := range actions {
		rules = append(rules, rule{
			name: "S14_" + act.name + "_of_a_message_whose_holder_was_asked", clocks: settable,
			run: func(t *testing.T, e *env) { cancelSettled(t, e, act.action) },
		})
	}
	return rules
}

func cancelPending(t *testing.T, e *env) {
	refs := e.many(t, 2)
	require.Equal(t, storage.StateCancelled, e.cancel(t, refs[0]))
	e.requireCancelled(t, refs[0], 0)
	require.Equal(t, refs[1:], refsOf(e.claimN(t, 10)), "the neighbour is untouched")
	e.unchanged(t, func() {
		require.Equal(t, storage.StateCancelled, e.cancel(t, refs[0]), "again")
		res := e.sweep(t, refs[0])
		require.Zero(t, res.Dead+res.Expired+res.Cancelled)
	})
	lost := e.settle(t, settlementOf(refs[0], never, storage.ActionComplete))[0]
	require.Equal(t, storage.ItemLost, lost.Status)
}

func cancelDelayed(t *testing.T, e *env) {
	ref := e.one(t, delay(time.Hour))
	require.Equal(t, storage.StateCancelled, e.cancel(t, ref))
	e.requireCancelled(t, ref, 0)
	e.advance(t, 30*time.Minute)
	require.Equal(t, storage.StateCancelled, e.get(t, ref).State, "kept like a completed one")
	e.claimNothing(t)
}

func cancelByKey(t *testing.T, e *env) {
	ref := e.enqueue(t, e.message(keyed("key", "content")))[0]
	other := e.on(e.newQueue(t, settings()))
	same := other.enqueue(t, other.message(keyed("key", "content")))[0]
	require.Equal(t, storage.StateCancelled, e.cancelKey(t, ref, "key"))
	e.requireCancelled(t, ref, 0)
	require.Equal(t, storage.StatePending, other.get(t, same).State, "the key of another queue")
	require.Equal(t, storage.StateCancelled, e.cancelKey(t, ref, "key"), "again")

	held := e.enqueue(t, e.message(keyed("held", "content")))[0]
	c := e.claimOne(t)
	require.Equal(t, storage.StateProcessing, e.cancelKey(t, held, "held"))
	e.complete(t, c)
	require.Equal(t, storage.StateCompleted, e.cancelKey(t, held, "held"))
}

func cancelKeepsKey(t *testing.T, e *env) {
	m := e.message(keyed("key", "content"))
	ref := e.enqueue(t, m)[0]
	e.cancel(t, ref)
	got := e.enqueueResult(t, m)[0]
	require.Equal(t, storage.EnqueueDuplicate, got.Status)
	require.Equal(t, ref, got.Ref)
	require.Equal(t, storage.StateCancelled, got.State)
	require.Equal(t, storage.EnqueueKeyReused, e.enqueueResult(t, e.message(keyed("key", "other")))[0].Status)
	e.advance(t, time.Hour+2*e.tick)
	_, err := e.store.Cancel(t.Context(), storage.CancelParams{QueueID: e.queue.ID, IdempotencyKey: "key"})
	require.ErrorIs(t, err, storage.ErrMessageNotFound, "past its retention")
	require.Equal(t, storage.EnqueueInserted, e.enqueueResult(t, m)[0].Status, "E5")
}

func cancelNotFound(t *testing.T, e *env) {
	ref := e.one(t)
	other := e.newQueue(t, settings())
	e.unchanged(t, func() {
		for _, p := range []storage.CancelParams{
			{QueueID: e.queue.ID, Ref: storage.Ref{QueueID: e.queue.ID, Position: 1 << 60}},
			{QueueID: e.queue.ID, IdempotencyKey: "no such key"},
			{QueueID: other.ID, Ref: storage.Ref{QueueID: other.ID, Position: ref.Position}},
			{QueueID: 1 << 30, IdempotencyKey: "no such queue"},
		} {
			_, err := e.store.Cancel(t.Context(), p)
			require.ErrorIs(t, err, storage.ErrMessageNotFound, "%+v", p)
		}
	})
}

func cancelFinished(t *testing.T, e *env) {
	done, dead := e.one(t), e.one(t)
	cs := e.claimN(t, 2)
	e.complete(t, cs[0])
	require.Equal(t, storage.ItemApplied, e.settle(t, settlement(cs[1], storage.ActionDeadLetter))[0].Status)
	e.unchanged(t, func() {
		require.Equal(t, storage.StateCompleted, e.cancel(t, done))
		require.Equal(t, storage.StateDead, e.cancel(t, dead))
	})
}

func cancelHeld(t *testing.T, e *env) {
	ref := e.one(t)
	c := e.claimOneAs(t, "worker", time.Minute)
	require.False(t, e.renew(t, renewal(c, time.Minute))[0].CancelRequested)
	require.Equal(t, storage.StateProcessing, e.through(e.other).cancel(t, ref))
	m := e.get(t, ref)
	require.Equal(t, storage.StateProcessing, m.State)
	require.EqualValues(t, 1, m.Attempt)
	got := e.renew(t, renewal(c, time.Minute))[0]
	require.Equal(t, storage.ItemApplied, got.Status, "the lease still holds")
	require.True(t, got.CancelRequested, "R6")
	e.unchanged(t, func() {
		res := e.sweep(t, ref)
		require.Zero(t, res.Cancelled, "a live lease")
	})
	e.complete(t, c)
	require.Equal(t, storage.StateCompleted, e.get(t, ref).State)
}

func cancelTwice(t *testing.T, e *env) {
	ref := e.one(t)
	e.claimOne(t)
	require.Equal(t, storage.StateProcessing, e.cancel(t, ref))
	row := e.liveRow(t, ref)
	require.Equal(t, storage.StateProcessing, e.cancel(t, ref))
	require.Equal(t, row, e.liveRow(t, ref))
}

func cancelSettled(t *testing.T, e *env, a storage.Action) {
	t.Helper()
	ref := e.one(t)
	c := e.claimOne(t)
	require.Equal(t, storage.StateProcessing, e.cancel(t, ref))
	s := settlement(c, a)
	got := e.settle(t, s)[0]
	require.Equal(t, storage.ItemApplied, got.Status)
	want, state := storage.OutcomeCancelled, storage.StateCancelled
	switch a {
	case storage.ActionComplete:
		want, state = storage.OutcomeCompleted, storage.StateCompleted
	case storage.ActionDeadLetter:
		want, state = storage.OutcomeDead, storage.StateDead
	case storage.ActionRetry, storage.ActionRelease, storage.ActionRevoke:
	}
	require.Equal(t, want, got.Outcome)
	require.Nil(t, e.in.Row(t, ref))
	require.Equal(t, state, e.get(t, ref).State)
	again := e.settle(t, s)[0]
	require.Equal(t, storage.ItemAlreadySettled, again.Status, "S5")
	require.Equal(t, facts(got), facts(again))
	differs := e.settle(t, settlement(c, other(a)))[0]
	require.Equal(t, storage.ItemSettled, differs.Status, "S6")
	require.Equal(t, want, differs.Outcome)
	renewed := e.renew(t, renewal(c, lease))[0]
	require.Equal(t, storage.ItemSettled, renewed.Status, "S12")
	require.Equal(t, want, renewed.Outcome)
	e.claimNothing(t)
}

// other returns an action that differs.
func other(a storage.Action) storage.Action {
	if a == storage.ActionComplete {
		return storage.ActionRetry
	}
	return storage.ActionComplete
}

func cancelLastAttempt(t *testing.T, e *env) {
	ref := e.one(t, maxAttempts(1))
	c := e.claimOne(t)
	require.Equal(t, storage.StateProcessing, e.cancel(t, ref))
	got := e.settle(t, settlement(c, storage.ActionRetry))[0]
	require.Equal(t, storage.OutcomeCancelled, got.Outcome)
	e.requireCancelled(t, ref, 1)
}

func cancelSwept(t *testing.T, e *env) {
	ref := e.one(t)
	c := e.claimOneAs(t, "worker", 5*short)
	require.Equal(t, storage.StateProcessing, e.cancel(t, ref))
	e.waitClock(t, c.Message.LeaseEnd)
	e.claimNothing(t)
	res := e.sweep(t, ref)
	require.Equal(t, [3]int{0, 0, 1}, [3]int{res.Dead, res.Expired, res.Cancelled})
	e.requireCancelled(t, ref, 1)
	e.requireLost(t, c, storage.LostCancelled)
}

func cancelExpiredLease(t *testing.T, e *env) {
	ref := e.one(t)
	c := e.claimOneAs(t, "worker", short)
	e.waitClock(t, c.Message.LeaseEnd)
	require.Equal(t, storage.StateCancelled, e.cancel(t, ref))
	e.requireCancelled(t, ref, 1)
	e.requireLost(t, c, storage.LostCancelled)
	e.claimNothing(t)
}

func cancelTick(t *testing.T, e *env) {
	refs := e.many(t, 2)
	cs := e.claimN(t, 2)
	e.advanceTo(t, cs[0].Message.LeaseEnd.Add(-e.tick))
	require.Equal(t, storage.StateProcessing, e.cancel(t, refs[0]))
	e.advanceTo(t, cs[0].Message.LeaseEnd)
	require.Equal(t, storage.StateCancelled, e.cancel(t, refs[1]))
	require.Empty(t, e.claimN(t, 10), "neither is handed out again")
	require.Equal(t, storage.StateCancelled, e.cancel(t, refs[0]), "asked before, and over now")
}

func cancelRetried(t *testing.T, e *env) {
	ref := e.one(t)
	c := e.claimOne(t)
	s := settlement(c, storage.ActionRetry)
	want := e.settle(t, s)[0]
	require.Equal(t, storage.StateCancelled, e.cancel(t, ref))
	got := e.settle(t, s)[0]
	require.Equal(t, storage.ItemAlreadySettled, got.Status)
	require.Equal(t, facts(want), facts(got))
	differs := e.settle(t, settlement(c, storage.ActionComplete))[0]
	require.Equal(t, storage.ItemSettled, differs.Status)
	require.Equal(t, storage.OutcomeRetried, differs.Outcome)
	require.Equal(t, "try again", e.get(t, ref).LastError)
}

func cancelGivenBack(t *testing.T, e *env) {
	ref := e.one(t)
	c := e.claimOne(t)
	require.Equal(t, storage.StateProcessing, e.cancel(t, ref))
	e.giveBack(t, storage.GiveBackParams{Claims: held(c)})
	require.Empty(t, e.claimN(t, 10), "never handed out again")
	e.advance(t, 2*lease)
	require.Empty(t, e.claimN(t, 10))
	e.sweep(t, ref)
	require.Equal(t, storage.StateCancelled, e.get(t, ref).State)
}

func cancelReplay(t *testing.T, e *env) {
	ref := e.one(t)
	first := e.claimWithID(t, "A", claimID(1), 1)
	require.Equal(t, storage.StateProcessing, e.cancel(t, ref))
	again := e.claimWithID(t, "A", claimID(1), 1)
	require.Equal(t, storage.ClaimReplayed, again.Status)
	require.Equal(t, first.Messages[0].Token, again.Messages[0].Token)
	e.complete(t, again.Messages[0])
}

func cancelHeldRow(t *testing.T, e *env) {
	ref := e.one(t)
	release := e.in.Hold(t, ref, HoldLock)
	ctx, stop := context.WithTimeout(t.Context(), soon)
	defer stop()
	_, err := e.store.Cancel(ctx, storage.CancelParams{QueueID: e.queue.ID, Ref: ref})
	require.ErrorIs(t, err, storage.ErrUnavailable)
	require.NoError(t, ctx.Err(), "the wait is the backend's own")
	release()
	require.Equal(t, storage.StatePending, e.get(t, ref).State, "nothing happens later")
	require.Equal(t, storage.StateCancelled, e.cancel(t, ref))
}
