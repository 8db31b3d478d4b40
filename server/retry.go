package server

import (
	"context"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
)

// Retry returns a message for another attempt.
func (a *api) Retry(ctx context.Context, req *queueboxv1.RetryRequest) (*queueboxv1.RetryResponse, error) {
	s, now, err := a.settle(ctx, req)
	if err != nil {
		return nil, err
	}
	return &queueboxv1.RetryResponse{
		Outcome:        wireOutcome(s.Outcome),
		AvailableTime:  stamp(s.AvailableTime),
		AlreadySettled: s.Status == storage.ItemAlreadySettled,
		ServerTime:     stamp(now),
	}, nil
}
