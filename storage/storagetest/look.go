package storagetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// lookRules check what a server learns about the claims that its streams have shown (T6).
func lookRules() []rule {
	return []rule{
		{name: "T6_a_look_tells_what_became_of_claims", clocks: settable, run: lookTells},
		{name: "T6_a_look_sees_a_claim_that_another_store_takes_away", clocks: bothClocks, run: lookRevoked},
		{name: "T6_R6_a_look_tells_that_a_stop_is_asked_for", clocks: settable, run: lookCancelled},
		{name: "T6_a_lease_that_is_over_is_not_called_lost_while_nobody_has_ended_it", clocks: settable, run: lookOver},
		{name: "T6_of_a_thousand_claims", clocks: settable, run: lookMany},
		{name: "T6_a_look_does_not_wait_for_a_held_row", clocks: settable, run: lookHeldRow},
	}
}

// look tells what became of claims, and that the look changes nothing.
func (e *env) look(t *testing.T, claims ...storage.HeldClaim) []storage.Renewed {
	t.Helper()
	var res storage.RenewResult
	e.unchanged(t, func() {
		var err error
		res, err = e.store.Look(t.Context(), claims)
		require.NoError(t, err, "look")
	})
	require.Len(t, res.Items, len(claims))
	e.checkNow(t, res.Now)
	for i, item := range res.Items {
		require.NotZero(t, item.Status, "item %d is answered", i)
	}
	return res.Items
}

var isHeld = storage.Renewed{Status: storage.ItemApplied}

func isLost(cause storage.LostCause) storage.Renewed {
	return storage.Renewed{Status: storage.ItemLost, Cause: cause}
}

func lookTells(t *testing.T, e *env) {
	e.many(t, 8)
	cs := e.claimN(t, 8)
	var want []storage.Renewed
	for i, act := range actions {
		require.Equal(t, storage.ItemApplied, e.settle(t, settlement(cs[i], act.action))[0].Status)
		want = append(want, storage.Renewed{Status: storage.ItemSettled, Outcome: act.outcome})
	}
	e.revoke(t, cs[4].Message.Ref, true)
	e.giveBack(t, storage.GiveBackParams{Claims: held(cs[5])})
	want = append(want, isLost(storage.LostRevoked), isLost(storage.LostNotClaimed), isHeld, isHeld)
	claims := held(cs...)
	claims = append(claims,
		storage.HeldClaim{Ref: cs[6].Message.Ref, Token: never},
		storage.HeldClaim{Ref: cs[6].Message.Ref},
		storage.HeldClaim{Ref: storage.Ref{QueueID: e.queue.ID, Position: 1 << 60}, Token: never},
		claims[7], // twice
	)
	want = append(want, isLost(storage.LostSuperseded), isLost(storage.LostSuperseded), storage.Renewed{Status: storage.ItemNotFound}, isHeld)
	require.Equal(t, want, e.look(t, claims...))
	require.Empty(t, e.look(t))
}

func lookRevoked(t *testing.T, e *env) {
	e.one(t)
	c := e.claimOneAs(t, "A", time.Minute)
	require.Equal(t, []storage.Renewed{isHeld}, e.look(t, held(c)...))
	e.through(e.other).revoke(t, c.Message.Ref, true)
	require.Equal(t, []storage.Renewed{isLost(storage.LostRevoked)}, e.look(t, held(c)...))
	fresh := e.claimOneAs(t, "B", time.Minute)
	require.Equal(t, []storage.Renewed{isLost(storage.LostRevoked), isHeld}, e.look(t, held(c, fresh)...))
}

func lookCancelled(t *testing.T, e *env) {
	ref := e.one(t)
	c := e.claimOne(t)
	require.Equal(t, storage.StateProcessing, e.cancel(t, ref))
	require.Equal(t, []storage.Renewed{{Status: storage.ItemApplied, CancelRequested: true}}, e.look(t, held(c)...))
	e.advanceTo(t, c.Message.LeaseEnd)
	e.sweep(t, ref)
	require.Equal(t, []storage.Renewed{isLost(storage.LostCancelled)}, e.look(t, held(c)...))
}

func lookOver(t *testing.T, e *env) {
	e.one(t)
	c := e.claimOne(t)
	e.advanceTo(t, c.Message.LeaseEnd)
	require.Equal(t, []storage.Renewed{isHeld}, e.look(t, held(c)...), "a renewal may be about to commit")
	fresh := e.claimOneAs(t, "B", lease)
	require.Equal(t, []storage.Renewed{isLost(storage.LostSuperseded), isHeld}, e.look(t, held(c, fresh)...))
}

func lookMany(t *testing.T, e *env) {
	e.many(t, 1000)
	cs := e.claimN(t, 1000)
	require.Len(t, cs, 1000)
	e.revoke(t, cs[10].Message.Ref, false)
	e.cancel(t, cs[990].Message.Ref)
	got := e.look(t, held(cs...)...)
	for i, item := range got {
		switch i {
		case 10:
			require.Equal(t, isLost(storage.LostRevoked), item)
		case 990:
			require.Equal(t, storage.Renewed{Status: storage.ItemApplied, CancelRequested: true}, item)
		default:
			require.Equal(t, isHeld, item, "%d", i)
		}
	}
}

func lookHeldRow(t *testing.T, e *env) {
	ref := e.one(t)
	c := e.claimOne(t)
	release := e.in.Hold(t, ref, HoldExtend)
	defer release()
	res, err := e.store.Look(t.Context(), held(c))
	require.NoError(t, err)
	require.Equal(t, []storage.Renewed{isHeld}, res.Items)
}
