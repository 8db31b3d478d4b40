package postgres_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/postgres"
)

// under gives the messages of an enqueue these ordering keys, in turn.
func under(keys ...string) func(int, *storage.NewMessage) {
	return func(i int, m *storage.NewMessage) { m.OrderingKey = keys[i%len(keys)] }
}

func refsOf(items []storage.Enqueued) []storage.Ref {
	out := make([]storage.Ref, 0, len(items))
	for _, it := range items {
		out = append(out, it.Ref)
	}
	return out
}

func claimedRefs(claimed []storage.Claimed) []storage.Ref {
	out := make([]storage.Ref, 0, len(claimed))
	for _, c := range claimed {
		out = append(out, c.Message.Ref)
	}
	return out
}

// promote locks a key and puts it right, as every operation on its messages does.
func (d *database) promote(t testing.TB, key string) {
	t.Helper()
	statements, err := postgres.Statements()
	require.NoError(t, err)
	ctx := context.WithoutCancel(t.Context())
	d.lock.Lock()
	defer d.lock.Unlock()
	tx, err := d.beside.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, statements["lock_names"], []int32{1}, []string{key})
	require.NoError(t, err)
	_, err = tx.Exec(ctx, statements["promote"])
	require.NoError(t, err)
	require.NoError(t, tx.Commit(ctx))
}

// O1, O3, O5: a key gives one message at a time, in order, and the reference tells the lane.
func TestO5OneAfterTheOther(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "order")
	plain := enqueue(t, d.store, q.ID, 2)
	a := refsOf(enqueue(t, d.store, q.ID, 3, under("a")))
	b := refsOf(enqueue(t, d.store, q.ID, 2, under("b")))
	for _, r := range append(a, b...) {
		require.Equal(t, int64(1), r.Position&1, "a position of a message with a key is odd")
	}
	require.Zero(t, plain[0].Ref.Position&1)
	first := claim(t, d.store, q.ID, 10, time.Minute)
	require.Equal(t, []storage.Ref{plain[0].Ref, plain[1].Ref, a[0], b[0]}, claimedRefs(first))
	require.Empty(t, claim(t, d.store, q.ID, 10, time.Minute))
	for _, item := range settle(t, d.store, completions(first)...) {
		require.Equal(t, storage.ItemApplied, item.Status)
	}
	second := claim(t, d.store, q.ID, 10, time.Minute)
	require.Equal(t, []storage.Ref{a[1], b[1]}, claimedRefs(second))
	r, err := d.store.Settle(t.Context(), storage.SettleParams{Items: completions(second)})
	require.NoError(t, err)
	require.Equal(t, []int32{q.ID}, r.Ready)
	third := claim(t, d.store, q.ID, 10, time.Minute)
	require.Equal(t, []storage.Ref{a[2]}, claimedRefs(third))
	require.Equal(t, "a", third[0].Message.OrderingKey)
	r, err = d.store.Settle(t.Context(), storage.SettleParams{Items: completions(third)})
	require.NoError(t, err)
	require.Empty(t, r.Ready)
}

// O7: a dead head blocks its key where the queue says so, as long as it is there.
func TestO7ADeadHeadBlocks(t *testing.T) {
	d := newDatabase(t, false)
	s := settings()
	s.Ordering = storage.OrderingBlockOnDead
	q, err := d.store.CreateQueue(t.Context(), "block", s, 0)
	require.NoError(t, err)
	refs := refsOf(enqueue(t, d.store, q.ID, 2, under("a")))
	dead := completions(claim(t, d.store, q.ID, 1, time.Minute))
	dead[0].Action = storage.ActionDeadLetter
	r, err := d.store.Settle(t.Context(), storage.SettleParams{Items: dead})
	require.NoError(t, err)
	require.Equal(t, storage.OutcomeDead, r.Items[0].Outcome)
	require.Empty(t, r.Ready)
	require.Equal(t, []string{strconv.FormatInt(refs[0].Position, 10)}, d.lines(t, "SELECT blocked_by::text FROM queuebox.ordering_key"))
	require.Empty(t, claim(t, d.store, q.ID, 10, time.Minute))
	// A new one waits as well, and another key does not.
	enqueue(t, d.store, q.ID, 1, under("a"))
	b := refsOf(enqueue(t, d.store, q.ID, 1, under("b")))
	require.Equal(t, b, claimedRefs(claim(t, d.store, q.ID, 10, time.Minute)))
	stats, err := d.store.QueueStats(t.Context(), q.ID)
	require.NoError(t, err)
	require.EqualValues(t, 2, stats.Blocked)
	// The dead one is gone: the key goes on with whatever is done to it next.
	d.exec(t, "DELETE FROM queuebox.dead")
	d.promote(t, "a")
	require.Equal(t, refs[1:], claimedRefs(claim(t, d.store, q.ID, 10, time.Minute)))
	require.Equal(t, []string{"0"}, d.lines(t, "SELECT count(blocked_by)::text FROM queuebox.ordering_key"))
}

// O7: an earlier message takes its place in front of an unleased head, and behind a leased one.
func TestO7AnEarlierMessageStepsInFront(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "front")
	refs := refsOf(enqueue(t, d.store, q.ID, 3, under("a")))
	// What a redrive does, by hand: the first one is there again, parked.
	d.exec(t, "UPDATE queuebox.message SET place = 2")
	d.exec(t, "UPDATE queuebox.message SET place = 0 WHERE position = $1", refs[1].Position)
	d.promote(t, "a")
	held := claim(t, d.store, q.ID, 10, time.Minute)
	require.Equal(t, refs[:1], claimedRefs(held))
	require.Equal(t, "2", d.row(t, refs[1])["place"])
	// Behind a leased one it is next, even where that one comes back.
	d.exec(t, "UPDATE queuebox.message SET place = 2, state = 0 WHERE position = $1", refs[0].Position)
	d.exec(t, "UPDATE queuebox.message SET place = 0 WHERE position = $1", refs[1].Position)
	held = claim(t, d.store, q.ID, 10, time.Minute)
	require.Equal(t, refs[1:2], claimedRefs(held))
	d.promote(t, "a")
	require.Empty(t, claim(t, d.store, q.ID, 10, time.Minute))
	back := completions(held)
	back[0].Action = storage.ActionRelease
	r, err := d.store.Settle(t.Context(), storage.SettleParams{Items: back})
	require.NoError(t, err)
	require.Equal(t, []int32{q.ID}, r.Ready)
	require.Equal(t, refs[:1], claimedRefs(claim(t, d.store, q.ID, 10, time.Minute)))
}

// The database refuses a second head, whatever a statement does.
func TestO1TwoHeadsAreImpossible(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "two")
	refs := refsOf(enqueue(t, d.store, q.ID, 2, under("a")))
	for _, place := range []int{0, 1} {
		_, err := d.beside.Exec(t.Context(), "UPDATE queuebox.message SET place = $1 WHERE position = $2", place, refs[1].Position)
		require.ErrorContains(t, err, "message_head")
	}
}

// Idempotency keys and ordering keys in one call, with messages that have neither.
func TestO5KeysOfBothKinds(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "both")
	send := func() []storage.Enqueued {
		return enqueue(t, d.store, q.ID, 4, func(i int, m *storage.NewMessage) {
			m.IdempotencyKey = []string{"x", "", "y", ""}[i]
			m.OrderingKey = []string{"a", "a", "", "b"}[i]
			m.ContentHash = [32]byte{byte(i)}
		})
	}
	first := refsOf(send())
	for i, r := range first {
		require.Equal(t, map[bool]int64{true: 0, false: 1}[i == 2], r.Position&1)
		require.True(t, i == 0 || first[i-1].Position < r.Position)
	}
	again := send()
	require.Equal(t, storage.EnqueueDuplicate, again[0].Status)
	require.Equal(t, first[0], again[0].Ref)
	require.Equal(t, storage.EnqueueInserted, again[1].Status)
	require.Equal(t, []storage.Ref{first[0], first[2], first[3]}, claimedRefs(claim(t, d.store, q.ID, 10, time.Minute)))
	require.Equal(t, []string{"3"}, d.lines(t, "SELECT count(*)::text FROM queuebox.message WHERE place = 2"))
	m, err := d.store.GetMessage(t.Context(), first[1], false)
	require.NoError(t, err)
	require.Equal(t, storage.StatePending, m.State)
	require.Equal(t, "a", m.OrderingKey)
}

// E9: a call of which the queue of one message is not there leaves nothing, keys neither.
func TestAnEnqueueThatFailsLeavesNoKey(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "there")
	before := d.dump(t)
	_, err := d.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{
		{QueueID: q.ID, OrderingKey: "a"}, {QueueID: q.ID + 1000, OrderingKey: "a"},
	}})
	require.ErrorIs(t, err, storage.ErrQueueNotFound)
	require.Equal(t, before, d.dump(t))
}
