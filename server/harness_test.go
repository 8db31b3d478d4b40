package server

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage/faults"
	"github.com/queuebox/queuebox/storage/sqlite"
)

// harness is a server on a real SQLite file, served over loopback, with a store
// that breaks when the test says so.
type harness struct {
	queueboxv1.WorkerServiceClient
	queueboxv1.ProducerServiceClient
	queueboxv1.AdminServiceClient

	t      *testing.T
	server *Server
	faults *faults.Store
	addr   string
	path   string // of the database file
	conn   *grpc.ClientConn
	log    *logBuffer
	// stop ends Serve and waits for it.
	stop func()
}

// logBuffer keeps the log for tests that look into it.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func serve(t *testing.T, change ...func(*Config)) *harness {
	t.Helper()
	path := filepath.Join(t.TempDir(), "queuebox.db")
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	require.NoError(t, err)
	h := &harness{t: t, path: path, faults: faults.Wrap(store), log: &logBuffer{}}
	cfg := DefaultConfig()
	cfg.Store = h.faults
	cfg.Registry = prometheus.NewRegistry()
	cfg.DrainTimeout = time.Second
	cfg.Logger = slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	for _, c := range change {
		c(&cfg)
	}
	h.server, err = New(cfg)
	require.NoError(t, err)
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h.addr = lis.Addr().String()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- h.server.Serve(ctx, lis) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-served)
	})
	t.Cleanup(func() {
		h.stop()
		require.NoError(t, store.Close())
	})
	h.conn = h.dial()
	h.WorkerServiceClient = queueboxv1.NewWorkerServiceClient(h.conn)
	h.ProducerServiceClient = queueboxv1.NewProducerServiceClient(h.conn)
	h.AdminServiceClient = queueboxv1.NewAdminServiceClient(h.conn)
	return h
}

func (h *harness) dial() *grpc.ClientConn {
	h.t.Helper()
	conn, err := grpc.NewClient(h.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (h *harness) ctx() context.Context {
	ctx, cancel := context.WithTimeout(h.t.Context(), 30*time.Second)
	h.t.Cleanup(cancel)
	return ctx
}

func (h *harness) enqueue(queue, payload string) string {
	h.t.Helper()
	out, err := h.Enqueue(h.ctx(), &queueboxv1.EnqueueRequest{Queue: queue, Payload: []byte(payload)})
	require.NoError(h.t, err)
	return out.GetMessageId()
}

// claim takes one message of the queue "q".
func (h *harness) claim() *queueboxv1.ClaimedMessage {
	h.t.Helper()
	out, err := h.Claim(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q"})
	require.NoError(h.t, err)
	require.Len(h.t, out.GetMessages(), 1)
	return out.GetMessages()[0]
}

// scrape returns the metrics page.
func (h *harness) scrape() string {
	h.t.Helper()
	code, body := h.get("/metrics")
	require.Equal(h.t, 200, code)
	return body
}

func (h *harness) get(path string) (int, string) {
	h.t.Helper()
	rec := httptest.NewRecorder()
	h.server.HTTP().ServeHTTP(rec, httptest.NewRequestWithContext(h.t.Context(), "GET", path, nil))
	body, err := io.ReadAll(rec.Result().Body)
	require.NoError(h.t, err)
	return rec.Code, string(body)
}

// details are the parts of an error that a client reads.
type details struct {
	code     codes.Code
	reason   string
	metadata map[string]string
	fields   []string
	retry    time.Duration
}

func detailsOf(t *testing.T, err error) details {
	t.Helper()
	require.Error(t, err)
	st := status.Convert(err)
	d := details{code: st.Code()}
	for _, x := range st.Details() {
		switch x := x.(type) {
		case *errdetails.ErrorInfo:
			require.Equal(t, "queuebox.dev", x.GetDomain())
			d.reason, d.metadata = x.GetReason(), x.GetMetadata()
		case *errdetails.RetryInfo:
			d.retry = x.GetRetryDelay().AsDuration()
		case *errdetails.BadRequest:
			for _, v := range x.GetFieldViolations() {
				require.NotEmpty(t, v.GetDescription())
				d.fields = append(d.fields, v.GetField())
			}
		}
	}
	return d
}

func requireReason(t *testing.T, err error, code codes.Code, reason string) details {
	t.Helper()
	d := detailsOf(t, err)
	require.Equal(t, code, d.code, "%v", err)
	require.Equal(t, reason, d.reason, "%v", err)
	return d
}
