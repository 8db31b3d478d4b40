package dispatch

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// joinFake is the part of a store that enqueues, settles and renews. A call waits for the gate,
// where there is one, so that others arrive meanwhile.
type joinFake struct {
	gate chan struct{}

	mu       sync.Mutex
	next     int64
	keys     map[string]storage.NewMessage
	held     map[int64]bool  // positions whose row somebody holds
	heldKeys map[string]bool // idempotency keys that somebody holds
	blind    bool            // it cannot find out who holds them
	enqueues []storage.EnqueueParams
	settles  []storage.SettleParams
	renewals []storage.RenewParams
	told     int
	fail     error
}

func (*joinFake) Capabilities() storage.Capabilities { return storage.Capabilities{OddKeyed: true} }

func (f *joinFake) pass(ctx context.Context) error {
	if f.gate != nil {
		select {
		case <-f.gate:
		case <-ctx.Done():
			return storage.ErrUnavailable
		}
	}
	return f.fail
}

func (f *joinFake) Enqueue(ctx context.Context, p storage.EnqueueParams) (storage.EnqueueResult, error) {
	f.mu.Lock()
	f.enqueues = append(f.enqueues, p)
	f.mu.Unlock()
	if err := f.pass(ctx); err != nil {
		return storage.EnqueueResult{}, err
	}
	f.mu.Lock()
	found := storage.EnqueueResult{Items: make([]storage.Enqueued, len(p.Messages))}
	held := 0
	for i, m := range p.Messages {
		if m.IdempotencyKey != "" && f.heldKeys[m.IdempotencyKey] {
			found.Items[i].Status = storage.EnqueueHeld
			held++
		}
	}
	f.mu.Unlock()
	if held > 0 && p.FindHeld && !f.blind {
		time.Sleep(time.Duration(held) * time.Millisecond)
		return found, nil
	}
	if held > 0 {
		wait := 2 * time.Second
		if p.LockWait > 0 {
			wait = p.LockWait
		}
		time.Sleep(wait)
		return storage.EnqueueResult{}, fmt.Errorf("fake: %w", storage.ErrLocked)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	res := storage.EnqueueResult{Items: make([]storage.Enqueued, len(p.Messages)), Now: time.Now()}
	mine := map[string]storage.NewMessage{}
	reused := false
	for i, m := range p.Messages {
		old, ok := f.keys[m.IdempotencyKey]
		if !ok {
			old, ok = mine[m.IdempotencyKey]
		}
		switch {
		case m.IdempotencyKey != "" && ok && old.ContentHash != m.ContentHash:
			res.Items[i].Status, reused = storage.EnqueueKeyReused, true
		case m.IdempotencyKey != "" && ok:
			res.Items[i].Status = storage.EnqueueDuplicate
		default:
			f.next++
			mine[m.IdempotencyKey] = m
			res.Items[i] = storage.Enqueued{Status: storage.EnqueueInserted, Ref: storage.Ref{QueueID: m.QueueID, Position: f.next}}
		}
	}
	if reused {
		for i := range res.Items {
			if res.Items[i].Status != storage.EnqueueKeyReused {
				res.Items[i] = storage.Enqueued{}
			}
		}
		return res, nil
	}
	maps.Copy(f.keys, mine)
	return res, nil
}

func (f *joinFake) Settle(ctx context.Context, p storage.SettleParams) (storage.SettleResult, error) {
	f.mu.Lock()
	f.settles = append(f.settles, p)
	f.mu.Unlock()
	if err := f.pass(ctx); err != nil {
		return storage.SettleResult{}, err
	}
	res := storage.SettleResult{Now: time.Now()}
	for _, it := range p.Items {
		out := storage.Settled{Status: storage.ItemApplied, Outcome: storage.Outcome(it.Action)}
		if f.held[it.Ref.Position] {
			out = storage.Settled{Status: storage.ItemHeld}
			if p.LockWait == 0 {
				time.Sleep(3 * time.Second)
				out.Status = storage.ItemUnknown
			}
		}
		res.Items = append(res.Items, out)
	}
	return res, nil
}

func (f *joinFake) Renew(ctx context.Context, p storage.RenewParams) (storage.RenewResult, error) {
	f.mu.Lock()
	f.renewals = append(f.renewals, p)
	f.mu.Unlock()
	if err := f.pass(ctx); err != nil {
		return storage.RenewResult{}, err
	}
	res := storage.RenewResult{Now: time.Now()}
	for _, it := range p.Items {
		out := storage.Renewed{Status: storage.ItemApplied}
		if f.held[it.Ref.Position] {
			out.Status = storage.ItemHeld
			if p.LockWait == 0 {
				time.Sleep(3 * time.Second)
				out.Status = storage.ItemApplied // it was let go in time
			}
		}
		res.Items = append(res.Items, out)
	}
	return res, nil
}

func newJoinFake() *joinFake {
	return &joinFake{keys: map[string]storage.NewMessage{}, held: map[int64]bool{}, heldKeys: map[string]bool{}}
}

func join(t *testing.T, f *joinFake, change ...func(*JoinConfig)) *Joiner {
	t.Helper()
	cfg := JoinConfig{
		Store: f, StatementTimeout: 10 * time.Second, Now: time.Now, Metrics: &laneCounts{},
		Enqueued: func(_ []storage.NewMessage, res storage.EnqueueResult) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.told += len(res.Items)
		},
		Settled: func(storage.SettleResult, time.Duration) {}, Renewed: func(storage.RenewResult) {},
		Caught: func(p any) error { return fmt.Errorf("caught: %v", p) },
	}
	for _, c := range change {
		c(&cfg)
	}
	j := NewJoiner(t.Context(), cfg)
	t.Cleanup(j.Close)
	return j
}

// behind starts calls that arrive while a statement of the lane runs, and lets it go on.
func (f *joinFake) behind(first func(), calls ...func()) (wait func()) {
	f.gate = make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(first)
	synctest.Wait()
	for _, c := range calls {
		wg.Go(c)
		synctest.Wait()
	}
	close(f.gate)
	return wg.Wait
}

func message(key string, content byte) storage.NewMessage {
	return storage.NewMessage{QueueID: 1, IdempotencyKey: key, ContentHash: [32]byte{content}}
}

func TestE9_Join_a_batch_stays_whole_and_each_call_gets_its_own_messages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newJoinFake()
		j := join(t, f)
		enqueue := func(n int) func() {
			return func() {
				res, err := j.Enqueue(t.Context(), n, make([]storage.NewMessage, n))
				require.NoError(t, err)
				require.Len(t, res.Items, n)
				for i := range res.Items {
					require.Equal(t, res.Items[0].Ref.Position+int64(i), res.Items[i].Ref.Position)
				}
			}
		}
		f.behind(enqueue(1), enqueue(3), enqueue(1), enqueue(5))()
		require.Len(t, f.enqueues, 2)
		require.Len(t, f.enqueues[1].Messages, 9)
		require.Equal(t, 10, f.told)
	})
}

func TestE3_Join_a_reused_idempotency_key_fails_its_call_and_no_neighbour(t *testing.T) {
	for name, tc := range map[string]struct {
		calls [][]storage.NewMessage
		want  []storage.EnqueueStatus // of the first message of each call
	}{
		"of a message that is there": {
			[][]storage.NewMessage{{message("new", 1)}, {message("old", 2)}, {message("third", 1)}, {message("old", 1)}},
			[]storage.EnqueueStatus{storage.EnqueueInserted, storage.EnqueueKeyReused, storage.EnqueueInserted, storage.EnqueueDuplicate},
		},
		"of a call before it in the statement": {
			[][]storage.NewMessage{{message("a", 1)}, {message("a", 2)}, {message("a", 1)}, {message("b", 1)}},
			[]storage.EnqueueStatus{storage.EnqueueInserted, storage.EnqueueKeyReused, storage.EnqueueDuplicate, storage.EnqueueInserted},
		},
		"of a call before it that is refused itself, so that the key is free": {
			[][]storage.NewMessage{{message("old", 2), message("a", 1)}, {message("a", 2)}, {message("a", 2)}},
			[]storage.EnqueueStatus{storage.EnqueueKeyReused, storage.EnqueueInserted, storage.EnqueueDuplicate},
		},
		"twice in one call": {
			[][]storage.NewMessage{{message("x", 1), message("a", 1), message("a", 2)}, {message("b", 1)}},
			[]storage.EnqueueStatus{0, storage.EnqueueInserted},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newJoinFake()
				f.keys["old"] = message("old", 1)
				j := join(t, f)
				got := make([]storage.EnqueueResult, len(tc.calls))
				calls := make([]func(), len(tc.calls))
				for i, ms := range tc.calls {
					calls[i] = func() {
						var err error
						got[i], err = j.Enqueue(t.Context(), nil, ms)
						require.NoError(t, err)
					}
				}
				f.behind(func() { _, _ = j.Enqueue(t.Context(), nil, []storage.NewMessage{message("first", 1)}) }, calls...)()
				for i := range got {
					require.Equal(t, tc.want[i], got[i].Items[0].Status, i)
				}
				if name == "twice in one call" {
					require.Equal(t, storage.EnqueueKeyReused, got[0].Items[2].Status)
					require.NotContains(t, f.keys, "x")
				}
				require.Len(t, f.enqueues[1].Messages, func() (n int) {
					for _, ms := range tc.calls {
						n += len(ms)
					}
					return n
				}(), "they were joined")
			})
		})
	}
}

func TestE6_Join_a_held_idempotency_key_holds_no_neighbour_up(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newJoinFake()
		f.heldKeys["held"] = true
		j := join(t, f)
		var neighbours, plainly sync.WaitGroup
		start := time.Now()
		var calls []func()
		for i := range 63 {
			neighbours.Add(1)
			calls = append(calls, func() {
				defer neighbours.Done()
				res, err := j.Enqueue(t.Context(), i, []storage.NewMessage{message(fmt.Sprint("k", i), 1)})
				require.NoError(t, err)
				require.Equal(t, storage.EnqueueInserted, res.Items[0].Status)
			})
		}
		var held error
		calls = append(calls, func() { _, held = j.Enqueue(t.Context(), nil, []storage.NewMessage{message("held", 1)}) })
		wait := f.behind(func() { _, _ = j.Enqueue(t.Context(), nil, []storage.NewMessage{message("first", 1)}) }, calls...)
		plainly.Go(func() {
			_, err := j.Enqueue(t.Context(), nil, make([]storage.NewMessage, 1))
			require.NoError(t, err)
			require.Zero(t, time.Since(start), "messages without keys are in another lane")
		})
		neighbours.Wait()
		require.Less(t, time.Since(start), 500*time.Millisecond)
		plainly.Wait()
		wait()
		require.ErrorIs(t, held, storage.ErrLocked, "after the usual wait")
		require.Greater(t, time.Since(start), 2*time.Second)
	})
}

// Hundreds of held keys come together with as many others, from which the store can tell them or
// not, and again.
func TestE6_Join_hundreds_of_held_keys_hold_no_neighbour_up(t *testing.T) {
	for name, blind := range map[string]bool{"the store finds them": false, "it does not": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 200
				f := newJoinFake()
				f.blind = blind
				for i := range n {
					f.heldKeys[fmt.Sprint("held", i)] = true
				}
				j := join(t, f)
				round := func(round int) (slowest, held time.Duration) {
					start := time.Now()
					var mu sync.Mutex
					var calls []func()
					for i := range n {
						calls = append(calls, func() {
							res, err := j.Enqueue(t.Context(), i, []storage.NewMessage{message(fmt.Sprint("free", round, i), 1)})
							mu.Lock()
							defer mu.Unlock()
							slowest = max(slowest, time.Since(start))
							if !blind {
								require.NoError(t, err)
								require.Equal(t, storage.EnqueueInserted, res.Items[0].Status)
							}
						}, func() {
							_, err := j.Enqueue(t.Context(), n+i, []storage.NewMessage{message(fmt.Sprint("held", i), 1)})
							require.ErrorIs(t, err, storage.ErrLocked)
							mu.Lock()
							defer mu.Unlock()
							held = max(held, time.Since(start))
						})
					}
					f.behind(func() {
						_, _ = j.Enqueue(t.Context(), nil, []storage.NewMessage{message(fmt.Sprint("first", round), 1)})
					}, calls...)()
					return slowest, held
				}
				slowest, held := round(1)
				require.Less(t, held, 10*time.Second, "all have their turn in the slow lane")
				if blind {
					require.Less(t, slowest, 10*time.Second, "the search is bounded, and so is the slow lane")
					return
				}
				require.Less(t, slowest, lockWait+splitTime)
				slowest, held = round(2)
				require.Zero(t, slowest, "the held keys are known by now")
				require.Less(t, held, 10*time.Second)
				clear(f.heldKeys)
				start := time.Now()
				for i := range n {
					_, err := j.Enqueue(t.Context(), nil, []storage.NewMessage{message(fmt.Sprint("held", i), 1)})
					require.NoError(t, err)
				}
				require.Zero(t, time.Since(start), "and had at once when they are let go")
				require.Empty(t, j.held.until, "and forgotten")
			})
		})
	}
}

func settlementAt(position int64) storage.Settlement {
	return storage.Settlement{Ref: storage.Ref{QueueID: 1, Position: position}, Action: storage.ActionComplete}
}

func TestS13_Join_a_held_row_holds_no_neighbour_up(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newJoinFake()
		f.held[4] = true
		j := join(t, f)
		start := time.Now()
		var late []storage.Settled
		var renewed storage.RenewResult
		quick := func(ps ...int64) func() {
			return func() {
				var items []storage.Settlement
				for _, p := range ps {
					items = append(items, settlementAt(p))
				}
				out, _, err := j.Settle(t.Context(), nil, items)
				require.NoError(t, err)
				require.Len(t, out, len(ps))
				require.Zero(t, time.Since(start))
			}
		}
		f.behind(quick(2), quick(6), func() {
			var err error
			late, _, err = j.Settle(t.Context(), nil, []storage.Settlement{settlementAt(8), settlementAt(4), settlementAt(10)})
			require.NoError(t, err)
		}, quick(12, 14))()
		require.Equal(t, []storage.ItemStatus{storage.ItemApplied, storage.ItemUnknown, storage.ItemApplied},
			[]storage.ItemStatus{late[0].Status, late[1].Status, late[2].Status})
		require.Len(t, f.settles, 3)
		require.Len(t, f.settles[1].Items, 6)
		require.Equal(t, []storage.Settlement{settlementAt(4)}, f.settles[2].Items, "what was settled is not settled again")

		start = time.Now()
		renewal := func(p int64) storage.Renewal { return storage.Renewal{Ref: storage.Ref{QueueID: 1, Position: p}} }
		f.behind(func() {}, func() {
			res, err := j.Renew(t.Context(), nil, []storage.Renewal{renewal(2)})
			require.NoError(t, err)
			require.Equal(t, storage.ItemApplied, res.Items[0].Status)
			require.Zero(t, time.Since(start))
		}, func() {
			var err error
			renewed, err = j.Renew(t.Context(), nil, []storage.Renewal{renewal(4), renewal(6)})
			require.NoError(t, err)
		})()
		require.Equal(t, storage.ItemApplied, renewed.Items[0].Status)
		require.Equal(t, storage.ItemApplied, renewed.Items[1].Status)
	})
}

func TestS11_Join_a_batch_of_all_kinds_goes_through_the_lanes_of_each(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newJoinFake()
		j := join(t, f)
		follow := settlementAt(6)
		follow.FollowUps = make([]storage.NewMessage, 2)
		retry := settlementAt(8)
		retry.Action = storage.ActionRetry
		out, now, err := j.Settle(t.Context(), nil, []storage.Settlement{settlementAt(3), settlementAt(2), follow, retry, settlementAt(5)})
		require.NoError(t, err)
		require.False(t, now.IsZero())
		require.Len(t, f.settles, 3)
		for i, want := range []storage.Outcome{1, 1, 1, 2, 1} {
			require.Equal(t, want, out[i].Outcome, i)
			require.Equal(t, storage.ItemApplied, out[i].Status, i)
		}

		f.fail = storage.ErrOutcomeUnknown
		_, _, err = j.Settle(t.Context(), nil, []storage.Settlement{settlementAt(3), settlementAt(2)})
		require.ErrorIs(t, err, storage.ErrOutcomeUnknown)
	})
}

func TestJoin_switched_off_sends_each_call_as_it_comes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newJoinFake()
		j := join(t, f, func(c *JoinConfig) { c.Off = true })
		settle := func() {
			out, _, err := j.Settle(t.Context(), nil, []storage.Settlement{settlementAt(3), settlementAt(2)})
			require.NoError(t, err)
			require.Len(t, out, 2)
		}
		f.behind(settle, settle, settle)()
		require.Len(t, f.settles, 3)
		require.Zero(t, f.settles[0].LockWait, "it may wait: nobody else does")
	})
}

func TestJoin_the_end_of_the_server_answers_everybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newJoinFake()
		j := join(t, f)
		f.gate = make(chan struct{})
		errs := make(chan error, 3)
		for range 3 {
			go func() {
				_, err := j.Enqueue(t.Context(), nil, make([]storage.NewMessage, 1))
				errs <- err
			}()
			synctest.Wait()
		}
		j.Close()
		for range 3 {
			require.ErrorIs(t, <-errs, storage.ErrUnavailable)
		}
		require.Len(t, f.enqueues, 1)
	})
}

func TestLaneNames_lists_the_lanes(t *testing.T) {
	var names []string
	join(t, newJoinFake()).Waiting(func(lane string, _ int) { names = append(names, lane) })
	require.ElementsMatch(t, LaneNames(), names)
}
