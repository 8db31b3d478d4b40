package storagetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// joinedRules check what a server leans on that joins the calls of many callers into one: a
// write with a LockWait waits for no row, and what it could not have is told apart from all
// else, so that it can be asked for again by itself.
func joinedRules() []rule {
	var rules []rule
	for _, w := range heldWrites() {
		for _, key := range []string{"", "key"} {
			name := w.rules + "_" + w.name + "_with_a_lock_wait/a_row_that_somebody_holds_is_told_at_once_and_changes_nothing"
			if key != "" {
				name += "_of_a_message_with_a_key"
			}
			rules = append(rules, rule{name: name, clocks: settable, skip: needsRowLocks, run: func(t *testing.T, e *env) {
				joinedHeldRow(t, e, w, key)
			}})
		}
	}
	return append(
		rules,
		rule{name: "E6_E9_a_joined_enqueue_gives_up_soon_where_somebody_holds_a_key_and_inserts_nothing", clocks: bothClocks, run: joinedHeldKey, skip: needsHeldKeys},
		rule{name: "E6_E9_a_joined_enqueue_that_was_locked_out_tells_which_keys_are_held", clocks: bothClocks, run: joinedFindHeld, skip: needsHeldKeys},
		rule{name: "S10_E6_a_joined_completion_gives_up_soon_where_somebody_holds_the_key_of_a_follow_up", clocks: bothClocks, run: joinedHeldFollowUp, skip: needsHeldKeys},
		rule{name: "O1_a_position_tells_whether_its_message_has_a_key", clocks: settable, run: oddKeyed, skip: needsOddKeyed},
	)
}

// joinedWait is longer than a statement takes, and much shorter than the usual wait.
const joinedWait = 50 * time.Millisecond

func joinedHeldRow(t *testing.T, e *env, w heldWrite, key string) {
	var opts []func(*storage.NewMessage)
	if key != "" {
		opts = append(opts, func(m *storage.NewMessage) { m.OrderingKey = key })
	}
	ref := e.one(t, opts...)
	held := e.claimOneAs(t, "holder", time.Hour)
	require.Equal(t, ref, held.Message.Ref)
	e.many(t, 3)
	neighbours := e.claimAs(t, "neighbour", 3, time.Hour)
	require.Len(t, neighbours, 3)
	release := e.in.Hold(t, ref, HoldLock)
	defer func() { release() }()
	row := e.liveRow(t, ref)
	got, err := w.do(t.Context(), e.store, []storage.Claimed{neighbours[0], held, neighbours[1], neighbours[2]}, joinedWait)
	require.NoError(t, err)
	for i, a := range got {
		if i == 1 {
			require.Equal(t, storage.ItemHeld, a.status)
			continue
		}
		require.Equal(t, storage.ItemApplied, a.status, "neighbour %d", i)
	}
	require.Equal(t, row, e.liveRow(t, ref), "nothing changed")
	release()
	release = func() {}
	require.Equal(t, row, e.liveRow(t, ref), "and nothing changes later")
	got, err = w.do(t.Context(), e.store, []storage.Claimed{held}, joinedWait)
	require.NoError(t, err)
	require.Equal(t, storage.ItemApplied, got[0].status, "asked again, it is applied")
}

func joinedHeldKey(t *testing.T, e *env) {
	end := e.in.HoldIdempotencyKey(t, e.queue.ID, "key")
	ended := false
	defer func() {
		if !ended {
			end(false)
		}
	}()
	ms := []storage.NewMessage{e.message(), e.message(keyed("other", "content")), e.message(keyed("key", "content"))}
	_, err := e.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: ms, LockWait: joinedWait})
	require.ErrorIs(t, err, storage.ErrLocked, "the key is held all the while")
	require.Empty(t, e.claimN(t, 10), "all or nothing")
	res, err := e.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: ms[:2], LockWait: joinedWait})
	require.NoError(t, err, "the others go without it")
	require.Equal(t, []storage.Ref{res.Items[0].Ref, res.Items[1].Ref}, refsOf(e.claimN(t, 10)))
	end(false)
	ended = true
	res, err = e.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: ms[2:], LockWait: joinedWait})
	require.NoError(t, err)
	require.Equal(t, storage.EnqueueInserted, res.Items[0].Status)
}

// joinedFindHeld: of many keys some are held, by a session that has just taken them or by one
// that has locked what was there before.
func joinedFindHeld(t *testing.T, e *env) {
	e.many(t, 1, keyed("old", "content"))
	ends := []func(bool){e.in.HoldIdempotencyKey(t, e.queue.ID, "held 1"), e.in.HoldIdempotencyKey(t, e.queue.ID, "held 2 \u00e4\"'\\")}
	defer func() {
		for _, end := range ends {
			end(false)
		}
	}()
	ms := []storage.NewMessage{
		e.message(), e.message(keyed("other", "content")), e.message(keyed("held 1", "content")),
		e.message(keyed("old", "content")), e.message(keyed("held 2 \u00e4\"'\\", "content")), e.message(keyed("held 1", "content")),
	}
	before := e.in.Dump(t)
	res, err := e.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: ms, LockWait: joinedWait, FindHeld: true})
	require.NoError(t, err)
	require.Len(t, res.Items, len(ms))
	for i, item := range res.Items {
		require.Equal(t, i == 2 || i == 4 || i == 5, item.Status == storage.EnqueueHeld, "item %d: %+v", i, item)
		require.Zero(t, item.Ref, "item %d", i)
	}
	require.Equal(t, before, e.in.Dump(t), "nothing was inserted")
	free := []storage.NewMessage{ms[0], ms[1], ms[3]}
	res, err = e.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: free, LockWait: joinedWait, FindHeld: true})
	require.NoError(t, err, "where none is held it inserts")
	require.Equal(t, []storage.EnqueueStatus{storage.EnqueueInserted, storage.EnqueueInserted, storage.EnqueueDuplicate},
		[]storage.EnqueueStatus{res.Items[0].Status, res.Items[1].Status, res.Items[2].Status})
	require.Len(t, e.claimN(t, 10), 3)
}

func joinedHeldFollowUp(t *testing.T, e *env) {
	e.many(t, 2)
	cs := e.claimAs(t, "worker", 2, time.Hour)
	require.Len(t, cs, 2)
	end := e.in.HoldIdempotencyKey(t, e.queue.ID, "key")
	ended := false
	defer func() {
		if !ended {
			end(false)
		}
	}()
	items := []storage.Settlement{
		completion(cs[0].Message.Ref, cs[0].Token, e.message(keyed("key", "content"))),
		completion(cs[1].Message.Ref, cs[1].Token, e.message(keyed("other", "content"))),
	}
	res, err := e.store.Settle(t.Context(), storage.SettleParams{Items: items, LockWait: joinedWait})
	require.NoError(t, err)
	require.Equal(t, storage.ItemHeld, res.Items[0].Status)
	require.Equal(t, storage.ItemApplied, res.Items[1].Status)
	end(false)
	ended = true
	res, err = e.store.Settle(t.Context(), storage.SettleParams{Items: items[:1], LockWait: joinedWait})
	require.NoError(t, err)
	require.Equal(t, storage.ItemApplied, res.Items[0].Status, "the claim was held as before")
}

func needsOddKeyed(_ *Instance, c storage.Capabilities) string {
	if !c.OddKeyed {
		return "Capabilities.OddKeyed is false"
	}
	return ""
}

func oddKeyed(t *testing.T, e *env) {
	with := func(m *storage.NewMessage) { m.OrderingKey = "key" }
	require.False(t, e.caps.Keyed(e.one(t)))
	require.True(t, e.caps.Keyed(e.one(t, with)))
	require.False(t, e.caps.Keyed(e.one(t, keyed("idempotency", "content"))))
	require.True(t, e.caps.Keyed(e.one(t, with, keyed("both", "content"))))
}
