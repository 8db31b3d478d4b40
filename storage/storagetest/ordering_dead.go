package storagetest

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// orderingDeadRules check O7: what a dead head does to its key, by the mode of the queue.
func orderingDeadRules() []rule {
	rules := []rule{
		{name: "O7_S14_a_cancelled_head_never_blocks", clocks: settable, run: orderingCancelledHead},
		{name: "O7_a_change_of_the_mode_unblocks", clocks: bothClocks, run: orderingModeChange},
		{name: "O7_after_a_change_of_the_mode_a_new_message_is_the_head", clocks: settable, run: orderingModeFresh},
		{name: "O7_a_change_of_the_mode_blocks_no_key_behind_an_old_one", clocks: settable, run: orderingModeLater},
		{name: "O7_D6_a_dead_head_that_is_gone_blocks_no_longer", clocks: settable, run: orderingRetained},
		{name: "O7_E7_a_follower_that_expired_is_never_delivered", clocks: settable, run: orderingExpiredFollower},
		{name: "O7_E7_a_follower_that_was_swept_does_not_block", clocks: settable, run: orderingSweptFollower},
		{name: "O7_O4_a_blocked_key_blocks_no_other", clocks: settable, run: orderingBlockedKeys},
	}
	for _, d := range deaths {
		rules = append(rules,
			rule{name: "O7_" + d.rules + "_skip_dead_goes_on_after_" + d.name, clocks: d.clocks, run: func(t *testing.T, e *env) { orderingSkips(t, e, d) }},
			rule{name: "O7_" + d.rules + "_block_on_dead_waits_after_" + d.name, clocks: d.clocks, run: func(t *testing.T, e *env) { orderingBlocks(t, e, d) }})
	}
	return rules
}

// death is a way in which a head can die. It returns whether the queue was named ready.
type death struct {
	name, rules string
	clocks      clock
	mods        func(e *env, now time.Time) []func(*storage.NewMessage)
	die         func(t *testing.T, e *env, ref storage.Ref) bool
	reason      storage.DeadReason
}

var deaths = []death{
	{
		name: "a_dead_letter", rules: "S3", clocks: bothClocks, reason: storage.DeadReasonRejected,
		die: func(t *testing.T, e *env, _ storage.Ref) bool {
			t.Helper()
			return e.settleReady(t, settlement(e.claimOne(t), storage.ActionDeadLetter))
		},
	},
	{
		name: "the_last_attempt", rules: "S4", clocks: bothClocks, reason: storage.DeadReasonAttemptsExhausted,
		mods: func(*env, time.Time) []func(*storage.NewMessage) {
			return []func(*storage.NewMessage){maxAttempts(1)}
		},
		die: func(t *testing.T, e *env, _ storage.Ref) bool {
			t.Helper()
			return e.settleReady(t, settlement(e.claimOne(t), storage.ActionRetry))
		},
	},
	{
		name: "the_lease_of_the_last_attempt", rules: "C18", clocks: bothClocks, reason: storage.DeadReasonLeaseExpired,
		mods: func(*env, time.Time) []func(*storage.NewMessage) {
			return []func(*storage.NewMessage){maxAttempts(1)}
		},
		die: func(t *testing.T, e *env, ref storage.Ref) bool {
			t.Helper()
			c := e.claimOneAs(t, "A", short)
			e.waitClock(t, c.Message.LeaseEnd)
			e.claimNothing(t)
			return slices.Contains(e.sweep(t, ref).Ready, e.queue.ID)
		},
	},
	{
		name: "its_expire_time", rules: "E7", clocks: settable, reason: storage.DeadReasonExpired,
		mods: func(_ *env, now time.Time) []func(*storage.NewMessage) {
			return []func(*storage.NewMessage){expires(now.Add(time.Second))}
		},
		die: func(t *testing.T, e *env, ref storage.Ref) bool {
			t.Helper()
			e.advance(t, time.Second)
			e.claimNothing(t)
			return slices.Contains(e.sweep(t, ref).Ready, e.queue.ID)
		},
	},
	{
		name: "its_expire_time_at_a_retry", rules: "E7_S3", clocks: settable, reason: storage.DeadReasonExpired,
		mods: func(_ *env, now time.Time) []func(*storage.NewMessage) {
			return []func(*storage.NewMessage){expires(now.Add(time.Second))}
		},
		die: func(t *testing.T, e *env, _ storage.Ref) bool {
			t.Helper()
			c := e.claimOne(t)
			e.advance(t, time.Second)
			return e.settleReady(t, settlement(c, storage.ActionRetry))
		},
	},
	{
		name: "its_expire_time_at_a_release", rules: "E7_S3", clocks: settable, reason: storage.DeadReasonExpired,
		mods: func(_ *env, now time.Time) []func(*storage.NewMessage) {
			return []func(*storage.NewMessage){expires(now.Add(time.Second))}
		},
		die: func(t *testing.T, e *env, _ storage.Ref) bool {
			t.Helper()
			c := e.claimOne(t)
			e.advance(t, time.Second)
			return e.settleReady(t, settlement(c, storage.ActionRelease))
		},
	},
}

// blocking returns the same surroundings with a queue that blocks on a dead head.
func (e *env) blocking(t *testing.T) *env {
	t.Helper()
	s := settings()
	s.Ordering = storage.OrderingBlockOnDead
	return e.on(e.newQueue(t, s))
}

// kill enqueues a head and two behind it and lets the head die.
func (e *env) kill(t *testing.T, d death) (refs []storage.Ref, ready bool) {
	t.Helper()
	var mods []func(*storage.NewMessage)
	if d.mods != nil {
		mods = d.mods(e, e.clockNow(t))
	}
	refs = e.enqueue(t, e.message(append(mods, ordered("a"))...), e.message(ordered("a")), e.message(ordered("a")))
	ready = d.die(t, e, refs[0])
	m := e.get(t, refs[0])
	require.Equal(t, storage.StateDead, m.State)
	require.Equal(t, d.reason, m.DeadReason)
	require.Equal(t, "a", m.OrderingKey)
	return refs, ready
}

func orderingSkips(t *testing.T, e *env, d death) {
	t.Helper()
	refs, ready := e.kill(t, d)
	require.True(t, ready, "the next one is named ready")
	e.checkKeys(t)
	e.completeNext(t, e.claimKeyed(t, refs[1])[0])
	e.claimKeyed(t, refs[2])
}

func orderingBlocks(t *testing.T, e *env, d death) {
	t.Helper()
	e = e.blocking(t)
	refs, _ := e.kill(t, d)
	e.claimNothing(t)
	e.checkKeys(t, "a")
	late := e.one(t, ordered("a"))
	free, other := e.one(t), e.one(t, ordered("b"))
	e.claimKeyed(t, free, other)
	if e.settable() {
		e.advance(t, time.Hour)
	}
	e.sweepAll(t, 100)
	e.sweepKeys(t, 100)
	e.checkKeys(t, "a")
	// Whoever goes from behind it changes nothing about that.
	require.Equal(t, storage.StateCancelled, e.cancel(t, refs[1]))
	for _, c := range e.claimN(t, 10) {
		require.NotEqual(t, "a", c.Message.OrderingKey, "blocked")
	}
	for _, ref := range []storage.Ref{refs[2], late} {
		require.Equal(t, storage.StatePending, e.get(t, ref).State)
	}
}

func orderingCancelledHead(t *testing.T, e *env) {
	e = e.blocking(t)
	refs := e.many(t, 5, ordered("a"))
	res, err := e.store.Cancel(t.Context(), storage.CancelParams{QueueID: e.queue.ID, Ref: refs[0]})
	require.NoError(t, err)
	require.Equal(t, storage.StateCancelled, res.State)
	require.True(t, res.Ready, "pending: the next one goes on")
	for _, a := range []storage.Action{storage.ActionRetry, storage.ActionRelease} {
		ref := refs[1]
		refs = refs[1:]
		c := e.claimKeyed(t, ref)[0]
		require.Equal(t, storage.StateProcessing, e.cancel(t, ref))
		require.True(t, e.settleReady(t, settlement(c, a)), "asked to stop: the next one goes on")
		require.Equal(t, storage.StateCancelled, e.get(t, ref).State)
	}
	e.claimKeyed(t, refs[1])
	require.Equal(t, storage.StateProcessing, e.cancel(t, refs[1]))
	e.advance(t, lease)
	require.Contains(t, e.sweep(t, refs[1]).Ready, e.queue.ID, "swept: the next one goes on")
	e.complete(t, e.claimKeyed(t, refs[2])[0])
	e.claimNothing(t)
}

// setMode changes the ordering mode of the queue.
func (e *env) setMode(t *testing.T, mode storage.OrderingMode) {
	t.Helper()
	q, err := e.store.GetQueue(t.Context(), e.queue.Name)
	require.NoError(t, err)
	q.Ordering = mode
	_, err = e.store.UpdateQueue(t.Context(), q.Name, q.QueueSettings, 0)
	require.NoError(t, err)
}

func orderingModeChange(t *testing.T, e *env) {
	e = e.blocking(t)
	refs := e.many(t, 3, ordered("a"))
	e.settle(t, settlement(e.claimKeyed(t, refs[0])[0], storage.ActionDeadLetter))
	e.sweepKeys(t, 100)
	e.claimNothing(t)
	e.setMode(t, storage.OrderingSkipDead)
	sum, _ := e.sweepKeys(t, 100)
	require.Contains(t, sum.Ready, e.queue.ID)
	e.checkKeys(t)
	c := e.claimKeyed(t, refs[1])
	// Nothing of it is left when the mode comes back.
	e.setMode(t, storage.OrderingBlockOnDead)
	e.completeNext(t, c[0])
	e.claimKeyed(t, refs[2])
	e.checkKeys(t)
}

func orderingModeFresh(t *testing.T, e *env) {
	e = e.blocking(t)
	e.settle(t, settlement(e.claimKeyed(t, e.one(t, ordered("a")))[0], storage.ActionDeadLetter))
	e.setMode(t, storage.OrderingSkipDead)
	refs := e.many(t, 2, ordered("a"))
	e.checkKeys(t)
	e.completeNext(t, e.claimKeyed(t, refs[0])[0])
	e.claimKeyed(t, refs[1])
}

func orderingModeLater(t *testing.T, e *env) {
	refs := e.many(t, 3, ordered("a"))
	e.settle(t, settlement(e.claimKeyed(t, refs[0])[0], storage.ActionDeadLetter))
	e.setMode(t, storage.OrderingBlockOnDead)
	e.sweepKeys(t, 100)
	e.completeNext(t, e.claimKeyed(t, refs[1])[0])
	// From now on one does.
	e.settle(t, settlement(e.claimKeyed(t, refs[2])[0], storage.ActionDeadLetter))
	e.one(t, ordered("a"))
	e.claimNothing(t)
	e.checkKeys(t, "a")
}

func orderingRetained(t *testing.T, e *env) {
	s := settings()
	s.Ordering, s.DeadRetention = storage.OrderingBlockOnDead, time.Hour
	e = e.on(e.newQueue(t, s))
	refs := e.many(t, 2, ordered("a"))
	e.settle(t, settlement(e.claimKeyed(t, refs[0])[0], storage.ActionDeadLetter))
	e.advance(t, 3*time.Hour)
	for more := true; more; {
		res, err := e.store.Retain(t.Context(), storage.RetainParams{Limit: 1000})
		require.NoError(t, err)
		more = res.More
	}
	_, err := e.store.GetMessage(t.Context(), refs[0], false)
	require.ErrorIs(t, err, storage.ErrMessageNotFound)
	e.sweepKeys(t, 100)
	e.claimKeyed(t, refs[1])
	e.checkKeys(t)
}

func orderingExpiredFollower(t *testing.T, e *env) {
	refs := e.enqueue(t, e.message(ordered("a")), e.message(ordered("a"), expires(e.now.Add(time.Second))), e.message(ordered("a")))
	c := e.claimKeyed(t, refs[0])
	e.advance(t, time.Second)
	e.settle(t, settlement(c[0], storage.ActionComplete))
	for _, c := range e.claimN(t, 10) {
		require.NotEqual(t, refs[1], c.Message.Ref, "expired")
	}
	require.Equal(t, 1, e.sweep(t, refs[1]).Expired)
	e.requireDead(t, refs[1], storage.DeadReasonExpired, 0)
	e.checkKeys(t)
	e.claimKeyed(t, refs[2])
}

func orderingSweptFollower(t *testing.T, e *env) {
	e = e.blocking(t)
	refs := e.enqueue(t, e.message(ordered("a")), e.message(ordered("a"), expires(e.now.Add(time.Second))), e.message(ordered("a")))
	c := e.claimKeyed(t, refs[0])
	e.advance(t, time.Second)
	require.Equal(t, 1, e.sweep(t, refs...).Expired)
	e.requireDead(t, refs[1], storage.DeadReasonExpired, 0)
	e.checkKeys(t)
	e.claimNothing(t)
	e.completeNext(t, c[0])
	e.claimKeyed(t, refs[2])
}

func orderingBlockedKeys(t *testing.T, e *env) {
	e = e.blocking(t)
	a, b := e.many(t, 3, ordered("a")), e.many(t, 3, ordered("b"))
	cs := e.claimKeyed(t, a[0], b[0])
	require.True(t, e.settleReady(t, settlement(cs[0], storage.ActionDeadLetter), settlement(cs[1], storage.ActionComplete)))
	e.checkKeys(t, "a")
	require.Equal(t, b[1:], e.drain(t, a[1:]...))
}
