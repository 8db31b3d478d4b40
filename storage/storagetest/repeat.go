package storagetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// repeatRules check S5, S6 and S12: what a token that was settled answers.
func repeatRules() []rule {
	var rules []rule
	for _, a := range actions {
		rules = append(rules,
			rule{
				name: "S5_" + a.name + "_repeated_answers_the_same_facts", clocks: settable,
				run: func(t *testing.T, e *env) { repeatSame(t, e, a.action, a.outcome) },
			},
			rule{
				name: "S5_" + a.name + "_repeated_after_others_had_the_message", clocks: settable,
				run: func(t *testing.T, e *env) { repeatLate(t, e, a.action, a.outcome) },
			},
			rule{
				name: "S12_renew_after_" + a.name, clocks: bothClocks,
				run: func(t *testing.T, e *env) { renewSettled(t, e, a.action, a.outcome) },
			})
		for _, b := range actions {
			if a.action == b.action {
				continue
			}
			rules = append(rules, rule{
				name: "S6_" + b.name + "_after_" + a.name + "_is_told_the_outcome", clocks: bothClocks,
				run: func(t *testing.T, e *env) { repeatOther(t, e, a.action, a.outcome, b.action) },
			})
		}
	}
	return append(rules,
		rule{name: "S5_a_retry_that_ended_dead_repeats_as_dead", clocks: settable, run: repeatExhausted},
		rule{name: "S5_a_retry_by_policy_repeats_its_drawn_delay", clocks: settable, run: repeatJitter},
		rule{name: "S5_the_repeat_through_another_store", clocks: bothClocks, run: repeatElsewhere},
		rule{name: "S5_each_token_of_a_message_has_its_own_history", clocks: settable, run: repeatHistory},
		rule{name: "S5_the_history_is_kept_10_minutes_at_least", clocks: settable, run: repeatKept},
		rule{name: "S5_a_batch_of_repeats_and_news", clocks: bothClocks, run: repeatBatch},
	)
}

// facts are what a repeat must answer again.
func facts(s storage.Settled) storage.Settled {
	s.Status, s.Duplicates = 0, nil
	s.SettleTime, s.AvailableTime = s.SettleTime.UTC(), s.AvailableTime.UTC()
	return s
}

func repeatSame(t *testing.T, e *env, a storage.Action, o storage.Outcome) {
	t.Helper()
	e.one(t)
	c := e.claimOne(t)
	s := settlement(c, a)
	first := e.settle(t, s)[0]
	require.Equal(t, storage.ItemApplied, first.Status)
	require.Equal(t, o, first.Outcome)
	e.advance(t, 2*time.Second)
	e.unchanged(t, func() {
		for range 3 {
			again := e.settle(t, s)[0]
			require.Equal(t, storage.ItemAlreadySettled, again.Status)
			require.Equal(t, facts(first), facts(again))
		}
	})
}

func repeatLate(t *testing.T, e *env, a storage.Action, o storage.Outcome) {
	t.Helper()
	e.one(t)
	c := e.claimOne(t)
	s := settlement(c, a)
	first := e.settle(t, s)[0]
	require.Equal(t, o, first.Outcome)
	e.advance(t, 10*time.Second)
	same := func(when string) {
		t.Helper()
		e.unchanged(t, func() {
			again := e.settle(t, s)[0]
			require.Equal(t, storage.ItemAlreadySettled, again.Status, when)
			require.Equal(t, facts(first), facts(again), when)
		})
	}
	same("later")
	if o == storage.OutcomeCompleted || o == storage.OutcomeDead {
		return
	}
	next := e.claimOneAs(t, "B", 10*time.Second)
	same("while B holds it")
	e.advance(t, 10*time.Second)
	same("after the lease of B")
	third := e.claimOneAs(t, "C", 10*time.Second)
	require.NotEqual(t, next.Token, third.Token)
	e.complete(t, third)
	same("after C completed it")
	require.Equal(t, storage.ItemLost, e.settle(t, settlement(next, storage.ActionComplete))[0].Status, "B never settled")
}

func renewSettled(t *testing.T, e *env, a storage.Action, o storage.Outcome) {
	t.Helper()
	e.one(t)
	c := e.claimOne(t)
	require.Equal(t, storage.ItemApplied, e.settle(t, settlement(c, a))[0].Status)
	e.unchanged(t, func() {
		got := e.renew(t, renewal(c, time.Hour))[0]
		require.Equal(t, storage.ItemSettled, got.Status)
		require.Equal(t, o, got.Outcome)
	})
}

func repeatOther(t *testing.T, e *env, a storage.Action, o storage.Outcome, b storage.Action) {
	t.Helper()
	e.one(t)
	c := e.claimOne(t)
	first := settlement(c, a)
	require.Equal(t, storage.ItemApplied, e.settle(t, first)[0].Status)
	e.unchanged(t, func() {
		got := e.settle(t, settlement(c, b))[0]
		require.Equal(t, storage.ItemSettled, got.Status)
		require.Equal(t, o, got.Outcome, "the recorded outcome")
	})
	require.Equal(t, storage.ItemAlreadySettled, e.settle(t, first)[0].Status, "the first one still repeats")
}

func repeatExhausted(t *testing.T, e *env) {
	e.one(t, maxAttempts(1))
	c := e.claimOne(t)
	s := settlement(c, storage.ActionRetry)
	first := e.settle(t, s)[0]
	require.Equal(t, storage.OutcomeDead, first.Outcome)
	e.advance(t, time.Minute)
	e.unchanged(t, func() {
		again := e.settle(t, s)[0]
		require.Equal(t, storage.ItemAlreadySettled, again.Status, "it asked for a retry, and asks for it again")
		require.Equal(t, facts(first), facts(again))
		require.Equal(t, storage.DeadReasonAttemptsExhausted, again.DeadReason)
		other := e.settle(t, settlement(c, storage.ActionDeadLetter))[0]
		require.Equal(t, storage.ItemSettled, other.Status, "a dead letter is another settlement than a retry")
		require.Equal(t, storage.OutcomeDead, other.Outcome)
	})
}

func repeatJitter(t *testing.T, e *env) {
	q := settings()
	q.Retry = storage.RetryPolicy{Min: time.Hour, Max: time.Hour, Multiplier: 1, Jitter: 1}
	e = e.on(e.newQueue(t, q))
	e.one(t)
	c := e.claimOne(t)
	s := storage.Settlement{Ref: c.Message.Ref, Token: c.Token, Action: storage.ActionRetry}
	first := e.settle(t, s)[0]
	e.advance(t, time.Second)
	require.Equal(t, facts(first), facts(e.settle(t, s)[0]))
}

func repeatElsewhere(t *testing.T, e *env) {
	other := e.through(e.other)
	for _, a := range actions {
		e.one(t)
		c := e.claimOneAs(t, "A", time.Hour)
		s := settlement(c, a.action)
		first := e.settle(t, s)[0]
		require.Equal(t, storage.ItemApplied, first.Status)
		again := other.settle(t, s)[0]
		require.Equal(t, storage.ItemAlreadySettled, again.Status, a.name)
		require.Equal(t, facts(first), facts(again), a.name)
	}
}

func repeatHistory(t *testing.T, e *env) {
	e.one(t)
	type settled struct {
		s     storage.Settlement
		first storage.Settled
	}
	var all []settled
	for _, a := range []storage.Action{storage.ActionRelease, storage.ActionRetry, storage.ActionRelease, storage.ActionRetry, storage.ActionComplete} {
		s := settlement(e.claimOne(t), a)
		first := e.settle(t, s)[0]
		require.Equal(t, storage.ItemApplied, first.Status)
		all = append(all, settled{s, first})
		e.advance(t, 10*time.Second)
	}
	var items []storage.Settlement
	for _, x := range all {
		items = append(items, x.s)
	}
	for i, again := range e.settle(t, items...) {
		require.Equal(t, storage.ItemAlreadySettled, again.Status, "claim %d", i+1)
		require.Equal(t, facts(all[i].first), facts(again), "claim %d", i+1)
	}
}

func repeatKept(t *testing.T, e *env) {
	q := settings()
	q.CompletedRetention = 10 * time.Minute
	e = e.on(e.newQueue(t, q))
	e.many(t, 4)
	cs := e.claimN(t, 4)
	items := make([]storage.Settlement, 4)
	for i, a := range actions {
		items[i] = settlement(cs[i], a.action)
	}
	first := e.settle(t, items...)
	e.advance(t, 10*time.Minute-time.Second)
	require.NoError(t, e.store.Maintain(t.Context()))
	for i, again := range e.settle(t, items...) {
		require.Equal(t, storage.ItemAlreadySettled, again.Status, actions[i].name)
		require.Equal(t, facts(first[i]), facts(again), actions[i].name)
	}
}

func repeatBatch(t *testing.T, e *env) {
	e.many(t, 20)
	cs := e.claimAs(t, "A", 20, time.Hour)
	items := make([]storage.Settlement, 20)
	for i, c := range cs {
		items[i] = settlement(c, storage.ActionComplete)
	}
	for _, got := range e.settle(t, items[:10]...) {
		require.Equal(t, storage.ItemApplied, got.Status)
	}
	items[5].Action = storage.ActionRelease
	for i, got := range e.settle(t, items...) {
		want := storage.ItemApplied
		switch {
		case i == 5:
			want = storage.ItemSettled
		case i < 10:
			want = storage.ItemAlreadySettled
		}
		require.Equal(t, want, got.Status, "item %d", i)
	}
}
