package dispatch

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// TestW3ALookForNobodyForgetsNoTime: a look for the sake of one claim id finds that its caller has no
// time left. When the next delayed message is due stays known.
func TestW3ALookForNobodyForgetsNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		d := start(t, f)
		f.add(700 * time.Millisecond)
		bounded := request(20 * time.Second)
		bounded.MaxPayloadBytes = 1 // so it is alone in its statement
		waits := begin(t.Context(), d, bounded)
		synctest.Wait()
		f.mu.Lock()
		f.slow = 100 * time.Millisecond
		f.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), MinDeadline+50*time.Millisecond)
		defer cancel()
		r := request(20 * time.Second)
		r.ClaimID, r.WorkerID = storage.ClaimID{1}, "w"
		late := <-begin(ctx, d, r)
		require.NoError(t, late.err)
		require.Empty(t, late.answer.Messages)
		f.mu.Lock()
		f.slow = 0
		f.mu.Unlock()
		c := <-waits
		position(t, c)
		require.Less(t, c.took, 800*time.Millisecond, "at its time, and not at the next poll")
	})
}

// TestW3WhatEndsBetweenTwoCallsIsNotMissed: nobody waits for a moment, in which a lease ends and
// something else makes this server take note of that, or in which a look fails. The next caller comes
// before it is forgotten that the queue was found empty.
func TestW3WhatEndsBetweenTwoCallsIsNotMissed(t *testing.T) {
	short := func(wait time.Duration) Request {
		r := request(wait)
		r.LeaseFor = func(storage.Queue) (time.Duration, error) { return 50 * time.Millisecond, nil }
		return r
	}
	for name, between := range map[string]func(t *testing.T, f *fakeStore, d *Dispatcher){
		"a renewal of another message": func(_ *testing.T, _ *fakeStore, d *Dispatcher) {
			d.LeaseEnds(1, 77, time.Now().Add(time.Hour), time.Now())
		},
		"somebody asks how many leases there are": func(t *testing.T, _ *fakeStore, d *Dispatcher) {
			require.Zero(t, d.Leases())
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				d := start(t, f)
				f.add(0)
				position(t, <-begin(t.Context(), d, short(20*time.Second)))
				time.Sleep(60 * time.Millisecond)
				between(t, f, d)
				c := <-begin(t.Context(), d, request(20*time.Second))
				position(t, c)
				require.Zero(t, c.took, "at once, and not at the next poll")
			})
		})
	}
	t.Run("a look that fails", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			d := start(t, f)
			f.add(1020 * time.Millisecond)
			first := begin(t.Context(), d, request(20*time.Second))
			synctest.Wait()
			f.mu.Lock()
			f.fail = storage.ErrUnavailable
			f.mu.Unlock()
			require.ErrorIs(t, (<-first).err, storage.ErrUnavailable, "at its poll")
			f.mu.Lock()
			f.fail = nil
			f.mu.Unlock()
			c := <-begin(t.Context(), d, request(20*time.Second))
			position(t, c)
			require.LessOrEqual(t, c.took, minSpin, "after the pause that follows an error")
		})
	})
}

// TestAQueueThatCouldNotBeFoundIsForgotten: a name that nobody asks for again takes no memory, also
// where the database failed when it was looked up.
func TestAQueueThatCouldNotBeFoundIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := start(t, newFake(), func(c *Config) {
			c.Resolve = func(context.Context, string) (storage.Queue, bool, error) {
				return storage.Queue{}, false, storage.ErrUnavailable
			}
		})
		r := request(time.Second)
		r.Queue = storage.Queue{}
		require.ErrorIs(t, (<-begin(t.Context(), d, r)).err, storage.ErrUnavailable)
		time.Sleep(2 * maxSpin)
		d.mu.Lock()
		defer d.mu.Unlock()
		require.Empty(t, d.byName)
	})
}

// TestW7ALookThatIsForgottenRaisesNoFront: a look was asked for what stands before a front. Where the
// fronts are forgotten meanwhile, what it says is true of nothing behind that.
func TestW7ALookThatIsForgottenRaisesNoFront(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	f := &fronts{}
	f.begin(now, true)
	f.end(storage.ClaimResult{Now: now, DueEnd: true, End: true})
	f.beginLook()
	f.forget()
	behind := now.Add(10 * time.Second)
	f.endLook(storage.FirstReadyResult{Now: behind.Add(time.Second), Priorities: []storage.FirstReady{{}}})
	require.False(t, f.hides(behind))
	f.beginLook()
	f.endLook(storage.FirstReadyResult{Now: behind.Add(time.Second), Priorities: []storage.FirstReady{{}}})
	require.True(t, f.hides(behind), "a look for all of a priority knows")
}
