package server

import (
	"context"
	"time"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// ResumeQueue lets claims through again and wakes those who wait, on every server.
func (a *api) ResumeQueue(ctx context.Context, req *queueboxv1.ResumeQueueRequest) (*queueboxv1.ResumeQueueResponse, error) {
	q, err := a.setPaused(ctx, req.GetQueue(), false)
	if err != nil {
		return nil, err
	}
	a.dispatch.Announce(q.ID, time.Time{})
	return &queueboxv1.ResumeQueueResponse{Queue: wireQueue(q)}, nil
}
