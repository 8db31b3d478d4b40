package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// witness judges what claims return: one live lease a key (O1), in order (O5).
type witness struct {
	lock   sync.Mutex
	leases map[string]map[int64]time.Time // until when, by our clock at the earliest
	last   map[string]int64
	back   map[int64]bool // redriven, so earlier than those before them
	faults []string
	claims int
}

// saw hears of a claim that was sent at a time.
func (w *witness) saw(claimed []storage.Claimed, sent time.Time, lease time.Duration) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.claims += len(claimed)
	for _, c := range claimed {
		key, position := c.Message.OrderingKey, c.Message.Ref.Position
		if key == "" {
			continue
		}
		if w.leases[key] == nil {
			w.leases[key] = make(map[int64]time.Time)
		}
		for other, until := range w.leases[key] {
			if until.After(time.Now()) && other != position {
				w.faults = append(w.faults, fmt.Sprintf("O1: key %s has %d and %d", key, other, position))
			}
		}
		if position < w.last[key] && !w.back[position] {
			w.faults = append(w.faults, fmt.Sprintf("O5: key %s gave %d after %d", key, position, w.last[key]))
		}
		w.last[key] = max(w.last[key], position)
		w.leases[key][position] = sent.Add(lease)
	}
}

// redrives hears of messages that are about to come back.
func (w *witness) redrives(positions []int64) {
	w.lock.Lock()
	defer w.lock.Unlock()
	for _, p := range positions {
		w.back[p] = true
	}
}

// lets hears of claims that their holder is about to settle.
func (w *witness) lets(claimed []storage.Claimed) {
	w.lock.Lock()
	defer w.lock.Unlock()
	for _, c := range claimed {
		delete(w.leases[c.Message.OrderingKey], c.Message.Ref.Position)
	}
}

// O1 to O9 under random load on two stores: batches over few keys, workers that crash, retry and
// reject, cancels, sweeps, redrives. In the end every message is settled, and no key row is left.
func TestO9RandomLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("ten seconds of load")
	}
	const (
		load  = 8 * time.Second
		lease = 300 * time.Millisecond
		keys  = 12
	)
	d := newDatabase(t, false)
	set := settings()
	set.MaxAttempts = 4
	set.Retry = storage.RetryPolicy{Min: time.Millisecond, Max: 20 * time.Millisecond, Multiplier: 2}
	skip, err := d.store.CreateQueue(t.Context(), "skip", set, 0)
	require.NoError(t, err)
	set.Ordering = storage.OrderingBlockOnDead
	block, err := d.store.CreateQueue(t.Context(), "block", set, 0)
	require.NoError(t, err)
	stores := []storage.Store{d.store, open(t, d.config)}
	queues := []storage.Queue{skip, block}
	w := &witness{leases: make(map[string]map[int64]time.Time), last: make(map[string]int64), back: make(map[int64]bool)}
	ctx := context.WithoutCancel(t.Context())
	var (
		enqueued, settled, cancelled, swept, redriven atomic.Int64
		pool                                          sync.Mutex
		recent                                        []storage.Ref
		producers, others                             sync.WaitGroup
		stop, ended                                   = make(chan struct{}), make(chan struct{})
		failed                                        = make(chan error, 100)
	)
	loop := func(group *sync.WaitGroup, until chan struct{}, pause time.Duration, f func(*rand.Rand) error) {
		group.Go(func() {
			r := rand.New(rand.NewPCG(rand.Uint64(), 1))
			for {
				select {
				case <-until:
					return
				case <-time.After(time.Duration(r.Float64() * float64(2*pause))):
				}
				if err := f(r); err != nil {
					select {
					case failed <- err:
					default:
					}
					return
				}
			}
		})
	}
	for i := range 3 {
		loop(&producers, stop, 8*time.Millisecond, func(r *rand.Rand) error {
			q := queues[r.IntN(2)]
			p := storage.EnqueueParams{}
			for range 1 + r.IntN(8) {
				m := storage.NewMessage{QueueID: q.ID, WireBytes: 100}
				// Keys of the two queues have different names, so that the witness tells them apart.
				if n := r.IntN(keys + 1); n < keys {
					m.OrderingKey = fmt.Sprintf("%s-%d", q.Name, n)
				}
				if r.IntN(10) == 0 {
					m.Delay = time.Duration(r.IntN(30)) * time.Millisecond
				}
				if r.IntN(20) == 0 {
					m.IdempotencyKey = fmt.Sprint(r.Uint64())
				}
				p.Messages = append(p.Messages, m)
			}
			out, err := stores[i%2].Enqueue(ctx, p)
			if err != nil {
				return fmt.Errorf("enqueue: %w", err)
			}
			enqueued.Add(int64(len(p.Messages)))
			pool.Lock()
			defer pool.Unlock()
			recent = append(recent, out.Items[r.IntN(len(out.Items))].Ref)
			return nil
		})
	}
	for i := range 6 {
		loop(&others, ended, time.Millisecond, func(r *rand.Rand) error {
			s := stores[i%2]
			sent := time.Now()
			got, err := s.Claim(ctx, storage.ClaimParams{QueueID: queues[r.IntN(2)].ID, Calls: []storage.ClaimCall{{Max: 1 + r.IntN(12), Lease: lease, WorkerID: "w"}}})
			if err != nil {
				return fmt.Errorf("claim: %w", err)
			}
			claimed := got.Calls[0].Messages
			w.saw(claimed, sent, lease)
			var items []storage.Settlement
			var mine []storage.Claimed
			for _, c := range claimed {
				item := storage.Settlement{Ref: c.Message.Ref, Token: c.Token, Action: storage.ActionComplete}
				switch n := r.IntN(100); {
				case n < 4:
					continue // crashed
				case n < 8:
					item.Action = storage.ActionRetry
				case n < 10:
					item.Action = storage.ActionRelease
				case n < 12:
					item.Action = storage.ActionDeadLetter
				}
				items, mine = append(items, item), append(mine, c)
			}
			r.Shuffle(len(items), func(a, b int) { items[a], items[b] = items[b], items[a] })
			w.lets(mine)
			if len(items) == 0 {
				return nil
			}
			res, err := s.Settle(ctx, storage.SettleParams{Items: items})
			if err != nil {
				return fmt.Errorf("settle: %w", err)
			}
			for _, it := range res.Items {
				if it.Status == storage.ItemApplied {
					settled.Add(1)
				}
			}
			return nil
		})
	}
	loop(&others, ended, 15*time.Millisecond, func(r *rand.Rand) error {
		pool.Lock()
		var ref storage.Ref
		if n := len(recent); n > 0 {
			ref, recent = recent[n-1], recent[:n-1]
		}
		pool.Unlock()
		if ref == (storage.Ref{}) {
			return nil
		}
		_, err := stores[r.IntN(2)].Cancel(ctx, storage.CancelParams{QueueID: ref.QueueID, Ref: ref})
		if err != nil && !errors.Is(err, storage.ErrMessageNotFound) {
			return fmt.Errorf("cancel: %w", err) // a deleted one is not found
		}
		cancelled.Add(1)
		return nil
	})
	for i := range 2 {
		loop(&others, ended, 50*time.Millisecond, func(*rand.Rand) error {
			out, err := stores[i].Sweep(ctx, storage.SweepParams{Limit: 1000})
			swept.Add(int64(out.Dead + out.Cancelled))
			return err
		})
		loop(&others, ended, 100*time.Millisecond, func(*rand.Rand) error {
			_, err := stores[i].SweepKeys(ctx, storage.SweepKeysParams{Limit: 1000})
			return err
		})
	}
	// An operator redrives some dead messages and deletes others, so that blocked keys go on.
	loop(&others, ended, 30*time.Millisecond, func(r *rand.Rand) error {
		if r.IntN(5) == 0 {
			d.exec(t, "DELETE FROM queuebox.dead")
			return nil
		}
		q := queues[r.IntN(2)]
		var positions []int64
		for _, l := range d.lines(t, "SELECT position::text FROM queuebox.dead WHERE queue_id = $1 AND state = 4 ORDER BY random() LIMIT 3", q.ID) {
			n, err := strconv.ParseInt(l, 10, 64)
			if err != nil {
				return err
			}
			positions = append(positions, n)
		}
		if len(positions) == 0 {
			return nil
		}
		w.redrives(positions)
		out, err := stores[r.IntN(2)].Redrive(ctx, storage.RedriveParams{
			Filter: storage.ListMessagesParams{QueueID: q.ID, Positions: positions}, Limit: 10, MaxAttempts: 1,
		})
		redriven.Add(int64(out.Count))
		return err
	})
	time.Sleep(load)
	close(stop)
	producers.Wait()
	live := func() string { return d.lines(t, "SELECT count(*)::text FROM queuebox.message")[0] }
	drained := func() bool { return len(failed) > 0 || live() == "0" }
	for end := time.Now().Add(30 * time.Second); !drained() && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	left := live()
	close(ended)
	others.Wait()
	select {
	case err := <-failed:
		require.NoError(t, err)
	default:
	}
	t.Logf("%d enqueued, %d claims, %d settlements, %d cancels, %d ended by the sweep, %d redriven",
		enqueued.Load(), w.claims, settled.Load(), cancelled.Load(), swept.Load(), redriven.Load())
	require.Empty(t, w.faults)
	if left != "0" {
		require.Empty(t, d.lines(t, `SELECT m.key_id || ' ' || coalesce(k.blocked_by::text, '-') || ': ' || string_agg(m.position || '/' || m.place || '/' || m.state, ' ' ORDER BY m.position)
			FROM queuebox.message m LEFT JOIN queuebox.ordering_key k ON k.key_id = m.key_id GROUP BY m.key_id, k.blocked_by`), "stuck: key, block, position/place/state")
	}
	require.Equal(t, "0", left, "stuck messages")
	require.Greater(t, settled.Load(), int64(100), "else this test proves nothing")
	d.exec(t, "DELETE FROM queuebox.dead")
	_, err = d.store.SweepKeys(t.Context(), storage.SweepKeysParams{Limit: 1000})
	require.NoError(t, err)
	require.Equal(t, []string{"0"}, d.lines(t, "SELECT count(*)::text FROM queuebox.ordering_key"))
}
