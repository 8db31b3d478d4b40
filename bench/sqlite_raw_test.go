package bench

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuebox/queuebox/internal/blackbox"
)

// The raw program is the least that a queue on SQLite can be: one goroutine, one connection of
// the same driver, write-ahead log, synchronous FULL, and one transaction that enqueues K
// messages, claims K and completes K. It checks no ordering key, no idempotency key, no limit and
// no expiry, remembers no worker, keeps no history but, where it says so, the completed row, and
// answers nobody.
const rawSchema = `
CREATE TABLE job (
    id        INTEGER PRIMARY KEY,
    queue     INTEGER NOT NULL,
    priority  INTEGER NOT NULL,
    ready     INTEGER NOT NULL,
    state     INTEGER NOT NULL,
    token     BLOB,
    lease_end INTEGER,
    attempt   INTEGER NOT NULL,
    payload   BLOB NOT NULL
);
CREATE INDEX job_ready ON job (queue, priority, ready) WHERE state = 0;
CREATE TABLE done (
    id       INTEGER PRIMARY KEY,
    queue    INTEGER NOT NULL,
    finished INTEGER NOT NULL,
    token    BLOB NOT NULL,
    attempt  INTEGER NOT NULL,
    payload  BLOB NOT NULL
);`

// raw is the raw program, with a backlog of its own.
type raw struct {
	db                                           *sql.DB
	begin, insert, claim, keep, remove, commitTx *sql.Stmt
	kept                                         bool
}

func openRaw(b *testing.B, kept bool) *raw {
	b.Helper()
	pragmas := []string{"journal_mode(WAL)", "synchronous(FULL)", "temp_store(MEMORY)", "cache_size(-32768)", "wal_autocheckpoint(4000)"}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(), "raw.db")+"?_pragma="+strings.Join(pragmas, "&_pragma="))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(b.Context(), rawSchema); err != nil {
		b.Fatal(err)
	}
	r := &raw{db: db, kept: kept}
	for _, st := range []struct {
		to   **sql.Stmt
		text string
	}{
		{&r.begin, "BEGIN IMMEDIATE"},
		{&r.insert, "INSERT INTO job (queue, priority, ready, state, attempt, payload) VALUES (1, 0, ?1, 0, 0, ?2)"},
		{&r.claim, `UPDATE job SET state = 1, token = ?1, lease_end = ?2, attempt = attempt + 1
			WHERE id IN (SELECT id FROM job WHERE queue = 1 AND state = 0 AND ready <= ?3 ORDER BY priority, ready, id LIMIT ?4)
			RETURNING id, attempt, payload`},
		{&r.keep, `INSERT INTO done (id, queue, finished, token, attempt, payload)
			SELECT j.id, j.queue, ?3, j.token, j.attempt, j.payload FROM json_each(?1) AS v CROSS JOIN job AS j
			WHERE j.id = v.value AND j.token = ?2 AND j.lease_end > ?3`},
		{&r.remove, "DELETE FROM job WHERE id IN (SELECT value FROM json_each(?1)) AND token = ?2 AND lease_end > ?3"},
		{&r.commitTx, "COMMIT"},
	} {
		if *st.to, err = db.PrepareContext(b.Context(), st.text); err != nil { //nolint:sqlclosecheck // lives as long as db
			b.Fatal(err)
		}
	}
	return r
}

// cycle is one transaction for k messages; the backlog is filled by one that claims nothing.
func (r *raw) cycle(enqueue, claim int) error {
	ctx := context.Background()
	if _, err := r.begin.ExecContext(ctx); err != nil {
		return err
	}
	now := time.Now().UnixMilli()
	for range enqueue {
		if _, err := r.insert.ExecContext(ctx, now, payload); err != nil {
			return err
		}
	}
	if claim > 0 {
		if err := r.claimAndComplete(ctx, now, claim); err != nil {
			return err
		}
	}
	_, err := r.commitTx.ExecContext(ctx)
	return err
}

func (r *raw) claimAndComplete(ctx context.Context, now int64, n int) error {
	token := make([]byte, 16)
	_, _ = rand.Read(token)
	rows, err := r.claim.QueryContext(ctx, token, now+30_000, now, n)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	ids := make([]int64, 0, n)
	for rows.Next() {
		var id int64
		var attempt int
		var body []byte
		if err := rows.Scan(&id, &attempt, &body); err != nil {
			return err
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if len(ids) != n {
		return fmt.Errorf("claimed %d of %d", len(ids), n)
	}
	list, _ := json.Marshal(ids)
	if r.kept {
		if _, err := r.keep.ExecContext(ctx, string(list), token, now); err != nil {
			return err
		}
	}
	res, err := r.remove.ExecContext(ctx, string(list), token, now)
	if err != nil {
		return err
	}
	if gone, err := res.RowsAffected(); err != nil || gone != int64(n) {
		return fmt.Errorf("completed %d of %d: %w", gone, n, err)
	}
	return nil
}

// contender runs cycles of k messages until the time is up, and tells how many messages.
type contender struct {
	name string
	run  func(b *testing.B, k, callers int, until time.Time) int
	// server tells how much processor time the process of the server has taken; nil where there
	// is none.
	server func() time.Duration
}

func rawContender(b *testing.B, name string, kept bool) contender {
	b.Helper()
	r := openRaw(b, kept)
	for range backlog / 1000 {
		if err := r.cycle(1000, 0); err != nil {
			b.Fatal(err)
		}
	}
	return contender{name: name, run: func(b *testing.B, k, _ int, until time.Time) (n int) {
		b.Helper()
		for ; time.Now().Before(until); n += k {
			if err := r.cycle(k, k); err != nil {
				b.Fatal(err)
			}
		}
		return n
	}}
}

const backlog = 10_000

func storageContender(b *testing.B) contender {
	b.Helper()
	return boxContender(b, "storage", overStorage(b, open(b, blackbox.EngineSQLite)))
}

func grpcContender(b *testing.B) contender {
	b.Helper()
	s := open(b, blackbox.EngineSQLite).Start(b)
	c := boxContender(b, "grpc", callersOf(b, s))
	c.server = func() time.Duration {
		seconds, _ := s.Metric(b, "process_cpu_seconds_total")
		return time.Duration(seconds * float64(time.Second))
	}
	return c
}

func boxContender(b *testing.B, name string, target func(int) cycler) contender {
	b.Helper()
	for range backlog / 1000 {
		if err := target(0).enqueue(b.Context(), 1000); err != nil {
			b.Fatal(err)
		}
	}
	return contender{name: name, run: func(b *testing.B, k, callers int, until time.Time) int {
		b.Helper()
		var n atomic.Int64
		var wg sync.WaitGroup
		for i := range callers {
			c := target(i)
			wg.Go(func() {
				for time.Now().Before(until) {
					done, err := cycleOnce(b.Context(), c, k)
					if err != nil {
						b.Error(err)
						return
					}
					n.Add(int64(done))
				}
			})
		}
		wg.Wait()
		return int(n.Load())
	}}
}

func cycleOnce(ctx context.Context, c cycler, k int) (int, error) {
	if err := c.enqueue(ctx, k); err != nil {
		return 0, err
	}
	got, err := c.claim(ctx, k)
	if err != nil {
		return 0, err
	}
	return got.size(), got.complete(ctx)
}

// BenchmarkSQLiteRaw compares the storage and the server on SQLite with the raw program: in
// windows that take turns, so that whatever else the machine does meets all of them. The ratios
// are the median of the rounds; one operation is one round. The processor time of this process
// and of the server, which other work hardly touches, is that of all rounds.
func BenchmarkSQLiteRaw(b *testing.B) {
	for _, s := range []struct{ batch, callers int }{{1, 1}, {1, 64}, {10, 16}, {100, 8}, {1000, 4}} {
		b.Run(fmt.Sprintf("batch=%d/callers=%d", s.batch, s.callers), func(b *testing.B) {
			all := []contender{
				rawContender(b, "raw-keep", true), rawContender(b, "raw-delete", false),
				storageContender(b), grpcContender(b),
			}
			rates := make(map[string][]float64)
			done := make(map[string]int)
			process, server := make(map[string]time.Duration), make(map[string]time.Duration)
			b.ResetTimer()
			for range b.N {
				for _, c := range all {
					if c.server != nil {
						server[c.name] -= c.server()
					}
					process[c.name] -= processTime()
					began := time.Now()
					n := c.run(b, s.batch, s.callers, began.Add(500*time.Millisecond))
					process[c.name] += processTime()
					done[c.name] += n
					if c.server != nil {
						server[c.name] += c.server()
					}
					rates[c.name] = append(rates[c.name], float64(n)/time.Since(began).Seconds())
				}
			}
			b.ReportMetric(0, "ns/op")
			for name, r := range rates {
				b.ReportMetric(median(r), name+"-msg/s")
				b.ReportMetric(process[name].Seconds()*1e6/float64(done[name]), name+"-cpu-us/msg")
				if used, ok := server[name]; ok {
					b.ReportMetric(used.Seconds()*1e6/float64(done[name]), name+"-server-cpu-us/msg")
				}
				for _, base := range []string{"raw-keep", "raw-delete"} {
					if !strings.HasPrefix(name, "raw") {
						b.ReportMetric(median(ratios(r, rates[base])), name+"/"+base)
					}
				}
			}
		})
	}
}

func ratios(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] / b[i]
	}
	return out
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}
