package dispatch

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

const (
	// atOnce is what the server knows of, secondly what a poll finds, worst the rest (W7).
	atOnce   = 20 * time.Millisecond
	secondly = 1100 * time.Millisecond
	worst    = 30 * time.Second
)

// hiding are the ways in which a row comes to stand below the front of server a. Each returns
// the row, which is claimable from then on, and how soon it must be found.
var hiding = map[string]func(t *testing.T, h *house) (*row, time.Duration){
	"an enqueue of this server that commits late": func(_ *testing.T, h *house) (*row, time.Duration) {
		r := h.add(5 * time.Second)
		h.a.ReadyAt(1, r.ready, h.now())
		return r, atOnce
	},
	"an enqueue of another server that commits late": func(_ *testing.T, h *house) (*row, time.Duration) {
		r := h.add(5 * time.Second)
		h.b.ReadyAt(1, r.ready, h.now())
		return r, atOnce
	},
	"the same, and a wake without a time after it": func(_ *testing.T, h *house) (*row, time.Duration) {
		r := h.add(5 * time.Second)
		h.b.ReadyAt(1, r.ready, h.now())
		h.b.Freed(1)
		return r, atOnce
	},
	"the same, and the notification is lost": func(_ *testing.T, h *house) (*row, time.Duration) {
		h.with(func() { h.deaf = true })
		r := h.add(5 * time.Second)
		h.b.ReadyAt(1, r.ready, h.now())
		return r, worst
	},
	"the same, and the notification fails at first": func(_ *testing.T, h *house) (*row, time.Duration) {
		h.with(func() { h.failNotify = 2 })
		r := h.add(5 * time.Second)
		h.b.ReadyAt(1, r.ready, h.now())
		return r, 3 * time.Second
	},
	"a retry or a release of this server": func(t *testing.T, h *house) (*row, time.Duration) {
		r := claimed(t, h, time.Hour)
		ready := h.now()
		time.Sleep(time.Second)
		h.pass(t)
		h.with(func() { r.ready, r.leaseEnd = ready, time.Time{} }) // it commits
		h.a.Settled(1, r.position)
		h.a.ReadyAt(1, ready, h.now())
		return r, atOnce
	},
	"what follows an operator's call or a settlement": func(_ *testing.T, h *house) (*row, time.Duration) {
		r := h.add(3 * time.Second)
		h.b.Announce(1, r.ready.Add(-time.Second))
		return r, atOnce
	},
	"a claim that is given back": func(t *testing.T, h *house) (*row, time.Duration) {
		r := claimed(t, h, time.Hour)
		h.a.GiveBack(Answer{
			Messages: []storage.Claimed{{Message: storage.Message{Ref: storage.Ref{QueueID: 1, Position: r.position}}}}, queueID: 1,
		})
		return r, atOnce
	},
	"a lease of this server that ends": func(t *testing.T, h *house) (*row, time.Duration) {
		r := claimed(t, h, 5*time.Second)
		time.Sleep(time.Until(r.leaseEnd))
		return r, atOnce
	},
	"the same, and its row is locked just then": func(t *testing.T, h *house) (*row, time.Duration) {
		r := claimed(t, h, 5*time.Second)
		h.with(func() { r.locked = true })
		time.Sleep(time.Until(r.leaseEnd))
		h.pass(t) // a claim that cannot have it
		time.Sleep(400 * time.Millisecond)
		h.with(func() { r.locked = false })
		return r, secondly
	},
	"a lease of this server that was renewed here": func(t *testing.T, h *house) (*row, time.Duration) {
		r := claimed(t, h, 5*time.Second)
		h.with(func() { r.leaseEnd = h.now().Add(5 * time.Second) })
		h.a.LeaseEnds(1, r.position, r.leaseEnd, h.now())
		time.Sleep(time.Until(r.leaseEnd))
		return r, atOnce
	},
	"a lease of another server that it cuts short": func(t *testing.T, h *house) (*row, time.Duration) {
		r := h.add(0)
		a, err := h.b.Claim(t.Context(), h.request(time.Second))
		require.NoError(t, err)
		require.Len(t, a.Messages, 1)
		time.Sleep(time.Second)
		h.pass(t)
		h.with(func() { r.leaseEnd = h.now().Add(time.Millisecond) })
		h.b.LeaseEnds(1, r.position, r.leaseEnd, h.now())
		h.b.LeasesCut(1, []int64{r.position})
		time.Sleep(time.Millisecond)
		return r, secondly
	},
	"a lease of another server that was renewed here": func(t *testing.T, h *house) (*row, time.Duration) {
		r := h.add(0, func(r *row) { r.leaseEnd = h.now().Add(2 * time.Second) })
		time.Sleep(time.Second)
		h.pass(t)
		h.with(func() { r.leaseEnd = h.now().Add(3 * time.Second) })
		h.a.LeaseEnds(1, r.position, r.leaseEnd, h.now())
		time.Sleep(time.Until(r.leaseEnd))
		return r, 3 * time.Second
	},
	"a lease of a server that died": func(_ *testing.T, h *house) (*row, time.Duration) {
		return h.add(time.Hour), worst
	},
	"the same, and the pass over all messages meets it": func(_ *testing.T, h *house) (*row, time.Duration) {
		r := h.add(time.Hour)
		h.a.Overdue(1, r.ready)
		return r, atOnce
	},
	"a row that somebody had locked": func(t *testing.T, h *house) (*row, time.Duration) {
		r := h.add(0, func(r *row) { r.locked = true })
		time.Sleep(time.Minute)
		h.pass(t)
		h.with(func() { r.locked = false })
		return r, worst
	},
	"a delayed row that becomes due": func(t *testing.T, h *house) (*row, time.Duration) {
		r := h.add(-3*time.Second, func(r *row) { r.delayed = true })
		time.Sleep(2 * time.Second)
		h.pass(t)
		time.Sleep(time.Second)
		return r, atOnce
	},
	"a delayed row that another server moves to the ready set": func(t *testing.T, h *house) (*row, time.Duration) {
		h.add(-3*time.Second, func(r *row) { r.delayed = true })
		r := h.add(-3*time.Second, func(r *row) { r.delayed = true })
		h.pass(t)
		time.Sleep(5 * time.Second)
		a, err := h.b.Claim(t.Context(), h.request(0))
		require.NoError(t, err)
		require.Len(t, a.Messages, 1, "the other one")
		return r, atOnce
	},
	"a delayed message of this server that commits after its time": func(_ *testing.T, h *house) (*row, time.Duration) {
		r := h.add(5*time.Second, func(r *row) { r.delayed = true })
		h.a.ReadyAt(1, r.ready, r.ready.Add(-time.Millisecond))
		return r, atOnce
	},
	"a delayed message of another server that commits after its time": func(_ *testing.T, h *house) (*row, time.Duration) {
		return h.add(5*time.Second, func(r *row) { r.delayed = true }), worst
	},
	"a delayed message whose row was locked": func(t *testing.T, h *house) (*row, time.Duration) {
		r := h.add(-time.Second, func(r *row) { r.delayed, r.locked = true, true })
		time.Sleep(5 * time.Second)
		h.pass(t)
		h.with(func() { r.locked = false })
		return r, worst
	},
	"a delayed message whose row was locked for a moment": func(t *testing.T, h *house) (*row, time.Duration) {
		r := h.add(-time.Second, func(r *row) { r.delayed, r.locked = true, true })
		time.Sleep(1500 * time.Millisecond)
		h.pass(t)
		h.with(func() { r.locked = false })
		return r, secondly
	},
	"a message of a new priority": func(_ *testing.T, h *house) (*row, time.Duration) {
		r := h.add(5*time.Second, func(r *row) { r.priority = 7 })
		h.a.Wake(1)
		return r, atOnce
	},
	"an enqueue while the queue is paused": func(t *testing.T, h *house) (*row, time.Duration) {
		h.with(func() { h.paused = true })
		r := h.add(0)
		for range 5 {
			_, err := h.a.Claim(t.Context(), h.request(5*time.Second))
			require.NoError(t, err)
		}
		h.with(func() { h.paused = false })
		h.a.Announce(1, time.Time{})
		return r, atOnce
	},
	"the clock of the database is set back": func(_ *testing.T, h *house) (*row, time.Duration) {
		h.with(func() { h.skew = -time.Minute })
		return h.add(0), secondly
	},
	"the queue is made anew": func(_ *testing.T, h *house) (*row, time.Duration) {
		h.id = 2
		return h.add(time.Minute, func(r *row) { r.queue = 2 }), atOnce
	},
	"the database fails and comes back without what it promised": func(t *testing.T, h *house) (*row, time.Duration) {
		r := claimed(t, h, time.Hour)
		h.with(func() { h.fail = storage.ErrUnavailable })
		_, err := h.a.Claim(t.Context(), h.request(0))
		require.Error(t, err)
		h.with(func() { h.fail, r.leaseEnd = nil, time.Time{} })
		return r, 5 * time.Second
	},
}

// claimed makes a message, claims it through server a, and lets its front pass it.
func claimed(t *testing.T, h *house, lease time.Duration) *row {
	t.Helper()
	r := h.add(0)
	h.a.ReadyAt(1, r.ready, r.ready)
	request := h.request(time.Second)
	request.LeaseFor = func(storage.Queue) (time.Duration, error) { return lease, nil }
	a, err := h.a.Claim(t.Context(), request)
	require.NoError(t, err)
	require.Len(t, a.Messages, 1)
	require.Equal(t, r.position, a.Messages[0].Message.Ref.Position)
	time.Sleep(time.Second)
	h.pass(t)
	return r
}

// W7: whatever makes a row claimable below a scan hint, it is found in time.
func TestW7HiddenRowsAreFound(t *testing.T) {
	for name, hide := range hiding {
		t.Run(name, func(t *testing.T) {
			for kind, idle := range map[string]time.Duration{"on a busy server": 0, "on one that rested for ten seconds": 10 * time.Second} {
				t.Run(kind, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						h := openHouse(t, true)
						h.pass(t)
						time.Sleep(time.Second)
						h.pass(t)
						time.Sleep(idle)
						r, within := hide(t, h)
						require.Equal(t, r.position, h.find(t, within))
					})
				})
			}
		})
	}
}

// Without this the test above would prove nothing: the rows are hidden indeed.
func TestW7ARowBelowTheFrontIsHidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHouse(t, true)
		h.pass(t)
		time.Sleep(time.Second)
		h.pass(t)
		h.add(5 * time.Second)
		a, err := h.a.Claim(t.Context(), h.request(500*time.Millisecond))
		require.NoError(t, err)
		require.Empty(t, a.Messages)
	})
}

// W1, W7: where nobody tells, a poll finds a row of another server that was committed within a
// second of its ready time.
func TestW7W1WithoutNotificationsThePollFindsALateCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHouse(t, false)
		for range 5 {
			h.pass(t)
			time.Sleep(time.Second)
		}
		r := h.add(900 * time.Millisecond)
		require.Equal(t, r.position, h.find(t, secondly))
		// The same where the claim before it has left some.
		h.add(100 * time.Millisecond)
		h.add(100 * time.Millisecond)
		require.Equal(t, r.position+1, h.find(t, secondly))
		r = h.add(900 * time.Millisecond)
		if got := h.find(t, secondly); got != r.position {
			require.Equal(t, r.position-1, got, "the one that was left")
			require.Equal(t, r.position, h.find(t, secondly))
		}
	})
}

// C12, W7: where nobody tells, and for what is delayed always, claims look behind their hints for what was
// committed late. Only some do, since behind a snapshot that somebody holds they meet all that died in
// that time; on a busy queue they would be many.
func TestC12W7FewClaimsLookFarBehindTheirHints(t *testing.T) {
	for _, tells := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := openHouse(t, tells)
			h.pass(t)
			time.Sleep(5 * time.Second)
			h.with(func() { h.claims = nil })
			for range 400 {
				r := h.add(0)
				h.a.ReadyAt(1, r.ready, h.now())
				require.Equal(t, r.position, h.find(t, atOnce))
				time.Sleep(10 * time.Millisecond)
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			var ready, due time.Time // the latest that claims started from
			far, farDue := 0, 0
			for _, p := range h.claims {
				require.Len(t, p.ScanFrom, 1)
				at := p.ScanFrom[0].ReadyTime
				if ready.Sub(at) > time.Second {
					far++
				}
				if due.Sub(p.DueFrom) > time.Second {
					farDue++
				}
				ready, due = later(ready, at), later(due, p.DueFrom)
			}
			t.Logf("others tell: %v; of %d claims %d looked far behind for what is ready, %d for what is delayed", tells, len(h.claims), far, farDue)
			require.InDelta(t, 8, farDue, 3, "four seconds, two in each")
			if tells {
				require.Zero(t, far)
			} else {
				require.InDelta(t, 8, far, 3)
			}
		})
	}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// W7: what is announced while a claim is under way that did not see it counts for its front.
func TestW7ALateCommitDuringAClaimIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHouse(t, true)
		h.pass(t)
		time.Sleep(time.Second)
		h.with(func() { h.slow = 300 * time.Millisecond })
		first := h.add(0)
		got := begin(t.Context(), h.a, h.request(10*time.Second))
		synctest.Wait() // the claim has read
		late := h.add(700 * time.Millisecond)
		h.a.ReadyAt(1, late.ready, h.now())
		require.Equal(t, first.position, position(t, <-got))
		require.Equal(t, late.position, h.find(t, time.Second))
	})
}

// C9, C12: a limit or a cut answer leaves rows, and no front passes them.
func TestW7C9ACutClaimLeavesTheRestInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHouse(t, true)
		h.pass(t)
		h.with(func() { h.most = 1 })
		var want []int64
		for i := range 20 {
			r := h.add(time.Hour-time.Duration(i)*time.Second, func(r *row) { r.priority = int32(3 - i/5) })
			want = append(want, r.position)
		}
		h.a.Announce(1, h.now().Add(-2*time.Hour))
		var got []int64
		for range want {
			got = append(got, h.find(t, time.Second))
		}
		require.Equal(t, want, got)
	})
}

// C12: behind many leased messages a claim starts at its hint, also for a worker who asks
// again and again without a wait; the look below it goes on at its own pace.
func TestW7C12HintsStayWithAWorkerThatDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHouse(t, true)
		for range 10 {
			h.add(time.Hour, func(r *row) { r.leaseEnd = time.Now().Add(time.Hour); r.priority = 5 })
		}
		h.with(func() { h.lookFor = 100 * time.Millisecond })
		for range 300 {
			_, err := h.a.Claim(t.Context(), h.request(0))
			require.NoError(t, err)
			time.Sleep(500 * time.Millisecond)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		for i, p := range h.claims[4:] {
			require.NotEmpty(t, p.ScanFrom, "claim %d", i+4)
			require.EqualValues(t, 5, max(p.ScanFrom[0].Priority, p.ScanFrom[len(p.ScanFrom)-1].Priority))
		}
		require.Greater(t, h.looks, 5)
		require.Less(t, h.looks, 20, "150 seconds, one in fifteen")
	})
}

// W7: a look that takes long is made less often, and never less than W7 bears.
func TestW7ASlowLookIsPaced(t *testing.T) {
	for took, want := range map[time.Duration]int{100 * time.Millisecond: 7, time.Second: 5, 5 * time.Second: 4} {
		synctest.Test(t, func(t *testing.T) {
			h := openHouse(t, true)
			h.with(func() { h.lookFor = took })
			for range 100 {
				_, err := h.a.Claim(t.Context(), h.request(time.Second))
				require.NoError(t, err)
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			require.InDelta(t, want, h.looks, 1, "looks of %s in 100 seconds", took)
		})
	}
}

// A queue that nobody asks for is forgotten, with its hints.
func TestW7AnIdleQueueForgetsItsHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHouse(t, true)
		h.pass(t)
		_, err := h.a.Claim(t.Context(), h.request(0))
		require.NoError(t, err)
		require.NotEmpty(t, h.claims[len(h.claims)-1].ScanFrom)
		time.Sleep(frontLife + time.Second)
		require.Empty(t, h.a.all())
		_, err = h.a.Claim(t.Context(), h.request(0))
		require.NoError(t, err)
		require.Empty(t, h.claims[len(h.claims)-1].ScanFrom, "a warm-up scan")
	})
}

// W7 at random: messages of several priorities are enqueued on two servers and committed late,
// told or not, locked for a while, claimed with short leases, and settled or not. In the end
// every one is found in time.
func TestW7RandomRowsAreFound(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			h := openHouse(t, seed%4 != 0)
			left := map[int64]*row{}
			claim := func() {
				r := h.request(time.Duration(rng.IntN(2)) * 50 * time.Millisecond)
				r.Max = 1 + rng.IntN(5)
				r.LeaseFor = func(storage.Queue) (time.Duration, error) { return 2 * time.Second, nil }
				a, err := h.a.Claim(t.Context(), r)
				require.NoError(t, err)
				for _, m := range a.Messages {
					if rng.IntN(4) > 0 {
						h.settle(left[m.Message.Ref.Position])
						delete(left, m.Message.Ref.Position)
					}
				}
			}
			for range 1500 {
				time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
				switch rng.IntN(4) {
				case 0, 1:
					late := time.Duration(rng.IntN(3)) * time.Duration(rng.IntN(400)) * time.Millisecond
					var made time.Time
					r := h.add(0, func(r *row) {
						r.priority, r.commit = int32(rng.IntN(3)), h.now().Add(late)
						r.locked = rng.IntN(20) == 0
						r.delayed = rng.IntN(10) == 0
						if r.delayed {
							r.ready = r.ready.Add(time.Duration(rng.IntN(2000)) * time.Millisecond)
						}
						made = r.ready
					})
					left[r.position] = r
					d, tell, now := h.a, rng.IntN(3) > 0, h.now()
					if rng.IntN(2) == 0 {
						d = h.b
					}
					if tell {
						time.AfterFunc(late, func() { d.ReadyAt(1, made, now.Add(late)) })
					}
					time.AfterFunc(time.Second, func() { h.with(func() { r.locked = false }) })
				default:
					claim()
				}
			}
			time.Sleep(3 * time.Second)
			for until := time.Now().Add(worst + time.Second); len(left) > 0; {
				require.True(t, time.Now().Before(until), "seed %d: %d are left", seed, len(left))
				claim()
			}
		})
	}
}
