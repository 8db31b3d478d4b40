package rowlock

import (
	"context"
	"errors"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	// againPause is the first pause of heldAgain, which doubles up to againMost.
	againPause = time.Millisecond
	againMost  = 32 * time.Millisecond
)

// heldAgain tries items once more, together and after short pauses, whose rows somebody else
// holds: the slow lane has few places, and most rows are held by a transaction that is about to
// end. A claim of MariaDB keeps the lock of every leased row that it walks over until its COMMIT,
// since InnoDB there gives back only what a scan of the primary key has passed over. It returns
// the items that are still without an answer.
func heldAgain(ctx context.Context, held []int, try func(some []int) (left []int, err error)) ([]int, error) {
	for wait := againPause; len(held) > 0 && wait <= againMost; wait *= 2 {
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
