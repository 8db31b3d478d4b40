package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/queuebox/queuebox/storage"
)

// Settle implements storage.Store. Completions without a result go in two statements for
// all of them; everything else, and a message that stands in several items, goes one by
// one, in the order of the items. All of it is one transaction, which holds the write lock
// before the first lease is judged (S13).
func (s *Store) Settle(ctx context.Context, p storage.SettleParams) (storage.SettleResult, error) {
	res := storage.SettleResult{Items: make([]storage.Settled, len(p.Items))}
	err := s.write(ctx, "settle", func(quiet context.Context, c *session) (verdict, error) {
		var err error
		if res.Now, err = c.now(quiet); err != nil {
			return rollback, err
		}
		if err := c.completeAll(quiet, p.Items, res.Items); err != nil {
			return rollback, err
		}
		v := rollback
		for i, it := range p.Items {
			if res.Items[i].Status == 0 {
				if err := ctx.Err(); err != nil {
					return rollback, err
				}
				if res.Items[i], err = c.settle(quiet, it); err != nil {
					return rollback, err
				}
			}
			if res.Items[i].Status == storage.ItemApplied {
				v = commit
			}
		}
		return v, nil
	})
	if err != nil {
		return storage.SettleResult{}, err
	}
	return res, nil
}

// completeAll completes what can go together and leaves the other items as they are.
func (c *session) completeAll(ctx context.Context, items []storage.Settlement, out []storage.Settled) error {
	times := make(map[int64]int, len(items))
	for _, it := range items {
		times[it.Ref.Position]++
	}
	var refs [][2]int64
	var tokens []byte
	place := make(map[int64]int, len(items))
	for i, it := range items {
		if it.Action != storage.ActionComplete || len(it.Result) > 0 || times[it.Ref.Position] > 1 {
			continue
		}
		place[it.Ref.Position] = i
		refs = append(refs, [2]int64{int64(it.Ref.QueueID), it.Ref.Position})
		tokens = append(tokens, it.Token[:]...)
	}
	if len(refs) == 0 {
		return nil
	}
	done, err := c.complete(ctx, refs, tokens, nil)
	for position, ms := range done {
		out[place[position]] = completedAt(ms)
	}
	return err
}

func completedAt(ms int64) storage.Settled {
	return storage.Settled{Status: storage.ItemApplied, Outcome: storage.OutcomeCompleted, SettleTime: fromMillis(ms)}
}

// complete moves messages whose claims hold to the completed ones, and gives the finish
// times by position. refs are queue ids and positions.
func (c *session) complete(ctx context.Context, refs [][2]int64, tokens []byte, result []byte) (map[int64]int64, error) {
	list, err := toJSON(refs)
	if err != nil {
		return nil, err
	}
	done := make(map[int64]int64, len(refs))
	positions := make([]int64, 0, len(refs))
	err = c.each(ctx, qCompleteCopy, args(list, tokens, nullBlob(result)), func(rows *sql.Rows) error {
		var position, ms int64
		err := rows.Scan(&position, &ms)
		done[position] = ms
		positions = append(positions, position)
		return err
	})
	if err != nil || len(done) == 0 {
		return done, err
	}
	return done, c.remove(ctx, positions)
}

// remove deletes live rows that were copied before in the same transaction.
func (c *session) remove(ctx context.Context, positions []int64) error {
	list, err := toJSON(positions)
	if err != nil {
		return err
	}
	n, err := c.exec(ctx, qCompleteDelete, list)
	if err == nil && n != int64(len(positions)) {
		err = fmt.Errorf("%d of %d copied messages were removed", n, len(positions))
	}
	return err
}

// settle settles one item.
func (c *session) settle(ctx context.Context, it storage.Settlement) (storage.Settled, error) {
	var res storage.Settled
	var err error
	switch it.Action {
	case storage.ActionComplete:
		var done map[int64]int64
		done, err = c.complete(ctx, [][2]int64{{int64(it.Ref.QueueID), it.Ref.Position}}, it.Token[:], it.Result)
		if ms, ok := done[it.Ref.Position]; ok {
			res = completedAt(ms)
		}
	case storage.ActionRetry:
		res, err = c.retry(ctx, it)
	case storage.ActionDeadLetter:
		res, err = c.deadLetter(ctx, it, storage.DeadReasonRejected)
	case storage.ActionRelease:
		res, err = c.putBack(ctx, it, qSettleRelease, storage.OutcomeReleased,
			args(it.Ref.QueueID, it.Ref.Position, it.Token[:], toMillis(it.Delay)))
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
		}
	}
}

// retry puts a message back, or ends it when no attempt is left (S4). Status 0 says that
// the fence did not hold.
func (c *session) retry(ctx context.Context, it storage.Settlement) (storage.Settled, error) {
	var (
		attempt, maxAttempts int32
		minDelay, maxDelay   int64
		policy               storage.RetryPolicy
	)
	err := c.one(ctx, qSettleHold, args(it.Ref.QueueID, it.Ref.Position, it.Token[:]),
		&attempt, &maxAttempts, &minDelay, &maxDelay, &policy.Multiplier, &policy.Jitter)
	if errors.Is(err, sql.ErrNoRows) {
		return storage.Settled{}, nil
	}
	if err != nil {
		return storage.Settled{}, err
	}
	if maxAttempts > 0 && attempt >= maxAttempts {
		return c.deadLetter(ctx, it, storage.DeadReasonAttemptsExhausted)
	}
	delay := toMillis(it.Delay)
	if !it.HasDelay {
		policy.Min, policy.Max = fromDuration(minDelay), fromDuration(maxDelay)
		delay = backoff(policy, attempt, rand.Float64())
	}
	return c.putBack(ctx, it, qSettleRetry, storage.OutcomeRetried,
		args(it.Ref.QueueID, it.Ref.Position, it.Token[:], delay, it.Error, it.ReasonCode))
}

// backoff is the delay in milliseconds after an attempt, by the policy of the queue; draw
// is from [0, 1). It lies in [(1-Jitter) * delay, delay].
func backoff(p storage.RetryPolicy, attempt int32, draw float64) int64 {
	d := float64(p.Min) * math.Pow(p.Multiplier, float64(attempt-1))
	// Not d > Max: the power may have become infinite, or not a number.
	if !(d <= float64(p.Max)) {
		d = float64(p.Max)
	}
	d -= d * p.Jitter * draw
	return int64(d / 1e6)
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

// deadLetter moves a message to the dead ones and records that.
func (c *session) deadLetter(ctx context.Context, it storage.Settlement, reason storage.DeadReason) (storage.Settled, error) {
	var now int64
	err := c.one(ctx, qSettleDead, args(it.Ref.QueueID, it.Ref.Position, it.Token[:], reason, it.Error, it.ReasonCode, it.Action), &now)
	if errors.Is(err, sql.ErrNoRows) {
		return storage.Settled{}, nil
	}
	if err != nil {
		return storage.Settled{}, err
	}
	if err := c.remove(ctx, []int64{it.Ref.Position}); err != nil {
		return storage.Settled{}, err
	}
	_, err = c.exec(ctx, qSettleHistory, it.Ref.QueueID, it.Ref.Position, it.Token[:], it.Action, storage.OutcomeDead,
		reason, now, nil)
	return storage.Settled{
		Status:     storage.ItemApplied,
		Outcome:    storage.OutcomeDead,
		DeadReason: reason,
		SettleTime: fromMillis(now),
	}, err
}
