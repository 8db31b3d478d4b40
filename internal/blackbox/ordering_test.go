package blackbox

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// everyServer starts as many servers as the engine is for: two, or one on SQLite.
// It returns a client of each; where there is one, it is both.
func everyServer(t *testing.T, db *Database, args ...string) (a, b *Client) {
	t.Helper()
	a = db.Start(t, args...).Client(t)
	if db.Servers == 1 {
		return a, a
	}
	return a, db.Start(t, args...).Client(t)
}

func enqueueOrdered(t *testing.T, c *Client, key, payload string) string {
	t.Helper()
	out, err := c.Enqueue(within(t), &queueboxv1.EnqueueRequest{Queue: "q", OrderingKey: key, Payload: []byte(payload)})
	require.NoError(t, err)
	return out.GetMessageId()
}

func requireEmpty(t *testing.T, c *Client, want queueboxv1.EmptyReason) {
	t.Helper()
	out := claimWith(t, c, &queueboxv1.ClaimRequest{Queue: "q", MaxMessages: 100})
	require.Empty(t, out.GetMessages())
	require.Equal(t, want, out.GetEmptyReason(), "C17")
}

const (
	noneReady       = queueboxv1.EmptyReason_EMPTY_REASON_NONE_READY
	orderingBlocked = queueboxv1.EmptyReason_EMPTY_REASON_ORDERING_BLOCKED
)

func TestO1O5O6OverTheWire(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		a, b := everyServer(t, db, shortLeases)
		var first []string
		for i := range 3 {
			first = append(first, enqueueOrdered(t, []*Client{a, b}[i%2], "first", fmt.Sprint(i)))
		}
		batch, err := b.BatchEnqueue(within(t), &queueboxv1.BatchEnqueueRequest{Requests: []*queueboxv1.EnqueueRequest{
			{Queue: "q", OrderingKey: "second"}, {Queue: "q", OrderingKey: "second"}, {Queue: "q"}, {Queue: "q"},
		}})
		require.NoError(t, err)
		got := claim(t, b, "q", 100, time.Minute)
		require.Len(t, got, 4, "O3 O4: one of each key, and those without one")
		require.Equal(t, first[0], got[0].GetMessage().GetMessageId())
		require.Equal(t, "first", got[0].GetMessage().GetOrderingKey())
		require.Equal(t, batch.GetResponses()[0].GetMessageId(), got[1].GetMessage().GetMessageId())
		requireEmpty(t, a, orderingBlocked)
		requireEmpty(t, b, orderingBlocked)

		// O6: the head holds its key through a retry with a delay, and a lease that runs out.
		head := got[0]
		_, err = a.Retry(within(t), &queueboxv1.RetryRequest{Queue: "q", MessageId: first[0], ClaimToken: head.GetClaimToken(), DelayMs: proto.Int64(700)})
		require.NoError(t, err)
		requireEmpty(t, b, noneReady)
		head = claimSoon(t, a, "q", 300*time.Millisecond)
		require.Equal(t, first[0], head.GetMessage().GetMessageId())
		require.EqualValues(t, 2, head.GetMessage().GetAttempt())
		head = claimSoon(t, b, "q", time.Minute)
		require.Equal(t, first[0], head.GetMessage().GetMessageId(), "its lease ran out")
		require.EqualValues(t, 3, head.GetMessage().GetAttempt())
		requireEmpty(t, a, orderingBlocked)

		// O5: then the next ones, in order, whoever settles.
		for i, id := range first[1:] {
			_, err = complete(t, []*Client{a, b}[i%2], "q", head)
			require.NoError(t, err)
			head = claimSoon(t, []*Client{b, a}[i%2], "q", time.Minute)
			require.Equal(t, id, head.GetMessage().GetMessageId())
		}
		require.EqualValues(t, 1, freshStats(t, a).GetBlockedCount(), "the other one of the second key")
	})
}

// TestO1O5UnderLoad has workers on every server take and settle the messages of few keys. What
// a worker sees must be in order, and no two may have one key at a time.
func TestO1O5UnderLoad(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		a, b := everyServer(t, db)
		clients := []*Client{a, b}
		const keys, each = 7, 30
		var producers sync.WaitGroup
		for k := range keys {
			producers.Go(func() {
				for i := range each {
					// Not require: this is not the goroutine of the test.
					_, err := clients[(k+i)%2].Enqueue(t.Context(), &queueboxv1.EnqueueRequest{
						Queue: "q", OrderingKey: fmt.Sprint("key ", k), Payload: []byte{byte(i)}, Priority: int32(i % 3), DelayMs: int64(i % 4 * 3),
					})
					if err != nil {
						t.Errorf("enqueue: %v", err)
					}
				}
			})
		}
		var (
			mu   sync.Mutex
			held = map[string]bool{}
			next = map[string]byte{}
			done int
		)
		var workers sync.WaitGroup
		for w := range 6 {
			workers.Go(func() {
				rnd := rand.New(rand.NewPCG(1, uint64(w)))
				for end := time.Now().Add(time.Minute); time.Now().Before(end); {
					mu.Lock()
					over := done == keys*each
					mu.Unlock()
					if over {
						return
					}
					out, err := clients[w%2].Claim(t.Context(), &queueboxv1.ClaimRequest{Queue: "q", MaxMessages: 3, LeaseMs: 60_000, WaitMs: 200})
					if err != nil {
						t.Errorf("claim: %v", err)
						return
					}
					for _, m := range out.GetMessages() {
						key, i := m.GetMessage().GetOrderingKey(), m.GetMessage().GetPayload()[0]
						mu.Lock()
						if held[key] {
							t.Errorf("O1: two workers have a message of %s", key)
						}
						if i != next[key] {
							t.Errorf("O5: %d of %s, not %d", i, key, next[key])
						}
						held[key] = true
						mu.Unlock()
					}
					for _, m := range out.GetMessages() {
						key, retry := m.GetMessage().GetOrderingKey(), rnd.IntN(4) == 0
						// From here on somebody else may have the key.
						mu.Lock()
						held[key] = false
						if !retry {
							next[key]++
							done++
						}
						mu.Unlock()
						server := clients[rnd.IntN(2)]
						if retry {
							_, err = server.Retry(t.Context(), &queueboxv1.RetryRequest{
								Queue: "q", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(), DelayMs: new(int64(rnd.IntN(20))),
							})
						} else {
							_, err = server.Complete(t.Context(), completion("q", m))
						}
						if err != nil {
							t.Errorf("settle: %v", err)
						}
					}
				}
			})
		}
		producers.Wait()
		workers.Wait()
		require.Equal(t, keys*each, done, "O9: all of them are done")
	})
}

// TestW1TheNextOfAKeyWakesItsWaiter: a Claim that waits is served as soon as the head of the key
// has gone, far below the poll, also on the other server where the database notifies it.
func TestW1TheNextOfAKeyWakesItsWaiter(t *testing.T) {
	Each(t, func(t *testing.T, db *Database) {
		a, b := everyServer(t, db, shortLeases, "--poll-interval=1s")
		cancel := func(t *testing.T, c *Client, m *queueboxv1.ClaimedMessage) {
			t.Helper()
			// A cancel of a head that nobody holds ends it at once.
			_, err := c.Retry(within(t), &queueboxv1.RetryRequest{Queue: "q", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(), DelayMs: proto.Int64(3_600_000)})
			require.NoError(t, err)
			cancelID(t, c, m.GetMessage().GetMessageId())
		}
		ways := map[string]func(t *testing.T, c *Client, m *queueboxv1.ClaimedMessage){
			"complete": func(t *testing.T, c *Client, m *queueboxv1.ClaimedMessage) {
				t.Helper()
				_, err := complete(t, c, "q", m)
				require.NoError(t, err)
			},
			"dead-letter": func(t *testing.T, c *Client, m *queueboxv1.ClaimedMessage) {
				t.Helper()
				_, err := c.DeadLetter(within(t), &queueboxv1.DeadLetterRequest{Queue: "q", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken()})
				require.NoError(t, err)
			},
			"cancel": cancel,
			"follow-up of another queue": func(t *testing.T, c *Client, _ *queueboxv1.ClaimedMessage) {
				t.Helper()
				enqueue(t, c, "source", "x")
				source := claimOne(t, c, "source", time.Minute)
				req := completion("source", source)
				req.FollowUps = []*queueboxv1.EnqueueRequest{{Queue: "q", Priority: 5}}
				_, err := c.Complete(within(t), req)
				require.NoError(t, err)
			},
		}
		for name, way := range ways {
			for _, other := range []bool{false, true} {
				waiter, where := a, "the same server"
				if other {
					if db.Servers == 1 {
						continue
					}
					waiter, where = b, "the other server"
				}
				t.Run(name+" on "+where, func(t *testing.T) {
					var all []time.Duration
					rounds, limit := 15, 150*time.Millisecond // a poll would take half a second
					if other && !db.Notifies {
						rounds, limit = 3, 1500*time.Millisecond // which it does here
					}
					for range rounds {
						for range 2 {
							enqueueOrdered(t, a, "key", "x")
						}
						head := claimSoon(t, a, "q", time.Hour)
						ch := waitFor(t, waiter, &queueboxv1.ClaimRequest{Queue: "q", WaitMs: 15_000, LeaseMs: 60_000})
						eventually(t, "the claim waits", func() bool { return waiting(t, waiter, "q") == 1 })
						way(t, a, head)
						at := time.Now()
						got := <-ch
						require.Len(t, got.out.GetMessages(), 1)
						all = append(all, got.at.Sub(at))
						// Whatever is left, so that the next round begins with an empty key.
						left := got.out.GetMessages()
						if name == "follow-up of another queue" {
							left = append(left, head)
						}
						for len(left) > 0 {
							for _, m := range left {
								_, err := complete(t, a, "q", m)
								require.NoError(t, err)
							}
							left = claim(t, a, "q", 10, time.Minute)
						}
					}
					t.Logf("from the end of the head to the next one: p50 %v, worst %v", Percentile(all, 0.5), Percentile(all, 1))
					require.Less(t, Percentile(all, 0.5), limit)
				})
			}
		}
	})
}

// TestO7BlockOnDead: a dead head holds its key until the queue passes over dead ones, and who
// waits is then served without asking again.
func TestO7BlockOnDead(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		a, b := everyServer(t, db)
		q := &queueboxv1.Queue{Queue: "q", OrderingMode: queueboxv1.OrderingMode_ORDERING_MODE_BLOCK_ON_DEAD}
		made, err := a.Admin.CreateQueue(within(t), &queueboxv1.CreateQueueRequest{Queue: q})
		require.NoError(t, err)
		require.Equal(t, q.GetOrderingMode(), made.GetQueue().GetOrderingMode())
		enqueueOrdered(t, a, "key", "head")
		next := enqueueOrdered(t, b, "key", "next")
		head := claimOne(t, b, "q", time.Minute)
		_, err = a.DeadLetter(within(t), &queueboxv1.DeadLetterRequest{Queue: "q", MessageId: head.GetMessage().GetMessageId(), ClaimToken: head.GetClaimToken()})
		require.NoError(t, err)
		requireEmpty(t, a, orderingBlocked)
		requireEmpty(t, b, orderingBlocked)
		enqueueOrdered(t, b, "key", "last")
		requireEmpty(t, b, orderingBlocked)

		ch := waitFor(t, b, &queueboxv1.ClaimRequest{Queue: "q", WaitMs: 15_000, LeaseMs: 60_000})
		_, err = a.Admin.UpdateQueue(within(t), &queueboxv1.UpdateQueueRequest{
			Queue:      &queueboxv1.Queue{Queue: "q", OrderingMode: queueboxv1.OrderingMode_ORDERING_MODE_SKIP_DEAD},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"ordering_mode"}},
		})
		require.NoError(t, err)
		start := time.Now()
		got := (<-ch).out.GetMessages()
		t.Logf("the key went on after %v", time.Since(start))
		require.Len(t, got, 1)
		require.Equal(t, next, got[0].GetMessage().GetMessageId())
	})
}
