package rowlock

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	qExplainMessage statement = "explain_message"
	qExplainAhead   statement = "explain_ahead"
	qExplainLimit   statement = "explain_limit"
)

// maxAhead is how many messages in front of another are counted.
const maxAhead = 10_000

// Explain implements storage.Operator. Each of its statements sees what is committed by then;
// the clock is read after the message, so that nothing which that shows lies ahead of the clock
// by mistake.
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
	var (
		m               = &x.Message
		v               = c.s.engine.Values
		now             = a("now", v.Time(x.Now))
		queue           = a("queue_id", m.Ref.QueueID)
		id              = a("id", idOf(m.Ref.Position))
		place, state    int
		urgency         int64
		readyTime       time.Time
		head, blockedBy sql.NullInt64
		headState       sql.NullInt16
		ready           bool
	)
	q, err := c.queueByID(ctx, m.Ref.QueueID)
	if err != nil {
		return err
	}
	x.Paused = q.Paused
	if err := c.limitsReached(ctx, q, x); err != nil {
		return err
	}
	err = c.one(ctx, qExplainMessage, args(queue, id, now),
		&place, &state, &x.CancelRequested, &urgency, &readyTime, &head, &headState, &blockedBy, &ready)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	x.Settling = storage.State(state) == storage.StateSettling
	x.LastAttempt = m.MaxAttempts > 0 && m.Attempt >= m.MaxAttempts
	x.Parked = place == placeParked
	switch {
	case head.Valid:
		x.Head = storage.Ref{QueueID: m.Ref.QueueID, Position: positionOf(head.Int64, true)}
		x.HeadState = storage.State(headState.Int16)
	case blockedBy.Valid:
		x.Head, x.HeadState = storage.Ref{QueueID: m.Ref.QueueID, Position: blockedBy.Int64}, storage.StateDead
	}
	if !ready {
		return nil
	}
	err = c.one(ctx, qExplainAhead, args(queue, id, now, a("urgency", urgency), a("ready_time", v.Time(readyTime))), &x.Ahead)
	if x.Ahead > maxAhead {
		x.Ahead = -1
	}
	return err
}

// limitsReached tells which limits of the queue would keep the next message back. L1, L2.
func (c *session) limitsReached(ctx context.Context, q storage.Queue, x *storage.Explanation) error {
	if q.MaxClaimsPerSecond <= 0 && q.MaxInFlight <= 0 {
		return nil
	}
	var (
		b      storage.Bucket
		leased int32
	)
	err := c.one(ctx, qExplainLimit, args(a("queue_id", q.ID), a("now", c.s.engine.Values.Time(x.Now))), &b.Rate, &b.Full, &leased)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if q.MaxClaimsPerSecond > 0 {
		x.RateLimit = b.At(q.MaxClaimsPerSecond, x.Now).Tokens(x.Now) < 1
	}
	x.InFlightLimit = q.MaxInFlight > 0 && leased >= q.MaxInFlight
	return nil
}
