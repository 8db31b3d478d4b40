package server

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/worktest"
	"github.com/queuebox/queuebox/storage/faults"
)

// work opens a Work stream on the queue "q" with some credit.
func (h *harness) work(ctx context.Context, credit int32, change ...func(*queueboxv1.WorkStart)) worktest.Stream {
	h.t.Helper()
	start := &queueboxv1.WorkStart{Queue: "q", WorkerId: "w"}
	for _, c := range change {
		c(start)
	}
	return worktest.Open(ctx, h.t, h.WorkerServiceClient, start, credit)
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

func TestT3NeverMoreDeliveriesThanCredit(t *testing.T) {
	h := serve(t)
	w := h.work(h.ctx(), 3)
	h.enqueueMany(10)
	ms := w.Take(3)
	for i, m := range ms {
		require.Equal(t, fmt.Sprint(i), string(m.GetMessage().GetPayload()), "C9")
		require.Equal(t, "w", m.GetMessage().GetWorkerId())
		require.EqualValues(t, 1, m.GetMessage().GetAttempt())
		require.Positive(t, m.GetLeaseRemainingMs())
	}
	out := w.Ask(worktest.Completions(1, ms...))
	require.Len(t, out.GetSettleResults(), 3)
	for i, r := range out.GetSettleResults() {
		require.Equal(t, queueboxv1.SettleOutcome_SETTLE_OUTCOME_COMPLETED, r.GetOutcome(), "%v", r)
		require.Equal(t, ms[i].GetMessage().GetMessageId(), r.GetMessageId())
	}
	// A settlement gives none back, so nothing comes but answers; then the worker asks again.
	require.Empty(t, w.Ask(&queueboxv1.WorkRequest{Sequence: 2}).GetDeliveries())
	w.Write(&queueboxv1.WorkRequest{Credit: 2})
	w.Write(&queueboxv1.WorkRequest{Credit: 1})
	require.Equal(t, "3", string(w.Take(3)[0].GetMessage().GetPayload()))
	w.Leave()
	require.True(t, h.metric("queuebox_work_delivered_total 6"), "%s", h.scrape())
	require.True(t, h.metric("queuebox_work_streams 0"))
}

func TestT1EachFrameGetsOneAnswerInPlace(t *testing.T) {
	h := serve(t)
	h.enqueueMany(3)
	w := h.work(h.ctx(), 3)
	ms := w.Take(3)
	bad := completeItem(ms[0])
	bad.GetComplete().MessageId = "?"
	unknown := completeItem(ms[0])
	unknown.GetComplete().Queue = "none"
	retry := &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_Retry{Retry: &queueboxv1.RetryRequest{
		MessageId: ms[1].GetMessage().GetMessageId(), ClaimToken: ms[1].GetClaimToken(), DelayMs: new(int64(60_000)),
	}}}
	out := w.Ask(&queueboxv1.WorkRequest{
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
	for i := range 2 * workFlights {
		w.Write(worktest.Completions(int64(10_000+i), ms[0]))
	}
	seen := map[int64]int{}
	for range 2 * workFlights {
		f := w.Next()
		seen[f.GetSequence()]++
		require.True(t, f.GetSettleResults()[0].GetAlreadySettled(), "S5")
	}
	require.Len(t, seen, 2*workFlights)

	// What was sent before the half-close is answered.
	w.Write(worktest.Completions(200, ms[2]))
	require.NoError(t, w.CloseSend())
	require.EqualValues(t, 200, w.Next().GetSequence())
	w.Ends()
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
		w.Write(worktest.Completions(1, m))
		w.Write(&queueboxv1.WorkRequest{Credit: -1})
		require.Equal(t, queueboxv1.SettleOutcome_SETTLE_OUTCOME_COMPLETED, w.Next().GetSettleResults()[0].GetOutcome())
		_, err := w.Recv()
		requireReason(t, err, codes.InvalidArgument, "INVALID_ARGUMENT")
	})
	t.Run("the bound counts what is in hand", func(t *testing.T) {
		w := h.work(h.ctx(), maxCredit)
		w.Take(1)
		w.Write(&queueboxv1.WorkRequest{Credit: 1})
		w.Ask(&queueboxv1.WorkRequest{Sequence: 1})
		w.Write(&queueboxv1.WorkRequest{Credit: 1})
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
	m := w.Take(1)[0]
	h.faults.Inject(faults.Settle, faults.Fault{Refuse: true, Times: 1})
	h.faults.Inject(faults.Renew, faults.Fault{Refuse: true, Times: 1})
	req := worktest.Completions(1, m)
	req.Renewals = []*queueboxv1.RenewItem{renewItem(m)}
	out := w.Ask(req)
	require.Equal(t, queueboxv1.ErrorReason_ERROR_REASON_STORAGE_UNAVAILABLE, out.GetSettleResults()[0].GetError().GetReason())
	require.Equal(t, m.GetClaimToken(), out.GetSettleResults()[0].GetClaimToken())
	require.Equal(t, queueboxv1.ErrorReason_ERROR_REASON_STORAGE_UNAVAILABLE, out.GetRenewResults()[0].GetError().GetReason())
	req.Sequence = 2
	out = w.Ask(req)
	require.Nil(t, out.GetSettleResults()[0].GetError())
	require.Nil(t, out.GetRenewResults()[0].GetError())
	h.enqueueMany(1)
	w.Take(1)
}

// TestC17AWorkStreamWaitsForItsQueue: a paused and an unknown queue are no errors.
func TestC17AWorkStreamWaitsForItsQueue(t *testing.T) {
	h := serve(t)
	w := h.work(h.ctx(), 10)
	h.eventually("it waits", func() bool { return h.server.api.dispatch.Waiters() == 1 })
	h.enqueue("q", "x")
	w.Take(1)
	_, err := h.PauseQueue(h.ctx(), &queueboxv1.PauseQueueRequest{Queue: "q"})
	require.NoError(t, err)
	h.enqueue("q", "y")
	require.Empty(t, w.Ask(&queueboxv1.WorkRequest{Sequence: 1}).GetDeliveries())
	_, err = h.ResumeQueue(h.ctx(), &queueboxv1.ResumeQueueRequest{Queue: "q"})
	require.NoError(t, err)
	w.Take(1)
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
