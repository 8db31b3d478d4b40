// Package bench measures the full cycle of a message, enqueue, claim and complete, on
// every engine: straight on the storage, and over gRPC against the real server. See
// docs/benchmarks.md.
package bench

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuebox/queuebox/internal/blackbox"
)

func TestMain(m *testing.M) { os.Exit(blackbox.Main(m)) }

// cycler runs the three steps of a cycle for n messages at once.
type cycler interface {
	enqueue(ctx context.Context, n int) error
	// claim takes up to n messages into a batch of its own.
	claim(ctx context.Context, n int) (claimed batch, err error)
}

// batch is what one claim took.
type batch interface {
	size() int
	complete(ctx context.Context) error
}

// shapes are the batch sizes, each with the number of callers beside each other that a
// worker fleet of that kind has.
var shapes = []struct{ batch, callers int }{
	{1, 1}, {1, 64}, {1, 256}, {10, 16}, {100, 8}, {1000, 4},
}

// BenchmarkCycle runs cycles of one batch each. msg/s is the throughput of whole
// cycles; the percentiles are those of single calls.
func BenchmarkCycle(b *testing.B) {
	for _, engine := range []string{blackbox.EngineSQLite, blackbox.EnginePostgres, blackbox.EngineMySQL, blackbox.EngineMSSQL} {
		b.Run("engine="+engine, func(b *testing.B) {
			for _, layer := range []string{"storage", "grpc", "grpc-alone"} {
				b.Run("layer="+layer, func(b *testing.B) {
					db := open(b, engine)
					connect := overStorage
					switch layer {
					case "grpc":
						connect = overGRPC
					case "grpc-alone": // each call is a transaction of its own
						connect = func(b *testing.B, db *blackbox.Database) func(int) cycler {
							b.Helper()
							return serverOver(b, db, "--no-join-calls")
						}
					}
					target := connect(b, db)
					for _, s := range shapes {
						b.Run(fmt.Sprintf("batch=%d/callers=%d", s.batch, s.callers), func(b *testing.B) {
							run(b, db, target, s.batch, s.callers)
						})
					}
				})
			}
		})
	}
}

func open(b *testing.B, engine string) *blackbox.Database {
	b.Helper()
	return blackbox.EngineNamed(engine).Make(b)
}

// timings are the durations of the calls of one kind.
type timings struct {
	mu  sync.Mutex
	all []time.Duration
}

func (t *timings) time(call func() error) error {
	start := time.Now()
	err := call()
	d := time.Since(start)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, d)
	return err
}

// run does b.N cycles, shared by the callers.
func run(b *testing.B, db *blackbox.Database, connect func(caller int) cycler, size, callers int) {
	b.Helper()
	var (
		enqueue, claim, complete timings
		next                     atomic.Int64
		wg                       sync.WaitGroup
		failed                   sync.Once
	)
	cyclers := make([]cycler, callers)
	for i := range cyclers {
		cyclers[i] = connect(i)
	}
	fail := func(what string, err error) { failed.Do(func() { b.Errorf("%s: %v", what, err) }) }
	work := func(c cycler) {
		ctx := b.Context()
		for next.Add(1) <= int64(b.N) && !b.Failed() {
			if err := enqueue.time(func() error { return c.enqueue(ctx, size) }); err != nil {
				fail("enqueue", err)
				return
			}
			// Callers take each other's messages, so one may come back with fewer than it put in.
			for left := size; left > 0; {
				var got batch
				err := claim.time(func() (err error) {
					got, err = c.claim(ctx, left)
					return err
				})
				if err != nil {
					fail("claim", err)
					return
				}
				if got.size() == 0 {
					continue
				}
				left -= got.size()
				if err := complete.time(func() error { return got.complete(ctx) }); err != nil {
					fail("complete", err)
					return
				}
			}
		}
	}
	cycles := func() {
		b.ResetTimer()
		for _, c := range cyclers {
			wg.Go(func() { work(c) })
		}
		wg.Wait()
		b.StopTimer()
	}
	if db.Name == blackbox.EnginePostgres {
		total, _ := blackbox.CountStatements(b, db).During(b, cycles)
		b.ReportMetric(float64(total)/float64(b.N*size), "stmts/msg")
	} else {
		cycles()
	}
	b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "msg/s")
	for name, t := range map[string]*timings{"enqueue": &enqueue, "claim": &claim, "complete": &complete} {
		for p, q := range map[string]float64{"p50": 0.5, "p99": 0.99} {
			b.ReportMetric(float64(blackbox.Percentile(t.all, q).Microseconds())/1000, name+"-"+p+"-ms")
		}
	}
}
