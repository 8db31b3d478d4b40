package server

import (
	"context"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// ListQueues lists queues by the bytes of their names. A page_size of 0 means 100, and
// more than 1000 means 1000.
func (a *api) ListQueues(ctx context.Context, req *queueboxv1.ListQueuesRequest) (*queueboxv1.ListQueuesResponse, error) {
	c := &check{}
	size := c.pageSize("page_size", req.GetPageSize())
	after := c.queuePageToken("page_token", req.GetPageToken())
	if err := c.err(); err != nil {
		return nil, err
	}
	call, cancel := a.statement(ctx)
	defer cancel()
	// One more than asked for tells whether there is another page.
	qs, err := a.store.ListQueues(call, after, size+1)
	if err != nil {
		return nil, err
	}
	resp := &queueboxv1.ListQueuesResponse{}
	if len(qs) > size {
		qs = qs[:size]
		resp.NextPageToken = queuePageToken(qs[size-1].Name)
	}
	for _, q := range qs {
		resp.Queues = append(resp.Queues, wireQueue(q))
	}
	return resp, nil
}
