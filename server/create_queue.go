package server

import (
	"context"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
)

// CreateQueue makes a queue.
func (a *api) CreateQueue(ctx context.Context, req *queueboxv1.CreateQueueRequest) (*queueboxv1.CreateQueueResponse, error) {
	c := &check{prefix: "queue."}
	c.queue("queue", req.GetQueue().GetQueue())
	c.outputOnly(req.GetQueue())
	var s storage.QueueSettings
	for _, f := range queueFields() {
		f.set(c, &s, req.GetQueue(), a.cfg.QueueDefaults)
	}
	if len(c.violations) == 0 {
		c.settings(s)
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	call, cancel := a.statement(ctx)
	defer cancel()
	read := a.now()
	q, err := a.store.CreateQueue(call, req.GetQueue().GetQueue(), s, a.cfg.MaxQueues)
	if err != nil {
		return nil, err
	}
	a.catalog.put(q, read)
	a.dispatch.WakeName(q.Name)
	return &queueboxv1.CreateQueueResponse{Queue: wireQueue(q)}, nil
}

// outputOnly refuses what only the server sets.
func (c *check) outputOnly(q *queueboxv1.Queue) {
	if q.GetCreateTime() != nil {
		c.wrong("create_time", "is set by the server; leave it unset")
	}
	if q.GetEtag() != "" {
		c.wrong("etag", "is made by the server; leave it unset when you create a queue")
	}
}
