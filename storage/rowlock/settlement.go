package rowlock

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	qSettleLock    statement = "settle_lock"
	qSettlePolicy  statement = "settle_policy"
	qCompleteCopy  statement = "complete_copy"
	qSettleDead    statement = "settle_dead"
	qSettleReturn  statement = "settle_return"
	qSettleHistory statement = "settle_history"
)

// claimed is a message whose row a settlement has locked, while its claim had this token.
type claimed struct {
	item                 int // the settlement
	leaseEnd             time.Time
	key                  sql.NullInt64
	head                 bool
	cancelRequested      bool
	expired              bool
	attempt, maxAttempts int32
}

// decided is what becomes of it.
type decided struct {
	claimed

	outcome   storage.Outcome
	reason    storage.DeadReason
	available time.Time // of a message that goes back
}

// settle applies what it can of some settlements, and answers those items, and those of which
// it saw under the lock that the lease is over. What is not answered was not found: somebody
// else has locked the row, the claim does not hold, or an item before it is about the same
// message. The transaction has the locks of the keys.
func (c *session) settle(
	ctx context.Context, items []storage.Settlement, some []int, keys lockedKeys, out *storage.SettleResult,
) (verdict, error) {
	found, now, err := c.lockClaims(ctx, items, some)
	if err != nil || len(found) == 0 {
		return rollback, err
	}
	out.Now = now
	var all []decided
	taken := make(map[storage.Ref]bool, len(found))
	for _, f := range found {
		it := &items[f.item]
		switch {
		case f.key.Valid != keyed(it.Ref): // another position
		case !keys.has(f.key):
			return rollback, errAgain // redriven since the keys were looked for
		case taken[it.Ref]:
		case it.Action < storage.ActionComplete || it.Action > storage.ActionRelease:
			return rollback, fmt.Errorf("action %d is not known", it.Action)
		case !f.leaseEnd.After(now):
			// Lost for certain, which a look without the lock could not say.
			out.Items[f.item] = storage.Settled{Status: storage.ItemLost, Cause: storage.LostLeaseExpired}
		default:
			taken[it.Ref] = true
			all = append(all, decide(it, f))
		}
	}
	if len(all) == 0 {
		return rollback, nil
	}
	if err := c.schedule(ctx, items, all, now); err != nil {
		return rollback, err
	}
	if err := c.apply(ctx, items, all, now); err != nil {
		return rollback, err
	}
	for _, d := range all {
		out.Items[d.item] = storage.Settled{
			Status: storage.ItemApplied, Outcome: d.outcome, DeadReason: d.reason, SettleTime: now, AvailableTime: d.available,
		}
	}
	return commit, nil
}

// lockClaims locks the rows of claims by their tokens, unless somebody else has locked them,
// and reads the clock. They come in the order of the items.
func (c *session) lockClaims(ctx context.Context, items []storage.Settlement, some []int) ([]claimed, time.Time, error) {
	rows := make([][]any, len(some))
	for k, i := range some {
		it := &items[i]
		rows[k] = []any{i, it.Ref.QueueID, idOf(it.Ref.Position), c.s.engine.Values.TokenText(it.Token)}
	}
	var (
		found []claimed
		now   time.Time
	)
	err := c.each(ctx, qSettleLock, args(c.list(rows)), func(rows *sql.Rows) error {
		var f claimed
		var at, end sql.NullTime
		err := rows.Scan(&f.item, &at, &end, &f.key, &f.head, &f.cancelRequested, &f.expired, &f.attempt, &f.maxAttempts)
		if f.leaseEnd = utc(end); utc(at).After(now) {
			now = utc(at)
		}
		found = append(found, f)
		return err
	})
	slices.SortFunc(found, func(a, b claimed) int { return a.item - b.item })
	return found, now, err
}

// decide says what becomes of a message: a settlement ends it where it was asked to be
// cancelled (S14), where it has expired (E7), and for a Retry where no attempt is left (S4).
func decide(it *storage.Settlement, f claimed) decided {
	d := decided{claimed: f}
	switch {
	case it.Action == storage.ActionComplete:
		d.outcome = storage.OutcomeCompleted
	case it.Action == storage.ActionDeadLetter:
		d.outcome, d.reason = storage.OutcomeDead, storage.DeadReasonRejected
	case f.cancelRequested:
		d.outcome = storage.OutcomeCancelled
	case f.expired:
		d.outcome, d.reason = storage.OutcomeDead, storage.DeadReasonExpired
	case it.Action == storage.ActionRelease:
		d.outcome = storage.OutcomeReleased
	case f.maxAttempts > 0 && f.attempt >= f.maxAttempts:
		d.outcome, d.reason = storage.OutcomeDead, storage.DeadReasonAttemptsExhausted
	default:
		d.outcome = storage.OutcomeRetried
	}
	return d
}

// schedule says when messages that go back are claimable again: after the delay that the item
// names, or after that of the policy of its queue.
func (c *session) schedule(ctx context.Context, items []storage.Settlement, all []decided, now time.Time) error {
	var queues []int64
	for _, d := range all {
		if it := &items[d.item]; d.outcome == storage.OutcomeRetried && !it.HasDelay {
			if id := int64(it.Ref.QueueID); !slices.Contains(queues, id) {
				queues = append(queues, id)
			}
		}
	}
	policies := make(map[int32]storage.RetryPolicy, len(queues))
	if len(queues) > 0 {
		err := c.each(ctx, qSettlePolicy, args(c.ids(queues)), func(rows *sql.Rows) error {
			var (
				id          int32
				least, most int64
				p           storage.RetryPolicy
			)
			err := rows.Scan(&id, &least, &most, &p.Multiplier, &p.Jitter)
			p.Min, p.Max = microseconds(least), microseconds(most)
			policies[id] = p
			return err
		})
		if err != nil {
			return err
		}
	}
	for i := range all {
		d := &all[i]
		it := &items[d.item]
		switch {
		case d.outcome != storage.OutcomeRetried && d.outcome != storage.OutcomeReleased:
		case d.outcome == storage.OutcomeReleased || it.HasDelay:
			d.available = now.Add(max(it.Delay, 0).Truncate(time.Microsecond))
		default:
			d.available = now.Add(policies[it.Ref.QueueID].Backoff(d.attempt, rand.Float64()).Truncate(time.Microsecond)) //nolint:gosec // Jitter is no secret.
		}
	}
	return nil
}

// apply writes what was decided. Each statement tests the fence again, and has to match all of
// its rows: else a lease has ended since, and the transaction runs again (S2).
func (c *session) apply(ctx context.Context, items []storage.Settlement, all []decided, now time.Time) error {
	var (
		completed, dead, back [][]any
		history               = make([][]any, 0, len(all))
		gone                  []int64
		heads                 []died
		clock                 = a("now", c.s.engine.Values.Time(now))
	)
	for _, d := range all {
		it := &items[d.item]
		id, token := idOf(it.Ref.Position), c.s.engine.Values.TokenText(it.Token)
		switch d.outcome {
		case storage.OutcomeCompleted:
			completed = append(completed, []any{id, it.Ref.QueueID, token, resultText(it.Result)})
			gone = append(gone, id)
			continue
		case storage.OutcomeDead, storage.OutcomeCancelled:
			state := storage.StateDead
			if d.outcome == storage.OutcomeCancelled {
				state = storage.StateCancelled
			}
			dead = append(dead, []any{
				id, it.Ref.QueueID, token, state, d.reason, it.Action, nullText(it.Error), it.ReasonCode,
			})
			gone = append(gone, id)
			if d.key.Valid && d.head && state == storage.StateDead {
				heads = append(heads, died{keyID: d.key.Int64, ref: it.Ref})
			}
		default:
			back = append(back, []any{
				id, it.Ref.QueueID, token, instant(d.available), it.Action, nullText(it.Error), it.ReasonCode,
			})
		}
		var available any
		if !d.available.IsZero() {
			available = instant(d.available)
		}
		history = append(history, []any{id, token, it.Ref.QueueID, available, it.Action, d.outcome, d.reason})
	}
	var steps []step
	for _, part := range []struct {
		q    statement
		rows [][]any
	}{{qCompleteCopy, completed}, {qSettleDead, dead}, {qSettleReturn, back}, {qSettleHistory, history}} {
		for rows := part.rows; len(rows) > 0; {
			n := listable(rows)
			steps = append(steps, matching(part.q, n, c.list(rows[:n:n]), clock))
			rows = rows[n:]
		}
	}
	if len(gone) > 0 {
		steps = append(steps, matching(qMessageDelete, len(gone), c.ids(gone)))
	}
	if err := c.together(ctx, steps...); err != nil {
		return err
	}
	return c.block(ctx, heads)
}

// resultText is a result in a list: hexadecimal, null where there is none.
func resultText(result []byte) any {
	if len(result) == 0 {
		return nil
	}
	return hex.EncodeToString(result)
}

func nullText(s string) any {
	if s == "" {
		return nil
	}
	return s
}
