package postgres

import (
	"context"
	"errors"
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
