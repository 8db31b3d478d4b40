package rowlock

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	qRevokeHold   statement = "revoke_hold"
	qRevokeReturn statement = "revoke_return"
)

// Revoke implements storage.Operator. The row is locked before the claim is judged (S13), so
// the claim that is judged is the one that is taken away.
func (s *Store) Revoke(ctx context.Context, p storage.RevokeParams) (storage.RevokeResult, error) {
	var out storage.RevokeResult
	err := s.onRow(ctx, "revoke", p.Ref, func(c *session, keys lockedKeys, locked bool) (verdict, error) {
		out = storage.RevokeResult{}
		v := rollback
		if locked {
			var err error
			if v, err = c.revoke(ctx, p, &out, keys); err != nil {
				return rollback, err
			}
		}
		var err error
		if out.Message, err = c.message(ctx, p.Ref, false); err != nil {
			return rollback, err
		}
		if out.Now.IsZero() {
			out.Now, err = c.now(ctx)
		}
		return v, err
	})
	if err != nil {
		return storage.RevokeResult{}, err
	}
	return out, nil
}

// revoke takes the claim away where somebody holds the message: it is ready now, its attempt
// given back where that was asked for, or it ends, as a Release would end it, and without an
// attempt left. The history keeps the token with an action that says lost and not settled.
func (c *session) revoke(ctx context.Context, p storage.RevokeParams, out *storage.RevokeResult, keys lockedKeys) (verdict, error) {
	var (
		token                    [16]byte
		key                      sql.NullInt64
		head, cancelled, expired bool
		attempt, maxAttempts     int32
		now                      time.Time
	)
	err := c.one(ctx, qRevokeHold, args(a("queue_id", p.Ref.QueueID), a("id", idOf(p.Ref.Position))),
		&now, c.s.engine.Values.ScanToken(&token), &out.WorkerID, &key, &head, &cancelled, &expired, &attempt, &maxAttempts)
	if errors.Is(err, sql.ErrNoRows) {
		return rollback, nil
	}
	if err != nil {
		return rollback, err
	}
	if !keys.has(key) {
		return rollback, errAgain
	}
	out.Revoked, out.Now = true, now.UTC()
	end := burial{ref: p.Ref, state: storage.StateDead, action: storage.ActionRevoke, refund: p.Refund}
	outcome := storage.OutcomeDead
	switch {
	case cancelled:
		outcome, end.state = storage.OutcomeCancelled, storage.StateCancelled
	case expired:
		end.reason = storage.DeadReasonExpired
	case !p.Refund && maxAttempts > 0 && attempt >= maxAttempts:
		end.reason = storage.DeadReasonAttemptsExhausted
	default:
		outcome = storage.OutcomeReleased
	}
	clock := a("now", c.s.engine.Values.Time(out.Now))
	var available any
	if outcome == storage.OutcomeReleased {
		available = instant(out.Now)
		err = c.exactly(ctx, qRevokeReturn, 1, a("queue_id", p.Ref.QueueID), a("id", idOf(p.Ref.Position)),
			a("token", c.s.engine.Values.Token(token)), a("refund", p.Refund), clock)
	} else {
		err = c.bury(ctx, out.Now, []burial{end})
		if err == nil && head && key.Valid && outcome == storage.OutcomeDead {
			err = c.block(ctx, []died{{keyID: key.Int64, ref: p.Ref}})
		}
	}
	if err != nil {
		return rollback, err
	}
	history := [][]any{{
		idOf(p.Ref.Position), c.s.engine.Values.TokenText(token), p.Ref.QueueID, available,
		storage.ActionRevoke, outcome, end.reason,
	}}
	if err := c.exactly(ctx, qSettleHistory, 1, c.list(history), clock); err != nil {
		return rollback, err
	}
	ready, _, err := c.promote(ctx, keys.ids)
	out.Ready = outcome == storage.OutcomeReleased || len(ready) > 0
	return commit, err
}
