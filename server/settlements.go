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

// settling is one settlement on its way: the name of its queue beside what the storage takes,
// the queues of its follow-ups, and where its fields stand in the request.
type settling struct {
	storage.Settlement

	queue       string
	followUpsOf []string
	at          place
	err         error
}

// place is where a settlement stands in its request; zero for a call of its own. Its text is
// made only where something is wrong.
type place struct {
	list   string
	index  int
	action string
}

func (p place) String() string {
	if p.list == "" {
		return ""
	}
	return fmt.Sprintf("%s[%d].%s.", p.list, p.index, p.action)
}

// settling checks one settling call.
func (a *api) settling(req settleRequest, at place) settling {
	c := &check{}
	c.queue("queue", req.GetQueue())
	s := settling{queue: req.GetQueue(), at: at}
	s.Ref = c.message("message_id", req.GetMessageId())
	s.Token = c.token("claim_token", req.GetClaimToken())
	switch r := req.(type) {
	case *queueboxv1.CompleteRequest:
		s.Action = storage.ActionComplete
		c.payload("result", len(r.GetResult()), a.cfg.MaxPayloadBytes)
		s.Result = r.GetResult()
		s.FollowUps, s.followUpsOf = a.followUps(c, r.GetFollowUps())
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
	if len(c.violations) > 0 {
		for i := range c.violations {
			c.violations[i].field = at.String() + c.violations[i].field
		}
		s.err = c.err()
	}
	return s
}

// settle settles one message for a unary call.
func (a *api) settle(ctx context.Context, req settleRequest) (storage.Settled, time.Time, error) {
	items := []settling{a.settling(req, place{})}
	if items[0].err != nil {
		return storage.Settled{}, time.Time{}, items[0].err
	}
	settled, now, err := a.settleAll(ctx, items)
	if err != nil {
		return storage.Settled{}, time.Time{}, err
	}
	return settled[0], now, items[0].err
}

// settleAll settles the items that have no error yet, each for itself, and notes the errors
// of those that fail.
func (a *api) settleAll(ctx context.Context, items []settling) ([]storage.Settled, time.Time, error) {
	out := make([]storage.Settled, len(items))
	send := make([]storage.Settlement, 0, len(items))
	index := make([]int, 0, len(items))
	var freed map[int32]bool // made for a queue that has a limit of leases
	for i := range items {
		s := &items[i]
		if s.err != nil {
			continue
		}
		q, err := a.catalog.id(ctx, s.queue)
		switch {
		case errors.Is(err, storage.ErrQueueNotFound), err == nil && q.ID != s.Ref.QueueID:
			s.err = messageNotFound()
			continue
		case err == nil:
			err = a.placeFollowUps(ctx, s)
		}
		if err != nil {
			return nil, time.Time{}, err
		}
		if s.err == nil {
			send = append(send, s.Settlement)
			index = append(index, i)
			if q.MaxInFlight > 0 {
				if freed == nil {
					freed = map[int32]bool{}
				}
				freed[q.ID] = false
			}
		}
	}
	if len(send) == 0 {
		return out, time.Time{}, nil
	}
	results, at, err := a.join.Settle(ctx, connection(ctx), send)
	if err != nil {
		return nil, time.Time{}, err
	}
	for k, settled := range results {
		s := &items[index[k]]
		out[index[k]] = settled
		if settled.Status == storage.ItemKeyReused {
			s.err = followUpReused(s.at.String(), settled.KeyReused)
		} else {
			s.err = itemFailure(settled.Status, settled.Cause, settled.Outcome)
		}
		a.countFollowUps(s, settled)
		if _, counts := freed[send[k].Ref.QueueID]; counts && settled.Status == storage.ItemApplied {
			freed[send[k].Ref.QueueID] = true
		}
	}
	a.settledItems(items, index, send, results, at)
	for id, some := range freed {
		if some {
			a.dispatch.Freed(id)
		}
	}
	return out, at, nil
}

// ready wakes those who wait for queues in which another message became claimable: the next
// one of an ordering key, or a follow-up; since is not after its ready time.
func (a *api) ready(queueIDs []int32, since time.Time) {
	for _, id := range queueIDs {
		a.dispatch.Announce(id, since)
	}
}

// settledItems tells those who wait, and the metrics, what became of items: item index[k] is
// sent[k]. It asks for each lock once, whatever the size of the batch.
func (a *api) settledItems(items []settling, index []int, sent []storage.Settlement, results []storage.Settled, now time.Time) {
	over, known := make([]storage.Ref, 0, len(sent)), make([]storage.HeldClaim, 0, len(sent))
	ended := 0 // messages of the queue at hand that have ended
	like := 0  // items before k with the same end
	for k, r := range results {
		s, queue := &sent[k], items[index[k]].queue
		if like++; k+1 == len(results) || items[index[k+1]].queue != queue || results[k+1].Status != r.Status || results[k+1].Outcome != r.Outcome {
			a.metrics.settled(queue, r.Status, r.Outcome, like)
			like = 0
		}
		if r.Status != storage.ItemUnknown {
			known = append(known, storage.HeldClaim{Ref: s.Ref, Token: s.Token})
		}
		if r.Status == storage.ItemApplied || r.Status == storage.ItemSettled || r.Status == storage.ItemNotFound {
			over = append(over, s.Ref)
		}
		if r.Status == storage.ItemApplied && !returns(r.Outcome) {
			ended++
		}
		if ended > 0 && (k+1 == len(results) || sent[k+1].Ref.QueueID != s.Ref.QueueID) {
			a.full.left(s.Ref.QueueID, now, int64(ended))
			ended = 0
		}
	}
	a.leaseOver(over...)
	a.signals.settled(known)
	for k, r := range results {
		if r.Status == storage.ItemApplied && returns(r.Outcome) {
			a.dispatch.ReadyAt(sent[k].Ref.QueueID, r.AvailableTime, now)
		}
	}
}

// returns tells the outcomes after which the message is delivered again.
func returns(o storage.Outcome) bool {
	return o == storage.OutcomeRetried || o == storage.OutcomeReleased
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
	all := make([]settling, len(items))
	results := make([]*queueboxv1.SettleResult, len(items))
	answers := make([]queueboxv1.SettleResult, len(items))
	for i, item := range items {
		results[i] = &answers[i]
		req, action := itemOf(item)
		if req == nil {
			c := &check{}
			c.item(field, i, func() { c.wrong("action", "is missing; set one of complete, retry, dead_letter, release") })
			all[i].err = c.err()
			continue
		}
		results[i].MessageId, results[i].ClaimToken = req.GetMessageId(), req.GetClaimToken()
		all[i] = a.settling(req, place{field, i, action})
	}
	settled, now, err := a.settleAll(ctx, all)
	if err != nil {
		return nil, time.Time{}, err
	}
	var clock stamps
	for i, r := range results {
		if all[i].err != nil {
			r.Error = a.errors.item(ctx, all[i].err)
			continue
		}
		s := &settled[i]
		r.Outcome = wireOutcome(s.Outcome)
		r.AlreadySettled = s.Status == storage.ItemAlreadySettled
		switch s.Outcome { //nolint:exhaustive // the others have no time to tell
		case storage.OutcomeRetried, storage.OutcomeReleased:
			r.AvailableTime = clock.of(s.AvailableTime)
		case storage.OutcomeCompleted:
			r.CompleteTime = clock.of(s.SettleTime)
			r.FollowUpMessageIds = messageIDs(s.FollowUps)
		}
	}
	return results, now, nil
}
