package queuebox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	queuebox "github.com/queuebox/queuebox/client/go"
	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/server"
	"github.com/queuebox/queuebox/storage"
)

const patience = 30 * time.Second

func TestReal_AWorkerBringsEveryMessageToItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(t, w.addr)
	const n = 120
	ids := map[string]string{} // identifier to what is to become of it
	for i := range n {
		fate := []string{"complete", "retry", "panic", "reject", "own"}[i%5]
		m := queuebox.NewMessage{Payload: []byte(fate), IdempotencyKey: fmt.Sprint(i), Attributes: map[string]string{"n": fmt.Sprint(i)}}
		first, err := c.Enqueue(t.Context(), "q", m)
		require.NoError(t, err)
		again, err := c.Enqueue(t.Context(), "q", m)
		require.NoError(t, err)
		require.Equal(t, queuebox.Enqueued{MessageID: first.MessageID, Duplicate: true}, again)
		ids[first.MessageID] = fate
	}

	var runs atomic.Int32
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	worker := queuebox.NewWorker(c, queuebox.WorkerConfig{Queue: "q", Concurrency: 8})
	go func() {
		ended <- worker.Run(ctx, func(ctx context.Context, h *queuebox.Handle) error {
			runs.Add(1)
			m := h.Message()
			switch fate := string(m.Payload); {
			case fate == "retry" && m.Attempt < 3:
				return errors.New("not yet")
			case fate == "panic" && m.Attempt == 1:
				panic("first attempt")
			case fate == "reject":
				return queuebox.Reject("MALFORMED", errors.New("cannot be read"))
			case fate == "own":
				_, err := h.Complete(ctx, queuebox.WithResult([]byte("result")))
				return err
			default:
				return nil
			}
		})
	}()
	require.Eventually(t, func() bool {
		for id, fate := range ids {
			state := w.message(t, id).GetState()
			if fate == "reject" && state != queueboxv1.MessageState_MESSAGE_STATE_DEAD ||
				fate != "reject" && state != queueboxv1.MessageState_MESSAGE_STATE_COMPLETED {
				return false
			}
		}
		return true
	}, patience, 50*time.Millisecond)
	stop()
	require.NoError(t, <-ended)

	require.EqualValues(t, n/5*(1+3+2+1+1), runs.Load(), "every delivery ran once")
	for id, fate := range ids {
		m := w.message(t, id)
		switch fate {
		case "retry":
			require.EqualValues(t, 3, m.GetAttempt())
			require.Equal(t, "not yet", m.GetLastError())
		case "panic":
			require.EqualValues(t, 2, m.GetAttempt())
			require.Equal(t, "panic: first attempt", m.GetLastError())
		case "reject":
			require.Equal(t, "MALFORMED", m.GetReasonCode())
			require.Equal(t, "cannot be read", m.GetLastError())
		case "own":
			require.Equal(t, []byte("result"), m.GetResult())
		}
	}
}

func TestReal_S5_AConnectionCutBetweenCommitAndAnswer(t *testing.T) {
	for name, settle := range map[string]func(context.Context, *queuebox.Handle) (queuebox.Settled, error){
		"COMPLETED": func(ctx context.Context, h *queuebox.Handle) (queuebox.Settled, error) { return h.Complete(ctx) },
		"RETRIED": func(ctx context.Context, h *queuebox.Handle) (queuebox.Settled, error) {
			return h.Retry(ctx, queuebox.RetryOptions{Delay: time.Hour})
		},
		"DEAD": func(ctx context.Context, h *queuebox.Handle) (queuebox.Settled, error) {
			return h.DeadLetter(ctx, "CODE", "text")
		},
		"RELEASED": func(ctx context.Context, h *queuebox.Handle) (queuebox.Settled, error) {
			return h.Release(ctx, time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := w.dial(t, w.proxy.Addr())
			id := w.fill(t, c, 1)[0]
			h := claimOne(t, c, 10*time.Second)
			w.store.onSettle(w.proxy.Cut)
			settled, err := settle(t.Context(), h)
			require.NoError(t, err)
			require.True(t, settled.AlreadySettled, "the first try was written")
			require.Equal(t, queuebox.Outcome(name), settled.Outcome)
			require.ErrorIs(t, context.Cause(h.Context()), queuebox.ErrAlreadySettled)
			attempt := int32(1)
			if name == "RELEASED" {
				attempt = 0
			}
			require.Equal(t, attempt, w.message(t, id).GetAttempt())
			require.Equal(t, 2, w.proxy.Accepted(), "the repeat came over another connection")
		})
	}
}

func TestReal_C14_AConnectionCutBetweenTheClaimAndItsAnswer(t *testing.T) {
	w := newWorld(t)
	c := w.dial(t, w.proxy.Addr())
	ids := w.fill(t, c, 5)
	w.store.onClaim(func([]storage.Claimed) { w.proxy.Cut() })
	began := time.Now()
	hs, err := c.Claim(t.Context(), queuebox.ClaimOptions{Queue: "q", Max: 5, Lease: time.Minute, Wait: 20 * time.Second})
	require.NoError(t, err)
	require.Len(t, hs, 5)
	require.Less(t, time.Since(began), 10*time.Second, "not after the lease of the first claim")
	for i, h := range hs {
		require.Equal(t, ids[i], h.Message().ID)
		require.EqualValues(t, 1, h.Message().Attempt)
		_, err := h.Complete(t.Context())
		require.NoError(t, err)
	}
}

func TestReal_S7_NothingIsLostAndNothingDoubledWhileConnectionsBreak(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	direct := w.dial(t, w.addr)
	c := w.dial(t, w.proxy.Addr())
	const n = 200
	ids := w.fill(t, direct, n)
	// Cut by progress and not by time, so that a slow machine gets through as well; always
	// between a commit and its answer.
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

	var (
		mu   sync.Mutex
		runs = map[string]int{}
	)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	worker := queuebox.NewWorker(c, queuebox.WorkerConfig{Queue: "q", Concurrency: 4, Lease: time.Minute, Delivery: queuebox.DeliverPoll})
	go func() {
		ended <- worker.Run(ctx, func(_ context.Context, h *queuebox.Handle) error {
			mu.Lock()
			runs[h.Message().ID]++
			mu.Unlock()
			return nil
		})
	}()
	require.Eventually(t, func() bool {
		left, err := w.admin.ListMessages(t.Context(), &queueboxv1.ListMessagesRequest{
			Queue: "q", PageSize: 1, Filter: &queueboxv1.MessageFilter{
				States: []queueboxv1.MessageState{queueboxv1.MessageState_MESSAGE_STATE_PENDING, queueboxv1.MessageState_MESSAGE_STATE_PROCESSING},
			},
		})
		return err == nil && len(left.GetMessages()) == 0
	}, 2*patience, 50*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	for _, id := range ids {
		m := w.message(t, id)
		require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_COMPLETED, m.GetState())
		require.EqualValues(t, 1, m.GetAttempt(), "no claim was lost")
		require.Equal(t, 1, runs[id], "no handler ran twice")
	}
	require.Greater(t, w.proxy.Accepted(), 5, "connections did break")
}

func TestReal_K2_AWorkerThatIsCutOffStopsBeforeAnotherHasTheMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cutOff := w.dial(t, w.proxy.Addr(), queuebox.WithWorkerID("a"))
	other := w.dial(t, w.addr, queuebox.WithWorkerID("b"))
	id := w.fill(t, other, 1)[0]
	h := claimOne(t, cutOff, 4*time.Second)
	began := time.Now()
	require.Never(t, func() bool { return h.Context().Err() != nil }, 6*time.Second, 50*time.Millisecond, "it is renewed")
	w.proxy.BlackHole(true)

	var stopped time.Time
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		<-h.Context().Done()
		stopped = time.Now()
	}()
	h2 := claimOne(t, other, 10*time.Second)
	claimed := time.Now()
	<-watched
	// The local deadline is never after that of the database; a second is for a machine that is
	// too busy to run the goroutine that watches it. Virtual time checks it exactly.
	require.Less(t, stopped.Sub(claimed), time.Second, "stopped %v, claimed %v", stopped.Sub(began), claimed.Sub(began))
	require.ErrorIs(t, context.Cause(h.Context()), queuebox.ErrClaimLost)
	var e *queuebox.Error
	require.ErrorAs(t, context.Cause(h.Context()), &e)
	require.Equal(t, queuebox.CauseLocalDeadline, e.Cause)

	w.proxy.BlackHole(false)
	_, err := h.Complete(t.Context())
	require.ErrorIs(t, err, queuebox.ErrClaimLost)
	m := w.message(t, id)
	require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_PROCESSING, m.GetState())
	require.Equal(t, "b", m.GetWorkerId())
	require.EqualValues(t, 2, h2.Message().Attempt)
	_, err = h2.Complete(t.Context())
	require.NoError(t, err)
}

// shorten ends the lease of a claim in the database behind the back of its holder, who believes
// in it for longer.
func (w *world) shorten(t *testing.T, claims []storage.Claimed) {
	t.Helper()
	for _, c := range claims {
		_, err := w.store.Renew(t.Context(), storage.RenewParams{Items: []storage.Renewal{
			{Ref: c.Message.Ref, Token: c.Token, Lease: time.Millisecond, MaxLease: time.Hour},
		}})
		require.NoError(t, err)
	}
}

func TestReal_K3_AnAnswerLostEndsTheHandle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(t, w.addr)
	w.fill(t, c, 1)
	w.store.onClaim(func(claims []storage.Claimed) { w.shorten(t, claims) })
	h := claimOne(t, c, 6*time.Second)
	select {
	case <-h.Context().Done():
	case <-time.After(5 * time.Second):
		require.Fail(t, "the first renewal, after some 2 s, is answered with the loss")
	}
	var e *queuebox.Error
	require.ErrorAs(t, context.Cause(h.Context()), &e)
	require.Equal(t, queuebox.ReasonClaimLost, e.Reason)
	require.Equal(t, queuebox.CauseLeaseExpired, e.Cause)
	_, err := h.Complete(t.Context())
	require.ErrorIs(t, err, queuebox.ErrClaimLost)
}

func TestReal_S2_ASettlementAfterTheLeaseIsRefusedByTheServer(t *testing.T) {
	w := newWorld(t)
	c := w.dial(t, w.addr)
	id := w.fill(t, c, 1)[0]
	w.store.onClaim(func(claims []storage.Claimed) { w.shorten(t, claims) })
	h := claimOne(t, c, time.Minute) // believes in it for a minute
	h2 := claimOne(t, c, time.Minute)
	_, err := h.Complete(t.Context())
	require.ErrorIs(t, err, queuebox.ErrClaimLost)
	var e *queuebox.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, queuebox.CauseSuperseded, e.Cause)
	require.ErrorIs(t, context.Cause(h.Context()), queuebox.ErrClaimLost)
	_, err = h2.Complete(t.Context())
	require.NoError(t, err)
	require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_COMPLETED, w.message(t, id).GetState())
}

func TestReal_K7_StopReleasesWhatIsLeftAndTheAttemptDoesNotCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(t, w.addr, queuebox.WithWorkerID("a"))
	id := w.fill(t, c, 1)[0]
	ctx, stop := context.WithCancel(t.Context())
	started := make(chan struct{})
	deaf := make(chan struct{})
	defer close(deaf)
	ended := make(chan error, 1)
	worker := queuebox.NewWorker(c, queuebox.WorkerConfig{Queue: "q", Lease: time.Minute, StopTimeout: 2 * time.Second})
	go func() {
		ended <- worker.Run(ctx, func(context.Context, *queuebox.Handle) error {
			close(started)
			<-deaf
			return nil
		})
	}()
	<-started
	began := time.Now()
	stop()
	require.ErrorIs(t, <-ended, queuebox.ErrStopped)
	took := time.Since(began)
	require.GreaterOrEqual(t, took, 1600*time.Millisecond)
	require.Less(t, took, 4*time.Second, "2 s and what a loaded machine adds")

	other := w.dial(t, w.addr, queuebox.WithWorkerID("b"))
	h := claimOne(t, other, time.Minute)
	require.Equal(t, id, h.Message().ID)
	require.EqualValues(t, 1, h.Message().Attempt)
	require.Less(t, time.Since(began), 20*time.Second, "at once, not after the lease")
	_, err := h.Complete(t.Context())
	require.NoError(t, err)
}

func TestReal_K8_NoSecondRunBesideTheOldHandler(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(t, w.addr)
	id := w.fill(t, c, 1)[0]
	claimedAgain := make(chan struct{})
	w.store.onClaim(func(claims []storage.Claimed) {
		w.shorten(t, claims)
		w.store.onClaim(func([]storage.Claimed) { close(claimedAgain) })
	})
	var inside, most, runs atomic.Int32
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	worker := queuebox.NewWorker(c, queuebox.WorkerConfig{Queue: "q", Concurrency: 3, Lease: 6 * time.Second})
	go func() {
		ended <- worker.Run(ctx, func(context.Context, *queuebox.Handle) error {
			most.Store(max(most.Load(), inside.Add(1)))
			defer inside.Add(-1)
			if runs.Add(1) == 1 {
				<-claimedAgain // by this very worker, which has two free slots
				time.Sleep(3 * time.Second)
			}
			return nil
		})
	}()
	require.Eventually(t, func() bool {
		return w.message(t, id).GetState() == queueboxv1.MessageState_MESSAGE_STATE_COMPLETED
	}, patience, 50*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	require.EqualValues(t, 2, runs.Load())
	require.EqualValues(t, 1, most.Load())
	require.EqualValues(t, 2, w.message(t, id).GetAttempt())
}

func TestReal_T5_AServerThatIsReplacedCostsNoClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(t, w.addr)
	var done atomic.Int32
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	worker := queuebox.NewWorker(c, queuebox.WorkerConfig{Queue: "q", Concurrency: 4, Lease: 20 * time.Second})
	go func() {
		ended <- worker.Run(ctx, func(ctx context.Context, _ *queuebox.Handle) error {
			select {
			case <-time.After(300 * time.Millisecond):
				done.Add(1)
			case <-ctx.Done():
			}
			return nil
		})
	}()
	var ids []string
	for range 3 {
		ids = append(ids, w.fill(t, c, 20)...)
		w.stop()
		w.start(t)
	}
	require.Eventually(t, func() bool { return int(done.Load()) == len(ids) }, patience, 50*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	for _, id := range ids {
		m := w.message(t, id)
		require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_COMPLETED, m.GetState())
		require.EqualValues(t, 1, m.GetAttempt())
	}
}

func TestReal_C13_AnAnswerAboveTheLimitOfGRPCComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(t, w.addr)
	// More than the 4 MiB that gRPC takes by default, and not so much that a small machine needs
	// many seconds to store it.
	payload := bytes.Repeat([]byte("0123456789abcdef"), 6<<20/16)
	_, err := c.Enqueue(t.Context(), "q", queuebox.NewMessage{Payload: payload})
	require.NoError(t, err)
	h := claimOne(t, c, time.Minute)
	require.True(t, bytes.Equal(payload, h.Message().Payload))
	_, err = h.Complete(t.Context())
	require.NoError(t, err)

	_, err = c.Enqueue(t.Context(), "q", queuebox.NewMessage{Payload: make([]byte, server.MaxPayloadLimit+1)})
	require.ErrorIs(t, err, queuebox.ErrPayloadTooLarge)
	require.LessOrEqual(t, server.MaxPayloadLimit+1<<20, queuebox.DefaultMaxAnswerBytes, "the largest answer of any server fits")
}

func TestReal_ErrorsOfTheServerAreTyped(t *testing.T) {
	w := newWorld(t)
	c := w.dial(t, w.addr)
	_, err := c.Enqueue(t.Context(), "", queuebox.NewMessage{})
	require.ErrorIs(t, err, queuebox.ErrInvalidArgument)
	var e *queuebox.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, queuebox.ReasonInvalidArgument, e.Reason)
	require.NotEmpty(t, e.Violations)
	require.Equal(t, "queue", e.Violations[0].Field)

	w.fill(t, c, 1)
	_, err = c.Claim(t.Context(), queuebox.ClaimOptions{Queue: "q", Lease: 1000 * time.Hour})
	require.ErrorIs(t, err, queuebox.ErrLeaseOutOfRange)
	_, err = c.Claim(t.Context(), queuebox.ClaimOptions{Queue: "q", Max: -1})
	require.ErrorIs(t, err, queuebox.ErrInvalidArgument)

	_, err = c.Enqueue(t.Context(), "q", queuebox.NewMessage{IdempotencyKey: "k", Payload: []byte("a")})
	require.NoError(t, err)
	_, err = c.Enqueue(t.Context(), "q", queuebox.NewMessage{IdempotencyKey: "k", Payload: []byte("b")})
	require.ErrorIs(t, err, queuebox.ErrIdempotencyKeyReused)

	// A refused settlement leaves the claim, against the real server too.
	h := claimOne(t, c, time.Minute)
	_, err = h.DeadLetter(t.Context(), string(bytes.Repeat([]byte("x"), 256)), "")
	require.ErrorIs(t, err, queuebox.ErrInvalidArgument)
	require.NoError(t, h.Context().Err())
	_, err = h.Complete(t.Context())
	require.NoError(t, err)
}
