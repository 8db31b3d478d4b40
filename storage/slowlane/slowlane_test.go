package slowlane

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

func TestS13NoMoreItemsRunThanThereArePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(3, time.Minute)
		var running, most, ran atomic.Int32
		var calls sync.WaitGroup
		for range 2 { // two calls share the places
			calls.Go(func() {
				err := l.Wait(t.Context(), []int{0, 1, 2, 3, 4}, func(context.Context, int) error {
					now := running.Add(1)
					defer running.Add(-1)
					for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
					}
					time.Sleep(time.Second)
					ran.Add(1)
					return nil
				})
				require.NoError(t, err)
			})
		}
		calls.Wait()
		require.EqualValues(t, 3, most.Load())
		require.EqualValues(t, 10, ran.Load())
	})
}

func TestS13WaitEndsWithItsPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(1, 3*time.Second)
		var began []int
		start := time.Now()
		err := l.Wait(t.Context(), []int{0, 1, 2}, func(ctx context.Context, i int) error {
			began = append(began, i)
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Second):
			}
			return fmt.Errorf("item %d: %w", i, storage.ErrLocked)
		})
		require.NoError(t, err, "in vain is no error")
		require.Equal(t, 3*time.Second, time.Since(start))
		require.Equal(t, []int{0, 1}, began)
	})
}

func TestS11AnErrorOrAPanicOfAnItemLeavesTheOthers(t *testing.T) {
	l := New(2, time.Minute)
	broken := errors.New("broken")
	var ran atomic.Int32
	err := l.Each(t.Context(), []int{0, 1, 2, 3}, func(_ context.Context, i int) error {
		ran.Add(1)
		switch i {
		case 0:
			return broken
		case 1:
			panic("oh")
		}
		return nil
	})
	require.Error(t, err)
	require.EqualValues(t, 4, ran.Load())
	require.ErrorContains(t, l.Wait(t.Context(), []int{0}, func(context.Context, int) error { panic("oh") }), "panic: oh")
	require.NoError(t, l.Each(t.Context(), nil, nil))
}

func TestE6UntilFreeTriesAgainUntilTheTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, tries, last := time.Now(), 0, 3*time.Second
		err := UntilFree(t.Context(), 2*time.Second, func(left time.Duration) error {
			require.Less(t, left, last)
			last = left
			tries++
			return storage.ErrLocked
		})
		require.ErrorIs(t, err, storage.ErrLocked)
		require.Greater(t, tries, 10)
		require.LessOrEqual(t, time.Since(start), 2*time.Second)
		tries = 0
		err = UntilFree(t.Context(), 2*time.Second, func(time.Duration) error {
			if tries++; tries < 3 {
				return storage.ErrLocked
			}
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, 3, tries)
		require.ErrorIs(t, UntilFree(t.Context(), 2*time.Second, func(time.Duration) error {
			tries++
			return storage.ErrUnavailable
		}), storage.ErrUnavailable)
		require.Equal(t, 4, tries, "any other end is one")
	})
}

// A pause may be longer than was asked for. What tries once more has time left for its waits then, for
// none at all would be no bound to whoever tries.
func TestE6UntilFreeLeavesNobodyWithoutABound(t *testing.T) {
	var tries sync.WaitGroup
	var unbound atomic.Int32
	for range 4000 {
		tries.Go(func() {
			_ = UntilFree(t.Context(), freePauseMost, func(left time.Duration) error {
				if left <= 0 {
					unbound.Add(1)
				}
				return storage.ErrLocked
			})
		})
	}
	tries.Wait()
	require.Zero(t, unbound.Load())
}
