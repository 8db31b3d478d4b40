package server

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
)

// full makes a queue that holds at most n messages.
func (h *harness) full(name string, n int64) {
	h.t.Helper()
	_, err := h.CreateQueue(h.ctx(), &queueboxv1.CreateQueueRequest{Queue: &queueboxv1.Queue{Queue: name, MaxMessages: n}})
	require.NoError(h.t, err)
}

func TestL3AFullQueueRefuses(t *testing.T) {
	h := serve(t)
	h.full("q", 3)
	for range 3 {
		h.enqueue("q", "x")
	}
	_, err := h.Enqueue(h.ctx(), &queueboxv1.EnqueueRequest{Queue: "q"})
	got := requireReason(t, err, codes.ResourceExhausted, "QUEUE_FULL")
	require.Positive(t, got.retry, "RetryInfo")
	require.Equal(t, "q", got.metadata["queue"])
	require.Equal(t, "3", got.metadata["max_messages"])
	require.Equal(t, "3", got.metadata["messages"])
	// A batch is refused whole, also where only one of its queues is full (E9).
	_, err = h.BatchEnqueue(h.ctx(), &queueboxv1.BatchEnqueueRequest{Requests: []*queueboxv1.EnqueueRequest{{Queue: "other"}, {Queue: "q"}}})
	requireReason(t, err, codes.ResourceExhausted, "QUEUE_FULL")
	out, err := h.Claim(h.ctx(), &queueboxv1.ClaimRequest{Queue: "other"})
	require.NoError(t, err)
	require.Empty(t, out.GetMessages())
	// What this server ends makes room at once; a retry does not.
	m := h.claim()
	_, err = h.Retry(h.ctx(), &queueboxv1.RetryRequest{Queue: "q", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken()})
	require.NoError(t, err)
	_, err = h.Enqueue(h.ctx(), &queueboxv1.EnqueueRequest{Queue: "q"})
	requireReason(t, err, codes.ResourceExhausted, "QUEUE_FULL")
	m = h.claim()
	_, err = h.Complete(h.ctx(), &queueboxv1.CompleteRequest{Queue: "q", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken()})
	require.NoError(t, err)
	h.enqueue("q", "x")
	_, err = h.BatchEnqueue(h.ctx(), &queueboxv1.BatchEnqueueRequest{Requests: []*queueboxv1.EnqueueRequest{{Queue: "q"}}})
	requireReason(t, err, codes.ResourceExhausted, "QUEUE_FULL")
}

func TestL3ManyProducersAtOnce(t *testing.T) {
	h := serve(t)
	h.full("q", 20)
	var ok, full atomic.Int64
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			_, err := h.Enqueue(h.ctx(), &queueboxv1.EnqueueRequest{Queue: "q"})
			if err == nil {
				ok.Add(1)
			} else if reason := requireReason(t, err, codes.ResourceExhausted, "QUEUE_FULL"); reason.retry > 0 {
				full.Add(1)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 20, ok.Load(), "one server lets no more in, whoever asks at the same time")
	require.EqualValues(t, 30, full.Load())
}

// What the counts do not know of yet is counted once.
func TestL3WhatCameSinceTheCounts(t *testing.T) {
	at := time.Unix(1_900_000_000, 0)
	x := &fill{}
	for i := range 10 {
		x.add(at.Add(time.Duration(i)*time.Second), 2)
	}
	x.add(at.Add(9*time.Second+time.Millisecond), -1)
	require.EqualValues(t, 19, x.since(at.Add(-time.Second)))
	require.EqualValues(t, 9, x.since(at.Add(4*time.Second)))
	require.Len(t, x.moves, 5)
	require.Zero(t, x.since(at.Add(time.Minute)))
	require.Empty(t, x.moves)
	for i := range 2 * maxMoves {
		x.add(at.Add(time.Duration(i)*time.Second), 1)
	}
	require.Len(t, x.moves, maxMoves, "bounded")
	require.EqualValues(t, 7, storage.QueueStats{Ready: 1, Delayed: 1, Blocked: 1, Leased: 2, LeaseExpired: 2, Completed: 9, Dead: 9}.Live())
}
