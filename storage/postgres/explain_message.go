package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
)

// maxAhead is how many messages in front of another are counted.
const maxAhead = 10_000

// Explain implements storage.Operator: the message and what keeps it back, on one snapshot.
func (s *Store) Explain(ctx context.Context, ref storage.Ref) (storage.Explanation, error) {
	var (
		out           storage.Explanation
		found         bool
		paused, asked *bool
		place, state  *int16
		head, blocked *int64
		headState     *int16
		ahead         *int64
		now           time.Time
		limits        explainedLimits
	)
	err := s.snapshot(
		ctx, "explain",
		step{sql: s.sql.messageGet, args: []any{ref.QueueID, ref.Position, false}, scan: each(
			func() { found = false },
			func(r pgx.Rows) (err error) {
				found = true
				out.Message, err = scanMessage(r)
				return err
			},
		)},
		step{sql: s.sql.explain, args: []any{ref.QueueID, ref.Position}, scan: one(func(r pgx.Rows) error {
			return r.Scan(&now, &paused, &place, &state, &asked, &head, &headState, &blocked, &ahead,
				&limits.inFlight, &limits.perSecond, &limits.leased, &limits.rate, &limits.full)
		})},
	)
	if err != nil {
		return storage.Explanation{}, err
	}
	if !found {
		return storage.Explanation{}, fmt.Errorf("postgres: explain: %w", storage.ErrMessageNotFound)
	}
	m := &out.Message
	out.Now, out.Paused, out.CancelRequested = now.UTC(), is(paused), is(asked)
	out.Settling = stateIs(state, storage.StateSettling)
	out.LastAttempt = state != nil && m.MaxAttempts > 0 && m.Attempt >= m.MaxAttempts
	out.Parked = place != nil && *place == 2
	switch {
	case head != nil:
		out.Head, out.HeadState = storage.Ref{QueueID: ref.QueueID, Position: *head}, storage.State(*headState)
	case blocked != nil:
		out.Head, out.HeadState = storage.Ref{QueueID: ref.QueueID, Position: *blocked}, storage.StateDead
	}
	out.InFlightLimit, out.RateLimit = limits.reached(out.Now)
	if ahead != nil {
		if out.Ahead = *ahead; out.Ahead > maxAhead {
			out.Ahead = -1
		}
	}
	return out, nil
}

// explainedLimits are the limits of a queue and what is used up of them.
type explainedLimits struct {
	inFlight        *int32
	perSecond, rate *float64
	leased, full    *int64
}

// reached tells which of the limits would keep the next message back. L1, L2.
func (l explainedLimits) reached(now time.Time) (inFlight, rate bool) {
	inFlight = l.inFlight != nil && *l.inFlight > 0 && l.leased != nil && *l.leased >= int64(*l.inFlight)
	if l.perSecond != nil && *l.perSecond > 0 && l.rate != nil {
		rate = storage.Bucket{Rate: *l.rate, Full: *l.full}.At(*l.perSecond, now).Tokens(now) < 1
	}
	return inFlight, rate
}
