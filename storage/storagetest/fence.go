package storagetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// write is one of the writes of a claim that the fence guards.
type write struct {
	name string
	// fence and expiry are the rules of a mismatch and of a lease that is over.
	fence, expiry string
	do            func(t *testing.T, e *env, ref storage.Ref, token storage.Token) (storage.ItemStatus, storage.LostCause)
}

// writes are the renewal and the four settlements, the completion once more with follow-ups.
func writes() []write {
	ws := []write{{
		name: "renew", fence: "R3", expiry: "R2",
		do: func(t *testing.T, e *env, ref storage.Ref, token storage.Token) (storage.ItemStatus, storage.LostCause) {
			t.Helper()
			got := e.renew(t, storage.Renewal{Ref: ref, Token: token, Lease: time.Minute, MaxLease: maxLease})[0]
			return got.Status, got.Cause
		},
	}}
	for _, a := range actions {
		ws = append(ws, write{
			name: a.name, fence: "S1", expiry: "S2",
			do: func(t *testing.T, e *env, ref storage.Ref, token storage.Token) (storage.ItemStatus, storage.LostCause) {
				t.Helper()
				got := e.settle(t, settlementOf(ref, token, a.action))[0]
				return got.Status, got.Cause
			},
		})
	}
	return append(ws, write{
		name: "complete_with_follow_ups", fence: "S10_S1", expiry: "S10_S2",
		do: func(t *testing.T, e *env, ref storage.Ref, token storage.Token) (storage.ItemStatus, storage.LostCause) {
			t.Helper()
			got := e.settle(t, completion(ref, token, e.message(), e.message(ordered("a"), keyed("k", "k"))))[0]
			require.Empty(t, got.FollowUps, "S10")
			return got.Status, got.Cause
		},
	})
}

// situation is a claim that is not held: who asks, and what he is told.
type situation struct {
	name   string
	expiry bool // the rule is that of a lease that is over
	clocks clock
	// make returns what the loser presents, and the claim of the holder, if any.
	make   func(t *testing.T, e *env) (ref storage.Ref, token storage.Token, holder *storage.Claimed)
	status storage.ItemStatus
	causes []storage.LostCause
}

// never is a token that no claim ever had.
var never = storage.Token{0xde, 0xad, 15: 0xbe}

func situations() []situation {
	superseded := []storage.LostCause{storage.LostSuperseded}
	expired := []storage.LostCause{storage.LostLeaseExpired}
	notClaimed := []storage.LostCause{storage.LostNotClaimed}
	// Where storage cannot tell an old token from one that never was, both are true.
	either := []storage.LostCause{storage.LostSuperseded, storage.LostNotClaimed}
	live := func(token func(storage.Claimed) storage.Token) func(*testing.T, *env) (storage.Ref, storage.Token, *storage.Claimed) {
		return func(t *testing.T, e *env) (storage.Ref, storage.Token, *storage.Claimed) {
			t.Helper()
			e.one(t)
			c := e.claimOneAs(t, "holder", time.Hour)
			return c.Message.Ref, token(c), &c
		}
	}
	finished := func(a storage.Action, token storage.Token) func(*testing.T, *env) (storage.Ref, storage.Token, *storage.Claimed) {
		return func(t *testing.T, e *env) (storage.Ref, storage.Token, *storage.Claimed) {
			t.Helper()
			e.one(t)
			c := e.claimOneAs(t, "holder", time.Hour)
			require.Equal(t, storage.ItemApplied, e.settle(t, settlement(c, a))[0].Status)
			return c.Message.Ref, token, nil
		}
	}
	late := func(by func(e *env) time.Duration) func(*testing.T, *env) (storage.Ref, storage.Token, *storage.Claimed) {
		return func(t *testing.T, e *env) (storage.Ref, storage.Token, *storage.Claimed) {
			t.Helper()
			e.one(t)
			c := e.claimOneAs(t, "A", 10*time.Second)
			e.advance(t, 10*time.Second+by(e))
			return c.Message.Ref, c.Token, nil
		}
	}
	return []situation{
		{
			name: "a_wrong_token_on_a_live_claim", clocks: bothClocks, status: storage.ItemLost, causes: superseded,
			make: live(func(storage.Claimed) storage.Token { return never }),
		},
		{
			name: "a_token_wrong_in_its_last_bit", clocks: settable, status: storage.ItemLost, causes: superseded,
			make: live(func(c storage.Claimed) storage.Token { c.Token[15] ^= 1; return c.Token }),
		},
		{
			name: "a_zero_token_on_a_live_claim", clocks: bothClocks, status: storage.ItemLost, causes: either,
			make: live(func(storage.Claimed) storage.Token { return storage.Token{} }),
		},
		{
			name: "the_token_of_another_message", clocks: bothClocks, status: storage.ItemLost, causes: superseded,
			make: func(t *testing.T, e *env) (storage.Ref, storage.Token, *storage.Claimed) {
				t.Helper()
				e.many(t, 2)
				cs := e.claimAs(t, "holder", 2, time.Hour)
				require.Len(t, cs, 2)
				return cs[0].Message.Ref, cs[1].Token, &cs[0]
			},
		},
		{
			name: "an_old_token_after_a_reclaim", clocks: settable, status: storage.ItemLost, causes: superseded,
			make: func(t *testing.T, e *env) (storage.Ref, storage.Token, *storage.Claimed) {
				t.Helper()
				e.one(t)
				old := e.claimOneAs(t, "A", 10*time.Second)
				e.advance(t, 10*time.Second)
				c := e.claimOneAs(t, "holder", time.Hour)
				return old.Message.Ref, old.Token, &c
			},
		},
		{
			name: "an_old_token_after_a_reclaim_that_was_retried", clocks: settable, status: storage.ItemLost, causes: superseded,
			make: func(t *testing.T, e *env) (storage.Ref, storage.Token, *storage.Claimed) {
				t.Helper()
				e.one(t)
				old := e.claimOneAs(t, "A", 10*time.Second)
				e.advance(t, 10*time.Second)
				c := e.claimOneAs(t, "B", time.Hour)
				require.Equal(t, storage.ItemApplied, e.settle(t, settlement(c, storage.ActionRetry))[0].Status)
				return old.Message.Ref, old.Token, nil
			},
		},
		{
			name: "an_old_token_after_a_reclaim_by_the_same_worker", clocks: settable, status: storage.ItemLost, causes: superseded,
			make: func(t *testing.T, e *env) (storage.Ref, storage.Token, *storage.Claimed) {
				t.Helper()
				e.one(t)
				old := e.claimOneAs(t, "A", 10*time.Second)
				e.advance(t, 10*time.Second)
				c := e.claimOneAs(t, "A", time.Hour)
				return old.Message.Ref, old.Token, &c
			},
		},
		{
			name: "an_old_token_after_the_reclaim_ran_out_too", clocks: settable, status: storage.ItemLost, causes: superseded,
			make: func(t *testing.T, e *env) (storage.Ref, storage.Token, *storage.Claimed) {
				t.Helper()
				e.one(t)
				old := e.claimOneAs(t, "A", 10*time.Second)
				e.advance(t, 10*time.Second)
				e.claimOneAs(t, "B", 10*time.Second)
				e.advance(t, 10*time.Second)
				return old.Message.Ref, old.Token, nil
			},
		},
		{
			name: "an_old_token_after_the_reclaim_was_retried", clocks: settable, status: storage.ItemLost, causes: either,
			make: func(t *testing.T, e *env) (storage.Ref, storage.Token, *storage.Claimed) {
				t.Helper()
				e.one(t)
				old := e.claimOneAs(t, "A", 10*time.Second)
				e.advance(t, 10*time.Second)
				c := e.claimOneAs(t, "B", time.Hour)
				require.Equal(t, storage.ItemApplied, e.settle(t, settlement(c, storage.ActionRetry))[0].Status)
				return old.Message.Ref, old.Token, nil
			},
		},
		{
			name: "an_old_token_after_the_reclaim_was_completed", clocks: settable, status: storage.ItemLost, causes: superseded,
			make: func(t *testing.T, e *env) (storage.Ref, storage.Token, *storage.Claimed) {
				t.Helper()
				e.one(t)
				old := e.claimOneAs(t, "A", 10*time.Second)
				e.advance(t, 10*time.Second)
				e.complete(t, e.claimOneAs(t, "B", time.Hour))
				return old.Message.Ref, old.Token, nil
			},
		},
		{
			name: "at_the_lease_end_exactly", expiry: true, clocks: settable, status: storage.ItemLost, causes: expired,
			make: late(func(*env) time.Duration { return 0 }),
		},
		{
			name: "one_tick_after_the_lease_end", expiry: true, clocks: settable, status: storage.ItemLost, causes: expired,
			make: late(func(e *env) time.Duration { return e.tick }),
		},
		{
			name: "long_after_the_lease_end_though_nobody_reclaimed", expiry: true, clocks: settable, status: storage.ItemLost, causes: expired,
			make: late(func(*env) time.Duration { return time.Hour }),
		},
		{
			name: "after_the_lease_end_though_nobody_reclaimed", expiry: true, clocks: realClock, status: storage.ItemLost, causes: expired,
			make: func(t *testing.T, e *env) (storage.Ref, storage.Token, *storage.Claimed) {
				t.Helper()
				e.one(t)
				c := e.claimOneAs(t, "A", 30*time.Millisecond)
				e.waitClock(t, c.Message.LeaseEnd)
				return c.Message.Ref, c.Token, nil
			},
		},
		{
			name: "a_message_that_was_never_claimed", clocks: bothClocks, status: storage.ItemLost, causes: notClaimed,
			make: func(t *testing.T, e *env) (storage.Ref, storage.Token, *storage.Claimed) {
				t.Helper()
				return e.one(t), never, nil
			},
		},
		{
			name: "a_message_that_was_never_claimed_with_a_zero_token", clocks: bothClocks, status: storage.ItemLost, causes: notClaimed,
			make: func(t *testing.T, e *env) (storage.Ref, storage.Token, *storage.Claimed) {
				t.Helper()
				return e.one(t), storage.Token{}, nil
			},
		},
		{
			name: "a_retried_message_with_a_zero_token", clocks: settable, status: storage.ItemLost, causes: either,
			make: finished(storage.ActionRetry, storage.Token{}),
		},
		{
			name: "a_released_message_with_a_wrong_token", clocks: settable, status: storage.ItemLost, causes: either,
			make: finished(storage.ActionRelease, never),
		},
		{
			name: "a_completed_message_with_a_wrong_token", clocks: bothClocks, status: storage.ItemLost, causes: either,
			make: finished(storage.ActionComplete, never),
		},
		{
			name: "a_completed_message_with_a_zero_token", clocks: settable, status: storage.ItemLost, causes: either,
			make: finished(storage.ActionComplete, storage.Token{}),
		},
		{
			name: "a_dead_message_with_a_wrong_token", clocks: bothClocks, status: storage.ItemLost, causes: either,
			make: finished(storage.ActionDeadLetter, never),
		},
		{
			name: "a_dead_message_with_a_zero_token", clocks: settable, status: storage.ItemLost, causes: either,
			make: finished(storage.ActionDeadLetter, storage.Token{}),
		},
		{
			name: "S8_an_unknown_position", clocks: bothClocks, status: storage.ItemNotFound,
			make: func(t *testing.T, e *env) (storage.Ref, storage.Token, *storage.Claimed) {
				t.Helper()
				return storage.Ref{QueueID: e.queue.ID, Position: 1 << 60}, never, nil
			},
		},
		{
			name: "S8_an_unknown_queue", clocks: bothClocks, status: storage.ItemNotFound,
			make: func(t *testing.T, e *env) (storage.Ref, storage.Token, *storage.Claimed) {
				t.Helper()
				e.one(t)
				c := e.claimOneAs(t, "holder", time.Hour)
				return storage.Ref{QueueID: 1 << 30, Position: c.Message.Ref.Position}, c.Token, &c
			},
		},
		{
			name: "S8_the_id_of_another_queue", clocks: bothClocks, status: storage.ItemNotFound,
			make: func(t *testing.T, e *env) (storage.Ref, storage.Token, *storage.Claimed) {
				t.Helper()
				e.one(t)
				c := e.claimOneAs(t, "holder", time.Hour)
				other := e.newQueue(t, settings())
				return storage.Ref{QueueID: other.ID, Position: c.Message.Ref.Position}, c.Token, &c
			},
		},
	}
}

// fenceRules run every write in every situation: the answer, the row and the whole
// database, and the holder who can still work.
func fenceRules() []rule {
	var rules []rule
	for _, w := range writes() {
		for _, s := range situations() {
			id := w.fence
			if s.expiry {
				id = w.expiry
			}
			rules = append(rules, rule{
				name: id + "_" + w.name + "/" + s.name, clocks: s.clocks,
				run: func(t *testing.T, e *env) { refused(t, e, w, s) },
			})
		}
	}
	return append(rules,
		rule{name: "E12_S1_S2_a_marked_message_refuses_every_write_by_its_state", clocks: settable, run: marked, skip: needsMarks})
}

func needsMarks(in *Instance, _ storage.Capabilities) string {
	if in.Mark == nil {
		return "Instance.Mark is nil: the layout has no mark"
	}
	return ""
}

// marked checks that a message that the transaction of its worker has marked is no
// claim any more: it has its token still, and a lease that never ends, so the state
// alone keeps every write away.
func marked(t *testing.T, e *env) {
	ref := e.one(t)
	c := e.claimWithID(t, "A", claimID(1), 1).Messages[0]
	e.in.Mark(t, ref, e.now)
	at := e.now
	e.advance(t, time.Minute)
	row := e.liveRow(t, ref)
	e.unchanged(t, func() {
		require.Equal(t, storage.ItemSettled, e.renew(t, renewal(c, time.Hour))[0].Status)
		for _, a := range actions {
			got := e.settle(t, settlement(c, a.action))[0]
			require.Equal(t, storage.OutcomeCompleted, got.Outcome, a.name)
			if a.action == storage.ActionComplete {
				require.Equal(t, storage.ItemAlreadySettled, got.Status)
				sameTime(t, at, got.SettleTime, "the time of the mark")
				continue
			}
			require.Equal(t, storage.ItemSettled, got.Status, a.name)
			require.Equal(t, storage.ItemLost, e.settle(t, settlementOf(ref, never, a.action))[0].Status, a.name)
		}
		require.Empty(t, e.claimN(t, 10))
		require.Zero(t, e.giveBack(t, storage.GiveBackParams{Claims: held(c)}))
	})
	again := e.claimWithID(t, "A", claimID(1), 1)
	require.Equal(t, storage.ClaimReplayed, again.Status)
	require.Empty(t, again.Messages, "a marked claim is held no more")
	require.Equal(t, row, e.liveRow(t, ref))
	require.Equal(t, storage.StateCompleted, e.get(t, ref).State, "everybody already sees the outcome")
}

func refused(t *testing.T, e *env, w write, s situation) {
	t.Helper()
	ref, token, holder := s.make(t, e)
	row := e.in.Row(t, ref)
	e.unchanged(t, func() {
		for range 2 {
			status, cause := w.do(t, e, ref, token)
			require.Equal(t, s.status, status)
			if s.status == storage.ItemLost {
				require.Contains(t, s.causes, cause)
			}
		}
	})
	require.Equal(t, row, e.in.Row(t, ref), "the row is byte for byte as before")
	if holder == nil {
		return
	}
	require.Equal(t, storage.ItemApplied, e.renew(t, renewal(*holder, time.Hour))[0].Status, "the holder still holds")
	e.complete(t, *holder)
}
