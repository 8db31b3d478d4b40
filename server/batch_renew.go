package server

import (
	"context"
	"time"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// BatchRenew renews many leases of one queue, each for itself (R5). An empty batch is
// answered with an empty answer.
func (a *api) BatchRenew(ctx context.Context, req *queueboxv1.BatchRenewRequest) (*queueboxv1.BatchRenewResponse, error) {
	c := &check{}
	c.queue("queue", req.GetQueue())
	c.batch("items", len(req.GetItems()))
	if err := c.err(); err != nil {
		return nil, err
	}
	results, now, err := a.renewResults(ctx, req.GetQueue(), req.GetItems(), nil)
	if err != nil {
		return nil, err
	}
	resp := &queueboxv1.BatchRenewResponse{Results: results, ServerTime: stamp(now)}
	if resp.GetServerTime() == nil {
		if resp.ServerTime, err = a.serverTime(ctx); err != nil {
			return nil, err
		}
	}
	return resp, nil
}

// renewResults renews items and answers each in place.
func (a *api) renewResults(ctx context.Context, queue string, items []*queueboxv1.RenewItem, w *watch) ([]*queueboxv1.RenewResult, time.Time, error) {
	if len(items) == 0 {
		return nil, time.Time{}, nil
	}
	out, errs, now, err := a.renewAll(ctx, queue, items, w)
	if err != nil {
		return nil, time.Time{}, err
	}
	results := make([]*queueboxv1.RenewResult, len(items))
	for i, item := range items {
		results[i] = &queueboxv1.RenewResult{MessageId: item.GetMessageId(), ClaimToken: item.GetClaimToken()}
		if errs[i] != nil {
			results[i].Outcome = &queueboxv1.RenewResult_Error{Error: a.errors.item(ctx, errs[i])}
			continue
		}
		results[i].Outcome = &queueboxv1.RenewResult_Renewed{Renewed: out[i]}
	}
	return results, now, nil
}
