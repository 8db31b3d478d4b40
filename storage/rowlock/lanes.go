package rowlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	// lockWait is how long a session waits for a lock of another one; the engines set it.
	lockWait = 2 * time.Second
	// slowLanes bounds the transactions that wait for rows, and followLanes those that complete
	// with follow-ups, each of them over all calls of the store.
	slowLanes   = 4
	followLanes = 4
)

// lanes bound what may run beside all else, so that those who wait leave connections to those
// who do not.
type lanes struct {
	slow, follow chan struct{}
}

func newLanes() lanes {
	return lanes{slow: make(chan struct{}, slowLanes), follow: make(chan struct{}, followLanes)}
}

// slowLane runs one transaction an item for rows that somebody else holds, a few at a time, and
// for no longer than lockWait and a half in all. An item whose wait was in vain, or that
// certainly did not happen, is no error: it stays unanswered, and the caller looks again.
func (s *Store) slowLane(ctx context.Context, items []int, f func(context.Context, int) error) error {
	ctx, cancel := context.WithTimeout(ctx, lockWait+lockWait/2)
	defer cancel()
	return lane(ctx, s.lanes.slow, items, func(ctx context.Context, i int) error {
		err := f(ctx, i)
		if errors.Is(err, storage.ErrUnavailable) {
			return nil
		}
		return err
	})
}

// lane runs one function an item, as many at a time as there are places, and gives the first
// error.
func lane(ctx context.Context, places chan struct{}, items []int, f func(context.Context, int) error) error {
	var (
		wg    sync.WaitGroup
		lock  sync.Mutex
		first error
	)
	for _, i := range items {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			wg.Wait()
			return first
		}
		wg.Go(func() {
			defer func() { <-places }()
			if err := guarded(ctx, i, f); err != nil {
				lock.Lock()
				defer lock.Unlock()
				if first == nil {
					first = err
				}
			}
		})
	}
	wg.Wait()
	return first
}

// guarded turns a panic into an error: on this goroutine nobody else would catch it.
func guarded(ctx context.Context, i int, f func(context.Context, int) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("slow lane: panic: %v", p)
		}
	}()
	return f(ctx, i)
}
