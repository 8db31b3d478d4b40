package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/queuebox/queuebox/storage"
)

// Revoke implements storage.Operator. The write lock is held from the first look on, so the
// claim that is judged is the one that is taken away.
func (s *Store) Revoke(ctx context.Context, p storage.RevokeParams) (storage.RevokeResult, error) {
	var res storage.RevokeResult
	err := s.write(ctx, "revoke", func(quiet context.Context, c *session) (verdict, error) {
		res = storage.RevokeResult{}
		var err error
		if res.Now, err = c.now(quiet); err != nil {
			return rollback, err
		}
		if err := c.revoke(quiet, p, &res); err != nil {
			return rollback, err
		}
		res.Message, err = c.message(quiet, p.Ref, false)
		return verdict(res.Revoked), err
	})
	if err != nil {
		return storage.RevokeResult{}, err
	}
	return res, nil
}

// revoke takes the claim away where somebody holds the message.
func (c *session) revoke(ctx context.Context, p storage.RevokeParams, res *storage.RevokeResult) error {
	var token []byte
	var h hold
	err := c.one(ctx, qRevokeHold, args(p.Ref.QueueID, p.Ref.Position),
		&token, &res.WorkerID, &h.cancelRequested, &h.expired, &h.attempt, &h.maxAttempts)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	res.Revoked = true
	outcome, reason := storage.OutcomeReleased, storage.DeadReasonNone
	switch {
	case h.cancelRequested:
		outcome = storage.OutcomeCancelled
	case h.expired:
		outcome, reason = storage.OutcomeDead, storage.DeadReasonExpired
	case !p.Refund && h.maxAttempts > 0 && h.attempt >= h.maxAttempts:
		outcome, reason = storage.OutcomeDead, storage.DeadReasonAttemptsExhausted
	}
	keyed, err := c.keyedRows(ctx, fmt.Sprintf("[%d]", p.Ref.Position))
	if err != nil {
		return err
	}
	var at int64
	var ready any
	if outcome == storage.OutcomeReleased {
		err = c.one(ctx, qRevokeReturn, args(p.Ref.QueueID, p.Ref.Position, p.Refund), &at)
		ready, res.Ready = at, true
	} else {
		state := storage.StateDead
		if outcome == storage.OutcomeCancelled {
			state = storage.StateCancelled
		}
		err = c.one(ctx, qRevokeDead, args(p.Ref.QueueID, p.Ref.Position, state, reason, p.Refund), &at)
		if err == nil {
			_, err = c.remove(ctx, []int64{p.Ref.Position})
		}
		if err == nil && state == storage.StateDead {
			err = c.block(ctx, keyed)
		}
	}
	if err != nil {
		return err
	}
	keys := make(keySet)
	keys.add(keyed)
	next, err := c.promote(ctx, keys.sorted())
	if err != nil {
		return err
	}
	res.Ready = res.Ready || len(next) > 0
	_, err = c.exec(ctx, qSettleHistory, p.Ref.QueueID, p.Ref.Position, token, storage.ActionRevoke, outcome, reason, at, ready)
	return err
}
