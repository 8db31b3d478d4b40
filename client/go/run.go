package queuebox

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// holdBack is how long a message waits for an earlier handler of itself.
	holdBack = 30 * time.Second
	// giveBackDelay keeps a message that could not wait longer from coming straight back.
	giveBackDelay = 5 * time.Second
)

// errAbandoned ends the context of a handle that a worker could not settle.
var errAbandoned = errors.New("queuebox: no handler works on this message any more")

// run is one call of Worker.Run.
type run struct {
	*Worker
	handler Handler
	// slots holds one entry for every message that is being claimed, held back or handled.
	slots chan struct{}
	// tasks counts the messages that were begun. The goroutines that carry them take the next
	// one from jobs, since a goroutine whose stack has grown is worth keeping, and end with quit.
	tasks sync.WaitGroup
	jobs  chan job
	quit  chan struct{}

	// settling carries the settlements and ends with the whole stop budget; handling is over
	// when its first part is.
	settling    context.Context //nolint:containedctx // outlives the context of the caller by the stop budget
	endSettling context.CancelCauseFunc
	handling    context.Context //nolint:containedctx // likewise
	endHandling context.CancelCauseFunc

	mu   sync.Mutex
	live map[*Handle]context.CancelCauseFunc // those of tasks that have not ended, and how the stop ends their work

	// released counts the messages that the stop gave back.
	released atomic.Int64
}

// job is a message to bring to its end.
type job struct {
	handle *Handle
	ctx    context.Context //nolint:containedctx // that of the handler, on its way to the goroutine
	// slot is freed in the end. late: the worker stops already.
	slot, late bool
}

func newRun(w *Worker, handler Handler) *run {
	return &run{
		Worker:  w,
		handler: handler,
		slots:   make(chan struct{}, w.config.Concurrency),
		jobs:    make(chan job),
		quit:    make(chan struct{}),
		live:    make(map[*Handle]context.CancelCauseFunc),
	}
}

// runningKey names a message that a handler of the client works on.
type runningKey struct{ queue, id string }

// begin starts the task of a handle, which frees the slot it has. One that arrives while ctx ends
// goes back unseen.
func (r *run) begin(ctx context.Context, h *Handle, slot bool) {
	j := job{handle: h, slot: slot, late: ctx.Err() != nil}
	// The context of the handler is that of the handle, ended early by the stop.
	var cancel context.CancelCauseFunc
	j.ctx, cancel = context.WithCancelCause(h.Context())
	r.mu.Lock()
	r.live[h] = cancel
	r.mu.Unlock()
	r.tasks.Add(1)
	select {
	case r.jobs <- j:
	default:
		go r.work(j)
	}
}

// work is a goroutine of the run. It ends with the run, or where a handler ends it.
func (r *run) work(j job) {
	for {
		r.do(j)
		select {
		case j = <-r.jobs:
		case <-r.quit:
			return
		}
	}
}

// do carries one message from its delivery to its end.
func (r *run) do(j job) {
	h := j.handle
	defer func() {
		h.abandon(errAbandoned)
		r.mu.Lock()
		cancel := r.live[h]
		delete(r.live, h)
		r.mu.Unlock()
		cancel(nil)
		if j.slot {
			<-r.slots
		}
		r.tasks.Done()
	}()
	if j.late {
		r.release(h, 0)
		return
	}
	leave, ok := r.enter(h)
	if !ok {
		return
	}
	defer leave()

	err := errGoexit
	// Deferred, so that a handler that ends its goroutine (runtime.Goexit, as a failing test
	// does) has its message settled like any other.
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{value: v}
			r.logger.ErrorContext(j.ctx, "handler panicked", "message_id", h.message.ID, "attempt", h.message.Attempt,
				"panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		}
		r.settle(h, err)
	}()
	err = r.handler(j.ctx, h)
}

// enter waits until no other handler of this client works on the message (K8). It is false where
// the message does not run here: it has been given back, or its claim is lost.
func (r *run) enter(h *Handle) (leave func(), ok bool) {
	key := runningKey{h.message.Queue, h.message.ID}
	other, leave := r.client.enter(key)
	if leave != nil {
		return leave, true
	}
	patience := time.NewTimer(holdBack)
	defer patience.Stop()
	for {
		select {
		case <-other:
			if other, leave = r.client.enter(key); leave != nil {
				return leave, true
			}
		case <-h.Context().Done():
			return nil, false
		case <-r.handling.Done():
			r.release(h, 0)
			return nil, false
		case <-patience.C:
			r.logger.Warn("message goes back: an earlier handler of this process still works on it", "message_id", h.message.ID)
			r.release(h, giveBackDelay)
			return nil, false
		}
	}
}

// enter marks a message as being handled, or returns what is closed when the present handler of
// it has ended.
func (c *Client) enter(key runningKey) (other <-chan struct{}, leave func()) {
	c.runningMu.Lock()
	defer c.runningMu.Unlock()
	if ended, ok := c.running[key]; ok {
		if ended == nil { // the first that waits
			ended = make(chan struct{})
			c.running[key] = ended
		}
		return ended, nil
	}
	c.running[key] = nil
	return nil, func() {
		c.runningMu.Lock()
		ended := c.running[key]
		delete(c.running, key)
		c.runningMu.Unlock()
		if ended != nil {
			close(ended)
		}
	}
}

// settle ends the handle as the handler's result asks.
func (r *run) settle(h *Handle, result error) {
	if h.done() {
		// Settled by the handler, lost, or taken back by the stop.
		if result != nil {
			r.logger.Warn("handler failed after the end of its claim", "message_id", h.message.ID, "error", result)
		}
		return
	}
	var (
		settled  Settled
		err      error
		retry    *retryAfterError
		reject   *rejectError
		panicked *panicError
	)
	switch {
	case result == nil:
		settled, err = h.Complete(r.settling)
	case errors.As(result, &reject):
		settled, err = h.DeadLetter(r.settling, reject.code, result.Error())
	case errors.As(result, &retry):
		settled, err = h.Retry(r.settling, RetryOptions{Delay: retry.delay, Error: result.Error()})
	case r.handling.Err() != nil && !errors.As(result, &panicked):
		// The stop cut the work off: that is no failure of the message, so it costs no attempt. Nor is
		// it one to warn of, for each handler of an orderly stop; what the stop says counts them.
		settled, err = h.Release(r.settling, 0)
		if err == nil {
			r.released.Add(1)
			r.logger.Debug("handler ended by the stop, its message goes back", "message_id", h.message.ID, "attempt", h.message.Attempt, "error", result)
			return
		}
	default:
		settled, err = h.Retry(r.settling, RetryOptions{Error: result.Error()})
	}
	if result != nil {
		r.tell(h, result, settled, err)
	}
	if err == nil {
		return
	}
	r.failed(h, err)
	if h.done() || r.settling.Err() != nil {
		return
	}
	// The server refused what was asked, such as a reason code that is too long. The message
	// need not wait for its lease to run out.
	if _, err := h.Retry(r.settling, RetryOptions{Error: err.Error()}); err != nil {
		r.failed(h, err)
	}
}

// tell logs what a handler returned and what became of its message. Nobody else hears of it: the
// error went to the server, where an operator finds it once the message is dead.
func (r *run) tell(h *Handle, result error, settled Settled, err error) {
	attributes := []any{"message_id", h.message.ID, "attempt", h.message.Attempt, "error", result}
	if err == nil {
		attributes = append(attributes, "outcome", settled.Outcome)
		if !settled.AvailableTime.IsZero() {
			attributes = append(attributes, "available_time", settled.AvailableTime)
		}
	}
	if reject, ok := errors.AsType[*rejectError](result); ok {
		attributes = append(attributes, "reason_code", reject.code)
	}
	r.logger.Warn("handler failed", attributes...)
}

// release gives a message back that was not worked on, or not to the end.
func (r *run) release(h *Handle, delay time.Duration) {
	if _, err := h.Release(r.settling, delay); err != nil {
		r.failed(h, err)
		return
	}
	if delay == 0 {
		r.released.Add(1) // with a delay it is given back because its older handler still runs
	}
}

// failed logs a settlement that did not succeed; the message will be delivered again, or was
// already.
func (r *run) failed(h *Handle, err error) {
	if errors.Is(err, ErrAlreadySettled) {
		return // the stop was quicker
	}
	r.logger.Error("settlement failed", "message_id", h.message.ID, "attempt", h.message.Attempt, "error", err)
}

// stop ends the run within its budget (K7): most of it for the handlers to finish by themselves,
// a tenth for them to see that they are asked to end, a tenth for giving back what is left.
//
// The budget counts from at, the end of the context.
func (r *run) stop(at time.Time) error {
	budget := r.config.StopTimeout
	until := func(tenths int) time.Duration { return max(at.Add(budget/10*time.Duration(tenths)).Sub(now()), 0) }
	idle := make(chan struct{})
	go func() {
		r.tasks.Wait()
		close(idle)
	}()
	end := time.AfterFunc(until(10), func() { r.endSettling(ErrStopped) })
	defer end.Stop()

	// Whoever has asked for the stop may see nothing else of it for the whole budget.
	r.mu.Lock()
	running := len(r.live)
	r.mu.Unlock()
	if running > 0 {
		r.logger.Info("worker stops: it waits for its handlers, then cancels them", "handlers", running, "wait", budget/10*8, "within", budget)
		defer func() { r.logger.Info("worker stopped", "released", r.released.Load(), "took", now().Sub(at)) }()
	}
	if within(idle, until(8)) {
		return nil
	}
	r.endHandling(ErrStopped)
	r.mu.Lock()
	for _, cancel := range r.live {
		cancel(ErrStopped)
	}
	r.mu.Unlock()
	if within(idle, until(9)) {
		return nil
	}
	var releases sync.WaitGroup
	r.mu.Lock()
	left := len(r.live)
	for h := range r.live {
		releases.Go(func() { r.release(h, 0) })
	}
	r.mu.Unlock()
	releases.Wait()
	r.mu.Lock()
	for h := range r.live {
		h.abandon(ErrStopped) // where the release failed: a lease without a worker must run out
	}
	r.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-r.settling.Done():
		return fmt.Errorf("%w: %d handlers had not returned after %v", ErrStopped, left, budget)
	}
}

// within tells whether done is closed before d has passed.
func within(done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}
