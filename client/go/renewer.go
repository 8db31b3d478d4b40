package queuebox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// maxRenewals is the most leases in one BatchRenew.
const maxRenewals = 1000

// renewer keeps the leases of all handles of one queue (K1). Its goroutine lives while it has
// handles; it wakes for the next renewal or local deadline and never waits for an answer, so that
// a server that does not answer delays no other handle.
type renewer struct {
	client *Client
	queue  string
	wake   chan struct{}

	mu      sync.Mutex
	handles map[*Handle]struct{} // those held
	running bool
	// alarm is when the goroutine wakes by itself.
	alarm time.Time
}

// add takes handles under renewal. It is false where the client is closed.
func (r *renewer) add(handles ...*Handle) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range handles {
		r.handles[h] = struct{}{}
	}
	if !r.running {
		if !r.client.start(r.run) {
			for _, h := range handles {
				h.end(ErrClosed)
			}
			return false
		}
		r.running = true
		return true
	}
	for _, h := range handles {
		if h.due.Before(r.alarm) || h.deadline.Before(r.alarm) {
			r.signal()
			break
		}
	}
	return true
}

// signal wakes the goroutine.
func (r *renewer) signal() { poke(r.wake) }

// stopIfIdle lets the goroutine end once the last handle is gone. The mutex is held.
func (r *renewer) stopIfIdle() {
	if len(r.handles) == 0 {
		r.signal()
	}
}

// run is the goroutine. It ends with the last handle, or with the client.
func (r *renewer) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		r.mu.Lock()
		if r.client.life.Err() != nil {
			for h := range r.handles {
				h.end(ErrClosed)
			}
		}
		due := r.step(now())
		if len(r.handles) == 0 {
			r.running = false
			r.mu.Unlock()
			return
		}
		pause := r.alarm.Sub(now())
		r.mu.Unlock()

		for len(due) > 0 {
			n := min(len(due), maxRenewals)
			batch := due[:n:n]
			due = due[n:]
			r.client.start(func() { r.renew(batch) })
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-r.wake:
		case <-r.client.life.Done():
		}
	}
}

// step ends the handles whose local deadline has come, returns those to be renewed now, and sets
// the next alarm. Once one handle is due, all that would be within half an interval go with it:
// handles of different ages fall into step and share their requests.
func (r *renewer) step(at time.Time) []*Handle {
	r.alarm = at.Add(time.Hour)
	anyDue := false
	for h := range r.handles {
		if !h.deadline.After(at) {
			r.lose(h, localLoss("renew"))
			continue
		}
		anyDue = anyDue || !h.sending && !h.due.After(at)
	}
	var due []*Handle
	for h := range r.handles {
		if anyDue && !h.sending && !h.due.After(at.Add(h.lease/6)) {
			h.sending = true
			due = append(due, h)
		}
		r.alarm = earlier(r.alarm, h.deadline)
		if !h.sending {
			r.alarm = earlier(r.alarm, h.due)
		}
	}
	return due
}

// renew sends one batch and takes in its answers. The local deadline counts from before the
// request left (K2): the server counts from when it had it, which is later.
func (r *renewer) renew(batch []*Handle) {
	req := &queueboxv1.BatchRenewRequest{Queue: r.queue, Items: make([]*queueboxv1.RenewItem, len(batch))}
	timeout := 10 * time.Second
	r.mu.Lock()
	for i, h := range batch {
		// No lease_ms: the server repeats the last length, cut to what the queue allows now,
		// and never refuses it (C8).
		req.Items[i] = &queueboxv1.RenewItem{MessageId: h.message.ID, ClaimToken: h.token}
		timeout = min(timeout, attemptTimeout(h.lease))
	}
	r.mu.Unlock()

	sent := now()
	ctx, cancel := context.WithTimeout(r.client.life, timeout)
	resp, err := r.client.worker.BatchRenew(ctx, req)
	cancel()
	if err == nil && len(resp.GetResults()) != len(batch) {
		err = fmt.Errorf("%d answers to %d renewals", len(resp.GetResults()), len(batch))
	}
	if err != nil && r.client.life.Err() == nil {
		r.client.logger.Warn("renewal brought no answer", "queue", r.queue, "messages", len(batch), "error", fromRPC("renew", err))
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	for i, h := range batch {
		h.sending = false
		if h.state != held {
			continue // settled meanwhile: what the late renewal brought means nothing (S12)
		}
		if err != nil {
			h.due = now().Add(h.retries.next(0))
			continue
		}
		r.answer(h, resp.GetResults()[i], sent)
	}
	r.signal()
}

// answer takes in what the server said about one handle.
func (r *renewer) answer(h *Handle, result *queueboxv1.RenewResult, sent time.Time) {
	if renewed := result.GetRenewed(); renewed != nil {
		// The remaining time is the lease, or less where the queue allows less by now.
		h.lease = time.Duration(renewed.GetLeaseRemainingMs()) * time.Millisecond
		h.deadline = sent.Add(h.lease)
		h.due = sent.Add(renewInterval(h.lease))
		h.retries = retryPauses(h.lease)
		if renewed.GetCancelRequested() {
			h.ask()
		}
		return
	}
	e := fromItem("renew", result.GetError())
	switch e.Reason {
	case ReasonClaimLost, ReasonClaimSettled, ReasonMessageNotFound:
		r.lose(h, e)
	default:
		r.client.logger.Warn("renewal was not accepted", "queue", r.queue, "message_id", h.message.ID, "error", e)
		h.due = now().Add(h.retries.next(0))
	}
}

// lose ends a handle whose claim is gone. A message that is no longer there is a claim lost too.
func (r *renewer) lose(h *Handle, e *Error) {
	var cause error = e
	if !errors.Is(e, ErrClaimLost) {
		cause = fmt.Errorf("%w: %w", ErrClaimLost, e)
	}
	h.end(cause)
	r.client.logger.Warn("claim lost", "queue", r.queue, "message_id", h.message.ID, "attempt", h.message.Attempt, "error", e)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
