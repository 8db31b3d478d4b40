package bench

import (
	"database/sql"
	"testing"
	"time"

	"github.com/queuebox/queuebox/internal/blackbox"
	"github.com/queuebox/queuebox/storage"
)

// depth is a queue with a lot in it that no claim may walk over (C12, O8).
type depth struct {
	name string
	fill func(b *testing.B, d *deep)
	// hint starts the scan where the filling ended, as a server does that remembers it.
	hint bool
}

// deep is a store with one queue.
type deep struct {
	db    *blackbox.Database
	conn  *sql.DB
	store storage.Store
	queue int32
	// filled is the time of the database when the filling was done.
	filled time.Time
}

func depths() []depth {
	return []depth{
		{name: "empty", fill: func(*testing.B, *deep) {}},
		{name: "delayed-300k", fill: func(b *testing.B, d *deep) {
			b.Helper()
			d.enqueue(b, 300_000, storage.NewMessage{Delay: time.Hour, Priority: 5})
		}},
		{name: "one-key-200k", fill: func(b *testing.B, d *deep) {
			b.Helper()
			// Its head is leased and everything else stands behind it, at a higher priority than
			// what the claims are for.
			d.enqueue(b, 200_000, storage.NewMessage{OrderingKey: "one", Priority: 5})
			d.lease(b, 1)
		}},
		{name: "settled-1M", fill: settled},
		{name: "leased-100k", fill: leased},
		{name: "leased-100k-hint", fill: leased, hint: true},
	}
}

func leased(b *testing.B, d *deep) {
	b.Helper()
	d.enqueue(b, 100_000, storage.NewMessage{})
	d.lease(b, 100_000)
}

// settled keeps a million completed messages. They are written by SQL, for a million cycles
// would take longer than all the rest.
func settled(b *testing.B, d *deep) {
	b.Helper()
	d.enqueue(b, 1, storage.NewMessage{})
	d.claim(b, nil)
	columns := `queue_id, finish_time, create_time, ready_time, token, priority, attempt, max_attempts, payload_bytes, content_type, payload`
	text := `INSERT INTO queuebox.completed (position, ` + columns + `)
		SELECT -g * 2, ` + columns + ` FROM queuebox.completed, generate_series(1, 1000000) g`
	if d.db.Name == blackbox.EngineSQLite {
		columns += `, worker_id, last_error, reason_code, idempotency_key, ordering_key`
		text = `WITH RECURSIVE g (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM g WHERE n < 1000000)
			INSERT INTO completed (position, ` + columns + `) SELECT -n, ` + columns + ` FROM completed, g`
	}
	d.exec(b, text)
}

func (d *deep) exec(b *testing.B, text string) {
	b.Helper()
	if _, err := d.conn.ExecContext(b.Context(), text); err != nil {
		b.Fatal(err)
	}
}

func (d *deep) enqueue(b *testing.B, n int, m storage.NewMessage) {
	b.Helper()
	m.QueueID, m.Payload, m.WireBytes = d.queue, payload, 300
	for n > 0 {
		p := storage.EnqueueParams{Messages: make([]storage.NewMessage, min(n, 1000))}
		for i := range p.Messages {
			p.Messages[i] = m
		}
		out, err := d.store.Enqueue(b.Context(), p)
		if err != nil {
			b.Fatal(err)
		}
		d.filled = out.Now
		n -= len(p.Messages)
	}
}

// lease leases n messages for hours.
func (d *deep) lease(b *testing.B, n int) {
	b.Helper()
	for n > 0 {
		out, err := d.store.Claim(b.Context(), storage.ClaimParams{QueueID: d.queue, Calls: []storage.ClaimCall{{Max: min(n, 1000), Lease: 10 * time.Hour}}})
		if err != nil {
			b.Fatal(err)
		}
		if len(out.Calls[0].Messages) == 0 {
			b.Fatalf("%d messages are left to lease, and nothing is ready", n)
		}
		n -= len(out.Calls[0].Messages)
	}
}

// claim claims the one ready message and completes it; it returns the time of the claim.
func (d *deep) claim(b *testing.B, hint []storage.ScanHint) time.Duration {
	b.Helper()
	start := time.Now()
	out, err := d.store.Claim(b.Context(), storage.ClaimParams{
		QueueID: d.queue, Calls: []storage.ClaimCall{{Max: 1, Lease: time.Minute}}, ScanFrom: hint,
	})
	took := time.Since(start)
	if err != nil {
		b.Fatal(err)
	}
	if len(out.Calls[0].Messages) != 1 {
		b.Fatal("the ready message was not found")
	}
	if err := (storeBatch{d.store, out.Calls[0].Messages}).complete(b.Context()); err != nil {
		b.Fatal(err)
	}
	return took
}

// BenchmarkClaimDepth claims one ready message from a queue with a lot in front of it, on
// tables that were analysed after the filling. rows/claim and buffers/claim are what the
// claim statement read of the tables of messages, on PostgreSQL.
func BenchmarkClaimDepth(b *testing.B) {
	for _, engine := range []string{blackbox.EngineSQLite, blackbox.EnginePostgres} {
		b.Run("engine="+engine, func(all *testing.B) {
			for _, c := range depths() {
				var d *deep // filled once, whatever b.N
				all.Run("depth="+c.name, func(b *testing.B) {
					if d == nil {
						d = deepen(all, engine) // lives on from one b.N to the next
						c.fill(b, d)
						if engine == blackbox.EnginePostgres {
							d.exec(b, `VACUUM ANALYZE`)
						} else {
							d.exec(b, `ANALYZE`)
						}
					}
					d.measure(b, c.hint)
				})
			}
		})
	}
}

func deepen(b *testing.B, engine string) *deep {
	b.Helper()
	d := &deep{db: open(b, engine)}
	d.store, d.queue = openQueue(b, d.db, 4, 24*time.Hour)
	d.conn = d.db.Open(b)
	return d
}

func (d *deep) measure(b *testing.B, hinted bool) {
	b.Helper()
	var hint []storage.ScanHint
	if hinted {
		hint = []storage.ScanHint{{Priority: 0, ReadyTime: d.filled.Add(d.store.Capabilities().ClockTick)}}
	}
	var all []time.Duration
	var before reads
	const warm = 20
	for i := range b.N + warm {
		if i == warm {
			before = d.reads(b)
			b.ResetTimer()
		}
		b.StopTimer()
		if _, err := d.store.Enqueue(b.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: d.queue, Payload: payload, WireBytes: 300}}}); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		took := d.claim(b, hint)
		if i >= warm {
			all = append(all, took)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(blackbox.Percentile(all, 0.5).Microseconds())/1000, "claim-p50-ms")
	b.ReportMetric(float64(blackbox.Percentile(all, 0.99).Microseconds())/1000, "claim-p99-ms")
	if d.db.Name == blackbox.EnginePostgres {
		after := d.reads(b)
		b.ReportMetric((after.buffers-before.buffers)/float64(b.N), "buffers/claim")
		b.ReportMetric((after.rows-before.rows)/float64(b.N), "rows/claim")
	}
	b.ReportMetric(0, "ns/op") // the completion is in it
}

// reads is what claim statements have read so far.
type reads struct{ buffers, rows float64 }

func (d *deep) reads(b *testing.B) reads {
	b.Helper()
	if d.db.Name != blackbox.EnginePostgres {
		return reads{}
	}
	d.exec(b, `CREATE EXTENSION IF NOT EXISTS pg_stat_statements`)
	// Counters of idle sessions are told within a second.
	time.Sleep(1200 * time.Millisecond)
	var r reads
	err := d.conn.QueryRowContext(b.Context(), `SELECT
		(SELECT coalesce(sum(shared_blks_hit + shared_blks_read), 0) FROM pg_stat_statements
			WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
			  AND query LIKE '%due AS MATERIALIZED%'),
		(SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname = 'queuebox'
			AND indexrelname IN ('message_ready', 'message_delayed'))
		+ (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE schemaname = 'queuebox' AND relname = 'message')`).Scan(&r.buffers, &r.rows)
	if err != nil {
		b.Fatal(err)
	}
	return r
}
