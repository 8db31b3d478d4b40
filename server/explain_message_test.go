package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/server/wireid"
	"github.com/queuebox/queuebox/storage"
)

// TestExplanations holds the sentences that docs/operations.md promises.
func TestExplanations(t *testing.T) {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	later, before := now.Add(90*time.Second+time.Millisecond), now.Add(-time.Second)
	const laterText, beforeText = "2026-03-01T12:01:30.001Z", "2026-03-01T11:59:59Z"
	head := storage.Ref{QueueID: 1, Position: 7}
	id := wireid.Message(head)
	pending := storage.Message{Ref: storage.Ref{QueueID: 1, Position: 9}, ReadyTime: before}
	with := func(m storage.Message, change func(m *storage.Message)) storage.Message {
		change(&m)
		return m
	}
	leased := with(pending, func(m *storage.Message) {
		m.State, m.WorkerID, m.LeaseEnd, m.Attempt, m.MaxAttempts = storage.StateProcessing, "w 1", later, 2, 3
	})
	over := with(leased, func(m *storage.Message) { m.LeaseEnd = now })
	finished := func(s storage.State, why storage.DeadReason) storage.Message {
		return with(pending, func(m *storage.Message) { m.State, m.FinishTime, m.DeadReason = s, before, why })
	}
	delayed := with(pending, func(m *storage.Message) { m.ReadyTime = later })
	for name, tc := range map[string]struct {
		x        storage.Explanation
		blockers []string
		earliest time.Time
		blocking string
	}{
		"ready":            {x: storage.Explanation{Message: pending, Ahead: 3}, earliest: now},
		"ready this tick":  {x: storage.Explanation{Message: with(pending, func(m *storage.Message) { m.ReadyTime = now })}, earliest: now},
		"many ahead":       {x: storage.Explanation{Message: pending, Ahead: -1}, earliest: now},
		"delayed":          {x: storage.Explanation{Message: delayed}, blockers: []string{"delayed until " + laterText}, earliest: later},
		"paused, delayed":  {x: storage.Explanation{Message: delayed, Paused: true}, blockers: []string{"paused", "delayed until " + laterText}},
		"retry":            {x: storage.Explanation{Message: with(delayed, func(m *storage.Message) { m.Attempt = 1 })}, blockers: []string{"waiting for a retry until " + laterText}, earliest: later},
		"leased":           {x: storage.Explanation{Message: leased}, blockers: []string{`leased by "w 1" until ` + laterText}, earliest: later},
		"leased, no name":  {x: storage.Explanation{Message: with(leased, func(m *storage.Message) { m.WorkerID = "" })}, blockers: []string{"leased by a worker without a name until " + laterText}, earliest: later},
		"last attempt":     {x: storage.Explanation{Message: with(leased, func(m *storage.Message) { m.Attempt = 3 }), LastAttempt: true}, blockers: []string{`leased by "w 1" until ` + laterText, "last attempt: 3 of 3"}},
		"cancel requested": {x: storage.Explanation{Message: leased, CancelRequested: true}, blockers: []string{`leased by "w 1" until ` + laterText, "cancel requested"}},
		"lease over":       {x: storage.Explanation{Message: over}, earliest: now},
		"lease over, paused": {
			x: storage.Explanation{Message: over, Paused: true}, blockers: []string{"paused", "lease over since 2026-03-01T12:00:00Z, will be reclaimed"},
		},
		"lease over on the last attempt": {x: storage.Explanation{Message: over, LastAttempt: true}, blockers: []string{"last attempt: 2 of 3"}},
		"behind":                         {x: storage.Explanation{Message: pending, Parked: true, Head: head}, blockers: []string{"behind message " + id + " of its key"}, blocking: id},
		"blocked":                        {x: storage.Explanation{Message: pending, Parked: true, Head: head, HeadState: storage.StateDead}, blockers: []string{"key blocked by dead message " + id}, blocking: id},
		"its key moves on":               {x: storage.Explanation{Message: pending, Parked: true}, blockers: []string{"behind a message of its key that has just gone"}},
		"limits":                         {x: storage.Explanation{Message: pending, InFlightLimit: true, RateLimit: true, Ahead: 2}, blockers: []string{"limit max_in_flight reached", "rate limit reached"}},
		"expired":                        {x: storage.Explanation{Message: with(pending, func(m *storage.Message) { m.ExpireTime = now })}, blockers: []string{"expired at 2026-03-01T12:00:00Z"}},
		"expires before it is ready":     {x: storage.Explanation{Message: with(delayed, func(m *storage.Message) { m.ExpireTime = later })}, blockers: []string{"delayed until " + laterText}},
		"completed":                      {x: storage.Explanation{Message: finished(storage.StateCompleted, 0), Paused: true}, blockers: []string{"finished: completed at " + beforeText}},
		"dead":                           {x: storage.Explanation{Message: finished(storage.StateDead, storage.DeadReasonLeaseExpired)}, blockers: []string{"finished: dead (LEASE_EXPIRED) at " + beforeText}},
		"cancelled":                      {x: storage.Explanation{Message: finished(storage.StateCancelled, 0)}, blockers: []string{"finished: cancelled at " + beforeText}},
		"settling":                       {x: storage.Explanation{Message: finished(storage.StateCompleted, 0), Settling: true}, blockers: []string{"settling in a transaction of its worker: completed"}},
		"settling, retry":                {x: storage.Explanation{Message: pending, Settling: true}, blockers: []string{"settling in a transaction of its worker: to be tried again"}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.x.Now = now
			got := explained(&tc.x)
			require.Equal(t, tc.blockers, got.GetBlockers())
			require.Equal(t, len(tc.blockers) == 0, got.GetClaimable(), "claimable and held back by nothing are the same")
			require.Equal(t, tc.blocking, got.GetBlockingMessageId())
			require.Equal(t, tc.x.Ahead, got.GetMessagesAhead())
			if tc.earliest.IsZero() {
				require.Nil(t, got.GetEarliestClaimTime())
			} else {
				require.Equal(t, tc.earliest, got.GetEarliestClaimTime().AsTime())
			}
		})
	}
}

func TestExplainMessage(t *testing.T) {
	h := serve(t)
	first, second := h.enqueue("q", "a"), h.enqueue("q", "b")
	explain := func(id string) *queueboxv1.ExplainMessageResponse {
		out, err := h.ExplainMessage(h.ctx(), &queueboxv1.ExplainMessageRequest{Queue: "q", MessageId: id})
		require.NoError(t, err)
		return out
	}
	out := explain(second)
	require.True(t, out.GetClaimable())
	require.EqualValues(t, 1, out.GetMessagesAhead())
	m := h.claim()
	require.Equal(t, first, m.GetMessage().GetMessageId())
	out = explain(first)
	require.False(t, out.GetClaimable())
	require.Equal(t, m.GetLeaseExpireTime().AsTime(), out.GetEarliestClaimTime().AsTime())
	require.Zero(t, explain(second).GetMessagesAhead())
}
