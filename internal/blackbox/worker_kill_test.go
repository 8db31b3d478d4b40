package blackbox

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	queuebox "github.com/queuebox/queuebox/client/go"
	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// workerLog is what the handlers of the test saw.
type workerLog struct {
	mu sync.Mutex
	// told counts the settlements that were answered as new, and attempts the runs.
	told, attempts map[string]int
	running        map[string]bool
	beside         []string
	done           int
}

// The server is killed again and again under a Go worker with 200 handlers, whose settlements are
// joined and whose messages come over a Work stream, or by claims. Nothing is lost, nothing is
// settled twice, no message runs beside itself in the process (K8), and the client ends with all it began.
func TestD4_K7_KillUnderAWorkerWith200Handlers(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]queuebox.Delivery{"stream": queuebox.DeliverStream, "poll": queuebox.DeliverPoll} {
		t.Run(name, func(t *testing.T) {
			EachParallel(t, func(t *testing.T, db *Database) { killUnderWorker(t, db, way) })
		})
	}
}

func killUnderWorker(t *testing.T, db *Database, way queuebox.Delivery) {
	t.Helper()
	const (
		messages = 3000
		kills    = 4
		queue    = "kill"
	)
	s := db.Start(t)
	c, err := queuebox.Dial(s.Addr, queuebox.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	ids := make(map[string]bool, messages)
	for len(ids) < messages {
		ms := make([]queuebox.NewMessage, 500)
		for i := range ms {
			ms[i] = queuebox.NewMessage{Payload: fmt.Append(nil, len(ids)+i)}
		}
		out, err := c.EnqueueBatch(t.Context(), queue, ms)
		require.NoError(t, err)
		for _, o := range out {
			ids[o.MessageID] = true
		}
	}

	seen := &workerLog{told: map[string]int{}, attempts: map[string]int{}, running: map[string]bool{}}
	progress := make(chan struct{}, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	worker := queuebox.NewWorker(c, queuebox.WorkerConfig{Queue: queue, Concurrency: 200, Lease: 3 * time.Second, Delivery: way})
	go func() {
		ended <- worker.Run(ctx, func(ctx context.Context, h *queuebox.Handle) error {
			id := h.Message().ID
			seen.begin(id)
			time.Sleep(20 * time.Millisecond) // so that kills meet running handlers
			seen.end(id)
			settled, err := h.Complete(ctx)
			seen.settled(id, settled, err)
			select {
			case progress <- struct{}{}:
			default:
			}
			return nil
		})
	}()
	for i := range kills {
		for seen.count() < (i+1)*messages/(kills+1) {
			select {
			case <-progress:
			case <-time.After(time.Minute):
				require.Fail(t, "no progress", s.Log())
			}
		}
		s.Kill()
		s.Restart()
	}
	admin := s.Client(t)
	require.Eventually(t, func() bool {
		left, err := admin.Admin.ListMessages(t.Context(), &queueboxv1.ListMessagesRequest{
			Queue: queue, PageSize: 1, Filter: &queueboxv1.MessageFilter{States: []queueboxv1.MessageState{
				queueboxv1.MessageState_MESSAGE_STATE_PENDING, queueboxv1.MessageState_MESSAGE_STATE_PROCESSING,
			}},
		})
		return err == nil && len(left.GetMessages()) == 0
	}, time.Minute, 50*time.Millisecond)
	stop()
	require.NoError(t, <-ended)

	seen.mu.Lock()
	defer seen.mu.Unlock()
	require.Empty(t, seen.beside, "K8")
	for id := range ids {
		resp, err := admin.Admin.GetMessage(t.Context(), &queueboxv1.GetMessageRequest{Queue: queue, MessageId: id})
		require.NoError(t, err)
		require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_COMPLETED, resp.GetMessage().GetState())
		require.LessOrEqual(t, seen.told[id], 1, "settled twice")
		require.Positive(t, seen.attempts[id])
	}
	for id := range seen.attempts {
		require.True(t, ids[id], "an unknown message %s", id)
	}
}

func (w *workerLog) begin(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempts[id]++
	if w.running[id] {
		w.beside = append(w.beside, id)
	}
	w.running[id] = true
}

func (w *workerLog) end(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running[id] = false
}

func (w *workerLog) settled(id string, _ queuebox.Settled, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.told[id]++
		w.done++
	}
}

func (w *workerLog) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done
}
