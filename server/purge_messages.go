package server

import (
	"context"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
)

// PurgeMessages deletes messages for good, in many small transactions, and never one that
// somebody holds. A max_messages of 0 means all that match; the call ends early, with more =
// true, as RedriveMessages does.
func (a *api) PurgeMessages(ctx context.Context, req *queueboxv1.PurgeMessagesRequest) (*queueboxv1.PurgeMessagesResponse, error) {
	c := &check{}
	c.queue("queue", req.GetQueue())
	filter, refs := c.operatorFilter(
		req.GetFilter(), "says nothing; to empty the queue say so: set filter.states to PENDING, COMPLETED, DEAD and CANCELLED",
		func(s queueboxv1.MessageState) string {
			if s == queueboxv1.MessageState_MESSAGE_STATE_PROCESSING {
				return "is PROCESSING; a message that a worker holds is never deleted: cancel it, or revoke its claim, first"
			}
			return ""
		},
	)
	c.notNegative("max_messages", req.GetMaxMessages())
	if err := c.err(); err != nil {
		return nil, err
	}
	q, err := a.catalog.id(ctx, req.GetQueue())
	if err != nil {
		return nil, err
	}
	if !inQueue(&filter, q, refs) {
		return &queueboxv1.PurgeMessagesResponse{}, nil
	}
	began := a.now()
	b := a.newBatch(ctx, q, req.GetMaxMessages())
	b.page = func(ctx context.Context, after int64, limit int, _ int64, dryRun bool) (storage.BatchResult, error) {
		res, err := a.store.Purge(ctx, storage.PurgeParams{Filter: filter, After: after, Limit: limit, DryRun: dryRun})
		if err == nil && !dryRun {
			a.metrics.purged(q.Name, res.Count)
		}
		return res, err
	}
	out, err := b.run(ctx, req.GetDryRun())
	b.told(ctx, "messages purged", req.GetDryRun(), began, out, err)
	if err != nil {
		return nil, err
	}
	return &queueboxv1.PurgeMessagesResponse{MessageCount: out.count, More: out.more}, nil
}
