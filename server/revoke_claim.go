package server

import (
	"context"
	"errors"
	"strings"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
)

// RevokeClaim takes a claim away (S8 REVOKED). Where nobody holds the message there is
// nothing to take, and the caller is told so: an OK could not be told from a claim that was
// taken away.
func (a *api) RevokeClaim(ctx context.Context, req *queueboxv1.RevokeClaimRequest) (*queueboxv1.RevokeClaimResponse, error) {
	c := &check{}
	c.queue("queue", req.GetQueue())
	ref := c.message("message_id", req.GetMessageId())
	if err := c.err(); err != nil {
		return nil, err
	}
	q, err := a.catalog.id(ctx, req.GetQueue())
	if errors.Is(err, storage.ErrQueueNotFound) || err == nil && q.ID != ref.QueueID {
		return nil, messageNotFound()
	}
	if err != nil {
		return nil, err
	}
	call, cancel := a.statement(ctx)
	defer cancel()
	began := a.now()
	res, err := a.store.Revoke(call, storage.RevokeParams{Ref: ref, Refund: req.GetRefundAttempt()})
	if err != nil {
		return nil, err
	}
	a.clock.seen(res.Now, a.now())
	a.metrics.revoked(q.Name, res)
	if !res.Revoked {
		return nil, notHeldByAnybody(&res.Message)
	}
	a.leaseOver(ref)
	a.claimChanged(ref)
	// Where the message is not ready itself, the next one of its key may be, or one that a
	// limit of the queue held back.
	a.dispatch.Announce(q.ID, since(res.Now, a.now().Sub(began)))
	a.log.InfoContext(ctx, "claim revoked", "queue", q.Name, "message_id", req.GetMessageId(), "worker_id", res.WorkerID,
		"state", strings.ToLower(stateName(res.Message.State)))
	return &queueboxv1.RevokeClaimResponse{Message: wireMessage(q.Name, &res.Message)}, nil
}

// notHeldByAnybody is the answer where there is no claim to take away.
func notHeldByAnybody(m *storage.Message) error {
	why := "it waits to be claimed"
	switch m.State {
	case storage.StateProcessing, storage.StateSettling:
		why = "its lease is over, and it goes to the next claim by itself"
	case storage.StateCompleted, storage.StateDead, storage.StateCancelled:
		why = "it is finished"
	case storage.StatePending:
	}
	return &apiError{
		reason:   queueboxv1.ErrorReason_ERROR_REASON_MESSAGE_STATE,
		text:     "nobody holds this message: " + why + "; nothing changed",
		metadata: map[string]string{"state": stateName(m.State)},
	}
}

// stateName is the state as the wire names it, without the prefix.
func stateName(s storage.State) string {
	return strings.TrimPrefix(wireState(s).String(), "MESSAGE_STATE_")
}
