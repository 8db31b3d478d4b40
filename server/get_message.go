package server

import (
	"context"
	"errors"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
)

// GetMessage reads one message.
func (a *api) GetMessage(ctx context.Context, req *queueboxv1.GetMessageRequest) (*queueboxv1.GetMessageResponse, error) {
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
	m, err := a.store.GetMessage(call, ref, req.GetIncludePayload())
	if err != nil {
		return nil, err
	}
	return &queueboxv1.GetMessageResponse{Message: wireMessage(q.Name, &m)}, nil
}
