package storagetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// ownOrder: transactions one after the other keep their order within a key, whoever places
// them and in however small pieces.
func ownOrder(t *testing.T, e *env) {
	var want []string
	for i := range 4 {
		s := e.begin(t, e.anyLevel())
		for k := range 3 {
			text := string([]byte{'a' + byte(i), 'a' + byte(k)})
			m := e.message(ordered("key"), payload([]byte(text)))
			if k == 1 {
				m.IdempotencyKey = text // goes through another part of the placer
			}
			require.NoError(t, e.appendOwn(s, t, m))
			want = append(want, text)
		}
		require.NoError(t, e.appendOwn(s, t, e.message(ordered("other"))))
		require.NoError(t, s.Commit())
		// Some are placed meanwhile, by two servers.
		for _, store := range []storage.Store{e.store, e.other} {
			_, err := store.Place(t.Context(), storage.PlaceParams{Limit: 2})
			require.NoError(t, err)
		}
	}
	e.place(t)
	var got []string
	for len(got) < len(want) {
		batch := e.claimN(t, 10)
		require.NotEmpty(t, batch)
		ofKey := 0
		for _, c := range batch {
			if c.Message.OrderingKey == "key" {
				got = append(got, string(c.Message.Payload))
				ofKey++
			}
			e.complete(t, c)
		}
		require.LessOrEqual(t, ofKey, 1, "O3")
	}
	require.Equal(t, want, got)
}

// ownKeyGoesOn: a mark ends the head of a key, and the next one is there once it is finished;
// a retry keeps its key (O6).
func ownKeyGoesOn(t *testing.T, e *env) {
	refs := e.enqueue(t, e.message(ordered("key")), e.message(ordered("key")), e.message(ordered("key")))
	for i, a := range []storage.Action{storage.ActionComplete, storage.ActionDeadLetter} {
		c := e.claimOne(t)
		require.Equal(t, refs[i], c.Message.Ref)
		e.marked(t, settlement(c, a))
		e.claimNothing(t)
		done := e.finishMarks(t)
		require.Contains(t, done.Ready, storage.QueueReady{QueueID: e.queue.ID, ReadyTime: e.now}, "who waits is told")
	}
	c := e.claimOne(t)
	behind := e.one(t, ordered("key"))
	e.marked(t, settlement(c, storage.ActionRetry))
	e.finishMarks(t)
	e.claimNothing(t)
	e.advance(t, 7*time.Second)
	c = e.claimOne(t)
	require.Equal(t, refs[2], c.Message.Ref, "the head holds its key while it waits for its retry")
	e.marked(t, settlement(c, storage.ActionComplete))
	e.finishMarks(t)
	require.Equal(t, behind, e.claimOne(t).Message.Ref)
}

// ownBlocks: BLOCK_ON_DEAD holds for the end that a mark makes, and for a message that was
// dead when it was placed.
func ownBlocks(t *testing.T, e *env) {
	set := settings()
	set.Ordering = storage.OrderingBlockOnDead
	e = e.on(e.newQueue(t, set))
	e.enqueue(t, e.message(ordered("key")), e.message(ordered("key")))
	e.marked(t, settlement(e.claimOne(t), storage.ActionDeadLetter))
	e.finishMarks(t)
	e.claimNothing(t)
	e.enqueueOwn(t, e.message(ordered("key")), e.message(ordered("free")))
	require.Equal(t, 2, e.place(t).Placed)
	require.Equal(t, "free", e.claimOne(t).Message.OrderingKey, "another key goes on")
	// A reused key where nothing else of the ordering key is alive.
	m := e.message(payload([]byte("first")), func(m *storage.NewMessage) { m.IdempotencyKey = "idem" })
	m.ContentHash = storage.ContentHash(&m)
	e.enqueue(t, m)
	e.complete(t, e.claimOne(t))
	m.Payload, m.OrderingKey = []byte("second"), "third"
	e.enqueueOwn(t, m, e.message(ordered("third")))
	done := e.place(t)
	require.Equal(t, [2]int{1, 1}, [2]int{done.Placed, done.Reused})
	e.claimNothing(t)
}

// ownLateCommit: the bound from which a server looks must never pass a transaction that is
// still open, however many later ones were placed and finished meanwhile.
func ownLateCommit(t *testing.T, e *env) {
	e.many(t, 12)
	claimed := e.claimN(t, 12)
	late := e.begin(t, e.anyLevel())
	require.NoError(t, e.appendOwn(late, t, e.message(payload([]byte("late")))))
	require.NoError(t, e.appendOwn(late, t, e.message(ordered("key"), payload([]byte("late too")))))
	rows, err := e.mark(late, t, claimed[0], storage.ActionComplete)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	for _, c := range claimed[1:] {
		s := e.begin(t, e.anyLevel())
		require.NoError(t, e.appendOwn(s, t, e.message(ordered("key"))))
		_, err := e.mark(s, t, c, storage.ActionComplete)
		require.NoError(t, err)
		require.NoError(t, s.Commit())
		require.Equal(t, 1, e.place(t).Placed)
		require.Len(t, e.finishMarks(t).Finished, 1)
	}
	// Looks that find nothing move the bound too.
	for range 3 {
		require.Zero(t, e.place(t).Placed)
		require.Empty(t, e.finishMarks(t).Finished)
	}
	require.NoError(t, late.Commit())
	require.Equal(t, 2, e.place(t).Placed)
	require.Equal(t, claimed[0].Message.Ref, e.finishMarks(t).Finished[0].Ref)
}
