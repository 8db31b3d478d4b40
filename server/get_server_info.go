package server

import (
	"context"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// GetServerInfo tells the facts of the server.
func (a *api) GetServerInfo(ctx context.Context, _ *queueboxv1.GetServerInfoRequest) (*queueboxv1.GetServerInfoResponse, error) {
	now, err := a.serverTime(ctx)
	if err != nil {
		return nil, err
	}
	return &queueboxv1.GetServerInfoResponse{
		Version:          a.cfg.Version,
		Storage:          a.store.Capabilities().Name,
		MaxPayloadBytes:  a.cfg.MaxPayloadBytes,
		MaxClaimMessages: maxClaimMessages,
		MaxBatchItems:    maxBatchItems,
		MaxWaitMs:        a.cfg.MaxWait.Milliseconds(),
		ServerTime:       now,
	}, nil
}
