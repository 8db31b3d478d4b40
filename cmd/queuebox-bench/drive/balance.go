package drive

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// balance keeps a standing backlog standing where producers and workers are different
// goroutines: a worker takes a token for each message that it handles, a producer puts one for
// each that it enqueued, and waits while more than a limit are in between. So what is counted is
// whole cycles, whichever side is the faster.
type balance struct {
	room, tokens *semaphore.Weighted
}

// mostTokens is more than are ever in between.
const mostTokens = 1 << 30

func newBalance(limit int) *balance {
	b := &balance{room: semaphore.NewWeighted(int64(limit)), tokens: semaphore.NewWeighted(mostTokens)}
	b.tokens.TryAcquire(mostTokens)
	return b
}

// reserve waits until n more messages may be enqueued.
func (b *balance) reserve(ctx context.Context, n int) error { return b.room.Acquire(ctx, int64(n)) }

// enqueued gives the tokens of n messages.
func (b *balance) enqueued(n int) { b.tokens.Release(int64(n)) }

// start waits for the tokens of n messages that are to be handled.
func (b *balance) start(ctx context.Context, n int) error { return b.tokens.Acquire(ctx, int64(n)) }

// completed makes room for n messages.
func (b *balance) completed(n int) { b.room.Release(int64(n)) }
