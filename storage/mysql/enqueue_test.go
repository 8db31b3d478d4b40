package mysql_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/internal/proxy"
	"github.com/queuebox/queuebox/storage"
)

// D8: the INSERT of messages without keys is a transaction by itself. Where its answer never
// came, nobody knows whether it happened, and it is not run again: that could be a second
// message. The look in front of it is run again.
func TestD8TheInsertIsItsOwnTransaction(t *testing.T) {
	d := newDatabase(t, false)
	s, p := through(t, d)
	q := queue(t, d.store, "alone")
	stored := func() string { return d.lines(t, "SELECT COUNT(*) FROM message")[0] }
	send := func(at proxy.Moment, text string) error {
		cut := p.CutAt(at, func(st proxy.Statement) bool { return strings.Contains(st.SQL, text) && !st.InTransaction })
		_, err := s.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: q.ID}, {QueueID: q.ID}}})
		struck(t, cut)
		return err
	}
	require.ErrorIs(t, send(proxy.BeforeRequest, "INSERT INTO message"), storage.ErrOutcomeUnknown)
	require.Equal(t, "0", stored())
	require.ErrorIs(t, send(proxy.BeforeAnswer, "INSERT INTO message"), storage.ErrOutcomeUnknown)
	require.Equal(t, "2", stored(), "both or none (E9), and once")
	require.NoError(t, send(proxy.BeforeAnswer, "STRAIGHT_JOIN queue"))
	require.Equal(t, "4", stored())
}

// E6, E2: many wait for a key whose holder rolls back. InnoDB lets all of them go on at once, and
// those that meet then are told apart by the key, or as victims of a deadlock, and run again.
func TestE6ManyWaitForAKeyWhoseHolderRollsBack(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "many")
	for round := range 5 {
		key := fmt.Sprint("key ", round)
		end := d.holdKey(t, q.ID, key)
		const n = 8
		items, errs := make(chan storage.Enqueued, n), make(chan error, n)
		for range n {
			go func() {
				res, err := d.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: q.ID, IdempotencyKey: key}}})
				if err == nil {
					items <- res.Items[0]
				}
				errs <- err
			}()
		}
		require.Eventually(t, func() bool { return d.waiting(t) > 0 }, soon, pollEvery)
		end(false)
		for range n {
			require.NoError(t, <-errs)
		}
		inserted, refs := 0, map[storage.Ref]bool{}
		for range n {
			item := <-items
			refs[item.Ref] = true
			if item.Status == storage.EnqueueInserted {
				inserted++
			}
		}
		require.Equal(t, 1, inserted, "one row, the others are duplicates")
		require.Len(t, refs, 1, "of that row")
	}
}
