package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
)

// settleRequest is what the four settling calls have in common.
type settleRequest interface {
	GetQueue() string
	GetMessageId() string
	GetClaimToken() string
}

// settlement checks one settling call. It returns the name of the queue with what the
// storage takes.
func (a *api) settlement(c *check, req settleRequest) storage.Settlement {
	c.queue("queue", req.GetQueue())
	s := storage.Settlement{
		Ref:   c.message("message_id", req.GetMessageId()),
		Token: c.token("claim_token", req.GetClaimToken()),
	}
	switch r := req.(type) {
	case *queueboxv1.CompleteRequest:
		s.Action = storage.ActionComplete
		c.payload("result", len(r.GetResult()), a.cfg.MaxPayloadBytes)
		c.notBuilt("follow_ups", len(r.GetFollowUps()) > 0)
		s.Result = r.GetResult()
	case *queueboxv1.RetryRequest:
		s.Action = storage.ActionRetry
		s.HasDelay = r.DelayMs != nil
		s.Delay = c.delay("delay_ms", r.GetDelayMs())
		s.Error = cutError(r.GetError())
	case *queueboxv1.DeadLetterRequest:
		s.Action = storage.ActionDeadLetter
		c.text("reason_code", r.GetReasonCode())
		s.ReasonCode = r.GetReasonCode()
		s.Error = cutError(r.GetError())
	case *queueboxv1.ReleaseRequest:
		s.Action = storage.ActionRelease
		s.HasDelay = true
		s.Delay = c.delay("delay_ms", r.GetDelayMs())
	}
	return s
}

// settle settles one message for a unary call.
func (a *api) settle(ctx context.Context, req settleRequest) (storage.Settled, time.Time, error) {
	c := &check{}
	s := a.settlement(c, req)
	if err := c.err(); err != nil {
		return storage.Settled{}, time.Time{}, err
	}
	settled, errs, now, err := a.settleAll(ctx, []string{req.GetQueue()}, []storage.Settlement{s}, make([]error, 1))
	if err != nil {
		return storage.Settled{}, time.Time{}, err
	}
	return settled[0], now, errs[0]
}

// settleAll settles the items that have no error yet, each for itself. names[i] is the
// queue of items[i].
func (a *api) settleAll(ctx context.Context, names []string, items []storage.Settlement, errs []error) ([]storage.Settled, []error, time.Time, error) {
	out := make([]storage.Settled, len(items))
	send := make([]storage.Settlement, 0, len(items))
	index := make([]int, 0, len(items))
	for i, s := range items {
		if errs[i] != nil {
			continue
		}
		q, err := a.catalog.id(ctx, names[i])
		switch {
		case errors.Is(err, storage.ErrQueueNotFound):
			errs[i] = messageNotFound()
		case err != nil:
			return nil, nil, time.Time{}, err
		case q.ID != s.Ref.QueueID:
			errs[i] = messageNotFound()
		default:
			send = append(send, s)
			index = append(index, i)
		}
	}
	if len(send) == 0 {
		return out, errs, time.Time{}, nil
	}
	call, cancel := a.statement(ctx)
	defer cancel()
	res, err := a.store.Settle(call, storage.SettleParams{Items: send})
	if err != nil {
		return nil, nil, time.Time{}, err
	}
	a.clock.seen(res.Now, a.now())
	a.ready(res.Ready)
	for k, settled := range res.Items {
		i := index[k]
		out[i] = settled
		errs[i] = itemFailure(settled.Status, settled.Cause, settled.Outcome)
		a.settledItem(names[i], send[k], settled, res.Now)
	}
	return out, errs, res.Now, nil
}

// ready wakes those who wait for queues in which another message became claimable: the next
// one of an ordering key, or a follow-up.
func (a *api) ready(queueIDs []int32) {
	for _, id := range queueIDs {
		a.dispatch.Announce(id)
	}
}

// settledItem tells those who wait, and the metrics, what became of an item.
func (a *api) settledItem(queue string, s storage.Settlement, r storage.Settled, now time.Time) {
	a.metrics.settled(queue, r.Status, r.Outcome)
	a.notHeld(s.Ref, r.Status)
	if r.Status != storage.ItemUnknown {
		a.signals.settled(s.Ref, s.Token)
	}
	if r.Status != storage.ItemApplied {
		return
	}
	a.leaseOver(s.Ref)
	if r.Outcome == storage.OutcomeRetried || r.Outcome == storage.OutcomeReleased {
		a.dispatch.ReadyAt(s.Ref.QueueID, r.AvailableTime, now)
	}
}

func wireOutcome(o storage.Outcome) queueboxv1.SettleOutcome { return queueboxv1.SettleOutcome(o) }

// itemOf returns the settling call of an item of a batch, with the name of its field.
func itemOf(item *queueboxv1.SettleItem) (settleRequest, string) {
	switch x := item.GetAction().(type) {
	case *queueboxv1.SettleItem_Complete:
		return x.Complete, "complete"
	case *queueboxv1.SettleItem_Retry:
		return x.Retry, "retry"
	case *queueboxv1.SettleItem_DeadLetter:
		return x.DeadLetter, "dead_letter"
	case *queueboxv1.SettleItem_Release:
		return x.Release, "release"
	}
	return nil, ""
}

// settleItems settles the items of a batch or a frame and answers each in place.
func (a *api) settleItems(ctx context.Context, field string, items []*queueboxv1.SettleItem) ([]*queueboxv1.SettleResult, time.Time, error) {
	names := make([]string, len(items))
	settlements := make([]storage.Settlement, len(items))
	errs := make([]error, len(items))
	results := make([]*queueboxv1.SettleResult, len(items))
	for i, item := range items {
		c := &check{prefix: fmt.Sprintf("%s[%d].", field, i)}
		req, action := itemOf(item)
		if req == nil {
			c.wrong("action", "is missing; set one of complete, retry, dead_letter, release")
			results[i] = &queueboxv1.SettleResult{}
			errs[i] = c.err()
			continue
		}
		results[i] = &queueboxv1.SettleResult{MessageId: req.GetMessageId(), ClaimToken: req.GetClaimToken()}
		names[i] = req.GetQueue()
		c.within(action+".", func() { settlements[i] = a.settlement(c, req) })
		errs[i] = c.err()
	}
	settled, errs, now, err := a.settleAll(ctx, names, settlements, errs)
	if err != nil {
		return nil, time.Time{}, err
	}
	for i, r := range results {
		if errs[i] != nil {
			r.Error = a.errors.item(ctx, errs[i])
			continue
		}
		s := settled[i]
		r.Outcome = wireOutcome(s.Outcome)
		r.AlreadySettled = s.Status == storage.ItemAlreadySettled
		switch s.Outcome { //nolint:exhaustive // the others have no time to tell
		case storage.OutcomeRetried, storage.OutcomeReleased:
			r.AvailableTime = stamp(s.AvailableTime)
		case storage.OutcomeCompleted:
			r.CompleteTime = stamp(s.SettleTime)
		}
	}
	return results, now, nil
}
