package mysql_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/storagetest"
)

// TestS13AMomentIsNoWaitForAPlace: four settlements wait for rows that somebody holds for long, and
// have all places of the slow lane. One whose row was held for a moment, as a claim of MariaDB does
// that walks over it, is through while they wait.
func TestS13AMomentIsNoWaitForAPlace(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "q")
	settling := func(c storage.Claimed) <-chan result[storage.SettleResult] {
		return background(func() (storage.SettleResult, error) {
			return d.store.Settle(context.WithoutCancel(t.Context()), storage.SettleParams{Items: completions([]storage.Claimed{c})})
		})
	}
	rolledBack := func() string { return d.rows(t, "SHOW GLOBAL STATUS LIKE 'Com_rollback'")[0]["Value"] }
	inTime := func() bool {
		enqueue(t, d.store, q.ID, 5)
		claimed := claim(t, d.store, q.ID, 5, time.Minute)
		var releases []func()
		var waiting []<-chan result[storage.SettleResult]
		for _, c := range claimed[:4] {
			releases = append(releases, d.hold(t, c.Message.Ref, storagetest.HoldLock))
			waiting = append(waiting, settling(c))
		}
		d.waits(t, 4, "the slow lane is full")
		release := d.hold(t, claimed[4].Message.Ref, storagetest.HoldLock)
		before := rolledBack()
		fifth := settling(claimed[4])
		require.Eventually(t, func() bool { return rolledBack() != before }, soon, pollEvery, "its first try has met the lock")
		release()
		r := await(t, fifth, "the settlement of the row that is free again")
		require.NoError(t, r.err)
		require.Equal(t, storage.ItemApplied, r.value.Items[0].Status)
		all := !slices.ContainsFunc(waiting, func(w <-chan result[storage.SettleResult]) bool { return len(w) > 0 })
		for i, w := range waiting {
			releases[i]()
			require.NoError(t, await(t, w, "a settlement that waits").err)
		}
		return all
	}
	// A machine that is busy elsewhere may let the row go too late for the tries.
	for range 5 {
		if inTime() {
			return
		}
	}
	require.Fail(t, "it waited for a place each time")
}
