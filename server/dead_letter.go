package server

import (
	"context"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
)

// DeadLetter sets a message aside.
func (a *api) DeadLetter(ctx context.Context, req *queueboxv1.DeadLetterRequest) (*queueboxv1.DeadLetterResponse, error) {
	s, now, err := a.settle(ctx, req)
	if err != nil {
		return nil, err
	}
	return &queueboxv1.DeadLetterResponse{
		AlreadySettled: s.Status == storage.ItemAlreadySettled,
		ServerTime:     stamp(now),
	}, nil
}
