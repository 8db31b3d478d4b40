package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sort"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// Settle implements storage.Store. Completions without result and follow-ups go in two
// statements for all of them; everything else, and a message that stands in several items,
// goes one by one, in the order of the items. All of it is one transaction, which holds the write lock
// before the first lease is judged (S13).
func (s *Store) Settle(ctx context.Context, p storage.SettleParams) (storage.SettleResult, error) {
	res := storage.SettleResult{Items: make([]storage.Settled, len(p.Items))}
	err := s.write(ctx, "settle", func(quiet context.Context, c *session) (verdict, error) {
		var err error
		var keys keySet
		if res.Now, keys, err = c.beginSettle(quiet); err != nil {
			return rollback, err
		}
		if err := c.completeAll(quiet, res.Now, keys, p.Items, res.Items); err != nil {
			return rollback, err
		}
		v := rollback
		for i, it := range p.Items {
			if res.Items[i].Status == 0 {
				if err := ctx.Err(); err != nil {
					return rollback, err
				}
				if len(it.FollowUps) > 0 {
					var queues []int32
					res.Items[i], queues, err = c.completeWith(ctx, quiet, res.Now, keys, it)
					res.Ready = mergeReady(res.Ready, queues)
				} else {
					res.Items[i], err = c.settle(quiet, res.Now, keys, it)
				}
				if err != nil {
					return rollback, err
				}
			}
			if res.Items[i].Status == storage.ItemApplied {
				v = commit
			}
		}
		heads, err := c.promote(quiet, keys.sorted())
		res.Ready = mergeReady(res.Ready, heads)
		return v, err
	})
	if err != nil {
		return storage.SettleResult{}, err
	}
	return res, nil
}

// beginSettle reads the storage clock, and makes a set for the ordering keys that the
// settlements move on: nil where there is no key at all, so that unkeyed messages pay nothing.
func (c *session) beginSettle(ctx context.Context) (time.Time, keySet, error) {
	var ms int64
	var some bool
	if err := c.one(ctx, qSettleBegin, nil, &ms, &some); err != nil || !some {
		return fromMillis(ms), nil, err
	}
	return fromMillis(ms), make(keySet), nil
}

// completeAll completes what can go together, queue by queue, and leaves the other items
// as they are.
func (c *session) completeAll(ctx context.Context, now time.Time, keys keySet, items []storage.Settlement, out []storage.Settled) error {
	place := make(map[int64]int, len(items))
	for i, it := range items {
		if _, ok := place[it.Ref.Position]; ok {
			i = -1 // stands in several items
		}
		place[it.Ref.Position] = i
	}
	queues := make(map[int32]*together, 1)
	for i, it := range items {
		if it.Action != storage.ActionComplete || len(it.Result) > 0 || len(it.FollowUps) > 0 || place[it.Ref.Position] != i {
			continue
		}
		q := queues[it.Ref.QueueID]
		if q == nil {
			q = &together{}
			queues[it.Ref.QueueID] = q
		}
		q.positions = append(q.positions, it.Ref.Position)
		q.tokens = append(q.tokens, it.Token[:]...)
	}
	for queueID, q := range queues {
		sort.Sort(q)
		done, err := c.complete(ctx, now, keys, queueID, *q, nil)
		if err != nil {
			return err
		}
		for _, position := range done {
			out[place[position]] = completedAt(now)
		}
	}
	return nil
}

func completedAt(t time.Time) storage.Settled {
	return storage.Settled{Status: storage.ItemApplied, Outcome: storage.OutcomeCompleted, SettleTime: t}
}

// complete moves messages whose claims hold to the completed ones, and gives their positions.
func (c *session) complete(ctx context.Context, now time.Time, keys keySet, queueID int32, what together, result []byte) ([]int64, error) {
	done, err := c.copyCompleted(ctx, now, queueID, what, result)
	if err != nil || len(done) == 0 {
		return nil, err
	}
	if keys == nil {
		return done, c.drop(ctx, done)
	}
	gone, err := c.remove(ctx, done)
	keys.add(gone)
	return done, err
}

// copyCompleted is the first half of complete. Most often it copies all of them, and then
// nobody has to ask which.
func (c *session) copyCompleted(ctx context.Context, now time.Time, queueID int32, what together, result []byte) ([]int64, error) {
	var done []int64
	for _, r := range runsOf(what.positions) {
		part := what.part(r)
		list, err := toJSON(part.positions)
		if err != nil {
			return nil, err
		}
		var n int64
		if r.whole {
			n, err = c.exec(ctx, qCompleteCopyRun, queueID, r.first, part.tokens, now.UnixMilli(), nullBlob(result), r.last)
		} else {
			n, err = c.exec(ctx, qCompleteCopy, queueID, list, part.tokens, now.UnixMilli(), nullBlob(result))
		}
		if err != nil {
			return nil, err
		}
		if n == int64(len(part.positions)) {
			done = append(done, part.positions...)
			continue
		}
		err = c.each(ctx, qCompleteCopied, args(list), func(rows *row) error {
			var position int64
			err := rows.Scan(&position)
			done = append(done, position)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return done, nil
}

// remove deletes live rows that were copied before in the same transaction, and gives those
// that had an ordering key: the caller promotes the next ones.
func (c *session) remove(ctx context.Context, positions []int64) ([]keyedRow, error) {
	list, err := toJSON(positions)
	if err != nil {
		return nil, err
	}
	gone, err := c.keyedRows(ctx, list)
	if err != nil {
		return nil, err
	}
	return gone, c.drop(ctx, positions)
}

// drop deletes live rows as remove does, where no ordering key has to go on.
func (c *session) drop(ctx context.Context, positions []int64) error {
	for _, r := range runsOf(positions) {
		var n int64
		var err error
		if r.whole {
			n, err = c.exec(ctx, qCompleteDeleteRun, r.first, r.last)
		} else {
			var list string
			if list, err = toJSON(positions[r.from:r.to]); err == nil {
				n, err = c.exec(ctx, qCompleteDelete, list)
			}
		}
		if err == nil && n != int64(r.to-r.from) {
			err = fmt.Errorf("%d of %d copied messages were removed", n, r.to-r.from)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// settle settles one item.
func (c *session) settle(ctx context.Context, now time.Time, keys keySet, it storage.Settlement) (storage.Settled, error) {
	var res storage.Settled
	var err error
	switch it.Action {
	case storage.ActionComplete:
		var done []int64
		done, err = c.complete(ctx, now, keys, it.Ref.QueueID, together{[]int64{it.Ref.Position}, it.Token[:]}, it.Result)
		if len(done) > 0 {
			res = completedAt(now)
		}
	case storage.ActionRetry, storage.ActionRelease:
		res, err = c.giveUp(ctx, keys, it)
	case storage.ActionDeadLetter:
		res, err = c.deadLetter(ctx, keys, it, storage.DeadReasonRejected)
	default:
		err = fmt.Errorf("action %d is not known", it.Action)
	}
	if err != nil || res.Status != 0 {
		return res, err
	}
	why, err := c.explain(ctx, it.Ref, it.Token)
	if err != nil {
		return res, err
	}
	return why.settled(it.Action), nil
}

// settled answers a settlement whose fence did not hold: the facts again for a repeat
// (S5), the outcome alone for another settlement (S6).
func (e explanation) settled(action storage.Action) storage.Settled {
	switch {
	case e.status != storage.ItemSettled:
		return storage.Settled{Status: e.status, Cause: e.cause}
	case e.action != action:
		return storage.Settled{Status: storage.ItemSettled, Outcome: e.outcome}
	default:
		return storage.Settled{
			Status:        storage.ItemAlreadySettled,
			Outcome:       e.outcome,
			DeadReason:    e.deadReason,
			SettleTime:    fromNullMillis(e.settleTime),
			AvailableTime: fromNullMillis(e.readyTime),
			FollowUps:     e.followUps,
		}
	}
}

// hold is what the decision about a Retry or Release needs.
type hold struct {
	cancelRequested, expired bool
	attempt, maxAttempts     int32
	policy                   storage.RetryPolicy
	key                      sql.NullInt64
}

// hold reads it where the claim holds; sql.ErrNoRows where it does not.
func (c *session) hold(ctx context.Context, it storage.Settlement) (hold, error) {
	var h hold
	var minDelay, maxDelay int64
	err := c.one(ctx, qSettleHold, args(it.Ref.QueueID, it.Ref.Position, it.Token[:]),
		&h.cancelRequested, &h.expired, &h.attempt, &h.maxAttempts, &minDelay, &maxDelay, &h.policy.Multiplier, &h.policy.Jitter, &h.key)
	h.policy.Min, h.policy.Max = fromDuration(minDelay), fromDuration(maxDelay)
	return h, err
}

// giveUp puts a message back after a Retry or Release, or ends it: where it was asked to be
// cancelled (S14), where it has expired (E7), and for a Retry where no attempt is left (S4).
// Status 0 says that the fence did not hold.
func (c *session) giveUp(ctx context.Context, keys keySet, it storage.Settlement) (storage.Settled, error) {
	h, err := c.hold(ctx, it)
	if errors.Is(err, sql.ErrNoRows) {
		return storage.Settled{}, nil
	}
	if err != nil {
		return storage.Settled{}, err
	}
	if h.key.Valid {
		// One with an earlier place may stand behind it since a redrive (O7).
		keys[h.key.Int64] = struct{}{}
	}
	delay := toMillis(it.Delay)
	switch {
	case h.cancelRequested:
		return c.bury(ctx, keys, it, storage.StateCancelled, storage.DeadReasonNone)
	case h.expired:
		return c.deadLetter(ctx, keys, it, storage.DeadReasonExpired)
	case it.Action == storage.ActionRelease:
		return c.putBack(ctx, it, qSettleRelease, storage.OutcomeReleased,
			args(it.Ref.QueueID, it.Ref.Position, it.Token[:], delay))
	case h.maxAttempts > 0 && h.attempt >= h.maxAttempts:
		return c.deadLetter(ctx, keys, it, storage.DeadReasonAttemptsExhausted)
	}
	if !it.HasDelay {
		delay = backoff(h.policy, h.attempt, rand.Float64()) //nolint:gosec // jitter is no secret
	}
	return c.putBack(ctx, it, qSettleRetry, storage.OutcomeRetried,
		args(it.Ref.QueueID, it.Ref.Position, it.Token[:], delay, it.Error, it.ReasonCode))
}

// backoff is the delay in milliseconds after an attempt, by the policy of the queue.
func backoff(p storage.RetryPolicy, attempt int32, draw float64) int64 {
	return p.Backoff(attempt, draw).Milliseconds()
}

// putBack makes a message pending again by q and records that.
func (c *session) putBack(ctx context.Context, it storage.Settlement, q query, outcome storage.Outcome, a []any) (storage.Settled, error) {
	var ready, now int64
	err := c.one(ctx, q, a, &ready, &now)
	if errors.Is(err, sql.ErrNoRows) {
		return storage.Settled{}, nil
	}
	if err != nil {
		return storage.Settled{}, err
	}
	_, err = c.exec(ctx, qSettleHistory, it.Ref.QueueID, it.Ref.Position, it.Token[:], it.Action, outcome,
		storage.DeadReasonNone, now, ready)
	return storage.Settled{
		Status:        storage.ItemApplied,
		Outcome:       outcome,
		SettleTime:    fromMillis(now),
		AvailableTime: fromMillis(ready),
	}, err
}

func (c *session) deadLetter(ctx context.Context, keys keySet, it storage.Settlement, reason storage.DeadReason) (storage.Settled, error) {
	return c.bury(ctx, keys, it, storage.StateDead, reason)
}

// bury moves a message to the dead ones, dead or cancelled, and records that.
func (c *session) bury(ctx context.Context, keys keySet, it storage.Settlement, state storage.State, reason storage.DeadReason) (storage.Settled, error) {
	var now int64
	err := c.one(ctx, qSettleDead,
		args(it.Ref.QueueID, it.Ref.Position, it.Token[:], reason, it.Error, it.ReasonCode, it.Action, state), &now)
	if errors.Is(err, sql.ErrNoRows) {
		return storage.Settled{}, nil
	}
	if err != nil {
		return storage.Settled{}, err
	}
	gone, err := c.remove(ctx, []int64{it.Ref.Position})
	if err != nil {
		return storage.Settled{}, err
	}
	keys.add(gone)
	if state == storage.StateDead {
		if err := c.block(ctx, gone); err != nil {
			return storage.Settled{}, err
		}
	}
	outcome := finishedOutcome(state)
	_, err = c.exec(ctx, qSettleHistory, it.Ref.QueueID, it.Ref.Position, it.Token[:], it.Action, outcome,
		reason, now, nil)
	return storage.Settled{
		Status:     storage.ItemApplied,
		Outcome:    outcome,
		DeadReason: reason,
		SettleTime: fromMillis(now),
	}, err
}
