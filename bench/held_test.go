package bench

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/blackbox"
)

// heldFor says how long BenchmarkHeldSnapshot runs; without it the benchmark is left out, for it
// is only worth something over minutes.
const heldFor = "QUEUEBOX_BENCH_HELD"

// BenchmarkHeldSnapshot sends 3,000 messages a second, four of ten with one of 400 ordering keys
// (every third of each ten, of a thousand keys), through the real server while another session holds a snapshot open (snapshot=held), and
// without one (snapshot=none), which shows whether a claim grows slower by itself. It tells by
// the minute how many were done, how long a claim took, and at the end what each statement read.
func BenchmarkHeldSnapshot(b *testing.B) {
	length, err := time.ParseDuration(os.Getenv(heldFor))
	if err != nil {
		b.Skipf("SKIPPED: %s does not say for how long", heldFor)
	}
	for _, held := range []bool{false, true} {
		name := map[bool]string{false: "none", true: "held"}[held]
		b.Run("snapshot="+name, func(b *testing.B) {
			heldSnapshot(b, held, length)
		})
	}
}

const (
	heldRate  = 3000
	heldBatch = 10
	heldKeys  = 1000
)

func heldSnapshot(b *testing.B, held bool, length time.Duration) {
	b.Helper()
	db := open(b, blackbox.EnginePostgres)
	s := db.Start(b)
	enqueuer, worker := s.Client(b), s.Client(b)
	watch := db.Open(b)
	exec := func(text string) {
		if _, err := watch.ExecContext(b.Context(), text); err != nil {
			b.Fatal(err)
		}
	}
	exec(`CREATE EXTENSION IF NOT EXISTS pg_stat_statements`)
	if held {
		conn, err := db.Open(b).Conn(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		for _, text := range []string{`BEGIN ISOLATION LEVEL REPEATABLE READ`, `SELECT count(*) FROM pg_class`} {
			if _, err := conn.ExecContext(b.Context(), text); err != nil {
				b.Fatal(err)
			}
		}
		defer func() { _, _ = conn.ExecContext(context.WithoutCancel(b.Context()), `ROLLBACK`) }()
	}
	slice := min(time.Minute, max(length/4, time.Second))
	ctx, cancel := context.WithTimeout(b.Context(), length)
	defer cancel()
	var (
		wg     sync.WaitGroup
		sent   atomic.Int64
		done   = make([]atomic.Int64, int(length/slice)+2)
		claims = make([]timings, len(done))
		failed sync.Once
		start  = time.Now()
	)
	at := func() int { return min(int(time.Since(start)/slice), len(done)-1) }
	fail := func(what string, err error) {
		// The last calls are cut off by the end of the time, which the server may notice first.
		if code := status.Code(err); ctx.Err() == nil && code != codes.DeadlineExceeded && code != codes.Canceled {
			failed.Do(func() { b.Errorf("%s: %v", what, err) })
		}
	}
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil && !b.Failed() {
				// As many as are due by the clock: who was late makes up for it.
				n := sent.Add(heldBatch)
				due := start.Add(time.Duration(n) * time.Second / heldRate)
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Until(due)):
				}
				req := &queueboxv1.BatchEnqueueRequest{Requests: make([]*queueboxv1.EnqueueRequest, heldBatch)}
				for i := range req.GetRequests() {
					req.Requests[i] = &queueboxv1.EnqueueRequest{Queue: queueName, Payload: payload}
					if i%3 == 0 {
						req.Requests[i].OrderingKey = fmt.Sprintf("key-%d", (n+int64(i))%heldKeys)
					}
				}
				if _, err := enqueuer.BatchEnqueue(ctx, req); err != nil {
					fail("enqueue", err)
				}
			}
		})
	}
	for range 8 {
		wg.Go(func() {
			g := grpcCycler{worker}
			for ctx.Err() == nil && !b.Failed() {
				called := time.Now()
				got, err := g.claim(ctx, heldBatch)
				if err != nil {
					fail("claim", err)
					continue
				}
				if got.size() == 0 {
					continue
				}
				k := at()
				claims[k].mu.Lock()
				claims[k].all = append(claims[k].all, time.Since(called))
				claims[k].mu.Unlock()
				if err := got.complete(ctx); err != nil {
					fail("complete", err)
					continue
				}
				done[k].Add(int64(got.size()))
			}
		})
	}
	var lines []string
	exec(`SELECT pg_stat_statements_reset()`)
	for k := 0; ctx.Err() == nil; k++ {
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(start.Add(time.Duration(k+1) * slice))):
		}
		// What a statement of each kind took and read in this part alone.
		part := blackbox.Rows(b, watch, `SELECT format('%s calls, %s ms, %s buffers: %s', calls, round(mean_exec_time::numeric, 2),
			(shared_blks_hit + shared_blks_read) / calls, left(regexp_replace(query, '\s+', ' ', 'g'), 70))
			FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
			AND query NOT ILIKE '%pg_stat%' AND calls > 0 ORDER BY total_exec_time DESC LIMIT 12`)
		exec(`SELECT pg_stat_statements_reset()`)
		claims[k].mu.Lock()
		lines = append(lines, fmt.Sprintf("%v: %.0f messages/s, claim p50 %v, p99 %v", time.Duration(k)*slice,
			float64(done[k].Load())/slice.Seconds(), blackbox.Percentile(claims[k].all, 0.5), blackbox.Percentile(claims[k].all, 0.99)))
		claims[k].mu.Unlock()
		for _, p := range part {
			lines = append(lines, "    "+p)
		}
	}
	wg.Wait()
	first, last := &claims[0], &claims[max(0, int(length/slice)-1)]
	b.ReportMetric(float64(blackbox.Percentile(last.all, 0.5))/float64(max(1, blackbox.Percentile(first.all, 0.5))), "claim-p50-last/first")
	b.ReportMetric(float64(blackbox.Percentile(last.all, 0.99))/float64(max(1, blackbox.Percentile(first.all, 0.99))), "claim-p99-last/first")
	var all int64
	for k := range done {
		all += done[k].Load()
	}
	b.ReportMetric(float64(all)/length.Seconds(), "msg/s")
	b.ReportMetric(0, "ns/op")
	b.Log("\n" + strings.Join(lines, "\n"))
}
