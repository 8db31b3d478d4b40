package storagetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// followUpRaceRules check S10 where calls meet: one completion has one set of follow-ups,
// whoever sends it how often, and no two of them lock each other out.
func followUpRaceRules() []rule {
	return []rule{
		{name: "S7_D5_two_completions_with_one_token_have_one_set", clocks: realClock, run: followUpRace},
		{name: "S10_D2_D12_crossing_keys", clocks: realClock, run: followUpCrossing},
		{name: "S10_E2_crossing_idempotency_keys", clocks: realClock, run: followUpSameKeys},
		{name: "S10_D3_D8_connections_break_under_load", clocks: realClock, run: followUpSevered, skip: needsConnections},
	}
}

func followUpRace(t *testing.T, e *env) {
	stores := []storage.Store{e.store, e.other}
	for round := range 20 {
		key := []string{"", "a"}[round%2]
		e.one(t, ordered(key))
		c := e.claimOneAs(t, "A", time.Hour)
		got := make([]storage.Settled, 6)
		err := together(len(got), func(i int) error {
			res, err := stores[i%2].Settle(t.Context(), storage.SettleParams{Items: []storage.Settlement{
				completionOf(c, e.message(), e.message(ordered(key)), e.message(keyed(fmt.Sprint(round, i), ""))),
			}})
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
			if i != winner {
				require.Equal(t, storage.ItemAlreadySettled, item.Status, "round %d", round)
				require.Equal(t, facts(got[winner]), facts(item), "round %d", round)
			}
		}
		require.ElementsMatch(t, got[winner].FollowUps, e.drain(t), "round %d: one set", round)
	}
}

// followUpCrossing has every completion of a message of one key enqueue into others, from
// both stores, while a producer enqueues into all of them.
func followUpCrossing(t *testing.T, e *env) {
	const keys, chains, length = 4, 6, 12
	stores := []storage.Store{e.store, e.other}
	name := func(n int) string { return fmt.Sprint("key ", n%keys) }
	for i := range chains {
		e.one(t, ordered(name(i)), payload([]byte{byte(i), 0}))
	}
	var mu sync.Mutex
	last := map[string]int64{}
	done := 0
	err := together(6, func(w int) error {
		s := stores[w%2]
		for idle := time.Now(); time.Since(idle) < soon; {
			mu.Lock()
			over := done == chains*length
			mu.Unlock()
			if over {
				return nil
			}
			out, err := e.rawClaim(t.Context(), s, call(fmt.Sprint(w), 2, time.Hour))
			if err != nil {
				return err
			}
			for _, c := range out.Messages {
				idle = time.Now()
				mu.Lock()
				if key := c.Message.OrderingKey; last[key] >= c.Message.Ref.Position {
					err = errors.Join(err, fmt.Errorf("O5: %d of %q after %d", c.Message.Ref.Position, key, last[key]))
				} else {
					last[key] = c.Message.Ref.Position
				}
				mu.Unlock()
				chain, step := c.Message.Payload[0], c.Message.Payload[1]
				var next []storage.NewMessage
				if step+1 < length {
					// The chain goes on in another key; two more keys are locked on the way.
					n := int(chain)*3 + int(step)*(1+int(chain)%2)
					next = append(next,
						e.message(ordered(name(n+1)), payload([]byte{chain, step + 1})),
						e.message(ordered(name(n+2)), delay(time.Hour), payload(nil)))
					next[1].OrderingKey += " of nobody"
				}
				res, serr := s.Settle(t.Context(), storage.SettleParams{Items: []storage.Settlement{completionOf(c, next...)}})
				if serr == nil && res.Items[0].Status != storage.ItemApplied {
					serr = fmt.Errorf("status %d, cause %d", res.Items[0].Status, res.Items[0].Cause)
				}
				if err = errors.Join(err, serr); err != nil {
					return err
				}
				mu.Lock()
				done++
				mu.Unlock()
			}
		}
		return fmt.Errorf("O9: nothing is claimable, and %d of %d were done", done, chains*length)
	})
	require.NoError(t, err)
}

// followUpSameKeys has completions enqueue the same idempotency keys in opposite order.
func followUpSameKeys(t *testing.T, e *env) {
	stores := []storage.Store{e.store, e.other}
	for round := range 10 {
		const n, keys = 8, 5
		e.many(t, n)
		cs := e.claimAs(t, "A", n, time.Hour)
		require.Len(t, cs, n)
		got := make([]storage.Settled, n)
		err := together(n, func(i int) error {
			var fs []storage.NewMessage
			for k := range keys {
				if i%2 == 1 {
					k = keys - 1 - k
				}
				key := fmt.Sprint(round, " ", k)
				fs = append(fs, e.message(keyed(key, key)))
			}
			res, err := stores[i%2].Settle(t.Context(), storage.SettleParams{Items: []storage.Settlement{completionOf(cs[i], fs...)}})
			if err == nil {
				got[i] = res.Items[0]
			}
			return err
		})
		require.NoError(t, err)
		inserted := 0
		for i, item := range got {
			require.Equal(t, storage.ItemApplied, item.Status, "round %d", round)
			for _, d := range item.Duplicates {
				if !d {
					inserted++
				}
			}
			if i%2 == 0 {
				require.Equal(t, got[0].FollowUps, item.FollowUps, "round %d: the same messages", round)
			}
		}
		require.Equal(t, keys, inserted, "round %d", round)
		require.ElementsMatch(t, got[0].FollowUps, e.drain(t), "round %d", round)
	}
}

// followUpSevered completes messages, each repeated until it is answered, while every
// connection breaks again and again.
func followUpSevered(t *testing.T, e *env) {
	const n = 40
	e.many(t, n)
	cs := e.claimAs(t, "A", n, time.Hour)
	require.Len(t, cs, n)
	step := make(chan int)
	work := make(chan error, 1)
	var all []storage.Ref
	go func() {
		defer close(step)
		for i, c := range cs {
			step <- i
			s := completionOf(c, e.message(), e.message(ordered(fmt.Sprint(i%3))))
			for end := time.Now().Add(soon); ; {
				res, err := e.store.Settle(t.Context(), storage.SettleParams{Items: []storage.Settlement{s}})
				if err == nil && res.Items[0].Status != storage.ItemUnknown {
					if len(res.Items[0].FollowUps) != 2 {
						work <- fmt.Errorf("item %d: status %d with %d follow-ups", i, res.Items[0].Status, len(res.Items[0].FollowUps))
						return
					}
					all = append(all, res.Items[0].FollowUps...)
					break
				}
				known := err == nil || errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrOutcomeUnknown)
				if !known || time.Now().After(end) {
					work <- fmt.Errorf("item %d: %w", i, err)
					return
				}
			}
		}
		work <- nil
	}()
	for i := range step {
		if i%2 == 0 {
			e.sever(t)
		}
	}
	require.NoError(t, <-work)
	heals(t, "the store is ready again", func() error { return e.store.Ready(t.Context()) })
	var got []storage.Ref
	heals(t, "everything is claimed", func() error {
		got = nil
		for end := time.Now().Add(soon); len(got) < len(all) && time.Now().Before(end); {
			res, err := e.store.Claim(t.Context(), storage.ClaimParams{QueueID: e.queue.ID, Calls: []storage.ClaimCall{call("B", 100, time.Hour)}})
			if err != nil {
				return err
			}
			for _, c := range res.Calls[0].Messages {
				got = append(got, c.Message.Ref)
				if _, err := e.store.Settle(t.Context(), storage.SettleParams{Items: []storage.Settlement{settlement(c, storage.ActionComplete)}}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	require.ElementsMatch(t, all, got, "each set once")
	e.claimNothing(t)
}
