package dispatch

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// gated is a fake whose claims begin when the test says so.
type gated struct {
	*fakeStore

	began, gate chan struct{}
	ended       func()
}

func (g *gated) Claim(ctx context.Context, p storage.ClaimParams) (storage.ClaimResult, error) {
	g.began <- struct{}{}
	<-g.gate
	res, err := g.fakeStore.Claim(ctx, p)
	g.ended()
	return res, err
}

// TestC15WhoLeavesIsInNobodysWay: the rows of a caller that went away go back at the moment at
// which another call comes to the same queue. Each of the two takes two locks.
func TestC15WhoLeavesIsInNobodysWay(t *testing.T) {
	g := &gated{fakeStore: newFake(), began: make(chan struct{}, 100), gate: make(chan struct{})}
	var armed atomic.Bool
	g.ended = func() { armed.CompareAndSwap(false, true) }
	dealing, deal := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	d := New(config(g, func(c *Config) {
		c.Now = func() time.Time {
			// The first time that is asked for after the statement is that of handing out, under
			// the lock of the queue.
			if armed.Load() && once.CompareAndSwap(false, true) {
				close(dealing)
				<-deal
			}
			return time.Now()
		}
	}))
	g.add(0)
	ctx, cancel := context.WithCancel(t.Context())
	gone := begin(ctx, d, request(20*time.Second))
	<-g.began
	cancel()
	require.ErrorIs(t, (<-gone).err, context.Canceled)
	close(g.gate)
	<-dealing
	next := begin(t.Context(), d, request(20*time.Second))
	require.Eventually(t, func() bool {
		if d.mu.TryLock() {
			d.mu.Unlock()
			return false
		}
		return true
	}, time.Minute, time.Millisecond, "the next call is on its way in")
	close(deal)
	select {
	case c := <-next:
		require.Equal(t, int64(0), position(t, c))
	case <-time.After(time.Minute):
		t.Fatal("the two wait for each other") // and so would Close
	}
	d.Close()
}
