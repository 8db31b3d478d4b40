package storagetest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// settleRules check what an applied settlement does; what is refused is in the
// fence rules, what is repeated in the repeat rules.
func settleRules() []rule {
	return []rule{
		{name: "S3_complete_finishes_and_keeps_the_result", clocks: settable, run: settleComplete},
		{name: "S3_retry_with_a_delay", clocks: settable, run: settleRetry},
		{name: "S3_retry_with_delay_zero_is_ready_now", clocks: settable, run: settleRetryNow},
		{name: "S3_retry_without_a_delay_takes_the_policy_of_the_queue", clocks: settable, run: settleRetryPolicy},
		{name: "S3_jitter_stays_inside_the_policy", clocks: settable, run: settleJitter},
		{name: "S3_the_policy_is_that_of_now", clocks: settable, run: settlePolicyUpdated},
		{name: "S3_the_policy_at_the_edge_of_its_numbers", clocks: settable, run: settlePolicyLarge},
		{name: "S3_dead_letter_keeps_reason_and_error", clocks: settable, run: settleDead},
		{name: "S3_release_refunds_the_attempt", clocks: settable, run: settleRelease},
		{name: "S3_an_applied_settlement_one_tick_before_the_lease_end", clocks: settable, run: settleJustInTime},
		{name: "S4_retry_without_an_attempt_left_ends_dead", clocks: settable, run: settleExhausted},
		{name: "S4_release_and_complete_on_the_last_attempt", clocks: settable, run: settleLastAttempt},
		{name: "S4_no_limit_of_attempts", clocks: settable, run: settleNoLimit},
		{name: "S9_an_error_of_2000_bytes_round_trips", clocks: settable, run: settleLongError},
		{name: "S11_one_stale_one_unknown_one_zero_among_100_leave_97_outcomes", clocks: bothClocks, run: settleBatch},
		{name: "S11_all_actions_and_many_queues_in_one_batch", clocks: bothClocks, run: settleMixed},
		{name: "S7_the_same_message_in_several_items_is_applied_once", clocks: bothClocks, run: settleSameTwice},
	}
}

func settleComplete(t *testing.T, e *env) {
	ref := e.one(t, payload([]byte("work")), priority(2))
	c := e.claimOneAs(t, "A", time.Minute)
	e.advance(t, time.Second)
	s := settlement(c, storage.ActionComplete)
	s.Result = []byte{0, 1, 255}
	got := e.settle(t, s)[0]
	require.Equal(t, storage.ItemApplied, got.Status)
	require.Equal(t, storage.OutcomeCompleted, got.Outcome)
	require.Equal(t, storage.DeadReasonNone, got.DeadReason)
	sameTime(t, e.now, got.SettleTime, "settle time")
	require.True(t, got.AvailableTime.IsZero(), "a finished message has no ready time ahead")
	m := e.get(t, ref)
	require.Equal(t, storage.StateCompleted, m.State)
	require.Equal(t, []byte{0, 1, 255}, m.Result)
	require.Equal(t, []byte("work"), m.Payload)
	sameTime(t, e.now, m.FinishTime, "finish time")
	require.EqualValues(t, 1, m.Attempt)
	require.EqualValues(t, 2, m.Priority)
	require.Equal(t, "A", m.WorkerID)
	require.Nil(t, e.in.Row(t, ref))
	e.advance(t, maxLease)
	e.claimNothing(t)
}

func settleRetry(t *testing.T, e *env) {
	ref := e.one(t)
	c := e.claimOneAs(t, "A", time.Minute)
	e.advance(t, time.Second)
	s := settlement(c, storage.ActionRetry)
	s.Delay, s.Error = 90*time.Second, "downstream is away"
	got := e.settle(t, s)[0]
	require.Equal(t, storage.ItemApplied, got.Status)
	require.Equal(t, storage.OutcomeRetried, got.Outcome)
	sameTime(t, e.now, got.SettleTime, "settle time")
	sameTime(t, e.now.Add(90*time.Second), got.AvailableTime, "next ready time")
	m := e.get(t, ref)
	require.Equal(t, storage.StatePending, m.State)
	require.EqualValues(t, 1, m.Attempt, "the attempt stays counted")
	require.Equal(t, "downstream is away", m.LastError)
	sameTime(t, e.now.Add(90*time.Second), m.ReadyTime, "ready time of the row")
	require.True(t, m.FinishTime.IsZero())
	e.advance(t, 90*time.Second)
	again := e.claimOneAs(t, "B", time.Minute)
	require.EqualValues(t, 2, again.Message.Attempt)
	require.Equal(t, "downstream is away", again.Message.LastError, "the next worker sees the error")
}

func settleRetryNow(t *testing.T, e *env) {
	ref := e.one(t)
	for i := range 3 {
		c := e.claimOne(t)
		require.EqualValues(t, i+1, c.Message.Attempt)
		s := settlement(c, storage.ActionRetry)
		s.Delay = 0
		got := e.settle(t, s)[0]
		require.Equal(t, storage.OutcomeRetried, got.Outcome)
		sameTime(t, e.now, got.AvailableTime, "ready now")
	}
	require.Equal(t, ref, e.claimOne(t).Message.Ref)
}

// retryByPolicy claims the message and retries it without a delay; it returns the
// delay that the policy gave.
func (e *env) retryByPolicy(t *testing.T, attempt int) time.Duration {
	t.Helper()
	c := e.claimOne(t)
	require.EqualValues(t, attempt, c.Message.Attempt)
	s := settlement(c, storage.ActionRetry)
	s.HasDelay, s.Delay = false, 0
	got := e.settle(t, s)[0]
	require.Equal(t, storage.ItemApplied, got.Status)
	require.Equal(t, storage.OutcomeRetried, got.Outcome)
	sameTime(t, got.AvailableTime, e.get(t, c.Message.Ref).ReadyTime, "ready time of the row")
	d := got.AvailableTime.Sub(e.now)
	if d > 0 {
		e.advance(t, d-e.tick)
		require.Empty(t, e.claimN(t, 1), "not one tick earlier")
		e.advance(t, e.tick)
	}
	return d
}

func settleRetryPolicy(t *testing.T, e *env) {
	s := settings()
	s.Retry = storage.RetryPolicy{Min: 2 * time.Second, Max: 30 * time.Second, Multiplier: 3, Jitter: 0}
	e = e.on(e.newQueue(t, s))
	e.one(t)
	for i, want := range []int{2, 6, 18, 30, 30, 30} {
		require.Equal(t, time.Duration(want)*time.Second, e.retryByPolicy(t, i+1), "attempt %d", i+1)
	}
	s.Retry = storage.RetryPolicy{Min: 5 * time.Second, Max: time.Minute, Multiplier: 1, Jitter: 0}
	e = e.on(e.newQueue(t, s))
	e.one(t)
	for i := range 3 {
		require.Equal(t, 5*time.Second, e.retryByPolicy(t, i+1))
	}
	s.Retry = storage.RetryPolicy{Min: 1000 * time.Millisecond, Max: time.Hour, Multiplier: 1.5, Jitter: 0}
	e = e.on(e.newQueue(t, s))
	e.one(t)
	for i, want := range []int{1000, 1500, 2250} {
		require.InDelta(t, float64(time.Duration(want)*time.Millisecond), float64(e.retryByPolicy(t, i+1)), float64(time.Millisecond))
	}
}

func settleJitter(t *testing.T, e *env) {
	s := settings()
	s.Retry = storage.RetryPolicy{Min: 10 * time.Second, Max: 20 * time.Second, Multiplier: 4, Jitter: 0.5}
	e = e.on(e.newQueue(t, s))
	const n = 60
	e.many(t, n)
	for attempt, most := range []time.Duration{10 * time.Second, 20 * time.Second} {
		cs := e.claimN(t, n)
		require.Len(t, cs, n)
		items := make([]storage.Settlement, n)
		for i, c := range cs {
			items[i] = storage.Settlement{Ref: c.Message.Ref, Token: c.Token, Action: storage.ActionRetry}
		}
		seen := map[time.Duration]bool{}
		low, high := most, time.Duration(0)
		for _, got := range e.settle(t, items...) {
			d := got.AvailableTime.Sub(e.now)
			require.LessOrEqual(t, d, most, "never above the delay, so never above Max")
			require.GreaterOrEqual(t, d, most/2-e.tick)
			seen[d], low, high = true, min(low, d), max(high, d)
		}
		require.Greater(t, len(seen), n/4, "attempt %d: each item draws its own", attempt+1)
		require.Greater(t, high-low, most/8, "over the whole range")
		e.advance(t, most)
	}
}

func settlePolicyUpdated(t *testing.T, e *env) {
	e.one(t)
	require.Equal(t, time.Second, e.retryByPolicy(t, 1))
	s := settings()
	s.Retry.Min, s.Retry.Multiplier = 11*time.Second, 1
	_, err := e.store.UpdateQueue(t.Context(), e.queue.Name, s, 0)
	require.NoError(t, err)
	require.Equal(t, 11*time.Second, e.retryByPolicy(t, 2))
}

func settlePolicyLarge(t *testing.T, e *env) {
	// 10 to the power of 399 is no float64: the cap must hold without an overflow.
	s := settings()
	s.MaxAttempts = 0
	s.Retry = storage.RetryPolicy{Min: time.Second, Max: 2 * time.Second, Multiplier: 1e10, Jitter: 0}
	e = e.on(e.newQueue(t, s))
	e.one(t)
	for i := range 40 {
		want := 2 * time.Second
		if i == 0 {
			want = time.Second
		}
		c := e.claimOne(t)
		got := e.settle(t, storage.Settlement{Ref: c.Message.Ref, Token: c.Token, Action: storage.ActionRetry})[0]
		require.Equal(t, storage.ItemApplied, got.Status, "attempt %d", i+1)
		require.Equal(t, want, got.AvailableTime.Sub(e.now), "attempt %d", i+1)
		e.advance(t, want)
	}
}

func settleDead(t *testing.T, e *env) {
	ref := e.one(t, payload([]byte("bad")))
	c := e.claimOneAs(t, "A", time.Minute)
	e.advance(t, time.Second)
	s := settlement(c, storage.ActionDeadLetter)
	s.Error, s.ReasonCode = "field x is missing", "MALFORMED"
	got := e.settle(t, s)[0]
	require.Equal(t, storage.ItemApplied, got.Status)
	require.Equal(t, storage.OutcomeDead, got.Outcome)
	require.Equal(t, storage.DeadReasonRejected, got.DeadReason)
	sameTime(t, e.now, got.SettleTime, "settle time")
	m := e.get(t, ref)
	require.Equal(t, storage.StateDead, m.State)
	require.Equal(t, storage.DeadReasonRejected, m.DeadReason)
	require.Equal(t, "MALFORMED", m.ReasonCode)
	require.Equal(t, "field x is missing", m.LastError)
	require.Equal(t, []byte("bad"), m.Payload)
	require.EqualValues(t, 1, m.Attempt)
	sameTime(t, e.now, m.FinishTime, "finish time")
	e.advance(t, maxLease)
	e.claimNothing(t)
}

func settleRelease(t *testing.T, e *env) {
	ref := e.one(t, maxAttempts(2))
	for i := range 5 {
		c := e.claimOne(t)
		require.EqualValues(t, 1, c.Message.Attempt, "the next delivery has the same number")
		s := settlement(c, storage.ActionRelease)
		s.Delay = time.Duration(i) * time.Second
		got := e.settle(t, s)[0]
		require.Equal(t, storage.ItemApplied, got.Status)
		require.Equal(t, storage.OutcomeReleased, got.Outcome)
		sameTime(t, e.now.Add(s.Delay), got.AvailableTime, "next ready time")
		m := e.get(t, ref)
		require.Zero(t, m.Attempt)
		require.Equal(t, storage.StatePending, m.State)
		require.Empty(t, m.LastError)
		sameTime(t, e.now.Add(s.Delay), m.ReadyTime, "ready time of the row")
		e.advance(t, s.Delay)
	}
}

func settleJustInTime(t *testing.T, e *env) {
	for _, a := range actions {
		e.one(t)
		c := e.claimOneAs(t, "A", 10*time.Second)
		e.advance(t, 10*time.Second-e.tick)
		got := e.settle(t, settlement(c, a.action))[0]
		require.Equal(t, storage.ItemApplied, got.Status, a.name)
		require.Equal(t, a.outcome, got.Outcome, a.name)
		e.advance(t, time.Minute)
		for _, left := range e.claimN(t, 10) {
			e.complete(t, left)
		}
	}
}

func settleExhausted(t *testing.T, e *env) {
	ref := e.one(t, maxAttempts(2))
	s := settlement(e.claimOne(t), storage.ActionRetry)
	s.Delay = 0
	require.Equal(t, storage.OutcomeRetried, e.settle(t, s)[0].Outcome, "max_attempts = n allows n deliveries")
	s = settlement(e.claimOne(t), storage.ActionRetry)
	s.Error, s.Delay = "still away", time.Hour
	got := e.settle(t, s)[0]
	require.Equal(t, storage.ItemApplied, got.Status)
	require.Equal(t, storage.OutcomeDead, got.Outcome)
	require.Equal(t, storage.DeadReasonAttemptsExhausted, got.DeadReason)
	sameTime(t, e.now, got.SettleTime, "settle time")
	require.True(t, got.AvailableTime.IsZero(), "a dead message has no ready time ahead")
	m := e.get(t, ref)
	require.Equal(t, storage.StateDead, m.State)
	require.Equal(t, storage.DeadReasonAttemptsExhausted, m.DeadReason)
	require.Equal(t, "still away", m.LastError)
	require.EqualValues(t, 2, m.Attempt)
	require.Nil(t, e.in.Row(t, ref))
	e.advance(t, 2*time.Hour)
	e.claimNothing(t)

	// The limit of the queue counts where the message has none of its own; it is that of
	// the enqueue.
	q := settings()
	q.MaxAttempts = 1
	other := e.on(e.newQueue(t, q))
	ref = other.one(t)
	require.EqualValues(t, 1, other.get(t, ref).MaxAttempts)
	q.MaxAttempts = 5
	_, err := e.store.UpdateQueue(t.Context(), other.queue.Name, q, 0)
	require.NoError(t, err)
	got = other.settle(t, storage.Settlement{Ref: ref, Token: other.claimOne(t).Token, Action: storage.ActionRetry})[0]
	require.Equal(t, storage.OutcomeDead, got.Outcome)
}

func settleLastAttempt(t *testing.T, e *env) {
	ref := e.one(t, maxAttempts(1))
	s := settlement(e.claimOne(t), storage.ActionRelease)
	s.Delay = 0
	require.Equal(t, storage.OutcomeReleased, e.settle(t, s)[0].Outcome)
	c := e.claimOne(t)
	require.Equal(t, ref, c.Message.Ref)
	require.EqualValues(t, 1, c.Message.Attempt)
	e.complete(t, c)
}

func settleNoLimit(t *testing.T, e *env) {
	q := settings()
	q.MaxAttempts = 0
	e = e.on(e.newQueue(t, q))
	ref := e.one(t)
	require.Zero(t, e.get(t, ref).MaxAttempts)
	for i := range 30 {
		c := e.claimOne(t)
		require.EqualValues(t, i+1, c.Message.Attempt)
		s := settlement(c, storage.ActionRetry)
		s.Delay = 0
		require.Equal(t, storage.OutcomeRetried, e.settle(t, s)[0].Outcome)
	}
}

func settleLongError(t *testing.T, e *env) {
	texts := []string{strings.Repeat("x", 2000), strings.Repeat("é", 1000), strings.Repeat("😀", 500)}
	for _, text := range texts {
		for _, a := range []storage.Action{storage.ActionRetry, storage.ActionDeadLetter} {
			ref := e.one(t)
			s := settlement(e.claimOne(t), a)
			s.Error = text
			require.Equal(t, storage.ItemApplied, e.settle(t, s)[0].Status)
			require.Equal(t, text, e.get(t, ref).LastError)
		}
	}
}

func settleBatch(t *testing.T, e *env) {
	e.many(t, 100)
	cs := e.claimAs(t, "A", 100, time.Hour)
	require.Len(t, cs, 100)
	items := make([]storage.Settlement, 100)
	for i, c := range cs {
		items[i] = settlement(c, storage.ActionComplete)
	}
	items[3].Token = storage.Token{9}
	items[57].Ref.Position = 1 << 61
	items[98].Token = storage.Token{}
	want := map[int]storage.ItemStatus{3: storage.ItemLost, 57: storage.ItemNotFound, 98: storage.ItemLost}
	rows := map[int]map[string]string{}
	for i := range want {
		rows[i] = e.liveRow(t, cs[i].Message.Ref)
	}
	applied := 0
	for i, got := range e.settle(t, items...) {
		if status, ok := want[i]; ok {
			require.Equal(t, status, got.Status, "item %d", i)
			require.Equal(t, rows[i], e.liveRow(t, cs[i].Message.Ref), "item %d", i)
			continue
		}
		require.Equal(t, storage.ItemApplied, got.Status, "item %d", i)
		applied++
	}
	require.Equal(t, 97, applied)
	stats, err := e.store.QueueStats(t.Context(), e.queue.ID)
	require.NoError(t, err)
	require.EqualValues(t, 97, stats.Completed)
	require.EqualValues(t, 3, stats.Leased)
}

func settleMixed(t *testing.T, e *env) {
	other := e.on(e.newQueue(t, settings()))
	e.many(t, 4)
	other.many(t, 4)
	as, bs := e.claimN(t, 4), other.claimN(t, 4)
	var items []storage.Settlement
	for i, a := range actions {
		items = append(items, settlement(as[i], a.action), settlement(bs[3-i], a.action))
	}
	got := e.settle(t, items...)
	states := []storage.State{storage.StateCompleted, storage.StatePending, storage.StateDead, storage.StatePending}
	for i, a := range actions {
		for j := range 2 {
			item := got[2*i+j]
			require.Equal(t, storage.ItemApplied, item.Status, a.name)
			require.Equal(t, a.outcome, item.Outcome, a.name)
			m := e.get(t, items[2*i+j].Ref)
			require.Equal(t, states[i], m.State, a.name)
		}
	}
	sameTime(t, got[2].AvailableTime, e.get(t, as[1].Message.Ref).ReadyTime, "retry")
	sameTime(t, got[6].AvailableTime, e.get(t, as[3].Message.Ref).ReadyTime, "release")
}

func settleSameTwice(t *testing.T, e *env) {
	ref := e.one(t)
	c := e.claimOneAs(t, "A", time.Hour)
	complete := settlement(c, storage.ActionComplete)
	stale := complete
	stale.Token = storage.Token{5}
	statuses := map[storage.ItemStatus]int{}
	for _, got := range e.settle(t, complete, stale, complete, settlement(c, storage.ActionRetry), complete) {
		statuses[got.Status]++
	}
	// Which of them is applied is open; that one is, and that the others are told, is not.
	require.Equal(t, 1, statuses[storage.ItemApplied])
	require.Equal(t, 1, statuses[storage.ItemLost])
	require.Equal(t, 3, statuses[storage.ItemAlreadySettled]+statuses[storage.ItemSettled])
	m := e.get(t, ref)
	if m.State == storage.StateCompleted {
		require.Equal(t, 2, statuses[storage.ItemAlreadySettled])
	} else {
		require.Equal(t, storage.StatePending, m.State)
		require.Equal(t, 3, statuses[storage.ItemSettled])
	}
}
