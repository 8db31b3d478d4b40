package bench

import (
	"database/sql"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/queuebox/queuebox/internal/blackbox"
	"github.com/queuebox/queuebox/storage"
)

// BenchmarkPrice says what a message costs PostgreSQL and the program that calls it, in figures
// that other work on the machine hardly touches: processor time of the sessions, WAL, buffers,
// statements and the share of HOT updates. One caller goes around with batches of one size,
// on a standing backlog that is served in turn, as a queue does. b.N counts batches.
func BenchmarkPrice(b *testing.B) {
	for _, keys := range []int{0, 10_000, 8} {
		for _, size := range []int{1, 25, 100, 1000} {
			if keys == 8 && size > 25 {
				continue // no claim ever gets more than the heads of eight keys
			}
			b.Run(fmt.Sprintf("keys=%d/batch=%d", keys, size), func(b *testing.B) {
				p := newPrice(b, keys, size)
				p.measure(b)
			})
		}
	}
}

const priceBacklog = 20_000

type price struct {
	db    *blackbox.Database
	conn  *sql.DB
	store storage.Store
	queue int32
	keys  int
	size  int
	next  int // the key of the next message
	// from is what a server would give a claim: where its last one ended. Messages with keys come
	// back before it, so they are claimed without.
	from []storage.ScanHint
	pids []int
	// spent by each step: processor time of the sessions and of this process.
	sessions, process map[string]time.Duration
}

func newPrice(b *testing.B, keys, size int) *price {
	b.Helper()
	p := &price{db: open(b, blackbox.EnginePostgres), keys: keys, size: size}
	p.store, p.queue = openQueue(b, p.db, 2, time.Hour)
	p.conn = p.db.Open(b)
	for left := priceBacklog; left > 0; left -= 1000 {
		p.enqueue(b, 1000)
	}
	for range 5 {
		p.cycle(b) // prepares all statements
	}
	p.exec(b, `VACUUM ANALYZE queuebox.message`)
	p.exec(b, `VACUUM ANALYZE queuebox.ordering_key`)
	p.exec(b, `CREATE EXTENSION IF NOT EXISTS pg_stat_statements`)
	for _, row := range blackbox.Rows(b, p.conn, `SELECT pid::text FROM pg_stat_activity
		WHERE datname = current_database() AND backend_type = 'client backend' AND application_name <> 'blackbox'`) {
		pid, err := strconv.Atoi(row)
		if err != nil {
			b.Fatal(err)
		}
		p.pids = append(p.pids, pid)
	}
	return p
}

func (p *price) exec(b *testing.B, text string) {
	b.Helper()
	if _, err := p.conn.ExecContext(b.Context(), text); err != nil {
		b.Fatal(err)
	}
}

func (p *price) enqueue(b *testing.B, n int) {
	b.Helper()
	out := storage.EnqueueParams{Messages: make([]storage.NewMessage, n)}
	for i := range out.Messages {
		out.Messages[i] = storage.NewMessage{QueueID: p.queue, Payload: payload, WireBytes: 300}
		if p.keys > 0 {
			out.Messages[i].OrderingKey = "key-" + strconv.Itoa(p.next%p.keys)
			p.next++
		}
	}
	if _, err := p.store.Enqueue(b.Context(), out); err != nil {
		b.Fatal(err)
	}
}

// cycle sends one batch once around, and returns how many messages were claimed.
func (p *price) cycle(b *testing.B) int {
	b.Helper()
	p.spend("enqueue", func() { p.enqueue(b, p.size) })
	done := 0
	for done < p.size {
		var held []storage.Claimed
		p.spend("claim", func() {
			out, err := p.store.Claim(b.Context(), storage.ClaimParams{
				QueueID: p.queue, Calls: []storage.ClaimCall{{Max: p.size - done, Lease: 30 * time.Second}}, MaxWireBytes: 7 << 19,
				ScanFrom: p.from,
			})
			if err != nil {
				b.Fatal(err)
			}
			held = out.Calls[0].Messages
		})
		if len(held) == 0 {
			b.Fatal("nothing is ready")
		}
		if last := held[len(held)-1].Message; p.keys == 0 {
			p.from = []storage.ScanHint{{Priority: last.Priority, ReadyTime: last.ReadyTime, Position: last.Ref.Position}}
		}
		p.spend("complete", func() {
			if err := (storeBatch{p.store, held}).complete(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
		done += len(held)
	}
	return done
}

func (p *price) spend(step string, do func()) {
	if p.pids == nil {
		do()
		return
	}
	before, own := p.sessionTime(), processTime()
	do()
	p.sessions[step] += p.sessionTime() - before
	p.process[step] += processTime() - own
}

// sessionTime is the processor time of the sessions of the store so far, to the nanosecond.
func (p *price) sessionTime() time.Duration {
	var sum time.Duration
	for _, pid := range p.pids {
		raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/schedstat")
		if err != nil {
			continue
		}
		n, _ := strconv.ParseInt(strings.Fields(string(raw))[0], 10, 64)
		sum += time.Duration(n)
	}
	return sum
}

// processTime is the processor time that this process has taken so far.
func processTime() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func (p *price) number(b *testing.B, query string) float64 {
	b.Helper()
	var n float64
	if err := p.conn.QueryRowContext(b.Context(), query).Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

const (
	walNow = `SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn`
	ours   = `FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND query NOT ILIKE '%pg_stat%'`
)

func (p *price) measure(b *testing.B) {
	b.Helper()
	p.sessions, p.process = map[string]time.Duration{}, map[string]time.Duration{}
	p.exec(b, `SELECT pg_stat_statements_reset()`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	wal := p.number(b, walNow)
	done := 0
	b.ResetTimer()
	for range b.N {
		done += p.cycle(b)
	}
	b.StopTimer()
	each := float64(done)
	runtime.ReadMemStats(&after)
	b.ReportMetric((p.number(b, walNow)-wal)/each, "WAL-B/msg")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/each, "allocs/msg")
	var db, own time.Duration
	for _, step := range []string{"enqueue", "claim", "complete"} {
		b.ReportMetric(float64(p.sessions[step].Nanoseconds())/1000/each, step+"-db-us/msg")
		db, own = db+p.sessions[step], own+p.process[step]
	}
	b.ReportMetric(float64(db.Nanoseconds())/1000/each, "db-us/msg")
	b.ReportMetric(float64(own.Nanoseconds())/1000/each, "go-us/msg")
	b.ReportMetric(p.number(b, `SELECT sum(calls) `+ours)/each, "stmts/msg")
	b.ReportMetric(p.number(b, `SELECT sum(shared_blks_hit + shared_blks_read) `+ours)/each, "buffers/msg")
	time.Sleep(1200 * time.Millisecond) // sessions that rest tell their counters within a second
	b.ReportMetric(100*p.number(b, `SELECT n_tup_hot_upd::float8 / greatest(n_tup_upd, 1) FROM pg_stat_user_tables
		WHERE schemaname = 'queuebox' AND relname = 'message'`), "HOT-%")
	b.ReportMetric(0, "ns/op")
	if testing.Verbose() {
		p.statements(b, each)
	}
}

// statements lists what each statement cost a message.
func (p *price) statements(b *testing.B, each float64) {
	b.Helper()
	all := blackbox.Rows(b, p.conn, `SELECT format('%s us %s WAL %s buffers %s calls  %s', round((total_exec_time * 1000)::numeric / `+fmt.Sprint(each)+`, 2),
		round(wal_bytes / `+fmt.Sprint(each)+`, 1), round((shared_blks_hit + shared_blks_read)::numeric / `+fmt.Sprint(each)+`, 2),
		calls, left(regexp_replace(query, '\s+', ' ', 'g'), 110)) `+ours+` AND calls > 2 ORDER BY total_exec_time DESC LIMIT 12`)
	b.Log(strings.Join(slices.Clip(all), "\n"))
}
