package cost

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

const (
	connections = 4
	queueName   = "bench"
	// pause is about what a joined statement takes on a database on the same machine.
	pause = time.Millisecond
)

var payload = make([]byte, 100)

// dial opens the connections that all callers share.
func dial(tb testing.TB, addr string) []*grpc.ClientConn {
	tb.Helper()
	conns := make([]*grpc.ClientConn, connections)
	for i := range conns {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
		require.NoError(tb, err)
		tb.Cleanup(func() { _ = conn.Close() })
		conns[i] = conn
	}
	return conns
}

// cycle is one round of a caller.
type cycle func(ctx context.Context, conn *grpc.ClientConn) error

// drive runs n cycles, shared by the callers, and returns how long that took.
func drive(b *testing.B, conns []*grpc.ClientConn, callers, n int, run cycle) time.Duration {
	b.Helper()
	var (
		next atomic.Int64
		wg   sync.WaitGroup
	)
	began := time.Now()
	for i := range callers {
		wg.Go(func() {
			for next.Add(1) <= int64(n) {
				if err := run(b.Context(), conns[i%len(conns)]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

// BenchmarkCycle runs enqueue, claim and complete, and in turns with them three echoes for
// each cycle. cpu-µs/msg is the CPU time of the server process, echo-µs/msg that of the echo
// server for as many calls; of-echo is the throughput as a part of the echo server's.
func BenchmarkCycle(b *testing.B) {
	for _, s := range []struct {
		batch, callers int
	}{{1, 256}, {100, 8}, {1000, 4}} {
		b.Run(fmt.Sprintf("batch=%d/callers=%d", s.batch, s.callers), func(b *testing.B) {
			queuebox, echo := start(b, roleServer, pause), start(b, roleEcho, 0)
			qconns, econns := dial(b, queuebox.GRPC), dial(b, echo.GRPC)
			round := single
			if s.batch > 1 {
				round = batches(s.batch)
			}
			drive(b, qconns, s.callers, s.callers, round)
			drive(b, econns, s.callers, s.callers, echoes)

			const windows = 5
			n := max(1, b.N/windows)
			var ours, theirs time.Duration
			var spent, echoSpent usage
			queuebox.profile(b, b.Name(), func() {
				b.ResetTimer()
				for range windows {
					before := queuebox.usage(b, false)
					ours += drive(b, qconns, s.callers, n, round)
					spent = spent.plus(queuebox.usage(b, false), before)
					before = echo.usage(b, false)
					theirs += drive(b, econns, s.callers, n, echoes)
					echoSpent = echoSpent.plus(echo.usage(b, false), before)
				}
				b.StopTimer()
			})
			messages := float64(windows * n * s.batch)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(messages/ours.Seconds(), "msg/s")
			b.ReportMetric(float64(spent.CPU.Microseconds())/messages, "cpu-µs/msg")
			b.ReportMetric(float64(spent.Mallocs)/messages, "allocs/msg")
			b.ReportMetric(float64(spent.Bytes)/messages, "B/msg")
			if s.batch == 1 {
				b.ReportMetric(float64(echoSpent.CPU.Microseconds())/messages, "echo-µs/msg")
				b.ReportMetric(float64(echoSpent.Mallocs)/messages, "echo-allocs/msg")
				b.ReportMetric(theirs.Seconds()/ours.Seconds(), "of-echo")
			}
		})
	}
}

func (u usage) plus(after, before usage) usage {
	u.CPU += after.CPU - before.CPU
	u.Mallocs += after.Mallocs - before.Mallocs
	u.Bytes += after.Bytes - before.Bytes
	return u
}

func echoes(ctx context.Context, conn *grpc.ClientConn) error {
	for range 3 {
		in := &wrapperspb.BytesValue{Value: payload}
		if err := conn.Invoke(ctx, "/cost.Echo/Echo", in, new(wrapperspb.BytesValue)); err != nil {
			return err
		}
	}
	return nil
}

func single(ctx context.Context, conn *grpc.ClientConn) error {
	if _, err := queueboxv1.NewProducerServiceClient(conn).Enqueue(ctx, &queueboxv1.EnqueueRequest{Queue: queueName, Payload: payload}); err != nil {
		return err
	}
	worker := queueboxv1.NewWorkerServiceClient(conn)
	out, err := worker.Claim(ctx, &queueboxv1.ClaimRequest{Queue: queueName, WaitMs: 10_000, WorkerId: "w"})
	if err != nil {
		return err
	}
	if len(out.GetMessages()) != 1 {
		return fmt.Errorf("claimed %d messages", len(out.GetMessages()))
	}
	_, err = worker.Complete(ctx, completion(out.GetMessages()[0]))
	return err
}

func completion(m *queueboxv1.ClaimedMessage) *queueboxv1.CompleteRequest {
	return &queueboxv1.CompleteRequest{Queue: queueName, MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken()}
}

func batches(size int) cycle {
	return func(ctx context.Context, conn *grpc.ClientConn) error {
		req := &queueboxv1.BatchEnqueueRequest{Requests: make([]*queueboxv1.EnqueueRequest, size)}
		for i := range req.GetRequests() {
			req.Requests[i] = &queueboxv1.EnqueueRequest{Queue: queueName, Payload: payload}
		}
		if _, err := queueboxv1.NewProducerServiceClient(conn).BatchEnqueue(ctx, req); err != nil {
			return err
		}
		worker := queueboxv1.NewWorkerServiceClient(conn)
		for left := size; left > 0; {
			out, err := worker.Claim(ctx, &queueboxv1.ClaimRequest{
				Queue: queueName, WaitMs: 10_000, WorkerId: "w", MaxMessages: int32(left),
			})
			if err != nil {
				return err
			}
			settle := &queueboxv1.BatchSettleRequest{Items: make([]*queueboxv1.SettleItem, len(out.GetMessages()))}
			for i, m := range out.GetMessages() {
				settle.Items[i] = &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_Complete{Complete: completion(m)}}
			}
			settled, err := worker.BatchSettle(ctx, settle)
			if err != nil {
				return err
			}
			for _, r := range settled.GetResults() {
				if r.GetError() != nil {
					return fmt.Errorf("item: %v", r.GetError())
				}
			}
			left -= len(settle.GetItems())
		}
		return nil
	}
}
