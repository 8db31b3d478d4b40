package storagetest

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// redriveOrderedRules check where a redriven message stands in its ordering key (O5, O7).
func redriveOrderedRules() []rule {
	return []rule{
		{name: "O5_O7_it_is_head_at_once_and_an_unleased_head_steps_back", clocks: bothClocks, run: redriveHead},
		{name: "O1_O7_behind_a_live_lease_it_is_next", clocks: bothClocks, run: redriveBehindLease},
		{name: "O6_O7_a_head_that_waits_for_its_time_steps_back", clocks: settable, run: redriveBeforeDelayed},
		{name: "O7_S8_a_head_whose_lease_is_over_steps_back", clocks: settable, run: redriveBeforeExpired},
		{name: "O2_a_head_that_somebody_holds_stays", clocks: settable, run: redriveHeldHead, skip: needsRowLocks},
		{name: "O7_a_head_that_somebody_only_looked_at_steps_back", clocks: settable, run: redriveLockedHead, skip: needsRowLocks},
		{name: "O5_O7_what_comes_back_stands_behind_an_earlier_one_that_somebody_holds", clocks: settable, run: redriveHeldEarlier, skip: needsRowLocks},
		{name: "O7_C15_a_head_that_is_given_back_steps_back", clocks: bothClocks, run: redriveGivenBack},
		{name: "O7_it_unblocks_its_key_and_blocks_it_again", clocks: bothClocks, run: redriveBlocker},
		{name: "O7_one_from_before_the_dead_one_that_blocks", clocks: settable, run: redriveBeforeBlocker},
		{name: "O5_O9_whole_keys_in_small_pages", clocks: bothClocks, run: redriveKeys},
		{name: "O6_O7_a_delayed_one_holds_its_key", clocks: settable, run: redriveDelayedHead},
		{name: "O7_O9_a_key_that_nobody_needed_any_more", clocks: bothClocks, run: redriveIdleKey},
		{name: "O4_the_same_key_in_two_queues", clocks: settable, run: redriveTwoQueues},
	}
}

// three enqueues three messages of a key, of which the first dies.
func (e *env) three(t *testing.T) []storage.Ref {
	t.Helper()
	refs := e.many(t, 3, ordered("a"))
	got := e.settle(t, settlement(e.claimKeyed(t, refs[0])[0], storage.ActionDeadLetter))[0]
	require.Equal(t, storage.OutcomeDead, got.Outcome)
	return refs
}

func redriveHead(t *testing.T, e *env) {
	refs := e.three(t)
	e.checkKeys(t)
	e.unchanged(t, func() {
		require.Equal(t, 1, e.redriveAll(t, storage.RedriveParams{DryRun: true}).Count)
	})
	e.redrive(t, 1, storage.RedriveParams{Filter: storage.ListMessagesParams{OrderingKey: "a"}})
	e.checkKeys(t)
	m := e.get(t, refs[0])
	require.Equal(t, "a", m.OrderingKey)
	require.Equal(t, storage.StatePending, m.State)
	c := e.claimKeyed(t, refs[0])[0]
	require.EqualValues(t, 2, c.Message.Attempt)
	require.Equal(t, "a", c.Message.OrderingKey)
	e.completeNext(t, c)
	require.Equal(t, refs[1:], e.drain(t))
}

func redriveBehindLease(t *testing.T, e *env) {
	refs := e.three(t)
	c := e.claimKeyed(t, refs[1])[0]
	e.redrive(t, 1, storage.RedriveParams{})
	e.checkKeys(t)
	e.claimNothing(t)
	got := e.renew(t, renewal(c, time.Hour))[0]
	require.Equal(t, storage.ItemApplied, got.Status, "the lease goes on")
	e.completeNext(t, c)
	e.completeNext(t, e.claimKeyed(t, refs[0])[0])
	require.Equal(t, refs[2:], e.drain(t))

	// A head that comes back is behind it too.
	refs = e.three(t)
	c = e.claimKeyed(t, refs[1])[0]
	e.redrive(t, 1, storage.RedriveParams{})
	s := settlement(c, storage.ActionRetry)
	s.Delay = 0
	require.True(t, e.settleReady(t, s))
	e.checkKeys(t)
	require.Equal(t, refs, e.drain(t))
}

func redriveBeforeDelayed(t *testing.T, e *env) {
	refs := e.three(t)
	s := settlement(e.claimKeyed(t, refs[1])[0], storage.ActionRetry)
	s.Delay = time.Hour
	e.settle(t, s)
	at := e.now.Add(time.Hour)
	e.redrive(t, 1, storage.RedriveParams{})
	e.checkKeys(t)
	e.complete(t, e.claimKeyed(t, refs[0])[0])
	e.claimNothing(t)
	sameTime(t, at, e.get(t, refs[1]).ReadyTime, "its own time still counts")
	e.advanceTo(t, at)
	e.completeNext(t, e.claimKeyed(t, refs[1])[0])
	e.claimKeyed(t, refs[2])
}

func redriveBeforeExpired(t *testing.T, e *env) {
	refs := e.three(t)
	c := e.claimOneAs(t, "worker", time.Second)
	require.Equal(t, refs[1], c.Message.Ref)
	e.advanceTo(t, c.Message.LeaseEnd)
	e.redrive(t, 1, storage.RedriveParams{})
	e.requireLost(t, c, storage.LostLeaseExpired)
	first := e.claimKeyed(t, refs[0])[0]
	e.requireLost(t, c, storage.LostLeaseExpired)
	e.completeNext(t, first)
	next := e.claimKeyed(t, refs[1])[0]
	require.EqualValues(t, 2, next.Message.Attempt)
	e.requireLost(t, c, storage.LostSuperseded)
	e.completeNext(t, next)
	e.claimKeyed(t, refs[2])
}

func redriveHeldHead(t *testing.T, e *env) {
	// The lock of the row is all that is seen of a claim that has not committed yet.
	for _, how := range []HoldKind{HoldLock, HoldUpdate} {
		refs := e.three(t)
		release := e.in.Hold(t, refs[1], how)
		freed := false
		defer func() {
			if !freed {
				release()
			}
		}()
		e.redrive(t, 1, storage.RedriveParams{})
		require.Empty(t, e.claimN(t, 10), "O2: nothing of the key beside a claim that may commit")
		release()
		freed = true
		e.sweepKeys(t, 100)
		e.checkKeys(t)
		require.Equal(t, refs, e.drain(t))
	}
}

// A claim locks more than it takes, for a moment. What it leaves is no head that somebody holds.
func redriveLockedHead(t *testing.T, e *env) {
	refs := e.three(t)
	release := e.in.Hold(t, refs[1], HoldLock)
	done := make(chan error, 1)
	go func() {
		_, err := e.store.Redrive(t.Context(), storage.RedriveParams{Filter: storage.ListMessagesParams{QueueID: e.queue.ID}, Limit: 10})
		done <- err
	}()
	for e.get(t, refs[0]).State == storage.StateDead {
		require.NoError(t, t.Context().Err())
	}
	release()
	require.NoError(t, receive(t, done, "the answer of the redrive"))
	e.checkKeys(t)
	require.Equal(t, refs[:1], refsOf(e.claimN(t, 10)), "it is the head when the redrive is answered")
}

// A message waits behind an earlier one of its key, also where that cannot become the head yet.
func redriveHeldEarlier(t *testing.T, e *env) {
	for _, how := range []HoldKind{HoldLock, HoldUpdate} {
		refs := e.three(t)
		c := e.claimKeyed(t, refs[1])[0]
		e.redrive(t, 1, storage.RedriveParams{})
		release := sync.OnceFunc(e.in.Hold(t, refs[0], how))
		defer release()
		s := settlement(c, storage.ActionRetry)
		s.Delay = 0
		e.settle(t, s)
		e.claimNothing(t)
		e.sweepKeys(t, 100)
		e.claimNothing(t)
		release()
		e.sweepKeys(t, 100)
		e.checkKeys(t)
		require.Equal(t, refs, e.drain(t))
	}
}

func redriveGivenBack(t *testing.T, e *env) {
	refs := e.three(t)
	got := e.claimWithID(t, "A", claimID(1), 1)
	require.Equal(t, refs[1:2], refsOf(got.Messages))
	e.redrive(t, 1, storage.RedriveParams{})
	require.Equal(t, 1, e.giveBack(t, storage.GiveBackParams{ClaimID: claimID(1), Claims: held(got.Messages...)}))
	e.checkKeys(t)
	require.Equal(t, refs, e.drain(t))
}

func redriveBlocker(t *testing.T, e *env) {
	e = e.blocking(t)
	refs := e.three(t)
	e.claimNothing(t)
	e.checkKeys(t, "a")
	e.redrive(t, 1, storage.RedriveParams{})
	e.checkKeys(t)
	c := e.claimKeyed(t, refs[0])[0]
	e.settle(t, settlement(c, storage.ActionDeadLetter))
	e.checkKeys(t, "a")
	e.claimNothing(t)
	e.redrive(t, 1, storage.RedriveParams{})
	e.completeNext(t, e.claimKeyed(t, refs[0])[0])
	e.checkKeys(t)
	require.Equal(t, refs[1:], e.drain(t))
}

func redriveBeforeBlocker(t *testing.T, e *env) {
	refs := e.many(t, 4, ordered("a"))
	e.settle(t, settlement(e.claimKeyed(t, refs[0])[0], storage.ActionDeadLetter))
	e.setMode(t, storage.OrderingBlockOnDead)
	e.settle(t, settlement(e.claimKeyed(t, refs[1])[0], storage.ActionDeadLetter))
	e.claimNothing(t)
	e.redrive(t, 1, storage.RedriveParams{Filter: only(refs[0])})
	e.complete(t, e.claimKeyed(t, refs[0])[0])
	e.claimNothing(t)
	e.checkKeys(t, "a")
	e.redrive(t, 1, storage.RedriveParams{})
	require.Equal(t, refs[1:], e.drain(t))
}

func redriveKeys(t *testing.T, e *env) {
	var ms []storage.NewMessage
	for i := range 24 {
		key := []string{"a", "b", "c", ""}[i%4]
		ms = append(ms, e.message(ordered(key)))
	}
	refs := e.enqueue(t, ms...)
	byKey := func(refs []storage.Ref) map[string][]storage.Ref {
		m := map[string][]storage.Ref{}
		for _, ref := range refs {
			key := e.get(t, ref).OrderingKey
			m[key] = append(m[key], ref)
		}
		return m
	}
	for range 6 {
		// All but the last of each key die.
		for _, c := range e.claimN(t, 100) {
			if i := slices.Index(refs, c.Message.Ref); i < 20 {
				require.Equal(t, storage.ItemApplied, e.settle(t, settlement(c, storage.ActionDeadLetter))[0].Status)
			} else {
				s := settlement(c, storage.ActionRelease)
				s.Delay = 0
				require.Equal(t, storage.ItemApplied, e.settle(t, s)[0].Status)
			}
		}
	}
	e.redrive(t, 20, storage.RedriveParams{Limit: 3})
	e.checkKeys(t)
	order := e.drain(t)
	require.ElementsMatch(t, refs, order)
	want := byKey(refs)
	for key, got := range byKey(order) {
		if key != "" {
			require.Equal(t, want[key], got, "O5: the key %q in the order of its positions", key)
		}
	}
}

func redriveDelayedHead(t *testing.T, e *env) {
	refs := e.three(t)
	e.redrive(t, 1, storage.RedriveParams{Delay: time.Hour})
	e.checkKeys(t)
	e.claimNothing(t)
	e.advance(t, time.Hour)
	e.completeNext(t, e.claimKeyed(t, refs[0])[0])
	require.Equal(t, refs[1:], e.drain(t))
}

func redriveIdleKey(t *testing.T, e *env) {
	ref := e.one(t, ordered("a"))
	e.settle(t, settlement(e.claimKeyed(t, ref)[0], storage.ActionDeadLetter))
	e.sweepKeys(t, 100)
	e.redrive(t, 1, storage.RedriveParams{})
	e.checkKeys(t)
	late := e.one(t, ordered("a"))
	e.completeNext(t, e.claimKeyed(t, ref)[0])
	e.complete(t, e.claimKeyed(t, late)[0])
}

func redriveTwoQueues(t *testing.T, e *env) {
	other := e.on(e.newQueue(t, settings()))
	refs, there := e.three(t), other.three(t)
	held := other.claimKeyed(t, there[1])
	e.redrive(t, 1, storage.RedriveParams{})
	e.claimKeyed(t, refs[0])
	other.claimNothing(t)
	other.complete(t, held[0])
	require.Equal(t, there[2:], other.drain(t))
}
