package dispatch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// TestD3CallsThatGoAloneWaitNotForEachOtherWhileTheDatabaseHangs: calls with a bound of their own on
// bytes have a statement each, one after the other. While each of them hangs until its
// deadline, the last call is still answered after no more than two.
func TestD3CallsThatGoAloneWaitNotForEachOtherWhileTheDatabaseHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.slow, f.fail = 10*time.Second, storage.ErrUnavailable
		d := start(t, f)
		var calls []<-chan call
		for i := range 30 {
			r := request(0)
			if i%3 > 0 {
				r.MaxPayloadBytes = 100
			}
			calls = append(calls, begin(t.Context(), d, r))
			time.Sleep(400 * time.Millisecond)
		}
		for _, ch := range calls {
			c := <-ch
			require.ErrorIs(t, c.err, storage.ErrUnavailable)
			require.LessOrEqual(t, c.took, 2*10*time.Second+2*maxSpin)
		}
		// What comes when the database is back is served at once.
		f.mu.Lock()
		f.slow, f.fail = 0, nil
		f.mu.Unlock()
		f.add(0)
		c := <-begin(t.Context(), d, request(0))
		position(t, c)
		require.LessOrEqual(t, c.took, maxSpin)
	})
}

// TestD3LookForAQueueThatHangsIsNoDeadlineOfTheCaller: who waits for a queue that is not known hears
// that the database is away, though it is a deadline that ended the look.
func TestD3LookForAQueueThatHangsIsNoDeadlineOfTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := start(t, newFake(), func(c *Config) {
			c.Resolve = func(ctx context.Context, _ string) (storage.Queue, bool, error) {
				<-ctx.Done()
				return storage.Queue{}, false, context.Cause(ctx)
			}
		})
		r := request(time.Second)
		r.Queue = storage.Queue{}
		c := <-begin(t.Context(), d, r)
		require.ErrorIs(t, c.err, storage.ErrUnavailable)
	})
}
