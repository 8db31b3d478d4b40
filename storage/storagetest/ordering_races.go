package storagetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// orderingRaceRules run everything that moves a key against everything else.
func orderingRaceRules() []rule {
	return []rule{
		{name: "O1_O3_O5_O9_D5_D12_claims_settlements_cancels_and_sweeps_on_few_keys", clocks: realClock, run: raceOrdering},
		{name: "O1_O9_D5_enqueues_of_one_new_key_at_once", clocks: realClock, run: raceOrderingEnqueue},
		{name: "O9_D12_an_idle_key_that_is_swept_while_it_is_used", clocks: realClock, run: raceOrderingSweepKeys},
	}
}

// turn is what one claim of a keyed message had: from the claim on, to its settlement or the
// end of its lease, all by the storage clock.
type turn struct {
	ref        storage.Ref
	from, till time.Time
}

// turns collects them by key.
type turns struct {
	mu    sync.Mutex
	byKey map[string][]turn
}

func (ts *turns) add(key string, t turn) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.byKey[key] = append(ts.byKey[key], t)
}

// check requires that no two turns of a key overlap (O1), and that they are in the order of
// the positions (O5).
func (ts *turns) check(t *testing.T) {
	t.Helper()
	for key, all := range ts.byKey {
		slices.SortFunc(all, func(a, b turn) int {
			if c := a.from.Compare(b.from); c != 0 {
				return c
			}
			if a.ref.Position != b.ref.Position {
				return int(a.ref.Position - b.ref.Position)
			}
			return a.till.Compare(b.till)
		})
		for i := 1; i < len(all); i++ {
			prev, next := all[i-1], all[i]
			require.False(t, next.from.Before(prev.till), "O1: two live leases of key %s: %+v and %+v", key, prev, next)
			require.GreaterOrEqual(t, next.ref.Position, prev.ref.Position, "O5: key %s", key)
		}
	}
}

const (
	raceKeys    = 5
	raceRounds  = 20 // enqueues of each producer
	raceLease   = 200 * time.Millisecond
	raceAbandon = 8 // one claim of so many is left to run out
)

// orderingRace is one run of raceOrdering.
type orderingRace struct {
	e     *env
	turns turns

	mu   sync.Mutex
	refs []storage.Ref
	// producing is the number of producers that are not done.
	producing int
	done      chan struct{}
}

func raceOrdering(t *testing.T, e *env) {
	s := settings()
	s.MaxAttempts = 3
	s.Retry = storage.RetryPolicy{Min: time.Millisecond, Max: 20 * time.Millisecond, Multiplier: 2, Jitter: 0.5}
	e = e.on(e.newQueue(t, s))
	r := &orderingRace{e: e, turns: turns{byKey: map[string][]turn{}}, producing: 2, done: make(chan struct{})}
	stores := []storage.Store{e.store, e.other}
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	tasks := []func(context.Context, storage.Store, *rand.Rand) error{
		r.produce, r.produce, r.work, r.work, r.work, r.work, r.cancel, r.sweep, r.sweepKeys,
	}
	err := together(len(tasks), func(i int) error {
		err := tasks[i](ctx, stores[i%2], rand.New(rand.NewPCG(1, uint64(i))))
		if err != nil {
			cancel()
		}
		return err
	})
	if err != nil {
		left, _ := e.store.ListMessages(context.WithoutCancel(ctx), storage.ListMessagesParams{
			QueueID: e.queue.ID, States: []storage.State{storage.StatePending, storage.StateProcessing}, Limit: 20,
		})
		require.NoError(t, err, "O9: what is left: %+v", left.Messages)
	}
	r.turns.check(t)
	states := map[storage.State]int{}
	for _, ref := range r.refs {
		states[e.get(t, ref).State]++
	}
	t.Logf("%d messages: %d completed, %d dead, %d cancelled", len(r.refs),
		states[storage.StateCompleted], states[storage.StateDead], states[storage.StateCancelled])
	require.Equal(t, len(r.refs), states[storage.StateCompleted]+states[storage.StateDead]+states[storage.StateCancelled], "all end")
	require.Positive(t, states[storage.StateDead])
	require.Positive(t, states[storage.StateCancelled])
	e.sweepKeys(t, 100)
	e.unchanged(t, func() { e.sweepKeys(t, 100) })
}

func (r *orderingRace) produce(ctx context.Context, s storage.Store, rnd *rand.Rand) error {
	defer func() {
		r.mu.Lock()
		r.producing--
		r.mu.Unlock()
	}()
	for range raceRounds {
		var ms []storage.NewMessage
		for range 1 + rnd.IntN(6) {
			m := r.e.message(priority(int32(rnd.IntN(3))))
			if k := rnd.IntN(raceKeys + 1); k > 0 {
				m.OrderingKey = fmt.Sprint("key ", k)
			}
			if rnd.IntN(10) == 0 {
				m.Delay = time.Duration(rnd.IntN(30)) * time.Millisecond
			}
			ms = append(ms, m)
		}
		res, err := s.Enqueue(ctx, storage.EnqueueParams{Messages: ms})
		if err != nil {
			return fmt.Errorf("enqueue: %w", err)
		}
		r.mu.Lock()
		for _, item := range res.Items {
			r.refs = append(r.refs, item.Ref)
		}
		r.mu.Unlock()
	}
	return nil
}

func (r *orderingRace) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func (r *orderingRace) work(ctx context.Context, s storage.Store, rnd *rand.Rand) error {
	for !r.ended() {
		out, err := r.e.rawClaim(ctx, s, call("worker", 1+rnd.IntN(6), raceLease))
		if err != nil {
			return fmt.Errorf("claim: %w", err)
		}
		seen := map[string]bool{}
		var items []storage.Settlement
		for _, c := range out.Messages {
			key := c.Message.OrderingKey
			if key != "" && seen[key] {
				return fmt.Errorf("O3: two of %s in a batch", key)
			}
			seen[key] = true
			st := settlement(c, actions[rnd.IntN(4)].action)
			if rnd.IntN(2) == 0 {
				st.Action = storage.ActionComplete
			}
			if st.Action == storage.ActionComplete && rnd.IntN(2) == 0 {
				st.Result = nil
			}
			st.HasDelay = rnd.IntN(2) == 0
			st.Delay = time.Duration(rnd.IntN(10)) * time.Millisecond
			items = append(items, st)
		}
		if len(items) == 0 {
			continue
		}
		settled := make([]storage.Settled, len(items))
		if rnd.IntN(raceAbandon) > 0 {
			res, err := s.Settle(ctx, storage.SettleParams{Items: items})
			if err != nil {
				return fmt.Errorf("settle: %w", err)
			}
			settled = res.Items
		}
		for i, c := range out.Messages {
			tn := turn{ref: c.Message.Ref, from: c.Message.LeaseEnd.Add(-raceLease), till: c.Message.LeaseEnd}
			if settled[i].Status == storage.ItemApplied {
				tn.till = settled[i].SettleTime
			}
			if c.Message.OrderingKey != "" {
				r.turns.add(c.Message.OrderingKey, tn)
			}
		}
	}
	return nil
}

func (r *orderingRace) cancel(ctx context.Context, s storage.Store, rnd *rand.Rand) error {
	for n := 0; !r.ended(); {
		r.mu.Lock()
		var ref storage.Ref
		if len(r.refs) > 4*n {
			// One message of four or so, mostly young ones.
			n++
			ref = r.refs[len(r.refs)-1-rnd.IntN(min(len(r.refs), 12))]
		}
		r.mu.Unlock()
		if ref == (storage.Ref{}) {
			// Nothing else to do; another look costs the stores nothing.
			if err := pause(ctx, time.Millisecond); err != nil {
				return err
			}
			continue
		}
		_, err := s.Cancel(ctx, storage.CancelParams{QueueID: r.e.queue.ID, Ref: ref})
		if errors.Is(err, storage.ErrUnavailable) && ctx.Err() == nil {
			continue // somebody held the row for longer than the wait
		}
		if err != nil {
			return fmt.Errorf("cancel: %w", err)
		}
	}
	return nil
}

// sweep also finds out when all is over.
func (r *orderingRace) sweep(ctx context.Context, s storage.Store, _ *rand.Rand) error {
	defer close(r.done)
	for {
		r.mu.Lock()
		producing, refs := r.producing, slices.Clone(r.refs)
		r.mu.Unlock()
		for refs := range slices.Chunk(refs, 100) {
			if _, err := s.Sweep(ctx, storage.SweepParams{Refs: refs, Limit: len(refs)}); err != nil {
				return fmt.Errorf("sweep: %w", err)
			}
		}
		st, err := s.QueueStats(ctx, r.e.queue.ID)
		if err != nil {
			return fmt.Errorf("stats: %w", err)
		}
		if producing == 0 && st.Ready+st.Delayed+st.Blocked+st.Leased+st.LeaseExpired == 0 {
			return nil
		}
	}
}

func (r *orderingRace) sweepKeys(ctx context.Context, s storage.Store, _ *rand.Rand) error {
	for !r.ended() {
		if err := passKeys(ctx, s); err != nil {
			return err
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// passKeys looks at all keys once.
func passKeys(ctx context.Context, s storage.Store) error {
	for after := int64(0); ; {
		res, err := s.SweepKeys(ctx, storage.SweepKeysParams{After: after, Limit: 20})
		if err != nil {
			return fmt.Errorf("sweep keys: %w", err)
		}
		if after = res.Next; after == 0 {
			return nil
		}
	}
}

// pause waits a moment, so that a loop that has nothing to do leaves the processor to others.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func raceOrderingEnqueue(t *testing.T, e *env) {
	stores := []storage.Store{e.store, e.other}
	for round := range 5 {
		key := fmt.Sprint("key ", round)
		err := together(8, func(i int) error {
			_, err := stores[i%2].Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{
				e.message(ordered(key)), e.message(ordered(fmt.Sprint("other ", (i+round)%3))), e.message(ordered(key)),
			}})
			return err
		})
		require.NoError(t, err, "round %d", round)
		e.checkKeys(t)
		order := e.drain(t)
		require.Len(t, order, 24)
	}
}

func raceOrderingSweepKeys(t *testing.T, e *env) {
	// One worker that uses a key for a moment each time, and two who remove it.
	stores := []storage.Store{e.store, e.other}
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	done := make(chan struct{})
	err := together(3, func(i int) error {
		if i > 0 {
			for {
				select {
				case <-done:
					return nil
				default:
				}
				if err := passKeys(ctx, stores[i%2]); err != nil {
					return err
				}
			}
		}
		defer close(done)
		for round := range 20 {
			res, err := stores[round%2].Enqueue(ctx, storage.EnqueueParams{Messages: []storage.NewMessage{e.message(ordered("a")), e.message(ordered("a"))}})
			if err != nil {
				return fmt.Errorf("enqueue: %w", err)
			}
			for n, item := range res.Items {
				out, err := e.rawClaim(ctx, stores[(round+n)%2], call("A", 10, time.Hour))
				if err != nil {
					return fmt.Errorf("claim: %w", err)
				}
				if got := refsOf(out.Messages); !slices.Equal(got, []storage.Ref{item.Ref}) {
					return fmt.Errorf("round %d: claimed %v, not %v", round, got, item.Ref)
				}
				st, err := stores[round%2].Settle(ctx, storage.SettleParams{Items: []storage.Settlement{settlement(out.Messages[0], storage.ActionComplete)}})
				if err != nil {
					return fmt.Errorf("settle: %w", err)
				}
				if st.Items[0].Status != storage.ItemApplied {
					return fmt.Errorf("round %d: status %d", round, st.Items[0].Status)
				}
			}
		}
		return nil
	})
	require.NoError(t, err)
}
