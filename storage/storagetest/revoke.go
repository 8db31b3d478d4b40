package storagetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// revokeRules check how an operator takes a claim away (S8 REVOKED).
func revokeRules() []rule {
	return []rule{
		{name: "S8_a_claim_is_taken_away_and_its_token_is_dead", clocks: bothClocks, run: revokeHeld},
		{name: "S8_REVOKED_after_another_worker_has_completed_the_message", clocks: bothClocks, run: revokeThenCompleted},
		{name: "S8_REVOKED_while_another_worker_holds_the_message", clocks: settable, run: revokeThenClaimed},
		{name: "S8_REVOKED_twice_on_two_tokens", clocks: settable, run: revokeTwice},
		{name: "S8_without_a_refund_the_attempt_stays_counted", clocks: settable, run: revokeCounted},
		{name: "S8_S4_on_the_last_attempt", clocks: settable, run: revokeLastAttempt},
		{name: "S8_S14_of_a_message_whose_holder_was_asked_to_stop", clocks: settable, run: revokeCancelled},
		{name: "S8_E7_of_a_message_that_has_expired", clocks: settable, run: revokeExpired},
		{name: "S8_nobody_holds_it", clocks: settable, run: revokeNobody},
		{name: "S8_C3_to_the_tick", clocks: settable, run: revokeTick},
		{name: "S8_no_such_message", clocks: settable, run: revokeNotFound},
		{name: "S8_E12_a_marked_message_stays_as_it_is", clocks: settable, run: revokeMarked, skip: needsMark},
		{name: "S8_C14_a_repeat_of_the_claim_does_not_get_it_again", clocks: settable, run: revokeReplay},
		{name: "S8_C15_a_give_back_of_a_revoked_claim_changes_nothing", clocks: settable, run: revokeGivenBack},
		{name: "S8_C9_the_message_is_ready_now_and_stands_last", clocks: settable, run: revokeReady},
		{name: "S8_D6_REVOKED_is_told_as_long_as_the_history_is_kept", clocks: settable, run: revokeRemembered},
		{name: "S8_S13_a_held_row_bounds_the_wait", clocks: settable, run: revokeHeldRow, skip: needsRowLocks},
		{name: "S8_S13_a_row_held_across_the_lease_end_is_not_revoked", clocks: settable, run: revokeAcrossLeaseEnd},
		{name: "O6_S8_a_revoked_head_stays_the_head_of_its_key", clocks: bothClocks, run: revokeOrdered},
		{name: "O7_S8_a_head_that_a_revocation_ends_lets_its_key_go_on", clocks: settable, run: revokeOrderedEnds},
		{name: "O7_S8_a_head_that_a_revocation_kills_blocks_its_key", clocks: settable, run: revokeOrderedBlocks},
		{name: "D12_S8_a_held_head_bounds_the_wait_and_its_key_is_free", clocks: settable, run: revokeOrderedHeld, skip: needsRowLocks},
		{name: "O1_O5_S8_revocations_racing_workers_of_ordering_keys", clocks: realClock, run: raceRevokeOrdered},
		{name: "S8_S7_a_revocation_racing_a_completion_has_one_winner", clocks: realClock, run: raceRevokeComplete},
		{name: "S8_R3_a_revocation_racing_a_renewal", clocks: realClock, run: raceRevokeRenew},
		{name: "S8_C1_revocations_racing_claimers", clocks: realClock, run: raceRevokeClaim},
	}
}

// revoke takes the claim of a message away, where there is one.
func (e *env) revoke(t *testing.T, ref storage.Ref, refund bool) storage.RevokeResult {
	t.Helper()
	res, err := e.store.Revoke(t.Context(), storage.RevokeParams{Ref: ref, Refund: refund})
	require.NoError(t, err, "revoke")
	e.checkNow(t, res.Now)
	require.Equal(t, ref, res.Message.Ref, "revoke tells the message")
	got := e.get(t, ref)
	got.Payload = nil
	require.Equal(t, got, res.Message, "the message is what the call made of it")
	return res
}

// revoked requires that a claim was there and is taken away.
func (e *env) revoked(t *testing.T, c storage.Claimed, refund bool) storage.RevokeResult {
	t.Helper()
	res := e.revoke(t, c.Message.Ref, refund)
	require.True(t, res.Revoked)
	require.Equal(t, c.Message.WorkerID, res.WorkerID)
	e.requireLost(t, c, storage.LostRevoked)
	return res
}

// notRevoked requires that nobody held the message and that nothing changes.
func (e *env) notRevoked(t *testing.T, ref storage.Ref, state storage.State) {
	t.Helper()
	e.unchanged(t, func() {
		res := e.revoke(t, ref, true)
		require.False(t, res.Revoked)
		require.False(t, res.Ready)
		require.Empty(t, res.WorkerID)
		require.Equal(t, state, res.Message.State)
	})
}

func revokeHeld(t *testing.T, e *env) {
	refs := e.many(t, 2)
	cs := e.claimAs(t, "A", 2, lease)
	neighbour := e.liveRow(t, refs[1])
	res := e.through(e.other).revoked(t, cs[0], true)
	require.True(t, res.Ready)
	m := res.Message
	require.Equal(t, storage.StatePending, m.State)
	require.Zero(t, m.Attempt, "the attempt is given back")
	require.True(t, m.LeaseEnd.IsZero(), "no lease is left")
	if e.settable() {
		sameTime(t, e.now, m.ReadyTime, "ready now")
	}
	require.Equal(t, neighbour, e.liveRow(t, refs[1]), "the neighbour is untouched")
	e.notRevoked(t, refs[0], storage.StatePending)

	again := e.claimOneAs(t, "B", lease)
	require.Equal(t, refs[0], again.Message.Ref, "claimable at once")
	require.NotEqual(t, cs[0].Token, again.Token)
	require.EqualValues(t, 1, again.Message.Attempt)
	e.complete(t, again)
	e.complete(t, cs[1])
}

func revokeThenCompleted(t *testing.T, e *env) {
	ref := e.one(t)
	old := e.claimOneAs(t, "A", lease)
	e.revoked(t, old, true)
	fresh := e.claimOneAs(t, "B", lease)
	e.complete(t, fresh)
	e.requireLost(t, old, storage.LostRevoked)
	require.Equal(t, storage.ItemAlreadySettled, e.settle(t, settlement(fresh, storage.ActionComplete))[0].Status, "S5 of the other")
	e.notRevoked(t, ref, storage.StateCompleted)
}

func revokeThenClaimed(t *testing.T, e *env) {
	ref := e.one(t)
	old := e.claimOneAs(t, "A", lease)
	e.revoked(t, old, false)
	fresh := e.claimOneAs(t, "B", lease)
	row := e.liveRow(t, ref)
	e.requireLost(t, old, storage.LostRevoked)
	require.Equal(t, row, e.liveRow(t, ref), "S1: the row of the new owner is byte for byte as before")
	require.Equal(t, storage.ItemApplied, e.settle(t, settlement(fresh, storage.ActionRetry))[0].Status)
	e.requireLost(t, old, storage.LostRevoked)
}

func revokeTwice(t *testing.T, e *env) {
	e.one(t)
	first := e.claimOneAs(t, "A", lease)
	e.revoked(t, first, true)
	second := e.claimOneAs(t, "A", lease)
	require.NotEqual(t, first.Token, second.Token)
	e.revoked(t, second, true)
	e.requireLost(t, first, storage.LostRevoked)
}

func revokeCounted(t *testing.T, e *env) {
	e.one(t, maxAttempts(2))
	c := e.claimOne(t)
	res := e.revoked(t, c, false)
	require.EqualValues(t, 1, res.Message.Attempt)
	require.EqualValues(t, 2, e.claimOne(t).Message.Attempt)
}

func revokeLastAttempt(t *testing.T, e *env) {
	ref := e.one(t, maxAttempts(1))
	c := e.claimOne(t)
	res := e.revoked(t, c, true)
	require.Equal(t, storage.StatePending, res.Message.State, "a refunded attempt can be made again")
	c = e.claimOne(t)
	res = e.revoked(t, c, false)
	require.False(t, res.Ready)
	e.requireDead(t, ref, storage.DeadReasonAttemptsExhausted, 1)
	e.claimNothing(t)
}

func revokeCancelled(t *testing.T, e *env) {
	ref := e.one(t)
	c := e.claimOne(t)
	require.Equal(t, storage.StateProcessing, e.cancel(t, ref))
	res := e.revoked(t, c, false)
	require.False(t, res.Ready)
	e.requireCancelled(t, ref, 1)
	e.claimNothing(t)
}

func revokeExpired(t *testing.T, e *env) {
	at := e.now.Add(time.Second)
	ref := e.one(t, expires(at))
	c := e.claimOne(t)
	e.advanceTo(t, at)
	e.revoked(t, c, false)
	e.requireDead(t, ref, storage.DeadReasonExpired, 1)
}

func revokeNobody(t *testing.T, e *env) {
	ref := e.one(t)
	e.notRevoked(t, ref, storage.StatePending)
	delayed := e.one(t, delay(time.Hour))
	e.notRevoked(t, delayed, storage.StatePending)
	c := e.claimOne(t)
	require.Equal(t, ref, c.Message.Ref)
	require.Equal(t, storage.ItemApplied, e.settle(t, settlement(c, storage.ActionDeadLetter))[0].Status)
	e.notRevoked(t, ref, storage.StateDead)
	require.Equal(t, storage.ItemAlreadySettled, e.settle(t, settlement(c, storage.ActionDeadLetter))[0].Status, "settled, not revoked")
	gone := e.one(t)
	require.Equal(t, storage.StateCancelled, e.cancel(t, gone))
	e.notRevoked(t, gone, storage.StateCancelled)
}

func revokeTick(t *testing.T, e *env) {
	refs := e.many(t, 2)
	cs := e.claimN(t, 2)
	e.advanceTo(t, cs[0].Message.LeaseEnd.Add(-e.tick))
	e.revoked(t, cs[0], true)
	e.advanceTo(t, cs[1].Message.LeaseEnd)
	e.notRevoked(t, refs[1], storage.StateProcessing)
	e.requireLost(t, cs[1], storage.LostLeaseExpired)
}

func revokeNotFound(t *testing.T, e *env) {
	ref := e.one(t)
	e.claimOne(t)
	other := e.newQueue(t, settings())
	e.unchanged(t, func() {
		for _, r := range []storage.Ref{
			{QueueID: e.queue.ID, Position: 1 << 60},
			{QueueID: other.ID, Position: ref.Position},
			{QueueID: 1 << 30, Position: ref.Position},
		} {
			_, err := e.store.Revoke(t.Context(), storage.RevokeParams{Ref: r})
			require.ErrorIs(t, err, storage.ErrMessageNotFound, "%+v", r)
		}
	})
}

func revokeMarked(t *testing.T, e *env) {
	ref := e.one(t)
	c := e.claimOne(t)
	e.in.Mark(t, ref, e.now)
	e.notRevoked(t, ref, storage.StateCompleted)
	got := e.settle(t, settlement(c, storage.ActionComplete))[0]
	require.Equal(t, storage.ItemAlreadySettled, got.Status, "the mark stands")
}

func revokeReplay(t *testing.T, e *env) {
	refs := e.many(t, 2)
	first := e.claimWithID(t, "A", claimID(1), 2)
	require.Len(t, first.Messages, 2)
	e.revoked(t, first.Messages[0], true)
	again := e.claimWithID(t, "A", claimID(1), 2)
	require.Equal(t, storage.ClaimReplayed, again.Status)
	require.Equal(t, refs[1:], refsOf(again.Messages), "the other one is still held")
	fresh := e.claimOneAs(t, "B", lease)
	require.Equal(t, refs[0], fresh.Message.Ref)
	again = e.claimWithID(t, "A", claimID(1), 2)
	require.Equal(t, refs[1:], refsOf(again.Messages), "a claim of another is never handed out")
	e.revoked(t, again.Messages[0], true)
	again = e.claimWithID(t, "A", claimID(1), 2)
	require.Equal(t, storage.ClaimReplayed, again.Status)
	require.Empty(t, again.Messages)
}

func revokeGivenBack(t *testing.T, e *env) {
	e.one(t)
	c := e.claimOne(t)
	e.revoked(t, c, true)
	e.unchanged(t, func() {
		require.Zero(t, e.giveBack(t, storage.GiveBackParams{Claims: held(c)}))
	})
	fresh := e.claimOneAs(t, "B", lease)
	e.unchanged(t, func() {
		require.Zero(t, e.giveBack(t, storage.GiveBackParams{Claims: held(c)}))
	})
	e.complete(t, fresh)
}

func revokeReady(t *testing.T, e *env) {
	refs := e.many(t, 3)
	c := e.claimOne(t)
	e.advance(t, time.Second)
	e.revoked(t, c, true)
	require.Equal(t, []storage.Ref{refs[1], refs[2], refs[0]}, refsOf(e.claimN(t, 10)))
}

func revokeRemembered(t *testing.T, e *env) {
	ref := e.one(t, maxAttempts(1))
	c := e.claimOne(t)
	e.revoked(t, c, false)
	// The dead message outlives the history: it says the same.
	e.advance(t, time.Hour+time.Second)
	for {
		res, err := e.store.Retain(t.Context(), storage.RetainParams{Limit: 1000})
		require.NoError(t, err)
		if !res.More {
			break
		}
	}
	require.Equal(t, storage.StateDead, e.get(t, ref).State)
	e.requireLost(t, c, storage.LostRevoked)
}

func revokeHeldRow(t *testing.T, e *env) {
	ref := e.one(t)
	c := e.claimOneAs(t, "A", time.Hour)
	release := e.in.Hold(t, ref, HoldLock)
	ctx, stop := context.WithTimeout(t.Context(), soon)
	defer stop()
	_, err := e.store.Revoke(ctx, storage.RevokeParams{Ref: ref})
	require.ErrorIs(t, err, storage.ErrUnavailable)
	require.NoError(t, ctx.Err(), "the wait is the backend's own")
	release()
	require.Equal(t, storage.StateProcessing, e.get(t, ref).State, "nothing happens later")
	e.revoked(t, c, true)
}

// revokeAcrossLeaseEnd: what waited for the row past the lease end finds nobody who holds it.
func revokeAcrossLeaseEnd(t *testing.T, e *env) {
	ref := e.one(t)
	c := e.claimOne(t)
	release := e.in.Hold(t, ref, HoldUpdate)
	type answer struct {
		res storage.RevokeResult
		err error
	}
	done := make(chan answer, 1)
	ctx, stop := context.WithTimeout(t.Context(), soon)
	defer stop()
	go func() {
		res, err := e.store.Revoke(ctx, storage.RevokeParams{Ref: ref, Refund: true})
		done <- answer{res, err}
	}()
	if e.in.Waiting != nil {
		eventually(t, "the revocation waits for the row", func() bool { return e.in.Waiting(t) })
	}
	e.advanceTo(t, c.Message.LeaseEnd)
	release()
	got := receive(t, done, "the answer of Revoke")
	require.NoError(t, got.err)
	require.False(t, got.res.Revoked, "the lease was over when the lock was had")
	require.Equal(t, storage.StateProcessing, got.res.Message.State)
	e.requireLost(t, c, storage.LostLeaseExpired)
}

func raceRevokeComplete(t *testing.T, e *env) {
	var completed, revoked int
	for round := range 40 {
		ref := e.one(t)
		c := e.claimOneAs(t, "A", time.Hour)
		var got storage.Settled
		var took storage.RevokeResult
		err := together(2, func(i int) (err error) {
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			if i == 0 {
				res, err := e.store.Settle(ctx, storage.SettleParams{Items: []storage.Settlement{settlement(c, storage.ActionComplete)}})
				if err == nil {
					got = res.Items[0]
				}
				return err
			}
			took, err = e.other.Revoke(ctx, storage.RevokeParams{Ref: ref, Refund: round%2 == 0})
			return err
		})
		require.NoError(t, err)
		if got.Status == storage.ItemApplied {
			completed++
			require.False(t, took.Revoked, "round %d: both won", round)
			require.Equal(t, storage.StateCompleted, took.Message.State)
			continue
		}
		revoked++
		require.True(t, took.Revoked, "round %d: nobody won: %+v", round, got)
		require.Equal(t, storage.ItemLost, got.Status)
		require.Equal(t, storage.LostRevoked, got.Cause)
		e.requireLost(t, c, storage.LostRevoked)
		e.complete(t, e.claimOne(t))
	}
	t.Logf("completed %d, revoked %d", completed, revoked)
}

func raceRevokeRenew(t *testing.T, e *env) {
	for range 30 {
		ref := e.one(t)
		c := e.claimOneAs(t, "A", time.Minute)
		// Renewals go on until one is refused; after that none is accepted any more.
		refused := 0
		err := together(2, func(i int) error {
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			if i == 1 {
				res, err := e.other.Revoke(ctx, storage.RevokeParams{Ref: ref, Refund: true})
				if err == nil && !res.Revoked {
					err = fmt.Errorf("the lease is live, and nobody else ends it: %+v", res)
				}
				return err
			}
			for refused < 5 {
				res, err := e.store.Renew(ctx, storage.RenewParams{Items: []storage.Renewal{renewal(c, time.Minute)}})
				if err != nil {
					return err
				}
				switch got := res.Items[0]; {
				case got.Status == storage.ItemApplied && refused > 0:
					return fmt.Errorf("renewed after it was revoked")
				case got.Status == storage.ItemLost && got.Cause == storage.LostRevoked:
					refused++
				case got.Status != storage.ItemApplied && got.Status != storage.ItemUnknown:
					return fmt.Errorf("renewal answered %+v", got)
				}
			}
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, storage.StatePending, e.get(t, ref).State)
		e.complete(t, e.claimOne(t))
	}
}

// raceRevokeClaim: claimers on two stores take what revocations put back; each delivery has a
// token of its own, and of all claims of a message only the last one completes it.
func raceRevokeClaim(t *testing.T, e *env) {
	const n, claimers, revocations = 20, 3, 300
	q := settings()
	q.MaxAttempts = 0
	e = e.on(e.newQueue(t, q))
	refs := e.many(t, n)
	stores := []storage.Store{e.store, e.other}
	done := make(chan struct{})
	claims := make([][]storage.Claimed, claimers)
	taken := 0
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	err := together(1+claimers, func(i int) error {
		if i == 0 {
			defer close(done)
			for k := range revocations {
				res, err := stores[k%2].Revoke(ctx, storage.RevokeParams{Ref: refs[k%n], Refund: k%3 > 0})
				if err != nil {
					return err
				}
				if res.Revoked {
					taken++
				}
			}
			return nil
		}
		for {
			out, err := e.rawClaim(ctx, stores[i%2], call(fmt.Sprintf("worker-%d", i), 4, time.Hour))
			if err != nil {
				return err
			}
			claims[i-1] = append(claims[i-1], out.Messages...)
			select {
			case <-done:
				return nil
			default:
			}
		}
	})
	require.NoError(t, err)
	require.Positive(t, taken)
	var all []storage.Claimed
	tokens := map[storage.Token]bool{}
	for _, cs := range claims {
		for _, c := range cs {
			require.False(t, tokens[c.Token], "C4")
			tokens[c.Token] = true
			all = append(all, c)
		}
	}
	completed, revoked := 0, 0
	for _, c := range all {
		switch got := e.settle(t, settlement(c, storage.ActionComplete))[0]; {
		case got.Status == storage.ItemApplied:
			completed++
		case got.Status == storage.ItemLost && got.Cause == storage.LostRevoked:
			revoked++
		default:
			require.Fail(t, "a claim is neither held nor revoked", "%+v", got)
		}
	}
	require.Equal(t, taken, revoked, "each revocation ended one claim")
	require.Equal(t, len(all), completed+revoked)
	t.Logf("%d claims, %d revoked, %d completed", len(all), revoked, completed)
}

func revokeOrdered(t *testing.T, e *env) {
	refs := e.many(t, 3, ordered("a"))
	other := e.one(t, ordered("b"))
	cs := e.claimKeyed(t, refs[0], other)
	res := e.revoked(t, cs[0], true)
	require.True(t, res.Ready)
	e.checkKeys(t)
	again := e.claimKeyed(t, refs[0])[0]
	e.completeNext(t, again)
	e.requireLost(t, cs[0], storage.LostRevoked)
	e.complete(t, cs[1])
	require.Equal(t, refs[1:], e.drain(t))
}

func revokeOrderedEnds(t *testing.T, e *env) {
	dead := e.one(t, ordered("a"), maxAttempts(1))
	cancelled := e.one(t, ordered("a"))
	last := e.one(t, ordered("a"))
	res := e.revoked(t, e.claimKeyed(t, dead)[0], false)
	require.Equal(t, storage.StateDead, res.Message.State)
	require.Equal(t, "a", res.Message.OrderingKey)
	require.True(t, res.Ready, "the next one of the key")
	e.checkKeys(t)
	c := e.claimKeyed(t, cancelled)[0]
	require.Equal(t, storage.StateProcessing, e.cancel(t, cancelled))
	res = e.revoked(t, c, true)
	require.Equal(t, storage.StateCancelled, res.Message.State)
	require.True(t, res.Ready)
	e.checkKeys(t)
	e.complete(t, e.claimKeyed(t, last)[0])
}

func revokeOrderedBlocks(t *testing.T, e *env) {
	e = e.blocking(t)
	dead := e.one(t, ordered("a"), maxAttempts(1))
	e.one(t, ordered("a"))
	res := e.revoked(t, e.claimKeyed(t, dead)[0], false)
	require.Equal(t, storage.StateDead, res.Message.State)
	require.False(t, res.Ready, "the key waits for the dead one (O7)")
	e.claimNothing(t)
	e.checkKeys(t, "a")
}

// revokeOrderedHeld: while a user holds the head, a revocation that waits for it keeps nobody
// from the rest of the key.
func revokeOrderedHeld(t *testing.T, e *env) {
	ref := e.one(t, ordered("a"))
	c := e.claimOneAs(t, "A", time.Hour)
	release := e.in.Hold(t, ref, HoldLock)
	done := make(chan error, 1)
	go func() {
		_, err := e.store.Revoke(t.Context(), storage.RevokeParams{Ref: ref})
		done <- err
	}()
	if e.in.Waiting != nil {
		eventually(t, "the revocation waits", func() bool { return e.in.Waiting(t) })
	}
	next := e.one(t, ordered("a"))
	require.ErrorIs(t, receive(t, done, "the end of the wait"), storage.ErrUnavailable)
	release()
	e.revoked(t, c, true)
	e.completeNext(t, e.claimKeyed(t, ref)[0])
	e.complete(t, e.claimKeyed(t, next)[0])
}

// raceRevokeOrdered: workers on two stores work keys off while revocations strike; every
// message is completed once, and those of a key in their order.
func raceRevokeOrdered(t *testing.T, e *env) {
	const keys, each, workers = 4, 12, 3
	q := settings()
	q.MaxAttempts = 0
	e = e.on(e.newQueue(t, q))
	var ms []storage.NewMessage
	for i := range keys * each {
		ms = append(ms, e.message(ordered(fmt.Sprint("key ", i%keys))))
	}
	refs := e.enqueue(t, ms...)
	stores := []storage.Store{e.store, e.other}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	var completed, revoked atomic.Int64
	var last atomic.Pointer[storage.Ref] // taken by a worker
	err := together(workers+1, func(i int) error {
		if i == workers {
			for k := 0; completed.Load() < keys*each; k++ {
				ref := refs[k%len(refs)]
				if taken := last.Load(); taken != nil && k%4 > 0 {
					ref = *taken
				}
				res, err := stores[k%2].Revoke(ctx, storage.RevokeParams{Ref: ref, Refund: k%3 > 0})
				if err != nil {
					return err
				}
				if res.Revoked {
					revoked.Add(1)
				}
			}
			return nil
		}
		for completed.Load() < keys*each {
			out, err := e.rawClaim(ctx, stores[i%2], call(fmt.Sprintf("worker-%d", i), 2, time.Hour))
			if err != nil {
				return err
			}
			for _, c := range out.Messages {
				last.Store(&c.Message.Ref)
				if _, err := stores[i%2].Now(ctx); err != nil { // a moment in which it can be taken away
					return err
				}
				res, err := stores[i%2].Settle(ctx, storage.SettleParams{Items: []storage.Settlement{settlement(c, storage.ActionComplete)}})
				if err != nil {
					return err
				}
				switch got := res.Items[0]; {
				case got.Status == storage.ItemApplied:
					completed.Add(1)
				case got.Status == storage.ItemLost && got.Cause == storage.LostRevoked, got.Status == storage.ItemUnknown:
				default:
					return fmt.Errorf("complete answered %+v", got)
				}
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.EqualValues(t, len(refs), completed.Load())
	before := make([]time.Time, keys)
	for i, ref := range refs {
		m := e.get(t, ref)
		require.Equal(t, storage.StateCompleted, m.State)
		require.False(t, m.FinishTime.Before(before[i%keys]), "O5: %v of %s", ref, m.OrderingKey)
		before[i%keys] = m.FinishTime
	}
	t.Logf("%d completed, %d revoked", completed.Load(), revoked.Load())
}
