package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/queuebox/queuebox/storage"
)

// maxAhead is how many messages in front of another are counted.
const maxAhead = 10_000

// Explain implements storage.Operator. All is read on one snapshot, and the clock after it was
// taken, so that nothing which it shows lies ahead of the clock by mistake.
func (s *Store) Explain(ctx context.Context, ref storage.Ref) (storage.Explanation, error) {
	var x storage.Explanation
	err := s.read(ctx, "explain", func(c *session) error {
		x = storage.Explanation{}
		var err error
		if x.Message, err = c.message(ctx, ref, false); err != nil {
			return err
		}
		if x.Now, err = c.now(ctx); err != nil {
			return err
		}
		return c.keepsBack(ctx, &x)
	})
	if err != nil {
		return storage.Explanation{}, err
	}
	return x, nil
}

// keepsBack reads what keeps a live message from being claimed.
func (c *session) keepsBack(ctx context.Context, x *storage.Explanation) error {
	m := &x.Message
	var (
		place         int
		state         storage.State
		head, blocked sql.NullInt64
		headState     sql.NullInt16
		ready         bool
	)
	q, err := c.queueBy(ctx, qQueueGetByID, m.Ref.QueueID)
	if err != nil {
		return err
	}
	x.Paused = q.Paused
	if err := c.limitsReached(ctx, q, x); err != nil {
		return err
	}
	err = c.one(ctx, qExplainMessage, args(m.Ref.QueueID, m.Ref.Position, x.Now.UnixMilli()),
		&place, &state, &x.CancelRequested, &head, &headState, &blocked, &ready)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	x.Settling = state == storage.StateSettling
	x.LastAttempt = m.MaxAttempts > 0 && m.Attempt >= m.MaxAttempts
	x.Parked = place == placeParked
	switch {
	case head.Valid:
		x.Head, x.HeadState = storage.Ref{QueueID: m.Ref.QueueID, Position: head.Int64}, storage.State(headState.Int16)
	case blocked.Valid:
		x.Head, x.HeadState = storage.Ref{QueueID: m.Ref.QueueID, Position: blocked.Int64}, storage.StateDead
	}
	if !ready {
		return nil
	}
	err = c.one(ctx, qExplainAhead, args(m.Ref.QueueID, m.Priority, m.ReadyTime.UnixMilli(), m.Ref.Position, x.Now.UnixMilli()), &x.Ahead)
	if x.Ahead > maxAhead {
		x.Ahead = -1
	}
	return err
}

// limitsReached tells which limits of the queue would keep the next message back. L1, L2.
func (c *session) limitsReached(ctx context.Context, q storage.Queue, x *storage.Explanation) error {
	if q.MaxClaimsPerSecond > 0 {
		var b storage.Bucket
		err := c.one(ctx, qLimitBucket, args(q.ID), &b.Rate, &b.Full)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		x.RateLimit = b.At(q.MaxClaimsPerSecond, x.Now).Tokens(x.Now) < 1
	}
	if q.MaxInFlight > 0 {
		var leased int32
		var end sql.NullInt64
		if err := c.one(ctx, qLimitLeased, args(q.ID), &leased, &end); err != nil {
			return err
		}
		x.InFlightLimit = leased >= q.MaxInFlight
	}
	return nil
}
