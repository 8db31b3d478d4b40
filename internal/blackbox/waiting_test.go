package blackbox

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// answered is the answer of a Claim and when it came.
type answered struct {
	out *queueboxv1.ClaimResponse
	at  time.Time
}

// waitFor starts a Claim that waits.
func waitFor(t *testing.T, c *Client, req *queueboxv1.ClaimRequest) <-chan answered {
	t.Helper()
	ch := make(chan answered, 1)
	go func() {
		out, err := c.Claim(t.Context(), req)
		if err != nil && t.Context().Err() == nil {
			t.Errorf("claim: %v", err)
		}
		ch <- answered{out, time.Now()}
	}()
	return ch
}

// deliveries enqueues through one client while another waits, n times, and returns
// how long after the answer of the Enqueue each Claim was answered. The Enqueue
// meets the Claim at another moment each time.
func deliveries(t *testing.T, producer, worker *Client, queue string, n int) []time.Duration {
	t.Helper()
	var all []time.Duration
	for i := range n {
		ch := waitFor(t, worker, &queueboxv1.ClaimRequest{Queue: queue, WaitMs: 20_000, LeaseMs: 60_000})
		time.Sleep(time.Duration(i%20) * 200 * time.Microsecond)
		id := enqueue(t, producer, queue, "x")
		sent := time.Now()
		a := <-ch
		require.Len(t, a.out.GetMessages(), 1, "iteration %d", i)
		require.Equal(t, id, a.out.GetMessages()[0].GetMessage().GetMessageId())
		all = append(all, a.at.Sub(sent))
		_, err := complete(t, worker, queue, a.out.GetMessages()[0])
		require.NoError(t, err)
	}
	return all
}

// TestW1NoMissedWakeUp: the fallback poll would serve a waiter that was not woken
// after half a second on average, so deliveries far below prove the wake-up.
func TestW1NoMissedWakeUp(t *testing.T) {
	Kinds(t, func(t *testing.T, db *Database) {
		s := db.Start(t, "--poll-interval=1s")
		all := deliveries(t, s.Client(t), s.Client(t), "q", 300)
		t.Logf("enqueue answered to claim answered: p50 %v, p99 %v", Percentile(all, 0.5), Percentile(all, 0.99))
		require.Less(t, Percentile(all, 0.5), 250*time.Millisecond)
		require.LessOrEqual(t, over(all, 300*time.Millisecond), 6, "of 300; a missed wake-up would show here")
	})
}

func TestW2AnEmptyWaitEndsWell(t *testing.T) {
	KindsParallel(t, func(t *testing.T, db *Database) {
		c := db.Start(t, "--max-wait=2s").Client(t)
		enqueue(t, c, "q", "x")
		claimOne(t, c, "q", time.Hour)
		empty := func(ctx context.Context, wait time.Duration) time.Duration {
			start := time.Now()
			out, err := c.Claim(ctx, &queueboxv1.ClaimRequest{Queue: "q", WaitMs: wait.Milliseconds()})
			require.NoError(t, err, "never DEADLINE_EXCEEDED")
			require.Empty(t, out.GetMessages())
			require.Equal(t, queueboxv1.EmptyReason_EMPTY_REASON_NONE_READY, out.GetEmptyReason())
			return time.Since(start)
		}
		t.Run("at wait_ms", func(t *testing.T) {
			took := empty(within(t), 400*time.Millisecond)
			require.Greater(t, took, 390*time.Millisecond)
			require.Less(t, took, 1900*time.Millisecond)
		})
		t.Run("at the deadline of the caller", func(t *testing.T) {
			for range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				took := empty(ctx, 20*time.Second)
				cancel()
				require.Greater(t, took, 300*time.Millisecond)
			}
		})
		t.Run("at the limit of the server", func(t *testing.T) {
			took := empty(within(t), time.Hour)
			require.Greater(t, took, 1900*time.Millisecond)
			require.Less(t, took, 10*time.Second)
		})
		t.Run("wait_ms 0 at once", func(t *testing.T) {
			require.Less(t, empty(within(t), 0), 1900*time.Millisecond)
		})
	})
}

// TestW3TimersWakeWaiters: with a poll of one second a message would be half a second
// late on average; a timer serves it when it is ready, and never before.
func TestW3TimersWakeWaiters(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		c := db.Start(t, shortLeases, "--poll-interval=1s").Client(t)
		kinds := map[string]func(t *testing.T, queue string, d time.Duration) (ready time.Time){
			"delayed": func(t *testing.T, queue string, d time.Duration) time.Time {
				t.Helper()
				out, err := c.Enqueue(within(t), &queueboxv1.EnqueueRequest{Queue: queue, DelayMs: d.Milliseconds()})
				require.NoError(t, err)
				return message(t, c, queue, out.GetMessageId()).GetAvailableTime().AsTime()
			},
			"retried": func(t *testing.T, queue string, d time.Duration) time.Time {
				t.Helper()
				enqueue(t, c, queue, "x")
				m := claimSoon(t, c, queue, time.Minute)
				out, err := c.Retry(within(t), &queueboxv1.RetryRequest{Queue: queue, MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(), DelayMs: new(d.Milliseconds())})
				require.NoError(t, err)
				return out.GetAvailableTime().AsTime()
			},
			"released": func(t *testing.T, queue string, d time.Duration) time.Time {
				t.Helper()
				enqueue(t, c, queue, "x")
				m := claimSoon(t, c, queue, time.Minute)
				out, err := c.Release(within(t), &queueboxv1.ReleaseRequest{Queue: queue, MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(), DelayMs: d.Milliseconds()})
				require.NoError(t, err)
				return out.GetAvailableTime().AsTime()
			},
			"lease ran out": func(t *testing.T, queue string, d time.Duration) time.Time {
				t.Helper()
				enqueue(t, c, queue, "x")
				return claimSoon(t, c, queue, d).GetLeaseExpireTime().AsTime()
			},
		}
		for name, prepare := range kinds {
			t.Run(name, func(t *testing.T) {
				var (
					mu   sync.Mutex
					late []time.Duration
					wg   sync.WaitGroup
				)
				for i := range 9 {
					queue := fmt.Sprintf("%s %d", name, i)
					ready := prepare(t, queue, time.Duration(500+i*70)*time.Millisecond)
					wg.Go(func() {
						out, err := c.Claim(t.Context(), &queueboxv1.ClaimRequest{Queue: queue, WaitMs: 15_000, LeaseMs: 60_000})
						if err != nil || len(out.GetMessages()) != 1 {
							t.Errorf("claim: %v, %v", out, err)
							return
						}
						mu.Lock()
						defer mu.Unlock()
						late = append(late, out.GetServerTime().AsTime().Sub(ready))
					})
				}
				wg.Wait()
				require.Len(t, late, 9)
				t.Logf("late: p50 %v, worst %v", Percentile(late, 0.5), Percentile(late, 1))
				require.GreaterOrEqual(t, Percentile(late, 0), time.Duration(0), "C2 C3: not one tick earlier")
				require.Less(t, Percentile(late, 0.5), 250*time.Millisecond)
			})
		}

		t.Run("a waiter that was there first is woken by a delay that comes later", func(t *testing.T) {
			var late []time.Duration
			for i := range 5 {
				queue := fmt.Sprintf("first %d", i)
				enqueue(t, c, queue, "x")
				claimSoon(t, c, queue, time.Hour)
				ch := waitFor(t, c, &queueboxv1.ClaimRequest{Queue: queue, WaitMs: 15_000, LeaseMs: 60_000})
				time.Sleep(20 * time.Millisecond)
				ready := kinds["delayed"](t, queue, 300*time.Millisecond)
				a := <-ch
				require.Len(t, a.out.GetMessages(), 1)
				late = append(late, a.out.GetServerTime().AsTime().Sub(ready))
			}
			require.GreaterOrEqual(t, Percentile(late, 0), time.Duration(0))
			require.Less(t, Percentile(late, 0.5), 250*time.Millisecond)
		})
	})
}

func TestW4WaitersAreServedInOrderAndOneByOne(t *testing.T) {
	KindsParallel(t, func(t *testing.T, db *Database) {
		c := db.Start(t).Client(t)
		enqueue(t, c, "q", "x")
		claimOne(t, c, "q", time.Hour)
		const n = 12
		var chans []<-chan answered
		for i := range n {
			chans = append(chans, waitFor(t, c, &queueboxv1.ClaimRequest{Queue: "q", WaitMs: 20_000, LeaseMs: 3_600_000, WorkerId: fmt.Sprint(i)}))
			eventually(t, "the waiter has arrived", func() bool { return waiting(t, c, "q") == i+1 })
		}
		for i, ch := range chans {
			id := enqueue(t, c, "q", "x")
			a := <-ch
			require.Len(t, a.out.GetMessages(), 1)
			require.Equal(t, id, a.out.GetMessages()[0].GetMessage().GetMessageId())
			for j, later := range chans[i+1:] {
				require.Empty(t, later, "one message wakes one waiter, and %d is not its turn", i+1+j)
			}
		}
	})
}

// thousandWaiters starts n Claims that wait, spread over some queues and
// connections, and returns once the server knows all of them.
func thousandWaiters(t *testing.T, s *Server, queues []string, n int) <-chan answered {
	t.Helper()
	c := s.Client(t)
	for _, q := range queues {
		enqueue(t, c, q, "x")
		claimOne(t, c, q, time.Hour)
	}
	conns := make([]*Client, 10)
	for i := range conns {
		conns[i] = s.Client(t)
	}
	all := make(chan answered, n)
	for i := range n {
		go func() {
			out, err := conns[i%len(conns)].Claim(t.Context(), &queueboxv1.ClaimRequest{Queue: queues[i%len(queues)], WaitMs: 20_000, LeaseMs: 3_600_000})
			if err != nil && t.Context().Err() == nil {
				t.Errorf("claim: %v", err)
			}
			all <- answered{out, time.Now()}
		}()
	}
	eventually(t, "all Claims wait", func() bool {
		sum := 0
		for _, q := range queues {
			sum += waiting(t, c, q)
		}
		return sum == n
	})
	return all
}

// TestW4AThousandWaiters counts what idle waiters cost the database, and serves them.
func TestW4AThousandWaiters(t *testing.T) {
	Kinds(t, func(t *testing.T, db *Database) {
		for _, tc := range []struct {
			name   string
			queues int
			limit  float64 // statements a second
		}{
			// One poller looks once a second or so; what a server owes the database beside
			// that (readiness, queues, sweep) is left room for.
			{"on one queue", 1, 12},
			{"on 100 queues", 100, 110},
		} {
			t.Run(tc.name, func(t *testing.T) {
				s := db.Start(t)
				var queues []string
				for i := range tc.queues {
					queues = append(queues, fmt.Sprintf("%d of %d", i, tc.queues))
				}
				const n = 1000
				all := thousandWaiters(t, s, queues, n)
				if db.Name == EnginePostgres { // which counts statements
					t.Run("statements", func(t *testing.T) {
						count := CountStatements(t, db)
						const window = 8 * time.Second
						start := time.Now()
						total, each := count.During(t, func() { time.Sleep(window) })
						took := time.Since(start).Seconds()
						t.Logf("%.1f statements a second: %v", float64(total)/took, each)
						// What happens once a second happens n+1 times in n seconds, where they begin just
						// before it; and queues that began to wait together are polled together.
						require.LessOrEqual(t, float64(total), tc.limit*took+float64(tc.queues))
					})
				}
				require.Empty(t, all, "nobody is answered before there is something")
				c := s.Client(t)
				var req queueboxv1.BatchEnqueueRequest
				for i := range n {
					req.Requests = append(req.Requests, &queueboxv1.EnqueueRequest{Queue: queues[i%len(queues)]})
				}
				_, err := c.BatchEnqueue(within(t), &req)
				require.NoError(t, err)
				seen := map[string]bool{}
				for range n {
					a := <-all
					require.Len(t, a.out.GetMessages(), 1)
					seen[a.out.GetMessages()[0].GetMessage().GetMessageId()] = true
				}
				require.Len(t, seen, n)
			})
		}
	})
}

func TestTooManyWaiters(t *testing.T) {
	KindsParallel(t, func(t *testing.T, db *Database) {
		c := db.Start(t, "--max-waiters=2").Client(t)
		enqueue(t, c, "q", "x")
		claimOne(t, c, "q", time.Hour)
		var chans []<-chan answered
		for i := range 2 {
			chans = append(chans, waitFor(t, c, &queueboxv1.ClaimRequest{Queue: "q", WaitMs: 20_000}))
			eventually(t, "the waiter has arrived", func() bool { return waiting(t, c, "q") == i+1 })
		}
		_, err := c.Claim(within(t), &queueboxv1.ClaimRequest{Queue: "q", WaitMs: 20_000})
		RequireStatus(t, err, tooManyWaiters)
		enqueueMany(t, c, "q", 2)
		for _, ch := range chans {
			require.Len(t, (<-ch).out.GetMessages(), 1)
		}
	})
}
