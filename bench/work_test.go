package bench

import (
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/queuebox/queuebox/bench/stream"
	"github.com/queuebox/queuebox/internal/blackbox"
)

// BenchmarkWorkStream runs the full cycle with Work streams: four streams of 512 messages in
// flight complete what two producers enqueue in batches of 1000. An operation is a message.
func BenchmarkWorkStream(b *testing.B) {
	for _, engine := range []string{blackbox.EngineSQLite, blackbox.EnginePostgres, blackbox.EngineMySQL, blackbox.EngineMSSQL} {
		b.Run("engine="+engine, func(b *testing.B) {
			db := open(b, engine)
			s := db.Start(b)
			conns := make([]*grpc.ClientConn, 4)
			for i := range conns {
				conns[i] = s.Client(b).Conn
			}
			producer := grpcCycler{s.Client(b)}
			cycles := func() {
				b.ResetTimer()
				var wg sync.WaitGroup
				for i := range 2 {
					wg.Go(func() {
						for left := b.N/2 + i*(b.N%2); left > 0 && !b.Failed(); left -= min(left, 1000) {
							if err := producer.enqueue(b.Context(), min(left, 1000)); err != nil {
								b.Error(err)
							}
						}
					})
				}
				began := time.Now()
				delivered, settled, err := stream.Load{Queue: queueName, Window: 512, Frames: 2}.Run(b.Context(), conns, b.N)
				took := time.Since(began)
				wg.Wait()
				b.StopTimer()
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(b.N)/took.Seconds(), "msg/s")
				b.ReportMetric(delivered, "deliveries/frame")
				b.ReportMetric(settled, "settlements/frame")
			}
			if db.Name == blackbox.EnginePostgres {
				total, _ := blackbox.CountStatements(b, db).During(b, cycles)
				b.ReportMetric(float64(total)/float64(b.N), "stmts/msg")
			} else {
				cycles()
			}
		})
	}
}
