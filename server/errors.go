package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/server/dispatch"
	"github.com/queuebox/queuebox/storage"
)

// errorDomain is the domain of every ErrorInfo.
const errorDomain = "queuebox.dev"

// apiError is what a handler returns: what the caller may know (reason, text,
// metadata, violations) and what only the log may know (cause). The code follows
// from the reason.
type apiError struct {
	reason     queueboxv1.ErrorReason
	text       string
	metadata   map[string]string
	violations []violation
	cause      error
}

// violation is one wrong field. The field is the path in the request.
type violation struct {
	field  string
	text   string
	reason queueboxv1.ErrorReason
}

func (e *apiError) Error() string {
	text := reasonString(e.reason) + ": " + e.text
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

func (e *apiError) Unwrap() error { return e.cause }

// reasonString is the reason as it stands in an ErrorInfo.
func reasonString(r queueboxv1.ErrorReason) string {
	return strings.TrimPrefix(r.String(), "ERROR_REASON_")
}

// codeOf is the table of docs/errors.md; a test compares the two.
func codeOf(r queueboxv1.ErrorReason) codes.Code {
	switch r {
	case queueboxv1.ErrorReason_ERROR_REASON_CLAIM_LOST,
		queueboxv1.ErrorReason_ERROR_REASON_CLAIM_SETTLED,
		queueboxv1.ErrorReason_ERROR_REASON_CLAIM_ID_REUSED,
		queueboxv1.ErrorReason_ERROR_REASON_MESSAGE_STATE:
		return codes.FailedPrecondition
	case queueboxv1.ErrorReason_ERROR_REASON_MESSAGE_NOT_FOUND,
		queueboxv1.ErrorReason_ERROR_REASON_QUEUE_NOT_FOUND:
		return codes.NotFound
	case queueboxv1.ErrorReason_ERROR_REASON_IDEMPOTENCY_KEY_REUSED,
		queueboxv1.ErrorReason_ERROR_REASON_QUEUE_EXISTS:
		return codes.AlreadyExists
	case queueboxv1.ErrorReason_ERROR_REASON_INVALID_ARGUMENT,
		queueboxv1.ErrorReason_ERROR_REASON_PAYLOAD_TOO_LARGE,
		queueboxv1.ErrorReason_ERROR_REASON_LEASE_OUT_OF_RANGE:
		return codes.InvalidArgument
	case queueboxv1.ErrorReason_ERROR_REASON_TOO_MANY_WAITERS,
		queueboxv1.ErrorReason_ERROR_REASON_QUEUE_FULL,
		queueboxv1.ErrorReason_ERROR_REASON_QUEUE_LIMIT:
		return codes.ResourceExhausted
	case queueboxv1.ErrorReason_ERROR_REASON_STORAGE_UNAVAILABLE,
		queueboxv1.ErrorReason_ERROR_REASON_DRAINING:
		return codes.Unavailable
	case queueboxv1.ErrorReason_ERROR_REASON_UNAUTHENTICATED:
		return codes.Unauthenticated
	case queueboxv1.ErrorReason_ERROR_REASON_PERMISSION_DENIED:
		return codes.PermissionDenied
	case queueboxv1.ErrorReason_ERROR_REASON_UNIMPLEMENTED:
		return codes.Unimplemented
	case queueboxv1.ErrorReason_ERROR_REASON_ETAG_MISMATCH:
		return codes.Aborted
	case queueboxv1.ErrorReason_ERROR_REASON_INTERNAL,
		queueboxv1.ErrorReason_ERROR_REASON_UNSPECIFIED:
		return codes.Internal
	}
	return codes.Internal
}

// retryDelay is what RetryInfo says; zero where there is none.
func retryDelay(r queueboxv1.ErrorReason) time.Duration {
	switch r { //nolint:exhaustive // only UNAVAILABLE and RESOURCE_EXHAUSTED carry it
	case queueboxv1.ErrorReason_ERROR_REASON_STORAGE_UNAVAILABLE:
		return 500 * time.Millisecond
	case queueboxv1.ErrorReason_ERROR_REASON_DRAINING:
		return 100 * time.Millisecond
	case queueboxv1.ErrorReason_ERROR_REASON_TOO_MANY_WAITERS:
		return time.Second
	case queueboxv1.ErrorReason_ERROR_REASON_QUEUE_FULL:
		return 5 * time.Second
	case queueboxv1.ErrorReason_ERROR_REASON_QUEUE_LIMIT:
		return time.Minute
	}
	return 0
}

// errorMapper turns the errors of handlers into what the wire carries. It is the one
// place that does.
type errorMapper struct {
	log   *slog.Logger
	newID func() string
}

// classify finds the public form of an error. Every sentinel of the storage has one;
// whatever is left is a defect.
func classify(err error) *apiError {
	var api *apiError
	switch {
	case errors.As(err, &api):
		return api
	case errors.Is(err, storage.ErrOutcomeUnknown):
		return &apiError{
			reason:   queueboxv1.ErrorReason_ERROR_REASON_STORAGE_UNAVAILABLE,
			text:     "the database broke off while it committed, so the call may have happened; repeat it with the same idempotency key, claim_id or claim_token",
			metadata: map[string]string{"outcome": "unknown"},
			cause:    err,
		}
	case errors.Is(err, storage.ErrLocked):
		return &apiError{
			reason: queueboxv1.ErrorReason_ERROR_REASON_STORAGE_UNAVAILABLE,
			text:   "another transaction in the database holds what this call needs; nothing changed; repeat the call, or end that transaction",
			cause:  err,
		}
	case errors.Is(err, storage.ErrUnavailable):
		return &apiError{
			reason: queueboxv1.ErrorReason_ERROR_REASON_STORAGE_UNAVAILABLE,
			text:   "the database cannot be reached or refused the transaction, nothing changed; repeat the call",
			cause:  err,
		}
	case errors.Is(err, storage.ErrSchema):
		return &apiError{
			reason: queueboxv1.ErrorReason_ERROR_REASON_STORAGE_UNAVAILABLE,
			text:   "the schema of the database is not one that this server works with; an operator must run the migration or another version of the server",
			cause:  err,
		}
	case errors.Is(err, dispatch.ErrTooManyWaiters):
		return &apiError{
			reason: queueboxv1.ErrorReason_ERROR_REASON_TOO_MANY_WAITERS,
			text:   "too many claims wait on this server; claim more messages with fewer calls, or add a server",
		}
	case errors.Is(err, dispatch.ErrLaneFull):
		return &apiError{
			reason: queueboxv1.ErrorReason_ERROR_REASON_TOO_MANY_WAITERS,
			text:   "too many calls wait for the database on this server, nothing changed; repeat the call later, put more messages into fewer calls, or add a server",
		}
	case errors.Is(err, dispatch.ErrClaimIDReused):
		return &apiError{
			reason: queueboxv1.ErrorReason_ERROR_REASON_CLAIM_ID_REUSED,
			text:   "this claim_id was used by another worker_id; make a new claim_id for each claim and keep it for its repeats",
		}
	case errors.Is(err, storage.ErrQueueNotFound):
		return queueNotFound()
	case errors.Is(err, storage.ErrMessageNotFound):
		return messageNotFound()
	case errors.Is(err, storage.ErrQueueExists):
		return &apiError{
			reason: queueboxv1.ErrorReason_ERROR_REASON_QUEUE_EXISTS,
			text:   "a queue of this name exists; use UpdateQueue to change it",
		}
	case errors.Is(err, storage.ErrQueueLimit):
		return &apiError{
			reason: queueboxv1.ErrorReason_ERROR_REASON_QUEUE_LIMIT,
			text:   "the server has as many queues as it may; an operator must raise the limit",
		}
	case errors.Is(err, storage.ErrVersionMismatch):
		return &apiError{
			reason: queueboxv1.ErrorReason_ERROR_REASON_ETAG_MISMATCH,
			text:   "the queue was changed since this etag was read; read the queue again and repeat the change",
		}
	}
	return &apiError{
		reason: queueboxv1.ErrorReason_ERROR_REASON_INTERNAL,
		text:   internalText,
		cause:  err,
	}
}

const internalReason = queueboxv1.ErrorReason_ERROR_REASON_INTERNAL

// internalText is all that a caller learns of a defect, beside the id.
const internalText = "internal error; give metadata.error_id to the operator of the server"

func queueNotFound() *apiError {
	return &apiError{
		reason: queueboxv1.ErrorReason_ERROR_REASON_QUEUE_NOT_FOUND,
		text:   "there is no such queue; create it, or enqueue into it where the server makes queues by itself",
	}
}

func messageNotFound() *apiError {
	return &apiError{
		reason: queueboxv1.ErrorReason_ERROR_REASON_MESSAGE_NOT_FOUND,
		text:   "there is no such message in this queue; it may have passed its retention, or belong to another queue",
	}
}

func unimplemented(what string) *apiError {
	return &apiError{
		reason: queueboxv1.ErrorReason_ERROR_REASON_UNIMPLEMENTED,
		text:   "this server does not have " + what + " yet; use a newer server",
	}
}

// public gives an error its public form; the cause of a defect goes to the log, under
// an id that the caller gets.
func (m *errorMapper) public(ctx context.Context, err error) *apiError {
	e := classify(err)
	if e.reason == queueboxv1.ErrorReason_ERROR_REASON_STORAGE_UNAVAILABLE {
		m.log.WarnContext(ctx, "storage unavailable", "request_id", requestID(ctx), "cause", e.cause)
	}
	if e.reason != queueboxv1.ErrorReason_ERROR_REASON_INTERNAL {
		return e
	}
	id := m.newID()
	attrs := []any{"error_id", id, "request_id", requestID(ctx), "cause", e.cause}
	if p := (*panicError)(nil); errors.As(err, &p) {
		attrs = append(attrs, "stack", string(p.stack))
	}
	m.log.ErrorContext(ctx, "internal error", attrs...)
	return &apiError{reason: e.reason, text: internalText, metadata: map[string]string{"error_id": id}}
}

// status makes the error of an RPC. It returns nil for nil.
func (m *errorMapper) status(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*apiError](err); !ok {
		// A caller that is gone learns nothing from the storage error that its going
		// caused.
		if cause := ctx.Err(); cause != nil {
			return status.FromContextError(cause).Err()
		}
		// A deadline of the server's own that struck in the storage is no deadline of the
		// caller: the database did not answer (D3).
		ofStorage := errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrOutcomeUnknown)
		if !ofStorage && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
			return status.FromContextError(err).Err()
		}
		// What gRPC itself says keeps its code and gets what it can carry.
		if st, ok := status.FromError(err); ok {
			return foreignStatus(st)
		}
	}
	return m.public(ctx, err).status().Err()
}

// status builds the google.rpc.Status of the error.
func (e *apiError) status() *status.Status {
	code := codeOf(e.reason)
	st := status.New(code, e.text)
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{
		Reason: reasonString(e.reason), Domain: errorDomain, Metadata: e.fullMetadata(),
	}}
	if d := retryDelay(e.reason); d > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(d)})
	}
	if len(e.violations) > 0 {
		bad := &errdetails.BadRequest{}
		for _, v := range e.violations {
			bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{
				Field: v.field, Description: v.text, Reason: reasonString(v.reason),
			})
		}
		details = append(details, bad)
	}
	with, err := st.WithDetails(details...)
	if err != nil {
		return st
	}
	return with
}

// fullMetadata holds the first wrong field too, so that an item of a batch, which has
// no BadRequest, tells it.
func (e *apiError) fullMetadata() map[string]string {
	if len(e.violations) == 0 {
		return e.metadata
	}
	out := map[string]string{"field": e.violations[0].field}
	maps.Copy(out, e.metadata)
	return out
}

// item makes the error of one item of a batch or stream.
func (m *errorMapper) item(ctx context.Context, err error) *queueboxv1.ItemError {
	e := m.public(ctx, err)
	return &queueboxv1.ItemError{
		Code:     int32(codeOf(e.reason)),
		Reason:   e.reason,
		Message:  e.text,
		Metadata: e.fullMetadata(),
	}
}

// foreignStatus adds the ErrorInfo to an error that gRPC made, where the reason
// follows from the code.
func foreignStatus(st *status.Status) error {
	if len(st.Details()) > 0 {
		return st.Err()
	}
	var reason queueboxv1.ErrorReason
	switch st.Code() {
	case codes.InvalidArgument:
		reason = queueboxv1.ErrorReason_ERROR_REASON_INVALID_ARGUMENT
	case codes.Unimplemented:
		reason = queueboxv1.ErrorReason_ERROR_REASON_UNIMPLEMENTED
	default:
		return st.Err()
	}
	e := &apiError{reason: reason, text: st.Message()}
	return e.status().Err()
}

// panicError is a panic that was caught, with the stack of its goroutine.
type panicError struct {
	value any
	stack []byte
}

// caught is the error of a panic; it is called where the panic is recovered.
func caught(p any) error { return &panicError{value: p, stack: debug.Stack()} }

func (p *panicError) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// sheltered turns a panic of f into its error. It is for what runs on a goroutine of its
// own, where no interceptor recovers and a panic would end the process.
func sheltered(f func() (any, error)) func() (any, error) {
	return func() (v any, err error) {
		defer func() {
			if p := recover(); p != nil {
				v, err = nil, caught(p)
			}
		}()
		return f()
	}
}
