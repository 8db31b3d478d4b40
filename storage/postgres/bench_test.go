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

// BenchmarkOrderedCycle is BenchmarkCycle with an ordering key for each message: many keys of
// one message each, or few that hand on to their next one.
func BenchmarkOrderedCycle(b *testing.B) {
	for _, batch := range []int{1, 100} {
		for _, keys := range []string{"none", "fresh", "standing", "handed on"} {
			b.Run(fmt.Sprintf("batch=%d/keys=%s", batch, keys), func(b *testing.B) {
				d := newDatabase(b, false)
				q := queue(b, d.store, "bench")
				payload := make([]byte, 100)
				n := 0
				send := func(i int, m *storage.NewMessage) {
					m.Payload = payload
					switch keys {
					case "fresh":
						m.OrderingKey = fmt.Sprint("key ", n+i)
					case "standing", "handed on":
						m.OrderingKey = fmt.Sprint("key ", i)
					}
				}
				if keys == "handed on" {
					for range 10 {
						enqueue(b, d.store, q.ID, batch, send)
					}
				}
				for b.Loop() {
					enqueue(b, d.store, q.ID, batch, send)
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
}

// BenchmarkSweepKeys is a page of 10,000 keys of which none needs anything.
func BenchmarkSweepKeys(b *testing.B) {
	d := newDatabase(b, false)
	q := queue(b, d.store, "bench")
	d.fillKeys(b, q.ID, 1000, 10000)
	d.exec(b, "VACUUM ANALYZE queuebox.message, queuebox.ordering_key")
	for b.Loop() {
		r, err := d.store.SweepKeys(b.Context(), storage.SweepKeysParams{Limit: 10001})
		if err != nil || r.Removed > 0 || len(r.Ready) > 0 {
			b.Fatal(r, err)
		}
	}
}
