package postgres_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/postgres"
)

// O9: the row of a key stays until nothing has used it for a while, whatever each server has
// seen, and goes then.
func TestO9_SweepKeysKeepsWhatWasUsedAWhileAgo(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "keys")
	other := open(t, d.config)
	other.KeepKeys()
	d.store.(*postgres.Store).KeepKeys()
	began := time.Now()
	sweep := func(s storage.Store, at, idle time.Duration) int {
		t.Helper()
		r, err := s.(*postgres.Store).SweepKeysAt(t.Context(), storage.SweepKeysParams{Limit: 100, IdleFor: idle}, began.Add(at))
		require.NoError(t, err)
		return r.Removed
	}
	use := func(keys ...string) {
		t.Helper()
		for _, key := range keys {
			enqueue(t, d.store, q.ID, 1, under(key))
		}
		settle(t, d.store, completions(claim(t, d.store, q.ID, 10, time.Minute))...)
	}
	rows := func() []string { return d.lines(t, "SELECT name FROM queuebox.ordering_key ORDER BY name") }
	const idle = 8 * time.Second
	use("a", "b", "c")
	require.Zero(t, sweep(d.store, 0, idle), "nobody knows since when they are idle")
	require.Zero(t, sweep(d.store, idle-1, idle))
	use("b")
	enqueue(t, d.store, q.ID, 1, under("d"))
	require.Zero(t, sweep(other, idle, idle), "another server has to see it for itself")
	require.Equal(t, 2, sweep(d.store, idle, idle))
	require.Equal(t, []string{"b", "d"}, rows())
	require.Zero(t, sweep(d.store, idle+1, idle), "it was used since")
	// It is made anew as ever, and one that is idle goes with the next moment that was noted.
	use("a")
	require.Equal(t, 1, sweep(other, 2*idle, idle), "both b and d were used, d by the claim, before this server looked")
	require.Equal(t, []string{"a", "d"}, rows())
	require.Equal(t, 2, sweep(d.store, 2*idle, 0), "at once")
	require.Empty(t, rows())
}

// O9: as many keys as there may be go, page by page, and vacuuming forgets when they were used.
func TestO9_SweepKeysRemovesManyIdleKeys(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "keys")
	d.store.(*postgres.Store).KeepKeys()
	const n = 5000
	d.exec(t, "INSERT INTO queuebox.ordering_key (queue_id, name) SELECT "+strconv.Itoa(int(q.ID))+", 'k' || g FROM generate_series(1, 5000) g")
	d.exec(t, "SELECT 1 FROM queuebox.ordering_key FOR UPDATE")
	began := time.Now()
	pass := func(at time.Duration) (removed int) {
		for p := (storage.SweepKeysParams{Limit: 1000, IdleFor: time.Minute}); ; {
			r, err := d.store.(*postgres.Store).SweepKeysAt(t.Context(), p, began.Add(at))
			require.NoError(t, err)
			removed += r.Removed
			if p.After = r.Next; p.After == 0 {
				return removed
			}
		}
	}
	require.Zero(t, pass(0))
	require.Zero(t, pass(59*time.Second))
	d.exec(t, "VACUUM FREEZE queuebox.ordering_key")
	require.Equal(t, n, pass(time.Minute))
}
