package blackbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// lost is what a caller that does not hold the claim gets.
func lost(cause string) Want {
	return Want{Code: codes.FailedPrecondition, Reason: "CLAIM_LOST", Metadata: map[string]string{"cause": cause}}
}

// settledAs is what a caller gets whose token was settled in another way.
func settledAs(outcome string) Want {
	return Want{Code: codes.FailedPrecondition, Reason: "CLAIM_SETTLED", Metadata: map[string]string{"outcome": outcome}}
}

var messageNotFound = Want{Code: codes.NotFound, Reason: "MESSAGE_NOT_FOUND"}

// TestCase1StaleWorkerIsRefused is the story that every backend tells first, over
// the wire and on the real clock.
func TestCase1StaleWorkerIsRefused(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		c := db.Start(t, shortLeases).Client(t)
		conn := db.Open(t)
		id := enqueue(t, c, "E", "E-41")
		a := claimOne(t, c, "E", 600*time.Millisecond)
		require.Equal(t, id, a.GetMessage().GetMessageId())
		require.EqualValues(t, 1, a.GetMessage().GetAttempt())

		require.Empty(t, claim(t, c, "E", 1, 0), "B gets nothing while A holds the lease")
		untilLeaseEnds(t, a)
		b := claimOne(t, c, "E", time.Minute)
		require.Equal(t, id, b.GetMessage().GetMessageId())
		require.EqualValues(t, 2, b.GetMessage().GetAttempt())
		require.NotEqual(t, a.GetClaimToken(), b.GetClaimToken())
		require.Equal(t, "E-41", string(b.GetMessage().GetPayload()))

		before := db.Dump(t, conn)
		_, err := complete(t, c, "E", a)
		RequireStatus(t, err, lost("SUPERSEDED"))
		require.Equal(t, before, db.Dump(t, conn), "a refused completion changes nothing")

		_, err = complete(t, c, "E", b)
		require.NoError(t, err)
		require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_COMPLETED, message(t, c, "E", id).GetState())
	})
}

func TestWholePath(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		c := db.Start(t, shortLeases).Client(t)
		t.Run("E8 what goes in comes out", func(t *testing.T) {
			in := &queueboxv1.EnqueueRequest{
				Queue: "round trip ☂", Payload: []byte{0, 1, 254, 255}, ContentType: "application/x-test; a=\"é\"",
				Attributes: map[string]string{"traceparent": "00-1-2-01", "": "empty name", "ключ": "\U0001f600 \t\n"}, Priority: -7, MaxAttempts: 3,
				IdempotencyKey: "key ä ",
			}
			out, err := c.Enqueue(within(t), in)
			require.NoError(t, err)
			require.False(t, out.GetDuplicate())
			require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_PENDING, out.GetState())
			got := claimWith(t, c, &queueboxv1.ClaimRequest{Queue: in.GetQueue(), WorkerId: "w ☂", LeaseMs: 30_000}).GetMessages()
			require.Len(t, got, 1)
			m := got[0].GetMessage()
			require.Equal(t, out.GetMessageId(), m.GetMessageId())
			require.Equal(t, in.GetPayload(), m.GetPayload())
			require.EqualValues(t, len(in.GetPayload()), m.GetPayloadBytes())
			require.Equal(t, in.GetContentType(), m.GetContentType())
			require.Equal(t, in.GetAttributes(), m.GetAttributes())
			require.Equal(t, in.GetPriority(), m.GetPriority())
			require.Equal(t, in.GetMaxAttempts(), m.GetMaxAttempts())
			require.Equal(t, in.GetIdempotencyKey(), m.GetIdempotencyKey())
			require.Equal(t, in.GetQueue(), m.GetQueue())
			require.Equal(t, "w ☂", m.GetWorkerId())
			require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_PROCESSING, m.GetState())
			require.InDelta(t, 30_000, got[0].GetLeaseRemainingMs(), 5_000)
		})

		t.Run("R1 R4 Renew sets the lease anew and touches nothing else", func(t *testing.T) {
			enqueue(t, c, "renew", "x")
			m := claimOne(t, c, "renew", time.Minute)
			before := message(t, c, "renew", m.GetMessage().GetMessageId())
			out, err := c.Renew(within(t), &queueboxv1.RenewRequest{Queue: "renew", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(), LeaseMs: 5_000})
			require.NoError(t, err)
			require.False(t, out.GetCancelRequested())
			requireLease(t, 5*time.Second, out) // clock + lease: a shorter lease shortens
			after := message(t, c, "renew", m.GetMessage().GetMessageId())
			require.True(t, proto.Equal(out.GetLeaseExpireTime(), after.GetLeaseExpireTime()))
			after.LeaseExpireTime = before.GetLeaseExpireTime()
			require.True(t, proto.Equal(before, after), "before %v\nafter  %v", before, after)

			again, err := c.Renew(within(t), &queueboxv1.RenewRequest{Queue: "renew", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken()})
			require.NoError(t, err)
			requireLease(t, 5*time.Second, again) // 0 repeats the last length
		})

		t.Run("S3 S5 S6 Complete, its repeat and what differs", func(t *testing.T) {
			id := enqueue(t, c, "complete", "x")
			m := claimOne(t, c, "complete", time.Minute)
			req := completion("complete", m)
			req.Result = []byte("the result")
			first, err := c.Complete(within(t), req)
			require.NoError(t, err)
			require.False(t, first.GetAlreadySettled())
			second, err := c.Complete(within(t), req)
			require.NoError(t, err)
			require.True(t, second.GetAlreadySettled())
			require.True(t, proto.Equal(first.GetCompleteTime(), second.GetCompleteTime()))
			kept := message(t, c, "complete", id)
			require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_COMPLETED, kept.GetState())
			require.Equal(t, "the result", string(kept.GetResult()))

			_, err = c.Retry(within(t), &queueboxv1.RetryRequest{Queue: "complete", MessageId: id, ClaimToken: m.GetClaimToken()})
			RequireStatus(t, err, settledAs("COMPLETED"))
			_, err = c.Renew(within(t), &queueboxv1.RenewRequest{Queue: "complete", MessageId: id, ClaimToken: m.GetClaimToken()})
			RequireStatus(t, err, settledAs("COMPLETED"))
		})

		t.Run("S3 S4 Retry counts, delays and ends", func(t *testing.T) {
			_, err := c.Enqueue(within(t), &queueboxv1.EnqueueRequest{Queue: "retry", MaxAttempts: 2})
			require.NoError(t, err)
			m := claimOne(t, c, "retry", time.Minute)
			req := &queueboxv1.RetryRequest{Queue: "retry", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(), DelayMs: proto.Int64(0), Error: "boom\x00 ☂"}
			out, err := c.Retry(within(t), req)
			require.NoError(t, err)
			require.Equal(t, queueboxv1.SettleOutcome_SETTLE_OUTCOME_RETRIED, out.GetOutcome())
			again, err := c.Retry(within(t), req)
			require.NoError(t, err)
			require.True(t, again.GetAlreadySettled())
			require.True(t, proto.Equal(out.GetAvailableTime(), again.GetAvailableTime()))

			m = claimOne(t, c, "retry", time.Minute)
			require.EqualValues(t, 2, m.GetMessage().GetAttempt())
			require.Equal(t, "boom ☂", m.GetMessage().GetLastError(), "S9: without the NUL")
			req.ClaimToken = m.GetClaimToken()
			out, err = c.Retry(within(t), req)
			require.NoError(t, err)
			require.Equal(t, queueboxv1.SettleOutcome_SETTLE_OUTCOME_DEAD, out.GetOutcome())
			dead := message(t, c, "retry", m.GetMessage().GetMessageId())
			require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_DEAD, dead.GetState())
			require.Equal(t, queueboxv1.DeadReason_DEAD_REASON_ATTEMPTS_EXHAUSTED, dead.GetDeadReason())
			require.EqualValues(t, 2, dead.GetAttempt())
		})

		t.Run("S3 a Retry without a delay takes the policy of the queue", func(t *testing.T) {
			_, err := c.Admin.CreateQueue(within(t), &queueboxv1.CreateQueueRequest{Queue: &queueboxv1.Queue{
				Queue: "backoff", RetryPolicy: &queueboxv1.RetryPolicy{MinBackoffMs: 60_000, MaxBackoffMs: 600_000, Multiplier: 2},
			}})
			require.NoError(t, err)
			enqueue(t, c, "backoff", "x")
			m := claimOne(t, c, "backoff", time.Minute)
			out, err := c.Retry(within(t), &queueboxv1.RetryRequest{Queue: "backoff", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken()})
			require.NoError(t, err)
			require.InDelta(t, 60, out.GetAvailableTime().AsTime().Sub(out.GetServerTime().AsTime()).Seconds(), 1)
		})

		t.Run("S3 DeadLetter", func(t *testing.T) {
			id := enqueue(t, c, "dead", "x")
			m := claimOne(t, c, "dead", time.Minute)
			req := &queueboxv1.DeadLetterRequest{Queue: "dead", MessageId: id, ClaimToken: m.GetClaimToken(), ReasonCode: "malformed", Error: "no such field"}
			out, err := c.DeadLetter(within(t), req)
			require.NoError(t, err)
			require.False(t, out.GetAlreadySettled())
			out, err = c.DeadLetter(within(t), req)
			require.NoError(t, err)
			require.True(t, out.GetAlreadySettled())
			dead := message(t, c, "dead", id)
			require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_DEAD, dead.GetState())
			require.Equal(t, queueboxv1.DeadReason_DEAD_REASON_REJECTED, dead.GetDeadReason())
			require.Equal(t, "malformed", dead.GetReasonCode())
			require.Equal(t, "no such field", dead.GetLastError())
			_, err = complete(t, c, "dead", m)
			RequireStatus(t, err, settledAs("DEAD"))
			require.Empty(t, claim(t, c, "dead", 1, 0), "C6")
		})

		t.Run("S3 Release gives the attempt back", func(t *testing.T) {
			id := enqueue(t, c, "release", "x")
			m := claimOne(t, c, "release", time.Minute)
			out, err := c.Release(within(t), &queueboxv1.ReleaseRequest{Queue: "release", MessageId: id, ClaimToken: m.GetClaimToken()})
			require.NoError(t, err)
			require.Equal(t, queueboxv1.SettleOutcome_SETTLE_OUTCOME_RELEASED, out.GetOutcome())
			m = claimOne(t, c, "release", time.Minute)
			require.EqualValues(t, 1, m.GetMessage().GetAttempt())
			out, err = c.Release(within(t), &queueboxv1.ReleaseRequest{Queue: "release", MessageId: id, ClaimToken: m.GetClaimToken(), DelayMs: 60_000})
			require.NoError(t, err)
			require.InDelta(t, 60, out.GetAvailableTime().AsTime().Sub(out.GetServerTime().AsTime()).Seconds(), 1)
			require.Empty(t, claim(t, c, "release", 1, 0))
		})

		t.Run("S11 R5 one bad item fails no other", func(t *testing.T) {
			enqueueMany(t, c, "batch", 10)
			got := claim(t, c, "batch", 10, time.Minute)
			require.Len(t, got, 10)
			var renew queueboxv1.BatchRenewRequest
			renew.Queue = "batch"
			for _, m := range got {
				renew.Items = append(renew.Items, &queueboxv1.RenewItem{MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(), LeaseMs: 60_000})
			}
			renew.Items[3].ClaimToken = got[4].GetClaimToken()
			renew.Items[5].ClaimToken = "nonsense"
			renewed, err := c.BatchRenew(within(t), &renew)
			require.NoError(t, err)
			require.Len(t, renewed.GetResults(), 10)
			for i, r := range renewed.GetResults() {
				require.Equal(t, renew.GetItems()[i].GetMessageId(), r.GetMessageId())
				switch i {
				case 3:
					RequireItem(t, r.GetError(), lost("SUPERSEDED"))
				case 5:
					RequireItem(t, r.GetError(), Want{Code: codes.InvalidArgument, Reason: "INVALID_ARGUMENT"})
				default:
					require.Nil(t, r.GetError(), "item %d", i)
					require.NotNil(t, r.GetRenewed())
				}
			}

			var settle queueboxv1.BatchSettleRequest
			for _, m := range got {
				settle.Items = append(settle.Items, &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_Complete{Complete: completion("batch", m)}})
			}
			settle.Items[2].GetComplete().ClaimToken = got[1].GetClaimToken()
			settle.Items[6].GetComplete().MessageId = "nonsense"
			settle.Items[8].Action = nil
			settled, err := c.BatchSettle(within(t), &settle)
			require.NoError(t, err)
			require.Len(t, settled.GetResults(), 10)
			for i, r := range settled.GetResults() {
				switch i {
				case 2:
					RequireItem(t, r.GetError(), lost("SUPERSEDED"))
				case 6, 8:
					RequireItem(t, r.GetError(), Want{Code: codes.InvalidArgument, Reason: "INVALID_ARGUMENT"})
				default:
					require.Nil(t, r.GetError(), "item %d", i)
					require.Equal(t, queueboxv1.SettleOutcome_SETTLE_OUTCOME_COMPLETED, r.GetOutcome())
					require.NotNil(t, r.GetCompleteTime())
				}
			}
		})

		t.Run("E1 E3 E4 idempotency keys", func(t *testing.T) {
			req := &queueboxv1.EnqueueRequest{Queue: "keys", IdempotencyKey: "order 7", Payload: []byte("a")}
			first, err := c.Enqueue(within(t), req)
			require.NoError(t, err)
			second, err := c.Enqueue(within(t), req)
			require.NoError(t, err)
			require.True(t, second.GetDuplicate())
			require.Equal(t, first.GetMessageId(), second.GetMessageId())
			m := claimOne(t, c, "keys", time.Minute)
			_, err = complete(t, c, "keys", m)
			require.NoError(t, err)
			second, err = c.Enqueue(within(t), req)
			require.NoError(t, err)
			require.True(t, second.GetDuplicate())
			require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_COMPLETED, second.GetState())

			reused := Want{Code: codes.AlreadyExists, Reason: "IDEMPOTENCY_KEY_REUSED"}
			_, err = c.Enqueue(within(t), &queueboxv1.EnqueueRequest{Queue: "keys", IdempotencyKey: "order 7", Payload: []byte("b")})
			RequireStatus(t, err, reused)
			_, err = c.BatchEnqueue(within(t), &queueboxv1.BatchEnqueueRequest{Requests: []*queueboxv1.EnqueueRequest{
				{Queue: "keys", Payload: []byte("new")},
				{Queue: "keys", IdempotencyKey: "order 7", Payload: []byte("b")},
			}})
			RequireStatus(t, err, reused)
			require.Empty(t, claim(t, c, "keys", 1, 0), "E9: nothing of the batch went in")
			other, err := c.Enqueue(within(t), &queueboxv1.EnqueueRequest{Queue: "keys 2", IdempotencyKey: "order 7", Payload: []byte("b")})
			require.NoError(t, err)
			require.False(t, other.GetDuplicate())
		})

		t.Run("D11 every answer carries the clock of the database", func(t *testing.T) {
			near := func(got interface{ AsTime() time.Time }) {
				t.Helper()
				require.WithinDuration(t, time.Now(), got.AsTime(), 5*time.Second)
			}
			q := "clock"
			e, err := c.Enqueue(within(t), &queueboxv1.EnqueueRequest{Queue: q})
			require.NoError(t, err)
			near(e.GetServerTime())
			be, err := c.BatchEnqueue(within(t), &queueboxv1.BatchEnqueueRequest{Requests: []*queueboxv1.EnqueueRequest{{Queue: q}, {Queue: q}, {Queue: q}}})
			require.NoError(t, err)
			near(be.GetServerTime())
			got := claimWith(t, c, &queueboxv1.ClaimRequest{Queue: q, MaxMessages: 4, LeaseMs: 60_000})
			near(got.GetServerTime())
			near(claimWith(t, c, &queueboxv1.ClaimRequest{Queue: q}).GetServerTime())
			near(claimWith(t, c, &queueboxv1.ClaimRequest{Queue: "no such queue"}).GetServerTime())
			ms := got.GetMessages()
			require.Len(t, ms, 4)
			renewed, err := c.Renew(within(t), &queueboxv1.RenewRequest{Queue: q, MessageId: ms[0].GetMessage().GetMessageId(), ClaimToken: ms[0].GetClaimToken()})
			require.NoError(t, err)
			near(renewed.GetServerTime())
			br, err := c.BatchRenew(within(t), &queueboxv1.BatchRenewRequest{Queue: q, Items: []*queueboxv1.RenewItem{{MessageId: ms[0].GetMessage().GetMessageId(), ClaimToken: ms[0].GetClaimToken()}}})
			require.NoError(t, err)
			near(br.GetServerTime())
			done, err := complete(t, c, q, ms[0])
			require.NoError(t, err)
			near(done.GetServerTime())
			near(done.GetCompleteTime())
			retried, err := c.Retry(within(t), &queueboxv1.RetryRequest{Queue: q, MessageId: ms[1].GetMessage().GetMessageId(), ClaimToken: ms[1].GetClaimToken()})
			require.NoError(t, err)
			near(retried.GetServerTime())
			dead, err := c.DeadLetter(within(t), &queueboxv1.DeadLetterRequest{Queue: q, MessageId: ms[2].GetMessage().GetMessageId(), ClaimToken: ms[2].GetClaimToken()})
			require.NoError(t, err)
			near(dead.GetServerTime())
			released, err := c.Release(within(t), &queueboxv1.ReleaseRequest{Queue: q, MessageId: ms[3].GetMessage().GetMessageId(), ClaimToken: ms[3].GetClaimToken()})
			require.NoError(t, err)
			near(released.GetServerTime())
			bs, err := c.BatchSettle(within(t), &queueboxv1.BatchSettleRequest{Items: []*queueboxv1.SettleItem{{Action: &queueboxv1.SettleItem_Complete{Complete: completion(q, ms[0])}}}})
			require.NoError(t, err)
			near(bs.GetServerTime())
		})
	})
}

// TestS8CausesOnTheWire walks through every way of not holding a claim.
func TestS8R3CausesOnTheWire(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		c := db.Start(t, shortLeases).Client(t)
		// Every call that names a claim must answer alike.
		check := func(t *testing.T, queue, id, token string, want Want) {
			t.Helper()
			_, err := c.Renew(within(t), &queueboxv1.RenewRequest{Queue: queue, MessageId: id, ClaimToken: token})
			RequireStatus(t, err, want)
			_, err = c.Complete(within(t), &queueboxv1.CompleteRequest{Queue: queue, MessageId: id, ClaimToken: token})
			RequireStatus(t, err, want)
			_, err = c.Retry(within(t), &queueboxv1.RetryRequest{Queue: queue, MessageId: id, ClaimToken: token})
			RequireStatus(t, err, want)
			_, err = c.DeadLetter(within(t), &queueboxv1.DeadLetterRequest{Queue: queue, MessageId: id, ClaimToken: token})
			RequireStatus(t, err, want)
			_, err = c.Release(within(t), &queueboxv1.ReleaseRequest{Queue: queue, MessageId: id, ClaimToken: token})
			RequireStatus(t, err, want)
			renewed, err := c.BatchRenew(within(t), &queueboxv1.BatchRenewRequest{Queue: queue, Items: []*queueboxv1.RenewItem{{MessageId: id, ClaimToken: token}}})
			require.NoError(t, err)
			RequireItem(t, renewed.GetResults()[0].GetError(), want)
			settled, err := c.BatchSettle(within(t), &queueboxv1.BatchSettleRequest{Items: []*queueboxv1.SettleItem{{Action: &queueboxv1.SettleItem_Complete{
				Complete: &queueboxv1.CompleteRequest{Queue: queue, MessageId: id, ClaimToken: token},
			}}}})
			require.NoError(t, err)
			RequireItem(t, settled.GetResults()[0].GetError(), want)
		}
		enqueue(t, c, "other", "x")
		foreign := claimOne(t, c, "other", time.Minute)

		id := enqueue(t, c, "q", "x")
		t.Run("NOT_CLAIMED", func(t *testing.T) { check(t, "q", id, foreign.GetClaimToken(), lost("NOT_CLAIMED")) })
		first := claimOne(t, c, "q", 300*time.Millisecond)
		t.Run("a token of another message", func(t *testing.T) { check(t, "q", id, foreign.GetClaimToken(), lost("SUPERSEDED")) })
		t.Run("the empty token", func(t *testing.T) { check(t, "q", id, "", lost("SUPERSEDED")) })
		untilLeaseEnds(t, first)
		t.Run("S2 LEASE_EXPIRED though nobody claimed it since", func(t *testing.T) { check(t, "q", id, first.GetClaimToken(), lost("LEASE_EXPIRED")) })
		second := claimOne(t, c, "q", time.Minute)
		t.Run("SUPERSEDED by a holder", func(t *testing.T) { check(t, "q", id, first.GetClaimToken(), lost("SUPERSEDED")) })
		_, err := complete(t, c, "q", second)
		require.NoError(t, err)
		t.Run("SUPERSEDED by one who has finished", func(t *testing.T) { check(t, "q", id, first.GetClaimToken(), lost("SUPERSEDED")) })
		t.Run("an id of another queue", func(t *testing.T) { check(t, "other", id, second.GetClaimToken(), messageNotFound) })
		t.Run("an unknown queue", func(t *testing.T) { check(t, "unknown", id, second.GetClaimToken(), messageNotFound) })
	})
}
