package storagetest

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// retainRules check that what has passed its retention goes for good, and nothing else
// does (D6).
func retainRules() []rule {
	return []rule{
		{name: "D6_E5_finished_rows_go_with_their_keys", clocks: settable, run: retainFinished},
		{name: "D6_nothing_younger_goes", clocks: settable, run: retainYounger},
		{name: "D6_live_messages_never_go", clocks: settable, run: retainLive},
		{name: "D6_dead_messages_without_a_retention_never_go", clocks: settable, run: retainDeadForEver},
		{name: "D6_the_limit_bounds_a_call", clocks: settable, run: retainLimit},
		{name: "D6_each_queue_has_its_own_retention", clocks: settable, run: retainQueues},
		{name: "D6_E5_a_key_that_names_a_newer_message_stays", clocks: settable, run: retainKeyReused},
		{name: "D6_S5_the_history_is_kept_as_long_as_it_is_promised", clocks: settable, run: retainHistory},
	}
}

// retainAll deletes what may go, in bounded calls, until nothing is left to do.
func (e *env) retainAll(t *testing.T) (sum storage.RetainResult) {
	t.Helper()
	for calls := 0; ; calls++ {
		require.Less(t, calls, 10_000, "retention comes to an end")
		res, err := e.store.Retain(t.Context(), storage.RetainParams{Limit: 100})
		require.NoError(t, err, "retain")
		e.checkNow(t, res.Now)
		sum.Deleted += res.Deleted
		sum.PartitionsDropped += res.PartitionsDropped
		if !res.More {
			return sum
		}
	}
}

// traced marks a message so that its rows are found in the whole content of the
// database.
func traced(trace string) func(*storage.NewMessage) {
	return func(m *storage.NewMessage) { m.ContentType = trace }
}

// traces tells whether anything in the database holds the mark. A backend may show text
// as it is or by its bytes.
func (e *env) traces(t *testing.T, trace string) bool {
	t.Helper()
	dump := e.in.Dump(t)
	return strings.Contains(dump, trace) || strings.Contains(dump, hex.EncodeToString([]byte(trace)))
}

// finish brings messages to each of the three ends.
func (e *env) finish(t *testing.T, trace string) []storage.Ref {
	t.Helper()
	var refs []storage.Ref
	for _, end := range []string{"complete", "dead", "cancel"} {
		ref := e.enqueue(t, e.message(keyed(trace+"-key-"+end, "content"), traced(trace)))[0]
		refs = append(refs, ref)
		if end == "cancel" {
			require.Equal(t, storage.StateCancelled, e.cancel(t, ref))
			continue
		}
		a := storage.ActionComplete
		if end == "dead" {
			a = storage.ActionDeadLetter
		}
		require.Equal(t, storage.ItemApplied, e.settle(t, settlement(e.claimOne(t), a))[0].Status)
	}
	return refs
}

func retainSettings(completed, dead time.Duration) storage.QueueSettings {
	s := settings()
	s.CompletedRetention, s.DeadRetention = completed, dead
	return s
}

func retainFinished(t *testing.T, e *env) {
	e = e.on(e.newQueue(t, retainSettings(time.Hour, 2*time.Hour)))
	const trace = "trace-finished"
	refs := e.finish(t, trace)
	require.True(t, e.traces(t, trace))
	e.advance(t, 48*time.Hour)
	sum := e.retainAll(t)
	require.Positive(t, sum.Deleted+sum.PartitionsDropped)
	require.False(t, e.traces(t, trace), "neither the rows nor the keys are there")
	for _, ref := range refs {
		_, err := e.store.GetMessage(t.Context(), ref, true)
		require.ErrorIs(t, err, storage.ErrMessageNotFound)
	}
	for _, end := range []string{"complete", "dead", "cancel"} {
		fresh := e.enqueueResult(t, e.message(keyed(trace+"-key-"+end, "other content")))[0]
		require.Equal(t, storage.EnqueueInserted, fresh.Status, "the key is free")
	}
	e.unchanged(t, func() { e.retainAll(t) })
}

func retainYounger(t *testing.T, e *env) {
	e.retainAll(t) // what other tests left behind
	e = e.on(e.newQueue(t, retainSettings(time.Hour, 2*time.Hour)))
	refs := e.finish(t, "trace-younger")
	e.advance(t, time.Hour-e.tick)
	e.retainAll(t)
	for i, state := range []storage.State{storage.StateCompleted, storage.StateDead, storage.StateCancelled} {
		require.Equal(t, state, e.get(t, refs[i]).State)
	}
	e.advance(t, 2*e.tick)
	e.retainAll(t)
	require.Equal(t, storage.StateDead, e.get(t, refs[1]).State, "dead ones have a retention of their own")
	for _, ref := range []storage.Ref{refs[0], refs[2]} {
		_, err := e.store.GetMessage(t.Context(), ref, false)
		require.ErrorIs(t, err, storage.ErrMessageNotFound)
	}
	require.Equal(t, storage.EnqueueDuplicate,
		e.enqueueResult(t, e.message(keyed("trace-younger-key-dead", "content")))[0].Status)
}

func retainLive(t *testing.T, e *env) {
	e = e.on(e.newQueue(t, retainSettings(10*time.Minute, time.Minute)))
	pending := e.enqueue(t, e.message(keyed("pending", "content"), delay(10_000*time.Hour)))[0]
	held := e.enqueue(t, e.message(keyed("held", "content")))[0]
	e.claimOne(t)
	rows := []map[string]string{e.liveRow(t, pending), e.liveRow(t, held)}
	e.advance(t, 1000*time.Hour)
	e.retainAll(t)
	require.Equal(t, rows[0], e.liveRow(t, pending))
	require.Equal(t, rows[1], e.liveRow(t, held))
	for _, key := range []string{"pending", "held"} {
		require.Equal(t, storage.EnqueueDuplicate, e.enqueueResult(t, e.message(keyed(key, "content")))[0].Status)
	}
}

func retainDeadForEver(t *testing.T, e *env) {
	e = e.on(e.newQueue(t, retainSettings(10*time.Minute, 0)))
	refs := e.finish(t, "trace-for-ever")
	e.advance(t, 1000*time.Hour)
	e.retainAll(t)
	require.Equal(t, storage.StateDead, e.get(t, refs[1]).State)
	require.Equal(t, []byte("payload"), e.get(t, refs[1]).Payload)
	require.Equal(t, storage.EnqueueDuplicate,
		e.enqueueResult(t, e.message(keyed("trace-for-ever-key-dead", "content")))[0].Status)
}

func retainLimit(t *testing.T, e *env) {
	e.advance(t, 1000*time.Hour)
	e.retainAll(t)
	e = e.on(e.newQueue(t, retainSettings(time.Hour, time.Hour)))
	const n = 11
	e.many(t, n)
	for _, c := range e.claimN(t, n) {
		require.Equal(t, storage.ItemApplied, e.settle(t, settlement(c, storage.ActionDeadLetter))[0].Status)
	}
	e.advance(t, time.Hour+2*e.tick)
	left := n
	for left > 0 {
		res, err := e.store.Retain(t.Context(), storage.RetainParams{Limit: 3})
		require.NoError(t, err)
		require.LessOrEqual(t, res.Deleted, 3, "in small batches")
		require.Positive(t, res.Deleted, "%d of %d are left", left, n)
		left -= min(left, res.Deleted)
		if left > 0 {
			require.True(t, res.More, "and says that there is more")
		}
	}
}

func retainQueues(t *testing.T, e *env) {
	brief := e.on(e.newQueue(t, retainSettings(10*time.Minute, 10*time.Minute)))
	long := e.on(e.newQueue(t, retainSettings(100*time.Hour, 100*time.Hour)))
	gone, kept := brief.finish(t, "trace-brief"), long.finish(t, "trace-long")
	e.advance(t, 10*time.Hour)
	e.retainAll(t)
	require.False(t, e.traces(t, "trace-brief"), "one with a longer retention keeps none of another's")
	for i := range gone {
		_, err := e.store.GetMessage(t.Context(), gone[i], false)
		require.ErrorIs(t, err, storage.ErrMessageNotFound)
		require.NotZero(t, e.get(t, kept[i]).State)
	}
	require.Equal(t, []byte("payload"), long.get(t, kept[0]).Payload)
	_, err := e.store.UpdateQueue(t.Context(), long.queue.Name, retainSettings(time.Hour, time.Hour), 0)
	require.NoError(t, err)
	e.retainAll(t)
	require.False(t, e.traces(t, "trace-long"), "the present setting of the queue counts")
}

func retainKeyReused(t *testing.T, e *env) {
	e = e.on(e.newQueue(t, retainSettings(time.Hour, time.Hour)))
	m := e.message(keyed("key", "content"))
	e.enqueue(t, m)
	e.complete(t, e.claimOne(t))
	e.advance(t, time.Hour+2*e.tick)
	fresh := e.enqueueResult(t, m)[0]
	require.Equal(t, storage.EnqueueInserted, fresh.Status)
	e.retainAll(t)
	got := e.enqueueResult(t, m)[0]
	require.Equal(t, storage.EnqueueDuplicate, got.Status, "the key names the newer message")
	require.Equal(t, fresh.Ref, got.Ref)
}

func retainHistory(t *testing.T, e *env) {
	for i, keep := range []time.Duration{time.Hour, time.Minute} {
		// Never less than ten minutes.
		q := e.on(e.newQueue(t, retainSettings(keep, time.Hour)))
		q.one(t)
		c := q.claimOne(t)
		s := settlement(c, storage.ActionRetry)
		want := q.settle(t, s)[0]
		require.Equal(t, storage.ItemApplied, want.Status)
		e.advance(t, max(keep, 10*time.Minute)-e.tick)
		e.retainAll(t)
		got := q.settle(t, s)[0]
		require.Equal(t, storage.ItemAlreadySettled, got.Status, "retention %d", i)
		require.Equal(t, facts(want), facts(got))
		e.advance(t, 48*time.Hour)
		e.retainAll(t)
		require.Equal(t, storage.ItemLost, q.settle(t, s)[0].Status, fmt.Sprint("and not for ever: ", keep))
	}
}
