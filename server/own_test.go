package server

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// shelf is a storage in which own transactions leave things.
type shelf struct {
	storage.Own

	mu    sync.Mutex
	left  int // messages to place, one at a call
	fails int
	at    []time.Time
}

func (s *shelf) Place(context.Context, storage.PlaceParams) (storage.PlaceResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = append(s.at, time.Now())
	if s.fails > 0 {
		s.fails--
		return storage.PlaceResult{}, errors.New("away")
	}
	if s.left == 0 {
		return storage.PlaceResult{}, nil
	}
	s.left--
	return storage.PlaceResult{Placed: 1, More: s.left > 0}, nil
}

func (s *shelf) Finish(context.Context, storage.FinishParams) (storage.FinishResult, error) {
	return storage.FinishResult{}, storage.ErrNotSupported
}

func (s *shelf) put(n, fails int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left, s.fails, s.at = n, fails, nil
}

// looks returns when it was looked at since the last put, and how many are left.
func (s *shelf) looks() ([]time.Time, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at, s.left
}

// TestOwn_E12_LooksWithinASecond also checks that it looks at once when it is told, again while
// there is more, and goes on after failures.
func TestOwn_E12_LooksWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := newMetrics(prometheus.NewRegistry(), 10, "test", "fake")
		require.NoError(t, err)
		s := &shelf{}
		o := newOwn()
		o.store = s
		o.upkeep = &upkeep{metrics: m, log: slog.New(slog.DiscardHandler), now: time.Now, jitter: func() float64 { return 0 }, failing: map[string]bool{}}
		o.placed, o.finished = m.placed, func(storage.FinishResult) {}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { o.run(ctx) })

		time.Sleep(10 * time.Second) // of the bubble: nothing is there
		looks, _ := s.looks()
		require.GreaterOrEqual(t, len(looks), 10, "at least once a second")
		require.LessOrEqual(t, len(looks), 20, "and not much more often")

		began := time.Now()
		s.put(5, 0)
		o.wake()
		synctest.Wait()
		looks, left := s.looks()
		require.Zero(t, left, "all of it at once")
		require.Zero(t, looks[4].Sub(began))

		time.Sleep(10 * time.Second)
		s.put(3, 0)
		time.Sleep(time.Second)
		_, left = s.looks()
		require.Zero(t, left, "within a second, told or not")

		s.put(1, 2)
		time.Sleep(5 * time.Second)
		_, left = s.looks()
		require.Zero(t, left, "after failures too")
		stop()
		wg.Wait()
	})
}
