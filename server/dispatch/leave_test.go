package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

func TestC15CallerThatLeavesWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		d := start(t, f)
		ctx, cancel := context.WithCancel(t.Context())
		ch := begin(ctx, d, request(20*time.Second))
		synctest.Wait()
		cancel()
		require.ErrorIs(t, (<-ch).err, context.Canceled)
		require.Zero(t, d.Waiting(1))
		f.add(0)
		d.Wake(1)
		synctest.Wait()
		position(t, <-begin(t.Context(), d, request(0)))
		require.Empty(t, f.gaveBack)
	})
}

// TestC15CallerThatLeavesDuringTheStatement: the statement goes on under its own
// deadline, its row goes back, and the next waiter gets it.
func TestC15CallerThatLeavesDuringTheStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.slow = 100 * time.Millisecond
		d := start(t, f)
		f.add(0)
		ctx, cancel := context.WithCancel(t.Context())
		r := request(20 * time.Second)
		r.ClaimID, r.WorkerID = storage.ClaimID{7}, "w"
		gone := begin(ctx, d, r)
		synctest.Wait()
		next := begin(t.Context(), d, request(20*time.Second))
		time.Sleep(50 * time.Millisecond)
		cancel()
		require.ErrorIs(t, (<-gone).err, context.Canceled)
		require.Equal(t, int64(0), position(t, <-next))
		require.Len(t, f.gaveBack, 1)
		require.Equal(t, storage.ClaimID{7}, f.gaveBack[0].ClaimID)
		require.Len(t, f.gaveBack[0].Claims, 1)
	})
}

func TestC15NobodyElseIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.slow = 100 * time.Millisecond
		d := start(t, f)
		f.add(0)
		f.add(0)
		blocker := begin(t.Context(), d, request(20*time.Second))
		time.Sleep(time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		gone := begin(ctx, d, request(20*time.Second))
		synctest.Wait()
		stays := begin(t.Context(), d, request(20*time.Second))
		position(t, <-blocker)
		time.Sleep(50 * time.Millisecond) // both are in the second statement
		cancel()
		<-gone
		position(t, <-stays)
	})
}

func TestC14SameClaimIDWaitsTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		d := start(t, f)
		r := request(20 * time.Second)
		r.ClaimID, r.WorkerID = storage.ClaimID{1}, "w"
		first := begin(t.Context(), d, r)
		synctest.Wait()
		second := begin(t.Context(), d, r)
		synctest.Wait()
		f.add(0)
		f.add(0)
		d.Wake(1)
		a, b := <-first, <-second
		require.Equal(t, position(t, a), position(t, b))
		require.Equal(t, a.answer.Messages[0].Token, b.answer.Messages[0].Token)
		require.NotEqual(t, a.answer.Replayed, b.answer.Replayed, "one of them is the repeat")
		require.Zero(t, b.took, "right after the first")
		for _, p := range f.claimed() {
			ids := map[storage.ClaimID]bool{}
			for _, c := range p.Calls {
				require.False(t, ids[c.ClaimID])
				ids[c.ClaimID] = true
			}
		}
	})
}

func TestC14RepeatIsAnsweredThoughTheQueueIsEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		d := start(t, f)
		f.add(0)
		r := request(20 * time.Second)
		r.ClaimID, r.WorkerID = storage.ClaimID{1}, "w"
		position(t, <-begin(t.Context(), d, r))
		for range 3 {
			begin(t.Context(), d, request(20*time.Second)) // others wait in front
		}
		synctest.Wait()
		c := <-begin(t.Context(), d, r)
		position(t, c)
		require.True(t, c.answer.Replayed)
		require.Zero(t, c.took)
		r.WorkerID = "other"
		require.ErrorIs(t, (<-begin(t.Context(), d, r)).err, ErrClaimIDReused)
	})
}

// TestC14RepeatBehindACallThatRunsAlone: the call in front has its own bound, so the
// repeat needs a look of its own.
func TestC14RepeatBehindACallThatRunsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		d := start(t, f)
		f.add(0)
		r := request(20 * time.Second)
		r.ClaimID, r.WorkerID = storage.ClaimID{1}, "w"
		position(t, <-begin(t.Context(), d, r))
		bounded := request(20 * time.Second)
		bounded.MaxPayloadBytes = 1
		begin(t.Context(), d, bounded)
		synctest.Wait()
		c := <-begin(t.Context(), d, r)
		require.True(t, c.answer.Replayed)
		require.Zero(t, c.took)
	})
}

func TestStorageErrorAnswersThoseOfTheStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.fail = fmt.Errorf("claim: %w", storage.ErrUnavailable)
		d := start(t, f)
		c := <-begin(t.Context(), d, request(20*time.Second))
		require.ErrorIs(t, c.err, storage.ErrUnavailable)
		require.Zero(t, c.took)
		// Callers that come again at once do not make a hot loop.
		began := f.looks()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range 8 {
			go func() {
				for ctx.Err() == nil {
					_, _ = d.Claim(ctx, request(20*time.Second))
				}
			}()
		}
		time.Sleep(9 * time.Second)
		require.Less(t, f.looks()-began, 30)
		f.mu.Lock()
		f.fail = nil
		f.mu.Unlock()
		f.add(0)
		c = <-begin(t.Context(), d, request(5*time.Second))
		if c.err == nil && len(c.answer.Messages) == 0 {
			f.mu.Lock()
			require.NotEmpty(t, f.taken, "another of the callers got it")
			f.mu.Unlock()
		}
		cancel()
	})
}

func TestPanicAnswersEveryWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.panics = true
		f.slow = 10 * time.Millisecond
		d := start(t, f)
		a := begin(t.Context(), d, request(20*time.Second))
		b := begin(t.Context(), d, request(20*time.Second))
		require.ErrorContains(t, (<-a).err, "panic")
		require.ErrorContains(t, (<-b).err, "panic")
		f.mu.Lock()
		f.panics = false
		f.mu.Unlock()
		f.add(0)
		position(t, <-begin(t.Context(), d, request(20*time.Second)))
	})
}

func TestDrainAnswersWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		d := start(t, f)
		a := begin(t.Context(), d, request(20*time.Second))
		synctest.Wait()
		d.Drain()
		c := <-a
		require.NoError(t, c.err)
		require.Equal(t, Draining, c.answer.Empty)
		require.Zero(t, c.took)
		c = <-begin(t.Context(), d, request(20*time.Second))
		require.Equal(t, Draining, c.answer.Empty)
	})
}

// TestDrainKeepsWhatAStatementClaimed: rows of a running statement reach their
// caller, and who got nothing is told to go.
func TestDrainKeepsWhatAStatementClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.slow = 100 * time.Millisecond
		d := start(t, f)
		f.add(0)
		a := begin(t.Context(), d, request(20*time.Second))
		synctest.Wait()
		b := begin(t.Context(), d, request(20*time.Second))
		synctest.Wait()
		d.Drain()
		require.Equal(t, Draining, (<-b).answer.Empty)
		position(t, <-a)
	})
}

func TestUnknownQueueIsServedWhenItAppears(t *testing.T) {
	unknown := func(wait time.Duration) Request {
		r := request(wait)
		r.Queue = storage.Queue{}
		return r
	}
	resolver := func(known *atomic.Bool, asked *atomic.Int32) func(*Config) {
		return func(c *Config) {
			c.Resolve = func(context.Context, string) (storage.Queue, bool, error) {
				asked.Add(1)
				return storage.Queue{ID: 1, Name: "q"}, known.Load(), nil
			}
		}
	}
	t.Run("it does not appear", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var known atomic.Bool
			var asked atomic.Int32
			d := start(t, newFake(), resolver(&known, &asked))
			for range 9 {
				begin(t.Context(), d, unknown(3*time.Second))
				// A call that comes while one is being answered asks for another look.
				synctest.Wait()
			}
			c := <-begin(t.Context(), d, unknown(3*time.Second))
			require.Equal(t, QueueUnknown, c.answer.Empty)
			require.Equal(t, 3*time.Second, c.took)
			require.LessOrEqual(t, asked.Load(), int32(5), "one poller for all")
			require.Equal(t, QueueUnknown, (<-begin(t.Context(), d, unknown(0))).answer.Empty)
		})
	})
	t.Run("made on this server", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var known atomic.Bool
			var asked atomic.Int32
			f := newFake()
			d := start(t, f, resolver(&known, &asked))
			ch := begin(t.Context(), d, unknown(20*time.Second))
			time.Sleep(300 * time.Millisecond)
			f.add(0)
			known.Store(true)
			d.WakeName("q")
			c := <-ch
			position(t, c)
			require.Equal(t, 300*time.Millisecond, c.took)
		})
	})
	t.Run("made on another server", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var known atomic.Bool
			var asked atomic.Int32
			f := newFake()
			d := start(t, f, resolver(&known, &asked))
			ch := begin(t.Context(), d, unknown(20*time.Second))
			time.Sleep(300 * time.Millisecond)
			f.add(0)
			known.Store(true)
			c := <-ch
			position(t, c)
			require.Equal(t, time.Second, c.took)
		})
	})
	t.Run("C8 and does not allow the lease", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var known atomic.Bool
			var asked atomic.Int32
			d := start(t, newFake(), resolver(&known, &asked))
			refused := errors.New("out of range")
			r := unknown(20 * time.Second)
			r.LeaseFor = func(storage.Queue) (time.Duration, error) { return 0, refused }
			ch := begin(t.Context(), d, r)
			synctest.Wait()
			known.Store(true)
			d.WakeName("q")
			require.ErrorIs(t, (<-ch).err, refused)
		})
	})
	t.Run("known to a later caller first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var known atomic.Bool
			var asked atomic.Int32
			f := newFake()
			d := start(t, f, resolver(&known, &asked))
			ch := begin(t.Context(), d, unknown(20*time.Second))
			synctest.Wait()
			f.add(0)
			begin(t.Context(), d, request(20*time.Second))
			position(t, <-ch)
			for _, c := range f.claimed()[0].Calls {
				require.Equal(t, 30*time.Second, c.Lease)
			}
		})
	})
}

func TestNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.notifications = true
		d := start(t, f)
		ch := begin(t.Context(), d, request(20*time.Second))
		time.Sleep(300 * time.Millisecond)
		f.add(0)
		f.mu.Lock()
		wake, up := f.wake, f.up
		f.mu.Unlock()
		wake(1)
		c := <-ch
		position(t, c)
		require.Equal(t, 300*time.Millisecond, c.took)

		// What was sent while the connection was down is looked for when it is back.
		ch = begin(t.Context(), d, request(20*time.Second))
		time.Sleep(300 * time.Millisecond)
		up(false)
		f.add(0)
		up(true)
		c = <-ch
		position(t, c)
		require.Equal(t, 300*time.Millisecond, c.took)

		// Many announcements are few notifications.
		for range 100 {
			d.Announce(1, time.Now())
			d.Announce(2, time.Time{})
			time.Sleep(100 * time.Microsecond)
		}
		time.Sleep(time.Second)
		f.mu.Lock()
		defer f.mu.Unlock()
		require.LessOrEqual(t, len(f.sent), 4)
		require.GreaterOrEqual(t, len(f.sent), 2)
	})
}

// TestT6ClaimsAreAnnouncedUntilTheyAreTold: a claim that ended is told to the other servers
// beside the queues, and once more where that failed; what they tell is passed on.
func TestT6ClaimsAreAnnouncedUntilTheyAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.notifications, f.failNotify = true, 2
		var told []storage.Ref
		var up []bool
		d := start(t, f, func(c *Config) {
			c.Claims = func(refs []storage.Ref) { told = append(told, refs...) }
			c.Listening = func(is bool) {
				f.mu.Lock()
				defer f.mu.Unlock()
				up = append(up, is)
			}
		})
		synctest.Wait()
		f.mu.Lock()
		require.Equal(t, []bool{false}, up, "the others have not had the time to hear of this one")
		f.mu.Unlock()
		ref := storage.Ref{QueueID: 1, Position: 7}
		d.AnnounceClaim(ref)
		d.AnnounceClaim(ref)
		time.Sleep(5 * time.Second)
		f.mu.Lock()
		require.Equal(t, []storage.Ref{ref}, f.claims, "once, though two tries failed")
		require.Equal(t, []bool{false, true}, up)
		heard := f.heard
		f.mu.Unlock()
		heard(storage.Notice{Queues: []storage.QueueReady{{QueueID: 3}}})
		require.Empty(t, told)
		heard(storage.Notice{Queues: []storage.QueueReady{{QueueID: 3}}, Claims: []storage.Ref{ref, ref}})
		require.Equal(t, []storage.Ref{ref, ref}, told)
	})
}
