package queuebox

import (
	"context"
	"fmt"
	"time"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

const (
	// WaitForever makes a Claim wait until there is a message or its context ends.
	WaitForever time.Duration = -1

	// longestPoll is what one call asks the server to wait; servers cut it to their own limit,
	// which is the same unless it is set otherwise (W2).
	longestPoll = 20 * time.Second
	// claimSlack is what a call may take beyond its wait before the connection counts as dead.
	claimSlack = 20 * time.Second
	// quickAnswer is what no server takes that waited.
	quickAnswer = 250 * time.Millisecond
	// maxClaim is the most messages that one Claim may ask for.
	maxClaim = 1000
)

// ClaimOptions says what to claim.
type ClaimOptions struct {
	// Queue to claim from.
	Queue string
	// Max is the most messages to return, at most 1000; 0 means 1.
	Max int
	// Lease is how long the claim holds without renewal; 0 takes the default of the queue. It
	// is rounded up to milliseconds. Since handles renew themselves it bounds how long a
	// message stays untouched after this process died, not how long the work may take.
	Lease time.Duration
	// Wait is how long to wait for the first message; 0 answers at once, WaitForever waits
	// until the context ends. Waits above 20 s are made of several calls.
	Wait time.Duration
	// WorkerID names the worker, at most 255 bytes; empty takes the name of the client.
	WorkerID string
	// MaxBytes is the most payload bytes to return; one message is always allowed. 0 takes the
	// limit of the server.
	MaxBytes int64
}

// Claim leases up to o.Max messages and returns a handle for each, in claim order. It returns
// none, and no error, where no message came within o.Wait. It does not wait for more once one is
// there (C16).
//
// Leases are renewed from then on until the handle is settled, the claim is lost or the client is
// closed; a caller that drops a handle without settling it holds its message for as long as the
// process lives. The contexts of the handles keep the values of ctx but not its end.
//
// A call that brings no answer is repeated under the same claim_id until ctx ends (K6, C14), so
// an unreachable server is waited for, whatever o.Wait says. When ctx ends, its error is returned
// and what the server claimed meanwhile goes back (C15).
func (c *Client) Claim(ctx context.Context, o ClaimOptions) ([]*Handle, error) {
	req := &queueboxv1.ClaimRequest{
		Queue:       o.Queue,
		LeaseMs:     milliseconds(o.Lease),
		MaxMessages: int32(min(o.Max, 1<<30)),
		WorkerId:    o.WorkerID,
		MaxBytes:    o.MaxBytes,
	}
	if req.GetWorkerId() == "" {
		req.WorkerId = c.workerID
	}
	begin := now()
	pause := pauses{base: 25 * time.Millisecond, limit: time.Second}
	for {
		wait := o.remaining(begin)
		sent := now()
		resp, err := c.claimOnce(ctx, req, o, begin)
		if err != nil {
			return nil, err
		}
		received := now()
		if len(resp.GetMessages()) > 0 {
			return c.take(ctx, o, resp.GetMessages(), received)
		}
		if o.remaining(begin) <= 0 {
			return nil, nil
		}
		// An empty answer at once comes from a server that drains or cannot wait now: it must
		// not make a loop that spins.
		if received.Sub(sent) < min(wait/2, quickAnswer) {
			if err := c.sleep(ctx, pause.next(0)); err != nil {
				return nil, err
			}
		} else {
			pause.failures = 0
		}
	}
}

// remaining is how long the next call may wait.
func (o *ClaimOptions) remaining(begin time.Time) time.Duration {
	if o.Wait < 0 {
		return longestPoll
	}
	return max(min(o.Wait-now().Sub(begin), longestPoll), 0)
}

// claimOnce makes one claim, however many calls that takes. A claim that was answered, even
// empty, is over: the next one has its own claim_id.
func (c *Client) claimOnce(ctx context.Context, req *queueboxv1.ClaimRequest, o ClaimOptions, begin time.Time) (*queueboxv1.ClaimResponse, error) {
	req.ClaimId = newUUID()
	pause := pauses{base: 50 * time.Millisecond, limit: 2 * time.Second}
	for {
		if err := c.ended(ctx); err != nil {
			return nil, err
		}
		wait := o.remaining(begin)
		req.WaitMs = milliseconds(wait)
		attempt, cancel := context.WithTimeout(ctx, wait+claimSlack)
		resp, err := c.worker.Claim(attempt, req)
		cancel()
		if err == nil {
			return resp, nil
		}
		e := fromRPC("claim", err)
		if err := c.ended(ctx); err != nil {
			return nil, err
		}
		if !e.unanswered() && e.Reason != ReasonTooManyWaiters {
			return nil, e
		}
		c.logger.WarnContext(ctx, "claim is sent again", "queue", o.Queue, "error", e)
		if err := c.sleep(ctx, pause.next(e.RetryDelay)); err != nil {
			return nil, err
		}
	}
}

// take makes handles of claimed messages and starts their renewal.
func (c *Client) take(ctx context.Context, o ClaimOptions, claimed []*queueboxv1.ClaimedMessage, received time.Time) ([]*Handle, error) {
	r := c.renewer(o.Queue)
	handles := make([]*Handle, len(claimed))
	beyond := context.WithoutCancel(ctx)
	for i, m := range claimed {
		handles[i] = newHandle(beyond, r, m, o.Lease, received)
	}
	if !r.add(handles...) {
		return nil, ErrClosed
	}
	return handles, nil
}

// ended tells why no further call should be made.
func (c *Client) ended(ctx context.Context) error {
	if c.life.Err() != nil {
		return ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("queuebox: %w", err)
	}
	return nil
}

// sleep waits for d, or for the end of ctx or of the client.
func (c *Client) sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-c.life.Done():
	case <-t.C:
	}
	return c.ended(ctx)
}

// orClosed names the true reason of calls that fail because the client was closed under them.
func (c *Client) orClosed(e *Error) error {
	if c.life.Err() != nil {
		return ErrClosed
	}
	return e
}
