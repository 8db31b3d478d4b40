package storagetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// outageRules check D3 and D8 as far as a store shows them.
func outageRules() []rule {
	return []rule{
		{name: "D3_connections_break_and_no_row_is_lost_or_doubled", clocks: bothClocks, run: severed, skip: needsConnections},
		{name: "D3_D8_connections_break_under_load", clocks: realClock, run: severedUnderLoad, skip: needsConnections},
		{name: "D8_a_ctx_that_is_over_changes_nothing", clocks: bothClocks, run: ctxOver},
		{name: "E10_a_store_that_is_opened_again_has_everything", clocks: bothClocks, run: reopened},
	}
}

func needsConnections(in *Instance, _ storage.Capabilities) string {
	if in.Sever == nil {
		return "Instance.Sever is nil: the backend has no connections"
	}
	return ""
}

// heals repeats a call until it succeeds, allowing the errors of an outage alone.
func heals(t *testing.T, what string, do func() error) {
	t.Helper()
	eventually(t, what, func() bool {
		err := do()
		if err != nil {
			require.True(t, errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrOutcomeUnknown), "%s: %v", what, err)
		}
		return err == nil
	})
}

// sever breaks all connections, and lets the stores find out at the end of the test:
// the next one wants stores that answer.
func (e *env) sever(t *testing.T) {
	t.Helper()
	e.in.Sever(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), soon)
		defer cancel()
		for _, s := range []storage.Store{e.store, e.other} {
			for good := 0; good < 30 && ctx.Err() == nil; good++ {
				if s.Ready(ctx) != nil {
					good = 0
				}
			}
		}
	})
}

func severed(t *testing.T, e *env) {
	refs := e.many(t, 4)
	cs := e.claimAs(t, "A", 2, time.Hour)
	e.complete(t, cs[0])
	before := e.in.Dump(t)
	e.sever(t)
	heals(t, "the store is ready again", func() error { return e.store.Ready(t.Context()) })
	require.Equal(t, before, e.in.Dump(t))
	heals(t, "the lease still counts", func() error {
		res, err := e.store.Renew(t.Context(), storage.RenewParams{Items: []storage.Renewal{renewal(cs[1], time.Hour)}})
		if err == nil {
			require.Equal(t, storage.ItemApplied, res.Items[0].Status)
		}
		return err
	})
	e.complete(t, cs[1])
	require.Equal(t, refs[2:], refsOf(e.claimN(t, 10)), "no row lost, none doubled")
}

func severedUnderLoad(t *testing.T, e *env) {
	// Enqueue with keys, claim with ids, settle with tokens: each repeated until it is
	// answered, while every connection breaks again and again.
	const n = 80
	work := make(chan error, 1)
	completed := map[storage.Ref]int{}
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	repeat := func(do func() error) error {
		for {
			err := do()
			if err == nil || ctx.Err() != nil {
				return err
			}
			if !errors.Is(err, storage.ErrUnavailable) && !errors.Is(err, storage.ErrOutcomeUnknown) {
				return err
			}
		}
	}
	// Not buffered: the load goes on beside a break, but never ahead of the breaks.
	step := make(chan int)
	go func() {
		work <- func() error {
			for i := range n {
				m := e.message(keyed("key-"+time.Duration(i).String(), "content"))
				if err := repeat(func() error {
					_, err := e.store.Enqueue(ctx, storage.EnqueueParams{Messages: []storage.NewMessage{m}})
					return err
				}); err != nil {
					return err
				}
				var out storage.ClaimOutcome
				if err := repeat(func() (err error) {
					out, err = e.rawClaim(ctx, e.store, storage.ClaimCall{Max: 1, Lease: time.Hour, WorkerID: "A", ClaimID: claimID(i)})
					return err
				}); err != nil {
					return err
				}
				for _, c := range out.Messages {
					if err := repeat(func() error {
						res, err := e.store.Settle(ctx, storage.SettleParams{Items: []storage.Settlement{settlement(c, storage.ActionComplete)}})
						if err == nil && (res.Items[0].Status == storage.ItemApplied || res.Items[0].Status == storage.ItemAlreadySettled) {
							completed[c.Message.Ref]++
						}
						return err
					}); err != nil {
						return err
					}
				}
				select {
				case step <- i:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		}()
	}()
	for range n / 8 {
		for range 8 {
			select {
			case <-step:
			case err := <-work:
				require.FailNow(t, "the load ended early", "%v", err)
			case <-ctx.Done():
				require.FailNow(t, "the load does not get on")
			}
		}
		e.sever(t)
	}
	require.NoError(t, receive(t, work, "the end of the load"))
	require.Len(t, completed, n, "every message once: no repeat lost or doubled one")
	stats, err := e.store.QueueStats(t.Context(), e.queue.ID)
	require.NoError(t, err)
	require.EqualValues(t, n, stats.Completed)
	require.Zero(t, stats.Ready+stats.Leased+stats.Delayed)
	for _, m := range e.list(t, storage.ListMessagesParams{Limit: 100}) {
		require.EqualValues(t, 1, m.Attempt, "attempts are exact")
	}
}

func ctxOver(t *testing.T, e *env) {
	e.many(t, 2)
	c := e.claimWithID(t, "A", claimID(1), 1).Messages[0]
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e.unchanged(t, func() {
		for what, do := range map[string]func() error{
			"enqueue": func() error {
				_, err := e.store.Enqueue(ctx, storage.EnqueueParams{Messages: []storage.NewMessage{e.message()}})
				return err
			},
			"claim": func() error {
				_, err := e.store.Claim(ctx, storage.ClaimParams{QueueID: e.queue.ID, Calls: []storage.ClaimCall{call("A", 1, lease)}})
				return err
			},
			"give back": func() error {
				_, err := e.store.GiveBack(ctx, storage.GiveBackParams{QueueID: e.queue.ID, ClaimID: claimID(1), Claims: held(c)})
				return err
			},
			"renew": func() error {
				_, err := e.store.Renew(ctx, storage.RenewParams{Items: []storage.Renewal{renewal(c, time.Hour)}})
				return err
			},
			"settle": func() error {
				_, err := e.store.Settle(ctx, storage.SettleParams{Items: []storage.Settlement{settlement(c, storage.ActionComplete)}})
				return err
			},
			"create queue": func() error {
				_, err := e.store.CreateQueue(ctx, "never made", settings(), 0)
				return err
			},
			"update queue": func() error {
				_, err := e.store.UpdateQueue(ctx, e.queue.Name, odd(), 0)
				return err
			},
			"pause": func() error {
				_, err := e.store.SetPaused(ctx, e.queue.Name, true)
				return err
			},
		} {
			require.ErrorIs(t, do(), storage.ErrUnavailable, what)
		}
	})
	e.complete(t, c)
}

func reopened(t *testing.T, e *env) {
	m := e.message(keyed("key", "content"), payload([]byte("kept")))
	ref := e.enqueue(t, m)[0]
	c := e.claimOneAs(t, "A", time.Hour)
	other := e.one(t)
	again := e.through(e.in.Another(t))
	require.Equal(t, storage.EnqueueDuplicate, again.enqueueResult(t, m)[0].Status)
	require.Equal(t, e.get(t, ref), again.get(t, ref))
	again.complete(t, c)
	require.Equal(t, other, again.claimOne(t).Message.Ref)
	require.Equal(t, storage.ItemAlreadySettled, again.settle(t, settlement(c, storage.ActionComplete))[0].Status)
}
