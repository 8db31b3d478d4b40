package storagetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// limitRules check the limits of a queue: L1 counts leases, L2 counts claims. The races of
// both are in limit_races.go.
func limitRules() []rule {
	return []rule{
		{name: "L1_a_claim_gets_what_the_limit_leaves", clocks: bothClocks, run: inFlightLeaves},
		{name: "L1_C11_a_claim_at_the_limit_writes_nothing", clocks: bothClocks, run: inFlightUnchanged},
		{name: "L1_every_end_of_a_claim_frees_its_place", clocks: settable, run: inFlightEnds},
		{name: "L1_C3_a_lease_that_runs_out_frees_its_place_at_that_tick", clocks: settable, run: inFlightRunsOut},
		{name: "L1_a_renewed_lease_keeps_its_place", clocks: settable, run: inFlightRenewed},
		{name: "L1_E12_a_settling_message_keeps_its_place", clocks: settable, run: inFlightSettling},
		{name: "L1_leases_from_before_the_limit_count", clocks: bothClocks, run: inFlightSetLate},
		{name: "L1_a_limit_below_the_present_use", clocks: settable, run: inFlightLowered},
		{name: "L1_a_limit_that_comes_and_goes", clocks: settable, run: inFlightComesAndGoes},
		{name: "L1_C14_a_repeat_needs_no_place", clocks: settable, run: inFlightRepeat},
		{name: "L1_C15_a_claim_given_back_frees_its_place", clocks: settable, run: inFlightGivenBack},
		{name: "L1_queues_are_counted_apart", clocks: settable, run: inFlightApart},
		{name: "L1_a_renewal_that_has_not_committed_keeps_its_place", clocks: bothClocks, skip: needsRowLocks, run: inFlightUncommitted},
		{name: "L1_many_short_leases_leave_no_trace", clocks: settable, run: inFlightManyRounds},
		{name: "L1_max_in_flight_under_load", clocks: realClock, run: inFlightRace},
		{name: "L1_max_in_flight_set_under_load", clocks: realClock, run: inFlightSetUnderLoad},
		{name: "L2_a_burst_then_the_rate", clocks: settable, run: rateExact},
		{name: "L2_less_than_one_a_second", clocks: settable, run: rateSlow},
		{name: "L2_C14_a_repeat_takes_no_token", clocks: settable, run: rateRepeat},
		{name: "L2_C15_a_claim_given_back_has_spent_its_token", clocks: settable, run: rateGivenBack},
		{name: "L2_another_rate", clocks: settable, run: rateChanged},
		{name: "L2_C11_a_claim_without_a_token_writes_nothing", clocks: settable, run: rateUnchanged},
		{name: "L1_L2_the_tighter_limit_holds", clocks: settable, run: bothLimits},
		{name: "L2_windows_under_load", clocks: realClock, run: rateRace},
		{name: "L1_L2_a_paused_queue_stays_closed", clocks: settable, run: limitPaused},
	}
}

// limited returns the surroundings with a queue that has limits.
func (e *env) limited(t *testing.T, inFlight int32, rate float64) *env {
	t.Helper()
	s := settings()
	s.MaxInFlight, s.MaxClaimsPerSecond = inFlight, rate
	return e.on(e.newQueue(t, s))
}

// limits changes the limits of the queue.
func (e *env) limits(t *testing.T, inFlight int32, rate float64) {
	t.Helper()
	s := e.queue.QueueSettings
	s.MaxInFlight, s.MaxClaimsPerSecond = inFlight, rate
	_, err := e.store.UpdateQueue(t.Context(), e.queue.Name, s, 0)
	require.NoError(t, err)
}

// claimLimited claims up to n messages and requires that it gets so many, and what it is
// told about the limit.
func (e *env) claimLimited(t *testing.T, n, want int, limit storage.Limit) ([]storage.Claimed, storage.ClaimResult) {
	t.Helper()
	res := e.claimResult(t, storage.ClaimParams{Calls: []storage.ClaimCall{call("worker", n, lease)}})
	require.Len(t, res.Calls[0].Messages, want)
	require.Equal(t, limit, res.Limit, "the limit that is told")
	if limit == storage.LimitNone {
		require.True(t, res.LimitEnd.IsZero())
	} else {
		require.False(t, res.More, "no use to claim again at once")
	}
	return res.Calls[0].Messages, res
}

func inFlightLeaves(t *testing.T, e *env) {
	e = e.limited(t, 5, 0)
	refs := e.many(t, 20)
	first, res := e.claimLimited(t, 2, 2, storage.LimitNone)
	require.True(t, res.More || len(res.Calls[0].Messages) == 2)
	rest, res := e.claimLimited(t, 100, 3, storage.LimitInFlight)
	require.Equal(t, refs[:5], append(refsOf(first), refsOf(rest)...), "in their order")
	if e.settable() {
		sameTime(t, e.now.Add(lease), res.LimitEnd, "the end of the first lease")
	}
	// Several calls share what is left, the first one first.
	e.complete(t, first[0])
	e.complete(t, rest[0])
	e.complete(t, rest[1])
	res = e.claimResult(t, storage.ClaimParams{Calls: []storage.ClaimCall{call("a", 2, lease), call("b", 2, lease), call("c", 1, lease)}})
	require.Equal(t, refs[5:7], refsOf(res.Calls[0].Messages))
	require.Equal(t, refs[7:8], refsOf(res.Calls[1].Messages))
	require.Empty(t, res.Calls[2].Messages)
	require.Equal(t, storage.LimitInFlight, res.Limit)
	// The other store counts the same leases.
	e.through(e.other).claimLimited(t, 1, 0, storage.LimitInFlight)
}

func inFlightUnchanged(t *testing.T, e *env) {
	e = e.limited(t, 2, 0)
	e.many(t, 5)
	done, _ := e.claimLimited(t, 1, 1, storage.LimitNone)
	e.claimLimited(t, 1, 1, storage.LimitNone)
	e.unchanged(t, func() { e.claimLimited(t, 10, 0, storage.LimitInFlight) })
	// Nor does one that finds the queue empty, with places that are free again.
	e.complete(t, done[0])
	got := e.claimOne(t)
	e.limits(t, 10, 0)
	rest := e.claimN(t, 10)
	require.Len(t, rest, 2)
	e.complete(t, got)
	e.unchanged(t, func() { e.claimLimited(t, 10, 0, storage.LimitNone) })
}

func inFlightEnds(t *testing.T, e *env) {
	for _, a := range actions {
		q := e.limited(t, 1, 0)
		q.many(t, 3)
		c := q.claimOne(t)
		q.claimLimited(t, 1, 0, storage.LimitInFlight)
		require.Equal(t, storage.ItemApplied, q.settle(t, settlement(c, a.action))[0].Status)
		q.claimLimited(t, 1, 1, storage.LimitNone)
		q.claimLimited(t, 1, 0, storage.LimitInFlight)
	}
	// The sweep ends a last attempt; Cancel asks its holder.
	q := e.limited(t, 1, 0)
	q.one(t, maxAttempts(1))
	q.many(t, 2)
	last := q.claimOne(t)
	q.advance(t, lease)
	res, err := q.store.Sweep(t.Context(), storage.SweepParams{Refs: []storage.Ref{last.Message.Ref}, Limit: 1})
	require.NoError(t, err)
	require.Equal(t, 1, res.Dead)
	c := q.claimOne(t)
	cancelled, err := q.store.Cancel(t.Context(), storage.CancelParams{QueueID: q.queue.ID, Ref: c.Message.Ref})
	require.NoError(t, err)
	require.Equal(t, storage.StateProcessing, cancelled.State)
	q.claimLimited(t, 1, 0, storage.LimitInFlight)
	require.Equal(t, storage.ItemApplied, q.settle(t, settlement(c, storage.ActionRelease))[0].Status)
	q.claimLimited(t, 1, 1, storage.LimitNone)
}

func inFlightRunsOut(t *testing.T, e *env) {
	e = e.limited(t, 2, 0)
	refs := e.many(t, 4)
	e.claimAs(t, "A", 1, 10*time.Second)
	e.claimAs(t, "A", 1, 20*time.Second)
	e.advance(t, 10*time.Second-e.tick)
	_, res := e.claimLimited(t, 1, 0, storage.LimitInFlight)
	sameTime(t, e.now.Add(e.tick), res.LimitEnd, "the end of the first lease")
	e.advance(t, e.tick)
	got, res := e.claimLimited(t, 5, 1, storage.LimitInFlight)
	require.Equal(t, refs[:1], refsOf(got), "the one whose lease ran out, at its old ready time")
	sameTime(t, e.now.Add(10*time.Second), res.LimitEnd, "the end of the second lease")
	e.advance(t, 10*time.Second)
	got, _ = e.claimLimited(t, 5, 1, storage.LimitInFlight)
	require.Equal(t, refs[1:2], refsOf(got))
}

func inFlightRenewed(t *testing.T, e *env) {
	e = e.limited(t, 1, 0)
	e.many(t, 2)
	c := e.claimOneAs(t, "A", 10*time.Second)
	e.advance(t, 9*time.Second)
	require.Equal(t, storage.ItemApplied, e.renew(t, renewal(c, 20*time.Second))[0].Status)
	e.advance(t, 2*time.Second)
	_, res := e.claimLimited(t, 1, 0, storage.LimitInFlight)
	sameTime(t, e.now.Add(18*time.Second), res.LimitEnd, "the end of the renewed lease")
	require.Equal(t, storage.ItemApplied, e.renew(t, renewal(c, time.Second))[0].Status)
	e.advance(t, time.Second)
	e.claimLimited(t, 1, 1, storage.LimitNone)
}

func inFlightSettling(t *testing.T, e *env) {
	if e.in.Mark == nil {
		t.Skip("Instance.Mark is nil: the layout has no mark")
	}
	e = e.limited(t, 1, 0)
	e.many(t, 2)
	c := e.claimOneAs(t, "A", 10*time.Second)
	e.in.Mark(t, c.Message.Ref, e.now)
	e.advance(t, time.Hour)
	e.claimLimited(t, 1, 0, storage.LimitInFlight)
	e.through(e.other).claimLimited(t, 1, 0, storage.LimitInFlight)
}

func inFlightSetLate(t *testing.T, e *env) {
	refs := e.many(t, 10)
	before := e.claimN(t, 5)
	e.limits(t, 3, 0)
	e.claimLimited(t, 10, 0, storage.LimitInFlight)
	for i := range 3 {
		e.claimLimited(t, 10, 0, storage.LimitInFlight)
		e.complete(t, before[i])
	}
	got, _ := e.claimLimited(t, 10, 1, storage.LimitInFlight)
	require.Equal(t, refs[5:6], refsOf(got))
	e.limits(t, 0, 0)
	e.claimLimited(t, 2, 2, storage.LimitNone)
	// Once more: the leases of the time without a limit count beside those from before.
	e.limits(t, 6, 0)
	e.claimLimited(t, 10, 1, storage.LimitInFlight)
	if e.settable() {
		// However often the store looks for leases from before, none counts twice.
		for range 3 {
			e.advance(t, 5*time.Second)
			require.Equal(t, storage.ItemApplied, e.renew(t, renewal(got[0], time.Minute))[0].Status)
			e.claimLimited(t, 10, 0, storage.LimitInFlight)
		}
		e.complete(t, got[0])
		e.claimLimited(t, 10, 1, storage.LimitInFlight)
	}
}

func inFlightLowered(t *testing.T, e *env) {
	e = e.limited(t, 10, 0)
	e.many(t, 20)
	held, _ := e.claimLimited(t, 10, 10, storage.LimitNone)
	e.limits(t, 3, 0)
	for i := range 7 {
		e.claimLimited(t, 1, 0, storage.LimitInFlight)
		require.Equal(t, storage.ItemApplied, e.renew(t, renewal(held[9], lease))[0].Status, "whoever holds a claim keeps it")
		e.complete(t, held[i])
	}
	e.claimLimited(t, 1, 0, storage.LimitInFlight)
	e.complete(t, held[7])
	e.claimLimited(t, 5, 1, storage.LimitInFlight)
	e.limits(t, 5, 0)
	e.claimLimited(t, 5, 2, storage.LimitInFlight)
}

func inFlightComesAndGoes(t *testing.T, e *env) {
	e = e.limited(t, 0, 1000)
	e.many(t, 20)
	e.claimLimited(t, 4, 4, storage.LimitNone)
	e.limits(t, 5, 1000)
	e.claimLimited(t, 4, 1, storage.LimitInFlight)
	e.limits(t, 0, 1000)
	e.claimLimited(t, 4, 4, storage.LimitNone)
	e.limits(t, 10, 0)
	e.claimLimited(t, 4, 1, storage.LimitInFlight)
	e.limits(t, 0, 0)
	e.claimLimited(t, 4, 4, storage.LimitNone)
	e.through(e.other).claimLimited(t, 1, 1, storage.LimitNone)
}

func inFlightRepeat(t *testing.T, e *env) {
	e = e.limited(t, 3, 0)
	e.many(t, 10)
	first := e.claimWithID(t, "A", claimID(1), 2)
	require.Len(t, first.Messages, 2)
	full := e.claimWithID(t, "A", claimID(2), 5)
	require.Len(t, full.Messages, 1)
	again := e.claimWithID(t, "A", claimID(1), 2)
	require.Equal(t, storage.ClaimReplayed, again.Status)
	require.Equal(t, first.Messages, again.Messages)
	require.Equal(t, storage.ClaimIDReused, e.claimWithID(t, "B", claimID(1), 2).Status)
	// A repeat and a new call in one claim.
	e.complete(t, full.Messages[0])
	res := e.claimResult(t, storage.ClaimParams{Calls: []storage.ClaimCall{
		{Max: 2, Lease: lease, WorkerID: "A", ClaimID: claimID(1)},
		{Max: 5, Lease: lease, WorkerID: "A", ClaimID: claimID(3)},
		call("C", 1, lease),
	}})
	require.Equal(t, storage.ClaimReplayed, res.Calls[0].Status)
	require.Len(t, res.Calls[0].Messages, 2)
	require.Len(t, res.Calls[1].Messages, 1)
	require.Empty(t, res.Calls[2].Messages)
	require.Equal(t, storage.LimitInFlight, res.Limit)
}

func inFlightGivenBack(t *testing.T, e *env) {
	e = e.limited(t, 2, 0)
	e.many(t, 3)
	got, _ := e.claimLimited(t, 2, 2, storage.LimitNone)
	require.Equal(t, 1, e.giveBack(t, storage.GiveBackParams{Claims: held(got[0])}))
	e.claimLimited(t, 2, 1, storage.LimitInFlight)
}

func inFlightApart(t *testing.T, e *env) {
	one, two, free := e.limited(t, 1, 0), e.limited(t, 2, 0), e
	for _, q := range []*env{one, two, free} {
		q.many(t, 5)
	}
	one.claimLimited(t, 5, 1, storage.LimitInFlight)
	two.claimLimited(t, 5, 2, storage.LimitInFlight)
	free.claimLimited(t, 5, 5, storage.LimitNone)
}

func inFlightUncommitted(t *testing.T, e *env) {
	e = e.limited(t, 1, 0)
	e.many(t, 2)
	c := e.claimOneAs(t, "A", time.Second)
	release := e.in.Hold(t, c.Message.Ref, HoldExtend)
	e.waitClock(t, c.Message.LeaseEnd)
	for range 3 {
		e.claimLimited(t, 1, 0, storage.LimitInFlight)
	}
	release()
	e.claimLimited(t, 1, 0, storage.LimitInFlight)
	// The same with one that changes nothing in the end.
	q := e.limited(t, 1, 0)
	q.many(t, 2)
	c = q.claimOneAs(t, "A", time.Second)
	release = q.in.Hold(t, c.Message.Ref, HoldLock)
	q.waitClock(t, c.Message.LeaseEnd)
	q.claimLimited(t, 1, 0, storage.LimitInFlight)
	release()
	q.claimLimited(t, 1, 1, storage.LimitNone)
}

// Claims of many rounds, some held all the while, others short: what is over does not count
// and what runs does, however many came and went.
func inFlightManyRounds(t *testing.T, e *env) {
	e = e.limited(t, 3, 0)
	e.many(t, 500)
	long := e.claimOneAs(t, "A", maxLease)
	for i := range 600 {
		got := e.claimAs(t, "B", 5, 10*time.Second)
		require.Len(t, got, 2, "round %d", i)
		switch i % 3 {
		case 0:
			e.complete(t, got[0])
			require.Equal(t, storage.ItemApplied, e.settle(t, settlement(got[1], storage.ActionRetry))[0].Status)
		case 1:
			e.advance(t, 10*time.Second)
		default:
			require.Equal(t, 2, e.giveBack(t, storage.GiveBackParams{Claims: held(got...)}))
		}
		if i%100 == 99 {
			require.NoError(t, e.store.Maintain(t.Context()))
		}
	}
	e.complete(t, long)
	e.claimLimited(t, 5, 3, storage.LimitInFlight)
}

func rateExact(t *testing.T, e *env) {
	e = e.limited(t, 0, 10)
	e.many(t, 200)
	_, res := e.claimLimited(t, 100, 10, storage.LimitRate)
	sameTime(t, e.now.Add(100*time.Millisecond), res.LimitEnd, "the next token")
	e.through(e.other).claimLimited(t, 100, 0, storage.LimitRate)
	e.advance(t, 100*time.Millisecond-e.tick)
	_, res = e.claimLimited(t, 100, 0, storage.LimitRate)
	sameTime(t, e.now.Add(e.tick), res.LimitEnd, "the next token")
	e.advance(t, e.tick)
	e.claimLimited(t, 1, 1, storage.LimitNone)
	e.claimLimited(t, 1, 0, storage.LimitRate)
	e.advance(t, 250*time.Millisecond)
	e.claimLimited(t, 100, 2, storage.LimitRate)
	e.advance(t, 50*time.Millisecond)
	e.claimLimited(t, 100, 1, storage.LimitRate)
	e.advance(t, time.Hour)
	e.claimLimited(t, 4, 4, storage.LimitNone)
	e.through(e.other).claimLimited(t, 3, 3, storage.LimitNone)
	e.claimLimited(t, 100, 3, storage.LimitRate)

	fast := e.limited(t, 0, 1000)
	fast.many(t, 1000)
	fast.many(t, 500)
	fast.claimLimited(t, 1000, 1000, storage.LimitNone)
	fast.advance(t, 40*time.Millisecond)
	fast.claimLimited(t, 1000, 40, storage.LimitRate)
}

func rateSlow(t *testing.T, e *env) {
	e = e.limited(t, 0, 0.5)
	e.many(t, 5)
	_, res := e.claimLimited(t, 5, 1, storage.LimitRate)
	sameTime(t, e.now.Add(2*time.Second), res.LimitEnd, "the next token")
	e.advance(t, 2*time.Second-e.tick)
	e.claimLimited(t, 5, 0, storage.LimitRate)
	e.advance(t, e.tick)
	e.claimLimited(t, 5, 1, storage.LimitRate)
	e.advance(t, time.Hour)
	e.claimLimited(t, 5, 1, storage.LimitRate)
}

func rateRepeat(t *testing.T, e *env) {
	e = e.limited(t, 0, 2)
	e.many(t, 5)
	first := e.claimWithID(t, "A", claimID(1), 1)
	for range 5 {
		require.Equal(t, storage.ClaimReplayed, e.claimWithID(t, "A", claimID(1), 1).Status)
	}
	require.Len(t, e.claimWithID(t, "A", claimID(2), 5).Messages, 1)
	again := e.claimWithID(t, "A", claimID(1), 1)
	require.Equal(t, first.Messages, again.Messages, "also when there is no token left")
}

func rateGivenBack(t *testing.T, e *env) {
	e = e.limited(t, 0, 2)
	e.many(t, 5)
	got, _ := e.claimLimited(t, 5, 2, storage.LimitRate)
	require.Equal(t, 2, e.giveBack(t, storage.GiveBackParams{Claims: held(got...)}))
	e.claimLimited(t, 5, 0, storage.LimitRate)
}

func rateChanged(t *testing.T, e *env) {
	e = e.limited(t, 0, 0.01)
	e.many(t, 40)
	e.claimLimited(t, 5, 1, storage.LimitRate)
	e.limits(t, 0, 10)
	e.claimLimited(t, 40, 9, storage.LimitRate)
	e.limits(t, 0, 0.5)
	e.claimLimited(t, 40, 0, storage.LimitRate)
	e.advance(t, 2*time.Second)
	e.claimLimited(t, 40, 1, storage.LimitRate)
	e.limits(t, 0, 0)
	e.claimLimited(t, 20, 20, storage.LimitNone)
}

func rateUnchanged(t *testing.T, e *env) {
	e = e.limited(t, 0, 1)
	e.many(t, 5)
	e.claimLimited(t, 1, 1, storage.LimitNone)
	e.unchanged(t, func() { e.claimLimited(t, 5, 0, storage.LimitRate) })
}

func bothLimits(t *testing.T, e *env) {
	e = e.limited(t, 3, 5)
	e.many(t, 20)
	got, _ := e.claimLimited(t, 10, 3, storage.LimitInFlight)
	for _, c := range got {
		e.complete(t, c)
	}
	got, res := e.claimLimited(t, 10, 2, storage.LimitRate)
	sameTime(t, e.now.Add(200*time.Millisecond), res.LimitEnd, "the next token")
	e.advance(t, time.Second)
	e.claimLimited(t, 10, 1, storage.LimitInFlight)
	e.complete(t, got[0])
	e.claimLimited(t, 10, 1, storage.LimitInFlight)
}

func limitPaused(t *testing.T, e *env) {
	e = e.limited(t, 3, 5)
	e.many(t, 5)
	_, err := e.store.SetPaused(t.Context(), e.queue.Name, true)
	require.NoError(t, err)
	e.claimLimited(t, 5, 0, storage.LimitNone)
	_, err = e.store.SetPaused(t.Context(), e.queue.Name, false)
	require.NoError(t, err)
	e.claimLimited(t, 5, 3, storage.LimitInFlight)
}

// until runs f over and over in goroutines on both stores until ctx ends or one fails.
func (e *env) until(ctx context.Context, t *testing.T, n int, f func(ctx context.Context, i int, s storage.Store) error) {
	t.Helper()
	failed := make(chan error, n)
	stores := []storage.Store{e.store, e.other}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i := range n {
		go func() {
			for ctx.Err() == nil {
				if err := f(context.WithoutCancel(ctx), i, stores[i%2]); err != nil {
					cancel()
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	for range n {
		require.NoError(t, <-failed)
	}
}
