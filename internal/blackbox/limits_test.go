package blackbox

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// setLimits changes limits of the queue "q", which it makes where it is not there.
func setLimits(t *testing.T, c *Client, q *queueboxv1.Queue, paths ...string) {
	t.Helper()
	_, _ = c.Admin.CreateQueue(within(t), &queueboxv1.CreateQueueRequest{Queue: &queueboxv1.Queue{Queue: "q"}})
	q.Queue = "q"
	out, err := c.Admin.UpdateQueue(within(t), &queueboxv1.UpdateQueueRequest{Queue: q, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
	require.NoError(t, err)
	require.NotEmpty(t, out.GetQueue().GetEtag())
}

// TestL1EmptyReasonAndWaiters: a claim gets what max_in_flight leaves, an empty answer
// says why, and a settlement wakes whoever waits.
func TestL1EmptyReasonAndWaiters(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		c := db.Start(t, shortLeases).Client(t)
		setLimits(t, c, &queueboxv1.Queue{MaxInFlight: 3}, "max_in_flight")
		enqueueMany(t, c, "q", 20)
		held := claim(t, c, "q", 100, time.Minute)
		require.Len(t, held, 3)
		out := claimWith(t, c, &queueboxv1.ClaimRequest{Queue: "q", MaxMessages: 10})
		require.Empty(t, out.GetMessages())
		require.Equal(t, queueboxv1.EmptyReason_EMPTY_REASON_CONCURRENCY_LIMIT, out.GetEmptyReason(), "C17")
		out = claimWith(t, c, &queueboxv1.ClaimRequest{Queue: "q", MaxMessages: 10, WaitMs: 300})
		require.Equal(t, queueboxv1.EmptyReason_EMPTY_REASON_CONCURRENCY_LIMIT, out.GetEmptyReason(), "C17")

		ch := waitFor(t, c, &queueboxv1.ClaimRequest{Queue: "q", MaxMessages: 10, WaitMs: 20_000, LeaseMs: 500})
		time.Sleep(100 * time.Millisecond)
		_, err := complete(t, c, "q", held[0])
		require.NoError(t, err)
		freed := time.Now()
		got := <-ch
		require.Len(t, got.out.GetMessages(), 1)
		require.Less(t, got.at.Sub(freed), time.Second, "woken, not polled")
		// A lease that runs out frees its place too, and the message comes back.
		again := claimSoon(t, c, "q", time.Minute)
		require.Equal(t, got.out.GetMessages()[0].GetMessage().GetMessageId(), again.GetMessage().GetMessageId())
		setLimits(t, c, &queueboxv1.Queue{}, "max_in_flight")
		require.NotEmpty(t, claimSoon(t, c, "q", time.Minute))
	})
}

// TestL2EmptyReasonAndWaiters: the same for max_claims_per_second.
func TestL2EmptyReasonAndWaiters(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		c := db.Start(t).Client(t)
		setLimits(t, c, &queueboxv1.Queue{MaxClaimsPerSecond: 0.5}, "max_claims_per_second")
		enqueueMany(t, c, "q", 5)
		began := time.Now()
		require.Len(t, claim(t, c, "q", 5, time.Minute), 1)
		out := claimWith(t, c, &queueboxv1.ClaimRequest{Queue: "q", MaxMessages: 10})
		require.Equal(t, queueboxv1.EmptyReason_EMPTY_REASON_RATE_LIMIT, out.GetEmptyReason(), "C17")
		require.NotEmpty(t, claimSoon(t, c, "q", time.Minute))
		require.GreaterOrEqual(t, time.Since(began), 1900*time.Millisecond)
	})
}

// TestL1TwoServersShareTheLimit has workers on two servers, and looks at the database
// all the while.
func TestL1TwoServersShareTheLimit(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		const limit, workers, messages = 4, 8, 150
		servers := []*Server{db.Start(t), db.Start(t)}
		clients := []*Client{servers[0].Client(t), servers[1].Client(t)}
		setLimits(t, clients[0], &queueboxv1.Queue{MaxInFlight: limit}, "max_in_flight")
		enqueueMany(t, clients[0], "q", messages)
		conn := db.Open(t)
		query := `SELECT count(*) FROM ` + db.Table("message") + ` WHERE state = 1`
		var (
			held, most, done atomic.Int64
			wg               sync.WaitGroup
			mu               sync.Mutex
			seen             []string
		)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for i := range workers {
			wg.Go(func() {
				c := clients[i%2]
				for done.Load() < messages && ctx.Err() == nil {
					out, err := c.Claim(ctx, &queueboxv1.ClaimRequest{Queue: "q", MaxMessages: 3, LeaseMs: 60_000, WaitMs: 500})
					if err != nil {
						continue
					}
					for n := held.Add(int64(len(out.GetMessages()))); ; {
						old := most.Load()
						if n <= old || most.CompareAndSwap(old, n) {
							break
						}
					}
					for _, m := range out.GetMessages() {
						held.Add(-1)
						if _, err := c.Complete(ctx, completion("q", m)); err == nil {
							done.Add(1)
							mu.Lock()
							seen = append(seen, m.GetMessage().GetMessageId())
							mu.Unlock()
						}
					}
				}
			})
		}
		looks := 0
		for done.Load() < messages && ctx.Err() == nil {
			for _, n := range Rows(t, conn, query) {
				require.Contains(t, []string{"0", "1", "2", "3", "4"}, n, "L1: leases in the database")
				looks++
			}
		}
		wg.Wait()
		require.EqualValues(t, messages, done.Load())
		slices.Sort(seen)
		require.Len(t, slices.Compact(seen), messages)
		require.LessOrEqual(t, most.Load(), int64(limit))
		t.Logf("%d messages, %d looks, at most %d in hand", messages, looks, most.Load())
	})
}

// TestL1AnotherServerSettles: a waiter behind the limit hears of a settlement on another
// server, by a notification or the poll.
func TestL1AnotherServerSettles(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		a, b := db.Start(t, "--poll-interval=1s").Client(t), db.Start(t, "--poll-interval=1s").Client(t)
		setLimits(t, a, &queueboxv1.Queue{MaxInFlight: 1}, "max_in_flight")
		enqueueMany(t, a, "q", 20)
		var all []time.Duration
		m := claimSoon(t, b, "q", time.Hour)
		for range 10 {
			ch := waitFor(t, a, &queueboxv1.ClaimRequest{Queue: "q", WaitMs: 20_000, LeaseMs: 3_600_000})
			time.Sleep(50 * time.Millisecond)
			_, err := complete(t, b, "q", m)
			require.NoError(t, err)
			settled := time.Now()
			got := <-ch
			require.Len(t, got.out.GetMessages(), 1)
			all = append(all, got.at.Sub(settled))
			m = got.out.GetMessages()[0]
		}
		t.Logf("settled on one server to claimed on the other: p50 %v, worst %v", Percentile(all, 0.5), Percentile(all, 1))
		if db.Notifies {
			require.Less(t, Percentile(all, 0.5), 250*time.Millisecond, "a poll would take half a second on average")
		}
		require.Less(t, Percentile(all, 1), 4*time.Second)
	})
}

// TestL3QueueFull: a queue takes no more than max_messages, on every server once it has
// seen the counts, and again when workers have made room.
func TestL3QueueFull(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		a, b := db.Start(t).Client(t), db.Start(t).Client(t)
		setLimits(t, a, &queueboxv1.Queue{MaxMessages: 10}, "max_messages")
		enqueueMany(t, a, "q", 10)
		full := Want{Code: codes.ResourceExhausted, Reason: "QUEUE_FULL", Metadata: map[string]string{"queue": "q", "max_messages": "10"}}
		_, err := a.Enqueue(within(t), &queueboxv1.EnqueueRequest{Queue: "q"})
		RequireStatus(t, err, full)
		_, err = a.BatchEnqueue(within(t), &queueboxv1.BatchEnqueueRequest{Requests: []*queueboxv1.EnqueueRequest{{Queue: "free"}, {Queue: "q"}}})
		RequireStatus(t, err, full)
		require.Empty(t, claim(t, a, "free", 1, 0), "E9: nothing of the batch")
		freshStats(t, b)
		_, err = b.Enqueue(within(t), &queueboxv1.EnqueueRequest{Queue: "q"})
		RequireStatus(t, err, full)
		for _, m := range claim(t, b, "q", 4, time.Minute) {
			_, err := complete(t, b, "q", m)
			require.NoError(t, err)
		}
		freshStats(t, a)
		enqueue(t, a, "q", "there is room again on the other server")
		setLimits(t, a, &queueboxv1.Queue{}, "max_messages")
		enqueueMany(t, a, "q", 20)
	})
}

// TestL3CountsOutliveAServer: counts go on when the server that took them is killed.
func TestL3CountsOutliveAServer(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		first, second := db.Start(t), db.Start(t)
		c := second.Client(t)
		ids := enqueueMany(t, c, "q", 5)
		require.EqualValues(t, len(ids), freshStats(t, c).GetReadyCount())
		first.Kill()
		enqueue(t, c, "q", "one more")
		require.EqualValues(t, len(ids)+1, freshStats(t, c).GetReadyCount())
	})
}
