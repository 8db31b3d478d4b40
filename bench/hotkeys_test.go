package bench

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/blackbox"
)

// BenchmarkHotKeys works off messages of eight ordering keys with eight workers, each of them
// a claim and a completion at a time: only eight messages can be out at any moment. It is run on
// a server that joins calls and on one that does not.
func BenchmarkHotKeys(b *testing.B) {
	const keys = 8
	for _, engine := range []string{blackbox.EngineSQLite, blackbox.EnginePostgres, blackbox.EngineMySQL} {
		for _, args := range [][]string{nil, {"--no-join-calls"}} {
			b.Run(fmt.Sprintf("engine=%s/%v", engine, args), func(b *testing.B) {
				db := open(b, engine)
				s := db.Start(b, args...)
				clients := []*blackbox.Client{s.Client(b), s.Client(b), s.Client(b), s.Client(b)}
				for from := 0; from < b.N; from += 1000 {
					req := &queueboxv1.BatchEnqueueRequest{}
					for i := from; i < min(from+1000, b.N); i++ {
						req.Requests = append(req.Requests, &queueboxv1.EnqueueRequest{Queue: queueName, Payload: payload, OrderingKey: fmt.Sprint("key ", i%keys)})
					}
					if _, err := clients[0].BatchEnqueue(b.Context(), req); err != nil {
						b.Fatal(err)
					}
				}
				var done atomic.Int64
				var wg sync.WaitGroup
				b.ResetTimer()
				for i := range keys {
					wg.Go(func() {
						c := clients[i%len(clients)]
						for done.Load() < int64(b.N) && !b.Failed() {
							out, err := c.Claim(b.Context(), &queueboxv1.ClaimRequest{Queue: queueName, WaitMs: 100})
							if err != nil {
								b.Error(err)
								return
							}
							for _, m := range out.GetMessages() {
								if _, err := c.Complete(b.Context(), completion(m)); err != nil {
									b.Error(err)
									return
								}
								done.Add(1)
							}
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
				for _, method := range []string{"Claim", "Settle"} {
					sum, _ := s.Metric(b, "queuebox_storage_seconds_sum", "method", method, "result", "ok")
					count, _ := s.Metric(b, "queuebox_storage_seconds_count", "method", method, "result", "ok")
					b.ReportMetric(sum/count*1000, method+"-ms")
					b.ReportMetric(float64(b.N)/count, method+"-msgs")
				}
			})
		}
	}
}
