package cost

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// BenchmarkHeartbeat renews 10,000 leases over Heartbeat streams, once each a round. Such a
// round comes every ten seconds, so core-% is the part of one core that the server needs for it.
func BenchmarkHeartbeat(b *testing.B) {
	const leases = 10_000
	for _, streams := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("leases=%d/streams=%d", leases, streams), func(b *testing.B) {
			p := start(b, roleServer, pause)
			conns := dial(b, p.GRPC)
			renewals := hold(b, conns[0], leases)
			open := make([]queueboxv1.WorkerService_HeartbeatClient, streams)
			for i := range open {
				stream, err := queueboxv1.NewWorkerServiceClient(conns[i%len(conns)]).Heartbeat(b.Context())
				require.NoError(b, err)
				open[i] = stream
			}
			per := leases / streams
			sequence := int64(0)
			round := func() {
				sequence++
				for i, stream := range open {
					require.NoError(b, stream.Send(&queueboxv1.HeartbeatRequest{
						Sequence: sequence, Queue: queueName, WorkerId: "w", Renewals: renewals[i*per : (i+1)*per],
					}))
				}
				for _, stream := range open {
					resp, err := stream.Recv()
					require.NoError(b, err)
					require.Len(b, resp.GetResults(), per)
					require.Nil(b, resp.GetResults()[0].GetError())
				}
			}
			round()
			before := p.usage(b, false)
			p.profile(b, b.Name(), func() {
				b.ResetTimer()
				for range b.N {
					round()
				}
				b.StopTimer()
			})
			spent := usage{}.plus(p.usage(b, false), before)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(spent.CPU.Microseconds())/float64(b.N*leases), "cpu-µs/renewal")
			b.ReportMetric(float64(spent.Mallocs)/float64(b.N*leases), "allocs/renewal")
			b.ReportMetric(100*spent.CPU.Seconds()/float64(b.N)/(10*time.Second).Seconds(), "core-%")
		})
	}
}

// hold enqueues and claims messages and returns the renewals of their leases.
func hold(tb testing.TB, conn *grpc.ClientConn, n int) []*queueboxv1.RenewItem {
	tb.Helper()
	ctx := context.WithoutCancel(tb.Context())
	var held []*queueboxv1.RenewItem
	for range n / 1000 {
		req := &queueboxv1.BatchEnqueueRequest{Requests: make([]*queueboxv1.EnqueueRequest, 1000)}
		for i := range req.GetRequests() {
			req.Requests[i] = &queueboxv1.EnqueueRequest{Queue: queueName, Payload: payload}
		}
		_, err := queueboxv1.NewProducerServiceClient(conn).BatchEnqueue(ctx, req)
		require.NoError(tb, err)
		out, err := queueboxv1.NewWorkerServiceClient(conn).Claim(ctx, &queueboxv1.ClaimRequest{
			Queue: queueName, WorkerId: "w", MaxMessages: 1000, LeaseMs: 600_000,
		})
		require.NoError(tb, err)
		require.Len(tb, out.GetMessages(), 1000)
		for _, m := range out.GetMessages() {
			held = append(held, &queueboxv1.RenewItem{
				MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(), LeaseMs: 600_000,
			})
		}
	}
	return held
}
