package server

import (
	"context"
	"errors"
	"fmt"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
)

// followUps checks the messages that a completion enqueues (S10), each as Enqueue does, and
// returns them with the names of their queues.
func (a *api) followUps(c *check, reqs []*queueboxv1.EnqueueRequest) ([]storage.NewMessage, []string) {
	if len(reqs) == 0 {
		return nil, nil
	}
	before := len(c.violations)
	if c.batch("follow_ups", len(reqs)); len(c.violations) > before {
		return nil, nil
	}
	ms, names := make([]storage.NewMessage, len(reqs)), make([]string, len(reqs))
	for i, r := range reqs {
		names[i] = r.GetQueue()
		c.item("follow_ups", i, func() { ms[i] = a.newMessage(c, r) })
		if len(c.violations) >= maxViolations {
			break
		}
	}
	return ms, names
}

// allFollowUps bounds the follow-ups of a whole batch: they are as much work for the database
// as a BatchEnqueue of as many.
func (c *check) allFollowUps(field string, items []*queueboxv1.SettleItem) {
	n := 0
	for _, item := range items {
		n += len(item.GetComplete().GetFollowUps())
	}
	if n > maxBatchItems {
		c.wrong(field, "have %d follow_ups in all; at most %d are allowed in one call", n, maxBatchItems)
	}
}

// placeFollowUps finds or makes the queues of the follow-ups. What is wrong with a queue is an
// error of the item; an error that is returned is one of the storage.
func (a *api) placeFollowUps(ctx context.Context, s *settling) error {
	for i, name := range s.followUpsOf {
		q, err := a.queueForEnqueue(ctx, name)
		switch {
		case errors.Is(err, storage.ErrQueueNotFound), errors.Is(err, storage.ErrQueueLimit):
			s.err = followUpQueue(err, fmt.Sprintf("%sfollow_ups[%d].queue", s.at, i))
			return nil
		case err != nil:
			return err
		}
		s.FollowUps[i].QueueID = q.ID
		if s.FollowUps[i].OrderingKey != "" {
			a.keyed.see(q.ID)
		}
	}
	return nil
}

// followUpQueue is the error of a completion of which a follow-up has no queue to go to. It
// names the field, since the queue of the completed message is there.
func followUpQueue(err error, field string) error {
	e := *classify(err)
	e.text = field + ": " + e.text + "; nothing changed, and the claim is held as before"
	e.metadata = map[string]string{"field": field}
	return &e
}

// followUpReused is the error of a completion of which follow-up i reused an idempotency key
// (E3). The claim is held as before.
func followUpReused(prefix string, i int) error {
	field := fmt.Sprintf("%sfollow_ups[%d].idempotency_key", prefix, i)
	return &apiError{
		reason:   queueboxv1.ErrorReason_ERROR_REASON_IDEMPOTENCY_KEY_REUSED,
		text:     field + ": the key names a message with other content; nothing changed, and the claim is held as before; use a new key for new content",
		metadata: map[string]string{"field": field},
	}
}

// countFollowUps tells the metrics what a completion enqueued.
func (a *api) countFollowUps(s *settling, r storage.Settled) {
	if r.Status != storage.ItemApplied {
		return
	}
	for i, name := range s.followUpsOf {
		a.metrics.enqueued(name, r.Duplicates[i])
	}
}
