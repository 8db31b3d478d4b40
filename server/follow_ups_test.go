package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

func TestS10_FollowUpsOfACompletion(t *testing.T) {
	h := serve(t)
	h.enqueue("q", "x")
	m := h.claim()
	req := completeItem(m).GetComplete()
	req.FollowUps = []*queueboxv1.EnqueueRequest{
		{Queue: "next", Payload: []byte("a"), OrderingKey: "k"},
		{Queue: "next", Payload: []byte("b"), IdempotencyKey: "i"},
		{Queue: "next", Payload: []byte("b"), IdempotencyKey: "i"},
	}
	// Whoever waits for the queue of a follow-up, which does not exist yet, is woken.
	waits := h.waitIn(h.ctx(), &queueboxv1.ClaimRequest{Queue: "next", MaxMessages: 10, WaitMs: 15_000, LeaseMs: 60_000})
	out, err := h.Complete(h.ctx(), req)
	require.NoError(t, err)
	require.False(t, out.GetAlreadySettled())
	require.Len(t, out.GetFollowUpMessageIds(), 3)
	require.Equal(t, out.GetFollowUpMessageIds()[1], out.GetFollowUpMessageIds()[2], "E1")
	got := <-waits
	require.NoError(t, got.err)
	require.Equal(t, out.GetFollowUpMessageIds()[0], got.out.GetMessages()[0].GetMessage().GetMessageId())
	require.Equal(t, "k", got.out.GetMessages()[0].GetMessage().GetOrderingKey())

	again, err := h.Complete(h.ctx(), req)
	require.NoError(t, err)
	require.True(t, again.GetAlreadySettled(), "S5")
	require.Equal(t, out.GetFollowUpMessageIds(), again.GetFollowUpMessageIds())
	batch, err := h.BatchSettle(h.ctx(), &queueboxv1.BatchSettleRequest{Items: []*queueboxv1.SettleItem{completeItem(m)}})
	require.NoError(t, err)
	require.Equal(t, out.GetFollowUpMessageIds(), batch.GetResults()[0].GetFollowUpMessageIds())

	_, body := h.get("/metrics")
	require.Contains(t, body, `queuebox_messages_enqueued_total{queue="next"} 2`)
	require.Contains(t, body, `queuebox_enqueue_duplicates_total{queue="next"} 1`)
}

func TestS10_AFollowUpHasNoQueueToGoTo(t *testing.T) {
	h := serve(t, func(c *Config) { c.CreateQueues = false })
	_, err := h.CreateQueue(h.ctx(), &queueboxv1.CreateQueueRequest{Queue: &queueboxv1.Queue{Queue: "q"}})
	require.NoError(t, err)
	h.enqueue("q", "x")
	m := h.claim()
	req := completeItem(m).GetComplete()
	req.FollowUps = []*queueboxv1.EnqueueRequest{{Queue: "q"}, {Queue: "none"}}
	_, err = h.Complete(h.ctx(), req)
	info := requireReason(t, err, codes.NotFound, "QUEUE_NOT_FOUND")
	require.Equal(t, "follow_ups[1].queue", info.metadata["field"])
	batch, err := h.BatchSettle(h.ctx(), &queueboxv1.BatchSettleRequest{Items: []*queueboxv1.SettleItem{
		{Action: &queueboxv1.SettleItem_Complete{Complete: req}}, completeItem(m),
	}})
	require.NoError(t, err)
	require.Equal(t, queueboxv1.ErrorReason_ERROR_REASON_QUEUE_NOT_FOUND, batch.GetResults()[0].GetError().GetReason())
	require.Equal(t, "items[0].complete.follow_ups[1].queue", batch.GetResults()[0].GetError().GetMetadata()["field"])
	require.Nil(t, batch.GetResults()[1].GetError(), "the claim was held as before")
	empty, err := h.Claim(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q"})
	require.NoError(t, err)
	require.Empty(t, empty.GetMessages(), "nothing was enqueued")
}

// TestW3_ADelayedFollowUpIsServedWhenItIsReady: its time is known to those who wait already.
func TestW3_ADelayedFollowUpIsServedWhenItIsReady(t *testing.T) {
	h := serve(t)
	var late []time.Duration
	for range 5 {
		h.enqueue("q", "x")
		m := h.claim()
		waits := h.waitIn(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q", WaitMs: 15_000, LeaseMs: 60_000})
		req := completeItem(m).GetComplete()
		req.FollowUps = []*queueboxv1.EnqueueRequest{{Queue: "q", DelayMs: 200}}
		out, err := h.Complete(h.ctx(), req)
		require.NoError(t, err)
		got := <-waits
		require.NoError(t, got.err)
		require.Len(t, got.out.GetMessages(), 1)
		require.Equal(t, out.GetFollowUpMessageIds()[0], got.out.GetMessages()[0].GetMessage().GetMessageId())
		d := got.out.GetServerTime().AsTime().Sub(got.out.GetMessages()[0].GetMessage().GetAvailableTime().AsTime())
		require.GreaterOrEqual(t, d, time.Duration(0))
		late = append(late, d)
		next := completeItem(got.out.GetMessages()[0]).GetComplete()
		_, err = h.Complete(h.ctx(), next)
		require.NoError(t, err)
	}
	best := late[0]
	for _, d := range late {
		best = min(best, d)
	}
	require.Less(t, best, 300*time.Millisecond, "not at the next poll")
}
