package server

import (
	"context"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
)

// Release gives a claim back, and the attempt with it.
func (a *api) Release(ctx context.Context, req *queueboxv1.ReleaseRequest) (*queueboxv1.ReleaseResponse, error) {
	s, now, err := a.settle(ctx, req)
	if err != nil {
		return nil, err
	}
	return &queueboxv1.ReleaseResponse{
		AlreadySettled: s.Status == storage.ItemAlreadySettled,
		Outcome:        wireOutcome(s.Outcome),
		AvailableTime:  stamp(s.AvailableTime),
		ServerTime:     stamp(now),
	}, nil
}
