package storagetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// redriveRules check that an operator gets dead messages back (O7).
func redriveRules() []rule {
	return []rule{
		{name: "O7_a_dead_message_is_pending_again_at_its_position", clocks: bothClocks, run: redriveOne},
		{name: "O7_C9_ready_times_decide_the_order_among_others", clocks: settable, run: redriveOrder},
		{name: "O7_C18_the_attempts_made_stay_counted", clocks: settable, run: redriveAttempts},
		{name: "O7_spread_over_a_time", clocks: settable, run: redriveSpread},
		{name: "E7_an_expire_time_that_has_passed_is_dropped", clocks: settable, run: redriveExpired},
		{name: "E1_the_idempotency_key_still_names_it", clocks: settable, run: redriveKey},
		{name: "S5_S6_S12_the_old_token_is_answered_as_it_was", clocks: settable, run: redriveSettledToken},
		{name: "S8_the_old_token_of_a_lease_that_ran_out", clocks: settable, run: redriveLostToken},
		{name: "O7_only_dead_messages_of_the_queue", clocks: settable, run: redriveOthers},
		{name: "D6_past_its_retention_there_is_nothing_to_redrive", clocks: settable, run: redriveRetained},
		{name: "O7_the_filter_means_what_it_means_in_a_list", clocks: settable, run: redriveFilters},
		{name: "O7_pages_of_any_size_move_each_once", clocks: settable, run: redrivePages},
		{name: "O7_what_is_redriven_may_be_cancelled_and_may_die_again", clocks: settable, run: redriveAgain},
	}
}

// dead returns messages that a worker has rejected.
func (e *env) dead(t *testing.T, n int) []storage.Ref {
	t.Helper()
	refs := e.many(t, n)
	e.reject(t, refs...)
	return refs
}

// reject claims the messages and dead-letters them; nothing else is claimable.
func (e *env) reject(t *testing.T, refs ...storage.Ref) {
	t.Helper()
	for left := len(refs); left > 0; {
		cs := e.claimAs(t, "worker", min(left, 1000), time.Hour)
		require.NotEmpty(t, cs)
		items := make([]storage.Settlement, len(cs))
		for i, c := range cs {
			items[i] = settlement(c, storage.ActionDeadLetter)
		}
		for _, got := range e.settle(t, items...) {
			require.Equal(t, storage.OutcomeDead, got.Outcome)
		}
		left -= len(cs)
	}
}

func (e *env) redriveAll(t *testing.T, p storage.RedriveParams) storage.BatchResult {
	t.Helper()
	p.Filter.QueueID = e.queue.ID
	if p.Limit == 0 {
		p.Limit = 100
	}
	return e.pass(t, p.Limit, func(after int64) (storage.BatchResult, error) {
		p.After = after
		return e.store.Redrive(t.Context(), p)
	})
}

// redrive moves exactly so many.
func (e *env) redrive(t *testing.T, want int, p storage.RedriveParams) {
	t.Helper()
	sum := e.redriveAll(t, p)
	require.Equal(t, want, sum.Count, "redriven")
	require.Zero(t, sum.Left)
	require.Equal(t, want > 0, sum.Ready)
}

func only(refs ...storage.Ref) storage.ListMessagesParams {
	var p storage.ListMessagesParams
	for _, ref := range refs {
		p.Positions = append(p.Positions, ref.Position)
	}
	return p
}

func redriveOne(t *testing.T, e *env) {
	ref := e.one(t, priority(7), payload([]byte("body")), func(m *storage.NewMessage) {
		m.ContentType, m.Attributes = "text/plain", map[string]string{"a": "b", "": ""}
	})
	before := e.get(t, ref)
	e.reject(t, ref)
	dead := e.get(t, ref)
	if e.settable() {
		e.advance(t, time.Minute)
	}
	e.redrive(t, 1, storage.RedriveParams{})
	got := e.get(t, ref)
	require.Equal(t, storage.StatePending, got.State)
	require.EqualValues(t, 1, got.Attempt, "the attempt stays counted")
	require.Equal(t, "no use", got.LastError, "the last error stays")
	require.Equal(t, "rejected", got.ReasonCode)
	require.Equal(t, storage.DeadReasonNone, got.DeadReason)
	require.Zero(t, got.FinishTime)
	require.Zero(t, got.LeaseEnd)
	if e.settable() {
		sameTime(t, e.now, got.ReadyTime, "ready now")
	} else {
		require.False(t, got.ReadyTime.Before(dead.FinishTime), "ready now, and not at its old time")
	}
	want := before
	want.State, want.Attempt, want.MaxAttempts, want.ReadyTime = got.State, 1, 21, got.ReadyTime
	want.LastError, want.ReasonCode, want.WorkerID = got.LastError, got.ReasonCode, "worker"
	require.Equal(t, want, got, "nothing else has changed")
	e.unchanged(t, func() { e.redrive(t, 0, storage.RedriveParams{}) })
	c := e.claimOne(t)
	require.Equal(t, ref, c.Message.Ref)
	require.EqualValues(t, 2, c.Message.Attempt)
	require.Equal(t, []byte("body"), c.Message.Payload)
	e.complete(t, c)
}

func redriveOrder(t *testing.T, e *env) {
	refs := e.dead(t, 3)
	later := e.many(t, 2)
	e.advance(t, time.Second)
	e.redrive(t, 3, storage.RedriveParams{})
	require.Equal(t, append(slices.Clone(later), refs...), refsOf(e.claimN(t, 10)),
		"messages without an ordering key stand in line by their ready time")
}

func redriveAttempts(t *testing.T, e *env) {
	q := settings()
	q.MaxAttempts = 5
	e = e.on(e.newQueue(t, q))
	ref := e.one(t, maxAttempts(2))
	for range 2 {
		c := e.claimOneAs(t, "worker", time.Second)
		e.advanceTo(t, c.Message.LeaseEnd)
	}
	e.sweep(t, ref)
	e.requireDead(t, ref, storage.DeadReasonLeaseExpired, 2)
	e.redrive(t, 1, storage.RedriveParams{MaxAttempts: 3})
	m := e.get(t, ref)
	require.Equal(t, [2]int32{2, 5}, [2]int32{m.Attempt, m.MaxAttempts}, "as many as were asked for on top of those made")
	for attempt := int32(3); attempt <= 5; attempt++ {
		c := e.claimOne(t)
		require.Equal(t, attempt, c.Message.Attempt)
		s := settlement(c, storage.ActionRetry)
		s.Delay = 0
		want := storage.OutcomeRetried
		if attempt == 5 {
			want = storage.OutcomeDead
		}
		require.Equal(t, want, e.settle(t, s)[0].Outcome)
	}
	e.requireDead(t, ref, storage.DeadReasonAttemptsExhausted, 5)
	e.redrive(t, 1, storage.RedriveParams{})
	require.EqualValues(t, 10, e.get(t, ref).MaxAttempts, "the setting of the queue on top of those made")
	e.reject(t, ref)

	_, err := e.store.UpdateQueue(t.Context(), e.queue.Name, func() storage.QueueSettings { q.MaxAttempts = 0; return q }(), 0)
	require.NoError(t, err)
	e.redrive(t, 1, storage.RedriveParams{})
	require.Zero(t, e.get(t, ref).MaxAttempts, "no limit where the queue has none")
	e.reject(t, ref)
	e.redrive(t, 1, storage.RedriveParams{MaxAttempts: 1<<31 - 1})
	require.EqualValues(t, 1<<31-1, e.get(t, ref).MaxAttempts, "no overflow")
}

func redriveSpread(t *testing.T, e *env) {
	refs := e.dead(t, 5)
	first := storage.RedriveParams{Filter: only(refs[:3]...), Delay: time.Second, Step: 10 * time.Second}
	e.redrive(t, 3, first)
	for i, ref := range refs[:3] {
		sameTime(t, e.now.Add(time.Second+time.Duration(i)*10*time.Second), e.get(t, ref).ReadyTime, fmt.Sprint("message ", i))
	}
	e.claimNothing(t)
	for _, ref := range refs[:3] {
		e.advanceTo(t, e.get(t, ref).ReadyTime.Add(-e.tick))
		require.Empty(t, e.claimN(t, 10), "not before its time")
		e.advance(t, e.tick)
		require.Equal(t, ref, e.claimOne(t).Message.Ref)
	}
	// A step below the resolution of the stored times is not lost, only the rest of each sum.
	many := e.dead(t, 100)
	e.redrive(t, 102, storage.RedriveParams{Step: e.tick / 4, Limit: 1000})
	sameTime(t, e.now, e.get(t, refs[3]).ReadyTime, "the first one")
	sameTime(t, e.now.Add((101 * (e.tick / 4)).Truncate(e.tick)), e.get(t, many[99]).ReadyTime, "the last one")
}

func redriveExpired(t *testing.T, e *env) {
	gone := e.one(t, expires(e.clockNow(t).Add(time.Minute)))
	kept := e.one(t, expires(e.clockNow(t).Add(time.Hour)))
	e.reject(t, gone, kept)
	e.advance(t, time.Minute)
	end := e.get(t, kept).ExpireTime
	e.redrive(t, 2, storage.RedriveParams{})
	require.Zero(t, e.get(t, gone).ExpireTime, "it would die at once")
	sameTime(t, end, e.get(t, kept).ExpireTime, "a time to come still counts")
	res := e.sweep(t, gone, kept)
	require.Zero(t, res.Expired)
	require.Equal(t, []storage.Ref{gone, kept}, refsOf(e.claimN(t, 10)))

	died := e.one(t, expires(e.clockNow(t).Add(time.Second)))
	e.advance(t, time.Second)
	e.sweep(t, died)
	e.requireDead(t, died, storage.DeadReasonExpired, 0)
	e.redrive(t, 1, storage.RedriveParams{})
	c := e.claimOne(t)
	require.Equal(t, died, c.Message.Ref)
	require.EqualValues(t, 1, c.Message.Attempt)
}

func redriveKey(t *testing.T, e *env) {
	m := e.message(keyed("key", "content"))
	ref := e.enqueue(t, m)[0]
	e.reject(t, ref)
	e.redrive(t, 1, storage.RedriveParams{})
	got := e.enqueueResult(t, m)[0]
	require.Equal(t, storage.EnqueueDuplicate, got.Status)
	require.Equal(t, ref, got.Ref)
	require.Equal(t, storage.StatePending, got.State)
	require.Equal(t, "key", e.get(t, ref).IdempotencyKey)
}

func redriveSettledToken(t *testing.T, e *env) {
	for i, end := range []struct {
		action storage.Action
		mods   []func(*storage.NewMessage)
	}{
		{storage.ActionDeadLetter, nil},
		{storage.ActionRetry, []func(*storage.NewMessage){maxAttempts(1)}},
	} {
		ref := e.one(t, end.mods...)
		c := e.claimOne(t)
		s := settlement(c, end.action)
		want := e.settle(t, s)[0]
		require.Equal(t, storage.OutcomeDead, want.Outcome)
		e.redrive(t, 1, storage.RedriveParams{Filter: only(ref)})
		check := func(when string) {
			e.unchanged(t, func() {
				got := e.settle(t, s)[0]
				require.Equal(t, storage.ItemAlreadySettled, got.Status, "S5 %s", when)
				require.Equal(t, facts(want), facts(got), when)
				for _, act := range actions {
					if act.action == end.action {
						continue
					}
					got := e.settle(t, settlement(c, act.action))[0]
					require.Equal(t, storage.ItemSettled, got.Status, "S6 %s: %s", when, act.name)
					require.Equal(t, storage.OutcomeDead, got.Outcome)
				}
				renewed := e.renew(t, renewal(c, lease))[0]
				require.Equal(t, storage.ItemSettled, renewed.Status, "S12 %s", when)
			})
		}
		check(fmt.Sprint("pending again ", i))
		next := e.claimOne(t)
		require.Equal(t, ref, next.Message.Ref)
		require.NotEqual(t, c.Token, next.Token)
		check("claimed by another")
		e.complete(t, next)
		check("completed by another")
	}
}

func redriveLostToken(t *testing.T, e *env) {
	ref := e.one(t, maxAttempts(1))
	c := e.claimOneAs(t, "worker", time.Second)
	e.advanceTo(t, c.Message.LeaseEnd)
	e.sweep(t, ref)
	e.requireDead(t, ref, storage.DeadReasonLeaseExpired, 1)
	e.requireLost(t, c, storage.LostLeaseExpired)
	e.redrive(t, 1, storage.RedriveParams{})
	e.requireLost(t, c, storage.LostLeaseExpired)
	never := settlementOf(ref, never, storage.ActionComplete)
	require.Equal(t, storage.LostNotClaimed, e.settle(t, never)[0].Cause)
	next := e.claimOne(t)
	e.requireLost(t, c, storage.LostSuperseded)
	e.complete(t, next)
	e.requireLost(t, c, storage.LostSuperseded)
}

func redriveOthers(t *testing.T, e *env) {
	elsewhere := e.on(e.newQueue(t, settings()))
	there := elsewhere.dead(t, 1)[0]
	cancelled := e.one(t)
	e.cancel(t, cancelled)
	e.one(t)
	e.complete(t, e.claimOne(t))
	e.one(t)
	e.claimOneAs(t, "worker", time.Hour)
	e.one(t, delay(time.Hour))
	e.unchanged(t, func() {
		e.redrive(t, 0, storage.RedriveParams{})
		e.redrive(t, 0, storage.RedriveParams{Filter: only(there, cancelled)})
		e.redrive(t, 0, storage.RedriveParams{Filter: storage.ListMessagesParams{States: []storage.State{storage.StateCancelled}}})
	})
	elsewhere.redrive(t, 1, storage.RedriveParams{})
}

func redriveRetained(t *testing.T, e *env) {
	e = e.on(e.newQueue(t, retainSettings(time.Hour, time.Hour)))
	e.dead(t, 1)
	e.advance(t, time.Hour-e.tick)
	kept := e.dead(t, 1)[0]
	e.advance(t, e.tick)
	e.redrive(t, 1, storage.RedriveParams{})
	require.Equal(t, kept, e.claimOne(t).Message.Ref, "what nobody sees any more stays dead")
}

func redriveFilters(t *testing.T, e *env) {
	// The names are the same in each queue that the story makes.
	var names []string
	for name := range operateStory(t, e) {
		names = append(names, name)
	}
	slices.Sort(names)
	some := 0
	for _, name := range names {
		e := e.on(e.newQueue(t, settings()))
		p := operateStory(t, e)[name]
		p.States = nil // dead is implied
		want := e.meant(t, p, storage.StateDead)
		some += min(1, len(want))
		others := e.meant(t, storage.ListMessagesParams{}, storage.StateDead, storage.StateCancelled, storage.StateCompleted)
		others = slices.DeleteFunc(others, func(ref storage.Ref) bool { return slices.Contains(want, ref) })
		e.unchanged(t, func() {
			sum := e.redriveAll(t, storage.RedriveParams{Filter: p, Limit: 2, DryRun: true})
			require.Equal(t, len(want), sum.Count, "%s: a dry run counts", name)
			require.False(t, sum.Ready)
		})
		live := e.meant(t, storage.ListMessagesParams{}, storage.StatePending)
		e.redrive(t, len(want), storage.RedriveParams{Filter: p, Limit: 2})
		require.ElementsMatch(t, append(live, want...), e.meant(t, storage.ListMessagesParams{}, storage.StatePending), name)
		require.Equal(t, others,
			e.meant(t, storage.ListMessagesParams{}, storage.StateDead, storage.StateCancelled, storage.StateCompleted), name)
	}
	require.Greater(t, some, len(names)/2, "most filters mean something, else this proves little")
}

func redrivePages(t *testing.T, e *env) {
	refs := e.dead(t, 23)
	for _, limit := range []int{1, 2, 7, 22, 23, 24, 1000} {
		e.advance(t, time.Second)
		p := storage.RedriveParams{Filter: storage.ListMessagesParams{QueueID: e.queue.ID}, Limit: limit}
		dry := p
		dry.DryRun = true
		require.Equal(t, 23, e.redriveAll(t, dry).Count)
		var moved []storage.Ref
		for {
			res, err := e.store.Redrive(t.Context(), p)
			require.NoError(t, err)
			require.LessOrEqual(t, res.Count, limit)
			page := refs[len(moved) : len(moved)+res.Count]
			for _, ref := range page {
				require.Equal(t, storage.StatePending, e.get(t, ref).State, "oldest first")
			}
			moved = append(moved, page...)
			if res.Next == 0 {
				break
			}
			p.After = res.Next
		}
		require.Equal(t, refs, moved)
		require.Equal(t, refs, refsOf(e.claimN(t, 100)))
		e.advance(t, time.Hour)
		e.reject(t, refs...)
	}
}

func redriveAgain(t *testing.T, e *env) {
	refs := e.dead(t, 2)
	e.redrive(t, 2, storage.RedriveParams{Delay: time.Hour})
	require.Equal(t, storage.StateCancelled, e.cancel(t, refs[0]))
	e.advance(t, time.Hour)
	c := e.claimOne(t)
	require.Equal(t, refs[1], c.Message.Ref)
	first := e.settle(t, settlement(c, storage.ActionDeadLetter))[0]
	require.Equal(t, storage.OutcomeDead, first.Outcome)
	e.redrive(t, 1, storage.RedriveParams{})
	got := e.settle(t, settlement(c, storage.ActionDeadLetter))[0]
	require.Equal(t, storage.ItemAlreadySettled, got.Status)
	require.Equal(t, facts(first), facts(got))
}
