package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// TestD12NoDeadlockOverKeysThatAreJustMade: servers enqueue into keys of which each call finds some
// that are there, some that nobody has made yet, and some that another call is just making, so that it
// runs again.
func TestD12NoDeadlockOverKeysThatAreJustMade(t *testing.T) {
	const servers, rounds, keys, batch = 6, 40, 60, 25
	d := newDatabase(t, false)
	q := queue(t, d.store, "made")
	done := make(chan error, servers)
	ctx := context.WithoutCancel(t.Context())
	var arrive [rounds]sync.WaitGroup
	for r := range arrive {
		arrive[r].Add(servers)
	}
	for w := range servers {
		rng := rand.New(rand.NewPCG(12, uint64(w)))
		go func() {
			var failed error
			for round := range rounds {
				arrive[round].Done()
				arrive[round].Wait()
				for range 3 {
					p := storage.EnqueueParams{}
					names := rng.Perm(keys)[:batch]
					slices.Sort(names)
					for _, k := range names {
						p.Messages = append(p.Messages, storage.NewMessage{
							QueueID: q.ID, WireBytes: 100, OrderingKey: fmt.Sprintf("key-%d-%d", round, k),
						})
					}
					if _, err := d.store.Enqueue(ctx, p); err != nil && failed == nil {
						failed = err
					}
				}
			}
			done <- failed
		}()
	}
	for range servers {
		require.NoError(t, <-done)
	}
	// The counts of a session are there for sure when it has ended.
	require.NoError(t, d.store.Close())
	require.Equal(t, []string{"0"}, d.lines(t, "SELECT deadlocks::text FROM pg_stat_database WHERE datname = current_database()"))
}
