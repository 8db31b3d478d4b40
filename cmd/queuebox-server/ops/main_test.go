package ops

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/config"
	"github.com/queuebox/queuebox/internal/leaktest"
	"github.com/queuebox/queuebox/internal/testserver"
	"github.com/queuebox/queuebox/server"
	"github.com/queuebox/queuebox/storage/sqlite"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// bench is an address to run commands against, with stubs to look behind them.
type bench struct {
	queueboxv1.WorkerServiceClient
	queueboxv1.ProducerServiceClient

	t     *testing.T
	addr  string
	admin queueboxv1.AdminServiceClient
	// env is what a command runs in: no terminal, and nothing on standard input.
	env Env
}

// serve starts a server on a SQLite file of its own.
func serve(t *testing.T) *bench {
	t.Helper()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "queuebox.db")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	cfg := server.DefaultConfig()
	cfg.Store = store
	cfg.Registry = prometheus.NewRegistry()
	cfg.DrainTimeout = 10 * time.Millisecond
	cfg.Logger = slog.New(slog.DiscardHandler)
	addr, _ := testserver.Serve(t, cfg, testserver.Anywhere)
	return at(t, addr)
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return lis
}

// at is a bench for whoever serves at an address.
func at(t *testing.T, addr string) *bench {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return &bench{
		WorkerServiceClient: queueboxv1.NewWorkerServiceClient(conn), ProducerServiceClient: queueboxv1.NewProducerServiceClient(conn),
		t: t, addr: addr, admin: queueboxv1.NewAdminServiceClient(conn), env: Env{Stdin: strings.NewReader(""), Piped: true, Pause: time.Millisecond},
	}
}

// outcome is what a command left behind.
type outcome struct {
	stdout, stderr string
	err            error
}

// run runs a command line as the program does.
func (b *bench) run(args ...string) outcome {
	b.t.Helper()
	var stdout, stderr bytes.Buffer
	env := b.env
	env.Stdout, env.Stderr = &stdout, &stderr
	if env.Begin == nil {
		env.Begin = func() (context.Context, context.CancelFunc) { return context.WithCancel(b.t.Context()) }
	}
	ctx, err := parser(b.t, &env, []string{"QUEUEBOX_SERVER=" + b.addr}).Parse(args)
	if err != nil {
		return outcome{err: UsageError{err}}
	}
	err = ctx.Run()
	return outcome{stdout.String(), stderr.String(), err}
}

func parser(t *testing.T, env *Env, environ []string) *kong.Kong {
	t.Helper()
	p, err := kong.New(&Commands{}, kong.Bind(env), kong.Resolvers(config.NewLoader(environ)),
		kong.Exit(func(int) { t.Error("the parser exits") }))
	require.NoError(t, err)
	return p
}

// ok runs a command that must succeed and returns what it printed.
func (b *bench) ok(args ...string) string {
	b.t.Helper()
	got := b.run(args...)
	require.NoError(b.t, got.err, "%v\n%s", args, got.stderr)
	return got.stdout
}

// objects runs a command with -o json and returns its lines, each of which must be an object.
func (b *bench) objects(args ...string) []map[string]any {
	b.t.Helper()
	return objects(b.t, b.ok(append(args, "-o", "json")...))
}

func objects(t *testing.T, text string) []map[string]any {
	t.Helper()
	var out []map[string]any
	for line := range strings.Lines(text) {
		var object map[string]any
		decoder := json.NewDecoder(strings.NewReader(line))
		require.NoError(t, decoder.Decode(&object), line)
		_, err := decoder.Token()
		require.ErrorIs(t, err, io.EOF, line)
		out = append(out, object)
	}
	return out
}

// object is objects for a command that prints one.
func (b *bench) object(args ...string) map[string]any {
	b.t.Helper()
	all := b.objects(args...)
	require.Len(b.t, all, 1)
	return all[0]
}

// counted waits until the server has counted its queues anew, which it does beside, every
// few seconds.
func (b *bench) counted() {
	b.t.Helper()
	stats := func() *queueboxv1.GetQueueStatsResponse {
		out, err := b.admin.GetQueueStats(b.t.Context(), &queueboxv1.GetQueueStatsRequest{Queue: "jobs"})
		require.NoError(b.t, err)
		return out
	}
	from := stats().GetServerTime().AsTime()
	require.Eventually(b.t, func() bool { return stats().GetAsOfTime().AsTime().After(from) },
		time.Minute, 20*time.Millisecond, "nobody counts")
}

// enqueue puts a message into the queue "jobs" and returns its id.
func (b *bench) enqueue(payload string) string {
	b.t.Helper()
	out, err := b.Enqueue(b.t.Context(), &queueboxv1.EnqueueRequest{Queue: "jobs", Payload: []byte(payload)})
	require.NoError(b.t, err)
	return out.GetMessageId()
}

// fill puts n messages into the queue "jobs".
func (b *bench) fill(n int) {
	b.t.Helper()
	for n > 0 {
		var requests []*queueboxv1.EnqueueRequest
		for range min(n, 1000) {
			requests = append(requests, &queueboxv1.EnqueueRequest{Queue: "jobs", Payload: []byte("x")})
		}
		_, err := b.BatchEnqueue(b.t.Context(), &queueboxv1.BatchEnqueueRequest{Requests: requests})
		require.NoError(b.t, err)
		n -= len(requests)
	}
}

// claim takes the next message of "jobs".
func (b *bench) claim() *queueboxv1.ClaimedMessage {
	b.t.Helper()
	out, err := b.Claim(b.t.Context(), &queueboxv1.ClaimRequest{Queue: "jobs", WorkerId: "worker-1", LeaseMs: 60_000})
	require.NoError(b.t, err)
	require.Len(b.t, out.GetMessages(), 1)
	return out.GetMessages()[0]
}

// bury makes the next message of "jobs" dead.
func (b *bench) bury(code, text string) string {
	b.t.Helper()
	m := b.claim()
	_, err := b.DeadLetter(b.t.Context(), &queueboxv1.DeadLetterRequest{
		Queue: "jobs", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(), ReasonCode: code, Error: text,
	})
	require.NoError(b.t, err)
	return m.GetMessage().GetMessageId()
}

// requireUsage wants exit code 2 and a text.
func requireUsage(t *testing.T, err error, want string) {
	t.Helper()
	_, ok := errors.AsType[UsageError](err)
	require.True(t, ok, "%v is no usage error", err)
	require.ErrorContains(t, err, want)
}

// requireFailure wants exit code 1 and a text.
func requireFailure(t *testing.T, err error, want string) {
	t.Helper()
	_, ok := errors.AsType[UsageError](err)
	require.False(t, ok, "%v is a usage error", err)
	require.ErrorContains(t, err, want)
}
