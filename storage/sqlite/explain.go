package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"

	"github.com/queuebox/queuebox/storage"
)

// explanation says why a fence did not hold. Where the token was settled, status is
// ItemSettled and the rest are the facts of that settlement.
type explanation struct {
	status     storage.ItemStatus
	cause      storage.LostCause
	action     storage.Action
	outcome    storage.Outcome
	deadReason storage.DeadReason
	settleTime sql.NullInt64
	readyTime  sql.NullInt64
	followUps  []storage.Ref
}

func lost(cause storage.LostCause) explanation {
	return explanation{status: storage.ItemLost, cause: cause}
}

// explain finds out why a claim is not held. The caller holds the write lock since
// before its fenced statement, so what is read here is what the fence saw. S5, S6, S8.
func (c *session) explain(ctx context.Context, ref storage.Ref, token storage.Token) (explanation, error) {
	for _, step := range []func(context.Context, storage.Ref, storage.Token) (explanation, error){
		c.explainHistory, c.explainLive, c.explainFinished,
	} {
		e, err := step(ctx, ref, token)
		if !errors.Is(err, sql.ErrNoRows) {
			return e, err
		}
	}
	return explanation{status: storage.ItemNotFound}, nil
}

func (c *session) explainHistory(ctx context.Context, ref storage.Ref, token storage.Token) (explanation, error) {
	e := explanation{status: storage.ItemSettled}
	err := c.one(ctx, qExplainHistory, args(ref.QueueID, ref.Position, token[:]),
		&e.action, &e.outcome, &e.deadReason, &e.settleTime, &e.readyTime)
	if e.action == storage.ActionRevoke {
		return lost(storage.LostRevoked), err
	}
	return e, err
}

func (c *session) explainLive(ctx context.Context, ref storage.Ref, token storage.Token) (explanation, error) {
	var (
		state           storage.State
		held            []byte
		leaseEnd        sql.NullInt64
		over            sql.NullBool
		outcome, action sql.NullInt16
		e               explanation
	)
	err := c.one(ctx, qExplainLive, args(ref.QueueID, ref.Position),
		&state, &held, &leaseEnd, &over, &outcome, &action, &e.settleTime, &e.readyTime, &e.deadReason)
	if err != nil {
		return e, err
	}
	mine := bytes.Equal(held, token[:])
	switch {
	case state == storage.StateSettling && mine:
		// Marked by a transaction of the worker: settled, though not finished yet (E12).
		e.status = storage.ItemSettled
		e.outcome, e.action = storage.Outcome(outcome.Int16), storage.Action(action.Int16)
		return e, nil
	case state == storage.StatePending && mine:
		// It died when this lease ran out, and was redriven since.
		return lost(storage.LostLeaseExpired), nil
	case state == storage.StatePending:
		// Another claim that was settled since has superseded this one.
		var one int
		err := c.one(ctx, qExplainOthers, args(ref.QueueID, ref.Position, token[:]), &one)
		if errors.Is(err, sql.ErrNoRows) {
			return lost(storage.LostNotClaimed), nil
		}
		return lost(storage.LostSuperseded), err
	case mine:
		return lost(storage.LostLeaseExpired), nil
	default:
		return lost(storage.LostSuperseded), nil
	}
}

func (c *session) explainFinished(ctx context.Context, ref storage.Ref, token storage.Token) (explanation, error) {
	var state storage.State
	var held []byte
	var followUps sql.NullString
	e := explanation{status: storage.ItemSettled}
	err := c.one(ctx, qExplainFinished, args(ref.QueueID, ref.Position),
		&state, &held, &e.settleTime, &e.action, &e.deadReason, &followUps)
	if err != nil {
		return e, err
	}
	mine := bytes.Equal(held, token[:])
	switch {
	case mine && e.action == storage.ActionRevoke:
		return lost(storage.LostRevoked), nil
	case mine && e.action != 0:
		e.outcome = finishedOutcome(state)
		e.followUps, err = fromFollowUps(followUps)
		return e, err
	case state == storage.StateCancelled:
		return lost(storage.LostCancelled), nil
	case mine:
		return lost(storage.LostLeaseExpired), nil
	default:
		return lost(storage.LostSuperseded), nil
	}
}

func finishedOutcome(state storage.State) storage.Outcome {
	switch state {
	case storage.StateCompleted:
		return storage.OutcomeCompleted
	case storage.StateCancelled:
		return storage.OutcomeCancelled
	default:
		return storage.OutcomeDead
	}
}
