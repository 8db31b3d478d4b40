package server

import (
	"context"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// BatchSettle applies many settlements, each for itself (S11). An empty batch is
// answered with an empty answer.
func (a *api) BatchSettle(ctx context.Context, req *queueboxv1.BatchSettleRequest) (*queueboxv1.BatchSettleResponse, error) {
	c := &check{}
	c.batch("items", len(req.GetItems()))
	c.allFollowUps("items", req.GetItems())
	if err := c.err(); err != nil {
		return nil, err
	}
	results, now, err := a.settleItems(ctx, "items", req.GetItems())
	if err != nil {
		return nil, err
	}
	resp := &queueboxv1.BatchSettleResponse{Results: results, ServerTime: stamp(now)}
	if resp.GetServerTime() == nil {
		if resp.ServerTime, err = a.serverTime(ctx); err != nil {
			return nil, err
		}
	}
	return resp, nil
}
