package server

import (
	"context"
	"fmt"
	"time"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
)

const (
	// batchMoves and batchCounts bound what one storage call of an operator's batch moves, or
	// counts.
	batchMoves  = 500
	batchCounts = 10_000
	// batchTime is the longest time that one call goes on, whatever its caller allows: a
	// connection is asked to leave in time, and a call that lasts longer than the grace is cut.
	batchTime = 5 * time.Minute
	// batchSlack is how long before the deadline of its caller a call answers with what is
	// done so far; a quarter of the time, where that is less.
	batchSlack = time.Second
)

// batch is a call of RedriveMessages or PurgeMessages: many small transactions, one after the
// other, so that nobody waits for it.
type batch struct {
	api   *api
	queue storage.Queue
	// limit bounds the messages that match; 0 is all of them.
	limit int64
	// page goes on after a position with up to limit messages. done is the count so far.
	page func(ctx context.Context, after int64, limit int, done int64, dryRun bool) (storage.BatchResult, error)
	// until is when the call answers with what it has; no page is begun that would take longer
	// than that, as far as the longest one so far tells.
	until   time.Time
	longest time.Duration
}

// batched is what a batch did.
type batched struct {
	count int64
	// more: more messages match, or may, since the time was over or somebody held one.
	more bool
	// left is the number of messages that somebody else held.
	left int64
	// failed is the error that ended it after some messages were moved.
	failed error
}

// newBatch notes when the call has to answer.
func (a *api) newBatch(ctx context.Context, q storage.Queue, limit int32) *batch {
	b := &batch{api: a, queue: q, limit: int64(limit), until: a.now().Add(batchTime)}
	if deadline, ok := ctx.Deadline(); ok {
		left := deadline.Sub(a.now())
		if end := a.now().Add(left - min(batchSlack, left/4)); end.Before(b.until) {
			b.until = end
		}
	}
	return b
}

// over tells that the call has to answer now.
func (b *batch) over() bool {
	select {
	case <-b.api.streams.draining:
		return true
	default:
		return !b.api.now().Add(b.longest).Before(b.until)
	}
}

// run moves, or counts, all that match. What was moved before an error or the deadline stays
// moved, and is told.
func (b *batch) run(ctx context.Context, dryRun bool) (batched, error) {
	var out batched
	var after int64
	most := int64(batchMoves)
	if dryRun {
		most = batchCounts
	}
	for {
		limit := most
		if b.limit > 0 {
			limit = min(most, b.limit-out.count)
		}
		res, err := b.call(ctx, after, int(limit), out.count, dryRun)
		if err != nil {
			if dryRun || out.count == 0 {
				return out, err
			}
			out.more, out.failed = true, err
			return out, nil
		}
		out.count += int64(res.Count)
		out.left += int64(res.Left)
		after = res.Next
		switch {
		case after == 0:
			out.more = out.left > 0
			return out, nil
		case b.limit > 0 && out.count >= b.limit:
			out.more = out.left > 0 || b.another(ctx, after)
			return out, nil
		case ctx.Err() != nil:
			return out, context.Cause(ctx)
		case b.over():
			out.more = true
			return out, nil
		}
	}
}

// another tells whether one more message matches, or may.
func (b *batch) another(ctx context.Context, after int64) bool {
	for after != 0 {
		if ctx.Err() != nil || b.over() {
			return true
		}
		res, err := b.call(ctx, after, 1, 0, true)
		if err != nil || res.Count > 0 {
			return true
		}
		after = res.Next
	}
	return false
}

func (b *batch) call(ctx context.Context, after int64, limit int, done int64, dryRun bool) (storage.BatchResult, error) {
	call, cancel := b.api.statement(ctx)
	defer cancel()
	began := b.api.now()
	res, err := b.page(call, after, limit, done, dryRun)
	took := b.api.now().Sub(began)
	b.longest = max(b.longest, took)
	if err != nil {
		return res, err
	}
	b.api.clock.seen(res.Now, b.api.now())
	if res.Ready {
		b.api.dispatch.Announce(b.queue.ID, since(res.Now, took))
	}
	return res, nil
}

// told logs what a call did: how many messages, and never which.
func (b *batch) told(ctx context.Context, what string, dryRun bool, began time.Time, out batched, err error) {
	if dryRun {
		what += ": dry run"
	}
	attrs := []any{
		"queue", b.queue.Name, "count", out.count, "left", out.left, "more", out.more, "duration", b.api.now().Sub(began),
	}
	if err == nil {
		err = out.failed
	}
	if err != nil {
		b.api.log.WarnContext(ctx, what+": ended early", append(attrs, "error", err)...) //nolint:sloglint // one of two constants
		return
	}
	b.api.log.InfoContext(ctx, what, attrs...) //nolint:sloglint // one of two constants
}

// operatorFilter reads the filter of a call that changes many messages. One that says nothing
// is refused: nobody shall empty a queue by leaving a field out.
func (c *check) operatorFilter(f *queueboxv1.MessageFilter, empty string, state func(queueboxv1.MessageState) string) (p storage.ListMessagesParams, refs []storage.Ref) {
	if emptyFilter(f) {
		c.wrong("filter", "%s", empty)
		return p, nil
	}
	c.within("filter.", func() {
		refs = c.filter(f, &p)
		for i, s := range f.GetStates() {
			if _, ok := storedState(s); !ok {
				continue
			}
			if why := state(s); why != "" {
				c.wrong(fmt.Sprintf("states[%d]", i), "%s", why)
			}
		}
	})
	return p, refs
}

func emptyFilter(f *queueboxv1.MessageFilter) bool {
	return len(f.GetStates()) == 0 && f.GetOrderingKey() == "" && len(f.GetDeadReasons()) == 0 && f.GetErrorContains() == "" &&
		f.GetMinCreateTime() == nil && f.GetMaxCreateTime() == nil && f.GetWorkerId() == "" && len(f.GetMessageIds()) == 0 &&
		len(f.GetReasonCodes()) == 0
}

// inQueue puts the messages that a filter names into it. some is false where it names none of
// this queue, and so means nothing.
func inQueue(p *storage.ListMessagesParams, q storage.Queue, refs []storage.Ref) (some bool) {
	p.QueueID = q.ID
	for _, ref := range refs {
		if ref.QueueID == q.ID {
			p.Positions = append(p.Positions, ref.Position)
		}
	}
	return len(refs) == 0 || len(p.Positions) > 0
}

// notNegative checks a number where 0 stands for the default.
func (c *check) notNegative(field string, n int32) {
	if n < 0 {
		c.wrong(field, "is negative")
	}
}
