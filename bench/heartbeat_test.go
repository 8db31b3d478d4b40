package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/blackbox"
)

// BenchmarkHeartbeat renews 10,000 leases of a real server on PostgreSQL, each once in ten seconds,
// over Heartbeat streams that take turns evenly. An iteration is ten seconds:
//
//	go test ./bench -run xxx -bench Heartbeat -benchtime 3x
//
// statements/s are those of the renewals, BEGIN and COMMIT counted, idle/s what the server runs by
// itself beside them; HOT-% is the part of the updates that touched no index, and core-% that of a
// core which the server took in all.
func BenchmarkHeartbeat(b *testing.B) {
	const leases, every = 10_000, 10 * time.Second
	for _, streams := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("leases=%d/streams=%d", leases, streams), func(b *testing.B) {
			db := open(b, blackbox.EnginePostgres)
			s := db.Start(b)
			conns := make([]*blackbox.Client, min(streams, 10))
			for i := range conns {
				conns[i] = s.Client(b)
			}
			renewals := holdLeases(b, conns[0], leases)
			count := blackbox.CountStatements(b, db)
			watch := db.Open(b)
			updates := func() (all, hot float64) {
				// A session tells what it did when it is idle, a second later.
				time.Sleep(2 * time.Second)
				row := watch.QueryRowContext(b.Context(), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables
					WHERE schemaname = 'queuebox' AND relname = 'message'`)
				if err := row.Scan(&all, &hot); err != nil {
					b.Fatal(err)
				}
				return all, hot
			}
			all, hot := updates()
			cpu := cpuOf(b, s.Pid())
			var lost int
			var mu sync.Mutex
			total, each := count.During(b, func() {
				b.ResetTimer()
				start := time.Now()
				var wg sync.WaitGroup
				for i := range streams {
					wg.Go(func() {
						n, err := renewAll(b, conns[i%len(conns)], renewals[i*leases/streams:(i+1)*leases/streams], func(round int) bool {
							// Each stream has its own moment.
							time.Sleep(time.Until(start.Add(time.Duration(round)*every + every*time.Duration(i)/time.Duration(streams))))
							return round < b.N
						})
						mu.Lock()
						defer mu.Unlock()
						if lost += n; err != nil {
							b.Error(err)
						}
					})
				}
				wg.Wait()
				b.StopTimer()
			})
			took := b.Elapsed().Seconds()
			cpu = cpuOf(b, s.Pid()) - cpu
			allThen, hotThen := updates()
			renewed := int64(0)
			for query, n := range each {
				if strings.Contains(query, "u.max_us") { // renew.sql
					renewed += n
				}
			}
			if n := allThen - all; n < float64(b.N*leases) || lost > 0 {
				b.Errorf("%.0f updates for %d renewals, %d of them lost", n, b.N*leases, lost)
			}
			b.Logf("%d statements: %v", total, each)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(renewed)/took, "statements/s")
			b.ReportMetric(float64(total-renewed)/took, "idle/s")
			b.ReportMetric(100*(hotThen-hot)/(allThen-all), "HOT-%")
			b.ReportMetric(100*cpu.Seconds()/took, "core-%")
		})
	}
}

// renewAll renews the leases over a stream of its own, whenever next says so, and counts those that
// were refused.
func renewAll(b *testing.B, c *blackbox.Client, renewals []*queueboxv1.RenewItem, next func(round int) bool) (lost int, err error) {
	b.Helper()
	stream, err := c.Heartbeat(b.Context())
	if err != nil {
		return 0, err
	}
	for round := 0; next(round); round++ {
		err := stream.Send(&queueboxv1.HeartbeatRequest{
			Sequence: int64(round + 1), Queue: queueName, WorkerId: "w", Renewals: renewals,
		})
		if err != nil {
			return lost, err
		}
		out, err := stream.Recv()
		if err != nil {
			return lost, err
		}
		for _, r := range out.GetResults() {
			if r.GetError() != nil {
				lost++
			}
		}
	}
	return lost, stream.CloseSend()
}

// holdLeases enqueues messages and claims them.
func holdLeases(b *testing.B, c *blackbox.Client, n int) (held []*queueboxv1.RenewItem) {
	b.Helper()
	g := grpcCycler{c}
	for len(held) < n {
		if err := g.enqueue(b.Context(), 1000); err != nil {
			b.Fatal(err)
		}
		out, err := c.Claim(b.Context(), &queueboxv1.ClaimRequest{Queue: queueName, WorkerId: "w", MaxMessages: 1000, LeaseMs: 600_000})
		if err != nil {
			b.Fatal(err)
		}
		for _, m := range out.GetMessages() {
			held = append(held, &queueboxv1.RenewItem{MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(), LeaseMs: 600_000})
		}
	}
	return held[:n]
}

// cpuOf is the processor time of a process so far, by Linux, whose clock for it ticks every 10 ms.
func cpuOf(b *testing.B, pid int) time.Duration {
	b.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	// The second field is the name of the program, in parentheses.
	_, rest, _ := strings.Cut(string(raw), ") ")
	fields := strings.Fields(rest)
	var ticks int
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
