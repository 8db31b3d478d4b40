package bench

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	queuebox "github.com/queuebox/queuebox/client/go"
	"github.com/queuebox/queuebox/internal/blackbox"
)

// workers are the ways of a Go Worker to its messages and of its settlements back.
var workers = []struct {
	name    string
	options []queuebox.Option
	config  queuebox.WorkerConfig
}{
	{"poll/settle=single", []queuebox.Option{queuebox.WithSeparateSettlements()}, queuebox.WorkerConfig{Delivery: queuebox.DeliverPoll}},
	{"poll/settle=joined", nil, queuebox.WorkerConfig{Delivery: queuebox.DeliverPoll}},
	{"stream/settle=joined", nil, queuebox.WorkerConfig{}},
}

// BenchmarkWorker brings b.N messages through one Go Worker, one message a handler, beside a
// producer that enqueues them in batches of 1000. msg/s is the throughput of whole cycles;
// client-µs/msg is the processor time of this process, so of worker and producer.
func BenchmarkWorker(b *testing.B) {
	for _, engine := range []string{blackbox.EnginePostgres, blackbox.EngineSQLite} {
		b.Run("engine="+engine, func(b *testing.B) {
			for _, handlers := range []int{1, 256, 2000} {
				for _, w := range workers {
					b.Run(fmt.Sprintf("handlers=%d/delivery=%s", handlers, w.name), func(b *testing.B) {
						config := w.config
						config.Queue, config.Concurrency = queueName, handlers
						work(b, open(b, engine), config, w.options...)
					})
				}
			}
		})
	}
}

func work(b *testing.B, db *blackbox.Database, config queuebox.WorkerConfig, options ...queuebox.Option) {
	b.Helper()
	s := db.Start(b)
	wire := &wire{}
	c, err := queuebox.Dial(s.Addr, append(options, wire.option(), queuebox.WithLogger(slog.New(slog.NewTextHandler(b.Output(), nil))))...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	enqueue := func(n int) {
		ms := make([]queuebox.NewMessage, n)
		for i := range ms {
			ms[i].Payload = payload
		}
		if _, err := c.EnqueueBatch(b.Context(), queueName, ms); err != nil {
			b.Errorf("enqueue: %v", err)
		}
	}
	// The first messages make the queue and the connection, and warm both sides.
	const warm = 100
	enqueue(warm)

	var handled atomic.Int64
	all := make(chan struct{})
	warmed := make(chan struct{})
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- queuebox.NewWorker(c, config).Run(ctx, func(context.Context, *queuebox.Handle) error {
			switch handled.Add(1) {
			case warm:
				close(warmed)
			case warm + int64(b.N):
				close(all)
			}
			return nil
		})
	}()
	<-warmed

	b.ResetTimer()
	wire.reset()
	began := processTime()
	for left := b.N; left > 0 && !b.Failed(); left -= 1000 {
		enqueue(min(left, 1000))
	}
	select {
	case <-all:
	case err := <-ended:
		b.Fatalf("the worker ended: %v", err)
	case <-b.Context().Done():
	}
	stop()
	if err := <-ended; err != nil { // with the last message settled
		b.Fatal(err)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	b.ReportMetric(float64(wire.calls.Load())/float64(b.N), "calls/msg")
	b.ReportMetric(float64(wire.sent.Load())/float64(b.N), "sent-frames/msg")
	b.ReportMetric(float64(wire.received.Load())/float64(b.N), "received-frames/msg")
	b.ReportMetric(float64((processTime()-began).Microseconds())/float64(b.N), "client-µs/msg")
}

// wire counts what goes over the wire: calls, and frames of streams in both directions.
type wire struct{ calls, sent, received atomic.Int64 }

func (w *wire) option() queuebox.Option {
	return queuebox.WithDialOptions(
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			w.calls.Add(1)
			return invoke(ctx, method, req, reply, conn, opts...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := open(ctx, desc, conn, method, opts...)
			return &wireStream{ClientStream: s, wire: w}, err
		}),
	)
}

func (w *wire) reset() {
	w.calls.Store(0)
	w.sent.Store(0)
	w.received.Store(0)
}

type wireStream struct {
	grpc.ClientStream
	wire *wire
}

func (s *wireStream) SendMsg(m any) error {
	s.wire.sent.Add(1)
	return s.ClientStream.SendMsg(m)
}

func (s *wireStream) RecvMsg(m any) error {
	s.wire.received.Add(1)
	return s.ClientStream.RecvMsg(m)
}
