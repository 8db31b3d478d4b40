package server

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/worktest"
	"github.com/queuebox/queuebox/storage/faults"
)

func TestC15AFrameThatCannotBeSentGoesBack(t *testing.T) {
	h := serve(t)
	h.enqueueMany(1)
	ctx, cancel := context.WithCancel(t.Context())
	s := &slowWork{ctx: ctx, recv: make(chan *queueboxv1.WorkRequest), sending: make(chan struct{}, 10)}
	ended := make(chan error, 1)
	go func() { ended <- h.server.api.Work(s) }()
	s.recv <- &queueboxv1.WorkRequest{Start: &queueboxv1.WorkStart{Queue: "q", WorkerId: "w"}, Credit: 5}
	<-s.sending
	cancel()
	require.Equal(t, codes.Canceled, status.Code(status.FromContextError(<-ended).Err()))
	var m *queueboxv1.ClaimedMessage
	h.eventually("it is back", func() bool {
		out, err := h.Claim(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q"})
		require.NoError(t, err)
		if len(out.GetMessages()) == 1 {
			m = out.GetMessages()[0]
		}
		return m != nil
	})
	require.EqualValues(t, 1, m.GetMessage().GetAttempt(), "the attempt is refunded")
	require.True(t, h.metric("queuebox_watched_claims 0"))
	require.True(t, h.metric("queuebox_work_delivered_total 0"))
}

// slowWork is a stream whose frames nobody reads.
type slowWork struct {
	workStream
	ctx     context.Context //nolint:containedctx // a stream has one
	recv    chan *queueboxv1.WorkRequest
	sending chan struct{}
}

func (s *slowWork) Context() context.Context { return s.ctx }

func (s *slowWork) Send(*queueboxv1.WorkResponse) error {
	s.sending <- struct{}{}
	<-s.ctx.Done()
	return s.ctx.Err()
}

func (s *slowWork) Recv() (*queueboxv1.WorkRequest, error) {
	select {
	case r := <-s.recv:
		return r, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

func TestT4SlowReaderOfAWorkStreamIsCutOff(t *testing.T) {
	h := serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := &slowWork{ctx: ctx, recv: make(chan *queueboxv1.WorkRequest), sending: make(chan struct{}, 10)}
	ended := make(chan error, 1)
	go func() { ended <- h.server.api.Work(s) }()
	s.recv <- &queueboxv1.WorkRequest{Start: &queueboxv1.WorkStart{Queue: "q"}}
	taken := 0
	for {
		select {
		case s.recv <- &queueboxv1.WorkRequest{Sequence: int64(taken + 1)}:
			taken++
		case err := <-ended:
			require.LessOrEqual(t, taken, workFlights+1, "nothing is buffered without bound")
			require.Equal(t, codes.ResourceExhausted, codeOf(classify(err).reason))
			require.True(t, h.metric("queuebox_streams_cut_total 1"))
			return
		}
	}
}

func TestT5DrainTellsWorkStreams(t *testing.T) {
	h := serve(t, func(c *Config) { c.DrainTimeout = 20 * time.Second })
	h.enqueueMany(1)
	w := h.work(h.ctx(), 5, func(s *queueboxv1.WorkStart) { s.ReleaseOnClose = true })
	m := w.Take(1)[0]
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		h.stop()
	}()
	out := w.Next()
	require.Zero(t, out.GetSequence())
	require.True(t, out.GetDraining())
	// What has a lease is still served; nothing is delivered any more.
	h.enqueueMany(1)
	got := w.Ask(&queueboxv1.WorkRequest{Sequence: 2, Credit: 5, Renewals: []*queueboxv1.RenewItem{renewItem(m)}})
	require.Positive(t, got.GetRenewResults()[0].GetRenewed().GetLeaseRemainingMs())
	w.Ends()
	// The worker goes on elsewhere, so its lease was left alone.
	_, err := h.Complete(h.ctx(), completeItem(m).GetComplete())
	require.NoError(t, err)
	<-stopped
}

func TestT5WorkStreamLeavesBeforeItsConnection(t *testing.T) {
	h := serve(t, func(c *Config) { c.MaxConnectionAge = 2 * time.Second })
	h.enqueueMany(1)
	w := h.work(h.ctx(), 5, func(s *queueboxv1.WorkStart) { s.ReleaseOnClose = true })
	m := w.Take(1)[0]
	require.True(t, w.Next().GetDraining())
	w.Leave()
	_, err := h.Complete(h.ctx(), completeItem(m).GetComplete())
	require.NoError(t, err, "told to leave, the worker ends the stream and works on")
}

// TestT3ReleaseOnClose: with the stream its leases end, the attempts stay counted.
func TestT3ReleaseOnClose(t *testing.T) {
	for name, leave := range map[string]func(w worktest.Stream, cancel func()){
		"half-close": func(w worktest.Stream, _ func()) {
			w.Leave()
		},
		"cancelled": func(_ worktest.Stream, cancel func()) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			h := serve(t)
			h.enqueueMany(5)
			ctx, cancel := context.WithCancel(h.ctx())
			defer cancel()
			w := h.work(ctx, 5, func(s *queueboxv1.WorkStart) { s.ReleaseOnClose = true })
			ms := w.Take(5)
			w.Ask(worktest.Completions(1, ms[0]))
			// Renewed on the stream it is the stream's as before, renewed elsewhere it is not,
			// and a settlement elsewhere is seen too.
			w.Ask(&queueboxv1.WorkRequest{Sequence: 2, Renewals: []*queueboxv1.RenewItem{renewItem(ms[1])}})
			_, err := h.Renew(h.ctx(), &queueboxv1.RenewRequest{Queue: "q", MessageId: ms[2].GetMessage().GetMessageId(), ClaimToken: ms[2].GetClaimToken(), LeaseMs: 90_000})
			require.NoError(t, err)
			_, err = h.Complete(h.ctx(), completeItem(ms[3]).GetComplete())
			require.NoError(t, err)

			got := h.waitIn(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q", WaitMs: 20_000, MaxMessages: 10})
			leave(w, cancel)
			c := <-got
			require.NoError(t, c.err)
			again := c.out.GetMessages()
			for len(again) < 2 {
				out, err := h.Claim(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q", WaitMs: 5_000, MaxMessages: 10})
				require.NoError(t, err)
				require.NotEmpty(t, out.GetMessages())
				again = append(again, out.GetMessages()...)
			}
			require.ElementsMatch(t, []string{ms[1].GetMessage().GetMessageId(), ms[4].GetMessage().GetMessageId()},
				[]string{again[0].GetMessage().GetMessageId(), again[1].GetMessage().GetMessageId()})
			for _, m := range again {
				require.EqualValues(t, 2, m.GetMessage().GetAttempt(), "it stays counted")
			}
			_, err = h.Complete(h.ctx(), completeItem(ms[4]).GetComplete())
			requireReason(t, err, codes.FailedPrecondition, "CLAIM_LOST")
			_, err = h.Complete(h.ctx(), completeItem(ms[2]).GetComplete())
			require.NoError(t, err)
			h.eventually("two were ended", func() bool { return h.metric("queuebox_work_leases_ended_total 2") })
		})
	}
}

// TestT3ACutStreamLeavesItsLeases unless it has asked for the other.
func TestT3ACutStreamLeavesItsLeases(t *testing.T) {
	h := serve(t)
	h.enqueueMany(1)
	ctx, cancel := context.WithCancel(h.ctx())
	w := h.work(ctx, 5)
	m := w.Take(1)[0]
	before := h.dump()
	cancel()
	h.eventually("it is gone", func() bool { return h.metric("queuebox_work_streams 0") })
	require.Equal(t, before, h.dump())
	_, err := h.Complete(h.ctx(), completeItem(m).GetComplete())
	require.NoError(t, err)
}

// TestC18ReleaseOnCloseOfALastAttempt ends the message.
func TestC18ReleaseOnCloseOfALastAttempt(t *testing.T) {
	h := serve(t)
	out, err := h.Enqueue(h.ctx(), &queueboxv1.EnqueueRequest{Queue: "q", MaxAttempts: 1})
	require.NoError(t, err)
	w := h.work(h.ctx(), 5, func(s *queueboxv1.WorkStart) { s.ReleaseOnClose = true })
	w.Take(1)
	w.Leave()
	h.eventually("it is dead", func() bool {
		m, err := h.GetMessage(h.ctx(), &queueboxv1.GetMessageRequest{Queue: "q", MessageId: out.GetMessageId()})
		require.NoError(t, err)
		return m.GetMessage().GetState() == queueboxv1.MessageState_MESSAGE_STATE_DEAD
	})
}

func TestT3OutstandingBytes(t *testing.T) {
	h := serve(t)
	size := func(n int) string { return string(make([]byte, n)) }
	for _, n := range []int{400, 400, 400, 2000} {
		h.enqueue("q", size(n))
	}
	w := h.work(h.ctx(), 100, func(s *queueboxv1.WorkStart) { s.MaxOutstandingBytes = 1000 })
	first := w.Take(2)
	out := w.Ask(worktest.Completions(1, first[0]))
	require.Nil(t, out.GetSettleResults()[0].GetError())
	third := w.Take(1)[0]
	// The next one is larger than the bound, so it comes when nothing else is outstanding,
	// also where another call settles what is.
	w.Ask(worktest.Completions(2, third))
	_, err := h.Complete(h.ctx(), completeItem(first[1]).GetComplete())
	require.NoError(t, err)
	large := w.Take(1)[0]
	require.Len(t, large.GetMessage().GetPayload(), 2000)
	require.EqualValues(t, 1, large.GetMessage().GetAttempt(), "what did not fit was refunded")
	h.enqueue("q", size(10))
	require.Empty(t, w.Ask(&queueboxv1.WorkRequest{Sequence: 3}).GetDeliveries(), "the bound is reached")
	w.Ask(worktest.Completions(4, large))
	w.Take(1)
}

func TestT6WorkStreamsHearOfWhatTheyWereDelivered(t *testing.T) {
	h := serve(t)
	h.enqueueMany(3)
	w := h.work(h.ctx(), 2)
	ms := w.Take(2)
	other := h.work(h.ctx(), 1)
	other.Take(1)
	_, err := h.RevokeClaim(h.ctx(), &queueboxv1.RevokeClaimRequest{Queue: "q", MessageId: ms[0].GetMessage().GetMessageId()})
	require.NoError(t, err)
	out := w.Next()
	require.Zero(t, out.GetSequence())
	require.Len(t, out.GetRevocations(), 1)
	require.Equal(t, ms[0].GetClaimToken(), out.GetRevocations()[0].GetClaimToken())
	require.True(t, out.GetRevocations()[0].GetClaimLost())
	_, err = h.Cancel(h.ctx(), &queueboxv1.CancelRequest{Queue: "q", Target: &queueboxv1.CancelRequest_MessageId{MessageId: ms[1].GetMessage().GetMessageId()}})
	require.NoError(t, err)
	out = w.Next()
	require.Equal(t, ms[1].GetClaimToken(), out.GetRevocations()[0].GetClaimToken())
	require.False(t, out.GetRevocations()[0].GetClaimLost())
	require.Empty(t, other.Ask(&queueboxv1.WorkRequest{Sequence: 1}).GetRevocations())
}

// TestWorkPanicsInTheStoreFailWhatWasAskedOfIt and nothing else: others may be joined with it.
func TestWorkPanicsInTheStoreFailWhatWasAskedOfIt(t *testing.T) {
	h := serve(t)
	h.enqueueMany(1)
	m := h.claim()
	h.faults.Inject(faults.Settle, faults.Fault{Times: 1, Strike: func() { panic("on purpose") }})
	w := h.work(h.ctx(), 5)
	out := w.Ask(worktest.Completions(1, m))
	require.Equal(t, queueboxv1.ErrorReason_ERROR_REASON_INTERNAL, out.GetSettleResults()[0].GetError().GetReason())
	require.True(t, h.metric("queuebox_panics_total 1"))
	_, err := h.Complete(h.ctx(), completeItem(m).GetComplete())
	require.NoError(t, err)
}
