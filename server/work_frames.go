package server

import (
	"context"
	"time"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// checkFrame refuses a frame as a whole, before anything of it is done.
func (w *work) checkFrame(req *queueboxv1.WorkRequest) error {
	c := &check{}
	switch start := req.GetStart(); {
	case w.start == nil && start == nil:
		c.wrong("start", "is missing; the first frame of a stream opens it")
	case w.start != nil && start != nil:
		c.wrong("start", "stands only in the first frame of a stream")
	case start != nil:
		c.within("start.", func() { c.workStart(start) })
	}
	switch n := req.GetCredit(); {
	case n < 0:
		c.wrong("credit", "is negative; credit that was given cannot be taken back")
	case n > 0 && w.inHand()+int(n) > maxCredit:
		c.wrong("credit", "makes more than %d in hand; give what the worker has room for", maxCredit)
	}
	switch n := req.GetSequence(); {
	case n < 0:
		c.wrong("sequence", "is negative")
	case n == 0 && len(req.GetSettlements())+len(req.GetRenewals()) > 0:
		c.wrong("sequence", "is 0, which the answer to settlements and renewals cannot repeat; number these frames from 1 on")
	}
	c.batch("settlements", len(req.GetSettlements()))
	c.batch("renewals", len(req.GetRenewals()))
	c.allFollowUps("settlements", req.GetSettlements())
	return c.err()
}

func (c *check) workStart(start *queueboxv1.WorkStart) {
	c.queue("queue", start.GetQueue())
	c.text("worker_id", start.GetWorkerId())
	if start.GetLeaseMs() < 0 {
		c.wrongFor(queueboxv1.ErrorReason_ERROR_REASON_LEASE_OUT_OF_RANGE, "lease_ms", "is negative")
	}
	if start.GetMaxOutstandingBytes() < 0 {
		c.wrong("max_outstanding_bytes", "is negative")
	}
}

// checkLease refuses a lease that the queue does not allow (C8), where the queue is known by
// now; otherwise the first claim finds out.
func (w *work) checkLease(ctx context.Context, start *queueboxv1.WorkStart) error {
	q, err := w.api.catalog.get(ctx, start.GetQueue())
	if err != nil {
		return nil //nolint:nilerr // the queue may appear, and the database come back
	}
	_, err = leaseOf(q, "start.lease_ms", start.GetLeaseMs())
	return err
}

// answer answers one frame and gives its slot, and its bytes, back when the answer is sent.
func (w *work) answer(ctx context.Context, req *queueboxv1.WorkRequest, size int64) {
	defer w.done()
	resp, err := w.frame(ctx, req)
	if err != nil {
		w.fail(err)
		return // and the slot with it: nothing more is to be read
	}
	// Where it is not sent the stream has ended.
	_ = w.out.put(ctx, outgoing[queueboxv1.WorkResponse]{frame: resp})
	w.bytes.give(size)
	<-w.slots
}

// frame does what a frame asks for. What fails stands in its place, be it one item or all of
// them: the stream goes on. The renewals come first, for they are urgent.
func (w *work) frame(ctx context.Context, req *queueboxv1.WorkRequest) (resp *queueboxv1.WorkResponse, err error) {
	defer func() {
		// The interceptor that catches panics does not see this goroutine.
		if p := recover(); p != nil {
			w.api.metrics.panics.Inc()
			err = caught(p)
		}
	}()
	a := w.api
	resp = &queueboxv1.WorkResponse{Sequence: req.GetSequence()}
	var now time.Time
	if items := req.GetRenewals(); len(items) > 0 {
		results, at, err := a.renewResults(ctx, w.start.GetQueue(), items, w.watch)
		if err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx) // the stream is gone, and nobody would read the answer
			}
			results = a.failedRenewals(ctx, items, err)
		}
		resp.RenewResults, now = results, at
	}
	if items := req.GetSettlements(); len(items) > 0 {
		for _, item := range items {
			nameQueue(item, w.start.GetQueue())
		}
		results, at, err := a.settleItems(ctx, "settlements", items)
		if err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			results = a.failedSettlements(ctx, items, err)
		}
		if resp.SettleResults = results; !at.IsZero() {
			now = at
		}
	}
	if resp.ServerTime = stamp(now); resp.GetServerTime() == nil {
		// While the database is away a ping is answered without its clock.
		resp.ServerTime, _ = a.serverTime(ctx)
	}
	return resp, nil
}

// nameQueue names the queue of a settlement that names none: that of the stream.
func nameQueue(item *queueboxv1.SettleItem, queue string) {
	var of *string
	switch x := item.GetAction().(type) {
	case *queueboxv1.SettleItem_Complete:
		of = &x.Complete.Queue
	case *queueboxv1.SettleItem_Retry:
		of = &x.Retry.Queue
	case *queueboxv1.SettleItem_DeadLetter:
		of = &x.DeadLetter.Queue
	case *queueboxv1.SettleItem_Release:
		of = &x.Release.Queue
	}
	if of != nil && *of == "" {
		*of = queue
	}
}

// failedSettlements answers every settlement with the error of the whole statement.
func (a *api) failedSettlements(ctx context.Context, items []*queueboxv1.SettleItem, err error) []*queueboxv1.SettleResult {
	failure := a.errors.item(ctx, err)
	results := make([]*queueboxv1.SettleResult, len(items))
	for i, item := range items {
		results[i] = &queueboxv1.SettleResult{Error: failure}
		if req, _ := itemOf(item); req != nil {
			results[i].MessageId, results[i].ClaimToken = req.GetMessageId(), req.GetClaimToken()
		}
	}
	return results
}
