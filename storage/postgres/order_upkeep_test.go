package postgres_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// C18, O7: a head whose last attempt crashed ends, by a page or by name, and its key moves on.
func TestC18TheKeyOfACrashMovesOn(t *testing.T) {
	for _, mode := range []storage.OrderingMode{storage.OrderingSkipDead, storage.OrderingBlockOnDead} {
		for _, named := range []bool{false, true} {
			t.Run(fmt.Sprintf("mode %d named %t", mode, named), func(t *testing.T) {
				d := newDatabase(t, true)
				now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
				d.setClock(t, now)
				set := settings()
				set.Ordering = mode
				q, err := d.store.CreateQueue(t.Context(), "crash", set, 0)
				require.NoError(t, err)
				last := func(_ int, m *storage.NewMessage) { m.MaxAttempts = 1 }
				plain := refsOf(enqueue(t, d.store, q.ID, 1, last))
				refs := refsOf(enqueue(t, d.store, q.ID, 3, under("a"), last))
				require.Len(t, claim(t, d.store, q.ID, 10, time.Minute), 2)
				d.setClock(t, now.Add(time.Minute))
				p := storage.SweepParams{Limit: 1000}
				if named {
					p.Refs = slices.Concat(plain, refs)
				}
				r, err := d.store.Sweep(t.Context(), p)
				require.NoError(t, err)
				require.Equal(t, 2, r.Dead)
				if mode == storage.OrderingBlockOnDead {
					require.Empty(t, r.Ready)
					require.Empty(t, claim(t, d.store, q.ID, 10, time.Minute))
					return
				}
				require.Equal(t, []int32{q.ID}, r.Ready)
				require.Equal(t, refs[1:2], claimedRefs(claim(t, d.store, q.ID, 10, time.Minute)))
			})
		}
	}
}

// A sweep waits for nobody: messages of a key that somebody has are left for the next time.
func TestASweepPassesOverHeldKeys(t *testing.T) {
	d := newDatabase(t, true)
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	d.setClock(t, now)
	q := queue(t, d.store, "held")
	refs := refsOf(enqueue(t, d.store, q.ID, 2, under("a", "b"), func(_ int, m *storage.NewMessage) {
		m.ExpireTime = now.Add(time.Second)
	}))
	d.setClock(t, now.Add(time.Second))
	conn := d.connect(t)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT 1 FROM queuebox.ordering_key WHERE name = 'a' FOR UPDATE")
	require.NoError(t, err)
	r, err := d.store.Sweep(t.Context(), storage.SweepParams{Limit: 1000})
	require.NoError(t, err)
	require.Equal(t, 1, r.Expired)
	require.NotNil(t, d.row(t, refs[0]))
	k, err := d.store.SweepKeys(t.Context(), storage.SweepKeysParams{Limit: 1000})
	require.NoError(t, err)
	require.Equal(t, 1, k.Removed, "the key of b")
	require.NoError(t, tx.Rollback(t.Context()))
	r, err = d.store.Sweep(t.Context(), storage.SweepParams{Limit: 1000})
	require.NoError(t, err)
	require.Equal(t, 1, r.Expired)
}

// S14: a cancelled head lets the next one go, a cancelled follower nobody.
func TestS14TheKeyOfACancelMovesOn(t *testing.T) {
	d := newDatabase(t, false)
	set := settings()
	set.Ordering = storage.OrderingBlockOnDead
	q, err := d.store.CreateQueue(t.Context(), "cancel", set, 0)
	require.NoError(t, err)
	refs := refsOf(enqueue(t, d.store, q.ID, 3, under("a")))
	cancel := func(ref storage.Ref) storage.CancelResult {
		r, err := d.store.Cancel(t.Context(), storage.CancelParams{QueueID: q.ID, Ref: ref})
		require.NoError(t, err)
		require.Equal(t, storage.StateCancelled, r.State)
		return r
	}
	require.False(t, cancel(refs[1]).Ready)
	require.True(t, cancel(refs[0]).Ready)
	require.False(t, cancel(refs[0]).Ready, "once more")
	require.Equal(t, refs[2:], claimedRefs(claim(t, d.store, q.ID, 10, time.Minute)))
}

// O9: the sweep of keys removes what nobody needs and puts right what a lock kept from it.
func TestSweepKeys(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "keys")
	sweep := func() storage.SweepKeysResult {
		var sum storage.SweepKeysResult
		for {
			r, err := d.store.SweepKeys(t.Context(), storage.SweepKeysParams{After: sum.Next, Limit: 2})
			require.NoError(t, err)
			sum.Removed += r.Removed
			sum.Ready = append(sum.Ready, r.Ready...)
			sum.Next, sum.Now = r.Next, r.Now
			if r.Next == 0 {
				return sum
			}
		}
	}
	enqueue(t, d.store, q.ID, 2, under("a"))
	enqueue(t, d.store, q.ID, 1, under("b"))
	enqueue(t, d.store, q.ID, 1, under("c"))
	for range 2 {
		require.Zero(t, sweep().Removed, "all are needed")
	}
	for range 2 {
		settle(t, d.store, completions(claim(t, d.store, q.ID, 10, time.Minute))...)
	}
	require.Equal(t, 3, sweep().Removed)
	require.Equal(t, []string{"0"}, d.lines(t, "SELECT count(*)::text FROM queuebox.ordering_key"))

	// The next message of the key is locked by somebody while the head is settled.
	a := refsOf(enqueue(t, d.store, q.ID, 2, under("a")))
	head := claim(t, d.store, q.ID, 10, time.Minute)
	conn := d.connect(t)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT 1 FROM queuebox.message WHERE position = $1 FOR UPDATE", a[1].Position)
	require.NoError(t, err)
	settle(t, d.store, completions(head)...)
	require.Empty(t, sweep().Ready, "still locked")
	require.NoError(t, tx.Rollback(t.Context()))
	require.Empty(t, claim(t, d.store, q.ID, 10, time.Minute), "else this test proves nothing")
	require.Equal(t, []int32{q.ID}, sweep().Ready)
	require.Equal(t, a[1:], claimedRefs(claim(t, d.store, q.ID, 10, time.Minute)))

	// A block that is no more: the mode was changed, or the dead one is gone.
	for _, lift := range []string{"DELETE FROM queuebox.dead", "UPDATE queuebox.queue SET ordering_mode = 1"} {
		set := settings()
		set.Ordering = storage.OrderingBlockOnDead
		q, err := d.store.CreateQueue(t.Context(), "block "+lift, set, 0)
		require.NoError(t, err)
		refs := refsOf(enqueue(t, d.store, q.ID, 2, under("x")))
		enqueue(t, d.store, q.ID, 1, under("y"))
		dead := completions(claim(t, d.store, q.ID, 10, time.Minute))
		dead[0].Action, dead[1].Action = storage.ActionDeadLetter, storage.ActionDeadLetter
		settle(t, d.store, dead...)
		r := sweep()
		require.Zero(t, r.Removed, "both keys are blocked")
		require.Empty(t, r.Ready)
		d.exec(t, lift)
		r = sweep()
		require.Equal(t, []int32{q.ID}, r.Ready)
		require.Equal(t, 1, r.Removed, "the key without a message")
		require.Equal(t, refs[1:], claimedRefs(claim(t, d.store, q.ID, 10, time.Minute)))
	}
}
