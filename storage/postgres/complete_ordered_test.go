package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// O5, O9: a completion finds the next message of its key locked by somebody. It waits for nobody, and
// it does not hand out the one behind it; the sweep of the keys comes back.
func TestO5ACompletionDoesNotJumpALockedMessage(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "locked")
	refs := refsOf(enqueue(t, d.store, q.ID, 3, under("a")))
	held := claim(t, d.store, q.ID, 10, time.Minute)
	s := d.session(t)
	s.end(t, "BEGIN")
	_, err := s.Exec(t.Context(), "SELECT FROM queuebox.message WHERE position = $1 FOR UPDATE", refs[1].Position)
	require.NoError(t, err)
	r, err := d.store.Settle(t.Context(), storage.SettleParams{Items: completions(held)})
	require.NoError(t, err)
	require.Equal(t, storage.ItemApplied, r.Items[0].Status)
	require.Empty(t, r.Ready)
	require.Empty(t, claim(t, d.store, q.ID, 10, time.Minute))
	s.end(t, "ROLLBACK")
	swept, err := d.store.SweepKeys(t.Context(), storage.SweepKeysParams{Limit: 100})
	require.NoError(t, err)
	require.Equal(t, []int32{q.ID}, swept.Ready)
	require.Equal(t, refs[1:2], claimedRefs(claim(t, d.store, q.ID, 10, time.Minute)))
}

// O7: a completion lets its key go on up to a dead message that blocks it, and past one that is none
// any more.
func TestO7ACompletionInABlockedKey(t *testing.T) {
	for _, c := range []struct {
		name      string
		mode      storage.OrderingMode
		blockedBy int // the message whose position blocks
		dead      bool
		goesOn    bool
	}{
		{"blocked before the next", storage.OrderingBlockOnDead, 1, true, false},
		{"blocked behind the next", storage.OrderingBlockOnDead, 3, true, true},
		{"the dead one is gone", storage.OrderingBlockOnDead, 1, false, true},
		{"the queue passes over dead ones", storage.OrderingSkipDead, 1, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDatabase(t, false)
			set := settings()
			set.Ordering = c.mode
			q, err := d.store.CreateQueue(t.Context(), "blocked", set, 0)
			require.NoError(t, err)
			refs := refsOf(enqueue(t, d.store, q.ID, 4, under("a")))
			held := claim(t, d.store, q.ID, 10, time.Minute)
			// As after a redrive of the first: an earlier message is the head of a key that a later one blocks.
			at := refs[c.blockedBy].Position
			if c.dead {
				d.exec(t, `INSERT INTO queuebox.dead (queue_id, position, finish_time, create_time, ready_time, priority, attempt,
					max_attempts, payload_bytes, wire_bytes, state, action, dead_reason, content_type, ordering_key, payload)
					SELECT queue_id, position, now(), create_time, ready_time, priority, 1, 1, 0, 0, 4, 2, 2, '', 'a', ''
					FROM queuebox.message WHERE position = $1`, at)
			}
			d.exec(t, "DELETE FROM queuebox.message WHERE position = $1", at)
			d.exec(t, "UPDATE queuebox.ordering_key SET blocked_by = $1", at)
			r, err := d.store.Settle(t.Context(), storage.SettleParams{Items: completions(held)})
			require.NoError(t, err)
			require.Equal(t, storage.ItemApplied, r.Items[0].Status)
			next := claim(t, d.store, q.ID, 10, time.Minute)
			if !c.goesOn {
				require.Empty(t, r.Ready)
				require.Empty(t, next)
				return
			}
			require.Equal(t, []int32{q.ID}, r.Ready)
			require.Len(t, next, 1)
		})
	}
}
