package queuebox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// DefaultStopTimeout is the stop budget of a worker that sets none.
const DefaultStopTimeout = 30 * time.Second

// Handler works on one message. Its context is that of the handle and ends earlier where the
// worker stops: h.Context and context.Cause tell why.
//
// Returning nil completes the message. Returning an error retries it by the policy of the queue;
// RetryAfter and Reject ask for another end. A panic is a retry. A handler may settle h itself;
// then what it returns is only logged. An error is logged as a warning, a panic as an error with
// its stack, and an error of a handler that the stop has cancelled for debugging only: the message
// goes back without a loss, and the log says how many did.
type Handler func(ctx context.Context, h *Handle) error

// Delivery is how messages come to a worker.
type Delivery int

const (
	// DeliverStream keeps one Work stream open, over which the server delivers messages as they
	// become claimable, for free slots only, and tells at once that a claim is lost or that its
	// work should stop. A stream that ends is replaced by another. Where a server or a proxy on
	// the way has no streams, the worker claims by single calls, and tries a stream again after
	// some minutes. What was on its way when a connection breaks comes back when its lease has
	// run out, and the attempt counts.
	DeliverStream Delivery = iota
	// DeliverPoll claims by single calls that wait for messages at the server. A claim whose
	// answer was lost is answered again (C14), so a connection that breaks costs no lease.
	DeliverPoll
)

// WorkerConfig says what a worker does.
type WorkerConfig struct {
	// Queue to work.
	Queue string
	// Concurrency is how many handlers run at a time; 0 means 1. Messages are claimed only for
	// free slots (K7).
	Concurrency int
	// Lease is how long a claim holds without renewal; 0 takes the default of the queue. It
	// need not cover the work: claims renew themselves. See ClaimOptions.
	Lease time.Duration
	// StopTimeout is the budget for stopping; 0 means DefaultStopTimeout. See Worker.Run.
	StopTimeout time.Duration
	// WorkerID names the worker, at most 255 bytes; empty takes the name of the client. Give
	// each worker its own.
	WorkerID string
	// Delivery is how messages come: over a stream unless it says otherwise.
	Delivery Delivery
	// MaxBytes is the most payload bytes of one claim; 0 takes the limit of the server. It makes
	// the delivery DeliverPoll, since a stream has no single claims.
	MaxBytes int64
	// Logger takes what handlers return and how claims end; nil takes that of the client, which
	// is slog.Default where WithLogger sets none.
	Logger *slog.Logger
}

// Worker claims messages of one queue and runs a handler for each.
type Worker struct {
	client *Client
	config WorkerConfig
	logger *slog.Logger
}

// NewWorker makes a worker; Run starts it.
func NewWorker(c *Client, config WorkerConfig) *Worker {
	if config.Concurrency <= 0 {
		config.Concurrency = 1
	}
	if config.StopTimeout <= 0 {
		config.StopTimeout = DefaultStopTimeout
	}
	if config.WorkerID == "" {
		config.WorkerID = c.workerID
	}
	logger := config.Logger
	if logger == nil {
		logger = c.logger
	}
	return &Worker{client: c, config: config, logger: logger.With("queue", config.Queue)}
}

// retryAfterError asks for a retry with a delay of its own.
type retryAfterError struct {
	err   error
	delay time.Duration
}

func (e *retryAfterError) Error() string { return e.err.Error() }
func (e *retryAfterError) Unwrap() error { return e.err }

// RetryAfter makes a handler's error a retry after delay instead of by the policy of the queue; 0
// or less is at once. It counts as an attempt like any other.
func RetryAfter(err error, delay time.Duration) error {
	if err == nil {
		err = errors.New("retry asked for")
	}
	if delay <= 0 {
		delay = AtOnce
	}
	return &retryAfterError{err: err, delay: delay}
}

// rejectError asks for the message to be set aside.
type rejectError struct {
	err  error
	code string
}

func (e *rejectError) Error() string { return e.err.Error() }
func (e *rejectError) Unwrap() error { return e.err }

// Reject makes a handler's error a dead letter: the message can never succeed. reasonCode is
// short and for filters, at most 255 bytes.
func Reject(reasonCode string, err error) error {
	if err == nil {
		err = errors.New("rejected")
	}
	return &rejectError{err: err, code: reasonCode}
}

// panicError is a handler's panic. Its text goes to the server, the stack only to the log.
type panicError struct {
	value any
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// errGoexit is the end of a handler that neither returned nor panicked.
var errGoexit = errors.New("handler ended its goroutine")

// Run claims and handles messages until ctx ends, then stops (K7): it claims no more, lets the
// running handlers go on for 80 % of StopTimeout, then cancels their contexts with ErrStopped and
// releases their messages, so that the attempt does not count and another worker has them at
// once. It returns within StopTimeout after the end of ctx, nil where every handler had returned
// and an error that matches ErrStopped where one had not: a handler that ignores its context
// cannot be ended, and its message may run elsewhere by then.
//
// An error of the server that repeating cannot mend, such as a queue name that is too long or
// missing rights, stops it in the same way and is returned. Everything else is waited out.
//
// A message that this client already runs, because its earlier claim was lost while the handler
// still works, is not handled beside it (K8): it waits for the old handler, and goes back to the
// queue when that takes longer than 30 seconds.
//
// The loss of a claim does not undo what a handler did: a message can run twice. Make effects
// outside idempotent by Message.Queue and Message.IdempotencyKey, or Message.ID.
func (w *Worker) Run(ctx context.Context, handler Handler) error {
	r := newRun(w, handler)
	defer close(r.quit)
	// Nothing below is to end with ctx: what runs has the stop budget to finish.
	beyond := context.WithoutCancel(ctx)
	r.settling, r.endSettling = context.WithCancelCause(beyond)
	defer r.endSettling(ErrStopped)
	r.handling, r.endHandling = context.WithCancelCause(beyond)
	defer r.endHandling(ErrStopped)

	ended := make(chan time.Time, 1)
	defer context.AfterFunc(ctx, func() { ended <- now() })()
	err := r.deliver(ctx)
	at := now()
	select {
	case at = <-ended: // the stream took a moment to close
	default:
	}
	return errors.Join(err, r.stop(at))
}
