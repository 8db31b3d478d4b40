package storagetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// firstReadyRules check what keeps the hints of a claim honest (W7): the look for what they
// hide, and what a claim says about where the next one may start.
func firstReadyRules() []rule {
	return []rule{
		{name: "W7_a_look_finds_the_first_message_below_each_hint", clocks: settable, run: firstReadyFinds},
		{name: "W7_C3_a_look_finds_a_lease_at_its_end", clocks: settable, run: firstReadyLease},
		{name: "W7_C6_a_look_finds_nothing_that_no_claim_may_take", clocks: settable, run: firstReadyNothing},
		{name: "W7_a_look_does_not_wait_for_a_held_row", clocks: settable, run: firstReadyHeldRow},
		{name: "W7_what_a_claim_passes_of_the_delayed_a_look_finds", clocks: settable, run: dueBelow},
		{name: "W7_a_claim_says_when_nothing_delayed_is_left", clocks: settable, run: claimDueEnd},
		{name: "W7_a_claim_goes_on_behind_its_last_message", clocks: settable, run: claimGoesOn},
		{name: "W7_a_claim_says_when_nothing_is_left", clocks: settable, run: claimEnd},
		{name: "W7_C14_a_repeat_says_nothing_of_what_is_left", clocks: settable, run: claimEndRepeat},
		{name: "W7_L1_L2_a_limit_hides_the_end", clocks: settable, run: claimEndLimited},
	}
}

// firstReady looks, and sees to it that the look changes nothing.
func (e *env) firstReady(t *testing.T, below ...storage.ScanHint) []storage.FirstReady {
	t.Helper()
	var res storage.FirstReadyResult
	e.unchanged(t, func() {
		var err error
		res, err = e.store.FirstReady(t.Context(), storage.FirstReadyParams{QueueID: e.queue.ID, Below: below})
		require.NoError(t, err, "first ready")
	})
	e.checkNow(t, res.Now)
	return res.Priorities
}

func firstReadyFinds(t *testing.T, e *env) {
	require.Empty(t, e.firstReady(t), "an empty queue")
	require.Equal(t, []storage.FirstReady{{Priority: 3}}, e.firstReady(t, hints(e.now, 3)...), "what was asked for is answered")
	start := e.now
	e.one(t, priority(5))
	e.advance(t, time.Second)
	later := e.now
	for _, p := range []int32{-2, 5, -2} {
		e.one(t, priority(p))
	}
	e.one(t, delay(time.Hour), priority(7))
	e.on(e.newQueue(t, settings())).one(t, priority(9))
	e.advance(t, time.Second)

	find := func(below ...storage.ScanHint) []storage.FirstReady {
		t.Helper()
		got := e.firstReady(t, below...)
		for i := range got {
			got[i].Position = 0 // a backend may tell the time alone
		}
		return got
	}
	at := func(p int32, ready time.Time) storage.FirstReady {
		return storage.FirstReady{Priority: p, Found: true, ReadyTime: ready}
	}
	require.Equal(t, []storage.FirstReady{at(5, start), at(-2, later)}, find(), "without hints the first of each")
	require.Equal(t, []storage.FirstReady{at(5, start), at(-2, later)}, find(hints(e.now, 5, -2)...))
	require.Equal(t, []storage.FirstReady{at(5, start), {Priority: -2}}, find(hints(later, 5, -2)...), "before the place, not at it")
	require.Equal(t, []storage.FirstReady{{Priority: 8}, at(5, start), {Priority: -2}}, find(append(hints(later, 8), hints(start, -2)...)...))
	require.Equal(t, []storage.FirstReady{{Priority: 5}, at(-2, later)}, find(hints(start, 5)...))
}

func firstReadyLease(t *testing.T, e *env) {
	start := e.now
	e.one(t)
	e.advance(t, time.Second)
	c := e.claimOneAs(t, "A", time.Minute)
	below := hints(e.now, 0)
	e.advanceTo(t, c.Message.LeaseEnd.Add(-e.tick))
	require.Equal(t, []storage.FirstReady{{}}, e.firstReady(t, below...), "one tick earlier")
	e.advanceTo(t, c.Message.LeaseEnd)
	got := e.firstReady(t, below...)
	require.Len(t, got, 1)
	require.True(t, got[0].Found)
	sameTime(t, start, got[0].ReadyTime, "where it stands")
}

func firstReadyNothing(t *testing.T, e *env) {
	e.many(t, 3)
	e.one(t, maxAttempts(1))
	e.one(t, expires(e.now.Add(time.Second)))
	cs := e.claimN(t, 5)
	require.Len(t, cs, 5)
	require.Equal(t, storage.StateProcessing, e.cancel(t, cs[0].Message.Ref))
	e.complete(t, cs[1])
	e.renew(t, storage.Renewal{Ref: cs[2].Message.Ref, Token: cs[2].Token, Lease: time.Hour, MaxLease: maxLease})
	e.one(t, delay(time.Hour))
	e.advance(t, time.Minute)
	require.Equal(t, []storage.FirstReady{{}}, e.firstReady(t), "cancelled, completed, renewed, at its end, expired, delayed")
}

func firstReadyHeldRow(t *testing.T, e *env) {
	ref := e.one(t)
	e.claimOne(t)
	e.advance(t, time.Second)
	release := e.in.Hold(t, ref, HoldExtend)
	defer release()
	res, err := e.store.FirstReady(t.Context(), storage.FirstReadyParams{QueueID: e.queue.ID, Below: hints(e.now, 0)})
	require.NoError(t, err)
	require.Len(t, res.Priorities, 1)
}

func dueBelow(t *testing.T, e *env) {
	ref := e.one(t, delay(time.Second))
	due := e.now.Add(time.Second)
	e.one(t, delay(2*time.Second))
	e.one(t, delay(time.Hour))
	e.advance(t, time.Minute)
	look := func(below time.Time) time.Time {
		res, err := e.store.FirstReady(t.Context(), storage.FirstReadyParams{QueueID: e.queue.ID, DueBelow: below})
		require.NoError(t, err)
		return res.Due
	}
	found := look(e.now)
	res := e.claimResult(t, storage.ClaimParams{
		Calls: []storage.ClaimCall{call("A", 1, time.Hour)}, ScanFrom: hints(e.now, 0), DueFrom: e.now,
	})
	if len(res.Calls[0].Messages) == 1 {
		require.Equal(t, ref, res.Calls[0].Messages[0].Message.Ref, "a backend may look at all of them")
		return
	}
	sameTime(t, due, found, "the first of those that are hidden")
	require.Zero(t, look(due), "before the time, not at it")
	require.Equal(t, ref, e.claimOne(t).Message.Ref)
}

func claimDueEnd(t *testing.T, e *env) {
	e.many(t, 3, delay(time.Second))
	e.advance(t, time.Minute)
	claim := func(from time.Time) storage.ClaimResult {
		return e.claimResult(t, storage.ClaimParams{Calls: []storage.ClaimCall{call("A", 1, time.Hour)}, DueFrom: from})
	}
	_, err := e.store.SetPaused(t.Context(), e.queue.Name, true)
	require.NoError(t, err)
	require.False(t, claim(time.Time{}).DueEnd, "a paused queue was not looked at")
	_, err = e.store.SetPaused(t.Context(), e.queue.Name, false)
	require.NoError(t, err)
	var from time.Time
	for range 3 {
		res := claim(from)
		require.Len(t, res.Calls[0].Messages, 1)
		if res.DueEnd {
			from = e.now
		}
		e.advance(t, time.Second)
	}
	e.many(t, 300, delay(time.Second))
	e.advance(t, time.Minute)
	for n := range 300 {
		res := claim(from)
		require.Len(t, res.Calls[0].Messages, 1, "%d", n)
		if res.DueEnd {
			from = e.now
		}
	}
	e.claimNothing(t)
}

// after is the place behind a message.
func after(m storage.Message) storage.ScanHint {
	return storage.ScanHint{Priority: m.Priority, ReadyTime: m.ReadyTime, Position: m.Ref.Position + 1}
}

// claimGoesOn: from the place behind the last message on, each claim finds the next one,
// also where many have the same ready time.
func claimGoesOn(t *testing.T, e *env) {
	var want []storage.Ref
	for range 3 {
		want = append(want, e.many(t, 20)...)
		e.advance(t, time.Second)
	}
	var from []storage.ScanHint
	var got []storage.Ref
	for range 20 {
		res := e.claimResult(t, storage.ClaimParams{Calls: []storage.ClaimCall{call("A", 3, time.Hour)}, ScanFrom: from})
		messages := res.Calls[0].Messages
		require.Len(t, messages, 3)
		got = append(got, refsOf(messages)...)
		from = []storage.ScanHint{after(messages[2].Message)}
	}
	require.Equal(t, want, got)
	e.claimNothing(t)
}

func claimEnd(t *testing.T, e *env) {
	look := func(n int, scan ...storage.ScanHint) storage.ClaimResult {
		return e.claimResult(t, storage.ClaimParams{Calls: []storage.ClaimCall{call("A", n, time.Hour)}, ScanFrom: scan})
	}
	require.True(t, look(1).End, "an empty queue")
	e.many(t, 5)
	e.advance(t, time.Second)
	require.False(t, look(2).End, "three are left")
	require.True(t, look(10).End, "all of them")
	require.True(t, look(1).End)
	e.one(t)
	e.advance(t, time.Second)
	require.True(t, look(2, hints(e.now, 0)...).End, "none is left from the hint on")
	e.one(t, priority(1))
	_, err := e.store.SetPaused(t.Context(), e.queue.Name, true)
	require.NoError(t, err)
	require.False(t, look(1).End, "a paused queue was not looked at")
	_, err = e.store.SetPaused(t.Context(), e.queue.Name, false)
	require.NoError(t, err)
	e.claimN(t, 10)
	e.many(t, 3)
	e.many(t, 3, delay(time.Second))
	e.advance(t, time.Minute)
	require.False(t, look(4).End, "delayed ones became ready and were left")
	require.True(t, look(10).End)
	res := look(1)
	require.True(t, res.End)
	require.False(t, res.More)
}

func claimEndRepeat(t *testing.T, e *env) {
	e.many(t, 2)
	e.claimWithID(t, "A", claimID(1), 1)
	res := e.claimResult(t, storage.ClaimParams{Calls: []storage.ClaimCall{
		{Max: 5, Lease: lease, WorkerID: "A", ClaimID: claimID(1)},
	}})
	require.Equal(t, storage.ClaimReplayed, res.Calls[0].Status)
	require.False(t, res.End)
}

func claimEndLimited(t *testing.T, e *env) {
	e = e.limited(t, 2, 0)
	e.many(t, 3)
	e.advance(t, time.Second)
	cs, res := e.claimLimited(t, 5, 2, storage.LimitInFlight)
	require.False(t, res.End, "it left one")
	_, res = e.claimLimited(t, 5, 0, storage.LimitInFlight)
	require.False(t, res.End)
	e.complete(t, cs[0])
	e.complete(t, cs[1])
	_, res = e.claimLimited(t, 5, 1, storage.LimitNone)
	require.True(t, res.End, "that was the last")
}
