package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// BenchmarkCycle sends batches once around, enqueue, claim and complete, one statement
// each, beside a standing backlog of other messages.
func BenchmarkCycle(b *testing.B) {
	for _, batch := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			d := newDatabase(b, false)
			q := queue(b, d.store, "bench")
			// Behind, in claim order, so that each claim gets what was just enqueued.
			d.fill(b, q.ID, 20000, "0, 0, now() + g * interval '1 microsecond', NULL, NULL, -1")
			d.exec(b, "VACUUM ANALYZE queuebox.message")
			payload := make([]byte, 100)
			n := 0
			for b.Loop() {
				enqueue(b, d.store, q.ID, batch, func(_ int, m *storage.NewMessage) { m.Payload = payload })
				claimed := claim(b, d.store, q.ID, batch, time.Minute)
				if len(claimed) != batch {
					b.Fatalf("claimed %d of %d", len(claimed), batch)
				}
				settle(b, d.store, completions(claimed)...)
				n += batch
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}
