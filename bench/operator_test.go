package bench

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/queuebox/queuebox/internal/blackbox"
	"github.com/queuebox/queuebox/storage"
)

// million is how many dead messages the queue of BenchmarkOperator has.
const million = 1_000_000

// BenchmarkOperator runs the commands of an operator against a queue of a million dead
// messages: the built program, over gRPC. client-MB is the most memory that the command
// had, server-MB that of the server behind it after the command.
func BenchmarkOperator(b *testing.B) {
	for _, engine := range []string{blackbox.EngineSQLite, blackbox.EnginePostgres} {
		b.Run("engine="+engine, func(all *testing.B) {
			var server *blackbox.Server // filled once, whatever b.N
			for _, c := range []struct {
				name  string
				args  []string
				lines int    // of the answer
				holds string // text that stands in the answer
			}{
				{"list", []string{"messages", "list", queueName, "--state=dead", "--all", "-o", "json"}, million, `"connection refused"`},
				{"list-filtered", []string{"messages", "list", queueName, "--all", "-o", "json", "--error-contains=refused"}, million, `"connection refused"`},
				{"stats", []string{"queues", "stats", queueName, "-o", "json"}, 1, `"deadCount":"1000000"`},
				{"redrive-dry-run", []string{"redrive", queueName, "--error-contains=refused", "--dry-run"}, 1, "1,000,000 messages"},
				{"purge-dry-run", []string{"purge", queueName, "--state=dead", "--dry-run"}, 1, "1,000,000 messages"},
				{"redrive-100k", []string{"redrive", queueName, "--error-contains=refused", "--max=100000"}, 1, "100,000 messages"},
				{"purge-100k", []string{"purge", queueName, "--state=pending", "--max=100000", "--yes"}, 1, "100,000 messages"},
			} {
				all.Run("command="+c.name, func(b *testing.B) {
					if server == nil {
						d := deepen(all, engine)
						die(all, d)
						server = d.db.Start(all)
					}
					command := operate(b, server, c.args)
					if command.lines != c.lines || !bytes.Contains(command.tail, []byte(c.holds)) {
						b.Fatalf("%d lines, at the end %q", command.lines, command.tail)
					}
					b.ReportMetric(command.took.Seconds(), "s")
					b.ReportMetric(float64(command.memory)/1e6, "client-MB")
					if rss, ok := server.Metric(b, "process_resident_memory_bytes"); ok {
						b.ReportMetric(rss/1e6, "server-MB")
					}
					b.ReportMetric(0, "ns/op")
				})
			}
		})
	}
}

// die writes a million dead messages by SQL.
func die(b *testing.B, d *deep) {
	b.Helper()
	d.enqueue(b, 1, storage.NewMessage{})
	d.claim(b, nil)
	columns := `queue_id, create_time, ready_time, token, priority, attempt, max_attempts, payload_bytes, content_type, payload`
	if d.db.Name == blackbox.EngineSQLite {
		columns += `, worker_id, reason_code, idempotency_key, ordering_key`
		d.exec(b, `INSERT INTO dead (position, finish_time, state, action, dead_reason, wire_bytes, last_error, `+columns+`)
			SELECT 10 + 2 * n, finish_time, 4, 3, 1, 300, 'connection refused', `+columns+` FROM (SELECT * FROM completed LIMIT 1),
			(WITH RECURSIVE g (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM g WHERE n < 1000000) SELECT n FROM g)`)
		return
	}
	d.exec(b, `INSERT INTO queuebox.dead (position, finish_time, state, action, dead_reason, wire_bytes, last_error, `+columns+`)
		SELECT 10 + 2 * g, finish_time, 4, 3, 1, 300, 'connection refused', `+columns+`
		FROM (SELECT * FROM queuebox.completed LIMIT 1) c, generate_series(1, 1000000) g`)
	d.exec(b, `VACUUM ANALYZE`)
}

// operated is a command that ended. It counts what was printed and keeps the last of it.
type operated struct {
	lines  int
	tail   []byte
	took   time.Duration
	memory int64 // the most it had, in bytes; 0 where the system does not tell
}

// Write takes what the command prints.
func (o *operated) Write(p []byte) (int, error) {
	o.lines += bytes.Count(p, []byte{'\n'})
	o.tail = append(o.tail, p...)
	if over := len(o.tail) - 2000; over > 0 {
		o.tail = o.tail[:copy(o.tail, o.tail[over:])]
	}
	return len(p), nil
}

func operate(b *testing.B, server *blackbox.Server, args []string) *operated {
	b.Helper()
	o, stderr := &operated{}, &operated{}
	cmd := exec.CommandContext(b.Context(), blackbox.Binary(b), args...)
	cmd.Env = append(cmd.Environ(), "QUEUEBOX_SERVER="+server.Addr)
	cmd.Stdout, cmd.Stderr = o, stderr
	start := time.Now()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			o.took = time.Since(start)
			if err != nil {
				b.Fatalf("%v: %v\n%s", args, err, stderr.tail)
			}
			return o
		case <-time.After(20 * time.Millisecond):
			o.memory = max(o.memory, peak(cmd.Process.Pid))
		}
	}
}

// peak is the most memory that a process had so far, where Linux tells it. The usage that
// waiting for a process returns also has that of the process which started it.
func peak(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, _ := strconv.ParseInt(strings.Fields(rest + " 0")[0], 10, 64)
	return kib * 1024
}
