package server

import (
	"context"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
)

// PauseQueue stops claims. Other servers learn it with their next statement: the
// storage claims nothing from a paused queue.
func (a *api) PauseQueue(ctx context.Context, req *queueboxv1.PauseQueueRequest) (*queueboxv1.PauseQueueResponse, error) {
	q, err := a.setPaused(ctx, req.GetQueue(), true)
	if err != nil {
		return nil, err
	}
	return &queueboxv1.PauseQueueResponse{Queue: wireQueue(q)}, nil
}

func (a *api) setPaused(ctx context.Context, name string, paused bool) (storage.Queue, error) {
	c := &check{}
	c.queue("queue", name)
	if err := c.err(); err != nil {
		return storage.Queue{}, err
	}
	call, cancel := a.statement(ctx)
	defer cancel()
	read := a.now()
	q, err := a.store.SetPaused(call, name, paused)
	if err == nil {
		a.catalog.put(q, read)
	}
	return q, err
}
