package bench

import (
	"context"
	"fmt"
	"testing"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/blackbox"
)

// payload has the size of a small job.
var payload = make([]byte, 100)

const queueName = "bench"

// overGRPC starts the real server.
func overGRPC(b *testing.B, db *blackbox.Database) func(int) cycler {
	b.Helper()
	return serverOver(b, db)
}

// serverOver starts the real server with some flags.
func serverOver(b *testing.B, db *blackbox.Database, args ...string) func(int) cycler {
	b.Helper()
	return callersOf(b, db.Start(b, args...))
}

// callersOf are callers of a server that share four connections.
func callersOf(b *testing.B, s *blackbox.Server) func(int) cycler {
	b.Helper()
	conns := make([]*blackbox.Client, 4)
	for i := range conns {
		conns[i] = s.Client(b)
	}
	return func(caller int) cycler { return grpcCycler{conns[caller%len(conns)]} }
}

// grpcCycler uses the plain calls for one message and the batch calls for more.
type grpcCycler struct{ c *blackbox.Client }

func (g grpcCycler) enqueue(ctx context.Context, n int) error {
	if n == 1 {
		_, err := g.c.Enqueue(ctx, &queueboxv1.EnqueueRequest{Queue: queueName, Payload: payload})
		return err
	}
	req := &queueboxv1.BatchEnqueueRequest{Requests: make([]*queueboxv1.EnqueueRequest, n)}
	for i := range req.GetRequests() {
		req.Requests[i] = &queueboxv1.EnqueueRequest{Queue: queueName, Payload: payload}
	}
	_, err := g.c.BatchEnqueue(ctx, req)
	return err
}

func (g grpcCycler) claim(ctx context.Context, n int) (batch, error) {
	out, err := g.c.Claim(ctx, &queueboxv1.ClaimRequest{Queue: queueName, MaxMessages: int32(n), WaitMs: 1_000})
	return grpcBatch{g.c, out.GetMessages()}, err
}

type grpcBatch struct {
	c  *blackbox.Client
	ms []*queueboxv1.ClaimedMessage
}

func (g grpcBatch) size() int { return len(g.ms) }

func (g grpcBatch) complete(ctx context.Context) error {
	if len(g.ms) == 1 {
		_, err := g.c.Complete(ctx, completion(g.ms[0]))
		return err
	}
	req := &queueboxv1.BatchSettleRequest{Items: make([]*queueboxv1.SettleItem, len(g.ms))}
	for i, m := range g.ms {
		req.Items[i] = &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_Complete{Complete: completion(m)}}
	}
	out, err := g.c.BatchSettle(ctx, req)
	for _, r := range out.GetResults() {
		if r.GetError() != nil {
			return fmt.Errorf("item: %v", r.GetError())
		}
	}
	return err
}

func completion(m *queueboxv1.ClaimedMessage) *queueboxv1.CompleteRequest {
	return &queueboxv1.CompleteRequest{Queue: queueName, MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken()}
}
