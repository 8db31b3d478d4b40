package server

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// keeper is an upkeep of a database whose keys fill three pages, and in which every call
// makes a message claimable.
type keeper struct {
	storage.Upkeep

	mu    sync.Mutex
	pages []int64
	at    []time.Time
}

func (k *keeper) SweepKeys(_ context.Context, p storage.SweepKeysParams) (storage.SweepKeysResult, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pages = append(k.pages, p.After)
	k.at = append(k.at, time.Now())
	time.Sleep(10 * time.Millisecond)
	res := storage.SweepKeysResult{Next: p.After + 1000, Ready: []int32{7}, Queues: []int32{int32(p.After)}}
	if p.After == 2000 {
		res.Next = 0
	}
	return res, nil
}

func (k *keeper) Sweep(_ context.Context, p storage.SweepParams) (storage.SweepResult, error) {
	if len(p.Refs) > 0 {
		return storage.SweepResult{Dead: 1, Ready: []int32{8}}, nil
	}
	return storage.SweepResult{Ready: []int32{9}}, nil
}

func (k *keeper) Retain(context.Context, storage.RetainParams) (storage.RetainResult, error) {
	return storage.RetainResult{}, nil
}

func (k *keeper) Count(context.Context, storage.CountParams) (storage.CountResult, error) {
	return storage.CountResult{}, nil
}

// TestUpkeep_O9_KeysGoPageByPage also checks that whatever the upkeep makes claimable wakes
// those who wait.
func TestUpkeep_O9_KeysGoPageByPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := newMetrics(prometheus.NewRegistry(), 10, "test", "fake")
		require.NoError(t, err)
		var mu sync.Mutex
		var woken []int32
		k := &keeper{}
		u := &upkeep{
			store: k, ends: newEnds(), metrics: m, log: slog.New(slog.DiscardHandler), now: time.Now,
			keyed:   newKeyedQueues(),
			jitter:  func() float64 { return 0.5 },
			failing: map[string]bool{},
			ready: func(ids []int32, _ time.Time) {
				mu.Lock()
				defer mu.Unlock()
				woken = append(woken, ids...)
			},
		}
		u.ends.set(storage.Ref{QueueID: 8, Position: 1}, time.Now().Add(time.Second))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			u.run(ctx)
			close(done)
		}()
		time.Sleep(5 * time.Second)
		cancel()
		<-done

		for i, page := range k.pages {
			require.EqualValues(t, i%3*1000, page)
		}
		require.GreaterOrEqual(t, len(k.pages), 6)
		for i := 1; i < len(k.at); i++ {
			// The loop has a twentieth of the time, and looks about once a second.
			pause := 210 * time.Millisecond
			if i%3 == 0 {
				pause = 985 * time.Millisecond
			}
			require.Equal(t, pause, k.at[i].Sub(k.at[i-1]), "page %d", i)
		}
		for id, has := range map[int32]bool{0: true, 1000: true, 2000: true, 3000: false} {
			require.Equal(t, has, u.keyed.has(id), "keys of queue %d", id)
		}
		for _, id := range []int32{7, 8, 9} {
			require.True(t, slices.Contains(woken, id), "queue %d", id)
		}
	})
}

// hanging is an upkeep of a database that hangs once, for as long as hang, in the first call of
// each loop.
type hanging struct {
	storage.Upkeep

	hang time.Duration

	mu    sync.Mutex
	calls map[string][]time.Time
}

func (h *hanging) call(name string) {
	h.mu.Lock()
	h.calls[name] = append(h.calls[name], time.Now())
	first := len(h.calls[name]) == 1
	h.mu.Unlock()
	if first {
		time.Sleep(h.hang)
	} else {
		time.Sleep(time.Millisecond)
	}
}

func (h *hanging) Sweep(context.Context, storage.SweepParams) (storage.SweepResult, error) {
	h.call("sweep")
	return storage.SweepResult{}, nil
}

func (h *hanging) SweepKeys(context.Context, storage.SweepKeysParams) (storage.SweepKeysResult, error) {
	h.call("keys")
	return storage.SweepKeysResult{}, nil
}

func (h *hanging) Retain(context.Context, storage.RetainParams) (storage.RetainResult, error) {
	h.call("retention")
	return storage.RetainResult{More: true}, nil
}

func (h *hanging) Count(context.Context, storage.CountParams) (storage.CountResult, error) {
	return storage.CountResult{}, nil
}

// TestUpkeep_O9_C18_ADatabaseThatHungIsSweptAgainSoon has calls that take as long as a statement
// may: what they left undone is not left for twenty times as long.
func TestUpkeep_O9_C18_ADatabaseThatHungIsSweptAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := newMetrics(prometheus.NewRegistry(), 10, "test", "fake")
		require.NoError(t, err)
		h := &hanging{hang: statementTimeout - time.Millisecond, calls: map[string][]time.Time{}}
		u := &upkeep{
			store: h, ends: newEnds(), metrics: m, log: slog.New(slog.DiscardHandler), now: time.Now,
			keyed: newKeyedQueues(), jitter: func() float64 { return 0.5 }, failing: map[string]bool{},
			ready: func([]int32, time.Time) {},
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			u.run(ctx)
			close(done)
		}()
		time.Sleep(h.hang + 5*time.Second)
		cancel()
		<-done

		for _, name := range []string{"sweep", "keys", "retention"} {
			require.Greater(t, len(h.calls[name]), 1, "%s was not called again", name)
		}
	})
}
