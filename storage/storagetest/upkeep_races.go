package storagetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// upkeepRaceRules run the sweep and Cancel against the writers of claims.
func upkeepRaceRules() []rule {
	return []rule{
		{name: "C18_D5_sweeps_against_claims", clocks: realClock, run: raceSweepClaim},
		{name: "C18_S7_a_sweep_against_a_completion_at_the_lease_end", clocks: realClock, run: raceSweepComplete},
		{name: "C18_R2_a_sweep_against_a_renewal_at_the_lease_end", clocks: realClock, run: raceSweepRenew},
		{name: "S14_S7_cancel_against_complete", clocks: realClock, run: raceCancelComplete},
		{name: "S14_C6_cancel_against_claims", clocks: realClock, run: raceCancelClaim},
	}
}

// near waits until the clock of a store is about d before a moment.
func near(ctx context.Context, s storage.Store, at time.Time, d time.Duration) error {
	for {
		now, err := s.Now(ctx)
		if err != nil || now.Add(d).After(at) {
			return err
		}
	}
}

func raceSweepClaim(t *testing.T, e *env) {
	// Nobody settles; two sweepers and three claimers run until every message is dead,
	// each after exactly its three deliveries.
	const n, attempts = 30, 3
	refs := e.many(t, n, maxAttempts(attempts))
	stores := []storage.Store{e.store, e.other}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	deliveries := make([]map[storage.Ref]int, 3)
	dead := make([]int, 2)
	done := make(chan struct{})
	err := together(5, func(i int) error {
		if i < 2 {
			defer func() {
				if i == 0 {
					close(done)
				}
			}()
			for {
				res, err := stores[i].Sweep(ctx, storage.SweepParams{Refs: refs, Limit: n})
				if err != nil {
					return err
				}
				dead[i] += res.Dead
				stats, err := stores[i].QueueStats(ctx, e.queue.ID)
				if err != nil || stats.Dead == n {
					return err
				}
			}
		}
		mine := map[storage.Ref]int{}
		deliveries[i-2] = mine
		for {
			select {
			case <-done:
				return nil
			default:
			}
			out, err := e.rawClaim(ctx, stores[i%2], call(fmt.Sprintf("worker-%d", i), 4, 15*time.Millisecond))
			if err != nil {
				return err
			}
			for _, c := range out.Messages {
				mine[c.Message.Ref]++
			}
		}
	})
	require.NoError(t, err)
	require.Equal(t, n, dead[0]+dead[1], "each died once")
	for _, ref := range refs {
		require.Equal(t, attempts, deliveries[0][ref]+deliveries[1][ref]+deliveries[2][ref], "deliveries of %v", ref)
		m := e.get(t, ref)
		require.Equal(t, storage.DeadReasonLeaseExpired, m.DeadReason)
		require.EqualValues(t, attempts, m.Attempt)
	}
}

func raceSweepComplete(t *testing.T, e *env) {
	var completed, died int
	for round := range 25 {
		ref := e.one(t, maxAttempts(1))
		c := e.claimOneAs(t, "A", 15*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		var got storage.Settled
		dead := 0
		err := together(2, func(i int) error {
			if i == 0 {
				if err := near(ctx, e.store, c.Message.LeaseEnd, time.Duration(round%3)*time.Millisecond); err != nil {
					return err
				}
				res, err := e.store.Settle(ctx, storage.SettleParams{Items: []storage.Settlement{settlement(c, storage.ActionComplete)}})
				if err == nil {
					got = res.Items[0]
				}
				return err
			}
			for {
				res, err := e.other.Sweep(ctx, storage.SweepParams{Refs: []storage.Ref{ref}, Limit: 1})
				if err != nil {
					return err
				}
				dead += res.Dead
				if now, err := e.other.Now(ctx); err != nil || now.After(c.Message.LeaseEnd.Add(20*time.Millisecond)) {
					return err
				}
			}
		})
		cancel()
		require.NoError(t, err)
		if got.Status == storage.ItemApplied {
			completed++
			require.Zero(t, dead)
			require.True(t, got.SettleTime.Before(c.Message.LeaseEnd))
			require.Equal(t, storage.StateCompleted, e.get(t, ref).State)
			continue
		}
		died++
		require.Equal(t, storage.ItemLost, got.Status, "round %d", round)
		require.Equal(t, storage.LostLeaseExpired, got.Cause)
		dead += e.sweep(t, ref).Dead
		require.Equal(t, 1, dead, "round %d", round)
		require.Equal(t, storage.StateDead, e.get(t, ref).State)
	}
	t.Logf("completed %d, died %d", completed, died)
}

func raceSweepRenew(t *testing.T, e *env) {
	var renewed, died int
	for round := range 25 {
		ref := e.one(t, maxAttempts(1))
		c := e.claimOneAs(t, "A", 15*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		var got storage.Renewed
		dead := 0
		err := together(2, func(i int) error {
			if i == 0 {
				if err := near(ctx, e.store, c.Message.LeaseEnd, time.Duration(round%3)*time.Millisecond); err != nil {
					return err
				}
				res, err := e.store.Renew(ctx, storage.RenewParams{Items: []storage.Renewal{renewal(c, time.Hour)}})
				if err == nil {
					got = res.Items[0]
				}
				return err
			}
			for {
				res, err := e.other.Sweep(ctx, storage.SweepParams{Refs: []storage.Ref{ref}, Limit: 1})
				if err != nil {
					return err
				}
				dead += res.Dead
				if now, err := e.other.Now(ctx); err != nil || now.After(c.Message.LeaseEnd.Add(20*time.Millisecond)) {
					return err
				}
			}
		})
		cancel()
		require.NoError(t, err)
		if got.Status == storage.ItemApplied {
			renewed++
			require.Zero(t, dead, "round %d: a renewed lease is not swept", round)
			e.complete(t, c)
			continue
		}
		died++
		require.Equal(t, storage.ItemLost, got.Status, "round %d", round)
		dead += e.sweep(t, ref).Dead
		require.Equal(t, 1, dead, "round %d", round)
	}
	t.Logf("renewed %d, died %d", renewed, died)
}

func raceCancelComplete(t *testing.T, e *env) {
	for round := range 25 {
		ref := e.one(t)
		c := e.claimOneAs(t, "A", time.Hour)
		a := actions[round%4]
		var got storage.Settled
		var told storage.CancelResult
		err := together(2, func(i int) (err error) {
			if i == round%2 {
				told, err = e.other.Cancel(t.Context(), storage.CancelParams{QueueID: e.queue.ID, Ref: ref})
				return err
			}
			s := settlement(c, a.action)
			s.Delay = time.Hour
			res, err := e.store.Settle(t.Context(), storage.SettleParams{Items: []storage.Settlement{s}})
			if err == nil {
				got = res.Items[0]
			}
			return err
		})
		require.NoError(t, err, "round %d", round)
		require.Equal(t, storage.ItemApplied, got.Status, "round %d: a cancel never makes a live claim lost", round)
		state := e.get(t, ref).State
		switch a.action {
		case storage.ActionComplete:
			require.Equal(t, storage.StateCompleted, state)
			require.Contains(t, []storage.State{storage.StateProcessing, storage.StateCompleted}, told.State)
		case storage.ActionDeadLetter:
			require.Equal(t, storage.StateDead, state)
			require.Contains(t, []storage.State{storage.StateProcessing, storage.StateDead}, told.State)
		case storage.ActionRetry, storage.ActionRelease:
			require.Equal(t, storage.StateCancelled, state, "round %d: asked before or after", round)
			if got.Outcome != storage.OutcomeCancelled {
				require.Equal(t, a.outcome, got.Outcome)
				require.Equal(t, storage.StateCancelled, told.State, "it came after the settlement")
			}
		case storage.ActionRevoke: // no settlement of a worker
		}
	}
}

func raceCancelClaim(t *testing.T, e *env) {
	for round := range 15 {
		refs := e.many(t, 6)
		told := make([]storage.State, len(refs))
		var claims []storage.Claimed
		err := together(2, func(i int) error {
			if i == 0 {
				for k, ref := range refs {
					res, err := e.store.Cancel(t.Context(), storage.CancelParams{QueueID: e.queue.ID, Ref: ref})
					if err != nil {
						return err
					}
					told[k] = res.State
				}
				return nil
			}
			for range refs {
				out, err := e.rawClaim(t.Context(), e.other, call("A", 1, time.Hour))
				if err != nil {
					return err
				}
				claims = append(claims, out.Messages...)
			}
			return nil
		})
		require.NoError(t, err)
		taken := map[storage.Ref]storage.Claimed{}
		for _, c := range claims {
			taken[c.Message.Ref] = c
		}
		for k, ref := range refs {
			c, ok := taken[ref]
			switch told[k] {
			case storage.StateCancelled:
				require.False(t, ok, "round %d: a cancelled message is not handed out", round)
				require.Equal(t, storage.StateCancelled, e.get(t, ref).State)
			case storage.StateProcessing:
				require.True(t, ok, "round %d: somebody holds it", round)
				require.True(t, e.renew(t, renewal(c, time.Hour))[0].CancelRequested)
				e.complete(t, c)
			default:
				require.Fail(t, "told another state", "round %d: %d", round, told[k])
			}
		}
	}
}
