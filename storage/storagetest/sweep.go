package storagetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// sweepRules check what ends by itself: the last attempt (C18) and what has expired (E7).
func sweepRules() []rule {
	return []rule{
		{name: "C18_S8_a_last_attempt_whose_lease_is_over_is_dead", clocks: bothClocks, run: sweepLastAttempt},
		{name: "C18_not_one_tick_before_the_lease_end", clocks: settable, run: sweepTick},
		{name: "C18_what_may_be_delivered_again_is_left_alone", clocks: settable, run: sweepLeavesAlone},
		{name: "C18_a_queue_without_a_limit_of_attempts", clocks: settable, run: sweepUnlimited},
		{name: "C18_exactly_max_attempts_deliveries", clocks: bothClocks, run: sweepEveryAttempt},
		{name: "C18_a_whole_pass_by_pages_finds_all", clocks: settable, run: sweepPages},
		{name: "C18_a_sweep_by_references_touches_nothing_else", clocks: settable, run: sweepByRefs},
		{name: "C18_references_that_are_gone_or_never_were", clocks: settable, run: sweepUnknown},
		{name: "C18_a_sweep_that_finds_nothing_writes_nothing", clocks: settable, run: sweepNothing},
		{name: "W7_a_pass_tells_of_leases_that_are_over", clocks: settable, run: sweepOverdue},
		{name: "C18_a_marked_message_is_not_swept", clocks: settable, run: sweepMarked, skip: needsMark},
		{name: "C18_S13_a_held_row_is_left_for_the_next_time", clocks: bothClocks, run: sweepHeld, skip: needsRowLocks},
		{name: "C18_E1_the_key_of_a_dead_message_stays_taken", clocks: settable, run: sweepKey},
		{name: "S5_a_settlement_before_the_sweep_is_still_answered", clocks: settable, run: sweepHistory},
		{name: "E7_expired_before_it_was_claimed", clocks: bothClocks, run: expirePending},
		{name: "E7_expired_when_it_was_enqueued", clocks: bothClocks, run: expireAtOnce},
		{name: "E7_expired_while_it_was_delayed", clocks: settable, run: expireDelayed},
		{name: "E7_to_the_tick", clocks: settable, run: expireTick},
		{name: "E7_a_live_lease_outlives_it", clocks: settable, run: expireOutlived},
		{name: "E7_expired_at_the_lease_end_is_not_delivered_again", clocks: bothClocks, run: expireReclaim},
		{name: "E7_S3_retry_of_an_expired_message", clocks: settable, run: func(t *testing.T, e *env) { expireSettled(t, e, storage.ActionRetry) }},
		{name: "E7_S3_release_of_an_expired_message", clocks: settable, run: func(t *testing.T, e *env) { expireSettled(t, e, storage.ActionRelease) }},
		{name: "E7_E8_the_expire_time_is_read_back", clocks: settable, run: expireRead},
		{name: "E7_E3_the_expire_time_is_no_content", clocks: settable, run: expireContent},
	}
}

func needsMark(in *Instance, _ storage.Capabilities) string {
	if in.Mark == nil {
		return "Instance.Mark is nil: the layout has no mark"
	}
	return ""
}

// short is a lease that a test on the real clock waits for.
const short = 60 * time.Millisecond

func sweepLastAttempt(t *testing.T, e *env) {
	ref := e.one(t, maxAttempts(1))
	c := e.claimOneAs(t, "worker", short)
	require.Zero(t, e.sweep(t, ref).Dead, "a live lease")
	e.waitClock(t, c.Message.LeaseEnd)
	e.claimNothing(t)
	res := e.sweep(t, ref)
	require.Equal(t, [3]int{1, 0, 0}, [3]int{res.Dead, res.Expired, res.Cancelled})
	e.requireDead(t, ref, storage.DeadReasonLeaseExpired, 1)
	require.Equal(t, "worker", e.get(t, ref).WorkerID)
	e.requireLost(t, c, storage.LostLeaseExpired)
	stats, err := e.store.QueueStats(t.Context(), e.queue.ID)
	require.NoError(t, err)
	require.EqualValues(t, 1, stats.Dead)
	require.Zero(t, stats.Leased+stats.LeaseExpired)
	e.unchanged(t, func() { require.Zero(t, e.sweep(t, ref).Dead, "once") })
}

func sweepTick(t *testing.T, e *env) {
	e.sweepAll(t, 100) // what other tests left behind
	ref := e.one(t, maxAttempts(1))
	c := e.claimOne(t)
	e.advanceTo(t, c.Message.LeaseEnd.Add(-e.tick))
	e.unchanged(t, func() {
		e.sweep(t, ref)
		e.sweepAll(t, 10)
	})
	got := e.renew(t, renewal(c, lease))[0]
	require.Equal(t, storage.ItemApplied, got.Status)
	e.advanceTo(t, c.Message.LeaseEnd)
	e.unchanged(t, func() { e.sweep(t, ref) })
	e.advanceTo(t, got.LeaseEnd)
	require.Equal(t, 1, e.sweep(t, ref).Dead)
	e.requireDead(t, ref, storage.DeadReasonLeaseExpired, 1)
}

func sweepLeavesAlone(t *testing.T, e *env) {
	e.sweepAll(t, 100) // what other tests left behind
	refs := []storage.Ref{
		e.one(t, maxAttempts(2)), e.one(t, maxAttempts(1)), e.one(t, maxAttempts(1), delay(time.Hour)),
	}
	cs := e.claimN(t, 1)
	e.advanceTo(t, cs[0].Message.LeaseEnd)
	e.unchanged(t, func() {
		e.sweep(t, refs...)
		e.sweepAll(t, 100)
	})
	require.ElementsMatch(t, refs[:2], refsOf(e.claimN(t, 10)), "both are claimable")
}

func sweepUnlimited(t *testing.T, e *env) {
	s := settings()
	s.MaxAttempts = 0
	e = e.on(e.newQueue(t, s))
	ref := e.one(t)
	for range 30 {
		c := e.claimOne(t)
		e.advanceTo(t, c.Message.LeaseEnd)
	}
	e.unchanged(t, func() { e.sweep(t, ref) })
	require.EqualValues(t, 31, e.claimOne(t).Message.Attempt)
}

func sweepEveryAttempt(t *testing.T, e *env) {
	ref := e.one(t, maxAttempts(3))
	for n := int32(1); n <= 3; n++ {
		require.Zero(t, e.sweep(t, ref).Dead)
		c := e.claimOneAs(t, "worker", short)
		require.Equal(t, n, c.Message.Attempt)
		e.waitClock(t, c.Message.LeaseEnd)
	}
	e.claimNothing(t)
	require.Equal(t, 1, e.sweep(t, ref).Dead)
	e.requireDead(t, ref, storage.DeadReasonLeaseExpired, 3)
	e.claimNothing(t)
}

func sweepPages(t *testing.T, e *env) {
	e.sweepAll(t, 100) // what other tests left behind
	// Last attempts in two queues, between messages that must stay.
	other := e.on(e.newQueue(t, settings()))
	var dead, stay []storage.Ref
	for _, q := range []*env{e, other} {
		for range 5 {
			dead = append(dead, q.one(t, maxAttempts(1)))
			stay = append(stay, q.one(t, maxAttempts(1), delay(time.Hour)))
		}
		require.Len(t, q.claimN(t, 100), 5)
	}
	e.advance(t, lease)
	sum, pages := e.sweepAll(t, 3)
	require.Equal(t, len(dead), sum.Dead)
	require.GreaterOrEqual(t, pages, (len(dead)+len(stay))/3, "the limit bounds what is looked at")
	for _, ref := range dead {
		require.Equal(t, storage.StateDead, e.get(t, ref).State)
	}
	for _, ref := range stay {
		require.Equal(t, storage.StatePending, e.get(t, ref).State)
	}
	sum, _ = e.sweepAll(t, 3)
	require.Zero(t, sum.Dead)
}

// sweepOverdue: whoever granted the leases may be gone, so a pass tells every server of those that
// are over, whatever queue and key they belong to, and of nothing that no claim would take.
func sweepOverdue(t *testing.T, e *env) {
	e.sweepAll(t, 100) // what other tests left behind
	overdue := func(q *env) (ready []time.Time) {
		sum, _ := e.sweepAll(t, 3)
		for _, o := range sum.Overdue {
			if o.QueueID == q.queue.ID {
				ready = append(ready, o.ReadyTime)
			}
		}
		return ready
	}
	keyed, ending := e.on(e.newQueue(t, settings())), e.on(e.newQueue(t, settings()))
	e.many(t, 4)
	first := e.claimN(t, 1)[0]
	e.advance(t, e.tick)
	rest := e.claimN(t, 2)
	e.many(t, 2, delay(time.Hour))
	keyed.many(t, 3, ordered("k"))
	head := keyed.claimOne(t)
	ending.one(t, maxAttempts(1))
	ending.one(t, expires(e.clockNow(t).Add(e.tick)))
	require.Len(t, ending.claimN(t, 2), 2)
	last := rest[1].Message.LeaseEnd
	e.advanceTo(t, first.Message.LeaseEnd.Add(-e.tick))
	require.Empty(t, overdue(e), "live leases")
	e.advanceTo(t, first.Message.LeaseEnd)
	require.Equal(t, []time.Time{first.Message.ReadyTime}, overdue(e))
	e.advanceTo(t, last.Add(lease))
	require.Empty(t, overdue(ending), "the sweep ends them")
	e.unchanged(t, func() { require.Equal(t, []time.Time{first.Message.ReadyTime}, overdue(e), "the earliest of three") })
	require.Equal(t, []time.Time{head.Message.ReadyTime}, overdue(keyed))
	require.Len(t, e.claimN(t, 10), 4)
	require.Empty(t, overdue(e), "claimed again")
}

func sweepByRefs(t *testing.T, e *env) {
	refs := e.many(t, 6, maxAttempts(1))
	e.claimN(t, 6)
	e.advance(t, lease)
	rows := map[storage.Ref]map[string]string{}
	for _, ref := range refs[3:] {
		rows[ref] = e.liveRow(t, ref)
	}
	res := e.sweep(t, refs[2], refs[0], refs[1], refs[0])
	require.Equal(t, 3, res.Dead, "one that is named twice dies once")
	require.Zero(t, res.Next)
	for ref, row := range rows {
		require.Equal(t, row, e.liveRow(t, ref))
	}
	require.Equal(t, 3, e.through(e.other).sweep(t, refs...).Dead, "D5: any server ends the rest")
}

func sweepUnknown(t *testing.T, e *env) {
	done := e.one(t)
	e.complete(t, e.claimOne(t))
	e.unchanged(t, func() {
		res := e.sweep(t, done, storage.Ref{QueueID: e.queue.ID, Position: 1 << 60}, storage.Ref{QueueID: 1 << 30, Position: done.Position})
		require.Zero(t, res.Dead+res.Expired+res.Cancelled)
	})
}

func sweepNothing(t *testing.T, e *env) {
	e.sweepAll(t, 100) // what other tests left behind
	e.many(t, 5)
	e.claimN(t, 2)
	e.unchanged(t, func() { e.sweepAll(t, 2) })
}

func sweepMarked(t *testing.T, e *env) {
	e.sweepAll(t, 100) // what other tests left behind
	ref := e.one(t, maxAttempts(1))
	e.claimOne(t)
	e.in.Mark(t, ref, e.now)
	e.advance(t, 10*lease)
	e.unchanged(t, func() {
		e.sweep(t, ref)
		e.sweepAll(t, 100)
	})
}

func sweepHeld(t *testing.T, e *env) {
	refs := e.many(t, 3, maxAttempts(1))
	cs := e.claimAs(t, "worker", 3, short)
	e.waitClock(t, cs[0].Message.LeaseEnd)
	release := e.in.Hold(t, refs[1], HoldUpdate)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	res, err := e.store.Sweep(ctx, storage.SweepParams{Refs: refs, Limit: 3})
	require.NoError(t, err, "it does not wait")
	require.Equal(t, 2, res.Dead, "the neighbours")
	res, err = e.store.Sweep(ctx, storage.SweepParams{Limit: 1000})
	require.NoError(t, err)
	require.Zero(t, res.Dead)
	release()
	require.Equal(t, 1, e.sweep(t, refs...).Dead)
	for _, ref := range refs {
		e.requireDead(t, ref, storage.DeadReasonLeaseExpired, 1)
	}
}

func sweepKey(t *testing.T, e *env) {
	m := e.message(keyed("key", "content"), maxAttempts(1))
	ref := e.enqueue(t, m)[0]
	c := e.claimOne(t)
	e.advanceTo(t, c.Message.LeaseEnd)
	require.Equal(t, 1, e.sweep(t, ref).Dead)
	got := e.enqueueResult(t, m)[0]
	require.Equal(t, storage.EnqueueDuplicate, got.Status)
	require.Equal(t, ref, got.Ref)
	require.Equal(t, storage.StateDead, got.State)
}

func sweepHistory(t *testing.T, e *env) {
	ref := e.one(t, maxAttempts(2))
	first := e.claimOne(t)
	s := settlement(first, storage.ActionRetry)
	s.Delay = 0
	want := e.settle(t, s)[0]
	last := e.claimOne(t)
	e.advanceTo(t, last.Message.LeaseEnd)
	require.Equal(t, 1, e.sweep(t, ref).Dead)
	got := e.settle(t, s)[0]
	require.Equal(t, storage.ItemAlreadySettled, got.Status)
	require.Equal(t, facts(want), facts(got))
	differs := e.settle(t, settlement(first, storage.ActionComplete))[0]
	require.Equal(t, storage.ItemSettled, differs.Status)
	require.Equal(t, storage.OutcomeRetried, differs.Outcome)
	e.requireLost(t, last, storage.LostLeaseExpired)
	require.Equal(t, "try again", e.get(t, ref).LastError, "what the last retry said is kept")
}

func expirePending(t *testing.T, e *env) {
	at := e.clockNow(t).Add(short)
	ref := e.one(t, expires(at))
	require.Equal(t, storage.StatePending, e.get(t, ref).State)
	e.waitClock(t, at)
	e.claimNothing(t)
	res := e.sweep(t, ref)
	require.Equal(t, [3]int{0, 1, 0}, [3]int{res.Dead, res.Expired, res.Cancelled})
	e.requireDead(t, ref, storage.DeadReasonExpired, 0)
	e.claimNothing(t)
}

func expireAtOnce(t *testing.T, e *env) {
	now := e.clockNow(t)
	refs := e.enqueue(t, e.message(expires(now.Add(-time.Hour))), e.message(), e.message(expires(time.Unix(0, 0).UTC())))
	require.Equal(t, refs[1:2], refsOf(e.claimN(t, 10)), "the others are never delivered")
	require.Equal(t, 2, e.sweep(t, refs...).Expired)
	e.requireDead(t, refs[0], storage.DeadReasonExpired, 0)
	e.requireDead(t, refs[2], storage.DeadReasonExpired, 0)
}

func expireDelayed(t *testing.T, e *env) {
	ref := e.one(t, delay(time.Hour), expires(e.now.Add(time.Minute)))
	e.advance(t, time.Minute)
	require.Equal(t, 1, e.sweep(t, ref).Expired, "it need not become ready first")
	e.requireDead(t, ref, storage.DeadReasonExpired, 0)
	// One whose delay is over, in the meantime, before anybody moved it.
	ref = e.one(t, delay(time.Second), expires(e.now.Add(time.Minute)))
	e.advance(t, time.Minute)
	require.Empty(t, e.claimN(t, 10))
	require.Equal(t, 1, e.sweep(t, ref).Expired)
	e.requireDead(t, ref, storage.DeadReasonExpired, 0)
}

func expireTick(t *testing.T, e *env) {
	at := e.now.Add(time.Minute)
	refs := e.many(t, 2, expires(at))
	e.advanceTo(t, at.Add(-e.tick))
	e.unchanged(t, func() { e.sweep(t, refs...) })
	c := e.claimN(t, 1)
	require.Equal(t, refs[:1], refsOf(c), "one tick earlier it is delivered")
	e.advanceTo(t, at)
	e.claimNothing(t)
	require.Equal(t, 1, e.sweep(t, refs...).Expired)
	e.requireDead(t, refs[1], storage.DeadReasonExpired, 0)
	e.complete(t, c[0])
}

func expireOutlived(t *testing.T, e *env) {
	e.sweepAll(t, 100) // what other tests left behind
	refs := e.many(t, 2, expires(e.now.Add(time.Second)))
	cs := e.claimN(t, 2)
	e.advance(t, 10*time.Second)
	e.unchanged(t, func() {
		e.sweep(t, refs...)
		e.sweepAll(t, 100)
	})
	for _, c := range cs {
		require.Equal(t, storage.ItemApplied, e.renew(t, renewal(c, lease))[0].Status)
	}
	e.complete(t, cs[0])
	got := e.settle(t, settlement(cs[1], storage.ActionDeadLetter))[0]
	require.Equal(t, storage.ItemApplied, got.Status)
	require.Equal(t, storage.DeadReasonRejected, got.DeadReason)
}

func expireReclaim(t *testing.T, e *env) {
	at := e.clockNow(t).Add(short)
	if !e.settable() {
		at = at.Add(time.Second) // the claim must come before it
	}
	ref := e.one(t, expires(at))
	c := e.claimOneAs(t, "worker", 2*short)
	e.waitClock(t, at)
	e.waitClock(t, c.Message.LeaseEnd)
	e.claimNothing(t)
	require.Equal(t, 1, e.sweep(t, ref).Expired)
	e.requireDead(t, ref, storage.DeadReasonExpired, 1)
	e.requireLost(t, c, storage.LostLeaseExpired)
}

func expireSettled(t *testing.T, e *env, a storage.Action) {
	t.Helper()
	at := e.now.Add(2 * time.Second)
	refs := e.many(t, 2, expires(at))
	cs := e.claimN(t, 2)
	e.advanceTo(t, at.Add(-e.tick))
	before := e.settle(t, settlement(cs[0], a))[0]
	require.Equal(t, storage.ItemApplied, before.Status)
	require.NotEqual(t, storage.OutcomeDead, before.Outcome, "one tick earlier it is no different from others")
	require.Equal(t, storage.StatePending, e.get(t, refs[0]).State)
	e.advanceTo(t, at)
	s := settlement(cs[1], a)
	got := e.settle(t, s)[0]
	require.Equal(t, storage.ItemApplied, got.Status)
	require.Equal(t, storage.OutcomeDead, got.Outcome)
	require.Equal(t, storage.DeadReasonExpired, got.DeadReason)
	m := e.get(t, refs[1])
	require.Equal(t, storage.StateDead, m.State)
	require.Equal(t, storage.DeadReasonExpired, m.DeadReason)
	again := e.settle(t, s)[0]
	require.Equal(t, storage.ItemAlreadySettled, again.Status, "S5")
	require.Equal(t, facts(got), facts(again))
	other := e.settle(t, settlement(cs[1], storage.ActionComplete))[0]
	require.Equal(t, storage.ItemSettled, other.Status, "S6")
	require.Equal(t, storage.OutcomeDead, other.Outcome)
	require.Equal(t, 1, e.sweep(t, refs...).Expired, "the one that was settled before")
}

func expireRead(t *testing.T, e *env) {
	at := e.now.Add(time.Hour + 123*time.Millisecond)
	ref := e.one(t, expires(at))
	sameTime(t, at, e.get(t, ref).ExpireTime, "pending")
	c := e.claimOne(t)
	sameTime(t, at, c.Message.ExpireTime, "claimed")
	e.complete(t, c)
	sameTime(t, at, e.get(t, ref).ExpireTime, "completed")
	ref = e.one(t, expires(at))
	require.Equal(t, storage.ItemApplied, e.settle(t, settlement(e.claimOne(t), storage.ActionDeadLetter))[0].Status)
	sameTime(t, at, e.get(t, ref).ExpireTime, "dead")
	require.True(t, e.get(t, e.one(t)).ExpireTime.IsZero(), "none")
}

func expireContent(t *testing.T, e *env) {
	ref := e.enqueue(t, e.message(keyed("key", "content"), expires(e.now.Add(time.Hour))))[0]
	got := e.enqueueResult(t, e.message(keyed("key", "content"), expires(e.now.Add(time.Minute))))[0]
	require.Equal(t, storage.EnqueueDuplicate, got.Status)
	require.Equal(t, ref, got.Ref)
	sameTime(t, e.now.Add(time.Hour), e.get(t, ref).ExpireTime, "that of the first")
}
