package server

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/server/wireid"
	"github.com/queuebox/queuebox/storage"
)

// TestALostClaimIsFoundInTheLog: an operator asks which worker lost what, and why.
func TestALostClaimIsFoundInTheLog(t *testing.T) {
	h := serve(t)
	h.enqueue("q", "x")
	m := h.claim()
	id, token := m.GetMessage().GetMessageId(), wireid.Token(storage.Token{1, 2, 3})
	_, err := h.Complete(h.ctx(), &queueboxv1.CompleteRequest{Queue: "q", MessageId: id, ClaimToken: token})
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
	log := h.log.String()
	require.Regexp(t, `msg="finished call" .*queue=q`, log)
	require.Contains(t, log, "message_id="+id)
	require.Contains(t, log, "reason=CLAIM_LOST")
	require.Contains(t, log, "cause=SUPERSEDED")
	require.NotContains(t, log, token)
}

// TestEachViolationHasItsOwnReason: a field is not blamed for the fault of another.
func TestEachViolationHasItsOwnReason(t *testing.T) {
	c := &check{}
	c.wrongFor(queueboxv1.ErrorReason_ERROR_REASON_LEASE_OUT_OF_RANGE, "lease_ms", "is -1")
	c.wrong("max_messages", "is -4")
	require.Equal(t, queueboxv1.ErrorReason_ERROR_REASON_LEASE_OUT_OF_RANGE, c.violations[0].reason)
	require.Equal(t, queueboxv1.ErrorReason_ERROR_REASON_INVALID_ARGUMENT, c.violations[1].reason)
}
