package blackbox

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

func TestClaim(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		s := db.Start(t)
		c := s.Client(t)

		t.Run("C7 at most max_messages, and 0 means 1", func(t *testing.T) {
			enqueueMany(t, c, "c7", 10)
			require.Len(t, claim(t, c, "c7", 0, 0), 1)
			require.Len(t, claim(t, c, "c7", 3, 0), 3)
			require.Len(t, claim(t, c, "c7", 1000, 0), 6)
		})

		t.Run("C1 claimers beside each other never share a message", func(t *testing.T) {
			want := enqueueMany(t, c, "c1", 600)
			var (
				mu   sync.Mutex
				seen = map[string]int{}
				wg   sync.WaitGroup
			)
			for i := range 12 {
				wg.Go(func() {
					for {
						out, err := c.Claim(t.Context(), &queueboxv1.ClaimRequest{Queue: "c1", MaxMessages: int32(1 + i)})
						if err != nil || len(out.GetMessages()) == 0 {
							return
						}
						mu.Lock()
						for _, m := range out.GetMessages() {
							seen[m.GetMessage().GetMessageId()]++
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			require.Len(t, seen, len(want))
			for _, id := range want {
				require.Equal(t, 1, seen[id])
			}
		})

		t.Run("C8 limits of the queue and its defaults", func(t *testing.T) {
			_, err := c.Admin.CreateQueue(within(t), &queueboxv1.CreateQueueRequest{Queue: &queueboxv1.Queue{Queue: "c8", DefaultLeaseMs: 7_000, MinLeaseMs: 5_000, MaxLeaseMs: 9_000}})
			require.NoError(t, err)
			enqueueMany(t, c, "c8", 4)
			for lease, want := range map[int64]int64{0: 7_000, 5_000: 5_000, 9_000: 9_000} {
				got := claimWith(t, c, &queueboxv1.ClaimRequest{Queue: "c8", LeaseMs: lease})
				require.Len(t, got.GetMessages(), 1)
				requireLease(t, time.Duration(want)*time.Millisecond, leaseOf{got.GetMessages()[0], got})
			}
			conn := db.Open(t)
			before := db.Dump(t, conn)
			for _, lease := range []int64{4_999, 9_001} {
				_, err = c.Claim(within(t), &queueboxv1.ClaimRequest{Queue: "c8", LeaseMs: lease})
				RequireStatus(t, err, leaseOutOfRange)
			}
			require.Equal(t, before, db.Dump(t, conn))

			m := claimWith(t, c, &queueboxv1.ClaimRequest{Queue: "c8", LeaseMs: 9_000}).GetMessages()[0]
			_, err = c.Admin.UpdateQueue(within(t), &queueboxv1.UpdateQueueRequest{
				Queue: &queueboxv1.Queue{Queue: "c8", MaxLeaseMs: 8_000}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"max_lease_ms"}},
			})
			require.NoError(t, err)
			eventually(t, "a Renew without a length is cut to the present maximum", func() bool {
				out, err := c.Renew(within(t), &queueboxv1.RenewRequest{Queue: "c8", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken()})
				require.NoError(t, err)
				return leaseLength(out).Round(time.Second) == 8*time.Second
			})
		})

		t.Run("C9 priority, then ready time, then position", func(t *testing.T) {
			var want []string
			var req queueboxv1.BatchEnqueueRequest
			for i := range 9 {
				req.Requests = append(req.Requests, &queueboxv1.EnqueueRequest{Queue: "c9", Priority: int32(i % 3)})
			}
			out, err := c.BatchEnqueue(within(t), &req)
			require.NoError(t, err)
			for p := 2; p >= 0; p-- {
				for i, r := range out.GetResponses() {
					if i%3 == p {
						want = append(want, r.GetMessageId())
					}
				}
			}
			var got []string
			for _, m := range append(claim(t, c, "c9", 4, 0), claim(t, c, "c9", 9, 0)...) {
				got = append(got, m.GetMessage().GetMessageId())
			}
			require.Equal(t, want, got)
		})

		t.Run("C13 an answer never exceeds what a client receives, and nothing is leased that it does not carry", func(t *testing.T) {
			const n, size = 24, 1 << 20
			for range n {
				_, err := c.Enqueue(within(t), &queueboxv1.EnqueueRequest{Queue: "c13", Payload: make([]byte, size), Attributes: map[string]string{"a": "b"}})
				require.NoError(t, err)
			}
			seen := map[string]bool{}
			var mu sync.Mutex
			var wg sync.WaitGroup
			for range 4 { // callers that are joined into one statement share its bound, too
				wg.Go(func() {
					for {
						out, err := c.Claim(t.Context(), &queueboxv1.ClaimRequest{Queue: "c13", MaxMessages: 1000, LeaseMs: 3_600_000, WaitMs: 500})
						if err != nil {
							t.Errorf("claim: %v", err)
							return
						}
						if len(out.GetMessages()) == 0 {
							return
						}
						if got := proto.Size(out); got > 4<<20-1 {
							t.Errorf("an answer of %d bytes", got)
						}
						mu.Lock()
						for _, m := range out.GetMessages() {
							seen[m.GetMessage().GetMessageId()] = true
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			require.Len(t, seen, n, "with leases of an hour, each must have been delivered once")
		})

		t.Run("C13 max_bytes cuts before it leases", func(t *testing.T) {
			for range 6 {
				_, err := c.Enqueue(within(t), &queueboxv1.EnqueueRequest{Queue: "c13b", Payload: make([]byte, 1000)})
				require.NoError(t, err)
			}
			get := func(limit int64) int {
				return len(claimWith(t, c, &queueboxv1.ClaimRequest{Queue: "c13b", MaxMessages: 10, LeaseMs: 3_600_000, MaxBytes: limit}).GetMessages())
			}
			require.Equal(t, 1, get(10), "one message is always allowed")
			require.Equal(t, 2, get(2_999))
			require.Equal(t, 3, get(3_000), "nothing that was cut is leased")
		})

		t.Run("C16 an answer goes out with the first message", func(t *testing.T) {
			done := make(chan *queueboxv1.ClaimResponse, 1)
			start := time.Now()
			go func() {
				out, err := c.Claim(t.Context(), &queueboxv1.ClaimRequest{Queue: "c16", MaxMessages: 100, WaitMs: 20_000})
				if err != nil {
					t.Errorf("claim: %v", err)
				}
				done <- out
			}()
			time.Sleep(50 * time.Millisecond)
			enqueue(t, c, "c16", "x")
			require.Len(t, (<-done).GetMessages(), 1)
			require.Less(t, time.Since(start), 10*time.Second)
		})

		t.Run("C17 an empty answer says why", func(t *testing.T) {
			enqueue(t, c, "c17", "x")
			_, err := c.Admin.PauseQueue(within(t), &queueboxv1.PauseQueueRequest{Queue: "c17"})
			require.NoError(t, err)
			eventually(t, "paused", func() bool {
				out := claimWith(t, c, &queueboxv1.ClaimRequest{Queue: "c17"})
				return out.GetEmptyReason() == queueboxv1.EmptyReason_EMPTY_REASON_PAUSED
			})
			_, err = c.Admin.ResumeQueue(within(t), &queueboxv1.ResumeQueueRequest{Queue: "c17"})
			require.NoError(t, err)
			out := claimWith(t, c, &queueboxv1.ClaimRequest{Queue: "c17", WaitMs: 10_000})
			require.Len(t, out.GetMessages(), 1)
			require.Equal(t, queueboxv1.EmptyReason_EMPTY_REASON_UNSPECIFIED, out.GetEmptyReason())
			require.Equal(t, queueboxv1.EmptyReason_EMPTY_REASON_NONE_READY, claimWith(t, c, &queueboxv1.ClaimRequest{Queue: "c17"}).GetEmptyReason())
			require.Equal(t, queueboxv1.EmptyReason_EMPTY_REASON_QUEUE_UNKNOWN, claimWith(t, c, &queueboxv1.ClaimRequest{Queue: "c17 unknown"}).GetEmptyReason())
			require.Equal(t, queueboxv1.EmptyReason_EMPTY_REASON_QUEUE_UNKNOWN,
				claimWith(t, c, &queueboxv1.ClaimRequest{Queue: "c17 unknown", WaitMs: 300}).GetEmptyReason(), "after a wait, too")
		})

		t.Run("C17 a queue that is resumed or made wakes its waiters", func(t *testing.T) {
			enqueue(t, c, "resumed", "x")
			_, err := c.Admin.PauseQueue(within(t), &queueboxv1.PauseQueueRequest{Queue: "resumed"})
			require.NoError(t, err)
			got := make(chan int, 2)
			for _, queue := range []string{"resumed", "made later"} {
				go func() {
					out, err := c.Claim(t.Context(), &queueboxv1.ClaimRequest{Queue: queue, WaitMs: 20_000})
					if err != nil {
						t.Errorf("claim: %v", err)
					}
					got <- len(out.GetMessages())
				}()
			}
			time.Sleep(100 * time.Millisecond)
			start := time.Now()
			_, err = c.Admin.ResumeQueue(within(t), &queueboxv1.ResumeQueueRequest{Queue: "resumed"})
			require.NoError(t, err)
			enqueue(t, c, "made later", "x")
			require.Equal(t, 1, <-got)
			require.Equal(t, 1, <-got)
			require.Less(t, time.Since(start), 10*time.Second)
		})

		t.Run("C15 no claim is started when the deadline is near", func(t *testing.T) {
			enqueue(t, c, "c15", "x")
			conn := db.Open(t)
			before := db.Dump(t, conn)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			out, err := c.Claim(ctx, &queueboxv1.ClaimRequest{Queue: "c15", WaitMs: 1_000})
			require.NoError(t, err)
			require.Empty(t, out.GetMessages())
			require.Equal(t, queueboxv1.EmptyReason_EMPTY_REASON_DEADLINE_TOO_SHORT, out.GetEmptyReason())
			require.Equal(t, before, db.Dump(t, conn))
		})
	})
}

// TestC15CallerThatVanished: a caller that leaves while it waits keeps nothing, and one
// that leaves at the very moment of the hand-over keeps nothing either, unless the
// answer was on the wire already: then its lease ends it, as that of a dead worker.
func TestC15CallerThatVanished(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		s := db.Start(t)
		c := s.Client(t)
		type answer struct {
			out *queueboxv1.ClaimResponse
			err error
		}
		// leave starts a Claim on a connection of its own and returns ways to leave it.
		leave := func(queue string) (cancel, hangUp func(), answers <-chan answer) {
			leaver := Dial(t, s.Addr)
			ctx, stop := context.WithCancel(t.Context())
			ch := make(chan answer, 1)
			go func() {
				out, err := leaver.Claim(ctx, &queueboxv1.ClaimRequest{Queue: queue, WaitMs: 20_000, LeaseMs: 3_600_000})
				ch <- answer{out, err}
			}()
			return stop, func() { _ = leaver.Conn.Close(); stop() }, ch
		}

		t.Run("while it waits", func(t *testing.T) {
			enqueue(t, c, "waits", "x")
			claimOne(t, c, "waits", time.Hour)
			for i := range 20 {
				cancel, hangUp, answers := leave("waits")
				eventually(t, "it waits", func() bool { return waiting(t, c, "waits") == 1 })
				if i%2 == 0 {
					cancel()
				} else {
					hangUp()
				}
				require.Error(t, (<-answers).err)
				eventually(t, "the server has noticed", func() bool { return waiting(t, c, "waits") == 0 })
				cancel()
				id := enqueue(t, c, "waits", "x")
				m := claimOne(t, c, "waits", time.Hour)
				require.Equal(t, id, m.GetMessage().GetMessageId())
				require.EqualValues(t, 1, m.GetMessage().GetAttempt())
			}
		})

		t.Run("at the hand-over", func(t *testing.T) {
			const n = 40
			onTheWire, givenBack := 0, 0
			for i := range n {
				queue := fmt.Sprintf("hand-over %d", i)
				enqueue(t, c, queue, "so that the queue is known")
				claimOne(t, c, queue, time.Hour)
				cancel, hangUp, answers := leave(queue)
				eventually(t, "it waits", func() bool { return waiting(t, c, queue) == 1 })
				left := make(chan struct{})
				go func() {
					defer close(left)
					time.Sleep(time.Duration(i/2) * 100 * time.Microsecond)
					if i%2 == 0 {
						cancel()
					} else {
						hangUp()
					}
				}()
				id := enqueue(t, c, queue, "x")
				<-left
				a := <-answers
				if a.err == nil && len(a.out.GetMessages()) == 1 {
					_, err := complete(t, c, queue, a.out.GetMessages()[0])
					require.NoError(t, err, "the answer arrived, so the claim is good")
					continue
				}
				require.Contains(t, []codes.Code{codes.Canceled, codes.Unavailable}, status.Code(a.err))
				got := claimWith(t, c, &queueboxv1.ClaimRequest{Queue: queue, WaitMs: 2_000, LeaseMs: 3_600_000}).GetMessages()
				if len(got) == 0 {
					onTheWire++
					m := message(t, c, queue, id)
					require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_PROCESSING, m.GetState())
					require.EqualValues(t, 1, m.GetAttempt())
					continue
				}
				givenBack++
				require.Len(t, got, 1)
				require.Equal(t, id, got[0].GetMessage().GetMessageId())
				require.EqualValues(t, 1, got[0].GetMessage().GetAttempt(), "the attempt is refunded")
				_, err := complete(t, c, queue, got[0])
				require.NoError(t, err)
			}
			t.Logf("of %d: %d claimable at once, %d on the wire already", n, givenBack, onTheWire)
			require.LessOrEqual(t, onTheWire, n/4)
		})
	})
}
