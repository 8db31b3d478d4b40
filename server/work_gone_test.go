package server

import (
	"context"
	"fmt"
	"sync"
	"testing"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/worktest"
	"github.com/queuebox/queuebox/storage/faults"
)

// TestT3ReleaseOnCloseWhereAFrameWasUnderWay: a worker goes away while a settlement of its stream
// waits for the database. That the frame fails for it is no other end of the stream: what it holds
// beside is released. Which of the two ends is seen first is chance, so there are many streams.
func TestT3ReleaseOnCloseWhereAFrameWasUnderWay(t *testing.T) {
	const n = 20
	h := serve(t)
	ctx, cancel := context.WithCancel(h.ctx())
	defer cancel()
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open)
	waiting := func() (items int) {
		h.server.api.join.Waiting(func(lane string, n int) {
			if lane == "settle" {
				items = n
			}
		})
		return items
	}
	h.faults.Inject(faults.Settle, faults.Fault{Strike: func() { <-gate }})
	for i := range n {
		h.enqueueMany(2)
		w := h.work(ctx, 2, func(s *queueboxv1.WorkStart) { s.ReleaseOnClose = true })
		ms := w.Take(2)
		w.Write(worktest.Completions(1, ms[0]))
		if i == 0 {
			h.eventually("the first settlement is under way", func() bool { return h.faults.Calls(faults.Settle) > 0 })
		}
	}
	h.eventually("the others wait for it", func() bool { return waiting() == n-1 })
	cancel()
	h.eventually("the others have left", func() bool { return waiting() == 0 })
	open()
	h.eventually("they are gone", func() bool { return h.metric("queuebox_work_streams 0") })
	// The first stream has settled one of its two messages, the others none.
	h.eventually("all leases were ended", func() bool { return h.metric(fmt.Sprintf("queuebox_work_leases_ended_total %d", 2*n-1)) })
}
