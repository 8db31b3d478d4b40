package server

import (
	"context"
	"time"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
)

// RedriveMessages returns dead messages to pending, oldest first, in many small transactions.
// A max_messages of 0 means all that match; the call ends early, with more = true, before the
// deadline of its caller, after five minutes and when the server drains. With spread_ms it
// counts first, and gives each message a time of its own in that span, evenly.
func (a *api) RedriveMessages(ctx context.Context, req *queueboxv1.RedriveMessagesRequest) (*queueboxv1.RedriveMessagesResponse, error) {
	c := &check{}
	c.queue("queue", req.GetQueue())
	filter, refs := c.operatorFilter(
		req.GetFilter(), "says nothing; to redrive all dead messages of the queue set filter.states to DEAD",
		func(s queueboxv1.MessageState) string {
			if s != queueboxv1.MessageState_MESSAGE_STATE_DEAD {
				return "is not DEAD; only dead messages are redriven"
			}
			return ""
		},
	)
	c.notNegative("max_messages", req.GetMaxMessages())
	c.notNegative("max_attempts", req.GetMaxAttempts())
	spread := c.delay("spread_ms", req.GetSpreadMs())
	if err := c.err(); err != nil {
		return nil, err
	}
	q, err := a.catalog.id(ctx, req.GetQueue())
	if err != nil {
		return nil, err
	}
	if !inQueue(&filter, q, refs) {
		return &queueboxv1.RedriveMessagesResponse{}, nil
	}
	began := a.now()
	var step time.Duration
	b := a.newBatch(ctx, q, req.GetMaxMessages())
	b.page = func(ctx context.Context, after int64, limit int, done int64, dryRun bool) (storage.BatchResult, error) {
		res, err := a.store.Redrive(ctx, storage.RedriveParams{
			Filter: filter, After: after, Limit: limit, DryRun: dryRun,
			Delay: time.Duration(done) * step, Step: step, MaxAttempts: req.GetMaxAttempts(),
		})
		if err == nil && !dryRun {
			a.metrics.redriven(q.Name, res.Count)
		}
		return res, err
	}
	out, err := b.spread(ctx, spread, &step, req.GetDryRun())
	b.told(ctx, "messages redriven", req.GetDryRun(), began, out, err)
	if err != nil {
		return nil, err
	}
	return &queueboxv1.RedriveMessagesResponse{MessageCount: out.count, More: out.more}, nil
}

// spread runs a redrive. Where it is spread over a time it counts first, and then moves no more
// than it has counted, so that the last one is ready when the time is over.
func (b *batch) spread(ctx context.Context, over time.Duration, step *time.Duration, dryRun bool) (batched, error) {
	if over > 0 && !dryRun {
		counted, err := b.run(ctx, true)
		if err != nil {
			return batched{}, err
		}
		if counted.count == 0 || b.over() {
			return batched{more: counted.more || counted.count > 0}, nil
		}
		b.limit = counted.count
		*step = over / time.Duration(counted.count)
	}
	return b.run(ctx, dryRun)
}
