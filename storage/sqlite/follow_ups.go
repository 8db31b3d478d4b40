package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// completeWith completes a message and enqueues its follow-ups, or does neither (S10). It
// tells the queues of the follow-ups beside the answer. Where an idempotency key refuses it
// (E3), what it did is taken back, and the other items of the transaction stay.
func (c *session) completeWith(ctx, quiet context.Context, now time.Time, keys keySet, it storage.Settlement) (storage.Settled, []int32, error) {
	attributes := make([]any, len(it.FollowUps))
	for i, m := range it.FollowUps {
		var err error
		if attributes[i], err = toAttributes(m.Attributes); err != nil {
			return storage.Settled{}, nil, fmt.Errorf("follow-up %d: %w", i, err)
		}
	}
	if err := c.control(quiet, "SAVEPOINT completion"); err != nil {
		return storage.Settled{}, nil, err
	}
	var touched keySet
	if keys != nil {
		touched = make(keySet)
	}
	res, err := c.settle(quiet, now, touched, it)
	if err != nil {
		return storage.Settled{}, nil, err
	}
	var queues []int32
	if res.Status == storage.ItemApplied {
		if queues, err = c.followUp(ctx, quiet, it, attributes, &res); err != nil {
			return storage.Settled{}, nil, err
		}
	}
	if res.Status == storage.ItemKeyReused {
		if err := c.control(quiet, "ROLLBACK TO completion"); err != nil {
			return storage.Settled{}, nil, err
		}
		touched = nil
	}
	for id := range touched {
		keys[id] = struct{}{}
	}
	err = c.control(quiet, "RELEASE completion")
	return res, queues, err
}

// followUp enqueues the follow-ups of a message that was completed just now, and keeps with
// it which they are, for whoever repeats the completion (S5).
func (c *session) followUp(ctx, quiet context.Context, it storage.Settlement, attributes []any, res *storage.Settled) ([]int32, error) {
	b := newEnqueueBatch(c)
	out, err := b.run(ctx, quiet, it.FollowUps, attributes)
	if err != nil {
		return nil, err
	}
	if b.reused {
		*res = storage.Settled{
			Status: storage.ItemKeyReused,
			KeyReused: slices.IndexFunc(out.Items, func(e storage.Enqueued) bool {
				return e.Status == storage.EnqueueKeyReused
			}),
		}
		return nil, nil
	}
	var queues []int32
	pairs := make([][2]int64, len(out.Items))
	for i, e := range out.Items {
		pairs[i] = [2]int64{int64(e.Ref.QueueID), e.Ref.Position}
		res.FollowUps = append(res.FollowUps, e.Ref)
		res.Duplicates = append(res.Duplicates, e.Status == storage.EnqueueDuplicate)
		if e.Status == storage.EnqueueInserted {
			queues = mergeReady(queues, []int32{e.Ref.QueueID})
		}
	}
	list, err := toJSON(pairs)
	if err != nil {
		return nil, err
	}
	_, err = c.exec(quiet, qCompleteFollowUps, it.Ref.Position, list)
	return queues, err
}

// fromFollowUps reads what complete_follow_ups has kept.
func fromFollowUps(list sql.NullString) ([]storage.Ref, error) {
	if !list.Valid {
		return nil, nil
	}
	var pairs [][2]int64
	if err := json.Unmarshal([]byte(list.String), &pairs); err != nil {
		return nil, fmt.Errorf("follow-ups: %w", err)
	}
	refs := make([]storage.Ref, len(pairs))
	for i, p := range pairs {
		refs[i] = storage.Ref{QueueID: int32(p[0]), Position: p[1]}
	}
	return refs, nil
}
