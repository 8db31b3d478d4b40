package bench

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/queuebox/queuebox/internal/blackbox"
	"github.com/queuebox/queuebox/storage"
)

// scaleRows says how many rows BenchmarkScale fills a queue with; without it the benchmark is
// left out, for ten million take minutes and 10 GB of disk.
const scaleRows = "QUEUEBOX_BENCH_SCALE"

const (
	scaleSmall  = 10_000
	scaleClaims = 3000
)

// BenchmarkScale compares the claims of one message from a queue with 10,000 rows and from one with as many as
// the environment says, in turns, so that what else the machine does is in both: through the
// storage with the hint that a server would hold, and through the real server with all its
// upkeep. For the large one it tells what a page of each kind of upkeep costs as well.
func BenchmarkScale(b *testing.B) {
	rows, err := strconv.Atoi(os.Getenv(scaleRows))
	if err != nil {
		b.Skipf("SKIPPED: %s does not say how many rows", scaleRows)
	}
	live := func(b *testing.B, d *deep, n int, shape string) {
		b.Helper()
		d.parts(b, n, `INSERT INTO queuebox.message (queue_id, position, create_time, max_attempts, payload_bytes,
			wire_bytes, content_type, payload, place, priority, ready_time, state, lease_end, token, lease_ms, attempt, claim_time)
			SELECT `+strconv.Itoa(int(d.queue))+`, nextval('queuebox.message_position'), now(), 20, 100, 300, '',
			decode(repeat('ab', 100), 'hex'), 0, 0, now() - interval '1 minute', `+shape+` FROM generate_series(%[1]d, %[2]d) g`)
	}
	for _, c := range []struct {
		name string
		rows int
		fill func(b *testing.B, d *deep, n int)
	}{
		{name: "pending", rows: rows, fill: func(b *testing.B, d *deep, n int) {
			b.Helper()
			live(b, d, n, `0, NULL, NULL, NULL, 0, NULL`)
		}},
		{name: "settled", rows: rows, fill: func(b *testing.B, d *deep, n int) {
			b.Helper()
			d.enqueue(b, 1, storage.NewMessage{})
			d.claim(b, nil)
			columns := `queue_id, finish_time, create_time, ready_time, token, priority, attempt, max_attempts, payload_bytes, content_type, payload`
			d.parts(b, n, `INSERT INTO queuebox.completed (position, `+columns+`)
				SELECT nextval('queuebox.message_position'), `+columns+` FROM (SELECT * FROM queuebox.completed LIMIT 1) c, generate_series(%[1]d, %[2]d) g`)
		}},
		{name: "leased", rows: min(rows, 100_000), fill: func(b *testing.B, d *deep, n int) {
			b.Helper()
			live(b, d, n, `1, now() + interval '10 hours', gen_random_uuid(), 36000000, 1, now()`)
		}},
	} {
		b.Run(fmt.Sprintf("%s=%d", c.name, c.rows), func(b *testing.B) {
			two := []*deep{deepen(b, blackbox.EnginePostgres), deepen(b, blackbox.EnginePostgres)}
			for i, n := range []int{scaleSmall, c.rows} {
				began := time.Now()
				c.fill(b, two[i], n)
				two[i].exec(b, `VACUUM ANALYZE`)
				b.Logf("%d rows filled in %v", n, time.Since(began).Round(time.Second))
			}
			two[0].exec(b, `CHECKPOINT`)
			scaleUpkeep(b, two[1])
			var over [2]func() time.Duration
			for i, d := range two {
				var hint []storage.ScanHint
				over[i] = func() time.Duration {
					d.enqueue(b, 1, storage.NewMessage{})
					var took time.Duration
					took, hint = d.claimFrom(b, hint)
					return took
				}
			}
			scaleClaim(b, "storage", over)
			for i, d := range two {
				g := grpcCycler{d.db.Start(b).Client(b)}
				over[i] = func() time.Duration { return scaleCycle(b, g) }
			}
			scaleClaim(b, "server", over)
			b.ReportMetric(0, "ns/op")
		})
	}
}

// parts runs an insert for 1..n, a million at a time.
func (d *deep) parts(b *testing.B, n int, text string) {
	b.Helper()
	for from := 1; from <= n; from += 1_000_000 {
		d.exec(b, fmt.Sprintf(text, from, min(from+999_999, n)))
	}
}

// claimFrom is claim with the hint that a server holds, and returns the next one.
func (d *deep) claimFrom(b *testing.B, hint []storage.ScanHint) (time.Duration, []storage.ScanHint) {
	b.Helper()
	start := time.Now()
	out, err := d.store.Claim(b.Context(), storage.ClaimParams{
		QueueID: d.queue, Calls: []storage.ClaimCall{{Max: 1, Lease: time.Minute}}, ScanFrom: hint,
	})
	took := time.Since(start)
	if err != nil {
		b.Fatal(err)
	}
	got := out.Calls[0].Messages
	if len(got) != 1 {
		b.Fatal("nothing is ready")
	}
	if err := (storeBatch{d.store, got}).complete(b.Context()); err != nil {
		b.Fatal(err)
	}
	m := got[0].Message
	return took, []storage.ScanHint{{Priority: m.Priority, ReadyTime: m.ReadyTime, Position: m.Ref.Position + 1}}
}

// scaleCycle sends one message around and returns the time of the claim.
func scaleCycle(b *testing.B, g grpcCycler) time.Duration {
	b.Helper()
	if err := g.enqueue(b.Context(), 1); err != nil {
		b.Fatal(err)
	}
	start := time.Now()
	got, err := g.claim(b.Context(), 1)
	took := time.Since(start)
	if err != nil || got.size() != 1 {
		b.Fatalf("%d messages, %v", got.size(), err)
	}
	if err := got.complete(b.Context()); err != nil {
		b.Fatal(err)
	}
	return took
}

// scaleClaim takes the times of small and large in turns, each first as often as the other.
func scaleClaim(b *testing.B, layer string, over [2]func() time.Duration) {
	b.Helper()
	var all [2][]time.Duration
	const warm = 50
	for i := range scaleClaims + warm {
		for _, k := range []int{i % 2, 1 - i%2} {
			if took := over[k](); i >= warm {
				all[k] = append(all[k], took)
			}
		}
	}
	for name, p := range map[string]float64{"p50": 0.5, "p99": 0.99} {
		small, large := blackbox.Percentile(all[0], p), blackbox.Percentile(all[1], p)
		b.ReportMetric(float64(small.Microseconds())/1000, layer+"-small-"+name+"-ms")
		b.ReportMetric(float64(large.Microseconds())/1000, layer+"-large-"+name+"-ms")
		b.ReportMetric(float64(large)/float64(small), layer+"-"+name+"-ratio")
	}
}

// scaleUpkeep tells what the calls of the upkeep take, the slowest and the middle one of the pages.
func scaleUpkeep(b *testing.B, d *deep) {
	b.Helper()
	timed := func(do func(ctx context.Context) error) time.Duration {
		start := time.Now()
		if err := do(b.Context()); err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	}
	milli := func(t time.Duration) float64 { return float64(t.Microseconds()) / 1000 }
	var pages []time.Duration
	p := storage.SweepParams{Limit: 2000}
	for range 200 {
		pages = append(pages, timed(func(ctx context.Context) error {
			out, err := d.store.Sweep(ctx, p)
			p.After = out.Next
			return err
		}))
	}
	b.ReportMetric(milli(blackbox.Percentile(pages, 0.5)), "sweep-page-p50-ms")
	b.ReportMetric(milli(blackbox.Percentile(pages, 1)), "sweep-page-max-ms")
	b.ReportMetric(milli(timed(func(ctx context.Context) error {
		_, err := d.store.Retain(ctx, storage.RetainParams{Limit: 1000})
		return err
	})), "retain-nothing-ms")
	// Everything that is finished passes its retention for a moment.
	d.exec(b, `UPDATE queuebox.queue SET completed_retention_us = 1`)
	var removals []time.Duration
	removed := 0
	for range 20 {
		removals = append(removals, timed(func(ctx context.Context) error {
			out, err := d.store.Retain(ctx, storage.RetainParams{Limit: 1000})
			removed += out.Deleted
			return err
		}))
	}
	d.exec(b, `UPDATE queuebox.queue SET completed_retention_us = 86400000000`)
	if removed > 0 {
		b.ReportMetric(milli(blackbox.Percentile(removals, 0.5)), "retain-1000-p50-ms")
		b.ReportMetric(milli(blackbox.Percentile(removals, 1)), "retain-1000-max-ms")
	}
	d.exec(b, `CREATE EXTENSION IF NOT EXISTS pg_stat_statements; SELECT pg_stat_statements_reset()`)
	b.ReportMetric(timed(func(ctx context.Context) error {
		_, err := d.store.Count(ctx, storage.CountParams{Queues: []int32{d.queue}})
		return err
	}).Seconds(), "count-s")
	var longest float64
	if err := d.conn.QueryRowContext(b.Context(), `SELECT coalesce(max(max_exec_time), 0) FROM pg_stat_statements
		WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND query LIKE '%live_after%'`).Scan(&longest); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(longest, "count-page-max-ms")
}
