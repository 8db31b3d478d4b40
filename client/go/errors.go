package queuebox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// Sentinels for errors.Is. Those that stand for an answer of the server match every *Error with
// their reason; the others come from the client itself.
var (
	// ErrClaimLost says that the claim is no longer held: its lease ran out, somebody else has
	// the message, or it was taken away. Stop the work and roll it back. It is also the cause
	// of the cancellation of Handle.Context (K2, K3).
	ErrClaimLost = errors.New("queuebox: claim lost")
	// ErrClaimSettled says that the token was used before for a different settlement (S6);
	// Error.Outcome tells which.
	ErrClaimSettled = errors.New("queuebox: claim settled differently")
	// ErrMessageNotFound says that the queue holds no such message.
	ErrMessageNotFound = errors.New("queuebox: message not found")
	// ErrQueueNotFound says that there is no such queue.
	ErrQueueNotFound = errors.New("queuebox: queue not found")
	// ErrIdempotencyKeyReused says that the idempotency key names a message with other
	// content (E3).
	ErrIdempotencyKeyReused = errors.New("queuebox: idempotency key reused")
	// ErrPayloadTooLarge says that the server could never deliver the payload (C13).
	ErrPayloadTooLarge = errors.New("queuebox: payload too large")
	// ErrLeaseOutOfRange says that the lease is outside the limits of the queue (C8).
	ErrLeaseOutOfRange = errors.New("queuebox: lease out of range")
	// ErrQueueFull says that the queue holds as many messages as it may (L3).
	ErrQueueFull = errors.New("queuebox: queue full")
	// ErrInvalidArgument says that a field is wrong; Error.Violations names it.
	ErrInvalidArgument = errors.New("queuebox: invalid argument")
	// ErrUnimplemented says that this server does not have the call or the field yet (E13).
	ErrUnimplemented = errors.New("queuebox: unimplemented")
	// ErrUnavailable says that the server, or its database, cannot be reached. What the call
	// asked for may or may not have happened.
	ErrUnavailable = errors.New("queuebox: unavailable")

	// ErrAlreadySettled is the local answer to a second settlement of one handle (K5), and the
	// cause with which Handle.Context ends once the handle has been settled.
	ErrAlreadySettled = errors.New("queuebox: handle already settled")
	// ErrOutcomeUnknown says that no answer to a settlement arrived before the local deadline
	// of the lease or the end of the context: it may or may not have been written. The message
	// is delivered again if it was not.
	ErrOutcomeUnknown = errors.New("queuebox: outcome of the settlement unknown")
	// ErrClosed says that the client was closed.
	ErrClosed = errors.New("queuebox: client closed")
	// ErrStopped is the cause with which a worker that stops cancels the contexts of handlers
	// that used up their time (K7).
	ErrStopped = errors.New("queuebox: worker stopped")
)

// Reason is the machine-readable reason of an error, as in google.rpc.ErrorInfo. The values are
// those of the enum ErrorReason without its prefix.
type Reason string

// The reasons that callers most often tell apart. A server may answer others.
const (
	ReasonClaimLost            Reason = "CLAIM_LOST"
	ReasonClaimSettled         Reason = "CLAIM_SETTLED"
	ReasonMessageNotFound      Reason = "MESSAGE_NOT_FOUND"
	ReasonQueueNotFound        Reason = "QUEUE_NOT_FOUND"
	ReasonIdempotencyKeyReused Reason = "IDEMPOTENCY_KEY_REUSED"
	ReasonPayloadTooLarge      Reason = "PAYLOAD_TOO_LARGE"
	ReasonLeaseOutOfRange      Reason = "LEASE_OUT_OF_RANGE"
	ReasonTooManyWaiters       Reason = "TOO_MANY_WAITERS"
	ReasonQueueFull            Reason = "QUEUE_FULL"
	ReasonStorageUnavailable   Reason = "STORAGE_UNAVAILABLE"
	ReasonDraining             Reason = "DRAINING"
	ReasonClaimIDReused        Reason = "CLAIM_ID_REUSED"
	ReasonInvalidArgument      Reason = "INVALID_ARGUMENT"
	ReasonUnauthenticated      Reason = "UNAUTHENTICATED"
	ReasonPermissionDenied     Reason = "PERMISSION_DENIED"
	ReasonInternal             Reason = "INTERNAL"
	ReasonUnimplemented        Reason = "UNIMPLEMENTED"
)

// Causes of a lost claim in Error.Cause. CauseLocalDeadline comes from the client: no renewal
// was accepted in time, so the claim is treated as lost whatever the server thinks (K2).
// CauseSignal is a loss that the server told over a stream, which does not carry its cause (T6).
const (
	CauseLeaseExpired  = "LEASE_EXPIRED"
	CauseSuperseded    = "SUPERSEDED"
	CauseRevoked       = "REVOKED"
	CauseCancelled     = "CANCELLED"
	CauseNotClaimed    = "NOT_CLAIMED"
	CauseLocalDeadline = "LOCAL_DEADLINE"
	CauseSignal        = "SIGNAL"
)

// errorDomain is the domain of every ErrorInfo that a QueueBox server makes.
const errorDomain = "queuebox.dev"

// FieldViolation names a field that the server refused, and why.
type FieldViolation struct {
	// Field is the path of the field in the request, as the proto spells it.
	Field string
	// Description is text for people.
	Description string
}

// Error is an answer of the server that is no success. errors.Is matches it with the sentinel of
// its reason, status.FromError finds its gRPC status.
type Error struct {
	// Op is what the client was doing, for people: "claim", "complete", ….
	Op string
	// Reason tells errors apart; empty where the error does not come from a QueueBox server,
	// as with a broken connection.
	Reason Reason
	// Cause is the cause of a lost claim: one of the Cause constants.
	Cause string
	// Outcome is how the claim had been settled, with ReasonClaimSettled.
	Outcome Outcome
	// RetryDelay is how long the server asks to wait before the next try; 0 where it does not.
	RetryDelay time.Duration
	// Violations are the refused fields.
	Violations []FieldViolation
	// Metadata is the metadata of the ErrorInfo.
	Metadata map[string]string

	status *status.Status
}

// Error implements error. It holds the text of the server and never a token.
func (e *Error) Error() string {
	name := string(e.Reason)
	if name == "" {
		name = e.status.Code().String()
	}
	if e.Cause != "" {
		name += "/" + e.Cause
	}
	return fmt.Sprintf("queuebox: %s: %s: %s", e.Op, name, e.status.Message())
}

// GRPCStatus returns the status as the server sent it.
func (e *Error) GRPCStatus() *status.Status { return e.status }

// Code returns the gRPC status code.
func (e *Error) Code() codes.Code { return e.status.Code() }

// Is matches the sentinel of the reason of the error. A context that ended on the way matches
// context.Canceled or context.DeadlineExceeded.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrClaimLost:
		return e.Reason == ReasonClaimLost
	case ErrClaimSettled:
		return e.Reason == ReasonClaimSettled
	case ErrMessageNotFound:
		return e.Reason == ReasonMessageNotFound
	case ErrQueueNotFound:
		return e.Reason == ReasonQueueNotFound
	case ErrIdempotencyKeyReused:
		return e.Reason == ReasonIdempotencyKeyReused
	case ErrPayloadTooLarge:
		return e.Reason == ReasonPayloadTooLarge
	case ErrLeaseOutOfRange:
		return e.Reason == ReasonLeaseOutOfRange
	case ErrQueueFull:
		return e.Reason == ReasonQueueFull
	case ErrInvalidArgument:
		return e.Code() == codes.InvalidArgument
	case ErrUnimplemented:
		return e.Code() == codes.Unimplemented
	case ErrUnavailable:
		return e.Code() == codes.Unavailable
	case context.Canceled:
		return e.Reason == "" && e.Code() == codes.Canceled
	case context.DeadlineExceeded:
		return e.Reason == "" && e.Code() == codes.DeadlineExceeded
	default:
		return false
	}
}

// fromRPC turns the error of a call into an *Error. Details of other domains are left alone: a
// proxy on the way may speak the same language about other things.
func fromRPC(op string, err error) *Error {
	st := status.Convert(err)
	e := &Error{Op: op, status: st}
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() == errorDomain {
				e.Reason = Reason(d.GetReason())
				e.setMetadata(d.GetMetadata())
			}
		case *errdetails.RetryInfo:
			e.RetryDelay = d.GetRetryDelay().AsDuration()
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				e.Violations = append(e.Violations, FieldViolation{Field: v.GetField(), Description: v.GetDescription()})
			}
		}
	}
	return e
}

// fromItem turns the failure of one item of a batch into the error that the unary call would
// have brought.
func fromItem(op string, item *queueboxv1.ItemError) *Error {
	e := &Error{
		Op:     op,
		Reason: reasonOf(item.GetReason()),
	}
	e.status = statusOf(codes.Code(item.GetCode()), item.GetMessage(), e.Reason, item.GetMetadata())
	e.setMetadata(item.GetMetadata())
	return e
}

func (e *Error) setMetadata(metadata map[string]string) {
	e.Metadata = metadata
	e.Cause = metadata["cause"]
	e.Outcome = Outcome(metadata["outcome"])
}

// reasonOf takes the prefix from the name of an enum value.
func reasonOf(r queueboxv1.ErrorReason) Reason {
	const prefix = "ERROR_REASON_"
	name := r.String()
	if r == queueboxv1.ErrorReason_ERROR_REASON_UNSPECIFIED || len(name) <= len(prefix) || name[:len(prefix)] != prefix {
		return ""
	}
	return Reason(name[len(prefix):])
}

// signalledLoss is the error of a claim that is gone as a signal on a stream says (T6).
func signalledLoss() *Error {
	return lossOf("work", CauseSignal, "the server said on the work stream that the claim is gone")
}

// localLoss is the error of a claim whose local deadline passed.
func localLoss(op string) *Error {
	return lossOf(op, CauseLocalDeadline, "no renewal was accepted before the local deadline of the lease")
}

func lossOf(op, cause, text string) *Error {
	metadata := map[string]string{"cause": cause}
	e := &Error{Op: op, Reason: ReasonClaimLost, status: statusOf(codes.FailedPrecondition, text, ReasonClaimLost, metadata)}
	e.setMetadata(metadata)
	return e
}

// statusOf builds the status of an error that came without one, as the server would have.
func statusOf(code codes.Code, text string, reason Reason, metadata map[string]string) *status.Status {
	plain := status.New(code, text)
	full, err := plain.WithDetails(&errdetails.ErrorInfo{Reason: string(reason), Domain: errorDomain, Metadata: metadata})
	if err != nil {
		return plain
	}
	return full
}
