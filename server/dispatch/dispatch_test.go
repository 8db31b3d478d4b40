package dispatch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

func TestC16ReadyMessageComesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		d := start(t, f)
		f.add(0)
		r := request(20 * time.Second)
		r.Max = 10
		c := <-begin(t.Context(), d, r)
		require.Equal(t, int64(0), position(t, c))
		require.Zero(t, c.took)
	})
}

func TestW1WakeServesTheWaiterAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		d := start(t, f)
		ch := begin(t.Context(), d, request(20*time.Second))
		time.Sleep(300 * time.Millisecond)
		f.add(0)
		d.Wake(1)
		c := <-ch
		require.Equal(t, int64(0), position(t, c))
		require.Equal(t, 300*time.Millisecond, c.took)
	})
}

// TestW1WakeDuringALookIsNotMissed: the message appears after the statement has read
// and before its answer is there.
func TestW1WakeDuringALookIsNotMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.slowAfter = 100 * time.Millisecond
		d := start(t, f)
		ch := begin(t.Context(), d, request(20*time.Second))
		time.Sleep(50 * time.Millisecond)
		f.add(0)
		d.Wake(1)
		c := <-ch
		position(t, c)
		require.Equal(t, 200*time.Millisecond, c.took, "the second look follows the first")
	})
}

func TestW1WithoutAWakeThePollFindsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		d := start(t, f)
		ch := begin(t.Context(), d, request(20*time.Second))
		time.Sleep(100 * time.Millisecond)
		f.add(0)
		c := <-ch
		position(t, c)
		require.Equal(t, time.Second, c.took)
	})
}

func TestW2EmptyWaitEndsInTime(t *testing.T) {
	for name, tc := range map[string]struct {
		wait, deadline, want time.Duration
		empty                Empty
	}{
		"no wait":                   {0, 0, 0, NoneReady},
		"the wait":                  {3 * time.Second, 0, 3 * time.Second, NoneReady},
		"the limit of the server":   {time.Hour, 0, 20 * time.Second, NoneReady},
		"before the deadline":       {10 * time.Second, 2 * time.Second, 1750 * time.Millisecond, NoneReady},
		"C15 deadline too short":    {10 * time.Second, 200 * time.Millisecond, 0, DeadlineTooShort},
		"C15 deadline just enough":  {10 * time.Second, 250 * time.Millisecond, 0, NoneReady},
		"the wait ends before that": {time.Second, 10 * time.Second, time.Second, NoneReady},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				d := start(t, f)
				ctx := t.Context()
				if tc.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.deadline)
					defer cancel()
				}
				c := <-begin(ctx, d, request(tc.wait))
				require.NoError(t, c.err)
				require.Equal(t, tc.empty, c.answer.Empty)
				require.Equal(t, tc.want, c.took)
				if tc.empty == DeadlineTooShort {
					require.Zero(t, f.looks(), "no claim was started")
				}
			})
		})
	}
}

func TestW3DelayedMessageWakesItsWaiterWhenReady(t *testing.T) {
	t.Run("known from an empty claim", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			d := start(t, f)
			f.add(1337 * time.Millisecond)
			c := <-begin(t.Context(), d, request(20*time.Second))
			position(t, c)
			require.Equal(t, 1337*time.Millisecond, c.took)
		})
	})
	t.Run("enqueued while somebody waits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			d := start(t, f)
			ch := begin(t.Context(), d, request(20*time.Second))
			time.Sleep(100 * time.Millisecond)
			f.add(250 * time.Millisecond)
			d.ReadyAt(1, time.Now().Add(250*time.Millisecond), time.Now())
			c := <-ch
			position(t, c)
			require.Equal(t, 350*time.Millisecond, c.took)
		})
	})
	t.Run("enqueued while a look runs that does not see it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.slowAfter = 100 * time.Millisecond
			d := start(t, f)
			ch := begin(t.Context(), d, request(20*time.Second))
			time.Sleep(50 * time.Millisecond)
			f.add(250 * time.Millisecond)
			d.ReadyAt(1, time.Now().Add(250*time.Millisecond), time.Now())
			c := <-ch
			position(t, c)
			require.Equal(t, 400*time.Millisecond, c.took, "ready at 300 ms; the look takes 100 ms")
		})
	})
}

func TestW3EndOfALeaseWakesAWaiter(t *testing.T) {
	lease := func(d time.Duration) func(storage.Queue) (time.Duration, error) {
		return func(storage.Queue) (time.Duration, error) { return d, nil }
	}
	t.Run("granted here", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			d := start(t, f)
			f.add(0)
			r := request(0)
			r.LeaseFor = lease(1250 * time.Millisecond)
			position(t, <-begin(t.Context(), d, r))
			c := <-begin(t.Context(), d, request(20*time.Second))
			position(t, c)
			require.Equal(t, 1250*time.Millisecond, c.took)
		})
	})
	t.Run("renewed here", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			d := start(t, f)
			f.add(0)
			r := request(0)
			r.LeaseFor = lease(1250 * time.Millisecond)
			pos := position(t, <-begin(t.Context(), d, r))
			ch := begin(t.Context(), d, request(20*time.Second))
			time.Sleep(time.Second)
			f.mu.Lock()
			f.leases[pos] = time.Now().Add(1100 * time.Millisecond)
			f.mu.Unlock()
			d.LeaseEnds(1, pos, time.Now().Add(1100*time.Millisecond), time.Now())
			c := <-ch
			position(t, c)
			require.Equal(t, 2100*time.Millisecond, c.took)
		})
	})
	t.Run("settled here: nobody is woken for it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			d := start(t, f)
			f.add(0)
			r := request(0)
			r.LeaseFor = lease(1250 * time.Millisecond)
			pos := position(t, <-begin(t.Context(), d, r))
			require.Equal(t, 1, d.Leases())
			f.mu.Lock()
			f.leases[pos] = time.Now().Add(time.Hour)
			f.mu.Unlock()
			d.Settled(1, pos)
			require.Zero(t, d.Leases())
			before := f.looks()
			<-begin(t.Context(), d, request(1900*time.Millisecond))
			require.Equal(t, 1, f.looks()-before, "one poll: the claim had told that nothing more is there")
		})
	})
}

// TestC3TimerDoesNotSpin: a lease ended, and somebody else holds the row.
func TestC3TimerDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		d := start(t, f)
		pos := f.add(0)
		r := request(0)
		r.LeaseFor = func(storage.Queue) (time.Duration, error) { return 100 * time.Millisecond, nil }
		position(t, <-begin(t.Context(), d, r))
		f.lock(pos, true)
		ch := begin(t.Context(), d, request(20*time.Second))
		synctest.Wait()
		began := time.Now()
		f.mu.Lock()
		f.at = nil
		f.mu.Unlock()
		time.Sleep(3500 * time.Millisecond)
		var pauses []time.Duration
		f.mu.Lock()
		last := began
		for _, at := range f.at {
			pauses = append(pauses, at.Sub(last))
			last = at
		}
		f.mu.Unlock()
		ms := time.Millisecond
		require.Equal(t, []time.Duration{
			100 * ms, // the lease ends
			50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms,
			time.Second, // and from here on the polls alone
		}, pauses[:7])
		f.lock(pos, false)
		position(t, <-ch)
	})
}

func TestW4WaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		d := start(t, f)
		var chs []<-chan call
		for range 5 {
			chs = append(chs, begin(t.Context(), d, request(20*time.Second)))
			synctest.Wait()
		}
		for i, ch := range chs {
			f.add(0)
			d.Wake(1)
			synctest.Wait()
			require.Equal(t, int64(i), position(t, <-ch))
			require.Equal(t, 4-i, d.Waiting(1), "one message wakes one waiter")
		}
	})
}

func TestW4ThousandWaitersCostOnePoller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		d := start(t, f)
		var chs []<-chan call
		for range 1000 {
			chs = append(chs, begin(t.Context(), d, request(20*time.Second)))
		}
		synctest.Wait()
		require.Equal(t, 1000, d.Waiting(1))
		began := f.looks()
		time.Sleep(10 * time.Second)
		require.LessOrEqual(t, f.looks()-began, 11)
		f.mu.Lock()
		require.False(t, f.overlap)
		f.mu.Unlock()
		for range 1000 {
			f.add(0)
		}
		d.Wake(1)
		for _, ch := range chs {
			position(t, <-ch)
		}
		require.LessOrEqual(t, f.looks()-began, 13)
	})
}

// TestW4ManyQueues: 100 queues with waiters that come and go cost about a look a
// second each.
func TestW4ManyQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		d := start(t, f)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i := range 100 {
			for range 3 {
				go func() {
					for ctx.Err() == nil {
						r := request(20 * time.Second)
						r.Name = string(rune('a' + i))
						r.Queue.ID = int32(i + 1)
						_, _ = d.Claim(ctx, r)
					}
				}()
			}
		}
		time.Sleep(time.Second)
		began := f.looks()
		time.Sleep(20 * time.Second)
		require.LessOrEqual(t, f.looks()-began, 20*110)
		cancel()
		synctest.Wait()
		ended := f.looks()
		time.Sleep(frontLife + time.Second)
		require.Equal(t, ended, f.looks(), "nobody waits, so nobody looks")
		d.mu.Lock()
		defer d.mu.Unlock()
		require.Empty(t, d.byName, "nothing is kept")
	})
}

// TestW4CallerWhoComesBackCostsNoLook: a worker that waits again as soon as it was served, as a
// stream does, costs one statement a message, whatever happens or does not happen between.
func TestW4CallerWhoComesBackCostsNoLook(t *testing.T) {
	wide := func() Request {
		r := request(20 * time.Second)
		r.Max = 100
		return r
	}
	for name, between := range map[string]struct {
		happens func(f *fakeStore, d *Dispatcher)
		took    time.Duration // of the next call
		looks   int           // until it is answered
	}{
		"nothing, then a wake": {
			happens: func(f *fakeStore, d *Dispatcher) {
				time.AfterFunc(300*time.Millisecond, func() {
					f.add(0)
					d.Wake(1)
				})
			},
			took: 300 * time.Millisecond, looks: 1,
		},
		"a wake before it comes back": {
			happens: func(f *fakeStore, d *Dispatcher) {
				f.add(0)
				d.Wake(1)
			},
			looks: 1,
		},
		"a delayed message before it comes back": {
			happens: func(f *fakeStore, d *Dispatcher) {
				f.add(50 * time.Millisecond)
				d.ReadyAt(1, time.Now().Add(50*time.Millisecond), time.Now())
			},
			took: 50 * time.Millisecond, looks: 2,
		},
		"a message that nobody tells of": {
			happens: func(f *fakeStore, _ *Dispatcher) { f.add(0) },
			took:    time.Second, looks: 1,
		},
		"a while, and a message that nobody tells of": {
			happens: func(f *fakeStore, _ *Dispatcher) {
				time.Sleep(restart)
				f.add(0)
			},
			looks: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				d := start(t, f)
				f.add(0)
				position(t, <-begin(t.Context(), d, wide()))
				synctest.Wait()
				before := f.looks()
				require.Equal(t, 1, before)
				between.happens(f, d)
				c := <-begin(t.Context(), d, wide())
				require.Equal(t, int64(1), position(t, c))
				require.Equal(t, between.took, c.took)
				require.Equal(t, between.looks, f.looks()-before)
			})
		})
	}
}

// TestW3DelayedMessageThatAClaimToldOf: the answer that dealt out all that was ready told when
// the next one is.
func TestW3DelayedMessageThatAClaimToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		d := start(t, f)
		f.add(0)
		f.add(400 * time.Millisecond)
		r := request(20 * time.Second)
		r.Max = 10
		require.Equal(t, int64(0), position(t, <-begin(t.Context(), d, r)))
		c := <-begin(t.Context(), d, r)
		require.Equal(t, int64(1), position(t, c))
		require.Equal(t, 400*time.Millisecond, c.took)
		require.Equal(t, 2, f.looks())
	})
}

func TestTooManyWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := start(t, newFake(), func(c *Config) { c.MaxWaiters = 2 })
		a := begin(t.Context(), d, request(time.Second))
		b := begin(t.Context(), d, request(time.Second))
		synctest.Wait()
		c := <-begin(t.Context(), d, request(time.Second))
		require.ErrorIs(t, c.err, ErrTooManyWaiters)
		require.NoError(t, (<-a).err)
		require.NoError(t, (<-b).err)
		require.NoError(t, (<-begin(t.Context(), d, request(0))).err, "there is room again")
	})
}

func TestMaxBytesRunsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.slow = 10 * time.Millisecond
		d := start(t, f)
		first := begin(t.Context(), d, request(20*time.Second))
		time.Sleep(time.Millisecond)
		bounded := request(20 * time.Second)
		bounded.MaxPayloadBytes = 100
		a := begin(t.Context(), d, request(20*time.Second))
		synctest.Wait()
		b := begin(t.Context(), d, bounded)
		synctest.Wait()
		c := begin(t.Context(), d, request(20*time.Second))
		synctest.Wait()
		for range 4 {
			f.add(0)
		}
		for i, ch := range []<-chan call{first, a, b, c} {
			require.Equal(t, int64(i), position(t, <-ch))
		}
		for _, p := range f.claimed() {
			for _, call := range p.Calls {
				require.False(t, call.MaxPayloadBytes > 0 && len(p.Calls) > 1)
			}
		}
	})
}

func TestPollAdaptsWhereNobodyTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		d := start(t, f)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		got := make(chan time.Time, 1000)
		for range 20 {
			go func() {
				for ctx.Err() == nil {
					if a, err := d.Claim(ctx, request(20*time.Second)); err == nil && len(a.Messages) > 0 {
						got <- time.Now()
					}
				}
			}()
		}
		synctest.Wait()
		// Another server enqueues, and the engine has no notifications.
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			f.add(0)
		}
		q := d.queue(1)
		q.mu.Lock()
		poll := q.poll
		q.mu.Unlock()
		require.LessOrEqual(t, poll, 200*time.Millisecond)
		time.Sleep(10 * time.Second)
		q.mu.Lock()
		poll = q.poll
		q.mu.Unlock()
		require.Equal(t, time.Second, poll, "a quiet queue is polled slowly again")
		require.Len(t, got, 100)
	})
}

// TestClaimsAlone: where calls are not joined each one that waits has a statement of its own, in
// the order of arrival, and an empty queue is looked at once for all of them (W4).
func TestClaimsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, alone := range []bool{false, true} {
			f := newFake()
			d := start(t, f, func(c *Config) { c.ClaimsAlone = alone })
			var calls []<-chan call
			for range 10 {
				calls = append(calls, begin(t.Context(), d, request(20*time.Second)))
				synctest.Wait()
			}
			looks := f.looks()
			require.Equal(t, 1, looks, "an empty look counts for everybody")
			for range calls {
				f.add(0)
			}
			d.Wake(1)
			for i, ch := range calls {
				require.EqualValues(t, i, position(t, <-ch))
			}
			for _, p := range f.claimed()[looks:] {
				require.Equal(t, alone, len(p.Calls) == 1)
			}
			if alone {
				require.Equal(t, looks+10, f.looks())
			} else {
				require.Equal(t, looks+1, f.looks())
			}
		}
	})
}
