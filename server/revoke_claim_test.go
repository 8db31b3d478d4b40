package server

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/server/wireid"
	"github.com/queuebox/queuebox/storage"
)

func (h *harness) revoke(id string, refund bool) (*queueboxv1.Message, error) {
	out, err := h.RevokeClaim(h.ctx(), &queueboxv1.RevokeClaimRequest{Queue: "q", MessageId: id, RefundAttempt: refund})
	return out.GetMessage(), err
}

// TestS8RevokeClaim: the message is ready again, a waiter gets it at once, and the old
// token is dead.
func TestS8RevokeClaim(t *testing.T) {
	h := serve(t)
	id := h.enqueue("q", "x")
	old := h.claim()
	wait := h.waitIn(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q", WaitMs: 20_000, WorkerId: "next"})
	m, err := h.revoke(id, true)
	require.NoError(t, err)
	require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_PENDING, m.GetState())
	require.Zero(t, m.GetAttempt())
	require.Nil(t, m.GetLeaseExpireTime())
	require.Empty(t, m.GetPayload())
	next := <-wait
	require.NoError(t, next.err)
	require.Len(t, next.out.GetMessages(), 1)
	require.EqualValues(t, 1, next.out.GetMessages()[0].GetMessage().GetAttempt())

	_, err = h.Complete(h.ctx(), completeItem(old).GetComplete())
	require.Equal(t, "REVOKED", requireReason(t, err, codes.FailedPrecondition, "CLAIM_LOST").metadata["cause"])
	_, err = h.Complete(h.ctx(), completeItem(next.out.GetMessages()[0]).GetComplete())
	require.NoError(t, err)
	_, err = h.Complete(h.ctx(), completeItem(old).GetComplete())
	require.Equal(t, "REVOKED", requireReason(t, err, codes.FailedPrecondition, "CLAIM_LOST").metadata["cause"], "also after another has completed it")

	_, err = h.revoke(id, true)
	d := requireReason(t, err, codes.FailedPrecondition, "MESSAGE_STATE")
	require.Equal(t, "COMPLETED", d.metadata["state"])
	body := h.scrape()
	require.True(t, containsLine(body, `queuebox_revokes_total{queue="q",result="pending"} 1`))
	require.True(t, containsLine(body, `queuebox_revokes_total{queue="q",result="not_claimed"} 1`))
	require.NotContains(t, h.log.String(), old.GetClaimToken())
}

func TestRevokeClaimOfAMessageThatNobodyHolds(t *testing.T) {
	h := serve(t)
	id := h.enqueue("q", "x")
	before := h.dump()
	_, err := h.revoke(id, false)
	require.Equal(t, "PENDING", requireReason(t, err, codes.FailedPrecondition, "MESSAGE_STATE").metadata["state"])
	ref, err := wireid.ParseMessage(id)
	require.NoError(t, err)
	for queue, id := range map[string]string{"q": wireid.Message(storage.Ref{QueueID: ref.QueueID, Position: ref.Position + 1000}), "none": id} {
		_, err = h.RevokeClaim(h.ctx(), &queueboxv1.RevokeClaimRequest{Queue: queue, MessageId: id})
		requireReason(t, err, codes.NotFound, "MESSAGE_NOT_FOUND")
	}
	require.Equal(t, before, h.dump())
}

// TestRevokeClaimForgetsTheLease: a server that drains does not wait for it.
func TestRevokeClaimForgetsTheLease(t *testing.T) {
	h := serve(t)
	id := h.enqueue("q", "x")
	h.claim()
	require.Equal(t, 1, h.server.api.dispatch.Leases())
	_, err := h.revoke(id, false)
	require.NoError(t, err)
	require.Zero(t, h.server.api.dispatch.Leases())
}
