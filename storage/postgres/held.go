package postgres

import (
	"context"
	"time"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/slowlane"
)

const (
	// againFew is how many held items are left to the slow lane at once, which waits for each
	// row and has it as soon as it is let go.
	againFew = 4
	// againMost is the last pause of heldAgain, againJoined where other callers wait for the same
	// call.
	againMost   = 128 * time.Millisecond
	againJoined = 4 * time.Millisecond
)

// heldAgain is slowlane.Again. A claim that saw messages before they were leased locks them all
// once more, only to let them go.
func (s *Store) heldAgain(
	ctx context.Context, held []int, joined storage.LockWait, try func(some []int) (held []int, err error),
) ([]int, error) {
	most := againMost
	if joined > 0 {
		most = againJoined
	}
	return slowlane.Again(ctx, held, againFew, most, try)
}
