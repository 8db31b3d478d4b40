package server

import (
	"context"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// Renew sets the end of one lease anew.
func (a *api) Renew(ctx context.Context, req *queueboxv1.RenewRequest) (*queueboxv1.RenewResponse, error) {
	c := &check{}
	c.queue("queue", req.GetQueue())
	if err := c.err(); err != nil {
		return nil, err
	}
	out, errs, _, err := a.renewAll(ctx, req.GetQueue(), []*queueboxv1.RenewItem{{
		MessageId: req.GetMessageId(), ClaimToken: req.GetClaimToken(), LeaseMs: req.GetLeaseMs(),
	}}, nil)
	if err != nil {
		return nil, err
	}
	if errs[0] != nil {
		return nil, errs[0]
	}
	return out[0], nil
}
