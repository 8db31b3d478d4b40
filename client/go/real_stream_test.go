package queuebox_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	queuebox "github.com/queuebox/queuebox/client/go"
	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
)

// running is a worker that a test started.
type running struct {
	stop  context.CancelFunc
	ended chan error
}

func run(t *testing.T, c *queuebox.Client, config queuebox.WorkerConfig, handler queuebox.Handler) *running {
	t.Helper()
	config.Queue = "q"
	ctx, stop := context.WithCancel(t.Context())
	r := &running{stop: stop, ended: make(chan error, 1)}
	w := queuebox.NewWorker(c, config)
	go func() { r.ended <- w.Run(ctx, handler) }()
	return r
}

func (r *running) end(t *testing.T) {
	t.Helper()
	r.stop()
	require.NoError(t, <-r.ended)
}

// left tells whether the queue holds messages that are not finished.
func (w *world) left(t *testing.T) bool {
	t.Helper()
	resp, err := w.admin.ListMessages(t.Context(), &queueboxv1.ListMessagesRequest{
		Queue: "q", PageSize: 1, Filter: &queueboxv1.MessageFilter{
			States: []queueboxv1.MessageState{queueboxv1.MessageState_MESSAGE_STATE_PENDING, queueboxv1.MessageState_MESSAGE_STATE_PROCESSING},
		},
	})
	return err != nil || len(resp.GetMessages()) > 0
}

func TestReal_T3_AWorkerOverAStreamRunsEveryMessageOnce(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]queuebox.Delivery{"stream": queuebox.DeliverStream, "poll": queuebox.DeliverPoll} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c := w.dial(t, w.addr)
			const n, slots = 3000, 200
			for range n / 1000 {
				w.fill(t, c, 1000)
			}
			var claims atomic.Int32
			onClaim := func(storage.ClaimResult) { claims.Add(1) }
			w.store.claimed.Store(&onClaim)
			var statements, settled, inside, most atomic.Int32
			onSettle := func(r storage.SettleResult) {
				statements.Add(1)
				settled.Add(int32(len(r.Items)))
			}
			w.store.settled.Store(&onSettle)
			var mu sync.Mutex
			runs := map[string]int{}
			r := run(t, c, queuebox.WorkerConfig{Concurrency: slots, Delivery: way}, func(_ context.Context, h *queuebox.Handle) error {
				most.Store(max(most.Load(), inside.Add(1)))
				defer inside.Add(-1)
				mu.Lock()
				defer mu.Unlock()
				runs[h.Message().ID]++
				return nil
			})
			require.Eventually(t, func() bool { return settled.Load() == n && !w.left(t) }, patience, 20*time.Millisecond)
			r.end(t)
			require.Len(t, runs, n)
			for id, k := range runs {
				require.Equal(t, 1, k, id)
			}
			require.LessOrEqual(t, most.Load(), int32(slots))
			require.Less(t, statements.Load(), int32(n/4), "settlements are joined")
			t.Logf("%d messages in %d claims and %d settling statements", n, claims.Load(), statements.Load())
		})
	}
}

func TestReal_T6_SignalsReachTheHandlersOfAStreamAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(t, w.addr)
	ids := w.fill(t, c, 2)
	started := make(chan struct{}, 2)
	causes := make(chan error, 1)
	r := run(t, c, queuebox.WorkerConfig{Concurrency: 2, Lease: time.Hour}, func(ctx context.Context, h *queuebox.Handle) error {
		if h.Message().Attempt > 1 {
			return nil // the one that was revoked, delivered again
		}
		started <- struct{}{}
		if h.Message().ID == ids[0] {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil
		}
		<-h.CancelRequested() // with a lease of an hour no renewal tells
		return nil
	})
	<-started
	<-started
	_, err := w.admin.RevokeClaim(t.Context(), &queueboxv1.RevokeClaimRequest{Queue: "q", MessageId: ids[0]})
	require.NoError(t, err)
	select {
	case cause := <-causes:
		require.ErrorIs(t, cause, queuebox.ErrClaimLost)
	case <-time.After(patience):
		require.Fail(t, "the handler was not told")
	}
	state, err := c.Cancel(t.Context(), "q", queuebox.CancelTarget{MessageID: ids[1]})
	require.NoError(t, err)
	require.Equal(t, queuebox.StateProcessing, state)
	require.Eventually(t, func() bool {
		return w.message(t, ids[1]).GetState() == queueboxv1.MessageState_MESSAGE_STATE_COMPLETED
	}, patience, 20*time.Millisecond)
	r.end(t)
}

func TestReal_K7_AStopOnAStreamCostsNoAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(t, w.addr)
	var ids []string
	// Stops in the middle of the work, with messages on their way; each later worker goes on at
	// once, since nothing is left to its lease.
	for i := range 5 {
		ids = append(ids, w.fill(t, c, 200)...)
		var seen atomic.Int32
		enough := make(chan struct{})
		r := run(t, c, queuebox.WorkerConfig{Concurrency: 50, Lease: time.Hour}, func(context.Context, *queuebox.Handle) error {
			if seen.Add(1) == int32(20*(i+1)) {
				close(enough)
			}
			return nil
		})
		<-enough
		r.end(t)
	}
	r := run(t, c, queuebox.WorkerConfig{Concurrency: 50}, func(context.Context, *queuebox.Handle) error { return nil })
	require.Eventually(t, func() bool { return !w.left(t) }, patience, 20*time.Millisecond)
	r.end(t)
	for _, id := range ids {
		require.EqualValues(t, 1, w.message(t, id).GetAttempt())
	}
}

func TestReal_T3_StreamsThatBreakLoseNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	direct := w.dial(t, w.addr)
	c := w.dial(t, w.proxy.Addr())
	const n = 400
	ids := w.fill(t, direct, n)
	var claims, settlements atomic.Int32
	onClaim := func(r storage.ClaimResult) {
		if len(r.Calls) > 0 && len(r.Calls[0].Messages) > 0 && claims.Add(1)%5 == 0 {
			w.proxy.Cut()
		}
	}
	onSettle := func(storage.SettleResult) {
		if settlements.Add(1)%7 == 0 {
			w.proxy.Cut()
		}
	}
	w.store.claimed.Store(&onClaim)
	w.store.settled.Store(&onSettle)
	var mu sync.Mutex
	done := map[string]int{}
	// What was on its way when a connection broke comes back after its lease.
	r := run(t, c, queuebox.WorkerConfig{Concurrency: 16, Lease: 3 * time.Second}, func(_ context.Context, h *queuebox.Handle) error {
		mu.Lock()
		defer mu.Unlock()
		done[h.Message().ID]++
		return nil
	})
	require.Eventually(t, func() bool { return !w.left(t) }, 2*patience, 50*time.Millisecond)
	r.end(t)
	for _, id := range ids {
		m := w.message(t, id)
		require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_COMPLETED, m.GetState())
		require.Equal(t, 1, done[id], "a message that was delivered was settled, whatever broke")
	}
	require.Greater(t, w.proxy.Accepted(), 5, "connections did break")
}
