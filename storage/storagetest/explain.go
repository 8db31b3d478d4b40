package storagetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// explainRules check what an operator is told about one message. They name the rule that keeps
// the message back.
func explainRules() []rule {
	return []rule{
		{name: "C2_a_ready_message", clocks: bothClocks, run: explainReady},
		{name: "C2_a_delayed_message_to_the_tick", clocks: settable, run: explainDelayed},
		{name: "C6_a_leased_message", clocks: settable, run: explainLeased},
		{name: "C3_a_lease_that_is_over", clocks: settable, run: explainOver},
		{name: "C18_S14_what_ends_with_the_lease", clocks: settable, run: explainEnding},
		{name: "a_paused_queue", clocks: settable, run: explainPaused},
		{name: "L1_L2_a_limit_that_is_reached", clocks: settable, run: explainLimits},
		{name: "S3_a_retry", clocks: settable, run: explainRetried},
		{name: "S8_finished_messages", clocks: settable, run: explainFinished},
		{name: "S8_no_such_message", clocks: settable, run: explainNotFound},
		{name: "E12_a_marked_message", clocks: settable, run: explainMarked, skip: needsMark},
		{name: "O6_a_message_behind_the_head_of_its_key", clocks: settable, run: explainParked},
		{name: "O7_a_message_behind_a_dead_one", clocks: settable, run: explainBlocked},
		{name: "C9_messages_ahead_are_those_that_a_claim_takes_first", clocks: settable, run: explainAhead},
		{name: "C6_an_explanation_is_of_one_instant", clocks: realClock, run: raceExplain},
	}
}

// explainVolumeRules are those that need many messages.
func explainVolumeRules() []rule {
	return []rule{
		{name: "C12_messages_ahead_are_counted_up_to_ten_thousand", clocks: settable, run: explainMany},
	}
}

// why explains a message, which changes nothing.
func (e *env) why(t *testing.T, ref storage.Ref) storage.Explanation {
	t.Helper()
	var x storage.Explanation
	e.unchanged(t, func() {
		var err error
		x, err = e.store.Explain(t.Context(), ref)
		require.NoError(t, err, "explain")
	})
	e.checkNow(t, x.Now)
	m := e.get(t, ref)
	m.Payload = nil
	require.Equal(t, m, x.Message)
	return x
}

// requireWhy compares an explanation, apart from its message and clock.
func (e *env) requireWhy(t *testing.T, ref storage.Ref, want storage.Explanation) storage.Message {
	t.Helper()
	got := e.why(t, ref)
	m := got.Message
	want.Message, want.Now = m, got.Now
	require.Equal(t, want, got)
	return m
}

func explainReady(t *testing.T, e *env) {
	refs := e.many(t, 3)
	for i, ref := range refs {
		m := e.requireWhy(t, ref, storage.Explanation{Ahead: int64(i)})
		require.Equal(t, storage.StatePending, m.State)
	}
	e.requireWhy(t, e.one(t, priority(1)), storage.Explanation{})
}

func explainDelayed(t *testing.T, e *env) {
	e.one(t)
	ref := e.one(t, delay(time.Minute))
	m := e.requireWhy(t, ref, storage.Explanation{})
	e.advanceTo(t, m.ReadyTime.Add(-e.tick))
	e.requireWhy(t, ref, storage.Explanation{})
	e.advanceTo(t, m.ReadyTime)
	e.requireWhy(t, ref, storage.Explanation{Ahead: 1})
}

func explainLeased(t *testing.T, e *env) {
	e.many(t, 2)
	c := e.claimOneAs(t, "W", lease)
	m := e.requireWhy(t, c.Message.Ref, storage.Explanation{})
	require.Equal(t, "W", m.WorkerID)
	sameTime(t, e.now.Add(lease), m.LeaseEnd, "the lease end")
}

func explainOver(t *testing.T, e *env) {
	refs := e.many(t, 2)
	c := e.claimOne(t)
	require.Equal(t, refs[0], c.Message.Ref)
	e.requireWhy(t, refs[1], storage.Explanation{})
	e.advanceTo(t, c.Message.LeaseEnd)
	m := e.requireWhy(t, refs[0], storage.Explanation{})
	require.Equal(t, storage.StateProcessing, m.State)
	e.requireWhy(t, refs[1], storage.Explanation{Ahead: 1})
}

func explainEnding(t *testing.T, e *env) {
	last, asked := e.one(t, maxAttempts(1)), e.one(t)
	behind := e.one(t)
	cs := e.claimN(t, 2)
	require.Equal(t, storage.StateProcessing, e.cancel(t, asked))
	e.requireWhy(t, last, storage.Explanation{LastAttempt: true})
	e.requireWhy(t, asked, storage.Explanation{CancelRequested: true})
	e.advanceTo(t, cs[0].Message.LeaseEnd)
	e.requireWhy(t, behind, storage.Explanation{}) // no claim takes those two
}

func explainPaused(t *testing.T, e *env) {
	refs := e.many(t, 2)
	_, err := e.store.SetPaused(t.Context(), e.queue.Name, true)
	require.NoError(t, err)
	e.requireWhy(t, refs[1], storage.Explanation{Paused: true, Ahead: 1})
	require.Equal(t, storage.StateCancelled, e.cancel(t, refs[0]))
	e.requireWhy(t, refs[0], storage.Explanation{Paused: true})
}

func explainLimits(t *testing.T, e *env) {
	s := settings()
	s.MaxInFlight, s.MaxClaimsPerSecond = 2, 1
	e = e.on(e.newQueue(t, s))
	refs := e.many(t, 3)
	e.requireWhy(t, refs[2], storage.Explanation{Ahead: 2})
	cs := e.claimN(t, 3)
	require.Len(t, cs, 1, "L2")
	e.requireWhy(t, refs[2], storage.Explanation{RateLimit: true, Ahead: 1})
	e.advance(t, time.Second)
	e.requireWhy(t, refs[2], storage.Explanation{Ahead: 1})
	cs = append(cs, e.claimN(t, 3)...)
	require.Len(t, cs, 2)
	e.requireWhy(t, refs[2], storage.Explanation{RateLimit: true, InFlightLimit: true})
	e.advance(t, time.Second)
	e.requireWhy(t, refs[2], storage.Explanation{InFlightLimit: true})
	require.Empty(t, e.claimN(t, 1), "L1")
	e.revoke(t, cs[0].Message.Ref, true)
	e.requireWhy(t, refs[2], storage.Explanation{})
	require.Len(t, e.claimN(t, 1), 1)
}

func explainRetried(t *testing.T, e *env) {
	ref := e.one(t)
	c := e.claimOne(t)
	got := e.settle(t, settlement(c, storage.ActionRetry))[0]
	m := e.requireWhy(t, ref, storage.Explanation{})
	require.EqualValues(t, 1, m.Attempt)
	sameTime(t, got.AvailableTime, m.ReadyTime, "ready after the retry")
}

func explainFinished(t *testing.T, e *env) {
	e.many(t, 2)
	cs := e.claimN(t, 2)
	e.complete(t, cs[0])
	require.Equal(t, storage.ItemApplied, e.settle(t, settlement(cs[1], storage.ActionDeadLetter))[0].Status)
	gone := e.one(t)
	require.Equal(t, storage.StateCancelled, e.cancel(t, gone))
	for ref, state := range map[storage.Ref]storage.State{
		cs[0].Message.Ref: storage.StateCompleted, cs[1].Message.Ref: storage.StateDead, gone: storage.StateCancelled,
	} {
		m := e.requireWhy(t, ref, storage.Explanation{})
		require.Equal(t, state, m.State)
		sameTime(t, e.now, m.FinishTime, "finished")
	}
}

func explainNotFound(t *testing.T, e *env) {
	ref := e.one(t)
	other := e.newQueue(t, settings())
	for _, r := range []storage.Ref{
		{QueueID: e.queue.ID, Position: 1 << 60}, {QueueID: other.ID, Position: ref.Position}, {QueueID: 1 << 30, Position: ref.Position},
	} {
		_, err := e.store.Explain(t.Context(), r)
		require.ErrorIs(t, err, storage.ErrMessageNotFound, "%+v", r)
	}
}

func explainMarked(t *testing.T, e *env) {
	ref := e.one(t)
	e.claimOne(t)
	e.in.Mark(t, ref, e.now)
	m := e.requireWhy(t, ref, storage.Explanation{Settling: true})
	require.Equal(t, storage.StateCompleted, m.State)
}

func explainParked(t *testing.T, e *env) {
	refs := e.many(t, 3, ordered("a"))
	e.one(t)
	e.requireWhy(t, refs[0], storage.Explanation{})
	behind := storage.Explanation{Parked: true, Head: refs[0], HeadState: storage.StatePending}
	e.requireWhy(t, refs[1], behind)
	e.requireWhy(t, refs[2], behind)
	c := e.claimOne(t)
	require.Equal(t, refs[0], c.Message.Ref)
	behind.HeadState = storage.StateProcessing
	e.requireWhy(t, refs[2], behind)
	e.advance(t, time.Second)
	e.complete(t, c)
	m := e.requireWhy(t, refs[1], storage.Explanation{Ahead: 1})
	sameTime(t, e.now, m.ReadyTime, "promoted now")
	e.requireWhy(t, refs[2], storage.Explanation{Parked: true, Head: refs[1], HeadState: storage.StatePending})
}

func explainBlocked(t *testing.T, e *env) {
	e = e.blocking(t)
	refs := e.many(t, 3, ordered("a"))
	c := e.claimOne(t)
	require.Equal(t, storage.ItemApplied, e.settle(t, settlement(c, storage.ActionDeadLetter))[0].Status)
	for _, ref := range refs[1:] {
		e.requireWhy(t, ref, storage.Explanation{Parked: true, Head: refs[0], HeadState: storage.StateDead})
	}
	require.Equal(t, storage.StateCancelled, e.cancel(t, refs[1]))
	e.requireWhy(t, refs[2], storage.Explanation{Parked: true, Head: refs[0], HeadState: storage.StateDead})
}

// explainAhead compares the count with what a claim really takes.
func explainAhead(t *testing.T, e *env) {
	at := e.now.Add(time.Hour)
	var ms []storage.NewMessage
	for i := range 12 {
		ms = append(ms, e.message(priority(int32(i%3))))
	}
	refs := e.enqueue(t, ms...)
	refs = append(refs, e.one(t, delay(time.Second)), e.one(t, delay(time.Second), priority(2)), e.one(t, priority(3), expires(at)))
	dead := e.one(t, priority(5), expires(e.now.Add(time.Second)))
	e.claimAs(t, "W", 2, 2*time.Hour) // of the highest priorities
	e.advance(t, time.Second)
	expected := e.why(t, dead)
	require.Equal(t, storage.StateProcessing, expected.Message.State, "it was claimed before it expired")
	ahead := map[storage.Ref]int64{}
	for _, ref := range refs {
		x := e.why(t, ref)
		if x.Message.State == storage.StatePending {
			ahead[ref] = x.Ahead
		}
	}
	require.Len(t, ahead, 14)
	for i, ref := range refsOf(e.claimN(t, 100)) {
		require.EqualValues(t, i, ahead[ref], "%v", e.get(t, ref))
	}
}

func explainMany(t *testing.T, e *env) {
	for range 10 {
		e.many(t, 1000)
	}
	e.many(t, 1)
	refs := e.many(t, 2)
	explain := func(ref storage.Ref) int64 {
		t.Helper()
		x, err := e.store.Explain(t.Context(), ref)
		require.NoError(t, err)
		return x.Ahead
	}
	require.EqualValues(t, -1, explain(refs[0]), "10,001")
	e.claimN(t, 1)
	require.EqualValues(t, 10_000, explain(refs[0]))
	require.EqualValues(t, -1, explain(refs[1]))
}

// raceExplain: while a message goes round between claims, retries and revocations, each
// explanation fits together.
func raceExplain(t *testing.T, e *env) {
	q := settings()
	q.MaxAttempts = 0
	e = e.on(e.newQueue(t, q))
	refs := e.many(t, 2, ordered("a"))
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	var over atomic.Bool
	var seen [3]int
	err := together(3, func(i int) error {
		switch i {
		case 0:
			defer over.Store(true)
			for k := range 150 {
				out, err := e.rawClaim(ctx, e.store, call("worker", 1, time.Hour))
				if err != nil || len(out.Messages) == 0 {
					if err == nil {
						continue
					}
					return err
				}
				s := settlement(out.Messages[0], storage.ActionRelease)
				s.Delay = time.Duration(k%2) * 2 * time.Millisecond
				if _, err := e.store.Settle(ctx, storage.SettleParams{Items: []storage.Settlement{s}}); err != nil {
					return err
				}
			}
			return nil
		case 1:
			for !over.Load() {
				if _, err := e.other.Revoke(ctx, storage.RevokeParams{Ref: refs[0], Refund: true}); err != nil {
					return err
				}
			}
			return nil
		}
		for k := 0; !over.Load(); k++ {
			x, err := e.other.Explain(ctx, refs[k%2])
			if err != nil {
				return err
			}
			m := x.Message
			switch {
			case k%2 == 1 && (!x.Parked || x.Head != refs[0] || x.HeadState > storage.StateProcessing || m.Attempt != 0):
				return fmt.Errorf("behind the head: %+v", x)
			case k%2 == 1:
			case x.Parked || x.Head != (storage.Ref{}) || x.LastAttempt || x.Ahead != 0:
				return fmt.Errorf("the head: %+v", x)
			case m.State == storage.StateProcessing && (m.LeaseEnd.Before(x.Now) || m.WorkerID != "worker" || m.Attempt != 1):
				return fmt.Errorf("leased: %+v", x)
			case m.State == storage.StatePending && (!m.LeaseEnd.IsZero() || m.Attempt != 0 || m.ReadyTime.After(x.Now.Add(2*time.Millisecond))):
				return fmt.Errorf("pending: %+v", x)
			case m.State == storage.StateProcessing:
				seen[0]++
			case m.ReadyTime.After(x.Now):
				seen[1]++
			default:
				seen[2]++
			}
		}
		return nil
	})
	require.NoError(t, err)
	t.Logf("seen leased %d, delayed %d, ready %d", seen[0], seen[1], seen[2])
}
