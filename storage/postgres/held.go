package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	// againFew is how many held items are left to the slow lane at once, which waits for each
	// row and has it as soon as it is let go.
	againFew = 4
	// againPause is the first pause of heldAgain, which doubles; the last one is againMost, and
	// againJoined where other callers wait for the same call.
	againPause  = time.Millisecond
	againMost   = 128 * time.Millisecond
	againJoined = 4 * time.Millisecond
)

// heldAgain tries items together once more whose rows somebody else holds, before the slow lane
// takes them one by one. Whoever holds many rows is mostly a statement that is about to end: a
// claim that saw the messages before they were leased locks them all once more, only to let
// them go. It returns those that are held still.
func (s *Store) heldAgain(
	ctx context.Context, held []int, joined storage.LockWait, try func(some []int) (held []int, err error),
) ([]int, error) {
	most := againMost
	if joined > 0 {
		most = againJoined
	}
	for wait := againPause; len(held) > againFew && wait <= most; wait *= 2 {
		pause := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			pause.Stop()
			return held, nil
		case <-pause.C:
		}
		left, err := try(held)
		if errors.Is(err, storage.ErrUnavailable) {
			return held, nil // it did not happen
		}
		if err != nil {
			return nil, err
		}
		held = left
	}
	return held, nil
}

// slowLane runs one statement an item for rows that somebody else holds, a few at a
// time, and for no longer than lockWait and a half in all. An item whose wait was in vain, or that
// certainly did not happen, is no error: it stays unanswered, and the caller looks again.
func (s *Store) slowLane(ctx context.Context, items []int, f func(context.Context, int) error) error {
	ctx, cancel := context.WithTimeout(ctx, lockWait+lockWait/2)
	defer cancel()
	return lane(ctx, s.slow, items, func(ctx context.Context, i int) error {
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
			err = fmt.Errorf("postgres: slow lane: panic: %v", p)
		}
	}()
	return f(ctx, i)
}
