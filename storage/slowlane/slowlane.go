// Package slowlane runs by itself, a few at a time, what has to wait for other sessions: an item
// whose row or key somebody else holds, and completions that are a transaction each. So those who
// wait leave connections to those who do not, and one item neither fails nor delays its
// neighbours.
//
// It knows nothing of SQL, of rows or of a driver: which statements an item takes, and what their
// outcome is, is the backend's own. Of package storage it knows one sentinel, ErrUnavailable.
package slowlane

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// Lane bounds how many items run at a time, over all calls of a store. Make it with New.
type Lane struct {
	places   chan struct{}
	patience time.Duration
}

// New makes a lane with so many places. Patience bounds a call of Wait as a whole; it should
// leave room for a wait for a lock that is in vain, and the answer to it.
func New(places int, patience time.Duration) Lane {
	return Lane{places: make(chan struct{}, places), patience: patience}
}

// Wait is Each for what somebody else holds, and for no longer than the patience of the lane in
// all. An item whose wait was in vain, or that certainly did not happen (ErrUnavailable), is no
// error: it stays unanswered, and the caller looks again.
func (l Lane) Wait(ctx context.Context, items []int, f func(context.Context, int) error) error {
	ctx, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	return l.Each(ctx, items, func(ctx context.Context, i int) error {
		err := f(ctx, i)
		if errors.Is(err, storage.ErrUnavailable) {
			return nil
		}
		return err
	})
}

// Each runs f for each of the items, on goroutines, as many at a time as there are places. When
// ctx ends no other item begins. It returns when all that began have ended, with the first error;
// a panic is one too.
func (l Lane) Each(ctx context.Context, items []int, f func(context.Context, int) error) error {
	var (
		wg    sync.WaitGroup
		lock  sync.Mutex
		first error
	)
	for _, i := range items {
		select {
		case l.places <- struct{}{}:
		case <-ctx.Done():
			wg.Wait()
			return first
		}
		wg.Go(func() {
			defer func() { <-l.places }()
			if err := Guard(func() error { return f(ctx, i) }); err != nil {
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

// againPause is the first pause of Again.
const againPause = time.Millisecond

// Again tries items together once more whose rows somebody else holds, before the lane takes them
// one by one, after pauses that double from a millisecond up to most, as long as more than few of
// them are held: whoever holds many rows is mostly a transaction that is about to end, and the
// lane has few places. It returns those that are held still.
func Again(
	ctx context.Context, held []int, few int, most time.Duration, try func(some []int) (held []int, err error),
) ([]int, error) {
	for wait := againPause; len(held) > few && wait <= most; wait *= 2 {
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

// freePause and freePauseMost bound the pauses of UntilFree.
const (
	freePause     = 20 * time.Millisecond
	freePauseMost = 100 * time.Millisecond
)

// UntilFree runs try again, after a pause, as long as it was locked out (ErrLocked) and most is
// not over. It is for a transaction that has locks which others need while it looks for one that
// somebody holds: it gives up soon and lets go what it has, and the wait is in the pauses. left
// is what bounds the waits for locks that are no burden to others.
func UntilFree(ctx context.Context, most time.Duration, try func(left time.Duration) error) error {
	end := time.Now().Add(most) //nolint:forbidigo // How long this process has waited, no time of the database.
	for left := most; ; {
		err := try(left)
		// Jitter, so that those who wait for one lock do not all come at once.
		wait := freePause + rand.N(freePauseMost-freePause) //nolint:gosec // No secret hangs on a pause.
		if !errors.Is(err, storage.ErrLocked) || time.Until(end) <= wait {
			return err
		}
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
		// A pause may have been longer than it should, and no time left is no bound at all.
		if left = time.Until(end); left <= 0 {
			return err
		}
	}
}

// Guard turns a panic of f into an error: on a goroutine of a backend nobody else would catch it.
func Guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("slow lane: panic: %v", p)
		}
	}()
	return f()
}
