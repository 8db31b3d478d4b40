package server

import (
	"context"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// GetQueue reads a queue, past the cache: an operator wants what is stored.
func (a *api) GetQueue(ctx context.Context, req *queueboxv1.GetQueueRequest) (*queueboxv1.GetQueueResponse, error) {
	c := &check{}
	c.queue("queue", req.GetQueue())
	if err := c.err(); err != nil {
		return nil, err
	}
	call, cancel := a.statement(ctx)
	defer cancel()
	read := a.now()
	q, err := a.store.GetQueue(call, req.GetQueue())
	if err != nil {
		return nil, err
	}
	a.catalog.put(q, read)
	return &queueboxv1.GetQueueResponse{Queue: wireQueue(q)}, nil
}
