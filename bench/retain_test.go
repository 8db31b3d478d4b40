package bench

import (
	"sync"
	"testing"
	"time"

	"github.com/queuebox/queuebox/internal/blackbox"
	"github.com/queuebox/queuebox/storage"
)

// BenchmarkRetain lets a million finished messages pass their retention: 500,000 dead ones,
// 250,000 completed ones of an hour that has no partition, and as many of one that has.
// Meanwhile one caller goes on with cycles. lock-ms is the longest statement, and so the
// longest time for which a row was locked (D6: not over 100 ms on a machine that is not
// loaded); cycle-p99 are those of the caller, once before it and once beside it.
func BenchmarkRetain(b *testing.B) {
	for _, engine := range []string{blackbox.EngineSQLite, blackbox.EnginePostgres} {
		b.Run("engine="+engine, func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				retain(b, deepen(b, engine))
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func retain(b *testing.B, d *deep) {
	b.Helper()
	past(b, d)
	cycle := func() time.Duration {
		start := time.Now()
		d.enqueue(b, 1, storage.NewMessage{})
		d.claim(b, nil)
		return time.Since(start)
	}
	var before, beside []time.Duration
	for range 300 {
		before = append(before, cycle())
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				beside = append(beside, cycle())
			}
		}
	})
	if engine := d.db.Name; engine == blackbox.EnginePostgres {
		d.exec(b, `CREATE EXTENSION IF NOT EXISTS pg_stat_statements; SELECT pg_stat_statements_reset()`)
	}
	var calls []time.Duration
	gone, dropped := 0, 0
	b.StartTimer()
	for more := true; more; {
		start := time.Now()
		out, err := d.store.Retain(b.Context(), storage.RetainParams{Limit: 1000})
		calls = append(calls, time.Since(start))
		if err != nil {
			b.Fatal(err)
		}
		gone, dropped, more = gone+out.Deleted, dropped+out.PartitionsDropped, out.More
	}
	b.StopTimer()
	close(stop)
	wg.Wait()
	if gone+dropped*250_000 < 1_000_000 {
		b.Fatalf("%d rows and %d partitions went", gone, dropped)
	}
	milli := func(t time.Duration) float64 { return float64(t.Microseconds()) / 1000 }
	longest := milli(blackbox.Percentile(calls, 1)) // one call is one transaction on SQLite
	if d.db.Name == blackbox.EnginePostgres {
		if err := d.conn.QueryRowContext(b.Context(), `SELECT max(max_exec_time) FROM pg_stat_statements
			WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
			  AND (query LIKE '%pg_try_advisory_xact_lock%' OR query LIKE 'DROP TABLE%')`).Scan(&longest); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(longest, "lock-ms")
	b.ReportMetric(float64(gone)/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(float64(dropped), "partitions")
	b.ReportMetric(milli(blackbox.Percentile(before, 0.99)), "cycle-p99-before-ms")
	b.ReportMetric(milli(blackbox.Percentile(beside, 0.99)), "cycle-p99-beside-ms")
}

// past writes the messages, all of them finished long ago.
func past(b *testing.B, d *deep) {
	b.Helper()
	q, err := d.store.GetQueue(b.Context(), queueName)
	if err != nil {
		b.Fatal(err)
	}
	set := q.QueueSettings
	set.CompletedRetention, set.DeadRetention = time.Hour, time.Hour
	if _, err := d.store.UpdateQueue(b.Context(), queueName, set, 0); err != nil {
		b.Fatal(err)
	}
	d.enqueue(b, 1, storage.NewMessage{})
	d.claim(b, nil)
	completed := `queue_id, create_time, ready_time, token, priority, attempt, max_attempts, payload_bytes, content_type, payload`
	dead := `queue_id, create_time, ready_time, token, priority, attempt, max_attempts, payload_bytes, content_type, payload`
	if d.db.Name == blackbox.EngineSQLite {
		text := `, worker_id, last_error, reason_code, idempotency_key, ordering_key`
		from := ` FROM (SELECT * FROM completed LIMIT 1), (WITH RECURSIVE g (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM g WHERE n < 500000) SELECT n FROM g)`
		d.exec(b, `INSERT INTO dead (position, finish_time, state, action, dead_reason, wire_bytes, `+dead+text+`)
			SELECT -n, finish_time - 86400000, 4, 3, 1, 300, `+dead+text+from)
		d.exec(b, `INSERT INTO completed (position, finish_time, `+completed+text+`)
			SELECT -n - 500000, finish_time - 86400000, `+completed+text+from)
		return
	}
	d.exec(b, `INSERT INTO queuebox.dead (position, finish_time, state, action, dead_reason, wire_bytes, `+dead+`)
		SELECT -2 * g, finish_time - interval '1 day', 4, 3, 1, 300, `+dead+` FROM (SELECT * FROM queuebox.completed LIMIT 1) c, generate_series(1, 500000) g`)
	d.exec(b, `INSERT INTO queuebox.completed (position, finish_time, `+completed+`)
		SELECT -2 * g, finish_time - interval '1 day', `+completed+` FROM (SELECT * FROM queuebox.completed LIMIT 1) c, generate_series(500001, 750000) g`)
	d.exec(b, `DO $$ DECLARE h timestamptz := date_trunc('hour', now() - interval '30 hours'); BEGIN
		EXECUTE format('CREATE TABLE queuebox.%I PARTITION OF queuebox.completed FOR VALUES FROM (%L) TO (%L)',
			'completed_' || to_char(h AT TIME ZONE 'UTC', 'YYYYMMDDHH24'), h, h + interval '1 hour'); END $$`)
	d.exec(b, `INSERT INTO queuebox.completed (position, finish_time, `+completed+`)
		SELECT -2 * g, date_trunc('hour', now() - interval '30 hours') + interval '5 minutes', `+completed+`
		FROM (SELECT * FROM queuebox.completed WHERE position > 0 LIMIT 1) c, generate_series(750001, 1000000) g`)
	d.exec(b, `VACUUM ANALYZE`)
}
