package blackbox

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// sameClaims fails unless both answers hold the same leases.
func sameClaims(t *testing.T, want, got *queueboxv1.ClaimResponse) {
	t.Helper()
	require.Len(t, got.GetMessages(), len(want.GetMessages()))
	for i, w := range want.GetMessages() {
		g := got.GetMessages()[i]
		require.Equal(t, w.GetMessage().GetMessageId(), g.GetMessage().GetMessageId())
		require.Equal(t, w.GetClaimToken(), g.GetClaimToken())
		require.Equal(t, w.GetMessage().GetAttempt(), g.GetMessage().GetAttempt())
		require.Equal(t, w.GetMessage().GetPayload(), g.GetMessage().GetPayload())
		require.True(t, proto.Equal(w.GetLeaseExpireTime(), g.GetLeaseExpireTime()), "the lease is not extended")
	}
}

func TestC14ClaimID(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		s := db.Start(t, shortLeases)
		c := s.Client(t)

		t.Run("a repeat answers the same leases", func(t *testing.T) {
			enqueueMany(t, c, "same", 5)
			req := &queueboxv1.ClaimRequest{Queue: "same", MaxMessages: 3, LeaseMs: 60_000, WorkerId: "w", ClaimId: newClaimID()}
			first := claimWith(t, c, req)
			require.False(t, first.GetReplayed())
			require.Len(t, first.GetMessages(), 3)
			second := claimWith(t, c, req)
			require.True(t, second.GetReplayed())
			sameClaims(t, first, second)

			_, err := c.Claim(within(t), &queueboxv1.ClaimRequest{Queue: "same", MaxMessages: 3, WorkerId: "other", ClaimId: req.GetClaimId()})
			RequireStatus(t, err, Want{Code: codes.FailedPrecondition, Reason: "CLAIM_ID_REUSED"})
			require.Len(t, claim(t, c, "same", 10, 0), 2, "the refusal took nothing")

			_, err = complete(t, c, "same", first.GetMessages()[1])
			require.NoError(t, err)
			third := claimWith(t, c, req)
			require.True(t, third.GetReplayed())
			require.Len(t, third.GetMessages(), 2, "those that are still held")
			for _, m := range third.GetMessages() {
				_, err = complete(t, c, "same", m)
				require.NoError(t, err)
			}
			fourth := claimWith(t, c, req)
			require.True(t, fourth.GetReplayed())
			require.Empty(t, fourth.GetMessages())
		})

		t.Run("the same id on another queue is another claim", func(t *testing.T) {
			enqueue(t, c, "here", "x")
			enqueue(t, c, "there", "x")
			id := newClaimID()
			for _, q := range []string{"here", "there"} {
				out := claimWith(t, c, &queueboxv1.ClaimRequest{Queue: q, WorkerId: "w", ClaimId: id})
				require.False(t, out.GetReplayed())
				require.Len(t, out.GetMessages(), 1)
			}
		})

		t.Run("C11 an empty claim leaves no trace, so its repeat is a new claim", func(t *testing.T) {
			enqueue(t, c, "empty", "x")
			held := claimOne(t, c, "empty", time.Minute)
			conn := db.Open(t)
			before := db.Dump(t, conn)
			req := &queueboxv1.ClaimRequest{Queue: "empty", WorkerId: "w", ClaimId: newClaimID(), WaitMs: 50}
			require.Empty(t, claimWith(t, c, req).GetMessages())
			require.Equal(t, before, db.Dump(t, conn))
			_, err := c.Release(within(t), &queueboxv1.ReleaseRequest{Queue: "empty", MessageId: held.GetMessage().GetMessageId(), ClaimToken: held.GetClaimToken()})
			require.NoError(t, err)
			out := claimWith(t, c, req)
			require.False(t, out.GetReplayed())
			require.Len(t, out.GetMessages(), 1)
		})

		t.Run("an expired lease is not held any more", func(t *testing.T) {
			enqueue(t, c, "over", "x")
			req := &queueboxv1.ClaimRequest{Queue: "over", WorkerId: "w", ClaimId: newClaimID(), LeaseMs: 300}
			first := claimWith(t, c, req)
			untilLeaseEnds(t, first.GetMessages()[0])
			again := claimWith(t, c, req)
			require.True(t, again.GetReplayed())
			require.Empty(t, again.GetMessages())
		})

		t.Run("a repeat while the first call still waits", func(t *testing.T) {
			for range 10 {
				req := &queueboxv1.ClaimRequest{Queue: "both wait", WorkerId: "w", ClaimId: newClaimID(), WaitMs: 15_000, LeaseMs: 60_000, MaxMessages: 2}
				answers := make(chan *queueboxv1.ClaimResponse, 2)
				for _, conn := range []*Client{c, s.Client(t)} {
					go func() {
						out, err := conn.Claim(t.Context(), req)
						if err != nil {
							t.Errorf("claim: %v", err)
						}
						answers <- out
					}()
				}
				time.Sleep(20 * time.Millisecond)
				enqueue(t, c, "both wait", "x")
				a, b := <-answers, <-answers
				require.Len(t, a.GetMessages(), 1)
				sameClaims(t, a, b)
				require.NotEqual(t, a.GetReplayed(), b.GetReplayed(), "one of them is the claim, the other its repeat")
				_, err := complete(t, c, "both wait", a.GetMessages()[0])
				require.NoError(t, err)
			}
		})

		t.Run("C15 what a repeat received is never given back", func(t *testing.T) {
			for i := range 20 {
				req := &queueboxv1.ClaimRequest{Queue: "give back", WorkerId: "w", ClaimId: newClaimID(), WaitMs: 15_000, LeaseMs: 3_600_000}
				ctx, cancel := context.WithCancel(t.Context())
				gone := make(chan struct{})
				go func() {
					defer close(gone)
					_, _ = c.Claim(ctx, req)
				}()
				time.Sleep(10 * time.Millisecond)
				go func() {
					time.Sleep(time.Duration(i) * 300 * time.Microsecond)
					cancel()
				}()
				enqueue(t, c, "give back", "x")
				out := claimWith(t, c, req)
				if out.GetReplayed() && len(out.GetMessages()) == 0 {
					// It was given back before the repeat came: nobody's, and claimable at once.
					req.ClaimId = newClaimID()
					out = claimWith(t, c, req)
				}
				cancel()
				<-gone
				require.Len(t, out.GetMessages(), 1, "iteration %d", i)
				require.EqualValues(t, 1, out.GetMessages()[0].GetMessage().GetAttempt())
				_, err := complete(t, c, "give back", out.GetMessages()[0])
				require.NoError(t, err, "iteration %d: the repeat holds the claim", i)
			}
		})
	})
}

// TestC14RepeatOnAnotherProcess kills the server that made the claim; the repeat
// goes to another process on the same database.
func TestC14RepeatOnAnotherProcess(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		s := db.Start(t)
		c := s.Client(t)
		enqueueMany(t, c, "q", 5)
		req := &queueboxv1.ClaimRequest{Queue: "q", MaxMessages: 3, LeaseMs: 60_000, WorkerId: "w", ClaimId: newClaimID()}
		first := claimWith(t, c, req)
		s.Kill()
		other := db.Start(t).Client(t)
		second := claimWith(t, other, req)
		require.True(t, second.GetReplayed())
		sameClaims(t, first, second)
		_, err := other.Claim(within(t), &queueboxv1.ClaimRequest{Queue: "q", WorkerId: "other", ClaimId: req.GetClaimId()})
		RequireStatus(t, err, Want{Code: codes.FailedPrecondition, Reason: "CLAIM_ID_REUSED"})
		for _, m := range second.GetMessages() {
			require.EqualValues(t, 1, m.GetMessage().GetAttempt())
			_, err := complete(t, other, "q", m)
			require.NoError(t, err)
		}
	})
}
