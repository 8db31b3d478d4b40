package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/postgres"
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

// TestD12NoDeadlockWhateverIsDoneToKeys: keys are made, used in every way, and go away again, through
// two servers.
func TestD12NoDeadlockWhateverIsDoneToKeys(t *testing.T) {
	const rounds = 100
	d := newDatabase(t, false)
	q := queue(t, d.store, "keys")
	stores := []*postgres.Store{d.store.(*postgres.Store), open(t, d.config)}
	ctx := context.WithoutCancel(t.Context())
	var made atomic.Int64 // every so many messages keys of other names come up
	message := func(rng *rand.Rand) storage.NewMessage {
		some := made.Add(1) / 500
		m := storage.NewMessage{QueueID: q.ID, WireBytes: 100, OrderingKey: fmt.Sprintf("key-%d-%d", some, rng.IntN(40))}
		if rng.IntN(4) == 0 {
			m.IdempotencyKey = fmt.Sprintf("once-%d-%d", some, rng.IntN(60))
		}
		return m
	}
	enqueue := func(s *postgres.Store, rng *rand.Rand) error {
		p := storage.EnqueueParams{}
		for range 15 {
			m := message(rng)
			if rng.IntN(2) == 0 {
				m.IdempotencyKey = ""
			}
			p.Messages = append(p.Messages, m)
		}
		_, err := s.Enqueue(ctx, p)
		return err
	}
	complete := func(s *postgres.Store, rng *rand.Rand, most, followUps int) error {
		r, err := s.Claim(ctx, storage.ClaimParams{QueueID: q.ID, Calls: []storage.ClaimCall{{Max: most, Lease: time.Minute}}})
		if err != nil {
			return err
		}
		items := completions(r.Calls[0].Messages)
		rng.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
		for i := range items {
			if rng.IntN(20) == 0 && followUps == 0 {
				items[i].Action = storage.ActionDeadLetter
			}
			for range followUps {
				items[i].FollowUps = append(items[i].FollowUps, message(rng))
			}
		}
		_, err = s.Settle(ctx, storage.SettleParams{Items: items})
		return err
	}
	upkeep := func(s *postgres.Store) error {
		_, err := s.SweepKeys(ctx, storage.SweepKeysParams{Limit: 1000})
		if err == nil {
			_, err = s.Redrive(ctx, storage.RedriveParams{Filter: storage.ListMessagesParams{QueueID: q.ID}, Limit: 50})
		}
		if err == nil {
			pending := storage.ListMessagesParams{QueueID: q.ID, States: []storage.State{storage.StatePending}}
			_, err = s.Purge(ctx, storage.PurgeParams{Filter: pending, Limit: 20})
		}
		return err
	}
	var workers sync.WaitGroup
	for w := range 10 {
		s, rng := stores[w%2], rand.New(rand.NewPCG(12, uint64(w)))
		workers.Go(func() {
			for range rounds {
				var err error
				switch w / 2 {
				case 0, 1:
					err = enqueue(s, rng)
				case 2:
					err = complete(s, rng, 6, 2)
				case 3:
					err = complete(s, rng, 100, 0)
				default:
					err = upkeep(s)
				}
				if err != nil {
					t.Log(err) // a lock not had in time, where there are deadlocks
				}
			}
		})
	}
	workers.Wait()
	_, err := stores[0].SweepKeys(ctx, storage.SweepKeysParams{Limit: 10000})
	require.NoError(t, err)
	require.Empty(t, d.lines(t, "SELECT key_id::text FROM queuebox.message WHERE key_id IS NOT NULL GROUP BY key_id HAVING min(place) = 2"), "keys without a head")
	for _, s := range stores {
		require.NoError(t, s.Close())
	}
	require.Equal(t, []string{"0"}, d.lines(t, "SELECT deadlocks::text FROM pg_stat_database WHERE datname = current_database()"))
}
