package queuebox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// AtOnce as a retry delay makes the message claimable now. The zero delay means the retry policy
// of the queue instead.
const AtOnce time.Duration = -1

// Outcome is what became of a message. The values are those of the enum SettleOutcome without
// its prefix.
type Outcome string

// The outcomes of a settlement.
const (
	OutcomeCompleted Outcome = "COMPLETED"
	OutcomeRetried   Outcome = "RETRIED"
	OutcomeDead      Outcome = "DEAD"
	OutcomeReleased  Outcome = "RELEASED"
	OutcomeCancelled Outcome = "CANCELLED"
)

// Settled says what became of a message.
type Settled struct {
	// Outcome is what the database wrote: a retry without an attempt left is DEAD (S4), a retry
	// or release of work whose cancel was asked for is CANCELLED (S14).
	Outcome Outcome
	// AlreadySettled is true where an earlier try of this settlement had been written, its
	// answer lost (S5). It is a success like any other.
	AlreadySettled bool
	// AvailableTime is when the message is next claimable, by the database clock; zero unless
	// retried or released.
	AvailableTime time.Time
	// CompleteTime is when it was completed, by the database clock; zero unless completed.
	CompleteTime time.Time
	// FollowUpIDs are the identifiers of the follow-ups of a completion, in their order. One
	// whose idempotency key was there already is the message that holds the key (E1).
	FollowUpIDs []string
}

// CompleteOption adds to a completion.
type CompleteOption func(*queueboxv1.CompleteRequest)

// WithResult keeps output with the completed message for the retention time of the queue.
func WithResult(result []byte) CompleteOption {
	return func(r *queueboxv1.CompleteRequest) { r.Result = result }
}

// FollowUp is a message that a completion enqueues.
type FollowUp struct {
	NewMessage

	// Queue it goes to; empty is the queue of the completed message.
	Queue string
}

// WithFollowUps enqueues messages in the transaction that completes this one: all of them are
// there when it is completed, none of them where the claim is lost (S10). At most 1000. One
// that reuses an idempotency key for other content refuses the completion with
// ReasonIdempotencyKeyReused; the handle is then as before.
func WithFollowUps(followUps ...FollowUp) CompleteOption {
	return func(r *queueboxv1.CompleteRequest) {
		for i := range followUps {
			queue := followUps[i].Queue
			if queue == "" {
				queue = r.GetQueue()
			}
			r.FollowUps = append(r.FollowUps, followUps[i].request(queue))
		}
	}
}

// RetryOptions says how a message comes back.
type RetryOptions struct {
	// Delay before it is claimable again, rounded up to milliseconds. 0 takes the retry policy
	// of the queue; AtOnce, like any negative value, is no delay.
	Delay time.Duration
	// Error is text to keep with the message; the server cuts it at 2000 bytes (S9).
	Error string
}

// Complete finishes the message.
//
// Like every settlement it stops the renewal first (K4) and is repeated with the same token while
// no answer comes, until the local deadline of the lease or the end of ctx (S5); then its error
// matches ErrOutcomeUnknown. It returns an error that matches ErrClaimLost, without a call where
// the loss is known already (K3), and ErrAlreadySettled at the second settlement of a handle
// (K5). A settlement that the server refused without looking at the claim, such as one with a
// field too long, does not count: the handle is as before.
func (h *Handle) Complete(ctx context.Context, opts ...CompleteOption) (Settled, error) {
	req := &queueboxv1.CompleteRequest{Queue: h.message.Queue, MessageId: h.message.ID, ClaimToken: h.token}
	for _, o := range opts {
		o(req)
	}
	return h.settle(ctx, "complete", &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_Complete{Complete: req}})
}

// Retry returns the message for another attempt, or ends it as dead where none is left (S4); the
// outcome says which. Errors are those of Complete.
func (h *Handle) Retry(ctx context.Context, o RetryOptions) (Settled, error) {
	req := &queueboxv1.RetryRequest{Queue: h.message.Queue, MessageId: h.message.ID, ClaimToken: h.token, Error: wireText(o.Error)}
	if o.Delay != 0 {
		delay := max(milliseconds(o.Delay), 0)
		req.DelayMs = &delay
	}
	return h.settle(ctx, "retry", &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_Retry{Retry: req}})
}

// DeadLetter sets the message aside for operators: reasonCode is short and for filters, at most
// 255 bytes, errText is for people. Errors are those of Complete.
func (h *Handle) DeadLetter(ctx context.Context, reasonCode, errText string) (Settled, error) {
	req := &queueboxv1.DeadLetterRequest{
		Queue: h.message.Queue, MessageId: h.message.ID, ClaimToken: h.token, ReasonCode: wireText(reasonCode), Error: wireText(errText),
	}
	return h.settle(ctx, "dead-letter", &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_DeadLetter{DeadLetter: req}})
}

// Release gives the message back untouched: it is claimable again after delay, and this delivery
// does not count as an attempt. Errors are those of Complete.
func (h *Handle) Release(ctx context.Context, delay time.Duration) (Settled, error) {
	req := &queueboxv1.ReleaseRequest{
		Queue: h.message.Queue, MessageId: h.message.ID, ClaimToken: h.token, DelayMs: max(milliseconds(delay), 0),
	}
	return h.settle(ctx, "release", &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_Release{Release: req}})
}

// settle is the one way out of a handle. Each try goes through the client, which joins those of
// all its handles; when and how long to repeat is for each handle to say.
func (h *Handle) settle(ctx context.Context, op string, item *queueboxv1.SettleItem) (Settled, error) {
	if err := ctx.Err(); err != nil {
		return Settled{}, fmt.Errorf("queuebox: %s: %w", op, err) // nothing was sent, nothing is spent
	}
	lease, deadline, err := h.begin(op)
	if err != nil {
		return Settled{}, err
	}
	client := h.renewer.client
	st := &settlement{
		op: op, item: item, queue: h.message.Queue, token: h.token, bytes: sizeOf(item),
		followUps: len(item.GetComplete().GetFollowUps()), timeout: attemptTimeout(lease), deadline: deadline,
	}
	pause := retryPauses(lease)
	maybeWritten := false
	for {
		// A try that was sent in time may be answered after the deadline: the answer is worth
		// more than not knowing.
		answer := client.settler.try(ctx, st)
		if answer.err == nil {
			h.finish(ErrAlreadySettled)
			return answer.settled, nil
		}
		if !answer.sent && !maybeWritten {
			return Settled{}, h.unsent(answer.err)
		}
		why := answer.err
		var d time.Duration
		if e, ok := errors.AsType[*Error](answer.err); ok && answer.sent {
			switch {
			case e.final():
				h.finish(e)
				return Settled{}, e
			case e.refused() && !e.busy() && !maybeWritten:
				h.reopen()
				return Settled{}, e
			}
			maybeWritten = maybeWritten || !e.busy()
			if !answer.logged {
				client.logger.WarnContext(ctx, "settlement brought no answer", "op", op, "queue", h.message.Queue, "message_id", h.message.ID, "error", e)
			}
			d = pause.next(e.RetryDelay)
		}
		if answer.sent && now().Add(d).Before(deadline) {
			if why = client.sleep(ctx, d); why == nil {
				continue
			}
		}
		if !maybeWritten {
			return Settled{}, h.unsent(why)
		}
		unknown := fmt.Errorf("queuebox: %s: %w: %w", op, ErrOutcomeUnknown, why)
		h.finish(unknown)
		return Settled{}, unknown
	}
}

// unsent is the end of a settlement of which nothing can have been written: the claim stands as
// before, unless its time or the client's has come.
func (h *Handle) unsent(err error) error {
	lost, ok := errors.AsType[*Error](err)
	switch {
	case errors.Is(err, ErrClosed):
		h.finish(ErrClosed)
	case ok && errors.Is(lost, ErrClaimLost):
		h.renewer.mu.Lock()
		h.renewer.lose(h, lost)
		h.renewer.mu.Unlock()
	default:
		h.reopen()
	}
	return err
}

// begin takes the handle for its one settlement: from here on it is not renewed.
func (h *Handle) begin(op string) (lease time.Duration, deadline time.Time, err error) {
	h.renewer.mu.Lock()
	defer h.renewer.mu.Unlock()
	switch {
	case h.state == settling:
		return 0, time.Time{}, fmt.Errorf("queuebox: %s: %w", op, ErrAlreadySettled)
	case h.state == over:
		return 0, time.Time{}, fmt.Errorf("queuebox: %s: %w", op, context.Cause(h.ctx))
	case !now().Before(h.deadline):
		// The goroutine that watches the deadline may not have run yet, above all after this
		// process was stopped and woken.
		lost := localLoss(op)
		h.renewer.lose(h, lost)
		return 0, time.Time{}, lost
	}
	h.state = settling
	delete(h.renewer.handles, h)
	h.renewer.stopIfIdle()
	return h.lease, h.deadline, nil
}

// finish ends the context of a handle that has been settled, or cannot be any more.
func (h *Handle) finish(cause error) {
	h.renewer.mu.Lock()
	defer h.renewer.mu.Unlock()
	h.end(cause)
}

// reopen puts the handle back under renewal.
func (h *Handle) reopen() {
	h.renewer.mu.Lock()
	h.state = held
	h.renewer.mu.Unlock()
	h.renewer.add(h)
}

// final tells that the claim is over, by whatever hand.
func (e *Error) final() bool {
	switch e.Reason {
	case ReasonClaimLost, ReasonClaimSettled, ReasonMessageNotFound:
		return true
	default:
		return false
	}
}

// refused tells that the call was turned away before it changed anything, and would be again.
func (e *Error) refused() bool {
	switch e.Code() {
	case codes.InvalidArgument, codes.Unimplemented, codes.PermissionDenied, codes.Unauthenticated,
		codes.ResourceExhausted, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange:
		return true
	default:
		return false
	}
}

// busy tells that the server had no room for the call and asks for it again; nothing was changed.
func (e *Error) busy() bool {
	return e.Code() == codes.ResourceExhausted && (e.RetryDelay > 0 || e.Reason == ReasonTooManyWaiters)
}

// unanswered tells that no answer of the server came back, or one that asks to come again. The
// caller has made sure that its own context still runs.
func (e *Error) unanswered() bool {
	switch e.Code() {
	case codes.Unavailable:
		return true
	case codes.DeadlineExceeded, codes.Canceled:
		return e.Reason == ""
	default:
		return false
	}
}

// wireText makes text of any origin fit for the wire, where bytes that are no UTF-8 would fail
// the whole call. The server cuts error text to its limit (S9); what is far beyond need not travel.
func wireText(s string) string {
	const limit = 8 << 10
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// outcomeOf takes the prefix from the name of an enum value.
func outcomeOf(o queueboxv1.SettleOutcome) Outcome {
	const prefix = "SETTLE_OUTCOME_"
	switch o { //nolint:exhaustive // the usual ones, without a look into the description of the enum
	case queueboxv1.SettleOutcome_SETTLE_OUTCOME_UNSPECIFIED:
		return ""
	case queueboxv1.SettleOutcome_SETTLE_OUTCOME_COMPLETED:
		return OutcomeCompleted
	}
	name := o.String()
	if len(name) > len(prefix) && name[:len(prefix)] == prefix {
		return Outcome(name[len(prefix):])
	}
	return Outcome(name)
}
