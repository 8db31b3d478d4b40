package cost

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/queuebox/queuebox/bench/stream"
	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// BenchmarkWork completes messages over four Work streams of 512 messages in flight, while two
// producers enqueue them in batches of 1000. An operation is a message.
func BenchmarkWork(b *testing.B) {
	p := start(b, roleServer, pause)
	conns := dial(b, p.GRPC)
	load := stream.Load{Queue: queueName, Window: 512, Frames: 2}
	workOver(b, conns, load, 5_000)
	var spent usage
	var took time.Duration
	var delivered, settled float64
	n := max(b.N, 1000)
	p.profile(b, b.Name(), func() {
		b.ResetTimer()
		before, began := p.usage(b, false), time.Now()
		delivered, settled = workOver(b, conns, load, n)
		took = time.Since(began)
		spent = spent.plus(p.usage(b, false), before)
		b.StopTimer()
	})
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(n)/took.Seconds(), "msg/s")
	b.ReportMetric(float64(spent.CPU.Nanoseconds())/1e3/float64(n), "cpu-µs/msg")
	b.ReportMetric(float64(spent.Mallocs)/float64(n), "allocs/msg")
	b.ReportMetric(float64(spent.Bytes)/float64(n), "B/msg")
	b.ReportMetric(delivered, "deliveries/frame")
	b.ReportMetric(settled, "settlements/frame")
}

func workOver(b *testing.B, conns []*grpc.ClientConn, load stream.Load, n int) (delivered, settled float64) {
	b.Helper()
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			for left := n/2 + i*(n%2); left > 0; left -= min(left, 1000) {
				if err := fill(b.Context(), conns[i], min(left, 1000)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	delivered, settled, err := load.Run(b.Context(), conns, n)
	wg.Wait()
	require.NoError(b, err)
	return delivered, settled
}

func fill(ctx context.Context, conn *grpc.ClientConn, n int) error {
	req := &queueboxv1.BatchEnqueueRequest{Requests: make([]*queueboxv1.EnqueueRequest, n)}
	for i := range req.GetRequests() {
		req.Requests[i] = &queueboxv1.EnqueueRequest{Queue: queueName, Payload: payload}
	}
	_, err := queueboxv1.NewProducerServiceClient(conn).BatchEnqueue(ctx, req)
	return err
}
