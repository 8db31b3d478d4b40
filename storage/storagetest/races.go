package storagetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// raceRules run writers against each other on the real clock.
func raceRules() []rule {
	return []rule{
		{name: "C1_D5_the_union_of_concurrent_claimers_is_the_backlog", clocks: realClock, run: raceClaimers},
		{name: "C1_with_expiring_leases_every_attempt_is_counted_once", clocks: realClock, run: raceExpiring},
		{name: "C14_one_claim_id_from_two_stores_at_once", clocks: realClock, run: raceClaimID},
		{name: "C15_give_back_against_replay", clocks: realClock, run: raceGiveBack},
		{name: "S7_D5_racing_settlements_are_applied_once", clocks: realClock, run: raceSettlements},
		{name: "S7_a_settlement_racing_a_reclaim_has_one_winner", clocks: realClock, run: raceReclaim},
		{name: "R5_renewals_racing_settlements", clocks: realClock, run: raceRenewals},
		{name: "D2_D12_batches_in_opposite_order", clocks: realClock, run: raceOrder},
		{name: "E2_D5_100_enqueues_of_one_key_at_once", clocks: realClock, run: raceKey},
		{name: "E2_batches_with_the_same_keys_in_opposite_order", clocks: realClock, run: raceKeyBatches},
		{name: "the_name_of_a_queue_is_taken_once", clocks: realClock, run: raceQueue},
		{name: "C10_callers_that_leave_take_nothing_with_them", clocks: realClock, run: raceCancelled},
	}
}

// background returns a context for calls made from any goroutine of a test.
func background(t any) context.Context {
	if c, ok := t.(interface{ Context() context.Context }); ok {
		return c.Context()
	}
	return context.Background()
}

// together runs n functions that start at the same moment and returns their errors
// joined.
func together(n int, do func(i int) error) error {
	start := make(chan struct{})
	errs := make([]error, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			<-start
			errs[i] = do(i)
		})
	}
	close(start)
	running.Wait()
	return errors.Join(errs...)
}

func (e *env) rawClaim(ctx context.Context, s storage.Store, c storage.ClaimCall) (storage.ClaimOutcome, error) {
	res, err := s.Claim(ctx, storage.ClaimParams{QueueID: e.queue.ID, Calls: []storage.ClaimCall{c}})
	if err != nil {
		return storage.ClaimOutcome{}, err
	}
	if len(res.Calls) != 1 {
		return storage.ClaimOutcome{}, fmt.Errorf("claim answered %d calls", len(res.Calls))
	}
	return res.Calls[0], nil
}

func raceClaimers(t *testing.T, e *env) {
	const n, claimers = 600, 8
	stores := []storage.Store{e.store, e.other}
	refs := e.many(t, n)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	var mu sync.Mutex
	taken := map[storage.Ref]int{}
	tokens := map[storage.Token]bool{}
	err := together(claimers, func(i int) error {
		for {
			out, err := e.rawClaim(ctx, stores[i%2], call(fmt.Sprintf("worker-%d", i), 1+i, time.Hour))
			if err != nil {
				return err
			}
			mu.Lock()
			for _, c := range out.Messages {
				taken[c.Message.Ref]++
				tokens[c.Token] = true
				if c.Message.Attempt != 1 {
					err = fmt.Errorf("attempt %d of %v", c.Message.Attempt, c.Message.Ref)
				}
			}
			all := len(taken) == n
			mu.Unlock()
			if err != nil || all {
				return err
			}
			// An empty answer while others hold what is left is none of this rule.
		}
	})
	require.NoError(t, err)
	require.Len(t, taken, n)
	require.Len(t, tokens, n)
	for _, ref := range refs {
		require.Equal(t, 1, taken[ref], "%v is taken once", ref)
	}
	require.Empty(t, e.claimN(t, 10))
}

func raceExpiring(t *testing.T, e *env) {
	// Leases so short that they run out under the claimers: each claim is counted, no
	// two live at once, and only the last token completes.
	const n, claimers = 40, 6
	q := settings()
	q.MaxAttempts = 0
	e = e.on(e.newQueue(t, q))
	e.many(t, n)
	stores := []storage.Store{e.store, e.other}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	type span struct {
		claimed   storage.Claimed
		completed bool
	}
	var mu sync.Mutex
	spans := map[storage.Ref][]span{}
	done := 0
	err := together(claimers, func(i int) error {
		for round := 0; ; round++ {
			mu.Lock()
			all := done == n
			mu.Unlock()
			if all {
				return nil
			}
			s := stores[i%2]
			out, err := e.rawClaim(ctx, s, call(fmt.Sprintf("worker-%d", i), 5, 40*time.Millisecond))
			if err != nil {
				return err
			}
			for j, c := range out.Messages {
				sp := span{claimed: c}
				if (i+j+round)%3 == 0 {
					res, err := s.Settle(ctx, storage.SettleParams{Items: []storage.Settlement{settlement(c, storage.ActionComplete)}})
					if err != nil {
						return err
					}
					switch got := res.Items[0]; got.Status {
					case storage.ItemApplied:
						sp.completed = true
						if !got.SettleTime.Before(c.Message.LeaseEnd) {
							return fmt.Errorf("settled at %v after the lease end %v", got.SettleTime, c.Message.LeaseEnd)
						}
					case storage.ItemLost, storage.ItemUnknown:
					default:
						return fmt.Errorf("status %d", got.Status)
					}
				}
				mu.Lock()
				spans[c.Message.Ref] = append(spans[c.Message.Ref], sp)
				if sp.completed {
					done++
				}
				mu.Unlock()
			}
		}
	})
	require.NoError(t, err)
	require.Len(t, spans, n)
	for ref, all := range spans {
		attempts := map[int32]bool{}
		completed := 0
		last := int32(0)
		for _, s := range all {
			require.False(t, attempts[s.claimed.Message.Attempt], "attempt %d of %v was dealt twice", s.claimed.Message.Attempt, ref)
			attempts[s.claimed.Message.Attempt] = true
			last = max(last, s.claimed.Message.Attempt)
			if s.completed {
				completed++
			}
		}
		require.Equal(t, 1, completed, "%v is completed once", ref)
		require.Len(t, all, int(last), "each claim counted once")
		for _, s := range all {
			if s.completed {
				require.Equal(t, last, s.claimed.Message.Attempt, "nobody has a claim after the completion")
			}
		}
		m := e.get(t, ref)
		require.Equal(t, storage.StateCompleted, m.State)
		require.Equal(t, last, m.Attempt)
	}
}

func raceClaimID(t *testing.T, e *env) {
	stores := []storage.Store{e.store, e.other}
	for round := range 15 {
		e.many(t, 8)
		outs := make([]storage.ClaimOutcome, 6)
		err := together(len(outs), func(i int) (err error) {
			outs[i], err = e.rawClaim(t.Context(), stores[i%2], storage.ClaimCall{
				Max: 3, Lease: time.Hour, WorkerID: "A", ClaimID: claimID(round),
			})
			return err
		})
		require.NoError(t, err)
		served := 0
		var want []storage.Claimed
		for _, out := range outs {
			if out.Status == storage.ClaimServed && len(out.Messages) > 0 {
				served++
				want = out.Messages
			}
		}
		require.Equal(t, 1, served, "round %d: one call claims", round)
		require.Len(t, want, 3)
		for _, out := range outs {
			if out.Status == storage.ClaimServed && len(out.Messages) == 0 {
				// It looked while the others held every row and had not committed: an empty
				// claim, which leaves no row, before theirs (C11).
				continue
			}
			require.Equal(t, want, out.Messages, "round %d: and all have its leases", round)
		}
		stats, err := e.store.QueueStats(t.Context(), e.queue.ID)
		require.NoError(t, err)
		require.EqualValues(t, 3*(round+1), stats.Leased, "round %d: nothing else is leased", round)
	}
}

func raceGiveBack(t *testing.T, e *env) {
	stores := []storage.Store{e.store, e.other}
	var givenBack, replayed int
	for round := range 40 {
		ref := e.one(t)
		first := e.claimWithID(t, "A", claimID(round), 1)
		require.Equal(t, []storage.Ref{ref}, refsOf(first.Messages))
		var back storage.GiveBackResult
		var again storage.ClaimOutcome
		err := together(2, func(i int) (err error) {
			if i == round%2 {
				back, err = stores[0].GiveBack(t.Context(), storage.GiveBackParams{
					QueueID: e.queue.ID, ClaimID: claimID(round), Claims: held(first.Messages...),
				})
				return err
			}
			again, err = e.rawClaim(t.Context(), stores[1], storage.ClaimCall{
				Max: 1, Lease: time.Hour, WorkerID: "A", ClaimID: claimID(round),
			})
			return err
		})
		require.NoError(t, err)
		m := e.get(t, ref)
		hasOld := len(again.Messages) == 1 && again.Messages[0].Token == first.Messages[0].Token
		switch back.GivenBack {
		case 0:
			replayed++
			require.True(t, hasOld, "round %d: what was not given back, the repeat has", round)
			require.Equal(t, storage.StateProcessing, m.State)
		default:
			givenBack++
			require.Equal(t, 1, back.GivenBack)
			require.False(t, hasOld, "round %d: what was given back, the repeat does not have", round)
		}
		// Leave the queue empty.
		if m.State == storage.StatePending {
			e.complete(t, e.claimOne(t))
			continue
		}
		require.Len(t, again.Messages, 1)
		e.complete(t, again.Messages[0])
	}
	t.Logf("given back %d, replayed %d", givenBack, replayed)
}

func raceSettlements(t *testing.T, e *env) {
	stores := []storage.Store{e.store, e.other}
	for round := range 20 {
		ref := e.one(t)
		c := e.claimOneAs(t, "A", time.Hour)
		got := make([]storage.Settled, 8)
		err := together(len(got), func(i int) error {
			s := settlement(c, actions[(i/2+round)%4].action)
			s.Delay = 0
			res, err := stores[i%2].Settle(t.Context(), storage.SettleParams{Items: []storage.Settlement{s}})
			if err == nil {
				got[i] = res.Items[0]
			}
			return err
		})
		require.NoError(t, err)
		winner := -1
		for i, item := range got {
			if item.Status == storage.ItemApplied {
				require.Equal(t, -1, winner, "round %d: one winner", round)
				winner = i
			}
		}
		require.NotEqual(t, -1, winner, "round %d: a winner", round)
		for i, item := range got {
			switch {
			case i == winner:
			case i/2 == winner/2:
				require.Equal(t, storage.ItemAlreadySettled, item.Status, "round %d", round)
				require.Equal(t, facts(got[winner]), facts(item), "round %d", round)
			default:
				require.Equal(t, storage.ItemSettled, item.Status, "round %d", round)
				require.Equal(t, got[winner].Outcome, item.Outcome, "round %d", round)
			}
		}
		m := e.get(t, ref)
		if m.State == storage.StatePending {
			eventually(t, "the message is ready again", func() bool {
				again := e.claimAs(t, "B", 1, time.Hour)
				if len(again) == 1 {
					e.complete(t, again[0])
				}
				return len(again) == 1
			})
		}
	}
}

func raceReclaim(t *testing.T, e *env) {
	stores := []storage.Store{e.store, e.other}
	var settled, lost int
	for round := range 30 {
		ref := e.one(t)
		c := e.claimOneAs(t, "A", 25*time.Millisecond)
		action := actions[round%4].action
		s := settlement(c, action)
		s.Delay = 0
		var got storage.Settled
		var next storage.Claimed
		err := together(2, func(i int) error {
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			if i == 0 {
				// Begin close to the lease end, on either side of it.
				for {
					now, err := stores[0].Now(ctx)
					if err != nil {
						return err
					}
					if now.Add(time.Duration(round%4) * time.Millisecond).After(c.Message.LeaseEnd) {
						break
					}
				}
				res, err := stores[0].Settle(ctx, storage.SettleParams{Items: []storage.Settlement{s}})
				if err == nil {
					got = res.Items[0]
				}
				return err
			}
			for {
				out, err := e.rawClaim(ctx, stores[1], call("B", 1, time.Hour))
				if err != nil {
					return err
				}
				if len(out.Messages) == 1 {
					next = out.Messages[0]
					return nil
				}
				m, err := stores[1].GetMessage(ctx, ref, false)
				if err != nil {
					return err
				}
				if m.State == storage.StateCompleted || m.State == storage.StateDead {
					return nil
				}
			}
		})
		require.NoError(t, err)
		if got.Status == storage.ItemApplied {
			settled++
			require.True(t, got.SettleTime.Before(c.Message.LeaseEnd), "round %d: settled while the lease was live", round)
			if action == storage.ActionComplete || action == storage.ActionDeadLetter {
				require.Zero(t, next.Token, "round %d: nobody else has it", round)
				continue
			}
			want := int32(2)
			if action == storage.ActionRelease {
				want = 1
			}
			require.Equal(t, want, next.Message.Attempt, "round %d", round)
		} else {
			lost++
			require.Equal(t, storage.ItemLost, got.Status, "round %d", round)
			require.EqualValues(t, 2, next.Message.Attempt, "round %d", round)
		}
		require.NotZero(t, next.Token, "round %d", round)
		e.complete(t, next)
	}
	t.Logf("settled %d, lost %d", settled, lost)
}

func raceRenewals(t *testing.T, e *env) {
	const n = 60
	e.many(t, n)
	cs := e.claimAs(t, "A", n, time.Hour)
	require.Len(t, cs, n)
	stores := []storage.Store{e.store, e.other}
	var renewals []storage.Renewal
	for _, c := range cs {
		renewals = append(renewals, renewal(c, 2*time.Hour))
	}
	applied := make([]int, n)
	err := together(4, func(i int) error {
		if i < 2 {
			for range 15 {
				res, err := stores[i].Renew(t.Context(), storage.RenewParams{Items: renewals})
				if err != nil {
					return err
				}
				for j, got := range res.Items {
					if got.Status != storage.ItemApplied && got.Status != storage.ItemSettled && got.Status != storage.ItemUnknown {
						return fmt.Errorf("renewal %d: status %d, cause %d", j, got.Status, got.Cause)
					}
				}
			}
			return nil
		}
		for j := i - 2; j < n; j += 2 {
			res, err := stores[i-2].Settle(t.Context(), storage.SettleParams{
				Items: []storage.Settlement{settlement(cs[j], storage.ActionComplete)},
			})
			if err != nil {
				return err
			}
			if got := res.Items[0]; got.Status != storage.ItemApplied {
				return fmt.Errorf("settlement %d: status %d, cause %d", j, got.Status, got.Cause)
			}
			applied[j]++
		}
		return nil
	})
	require.NoError(t, err, "a renewal under way never makes a settlement lost, nor the other way round")
	stats, err := e.store.QueueStats(t.Context(), e.queue.ID)
	require.NoError(t, err)
	require.EqualValues(t, n, stats.Completed)
}

func raceOrder(t *testing.T, e *env) {
	const n = 30
	stores := []storage.Store{e.store, e.other}
	for round := range 8 {
		e.many(t, n)
		cs := e.claimAs(t, "A", n, time.Hour)
		require.Len(t, cs, n)
		err := together(4, func(i int) error {
			items := make([]storage.Renewal, n)
			for j, c := range cs {
				if i%2 == 0 {
					j = n - 1 - j
				}
				items[j] = renewal(c, time.Hour)
			}
			res, err := stores[i/2].Renew(t.Context(), storage.RenewParams{Items: items})
			if err != nil {
				return err
			}
			for j, got := range res.Items {
				if got.Status != storage.ItemApplied {
					return fmt.Errorf("renewal %d: status %d", j, got.Status)
				}
			}
			return nil
		})
		require.NoError(t, err, "round %d: no deadlock reaches the caller", round)
		applied := make([]int, 4)
		err = together(4, func(i int) error {
			items := make([]storage.Settlement, n)
			for j, c := range cs {
				if i%2 == 0 {
					j = n - 1 - j
				}
				items[j] = settlement(c, storage.ActionComplete)
			}
			res, err := stores[i/2].Settle(t.Context(), storage.SettleParams{Items: items})
			if err != nil {
				return err
			}
			for j, got := range res.Items {
				switch got.Status {
				case storage.ItemApplied:
					applied[i]++
				case storage.ItemAlreadySettled:
				default:
					return fmt.Errorf("settlement %d: status %d", j, got.Status)
				}
			}
			return nil
		})
		require.NoError(t, err, "round %d", round)
		require.Equal(t, n, applied[0]+applied[1]+applied[2]+applied[3], "round %d: each applied once", round)
	}
}

func raceKey(t *testing.T, e *env) {
	const n = 100
	stores := []storage.Store{e.store, e.other}
	items := make([]storage.Enqueued, n)
	m := e.message(keyed("key", "content"))
	err := together(n, func(i int) error {
		res, err := stores[i%2].Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{m}})
		if err == nil {
			items[i] = res.Items[0]
		}
		return err
	})
	require.NoError(t, err, "no error")
	inserted := 0
	for _, item := range items {
		if item.Status == storage.EnqueueInserted {
			inserted++
			continue
		}
		require.Equal(t, storage.EnqueueDuplicate, item.Status)
	}
	require.Equal(t, 1, inserted, "one row, 99 duplicates")
	for _, item := range items {
		require.Equal(t, items[0].Ref, item.Ref, "all name the one row")
	}
	require.Len(t, e.claimN(t, 10), 1)
}

func raceKeyBatches(t *testing.T, e *env) {
	const n = 20
	stores := []storage.Store{e.store, e.other}
	for round := range 5 {
		forward := make([]storage.NewMessage, n)
		backward := make([]storage.NewMessage, n)
		for i := range n {
			m := e.message(keyed(fmt.Sprintf("key-%d-%d", round, i), "content"))
			forward[i], backward[n-1-i] = m, m
		}
		results := make([]storage.EnqueueResult, 6)
		err := together(len(results), func(i int) (err error) {
			ms := forward
			if i%2 == 1 {
				ms = backward
			}
			results[i], err = stores[i/3].Enqueue(t.Context(), storage.EnqueueParams{Messages: ms})
			return err
		})
		require.NoError(t, err, "round %d: no deadlock reaches the caller", round)
		inserted := map[storage.Ref]int{}
		named := map[storage.Ref]int{}
		for _, res := range results {
			for _, item := range res.Items {
				named[item.Ref]++
				if item.Status == storage.EnqueueInserted {
					inserted[item.Ref]++
				}
			}
		}
		require.Len(t, inserted, n, "round %d", round)
		require.Len(t, named, n, "round %d: every duplicate names an inserted row", round)
		require.Len(t, e.claimN(t, 2*n), n, "round %d", round)
	}
}

func raceQueue(t *testing.T, e *env) {
	stores := []storage.Store{e.store, e.other}
	made := make([]bool, 10)
	err := together(len(made), func(i int) error {
		_, err := stores[i%2].CreateQueue(t.Context(), "raced", settings(), 0)
		made[i] = err == nil
		if errors.Is(err, storage.ErrQueueExists) {
			return nil
		}
		return err
	})
	require.NoError(t, err)
	n := 0
	for _, ok := range made {
		if ok {
			n++
		}
	}
	require.Equal(t, 1, n, "one of them made it")
}

func raceCancelled(t *testing.T, e *env) {
	// Calls cancelled in their middle: each either told what it did or took nothing that
	// nobody knows of, but for those whose outcome is unknown (D8).
	const n = 60
	e.many(t, n)
	var mu sync.Mutex
	known := map[storage.Ref]bool{}
	unknown := 0
	err := together(6, func(i int) error {
		for round := range 8 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i*round)*200*time.Microsecond)
			out, err := e.rawClaim(ctx, e.store, call("A", 1, time.Hour))
			cancel()
			mu.Lock()
			switch {
			case err == nil:
				for _, c := range out.Messages {
					known[c.Message.Ref] = true
				}
			case errors.Is(err, storage.ErrOutcomeUnknown):
				unknown++
				err = nil
			case errors.Is(err, storage.ErrUnavailable):
				err = nil
			}
			mu.Unlock()
			if err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, err)
	stats, err := e.store.QueueStats(t.Context(), e.queue.ID)
	require.NoError(t, err)
	require.GreaterOrEqual(t, stats.Leased, int64(len(known)))
	require.LessOrEqual(t, stats.Leased, int64(len(known)+unknown), "ErrUnavailable promises that nothing changed")
	require.EqualValues(t, n, stats.Leased+stats.Ready)
}
