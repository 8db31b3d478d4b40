package storagetest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// blockedRules check what a server asks to say why a claim was empty (C17).
func blockedRules() []rule {
	return []rule{
		{name: "C17_a_queue_says_whether_messages_wait_behind_their_keys", clocks: bothClocks, run: blocked},
		{name: "C17_O7_also_behind_a_dead_message", clocks: settable, run: blockedDead},
		{name: "C17_the_sweep_of_the_keys_names_their_queues", clocks: bothClocks, run: blockedQueues},
	}
}

func (e *env) requireBlocked(t *testing.T, want bool, what string) {
	t.Helper()
	e.unchanged(t, func() {
		for _, s := range []storage.Store{e.store, e.other} {
			got, err := s.Blocked(t.Context(), e.queue.ID)
			require.NoError(t, err)
			require.Equal(t, want, got, what)
		}
	})
}

func blocked(t *testing.T, e *env) {
	other := e.on(e.newQueue(t, settings()))
	e.requireBlocked(t, false, "an empty queue")
	e.many(t, 3)
	e.one(t, ordered("a"))
	e.one(t, ordered("b"))
	e.requireBlocked(t, false, "heads alone")
	e.one(t, ordered("b"))
	e.requireBlocked(t, true, "one behind a head")
	other.requireBlocked(t, false, "another queue")
	for _, c := range e.claimN(t, 10) {
		e.requireBlocked(t, true, "behind a head, whatever becomes of others")
		if c.Message.OrderingKey != "b" {
			e.complete(t, c)
			continue
		}
		defer func() {
			e.completeNext(t, c)
			e.requireBlocked(t, false, "it is the head now")
		}()
	}
	e.requireBlocked(t, true, "behind a head that is held")
}

func blockedDead(t *testing.T, e *env) {
	s := settings()
	s.Ordering = storage.OrderingBlockOnDead
	e = e.on(e.newQueue(t, s))
	e.one(t, ordered("a"))
	require.Equal(t, storage.ItemApplied, e.settle(t, settlement(e.claimOne(t), storage.ActionDeadLetter))[0].Status)
	e.requireBlocked(t, false, "nothing waits")
	e.one(t, ordered("a"))
	e.requireBlocked(t, true, "behind the dead one")
	e.claimNothing(t)
}

func blockedQueues(t *testing.T, e *env) {
	other := e.on(e.newQueue(t, settings()))
	plain := e.on(e.newQueue(t, settings()))
	for i := range 3 {
		e.many(t, 2, ordered(fmt.Sprint("a", i)))
	}
	other.one(t, ordered("b"))
	plain.one(t)
	named := map[int32]bool{}
	for p := (storage.SweepKeysParams{Limit: 2}); ; {
		res, err := e.store.SweepKeys(t.Context(), p)
		require.NoError(t, err)
		for _, id := range res.Queues {
			named[id] = true
		}
		if p.After = res.Next; p.After == 0 {
			break
		}
	}
	require.True(t, named[e.queue.ID])
	require.True(t, named[other.queue.ID])
	require.False(t, named[plain.queue.ID])
}
