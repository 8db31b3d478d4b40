package queuebox_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	queuebox "github.com/queuebox/queuebox/client/go"
	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/proxy"
	"github.com/queuebox/queuebox/internal/testserver"
	"github.com/queuebox/queuebox/server"
	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/sqlite"
)

// hooks is a Store that tells a test what was written, between the commit and the answer: the
// one moment at which a caller cannot know what became of his call.
type hooks struct {
	storage.Store

	claimed atomic.Pointer[func(storage.ClaimResult)]
	settled atomic.Pointer[func(storage.SettleResult)]
}

func (h *hooks) Claim(ctx context.Context, p storage.ClaimParams) (storage.ClaimResult, error) {
	r, err := h.Store.Claim(ctx, p)
	if f := h.claimed.Load(); f != nil && err == nil {
		(*f)(r)
	}
	return r, err
}

func (h *hooks) Settle(ctx context.Context, p storage.SettleParams) (storage.SettleResult, error) {
	r, err := h.Store.Settle(ctx, p)
	if f := h.settled.Load(); f != nil && err == nil {
		(*f)(r)
	}
	return r, err
}

// onClaim calls f once, after the next claim that took something.
func (h *hooks) onClaim(f func([]storage.Claimed)) {
	var done atomic.Bool
	hook := func(r storage.ClaimResult) {
		for _, c := range r.Calls {
			if len(c.Messages) > 0 && done.CompareAndSwap(false, true) {
				f(c.Messages)
			}
		}
	}
	h.claimed.Store(&hook)
}

// onSettle calls f once, after the next settlement that was written.
func (h *hooks) onSettle(f func()) {
	var done atomic.Bool
	hook := func(r storage.SettleResult) {
		for _, i := range r.Items {
			if i.Status == storage.ItemApplied && done.CompareAndSwap(false, true) {
				f()
			}
		}
	}
	h.settled.Store(&hook)
}

// world is a real server on a SQLite file, with a proxy before it.
type world struct {
	store *hooks
	addr  string
	proxy *proxy.Proxy
	admin queueboxv1.AdminServiceClient
	// stop ends the server as SIGTERM would; start starts another one on the same address.
	stop func()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "queue.db")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	w := &world{store: &hooks{Store: store}, addr: testserver.Anywhere}
	w.start(t)
	w.proxy = proxy.New(t, w.addr)
	w.admin = queueboxv1.NewAdminServiceClient(w.dial(t, w.addr).Conn())
	return w
}

func (w *world) start(t *testing.T) {
	t.Helper()
	config := server.DefaultConfig()
	config.Store = w.store
	config.MaxPayloadBytes = server.MaxPayloadLimit
	config.DrainTimeout = 5 * time.Second
	config.QueueDefaults.MinLease = time.Millisecond
	config.QueueDefaults.Retry.Min = 10 * time.Millisecond
	config.QueueDefaults.Retry.Max = 50 * time.Millisecond
	w.addr, w.stop = testserver.Serve(t, config, w.addr)
}

// dial connects to addr, the server itself or the proxy; the client is closed with the test.
func (w *world) dial(t *testing.T, addr string, opts ...queuebox.Option) *queuebox.Client {
	t.Helper()
	opts = append([]queuebox.Option{queuebox.WithLogger(slog.New(slog.NewTextHandler(t.Output(), nil)))}, opts...)
	c, err := queuebox.Dial(addr, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// fill enqueues n messages and returns their identifiers.
func (w *world) fill(t *testing.T, c *queuebox.Client, n int) []string {
	t.Helper()
	ms := make([]queuebox.NewMessage, n)
	for i := range ms {
		ms[i] = queuebox.NewMessage{Payload: []byte{byte(i), byte(i >> 8)}}
	}
	enqueued, err := c.EnqueueBatch(t.Context(), "q", ms)
	require.NoError(t, err)
	ids := make([]string, n)
	for i, e := range enqueued {
		ids[i] = e.MessageID
	}
	return ids
}

func (w *world) message(t *testing.T, id string) *queueboxv1.Message {
	t.Helper()
	resp, err := w.admin.GetMessage(t.Context(), &queueboxv1.GetMessageRequest{Queue: "q", MessageId: id}, grpc.WaitForReady(true))
	require.NoError(t, err)
	return resp.GetMessage()
}

// claimOne claims the one message that must be there.
func claimOne(t *testing.T, c *queuebox.Client, lease time.Duration) *queuebox.Handle {
	t.Helper()
	hs, err := c.Claim(t.Context(), queuebox.ClaimOptions{Queue: "q", Lease: lease, Wait: 20 * time.Second})
	require.NoError(t, err)
	require.Len(t, hs, 1)
	return hs[0]
}
