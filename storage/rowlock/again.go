package rowlock

import (
	"context"
	"time"

	"github.com/queuebox/queuebox/storage/slowlane"
)

// againMost is the last pause of heldAgain.
const againMost = 32 * time.Millisecond

// heldAgain is slowlane.Again, for a single row too: a claim of MariaDB keeps the lock of every
// leased row that it walks over until its COMMIT, since InnoDB there gives back only what a scan of
// the primary key has passed over.
func heldAgain(ctx context.Context, held []int, try func(some []int) (left []int, err error)) ([]int, error) {
	return slowlane.Again(ctx, held, 0, againMost, try)
}
