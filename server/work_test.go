package server

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage/faults"
)

type workClient struct {
	grpc.BidiStreamingClient[queueboxv1.WorkRequest, queueboxv1.WorkResponse]
	t *testing.T
}

// work opens a Work stream on the queue "q" with some credit.
func (h *harness) work(ctx context.Context, credit int32, change ...func(*queueboxv1.WorkStart)) workClient {
	h.t.Helper()
	stream, err := h.Work(ctx)
	require.NoError(h.t, err)
	w := workClient{stream, h.t}
	start := &queueboxv1.WorkStart{Queue: "q", WorkerId: "w"}
	for _, c := range change {
		c(start)
	}
	w.send(&queueboxv1.WorkRequest{Start: start, Credit: credit})
	return w
}

func (w workClient) send(req *queueboxv1.WorkRequest) {
	w.t.Helper()
	require.NoError(w.t, w.Send(req))
}

// next is the next frame, whatever it is.
func (w workClient) next() *queueboxv1.WorkResponse {
	w.t.Helper()
	out, err := w.Recv()
	require.NoError(w.t, err)
	require.NotNil(w.t, out.GetServerTime(), "D11")
	return out
}

// take reads frames until n messages were delivered; nothing else may come between.
func (w workClient) take(n int) []*queueboxv1.ClaimedMessage {
	w.t.Helper()
	var out []*queueboxv1.ClaimedMessage
	for len(out) < n {
		f := w.next()
		require.Zero(w.t, f.GetSequence())
		require.NotEmpty(w.t, f.GetDeliveries(), "%v", f)
		out = append(out, f.GetDeliveries()...)
	}
	require.Len(w.t, out, n)
	return out
}

// ask sends a frame and reads its answer, which must come next.
func (w workClient) ask(req *queueboxv1.WorkRequest) *queueboxv1.WorkResponse {
	w.t.Helper()
	w.send(req)
	out := w.next()
	require.Equal(w.t, req.GetSequence(), out.GetSequence(), "%v", out)
	return out
}

// ends requires that the stream ends OK now.
func (w workClient) ends() {
	w.t.Helper()
	out, err := w.Recv()
	require.ErrorIs(w.t, err, io.EOF, "%v", out)
}

// eventually waits until something has come about.
func (h *harness) eventually(what string, ok func() bool) {
	h.t.Helper()
	require.Eventually(h.t, ok, 10*time.Second, time.Millisecond, what)
}

func (h *harness) metric(line string) bool {
	_, body := h.get("/metrics")
	return containsLine(body, line)
}

func (h *harness) enqueueMany(n int) {
	h.t.Helper()
	req := &queueboxv1.BatchEnqueueRequest{}
	for i := range n {
		req.Requests = append(req.Requests, &queueboxv1.EnqueueRequest{Queue: "q", Payload: fmt.Appendf(nil, "%d", i)})
	}
	_, err := h.BatchEnqueue(h.ctx(), req)
	require.NoError(h.t, err)
}

// settleFrame completes messages; they name no queue, so it is that of the stream.
func settleFrame(sequence int64, ms ...*queueboxv1.ClaimedMessage) *queueboxv1.WorkRequest {
	req := &queueboxv1.WorkRequest{Sequence: sequence}
	for _, m := range ms {
		item := completeItem(m)
		item.GetComplete().Queue = ""
		req.Settlements = append(req.Settlements, item)
	}
	return req
}

func TestT3NeverMoreDeliveriesThanCredit(t *testing.T) {
	h := serve(t)
	w := h.work(h.ctx(), 3)
	h.enqueueMany(10)
	ms := w.take(3)
	for i, m := range ms {
		require.Equal(t, fmt.Sprint(i), string(m.GetMessage().GetPayload()), "C9")
		require.Equal(t, "w", m.GetMessage().GetWorkerId())
		require.EqualValues(t, 1, m.GetMessage().GetAttempt())
		require.Positive(t, m.GetLeaseRemainingMs())
	}
	out := w.ask(settleFrame(1, ms...))
	require.Len(t, out.GetSettleResults(), 3)
	for i, r := range out.GetSettleResults() {
		require.Equal(t, queueboxv1.SettleOutcome_SETTLE_OUTCOME_COMPLETED, r.GetOutcome(), "%v", r)
		require.Equal(t, ms[i].GetMessage().GetMessageId(), r.GetMessageId())
	}
	// A settlement gives none back, so nothing comes but answers; then the worker asks again.
	require.Empty(t, w.ask(&queueboxv1.WorkRequest{Sequence: 2}).GetDeliveries())
	w.send(&queueboxv1.WorkRequest{Credit: 2})
	w.send(&queueboxv1.WorkRequest{Credit: 1})
	require.Equal(t, "3", string(w.take(3)[0].GetMessage().GetPayload()))
	require.NoError(t, w.CloseSend())
	w.ends()
	require.True(t, h.metric("queuebox_work_delivered_total 6"), "%s", h.scrape())
	require.True(t, h.metric("queuebox_work_streams 0"))
}

func TestT1EachFrameGetsOneAnswerInPlace(t *testing.T) {
	h := serve(t)
	h.enqueueMany(3)
	w := h.work(h.ctx(), 3)
	ms := w.take(3)
	bad := completeItem(ms[0])
	bad.GetComplete().MessageId = "?"
	unknown := completeItem(ms[0])
	unknown.GetComplete().Queue = "none"
	retry := &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_Retry{Retry: &queueboxv1.RetryRequest{
		MessageId: ms[1].GetMessage().GetMessageId(), ClaimToken: ms[1].GetClaimToken(), DelayMs: new(int64(60_000)),
	}}}
	out := w.ask(&queueboxv1.WorkRequest{
		Sequence: 7, Settlements: []*queueboxv1.SettleItem{bad, completeItem(ms[0]), {}, retry, unknown},
		Renewals: []*queueboxv1.RenewItem{renewItem(ms[2]), {MessageId: "?"}},
	})
	reasons := make([]queueboxv1.ErrorReason, 0, 5)
	for _, r := range out.GetSettleResults() {
		reasons = append(reasons, r.GetError().GetReason())
	}
	require.Equal(t, []queueboxv1.ErrorReason{
		queueboxv1.ErrorReason_ERROR_REASON_INVALID_ARGUMENT, 0, queueboxv1.ErrorReason_ERROR_REASON_INVALID_ARGUMENT, 0,
		queueboxv1.ErrorReason_ERROR_REASON_MESSAGE_NOT_FOUND,
	}, reasons)
	require.Equal(t, "settlements[0].complete.message_id", out.GetSettleResults()[0].GetError().GetMetadata()["field"])
	require.Equal(t, queueboxv1.SettleOutcome_SETTLE_OUTCOME_RETRIED, out.GetSettleResults()[3].GetOutcome())
	require.Positive(t, out.GetRenewResults()[0].GetRenewed().GetLeaseRemainingMs())
	require.Equal(t, queueboxv1.ErrorReason_ERROR_REASON_INVALID_ARGUMENT, out.GetRenewResults()[1].GetError().GetReason())

	// More frames at once than the server answers at a time.
	for i := range 5 * workFlights {
		w.send(settleFrame(int64(100+i), ms[0]))
	}
	seen := map[int64]int{}
	for range 5 * workFlights {
		f := w.next()
		seen[f.GetSequence()]++
		require.True(t, f.GetSettleResults()[0].GetAlreadySettled(), "S5")
	}
	require.Len(t, seen, 5*workFlights)

	// What was sent before the half-close is answered.
	w.send(settleFrame(200, ms[2]))
	require.NoError(t, w.CloseSend())
	require.EqualValues(t, 200, w.next().GetSequence())
	w.ends()
}

func TestWorkBadFramesEndTheStreamAndChangeNothing(t *testing.T) {
	h := serve(t)
	h.enqueueMany(2)
	m := h.claim()
	settle := []*queueboxv1.SettleItem{completeItem(m)}
	start := &queueboxv1.WorkStart{Queue: "q"}
	follow := make([]*queueboxv1.EnqueueRequest, 600)
	for i := range follow {
		follow[i] = &queueboxv1.EnqueueRequest{Queue: "q"}
	}
	two := []*queueboxv1.SettleItem{completeItem(m), completeItem(m)}
	for _, it := range two {
		it.GetComplete().FollowUps = follow
	}
	for name, tc := range map[string]struct {
		frames []*queueboxv1.WorkRequest
		field  string
		reason string
	}{
		"no start":           {frames: []*queueboxv1.WorkRequest{{Credit: 1}}, field: "start"},
		"start twice":        {frames: []*queueboxv1.WorkRequest{{Start: start}, {Start: start}}, field: "start"},
		"no queue":           {frames: []*queueboxv1.WorkRequest{{Start: &queueboxv1.WorkStart{}, Credit: 1}}, field: "start.queue"},
		"worker_id with NUL": {frames: []*queueboxv1.WorkRequest{{Start: &queueboxv1.WorkStart{Queue: "q", WorkerId: "\x00"}}}, field: "start.worker_id"},
		"negative bytes":     {frames: []*queueboxv1.WorkRequest{{Start: &queueboxv1.WorkStart{Queue: "q", MaxOutstandingBytes: -1}}}, field: "start.max_outstanding_bytes"},
		"negative lease":     {frames: []*queueboxv1.WorkRequest{{Start: &queueboxv1.WorkStart{Queue: "q", LeaseMs: -1}}}, field: "start.lease_ms", reason: "LEASE_OUT_OF_RANGE"},
		"short lease":        {frames: []*queueboxv1.WorkRequest{{Start: &queueboxv1.WorkStart{Queue: "q", LeaseMs: 1}, Credit: 1}}, field: "start.lease_ms", reason: "LEASE_OUT_OF_RANGE"},
		"negative credit":    {frames: []*queueboxv1.WorkRequest{{Start: start, Credit: -1}}, field: "credit"},
		"too much credit":    {frames: []*queueboxv1.WorkRequest{{Start: start, Credit: maxCredit + 1}}, field: "credit"},
		"sequence 0":         {frames: []*queueboxv1.WorkRequest{{Start: start}, {Settlements: settle, Credit: 1}}, field: "sequence"},
		"negative sequence":  {frames: []*queueboxv1.WorkRequest{{Start: start}, {Sequence: -1}}, field: "sequence"},
		"1001 settlements":   {frames: []*queueboxv1.WorkRequest{{Start: start}, {Sequence: 1, Settlements: make1001(settle[0])}}, field: "settlements"},
		"1001 renewals":      {frames: []*queueboxv1.WorkRequest{{Start: start}, {Sequence: 1, Renewals: make1001(&queueboxv1.RenewItem{})}}, field: "renewals"},
		"1200 follow-ups":    {frames: []*queueboxv1.WorkRequest{{Start: start}, {Sequence: 1, Settlements: two}}, field: "settlements"},
	} {
		t.Run(name, func(t *testing.T) {
			before := h.dump()
			stream, err := h.Work(h.ctx())
			require.NoError(t, err)
			for _, f := range tc.frames {
				require.NoError(t, stream.Send(f))
			}
			_, err = stream.Recv()
			if tc.reason == "" {
				tc.reason = "INVALID_ARGUMENT"
			}
			require.Equal(t, []string{tc.field}, requireReason(t, err, codes.InvalidArgument, tc.reason).fields)
			require.Equal(t, before, h.dump())
		})
	}
	t.Run("what was asked before a bad frame is answered", func(t *testing.T) {
		w := h.work(h.ctx(), 0)
		w.send(settleFrame(1, m))
		w.send(&queueboxv1.WorkRequest{Credit: -1})
		require.Equal(t, queueboxv1.SettleOutcome_SETTLE_OUTCOME_COMPLETED, w.next().GetSettleResults()[0].GetOutcome())
		_, err := w.Recv()
		requireReason(t, err, codes.InvalidArgument, "INVALID_ARGUMENT")
	})
	t.Run("the bound counts what is in hand", func(t *testing.T) {
		w := h.work(h.ctx(), maxCredit)
		w.take(1)
		w.send(&queueboxv1.WorkRequest{Credit: 1})
		w.ask(&queueboxv1.WorkRequest{Sequence: 1})
		w.send(&queueboxv1.WorkRequest{Credit: 1})
		_, err := w.Recv()
		require.Equal(t, []string{"credit"}, requireReason(t, err, codes.InvalidArgument, "INVALID_ARGUMENT").fields)
	})
}

// TestWorkSurvivesTheDatabase: claims, settlements and renewals that fail are tried again, by
// the server or by the worker, on the same stream.
func TestWorkSurvivesTheDatabase(t *testing.T) {
	h := serve(t)
	h.enqueueMany(1)
	h.faults.Inject(faults.Claim, faults.Fault{Refuse: true, Times: 3})
	w := h.work(h.ctx(), 2)
	m := w.take(1)[0]
	h.faults.Inject(faults.Settle, faults.Fault{Refuse: true, Times: 1})
	h.faults.Inject(faults.Renew, faults.Fault{Refuse: true, Times: 1})
	req := settleFrame(1, m)
	req.Renewals = []*queueboxv1.RenewItem{renewItem(m)}
	out := w.ask(req)
	require.Equal(t, queueboxv1.ErrorReason_ERROR_REASON_STORAGE_UNAVAILABLE, out.GetSettleResults()[0].GetError().GetReason())
	require.Equal(t, m.GetClaimToken(), out.GetSettleResults()[0].GetClaimToken())
	require.Equal(t, queueboxv1.ErrorReason_ERROR_REASON_STORAGE_UNAVAILABLE, out.GetRenewResults()[0].GetError().GetReason())
	req.Sequence = 2
	out = w.ask(req)
	require.Nil(t, out.GetSettleResults()[0].GetError())
	require.Nil(t, out.GetRenewResults()[0].GetError())
	h.enqueueMany(1)
	w.take(1)
}

// TestC17AWorkStreamWaitsForItsQueue: a paused and an unknown queue are no errors.
func TestC17AWorkStreamWaitsForItsQueue(t *testing.T) {
	h := serve(t)
	w := h.work(h.ctx(), 10)
	h.eventually("it waits", func() bool { return h.server.api.dispatch.Waiters() == 1 })
	h.enqueue("q", "x")
	w.take(1)
	_, err := h.PauseQueue(h.ctx(), &queueboxv1.PauseQueueRequest{Queue: "q"})
	require.NoError(t, err)
	h.enqueue("q", "y")
	require.Empty(t, w.ask(&queueboxv1.WorkRequest{Sequence: 1}).GetDeliveries())
	_, err = h.ResumeQueue(h.ctx(), &queueboxv1.ResumeQueueRequest{Queue: "q"})
	require.NoError(t, err)
	w.take(1)
}

// TestWorkNeverLoops: a claim that comes back empty at once is not repeated at once.
func TestWorkNeverLoops(t *testing.T) {
	h := serve(t, func(c *Config) { c.MaxWait = time.Microsecond })
	h.enqueue("q", "x")
	h.claim()
	var claims atomic.Int64
	h.faults.Inject(faults.Claim, faults.Fault{Strike: func() { claims.Add(1) }})
	h.work(h.ctx(), 1)
	h.eventually("it claims", func() bool { return claims.Load() > 0 })
	start, before := time.Now(), claims.Load()
	h.eventually("a few times", func() bool { return claims.Load() >= before+4 })
	require.Greater(t, time.Since(start), 3*minWorkPause)
}
