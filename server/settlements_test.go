package server

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/server/wireid"
	"github.com/queuebox/queuebox/storage"
)

// TestS11ABatchIsCountedItemByItem settles messages of two queues in one batch, in many ways:
// what is noted for all of them at once must be what was noted for each of them.
func TestS11ABatchIsCountedItemByItem(t *testing.T) {
	h := serve(t)
	var items []*queueboxv1.SettleItem
	for i := range 10 {
		queue := fmt.Sprintf("q%d", i/5)
		h.enqueue(queue, "x")
		out, err := h.Claim(h.ctx(), &queueboxv1.ClaimRequest{Queue: queue, WaitMs: 5000})
		require.NoError(t, err)
		require.Len(t, out.GetMessages(), 1)
		id, token := out.GetMessages()[0].GetMessage().GetMessageId(), out.GetMessages()[0].GetClaimToken()
		switch i % 5 {
		case 2:
			token = wireid.Token(storage.Token{1})
			fallthrough
		case 0, 1:
			items = append(items, &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_Complete{
				Complete: &queueboxv1.CompleteRequest{Queue: queue, MessageId: id, ClaimToken: token},
			}})
		case 3:
			items = append(items, &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_Release{
				Release: &queueboxv1.ReleaseRequest{Queue: queue, MessageId: id, ClaimToken: token},
			}})
		case 4:
			items = append(items, &queueboxv1.SettleItem{}, &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_DeadLetter{
				DeadLetter: &queueboxv1.DeadLetterRequest{Queue: queue, MessageId: id, ClaimToken: token},
			}}, &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_Retry{
				Retry: &queueboxv1.RetryRequest{Queue: queue, MessageId: "nothing", ClaimToken: token},
			}})
		}
	}
	out, err := h.BatchSettle(h.ctx(), &queueboxv1.BatchSettleRequest{Items: items})
	require.NoError(t, err)
	for i, r := range out.GetResults() {
		field := r.GetError().GetMetadata()["field"]
		switch i % 7 {
		case 0, 1:
			require.Equal(t, queueboxv1.SettleOutcome_SETTLE_OUTCOME_COMPLETED, r.GetOutcome(), i)
			require.NotNil(t, r.GetCompleteTime())
			require.Nil(t, r.GetAvailableTime())
		case 2:
			require.Equal(t, queueboxv1.ErrorReason_ERROR_REASON_CLAIM_LOST, r.GetError().GetReason(), i)
		case 3:
			require.Equal(t, queueboxv1.SettleOutcome_SETTLE_OUTCOME_RELEASED, r.GetOutcome(), i)
			require.NotNil(t, r.GetAvailableTime())
		case 4:
			require.Equal(t, fmt.Sprintf("items[%d].action", i), field)
		case 5:
			require.Equal(t, queueboxv1.SettleOutcome_SETTLE_OUTCOME_DEAD, r.GetOutcome(), i)
		case 6:
			require.Equal(t, fmt.Sprintf("items[%d].retry.message_id", i), field)
		}
	}
	scrape := h.scrape()
	for _, queue := range []string{"q0", "q1"} {
		for outcome, n := range map[string]int{"completed": 2, "released": 1, "dead": 1, "retried": 0, "cancelled": 0} {
			require.Contains(t, scrape, fmt.Sprintf("queuebox_messages_settled_total{outcome=%q,queue=%q} %d\n", outcome, queue, n))
		}
		require.Contains(t, scrape, fmt.Sprintf("queuebox_settlements_refused_total{queue=%q,reason=\"claim_lost\"} 1\n", queue))
	}
	// What was released wakes a waiter at once, and its lease is forgotten.
	for _, queue := range []string{"q0", "q1"} {
		again, err := h.Claim(h.ctx(), &queueboxv1.ClaimRequest{Queue: queue, WaitMs: 5000})
		require.NoError(t, err)
		require.Len(t, again.GetMessages(), 1)
		require.EqualValues(t, 1, again.GetMessages()[0].GetMessage().GetAttempt())
	}
	require.Equal(t, 4, h.server.api.dispatch.Leases(), "two of lost tokens, two claimed again")
}
