package storagetest

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// claimIDRules check C14: a claim can be repeated.
func claimIDRules() []rule {
	return []rule{
		{name: "C14_the_repeat_answers_the_live_leases_again", clocks: settable, run: replay},
		{name: "C14_the_repeat_through_another_store", clocks: bothClocks, run: replayElsewhere},
		{name: "C14_the_repeat_answers_what_is_still_held_only", clocks: settable, run: replayPart},
		{name: "C14_the_repeat_shows_the_renewed_lease", clocks: settable, run: replayRenewed},
		{name: "C14_when_none_is_held_the_repeat_is_empty_and_replayed", clocks: settable, run: replayNone},
		{name: "C14_an_empty_claim_leaves_no_row_so_its_repeat_is_new", clocks: settable, run: replayEmpty},
		{name: "C14_another_worker_is_refused_and_nothing_changes", clocks: settable, run: replayOtherWorker},
		{name: "C14_the_same_id_on_another_queue_is_another_claim", clocks: bothClocks, run: replayOtherQueue},
		{name: "C14_beside_other_calls_of_one_claim", clocks: settable, run: replayBesideOthers},
		{name: "C14_the_repeat_is_not_cut_by_another_max", clocks: settable, run: replayMax},
		{name: "C14_the_repeat_works_on_a_paused_queue", clocks: settable, run: replayPaused},
	}
}

// claimID makes a recognisable claim id.
func claimID(n int) storage.ClaimID {
	var id storage.ClaimID
	id[0] = 0xC1
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	return id
}

// claimWithID claims for one call with an id.
func (e *env) claimWithID(t *testing.T, worker string, id storage.ClaimID, n int) storage.ClaimOutcome {
	t.Helper()
	return e.claimResult(t, storage.ClaimParams{Calls: []storage.ClaimCall{
		{Max: n, Lease: lease, WorkerID: worker, ClaimID: id},
	}}).Calls[0]
}

func replay(t *testing.T, e *env) {
	refs := e.many(t, 5)
	first := e.claimWithID(t, "A", claimID(1), 3)
	require.Equal(t, storage.ClaimServed, first.Status)
	require.Equal(t, refs[:3], refsOf(first.Messages))
	rows := map[storage.Ref]map[string]string{}
	for _, ref := range refs {
		rows[ref] = e.liveRow(t, ref)
	}
	e.advance(t, 10*time.Second)
	for range 3 {
		again := e.claimWithID(t, "A", claimID(1), 3)
		require.Equal(t, storage.ClaimReplayed, again.Status)
		require.Equal(t, first.Messages, again.Messages, "the same messages, tokens, attempts and lease ends, in the same order")
	}
	for _, ref := range refs {
		require.Equal(t, rows[ref], e.liveRow(t, ref), "a repeat touches no row")
	}
	// Its tokens are good.
	e.complete(t, first.Messages[0])
	require.Equal(t, refs[3:], refsOf(e.claimWithID(t, "A", claimID(2), 5).Messages), "another id is another claim")
}

func replayElsewhere(t *testing.T, e *env) {
	e.many(t, 4)
	first := e.claimWithID(t, "A", claimID(1), 2)
	require.Len(t, first.Messages, 2)
	other := e.through(e.other)
	again := other.claimWithID(t, "A", claimID(1), 2)
	require.Equal(t, storage.ClaimReplayed, again.Status)
	require.Equal(t, first.Messages, again.Messages)
	other.complete(t, again.Messages[0])
	e.complete(t, first.Messages[1])
}

func replayPart(t *testing.T, e *env) {
	e.many(t, 6)
	first := e.claimWithID(t, "A", claimID(1), 6)
	require.Len(t, first.Messages, 6)
	for i, a := range actions {
		require.Equal(t, storage.ItemApplied, e.settle(t, settlement(first.Messages[i], a.action))[0].Status)
	}
	again := e.claimWithID(t, "A", claimID(1), 6)
	require.Equal(t, storage.ClaimReplayed, again.Status)
	require.Equal(t, first.Messages[4:], again.Messages, "settled claims are held no more")

	// One is renewed, the other runs out, is claimed by B, and A does not get it back.
	require.Equal(t, storage.ItemApplied, e.renew(t, renewal(first.Messages[5], time.Hour))[0].Status)
	e.advance(t, lease)
	again = e.claimWithID(t, "A", claimID(1), 6)
	require.Equal(t, refsOf(first.Messages[5:]), refsOf(again.Messages), "a lease that is over is held no more")
	require.NotEmpty(t, e.claimAs(t, "A", 10, time.Hour), "the same worker, another claim")
	again = e.claimWithID(t, "A", claimID(1), 6)
	require.Equal(t, refsOf(first.Messages[5:]), refsOf(again.Messages), "a re-claim is another claim")
	require.Equal(t, first.Messages[5].Token, again.Messages[0].Token)
}

func replayRenewed(t *testing.T, e *env) {
	e.one(t)
	first := e.claimWithID(t, "A", claimID(1), 1)
	require.Len(t, first.Messages, 1)
	e.advance(t, time.Second)
	require.Equal(t, storage.ItemApplied, e.renew(t, renewal(first.Messages[0], time.Minute))[0].Status)
	again := e.claimWithID(t, "A", claimID(1), 1)
	require.Len(t, again.Messages, 1)
	require.Equal(t, first.Messages[0].Token, again.Messages[0].Token)
	require.EqualValues(t, 1, again.Messages[0].Message.Attempt)
	sameTime(t, e.now.Add(time.Minute), again.Messages[0].Message.LeaseEnd, "the lease as it is")
}

func replayNone(t *testing.T, e *env) {
	e.many(t, 2)
	first := e.claimWithID(t, "A", claimID(1), 1)
	require.Len(t, first.Messages, 1)
	e.complete(t, first.Messages[0])
	again := e.claimWithID(t, "A", claimID(1), 1)
	require.Equal(t, storage.ClaimReplayed, again.Status)
	require.Empty(t, again.Messages, "the second message is not claimed by a repeat")

	second := e.claimWithID(t, "A", claimID(2), 1)
	require.Len(t, second.Messages, 1)
	e.advance(t, lease)
	again = e.claimWithID(t, "A", claimID(2), 1)
	require.Equal(t, storage.ClaimReplayed, again.Status)
	require.Empty(t, again.Messages, "the lease is over")
}

func replayEmpty(t *testing.T, e *env) {
	require.Empty(t, e.claimWithID(t, "A", claimID(1), 1).Messages)
	ref := e.one(t)
	got := e.claimWithID(t, "A", claimID(1), 1)
	require.Equal(t, storage.ClaimServed, got.Status)
	require.Equal(t, []storage.Ref{ref}, refsOf(got.Messages))
}

func replayOtherWorker(t *testing.T, e *env) {
	e.many(t, 3)
	first := e.claimWithID(t, "A", claimID(1), 1)
	require.Len(t, first.Messages, 1)
	e.unchanged(t, func() {
		got := e.claimWithID(t, "B", claimID(1), 1)
		require.Equal(t, storage.ClaimIDReused, got.Status)
		require.Empty(t, got.Messages)
	})
	e.complete(t, first.Messages[0])
}

func replayOtherQueue(t *testing.T, e *env) {
	other := e.on(e.newQueue(t, settings()))
	a, b := e.one(t), other.one(t)
	require.Equal(t, []storage.Ref{a}, refsOf(e.claimWithID(t, "A", claimID(1), 1).Messages))
	got := other.claimWithID(t, "A", claimID(1), 1)
	require.Equal(t, storage.ClaimServed, got.Status)
	require.Equal(t, []storage.Ref{b}, refsOf(got.Messages))
	got = other.on(e.newQueue(t, settings())).claimWithID(t, "B", claimID(1), 1)
	require.Equal(t, storage.ClaimServed, got.Status)
}

func replayBesideOthers(t *testing.T, e *env) {
	refs := e.many(t, 6)
	first := e.claimWithID(t, "A", claimID(1), 2)
	require.Len(t, first.Messages, 2)
	res := e.claimResult(t, storage.ClaimParams{Calls: []storage.ClaimCall{
		call("X", 1, lease),
		{Max: 2, Lease: lease, WorkerID: "A", ClaimID: claimID(1)},
		{Max: 2, Lease: lease, WorkerID: "B", ClaimID: claimID(1 << 20)},
		{Max: 2, Lease: lease, WorkerID: "B", ClaimID: claimID(2)},
	}})
	require.Equal(t, refs[2:3], refsOf(res.Calls[0].Messages))
	require.Equal(t, storage.ClaimReplayed, res.Calls[1].Status)
	require.Equal(t, first.Messages, res.Calls[1].Messages)
	require.Equal(t, storage.ClaimServed, res.Calls[2].Status)
	require.Equal(t, refs[3:5], refsOf(res.Calls[2].Messages))
	require.Equal(t, storage.ClaimServed, res.Calls[3].Status)
	require.Equal(t, refs[5:], refsOf(res.Calls[3].Messages))

	// A reused id fails no neighbour.
	more := e.many(t, 1)
	res = e.claimResult(t, storage.ClaimParams{Calls: []storage.ClaimCall{
		{Max: 1, Lease: lease, WorkerID: "Z", ClaimID: claimID(1)}, call("Y", 3, lease),
	}})
	require.Equal(t, storage.ClaimIDReused, res.Calls[0].Status)
	require.Equal(t, more, refsOf(res.Calls[1].Messages))
	// Each call left a row of its own.
	require.Equal(t, refs[3:5], refsOf(e.claimWithID(t, "B", claimID(1<<20), 2).Messages))
	require.Equal(t, refs[5:], refsOf(e.claimWithID(t, "B", claimID(2), 2).Messages))
}

func replayMax(t *testing.T, e *env) {
	e.many(t, 5)
	first := e.claimWithID(t, "A", claimID(1), 3)
	require.Len(t, first.Messages, 3)
	again := e.claimWithID(t, "A", claimID(1), 5)
	require.Equal(t, storage.ClaimReplayed, again.Status)
	require.Equal(t, first.Messages, again.Messages, "a repeat that asks for more gets no more")
}

func replayPaused(t *testing.T, e *env) {
	e.many(t, 2)
	first := e.claimWithID(t, "A", claimID(1), 1)
	require.Len(t, first.Messages, 1)
	_, err := e.store.SetPaused(t.Context(), e.queue.Name, true)
	require.NoError(t, err)
	again := e.claimWithID(t, "A", claimID(1), 1)
	require.Equal(t, storage.ClaimReplayed, again.Status, "what was leased before the pause is still held")
	require.Equal(t, first.Messages, again.Messages)
	got := e.claimWithID(t, "A", claimID(2), 1)
	require.Equal(t, storage.ClaimServed, got.Status)
	require.Empty(t, got.Messages)
}
