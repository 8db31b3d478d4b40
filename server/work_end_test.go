package server

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/worktest"
	"github.com/queuebox/queuebox/storage/faults"
)

// TestT3ReleaseOnCloseOfManyStreamsIsJoined: a connection breaks with many streams on it. The
// leases of all of them end in few statements.
func TestT3ReleaseOnCloseOfManyStreamsIsJoined(t *testing.T) {
	const n = 20
	h := serve(t)
	ctx, cancel := context.WithCancel(h.ctx())
	defer cancel()
	for range n {
		h.enqueueMany(1)
		h.work(ctx, 1, func(s *queueboxv1.WorkStart) { s.ReleaseOnClose = true }).Take(1)
	}
	renewals := 0
	var first sync.Once
	waiting := func() (items int) {
		h.server.api.join.Waiting(func(lane string, n int) {
			if lane == "renew" {
				items += n
			}
		})
		return items
	}
	h.faults.Inject(faults.Renew, faults.Fault{Strike: func() {
		renewals++ // one statement at a time
		first.Do(func() { h.eventually("the others wait", func() bool { return waiting() == n-1 }) })
	}})
	cancel()
	h.eventually("all were ended", func() bool { return h.metric("queuebox_work_leases_ended_total 20") })
	h.faults.Clear()
	require.LessOrEqual(t, renewals, 3)
	out, err := h.Claim(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q", MaxMessages: n, WaitMs: 5000})
	require.NoError(t, err)
	require.NotEmpty(t, out.GetMessages())
}

// TestD3AWorkStreamEndsWithoutItsDatabase: when claims have failed for long, the worker may have
// a better way to the database than this server. Its leases stay as they are, also where they end
// with the stream otherwise.
func TestD3AWorkStreamEndsWithoutItsDatabase(t *testing.T) {
	const patience = 300 * time.Millisecond
	h := serve(t, func(c *Config) { c.workPatience, c.MaxWait = patience, 50*time.Millisecond })
	require.Equal(t, 30*time.Second, workPatience, "where no test says otherwise; docs/work-stream.md")
	h.enqueueMany(2)
	w := h.work(h.ctx(), 1, func(s *queueboxv1.WorkStart) { s.ReleaseOnClose = true })
	m := w.Take(1)[0]
	before := h.dump()
	h.faults.Inject(faults.Any, faults.Fault{Refuse: true})
	start := time.Now()
	w.Write(&queueboxv1.WorkRequest{Credit: 1})
	_, err := w.Recv()
	requireReason(t, err, codes.Unavailable, "STORAGE_UNAVAILABLE")
	require.GreaterOrEqual(t, time.Since(start), patience)
	h.faults.Clear()
	h.eventually("it is gone", func() bool { return h.metric("queuebox_work_streams 0") })
	require.Equal(t, before, h.dump(), "the leases are as they were")
	require.True(t, h.metric("queuebox_work_leases_ended_total 0"))
	_, err = h.Complete(h.ctx(), completeItem(m).GetComplete())
	require.NoError(t, err)
}

// TestD8AStreamThatIsGoneLogsNoError: nobody would read the answers of its frames, and that it went
// is no error of the server.
func TestD8AStreamThatIsGoneLogsNoError(t *testing.T) {
	h := serve(t)
	h.enqueueMany(2)
	ctx, cancel := context.WithCancel(h.ctx())
	defer cancel()
	w := h.work(ctx, 2, func(*queueboxv1.WorkStart) {})
	ms := w.Take(2)
	gate := make(chan struct{})
	h.faults.Inject(faults.Settle, faults.Fault{Strike: func() { <-gate }})
	w.Write(worktest.Completions(1, ms[0]))
	h.eventually("the first settlement is under way", func() bool { return h.faults.Calls(faults.Settle) > 0 })
	w.Write(worktest.Completions(2, ms[1]))
	waiting := func() (items int) {
		h.server.api.join.Waiting(func(lane string, n int) {
			if lane == "settle" {
				items = n
			}
		})
		return items
	}
	h.eventually("the second one waits for it", func() bool { return waiting() == 1 })
	cancel()
	h.eventually("the second one has left", func() bool { return waiting() == 0 })
	close(gate)
	h.eventually("it is gone", func() bool { return h.metric("queuebox_work_streams 0") })
	require.NotContains(t, h.log.String(), "internal error")
}

// TestR5ARenewalWaitsForNoSettlementBeforeIt: frames whose messages somebody holds are under way for
// seconds, and a renewal of other messages is urgent.
func TestR5ARenewalWaitsForNoSettlementBeforeIt(t *testing.T) {
	const held = 20
	h := serve(t)
	h.enqueueMany(held + 1)
	w := h.work(h.ctx(), held+1, func(*queueboxv1.WorkStart) {})
	ms := w.Take(held + 1)
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open)
	h.faults.Inject(faults.Settle, faults.Fault{Strike: func() { <-gate }})
	for i := range held {
		w.Write(worktest.Completions(int64(10+i), ms[i]))
	}
	w.Write(&queueboxv1.WorkRequest{Sequence: 100, Renewals: []*queueboxv1.RenewItem{{
		MessageId: ms[held].GetMessage().GetMessageId(), ClaimToken: ms[held].GetClaimToken(),
	}}})
	first := w.Next()
	open()
	require.EqualValues(t, 100, first.GetSequence(), "before all settlements")
	require.Positive(t, first.GetRenewResults()[0].GetRenewed().GetLeaseRemainingMs())
	for range held {
		require.Nil(t, w.Next().GetSettleResults()[0].GetError())
	}
}
