package queuebox

import (
	"context"
	"time"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// handleState is where a handle stands.
type handleState int

const (
	// held: renewed, may be settled.
	held handleState = iota
	// settling: a settlement is under way; renewal has stopped for good (K4).
	settling
	// over: settled, lost, or its client closed. The cause of the context says which.
	over
)

// Handle is a claim on one message. It renews its lease by itself from the moment of the claim
// (K1) and ends with exactly one settlement (K5): Complete, Retry, DeadLetter or Release. It is
// safe for use by several goroutines.
type Handle struct {
	message *Message
	token   string
	renewer *renewer

	ctx    context.Context //nolint:containedctx // the lifetime of the claim, which outlasts every call
	cancel context.CancelCauseFunc

	// What follows is guarded by renewer.mu.

	// cancelRequested is closed when a stop is asked for; nil until somebody wants to know.
	cancelRequested chan struct{}
	state           handleState
	asked           bool
	// lease is the length that the server last granted.
	lease time.Duration
	// deadline is the local end of the lease: never later than the one in the database (K2).
	deadline time.Time
	// due is when the next renewal is to be sent; meaningless while sending.
	due     time.Time
	sending bool
	retries pauses
}

// newHandle counts the lease from the receipt of its message, less a margin for the way of the
// answer: the server worked out the remaining time when it built it (K2).
func newHandle(ctx context.Context, r *renewer, m *queueboxv1.ClaimedMessage, wanted time.Duration, received time.Time) *Handle {
	remaining := time.Duration(m.GetLeaseRemainingMs()) * time.Millisecond
	h := &Handle{
		message:  newMessage(r.queue, m.GetMessage()),
		token:    m.GetClaimToken(),
		renewer:  r,
		lease:    max(remaining, wanted),
		deadline: received.Add(remaining - margin(remaining)),
	}
	h.ctx, h.cancel = context.WithCancelCause(ctx)
	// A claim answered from memory (C14) may have little left; the first renewal cannot wait
	// for a third of the whole lease then.
	h.due = received.Add(renewInterval(min(h.lease, remaining)))
	h.retries = retryPauses(h.lease)
	return h
}

// margin is what the first local deadline leaves for the way of the answer.
func margin(remaining time.Duration) time.Duration {
	return min(remaining/10, time.Second)
}

// renewInterval is a third of the lease or a little less, so that two renewals may fail before
// the lease is in danger, and handles claimed together drift apart over processes (K1).
func renewInterval(lease time.Duration) time.Duration {
	return jittered(lease/3, 0.1)
}

// retryPauses are the pauses after failed renewals and settlements: short against the lease, so
// that many tries fit into it.
func retryPauses(lease time.Duration) pauses {
	return pauses{
		base:  min(max(lease/100, 5*time.Millisecond), 200*time.Millisecond),
		limit: min(max(lease/10, 20*time.Millisecond), 3*time.Second),
	}
}

// attemptTimeout is how long one renewal or settlement may take before it counts as unanswered:
// short enough for three tries within a lease, long enough for a server under load.
func attemptTimeout(lease time.Duration) time.Duration {
	return min(max(lease/4, 100*time.Millisecond), 10*time.Second)
}

// Message returns the message.
func (h *Handle) Message() *Message { return h.message }

// Context ends when the claim does. context.Cause tells why: an error that matches ErrClaimLost
// where the work must stop, ErrAlreadySettled after a settlement, ErrClosed after Client.Close.
// Work under a claim should run under this context. It has no deadline, since renewals move the
// end of the lease.
func (h *Handle) Context() context.Context { return h.ctx }

// CancelRequested is closed when a producer or an operator asked for this work to stop. The claim
// still holds: Complete still completes, DeadLetter still dead-letters, Retry and Release end the
// message as cancelled (S14). The client learns of it with a renewal, so within a third of the
// lease, and a worker that has a stream at once.
func (h *Handle) CancelRequested() <-chan struct{} {
	h.renewer.mu.Lock()
	defer h.renewer.mu.Unlock()
	if h.cancelRequested == nil {
		h.cancelRequested = make(chan struct{})
		if h.asked {
			close(h.cancelRequested)
		}
	}
	return h.cancelRequested
}

// done tells whether nothing is left to settle.
func (h *Handle) done() bool {
	h.renewer.mu.Lock()
	defer h.renewer.mu.Unlock()
	return h.state != held
}

// abandon stops the renewal of a handle that nobody will settle: its lease runs out.
func (h *Handle) abandon(cause error) {
	h.renewer.mu.Lock()
	defer h.renewer.mu.Unlock()
	if h.state == held {
		h.end(cause)
		h.renewer.stopIfIdle()
	}
}

// ask tells the work that it should stop. The renewer's mutex is held.
func (h *Handle) ask() {
	if !h.asked && h.cancelRequested != nil {
		close(h.cancelRequested)
	}
	h.asked = true
}

// end makes the handle over with the cause and takes it from its renewer. The renewer's mutex is
// held.
func (h *Handle) end(cause error) {
	h.state = over
	delete(h.renewer.handles, h)
	h.cancel(cause)
}
