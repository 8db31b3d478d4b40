package server

import (
	"context"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
)

// Complete finishes a message.
func (a *api) Complete(ctx context.Context, req *queueboxv1.CompleteRequest) (*queueboxv1.CompleteResponse, error) {
	s, now, err := a.settle(ctx, req)
	if err != nil {
		return nil, err
	}
	return &queueboxv1.CompleteResponse{
		AlreadySettled:     s.Status == storage.ItemAlreadySettled,
		CompleteTime:       stamp(s.SettleTime),
		FollowUpMessageIds: messageIDs(s.FollowUps),
		ServerTime:         stamp(now),
	}, nil
}
