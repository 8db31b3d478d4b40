package storagetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// orderedRaceRules run Redrive and Purge of keyed messages against claims and settlements.
func orderedRaceRules() []rule {
	return []rule{
		{name: "O1_O2_O5_redrive_against_claims_of_its_key", clocks: realClock, run: raceRedriveOrdered},
		{name: "O1_O9_D12_redrive_and_purge_against_enqueues_and_settlements", clocks: realClock, run: raceOperateOrdered},
	}
}

// holders counts who holds a key, between the answer of a claim and the settlement.
type holders struct {
	mu    sync.Mutex
	byKey map[string]int
	worst int
	order map[string][]storage.Ref
}

func (h *holders) took(c storage.Claimed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := c.Message.OrderingKey
	h.byKey[key]++
	h.worst = max(h.worst, h.byKey[key])
	h.order[key] = append(h.order[key], c.Message.Ref)
}

func (h *holders) leaves(c storage.Claimed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.byKey[c.Message.OrderingKey]--
}

func newHolders() *holders {
	return &holders{byKey: map[string]int{}, order: map[string][]storage.Ref{}}
}

// work claims and completes until nothing is live any more.
func (e *env) work(ctx context.Context, s storage.Store, h *holders, live func() bool) error {
	for {
		out, err := e.rawClaim(ctx, s, call("A", 3, time.Hour))
		if err != nil {
			return err
		}
		for _, c := range out.Messages {
			h.took(c)
		}
		for _, c := range out.Messages {
			h.leaves(c)
			res, err := s.Settle(ctx, storage.SettleParams{Items: []storage.Settlement{settlement(c, storage.ActionComplete)}})
			if err != nil {
				return err
			}
			if res.Items[0].Status != storage.ItemApplied {
				return fmt.Errorf("complete of %v: status %d", c.Message.Ref, res.Items[0].Status)
			}
		}
		if len(out.Messages) > 0 {
			continue
		}
		if !live() {
			return nil
		}
		// A row that was locked while its key moved on waits for the sweep (O9).
		if _, err := s.SweepKeys(ctx, storage.SweepKeysParams{Limit: 1000}); err != nil {
			return err
		}
	}
}

func raceRedriveOrdered(t *testing.T, e *env) {
	const keys, each = 4, 6
	for round := range 8 {
		var ms []storage.NewMessage
		for i := range keys * each {
			ms = append(ms, e.message(ordered(fmt.Sprint("key ", i%keys))))
		}
		refs := e.enqueue(t, ms...)
		for range 2 {
			e.reject(t, refs[:keys]...)
		}
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		h := newHolders()
		stores := []storage.Store{e.store, e.other}
		passes := 0
		// A message that is redriven between two statements of a count is in neither, so nobody
		// believes a count before all of them are.
		var redriven atomic.Bool
		err := together(3, func(i int) error {
			if i == 2 {
				defer redriven.Store(true)
				// A key that somebody has for long is left for the next pass.
				for n := 0; n < 2*keys; passes++ {
					some, err := e.rawRedrive(ctx, e.store, 1+round%3)
					if err != nil {
						return err
					}
					n += some
				}
				return nil
			}
			return e.work(ctx, stores[i], h, func() bool {
				if !redriven.Load() {
					return true
				}
				stats, err := stores[i].QueueStats(ctx, e.queue.ID)
				return err != nil || stats.Dead+stats.Ready+stats.Blocked+stats.Delayed+stats.Leased > 0
			})
		})
		cancel()
		require.NoError(t, err, "round %d", round)
		require.LessOrEqual(t, h.worst, 1, "round %d: O1: one live lease a key", round)
		got := []storage.Ref{}
		for key, order := range h.order {
			require.Len(t, order, each, "round %d: each of %s once", round, key)
			got = append(got, order...)
			early := func(ref storage.Ref) bool { return slices.Index(refs, ref) < 2*keys }
			for _, part := range [][]storage.Ref{
				slices.DeleteFunc(slices.Clone(order), early),
				slices.DeleteFunc(slices.Clone(order), func(ref storage.Ref) bool { return !early(ref) }),
			} {
				require.True(t, passes > 1 || slices.IsSortedFunc(part, func(a, b storage.Ref) int { return int(a.Position - b.Position) }),
					"round %d: O5: %s in %v", round, key, order)
			}
		}
		require.ElementsMatch(t, refs, got)
	}
}

func raceOperateOrdered(t *testing.T, e *env) {
	// Two producers, two workers of which one rejects now and then, redrives and purges, all
	// on three keys; then all is drained, and what was enqueued is what was completed or purged.
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	h := newHolders()
	stores := []storage.Store{e.store, e.other}
	var mu sync.Mutex
	var enqueued, completed, purged int
	add := func(n *int, by int) {
		mu.Lock()
		defer mu.Unlock()
		*n += by
	}
	until := time.Now().Add(1500 * time.Millisecond)
	err := together(6, func(i int) error {
		s := stores[i%2]
		for n := 0; time.Now().Before(until); n++ {
			switch i {
			case 0, 1:
				m := e.message(ordered(fmt.Sprint("key ", n%3)))
				if _, err := s.Enqueue(ctx, storage.EnqueueParams{Messages: []storage.NewMessage{m, m}}); err != nil {
					return err
				}
				add(&enqueued, 2)
			case 2, 3:
				out, err := e.rawClaim(ctx, s, call("A", 3, time.Hour))
				if err != nil {
					return err
				}
				for _, c := range out.Messages {
					h.took(c)
				}
				for k, c := range out.Messages {
					a := storage.ActionComplete
					if (n+k)%3 == 0 {
						a = storage.ActionDeadLetter
					}
					h.leaves(c)
					res, err := s.Settle(ctx, storage.SettleParams{Items: []storage.Settlement{settlement(c, a)}})
					if err != nil {
						return err
					}
					if res.Items[0].Status != storage.ItemApplied {
						return fmt.Errorf("settle of %v: status %d", c.Message.Ref, res.Items[0].Status)
					}
					if a == storage.ActionComplete {
						add(&completed, 1)
					}
				}
			case 4:
				if _, err := e.rawRedrive(ctx, s, 5); err != nil {
					return err
				}
			default:
				p := storage.PurgeParams{Filter: storage.ListMessagesParams{QueueID: e.queue.ID, States: []storage.State{
					storage.StatePending, storage.StateDead,
				}}, Limit: 2}
				res, err := s.Purge(ctx, p)
				if err != nil {
					return err
				}
				add(&purged, res.Count)
			}
		}
		return nil
	})
	require.NoError(t, err, "no deadlock, and nobody waits for long")
	require.LessOrEqual(t, h.worst, 1, "O1: one live lease a key")
	e.redriveAll(t, storage.RedriveParams{})
	e.sweepKeys(t, 100)
	e.checkKeys(t)
	rest := len(e.drain(t))
	t.Logf("%d enqueued, %d completed, %d purged, %d left at the end", enqueued, completed, purged, rest)
	require.Equal(t, enqueued, completed+purged+rest)
	require.Positive(t, purged)
	require.Positive(t, completed)
}
