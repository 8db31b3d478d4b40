package server

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage/faults"
)

type claimed struct {
	out *queueboxv1.ClaimResponse
	err error
}

// waitIn starts a claim and returns when it waits.
func (h *harness) waitIn(ctx context.Context, r *queueboxv1.ClaimRequest) <-chan claimed {
	h.t.Helper()
	before := h.server.api.dispatch.Waiters()
	ch := make(chan claimed, 1)
	go func() {
		out, err := h.Claim(ctx, r)
		ch <- claimed{out, err}
	}()
	require.Eventually(h.t, func() bool { return h.server.api.dispatch.Waiters() == before+1 }, 10*time.Second, time.Millisecond)
	return ch
}

func TestC17EmptyReasons(t *testing.T) {
	h := serve(t)
	reason := func(r *queueboxv1.ClaimRequest) queueboxv1.EmptyReason {
		out, err := h.Claim(h.ctx(), r)
		require.NoError(t, err)
		require.Empty(t, out.GetMessages())
		require.NotNil(t, out.GetServerTime(), "D11")
		return out.GetEmptyReason()
	}
	require.Equal(t, queueboxv1.EmptyReason_EMPTY_REASON_QUEUE_UNKNOWN, reason(&queueboxv1.ClaimRequest{Queue: "q"}))
	require.Equal(t, queueboxv1.EmptyReason_EMPTY_REASON_QUEUE_UNKNOWN, reason(&queueboxv1.ClaimRequest{Queue: "q", WaitMs: 50}))
	h.enqueue("q", "x")
	h.claim()
	require.Equal(t, queueboxv1.EmptyReason_EMPTY_REASON_NONE_READY, reason(&queueboxv1.ClaimRequest{Queue: "q"}))
	h.enqueue("q", "x")
	_, err := h.PauseQueue(h.ctx(), &queueboxv1.PauseQueueRequest{Queue: "q"})
	require.NoError(t, err)
	require.Equal(t, queueboxv1.EmptyReason_EMPTY_REASON_PAUSED, reason(&queueboxv1.ClaimRequest{Queue: "q"}))

	// All that is pending waits behind its key.
	for range 2 {
		_, err := h.Enqueue(h.ctx(), &queueboxv1.EnqueueRequest{Queue: "ordered", OrderingKey: "a"})
		require.NoError(t, err)
	}
	got, err := h.Claim(h.ctx(), &queueboxv1.ClaimRequest{Queue: "ordered", MaxMessages: 10})
	require.NoError(t, err)
	require.Len(t, got.GetMessages(), 1)
	require.Equal(t, "a", got.GetMessages()[0].GetMessage().GetOrderingKey())
	require.Equal(t, queueboxv1.EmptyReason_EMPTY_REASON_ORDERING_BLOCKED, reason(&queueboxv1.ClaimRequest{Queue: "ordered"}))
	require.Equal(t, queueboxv1.EmptyReason_EMPTY_REASON_ORDERING_BLOCKED, reason(&queueboxv1.ClaimRequest{Queue: "ordered", WaitMs: 50}))
	// Where something is delayed, that comes first; where the storage fails, the claim did not.
	h.faults.Inject(faults.Blocked, faults.Fault{Refuse: true, Times: 1})
	time.Sleep(blockedTTL)
	require.Equal(t, queueboxv1.EmptyReason_EMPTY_REASON_NONE_READY, reason(&queueboxv1.ClaimRequest{Queue: "ordered"}))
	_, err = h.Enqueue(h.ctx(), &queueboxv1.EnqueueRequest{Queue: "ordered", DelayMs: 60_000})
	require.NoError(t, err)
	require.Equal(t, queueboxv1.EmptyReason_EMPTY_REASON_NONE_READY, reason(&queueboxv1.ClaimRequest{Queue: "ordered"}))

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	out, err := h.Claim(ctx, &queueboxv1.ClaimRequest{Queue: "q"})
	require.NoError(t, err)
	require.Equal(t, queueboxv1.EmptyReason_EMPTY_REASON_DEADLINE_TOO_SHORT, out.GetEmptyReason())
}

func TestResumeWakesWhoWaits(t *testing.T) {
	h := serve(t)
	h.enqueue("q", "x")
	_, err := h.PauseQueue(h.ctx(), &queueboxv1.PauseQueueRequest{Queue: "q"})
	require.NoError(t, err)
	ch := h.waitIn(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q", WaitMs: 20_000})
	_, err = h.ResumeQueue(h.ctx(), &queueboxv1.ResumeQueueRequest{Queue: "q"})
	require.NoError(t, err)
	c := <-ch
	require.NoError(t, c.err)
	require.Len(t, c.out.GetMessages(), 1)
}

func TestW1ClaimOnAnUnknownQueueIsServedByItsFirstEnqueue(t *testing.T) {
	h := serve(t)
	ch := h.waitIn(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q", WaitMs: 20_000, LeaseMs: 5000})
	id := h.enqueue("q", "x")
	c := <-ch
	require.NoError(t, c.err)
	require.Equal(t, id, c.out.GetMessages()[0].GetMessage().GetMessageId())
	require.InDelta(t, 5000, c.out.GetMessages()[0].GetLeaseRemainingMs(), 2000)
}

func TestC8LeaseOfAQueueThatAppears(t *testing.T) {
	h := serve(t)
	ch := h.waitIn(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q", WaitMs: 20_000, LeaseMs: 5})
	h.enqueue("q", "x")
	c := <-ch
	requireReason(t, c.err, codes.InvalidArgument, "LEASE_OUT_OF_RANGE")
}

// TestC15AnswerThatNobodyTakes: the caller leaves while the statement runs; its row is
// claimable again at once, attempt refunded.
func TestC15AnswerThatNobodyTakes(t *testing.T) {
	h := serve(t)
	h.enqueue("q", "x")
	struck := make(chan struct{})
	h.faults.Inject(faults.Claim, faults.Fault{Times: 1, Strike: func() { close(struck) }, DelayAfter: 200 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-struck
		cancel()
	}()
	_, err := h.Claim(ctx, &queueboxv1.ClaimRequest{Queue: "q", WaitMs: 20_000})
	require.Equal(t, codes.Canceled, detailsOf(t, err).code)
	out, err := h.Claim(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q", WaitMs: 20_000})
	require.NoError(t, err)
	require.EqualValues(t, 1, out.GetMessages()[0].GetMessage().GetAttempt())
	require.Contains(t, h.scrape(), `queuebox_claims_given_back_total{result="given_back"} 1`)
}

func TestTooManyWaitersAreRefused(t *testing.T) {
	h := serve(t, func(c *Config) { c.MaxWaiters = 1 })
	h.waitIn(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q", WaitMs: 2000})
	_, err := h.Claim(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q"})
	require.Positive(t, requireReason(t, err, codes.ResourceExhausted, "TOO_MANY_WAITERS").retry)
}

// TestC13AnswerFitsTheClient: a thousand large messages are wanted; what comes is what
// the answer can carry, and nothing more is leased.
func TestC13AnswerFitsTheClient(t *testing.T) {
	h := serve(t)
	payload := string(make([]byte, 1<<20))
	for range 6 {
		h.enqueue("q", payload)
	}
	got := 0
	for got < 6 {
		out, err := h.Claim(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q", MaxMessages: 1000})
		require.NoError(t, err)
		require.NotEmpty(t, out.GetMessages())
		require.LessOrEqual(t, len(out.GetMessages()), 3)
		got += len(out.GetMessages())
	}
	require.Equal(t, 6, got)
	// Counts are taken beside, every few seconds: a list tells of the present.
	list, err := h.ListMessages(h.ctx(), &queueboxv1.ListMessagesRequest{
		Queue:  "q",
		Filter: &queueboxv1.MessageFilter{States: []queueboxv1.MessageState{queueboxv1.MessageState_MESSAGE_STATE_PROCESSING}},
	})
	require.NoError(t, err)
	require.Len(t, list.GetMessages(), 6)
}

func TestC13MaxBytes(t *testing.T) {
	h := serve(t)
	for range 5 {
		h.enqueue("q", "0123456789")
	}
	out, err := h.Claim(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q", MaxMessages: 5, MaxBytes: 25})
	require.NoError(t, err)
	require.Len(t, out.GetMessages(), 2)
	out, err = h.Claim(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q", MaxMessages: 5, MaxBytes: 1})
	require.NoError(t, err)
	require.Len(t, out.GetMessages(), 1, "one is always allowed")
}

// TestD11EveryAnswerTellsTheClock of WorkerService and ProducerService.
func TestD11EveryAnswerTellsTheClock(t *testing.T) {
	h := serve(t)
	enq, err := h.Enqueue(h.ctx(), &queueboxv1.EnqueueRequest{Queue: "q"})
	require.NoError(t, err)
	require.NotNil(t, enq.GetServerTime())
	batch, err := h.BatchEnqueue(h.ctx(), &queueboxv1.BatchEnqueueRequest{Requests: []*queueboxv1.EnqueueRequest{{Queue: "q"}, {Queue: "q"}, {Queue: "q"}}})
	require.NoError(t, err)
	require.NotNil(t, batch.GetServerTime())
	none, err := h.BatchEnqueue(h.ctx(), &queueboxv1.BatchEnqueueRequest{})
	require.NoError(t, err)
	require.NotNil(t, none.GetServerTime())

	m := h.claim()
	id, token := m.GetMessage().GetMessageId(), m.GetClaimToken()
	renew, err := h.Renew(h.ctx(), &queueboxv1.RenewRequest{Queue: "q", MessageId: id, ClaimToken: token, LeaseMs: 60_000})
	require.NoError(t, err)
	require.NotNil(t, renew.GetServerTime())
	require.InDelta(t, 60_000, renew.GetLeaseRemainingMs(), 2000)
	require.WithinDuration(t, renew.GetServerTime().AsTime().Add(time.Minute), renew.GetLeaseExpireTime().AsTime(), time.Second)
	many, err := h.BatchRenew(h.ctx(), &queueboxv1.BatchRenewRequest{Queue: "q"})
	require.NoError(t, err)
	require.NotNil(t, many.GetServerTime())
	release, err := h.Release(h.ctx(), &queueboxv1.ReleaseRequest{Queue: "q", MessageId: id, ClaimToken: token})
	require.NoError(t, err)
	require.NotNil(t, release.GetServerTime())
	require.Equal(t, queueboxv1.SettleOutcome_SETTLE_OUTCOME_RELEASED, release.GetOutcome())
	require.NotNil(t, release.GetAvailableTime())

	m = h.claim()
	delay := int64(0)
	retry, err := h.Retry(h.ctx(), &queueboxv1.RetryRequest{Queue: "q", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(), DelayMs: &delay, Error: "e"})
	require.NoError(t, err)
	require.NotNil(t, retry.GetServerTime())
	require.Equal(t, queueboxv1.SettleOutcome_SETTLE_OUTCOME_RETRIED, retry.GetOutcome())
	m = h.claim()
	dead, err := h.DeadLetter(h.ctx(), &queueboxv1.DeadLetterRequest{Queue: "q", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(), ReasonCode: "c", Error: "e"})
	require.NoError(t, err)
	require.NotNil(t, dead.GetServerTime())
	m = h.claim()
	done, err := h.Complete(h.ctx(), completeItem(m).GetComplete())
	require.NoError(t, err)
	require.NotNil(t, done.GetServerTime())
	require.NotNil(t, done.GetCompleteTime())
	require.False(t, done.GetAlreadySettled())
	done, err = h.Complete(h.ctx(), completeItem(m).GetComplete())
	require.NoError(t, err)
	require.True(t, done.GetAlreadySettled(), "S5")
}

func TestS9ErrorTextIsCut(t *testing.T) {
	require.Equal(t, "ab", cutError("a\x00b"))
	long := "x"
	for len(long) < 3000 {
		long += "ä"
	}
	cut := cutError(long)
	require.Len(t, cut, 1999, "on a rune boundary")
	require.Equal(t, long[:1999], cut)
}
