package server

import (
	"context"
	"errors"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
)

// Cancel ends a message, or asks its holder to (S14).
func (a *api) Cancel(ctx context.Context, req *queueboxv1.CancelRequest) (*queueboxv1.CancelResponse, error) {
	c := &check{}
	c.queue("queue", req.GetQueue())
	p := storage.CancelParams{}
	switch target := req.GetTarget().(type) {
	case *queueboxv1.CancelRequest_MessageId:
		p.Ref = c.message("message_id", target.MessageId)
	case *queueboxv1.CancelRequest_IdempotencyKey:
		p.IdempotencyKey = target.IdempotencyKey
		if p.IdempotencyKey == "" {
			c.wrong("idempotency_key", "is empty; name the key that the message was enqueued with")
		}
		c.text("idempotency_key", p.IdempotencyKey)
	default:
		c.wrong("target", "is missing; set one of message_id, idempotency_key")
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	q, err := a.catalog.id(ctx, req.GetQueue())
	if errors.Is(err, storage.ErrQueueNotFound) || err == nil && p.IdempotencyKey == "" && q.ID != p.Ref.QueueID {
		return nil, messageNotFound()
	}
	if err != nil {
		return nil, err
	}
	p.QueueID = q.ID
	call, cancel := a.statement(ctx)
	defer cancel()
	began := a.now()
	res, err := a.store.Cancel(call, p)
	if err != nil {
		return nil, err
	}
	a.clock.seen(res.Now, a.now())
	a.metrics.cancelled(q.Name, res.State)
	switch res.State { //nolint:exhaustive // the others were finished before
	case storage.StateCancelled:
		a.leaseOver(res.Ref)
	case storage.StateProcessing:
		a.claimChanged(res.Ref)
	}
	if res.Ready {
		a.dispatch.Announce(p.QueueID, since(res.Now, a.now().Sub(began)))
	}
	return &queueboxv1.CancelResponse{State: wireState(res.State), ServerTime: stamp(res.Now)}, nil
}
