package server

import (
	"go/build"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/faults"
)

func protoSize(m proto.Message) int { return proto.Size(m) }

func containsLine(page, line string) bool { return slices.Contains(strings.Split(page, "\n"), line) }

// TestD7ReadinessFollowsTheDatabase: not ready while it is away or its schema is
// another one, ready again afterwards; alive all the time.
func TestD7ReadinessFollowsTheDatabase(t *testing.T) {
	h := serve(t)
	client := healthpb.NewHealthClient(h.conn)
	check := func(want healthpb.HealthCheckResponse_ServingStatus, code int, text string) {
		t.Helper()
		require.Eventually(t, func() bool {
			out, err := client.Check(h.ctx(), &healthpb.HealthCheckRequest{Service: "queuebox.v1.WorkerService"})
			require.NoError(t, err)
			got, body := h.get("/readyz")
			return out.GetStatus() == want && got == code && strings.Contains(body, text)
		}, 10*time.Second, 10*time.Millisecond)
		alive, _ := h.get("/livez")
		require.Equal(t, 200, alive)
	}
	check(healthpb.HealthCheckResponse_SERVING, 200, "ok")
	require.True(t, containsLine(h.scrape(), "queuebox_ready 1"))
	h.faults.Inject(faults.Ready, faults.Fault{Refuse: true})
	check(healthpb.HealthCheckResponse_NOT_SERVING, 503, "database")
	require.True(t, containsLine(h.scrape(), "queuebox_ready 0"))
	h.faults.Inject(faults.Ready, faults.Fault{Err: storage.ErrSchema})
	check(healthpb.HealthCheckResponse_NOT_SERVING, 503, "schema")
	h.faults.Clear()
	check(healthpb.HealthCheckResponse_SERVING, 200, "ok")
}

func TestHealthChecksAreQuiet(t *testing.T) {
	h := serve(t)
	_, err := healthpb.NewHealthClient(h.conn).Check(h.ctx(), &healthpb.HealthCheckRequest{Service: "no such service"})
	require.Error(t, err)
	require.Regexp(t, `level=DEBUG msg="finished call" .*grpc.method=Check`, h.log.String())
	require.NotRegexp(t, `level=(INFO|WARN|ERROR) msg="finished call" .*grpc.method=Check`, h.log.String())
}

func TestReflectionNamesTheServices(t *testing.T) {
	h := serve(t)
	stream, err := reflectionpb.NewServerReflectionClient(h.conn).ServerReflectionInfo(h.ctx())
	require.NoError(t, err)
	require.NoError(t, stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}))
	out, err := stream.Recv()
	require.NoError(t, err)
	var names []string
	for _, s := range out.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	require.Contains(t, names, "queuebox.v1.WorkerService")
	require.Contains(t, names, "grpc.health.v1.Health")
	require.NoError(t, stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "queuebox.v1.ClaimRequest"}}))
	out, err = stream.Recv()
	require.NoError(t, err)
	require.NotEmpty(t, out.GetFileDescriptorResponse().GetFileDescriptorProto())
	require.NoError(t, stream.CloseSend())
}

// TestMetricsPage compares docs/metrics.md with a live scrape, both ways.
func TestMetricsPage(t *testing.T) {
	h := serve(t)
	h.enqueue("q", "x")
	_, err := h.Complete(h.ctx(), completeItem(h.claim()).GetComplete())
	require.NoError(t, err)
	stream, err := h.Heartbeat(h.ctx())
	require.NoError(t, err)
	require.NoError(t, stream.Send(&queueboxv1.HeartbeatRequest{Sequence: 1}))
	_, err = stream.Recv()
	require.NoError(t, err)
	require.NoError(t, stream.CloseSend())
	var scraped []string
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) `).FindAllStringSubmatch(h.scrape(), -1) {
		scraped = append(scraped, m[1])
	}
	page, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|[^|]*\\|[^|]*\\| (.*) \\|$").FindAllStringSubmatch(string(page), -1) {
		documented = append(documented, m[1])
		require.Greater(t, len(m[2]), 20, "%s: what to do when it moves", m[1])
	}
	slices.Sort(scraped)
	slices.Sort(documented)
	require.Equal(t, scraped, documented)
}

func TestQueueLabelsAreBounded(t *testing.T) {
	h := serve(t, func(c *Config) { c.QueueLabels = 2 })
	for _, q := range []string{"a", "b", "c", "d", "a"} {
		h.enqueue(q, "x")
	}
	scrape := h.scrape()
	require.True(t, containsLine(scrape, `queuebox_messages_enqueued_total{queue="a"} 2`))
	require.True(t, containsLine(scrape, `queuebox_messages_enqueued_total{queue="b"} 1`))
	require.True(t, containsLine(scrape, `queuebox_messages_enqueued_total{queue="(other)"} 2`))
	require.NotContains(t, scrape, `queue="c"`)
	require.True(t, containsLine(scrape, `queuebox_messages_settled_total{outcome="completed",queue="a"} 0`), "series begin at zero")
}

func TestServesOnce(t *testing.T) {
	h := serve(t)
	h.enqueue("q", "so that it serves")
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = lis.Close() }()
	require.ErrorContains(t, h.server.Serve(t.Context(), lis), "once")
}

func TestConfigIsChecked(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no store":          func(*Config) {},
		"no logger":         func(c *Config) { c.Logger = nil },
		"payload limit":     func(c *Config) { c.MaxPayloadBytes = 33 << 20 },
		"a slow poll":       func(c *Config) { c.PollInterval = 2 * time.Second },
		"no wait":           func(c *Config) { c.MaxWait = 0 },
		"no waiters":        func(c *Config) { c.MaxWaiters = 0 },
		"lease of defaults": func(c *Config) { c.QueueDefaults.DefaultLease = time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			if name != "no store" {
				cfg.Store = faults.Wrap(nil)
			}
			change(&cfg)
			_, err := New(cfg)
			require.Error(t, err)
		})
	}
}

// TestServerKnowsNoBackend: no file of the server, tests apart, imports a database.
func TestServerKnowsNoBackend(t *testing.T) {
	for _, dir := range []string{".", "dispatch", "wireid", "../storage/observe"} {
		abs, err := filepath.Abs(dir)
		require.NoError(t, err)
		pkg, err := build.ImportDir(abs, 0)
		require.NoError(t, err)
		for _, path := range pkg.Imports {
			require.NotRegexp(t, `^database/sql|/storage/(sqlite|postgres|mssql|mysql|backends|faults|storagetest)$|pgx|modernc`, path, dir)
		}
	}
}
