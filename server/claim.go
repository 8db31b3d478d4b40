package server

import (
	"context"
	"errors"
	"time"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/server/dispatch"
	"github.com/queuebox/queuebox/storage"
)

// Claim leases messages, waiting for the first where the caller wants it.
func (a *api) Claim(ctx context.Context, req *queueboxv1.ClaimRequest) (*queueboxv1.ClaimResponse, error) {
	r, err := a.claimRequest(req)
	if err != nil {
		return nil, err
	}
	q, err := a.catalog.get(ctx, r.Name)
	switch {
	case errors.Is(err, storage.ErrQueueNotFound):
		// The claim waits like one of an empty queue: the queue may appear.
	case err != nil:
		return nil, err
	default:
		if _, err := r.LeaseFor(q); err != nil {
			return nil, err
		}
		r.Queue = q
	}
	answer, err := a.dispatch.Claim(ctx, r)
	if err != nil {
		return nil, err
	}
	a.noteClaims(answer)
	resp, err := a.claimResponse(ctx, r.Name, answer)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		// Nobody will read the answer, so its leases go back (C15).
		a.dispatch.GiveBack(answer) //nolint:contextcheck // the give-back outlives the caller
		return nil, err
	}
	a.metrics.claimed(r.Name, len(resp.GetMessages()))
	return resp, nil
}

func (a *api) claimRequest(req *queueboxv1.ClaimRequest) (dispatch.Request, error) {
	c := &check{}
	c.queue("queue", req.GetQueue())
	if req.GetLeaseMs() < 0 {
		c.wrongFor(queueboxv1.ErrorReason_ERROR_REASON_LEASE_OUT_OF_RANGE, "lease_ms", "is negative")
	}
	if n := req.GetMaxMessages(); n < 0 || n > maxClaimMessages {
		c.wrong("max_messages", "is %d; it must lie between 0 (which means 1) and %d", n, maxClaimMessages)
	}
	if req.GetWaitMs() < 0 {
		c.wrong("wait_ms", "is negative")
	}
	c.text("worker_id", req.GetWorkerId())
	claimID := c.claimID("claim_id", req.GetClaimId())
	if req.GetClaimId() != "" && req.GetWorkerId() == "" {
		c.wrong("worker_id", "is missing; a claim_id belongs to a worker_id")
	}
	if req.GetMaxBytes() < 0 {
		c.wrong("max_bytes", "is negative")
	}
	if err := c.err(); err != nil {
		return dispatch.Request{}, err
	}
	leaseMs := req.GetLeaseMs()
	maxBytes := req.GetMaxBytes()
	if maxBytes >= a.answerBytes {
		// The limit of the server is tighter, and holds for every statement anyway.
		maxBytes = 0
	}
	return dispatch.Request{
		Name: req.GetQueue(),
		LeaseFor: func(q storage.Queue) (time.Duration, error) {
			lease, err := leaseOf(q, "lease_ms", leaseMs)
			if lease == 0 {
				lease = q.DefaultLease
			}
			return lease, err
		},
		Max:             max(1, int(req.GetMaxMessages())),
		WorkerID:        req.GetWorkerId(),
		ClaimID:         claimID,
		MaxPayloadBytes: maxBytes,
		Wait:            time.Duration(min(req.GetWaitMs(), a.cfg.MaxWait.Milliseconds())) * time.Millisecond,
	}, nil
}

func (a *api) claimResponse(ctx context.Context, queue string, answer dispatch.Answer) (*queueboxv1.ClaimResponse, error) {
	resp := &queueboxv1.ClaimResponse{Replayed: answer.Replayed}
	if len(answer.Messages) == 0 {
		// The last look may be as old as a poll, so the clock of its statement is not the
		// present one.
		now, err := a.serverTime(ctx)
		if err != nil {
			return nil, err
		}
		resp.ServerTime = now
		resp.EmptyReason = a.emptyReason(ctx, queue, answer)
		return resp, nil
	}
	resp.ServerTime = stamp(answer.Now)
	resp.Messages = wireClaims(queue, answer.Messages, answer.Now, a.now().Sub(answer.Sent))
	return resp, nil
}

// noteClaims remembers of the leases of an answer what this server does when they end.
func (a *api) noteClaims(answer dispatch.Answer) {
	a.clock.seen(answer.Now, answer.Sent)
	a.ends.claimed(answer.Messages, answer.Now, a.now())
	for i := range answer.Messages {
		if m := &answer.Messages[i].Message; m.OrderingKey != "" {
			a.keyed.see(m.Ref.QueueID)
			break
		}
	}
}

// emptyReason is worked out once, when the wait has ended (C17).
func (a *api) emptyReason(ctx context.Context, queue string, answer dispatch.Answer) queueboxv1.EmptyReason {
	switch answer.Empty {
	case dispatch.Draining:
		return queueboxv1.EmptyReason_EMPTY_REASON_DRAINING
	case dispatch.DeadlineTooShort:
		return queueboxv1.EmptyReason_EMPTY_REASON_DEADLINE_TOO_SHORT
	case dispatch.QueueUnknown:
		return queueboxv1.EmptyReason_EMPTY_REASON_QUEUE_UNKNOWN
	case dispatch.NoneReady, dispatch.NotEmpty, dispatch.InFlightLimit, dispatch.RateLimit:
	}
	// Where the storage fails just now, the claim itself did not, and its answer stands.
	q, err := a.catalog.get(ctx, queue)
	if err == nil && q.Paused {
		return queueboxv1.EmptyReason_EMPTY_REASON_PAUSED
	}
	switch answer.Empty { //nolint:exhaustive // the others are answered above
	case dispatch.InFlightLimit:
		return queueboxv1.EmptyReason_EMPTY_REASON_CONCURRENCY_LIMIT
	case dispatch.RateLimit:
		return queueboxv1.EmptyReason_EMPTY_REASON_RATE_LIMIT
	}
	// A delayed message comes first by itself, whatever waits behind a key.
	if err == nil && !answer.Later && !answer.Replayed && a.blocked.get(ctx, q.ID) {
		return queueboxv1.EmptyReason_EMPTY_REASON_ORDERING_BLOCKED
	}
	return queueboxv1.EmptyReason_EMPTY_REASON_NONE_READY
}
