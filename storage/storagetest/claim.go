package storagetest

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// claimRules check which messages a claim takes, and what it writes.
func claimRules() []rule {
	return []rule{
		{name: "C2_ready_at_ready_time_not_one_tick_earlier", clocks: settable, run: claimAtReadyTime},
		{name: "C2_retried_and_released_messages_are_ready_at_their_time", clocks: settable, run: claimAtNextReadyTime},
		{name: "C3_reclaimable_at_lease_end_not_one_tick_earlier", clocks: settable, run: claimAtLeaseEnd},
		{name: "C3_a_renewed_lease_is_reclaimable_at_its_new_end", clocks: settable, run: claimAtRenewedLeaseEnd},
		{name: "C4_own_token_for_each_row_and_a_new_one_on_every_claim", clocks: settable, run: claimTokens},
		{name: "C5_lease_end_is_storage_clock_plus_lease_for_each_call", clocks: settable, run: claimLeaseEnd},
		{name: "C6_never_a_finished_leased_or_other_queues_row", clocks: bothClocks, run: claimOnlyReady},
		{name: "C6_a_paused_queue_yields_nothing", clocks: bothClocks, run: claimPaused},
		{name: "C7_C19_never_more_rows_than_asked_for", clocks: bothClocks, run: claimAtMost},
		{name: "C10_a_claim_that_fails_changes_nothing", clocks: bothClocks, run: claimFails},
		{name: "C11_an_empty_claim_writes_nothing", clocks: settable, run: claimEmpty},
		{name: "C12_the_same_messages_with_and_without_a_scan_hint", clocks: settable, run: claimWithHint},
		{name: "C12_a_hint_hides_only_what_lies_below_it", clocks: settable, run: claimAboveHint},
		{name: "C13_rows_are_cut_by_payload_bytes_before_they_are_leased", clocks: settable, run: claimPayloadBytes},
		{name: "C13_rows_are_cut_by_wire_bytes_before_they_are_leased", clocks: settable, run: claimWireBytes},
		{name: "C13_one_message_is_always_allowed", clocks: settable, run: claimOneAllowed},
		{name: "C18_a_claim_skips_an_expired_last_attempt", clocks: settable, run: claimSkipsLastAttempt},
		{name: "the_claimed_message_has_every_field", clocks: settable, run: claimedFields},
		{name: "the_answer_tells_the_next_ready_time", clocks: settable, run: claimNextReady},
		{name: "the_answer_tells_that_more_is_ready", clocks: settable, run: claimMore},
	}
}

func claimAtReadyTime(t *testing.T, e *env) {
	byDelay := e.one(t, delay(5*time.Second))
	ready := e.now.Add(5 * time.Second)
	byTime := e.one(t, func(m *storage.NewMessage) { m.AvailableTime = ready })
	e.claimNothing(t)
	e.advanceTo(t, ready.Add(-e.tick))
	e.claimNothing(t)
	e.advanceTo(t, ready)
	require.Equal(t, []storage.Ref{byDelay, byTime}, refsOf(e.claimN(t, 10)))
}

func claimAtNextReadyTime(t *testing.T, e *env) {
	for _, a := range []storage.Action{storage.ActionRetry, storage.ActionRelease} {
		ref := e.one(t)
		c := e.claimOne(t)
		s := settlement(c, a)
		s.HasDelay, s.Delay = true, 4*time.Second
		got := e.settle(t, s)[0]
		require.Equal(t, storage.ItemApplied, got.Status)
		ready := e.now.Add(4 * time.Second)
		sameTime(t, ready, got.AvailableTime, "the next ready time")
		e.claimNothing(t)
		e.advanceTo(t, ready.Add(-e.tick))
		e.claimNothing(t)
		e.advanceTo(t, ready)
		again := e.claimOne(t)
		require.Equal(t, ref, again.Message.Ref)
		require.NotEqual(t, c.Token, again.Token)
		e.complete(t, again)
	}
}

func claimAtLeaseEnd(t *testing.T, e *env) {
	refs := e.many(t, 3)
	first := e.claimAs(t, "A", 3, 10*time.Second)
	require.Len(t, first, 3)
	e.advance(t, 10*time.Second-e.tick)
	e.claimNothing(t)
	e.advance(t, e.tick)
	second := e.claimAs(t, "B", 10, 10*time.Second)
	require.ElementsMatch(t, refs, refsOf(second))
	for _, c := range second {
		require.EqualValues(t, 2, c.Message.Attempt)
	}
}

func claimAtRenewedLeaseEnd(t *testing.T, e *env) {
	ref := e.one(t)
	c := e.claimOneAs(t, "A", 10*time.Second)
	e.advance(t, 9*time.Second)
	require.Equal(t, storage.ItemApplied, e.renew(t, renewal(c, 10*time.Second))[0].Status)
	e.advance(t, 10*time.Second-e.tick)
	e.claimNothing(t)
	e.advance(t, e.tick)
	require.Equal(t, []storage.Ref{ref}, refsOf(e.claimN(t, 10)))
}

func claimTokens(t *testing.T, e *env) {
	const n = 40
	e.many(t, n)
	seen := map[storage.Token]bool{}
	for round := range 3 {
		got := e.claimN(t, n)
		require.Len(t, got, n)
		for _, c := range got {
			require.False(t, seen[c.Token], "round %d: a token never seen before", round)
			seen[c.Token] = true
			require.EqualValues(t, round+1, c.Message.Attempt)
		}
		e.advance(t, lease)
	}
	// A counter or a time in the token would be guessed, and repeated after a failover.
	firsts := map[byte]bool{}
	lasts := map[byte]bool{}
	for token := range seen {
		firsts[token[0]], lasts[token[15]] = true, true
	}
	require.Greater(t, len(firsts), n/2, "the tokens are random in their first byte")
	require.Greater(t, len(lasts), n/2, "the tokens are random in their last byte")
}

func claimLeaseEnd(t *testing.T, e *env) {
	e.many(t, 3)
	leases := []time.Duration{time.Second, 90 * time.Minute, 1500 * time.Millisecond}
	var calls []storage.ClaimCall
	for i, d := range leases {
		calls = append(calls, call(string(rune('A'+i)), 1, d))
	}
	// checkClaim compares each lease end and worker with its call.
	res := e.claimResult(t, storage.ClaimParams{Calls: calls})
	for i, out := range res.Calls {
		require.Len(t, out.Messages, 1)
		m := e.get(t, out.Messages[0].Message.Ref)
		sameTime(t, e.now.Add(leases[i]), m.LeaseEnd, "the stored lease end")
		require.Equal(t, calls[i].WorkerID, m.WorkerID)
	}
}

func claimOnlyReady(t *testing.T, e *env) {
	other := e.on(e.newQueue(t, settings()))
	foreign := other.one(t)
	e.many(t, 3)
	cs := e.claimAs(t, "A", 3, time.Hour)
	require.Len(t, cs, 3)
	e.complete(t, cs[0])
	require.Equal(t, storage.ItemApplied, e.settle(t, settlement(cs[1], storage.ActionDeadLetter))[0].Status)
	e.one(t, delay(time.Hour))
	e.claimNothing(t)
	require.Equal(t, []storage.Ref{foreign}, refsOf(other.claimN(t, 10)))
}

func claimPaused(t *testing.T, e *env) {
	ref := e.one(t)
	_, err := e.store.SetPaused(t.Context(), e.queue.Name, true)
	require.NoError(t, err)
	e.claimNothing(t)
	_, err = e.store.SetPaused(t.Context(), e.queue.Name, false)
	require.NoError(t, err)
	c := e.claimOne(t)
	require.Equal(t, ref, c.Message.Ref)

	// A pause stops claims alone: what is leased is renewed and settled.
	_, err = e.store.SetPaused(t.Context(), e.queue.Name, true)
	require.NoError(t, err)
	require.Equal(t, storage.ItemApplied, e.renew(t, renewal(c, lease))[0].Status)
	e.complete(t, c)
	e.one(t)
	e.claimNothing(t)
}

func claimAtMost(t *testing.T, e *env) {
	e.many(t, 30)
	left := 30
	for _, n := range []int{1, 2, 5, 1, 13} {
		require.Len(t, e.claimAs(t, "A", n, time.Hour), n)
		left -= n
		stats, err := e.store.QueueStats(t.Context(), e.queue.ID)
		require.NoError(t, err)
		require.EqualValues(t, 30-left, stats.Leased, "C19: no row is leased that was not returned")
	}
	require.Len(t, e.claimAs(t, "A", 100, time.Hour), left)
}

func claimFails(t *testing.T, e *env) {
	refs := e.many(t, 3)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e.unchanged(t, func() {
		_, err := e.store.Claim(ctx, storage.ClaimParams{
			QueueID: e.queue.ID, Calls: []storage.ClaimCall{call("A", 3, time.Hour)},
		})
		require.ErrorIs(t, err, storage.ErrUnavailable)
	})
	got := e.claimAs(t, "A", 3, time.Hour)
	require.Equal(t, refs, refsOf(got))
	for _, c := range got {
		require.EqualValues(t, 1, c.Message.Attempt)
	}
}

func claimEmpty(t *testing.T, e *env) {
	e.claimNothing(t)
	e.one(t, delay(time.Minute))
	c := e.claimAs(t, "A", 1, time.Hour)
	require.Empty(t, c)
	e.one(t)
	require.Len(t, e.claimAs(t, "A", 1, time.Hour), 1)
	e.claimNothing(t)
	e.unchanged(t, func() {
		res := e.claimResult(t, storage.ClaimParams{Calls: []storage.ClaimCall{
			{Max: 5, Lease: lease, WorkerID: "A", ClaimID: claimID(1)},
			{Max: 5, Lease: lease, WorkerID: "B"},
		}})
		for _, out := range res.Calls {
			require.Equal(t, storage.ClaimServed, out.Status)
			require.Empty(t, out.Messages)
		}
		require.False(t, res.More, "nothing to come back for")
	})
}

// hints names, for each priority, a ready time a little before the oldest.
func hints(at time.Time, priorities ...int32) []storage.ScanHint {
	var hs []storage.ScanHint
	for _, p := range priorities {
		hs = append(hs, storage.ScanHint{Priority: p, ReadyTime: at})
	}
	return hs
}

func claimWithHint(t *testing.T, e *env) {
	fill := func(e *env) []storage.Ref {
		var refs []storage.Ref
		for i := range 30 {
			refs = append(refs, e.one(t, priority(int32(i%3)-1)))
			e.advance(t, time.Millisecond)
		}
		return refs
	}
	start := e.now
	other := e.on(e.newQueue(t, settings()))
	refs := fill(e)
	others := fill(other)
	place := map[storage.Ref]int{}
	for i := range refs {
		place[refs[i]], place[others[i]] = i, i
	}
	e.advance(t, time.Second)
	for name, scan := range map[string][]storage.ScanHint{
		"all priorities":   hints(start, -1, 0, 1),
		"one of them":      hints(start, 0),
		"one without rows": hints(start, 7),
	} {
		plain := e.claimResult(t, storage.ClaimParams{Calls: []storage.ClaimCall{call("A", 10, 5*time.Second)}})
		hinted := other.claimResult(t, storage.ClaimParams{
			Calls: []storage.ClaimCall{call("A", 10, 5*time.Second)}, ScanFrom: scan,
		})
		require.Len(t, plain.Calls[0].Messages, 10, name)
		require.Len(t, hinted.Calls[0].Messages, 10, name)
		for i := range plain.Calls[0].Messages {
			require.Equal(t,
				place[plain.Calls[0].Messages[i].Message.Ref],
				place[hinted.Calls[0].Messages[i].Message.Ref], "%s: row %d", name, i)
		}
	}
}

func claimAboveHint(t *testing.T, e *env) {
	below := e.one(t)
	highBelow := e.one(t, priority(5))
	e.advance(t, time.Minute)
	mark := e.now
	above := e.one(t)
	highAbove := e.one(t, priority(5))
	e.advance(t, time.Second)
	got := e.claimResult(t, storage.ClaimParams{
		Calls: []storage.ClaimCall{call("A", 10, time.Hour)}, ScanFrom: hints(mark, 0),
	})
	refs := refsOf(got.Calls[0].Messages)
	// The hint speaks of priority 0 alone, and is only a hint: a backend may ignore it.
	require.Subset(t, refs, []storage.Ref{highBelow, highAbove, above})
	require.Subset(t, []storage.Ref{highBelow, highAbove, below, above}, refs)
	if len(refs) == 3 {
		require.Equal(t, []storage.Ref{highBelow, highAbove, above}, refs)
		require.Equal(t, []storage.Ref{below}, refsOf(e.claimN(t, 10)), "without the hint it is there")
	}
}

func claimPayloadBytes(t *testing.T, e *env) {
	var refs []storage.Ref
	for _, n := range []int{100, 100, 600, 100, 10} {
		refs = append(refs, e.one(t, payload(bytes.Repeat([]byte{'x'}, n))))
		e.advance(t, e.tick)
	}
	claim := func(limit int64) storage.ClaimResult {
		return e.claimResult(t, storage.ClaimParams{Calls: []storage.ClaimCall{
			{Max: 10, Lease: time.Hour, WorkerID: "A", MaxPayloadBytes: limit},
		}})
	}
	rows := map[storage.Ref]map[string]string{}
	for _, ref := range refs {
		rows[ref] = e.liveRow(t, ref)
	}
	untouched := func(from int) {
		for _, ref := range refs[from:] {
			require.Equal(t, rows[ref], e.liveRow(t, ref), "a row that was cut is not touched")
		}
	}
	// A cut never takes a later row in the place of one that does not fit (C9).
	res := claim(200)
	require.Equal(t, refs[:2], refsOf(res.Calls[0].Messages), "exactly the limit fits")
	require.True(t, res.More)
	untouched(2)
	res = claim(699)
	require.Equal(t, refs[2:3], refsOf(res.Calls[0].Messages), "one byte too few for the next")
	untouched(3)
	res = claim(0)
	require.Equal(t, refs[3:], refsOf(res.Calls[0].Messages), "0 is no bound")
}

func claimWireBytes(t *testing.T, e *env) {
	var refs []storage.Ref
	for range 6 {
		refs = append(refs, e.one(t, func(m *storage.NewMessage) { m.WireBytes = 1000 }))
		e.advance(t, e.tick)
	}
	row := e.liveRow(t, refs[3])
	res := e.claimResult(t, storage.ClaimParams{
		Calls:        []storage.ClaimCall{call("A", 2, time.Hour), call("B", 10, time.Hour)},
		MaxWireBytes: 3999,
	})
	require.Equal(t, refs[:2], refsOf(res.Calls[0].Messages))
	require.Equal(t, refs[2:3], refsOf(res.Calls[1].Messages), "the bound is over all calls")
	require.True(t, res.More)
	require.Equal(t, row, e.liveRow(t, refs[3]), "a row that was cut is not touched")
	res = e.claimResult(t, storage.ClaimParams{
		Calls: []storage.ClaimCall{call("A", 10, time.Hour)}, MaxWireBytes: 3000,
	})
	require.Equal(t, refs[3:], refsOf(res.Calls[0].Messages), "exactly the bound fits")
}

func claimOneAllowed(t *testing.T, e *env) {
	big := e.one(t, payload(bytes.Repeat([]byte{'x'}, 5000)))
	e.advance(t, e.tick)
	second := e.one(t, payload(bytes.Repeat([]byte{'x'}, 5000)))
	res := e.claimResult(t, storage.ClaimParams{
		Calls: []storage.ClaimCall{{Max: 5, Lease: time.Hour, WorkerID: "A", MaxPayloadBytes: 1}},
	})
	require.Equal(t, []storage.Ref{big}, refsOf(res.Calls[0].Messages))
	res = e.claimResult(t, storage.ClaimParams{
		Calls: []storage.ClaimCall{call("A", 5, time.Hour)}, MaxWireBytes: 1,
	})
	require.Equal(t, []storage.Ref{second}, refsOf(res.Calls[0].Messages))
}

func claimSkipsLastAttempt(t *testing.T, e *env) {
	last := e.one(t, maxAttempts(1))
	e.claimOneAs(t, "A", 10*time.Second)
	again := e.one(t, maxAttempts(2))
	e.claimOneAs(t, "A", 10*time.Second)
	e.advance(t, time.Minute)
	row := e.liveRow(t, last)
	require.Equal(t, []storage.Ref{again}, refsOf(e.claimN(t, 10)), "an attempt is left to this one alone")
	require.Equal(t, row, e.liveRow(t, last))
	e.advance(t, time.Minute)
	e.claimNothing(t)
}

func claimedFields(t *testing.T, e *env) {
	created := e.now
	ref := e.one(t, priority(-7), maxAttempts(9), keyed("key", "content"), delay(2*time.Second),
		func(m *storage.NewMessage) {
			m.ContentType = "application/json"
			m.Attributes = map[string]string{"traceparent": "00-1", "empty": ""}
			m.Payload = []byte(`{"n":1}`)
		})
	e.advance(t, 3*time.Second)
	c := e.claimOneAs(t, "worker-1", time.Minute)
	m := c.Message
	require.Equal(t, ref, m.Ref)
	require.Equal(t, "key", m.IdempotencyKey)
	require.Equal(t, []byte(`{"n":1}`), m.Payload)
	require.EqualValues(t, 7, m.PayloadBytes)
	require.Equal(t, "application/json", m.ContentType)
	require.Equal(t, map[string]string{"traceparent": "00-1", "empty": ""}, m.Attributes)
	require.EqualValues(t, -7, m.Priority)
	require.Equal(t, storage.StateProcessing, m.State)
	require.EqualValues(t, 1, m.Attempt)
	require.EqualValues(t, 9, m.MaxAttempts)
	sameTime(t, created, m.CreateTime, "create time")
	sameTime(t, created.Add(2*time.Second), m.ReadyTime, "ready time")
	require.Equal(t, "worker-1", m.WorkerID)
	sameTime(t, e.now.Add(time.Minute), m.LeaseEnd, "lease end")
	require.Equal(t, m, e.get(t, ref), "GetMessage tells the same")
}

func claimNextReady(t *testing.T, e *env) {
	look := func() storage.ClaimResult {
		return e.claimResult(t, storage.ClaimParams{Calls: []storage.ClaimCall{call("A", 1, time.Hour)}})
	}
	require.True(t, look().NextReady.IsZero(), "nothing is delayed")
	e.one(t, delay(time.Minute))
	e.one(t, delay(20*time.Second), priority(-3))
	e.on(e.newQueue(t, settings())).one(t, delay(time.Second))
	res := look()
	sameTime(t, e.now.Add(20*time.Second), res.NextReady, "the earliest of the queue")
	require.False(t, res.More)
	e.one(t)
	res = e.claimResult(t, storage.ClaimParams{Calls: []storage.ClaimCall{call("A", 2, time.Hour)}})
	require.Len(t, res.Calls[0].Messages, 1)
	require.True(t, res.End, "the one that was ready is taken")
	sameTime(t, e.now.Add(20*time.Second), res.NextReady, "told with the end of what is ready, too")
}

func claimMore(t *testing.T, e *env) {
	e.many(t, 5)
	res := e.claimResult(t, storage.ClaimParams{Calls: []storage.ClaimCall{call("A", 2, time.Hour)}})
	require.Len(t, res.Calls[0].Messages, 2)
	require.True(t, res.More, "three are left")
	require.Len(t, e.claimAs(t, "A", 10, time.Hour), 3)
}
