package rowlock

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	qDiagnoseLive     statement = "diagnose_live"
	qDiagnoseHistory  statement = "diagnose_history"
	qDiagnoseFinished statement = "diagnose_finished"
	qDiagnoseOthers   statement = "diagnose_others"
)

// record is what a token was settled as.
type record struct {
	action        storage.Action
	outcome       storage.Outcome
	deadReason    storage.DeadReason
	settleTime    time.Time
	availableTime time.Time
	followUps     []storage.Ref
}

// facts are what the database knows of one claim.
type facts struct {
	live struct { // the live row
		found, locked, mine bool
		state               storage.State
		attempt             int32
		// mark is what a transaction of the worker has decided, nil where none did (E12).
		mark *record
	}
	own    *record  // the settlement history of the token
	others bool     // other tokens of the message stand in the history
	end    struct { // the finished message
		found, mine bool
		state       storage.State
		record      record
	}
}

// diagnose reads the facts of claims, in their order. The live rows are read first, and those
// of messages that stand nowhere once more at the end: a message moves between the tables, and
// the statements are no transaction.
func (s *Store) diagnose(ctx context.Context, what string, claims []storage.HeldClaim) ([]facts, time.Time, error) {
	var (
		out []facts
		now time.Time
	)
	err := s.read(ctx, what+": diagnose", func(c *session) (err error) {
		out, now, err = c.diagnose(ctx, claims)
		return err
	})
	return out, now, err
}

// diagnose reads the clock with each statement, after it: the last one may be any of them.
func (c *session) diagnose(ctx context.Context, claims []storage.HeldClaim) ([]facts, time.Time, error) {
	out := make([]facts, len(claims))
	if len(claims) == 0 {
		now, err := c.now(ctx)
		return out, now, err
	}
	var now time.Time
	list := func(want func(f *facts) bool) [][]any {
		var rows [][]any
		for i := range out {
			if want(&out[i]) {
				rows = append(rows, []any{
					i, claims[i].Ref.QueueID, idOf(claims[i].Ref.Position), c.s.engine.Values.TokenText(claims[i].Token),
				})
			}
		}
		return rows
	}
	for _, part := range []struct {
		want func(f *facts) bool
		read func([][]any, []storage.HeldClaim, []facts) step
	}{
		{func(*facts) bool { return true }, c.diagnoseLive},
		{func(f *facts) bool { return !f.held() }, c.diagnoseHistory},
		{func(f *facts) bool { return !f.held() && f.own == nil && !f.live.found }, c.diagnoseFinished},
		{func(f *facts) bool { return f.own == nil && !f.live.found && !f.end.found }, c.diagnoseLive},
		{func(f *facts) bool { return f.own == nil && f.waits() }, c.diagnoseOthers},
	} {
		if rows := list(part.want); len(rows) > 0 {
			if err := c.together(ctx, part.read(rows, claims, out), clock(&now)); err != nil {
				return nil, now, err
			}
		}
	}
	return out, now, nil
}

// diagnoseLive reads the live rows. The last bit of a position is part of it, and no part of the
// id, so a message that has an ordering key is no answer for a position that has none.
func (c *session) diagnoseLive(list [][]any, claims []storage.HeldClaim, out []facts) step {
	return reading(qDiagnoseLive, args(c.list(list)), func(rows *sql.Rows) error {
		var (
			i, state, attempt       int64
			key                     sql.NullInt64
			locked, mine            bool
			outcome, action, reason sql.NullInt16
			settled                 sql.NullTime
			delay                   sql.NullInt64
		)
		err := rows.Scan(&i, &key, &locked, &state, &mine, &attempt, &outcome, &action, &reason, &settled, &delay)
		if err != nil {
			return err
		}
		if key.Valid != keyed(claims[i].Ref) {
			return nil
		}
		live := &out[i].live
		live.found, live.locked, live.mine = true, locked, mine
		live.state, live.attempt = storage.State(state), int32(attempt)
		if live.state == storage.StateSettling && outcome.Valid && action.Valid {
			live.mark = &record{
				action: storage.Action(action.Int16), outcome: storage.Outcome(outcome.Int16),
				deadReason: storage.DeadReason(reason.Int16), settleTime: utc(settled),
			}
			if delay.Valid {
				live.mark.availableTime = utc(settled).Add(microseconds(delay.Int64))
			}
		}
		return nil
	})
}

func (c *session) diagnoseHistory(list [][]any, _ []storage.HeldClaim, out []facts) step {
	return reading(qDiagnoseHistory, args(c.list(list)), func(rows *sql.Rows) error {
		var (
			i                  int64
			r                  record
			settled, available sql.NullTime
		)
		err := rows.Scan(&i, &r.action, &r.outcome, &r.deadReason, &settled, &available)
		if err != nil {
			return err
		}
		r.settleTime, r.availableTime = utc(settled), utc(available)
		out[i].own = &r
		return nil
	})
}

func (c *session) diagnoseFinished(list [][]any, claims []storage.HeldClaim, out []facts) step {
	return reading(qDiagnoseFinished, args(c.list(list)), func(rows *sql.Rows) error {
		var (
			i         int64
			settled   sql.NullTime
			key       bool
			followUps sql.NullString
			f         facts
			end       = &f.end
			r         = &end.record
		)
		err := rows.Scan(&i, &key, &end.state, &end.mine, &r.action, &r.deadReason, &settled, &followUps)
		if err != nil {
			return err
		}
		if key != keyed(claims[i].Ref) {
			return nil
		}
		end.found = true
		r.settleTime, r.outcome = utc(settled), outcomeOf(end.state)
		if r.followUps, err = followUpsOf(followUps); err != nil {
			return err
		}
		out[i].end = *end
		return nil
	})
}

func (c *session) diagnoseOthers(list [][]any, _ []storage.HeldClaim, out []facts) step {
	return reading(qDiagnoseOthers, args(c.list(list)), func(rows *sql.Rows) error {
		var i int64
		err := rows.Scan(&i)
		if err == nil {
			out[i].others = true
		}
		return err
	})
}

// outcomeOf is the outcome that a finished message stands for.
func outcomeOf(state storage.State) storage.Outcome {
	switch state {
	case storage.StateCompleted:
		return storage.OutcomeCompleted
	case storage.StateCancelled:
		return storage.OutcomeCancelled
	default:
		return storage.OutcomeDead
	}
}

// followUpsOf reads which messages a completion made (S10): queue and position of each.
func followUpsOf(list sql.NullString) ([]storage.Ref, error) {
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

// held tells that the claim may hold: its row was locked when a statement passed over it, or a
// transaction ended in between. It may hold though its lease looks over, since whoever has the
// lock may be about to commit a renewal or a settlement of this very claim; only who has the
// lock himself can tell.
func (f *facts) held() bool {
	return f.live.found && (f.live.locked || f.live.state == storage.StateProcessing && f.live.mine)
}

// waits tells that the message waits to be claimed, and not for the first time.
func (f *facts) waits() bool {
	return f.live.found && !f.live.locked && !f.live.mine && f.live.state == storage.StatePending && f.live.attempt > 0
}

// revoked tells that an operator took this claim away. The history says so, and after it the
// dead message that the claim ended with.
func (f *facts) revoked() bool {
	return f.own != nil && f.own.action == storage.ActionRevoke ||
		f.end.found && f.end.mine && f.end.record.action == storage.ActionRevoke
}

// recorded is what this token was settled as, nil where it was not (S5, S6).
func (f *facts) recorded() *record {
	switch {
	case f.revoked():
		return nil
	case f.own != nil:
		return f.own
	case f.end.found && f.end.mine && f.end.record.action != 0:
		return &f.end.record
	case f.live.found && f.live.mine && f.live.mark != nil:
		// Marked by a transaction of its worker (E12): everybody sees the outcome already.
		return f.live.mark
	default:
		return nil
	}
}

// verdict says what became of a claim that does not hold. S8, S12.
func (f *facts) verdict() (storage.ItemStatus, storage.LostCause) {
	switch {
	case f.recorded() != nil:
		return storage.ItemSettled, 0
	case f.revoked():
		return storage.ItemLost, storage.LostRevoked
	case f.live.found:
		return storage.ItemLost, f.liveCause()
	case !f.end.found:
		return storage.ItemNotFound, 0
	case f.end.state == storage.StateCancelled:
		return storage.ItemLost, storage.LostCancelled
	case f.end.mine:
		// Nobody settled it, and it died with this claim on it.
		return storage.ItemLost, storage.LostLeaseExpired
	default:
		return storage.ItemLost, storage.LostSuperseded
	}
}

func (f *facts) liveCause() storage.LostCause {
	switch {
	case f.live.mine:
		return storage.LostLeaseExpired
	case f.live.state != storage.StatePending:
		return storage.LostSuperseded
	case f.others:
		// It waits, and another claim was settled meanwhile. Tokens that ended by running
		// out are kept nowhere, so a made-up token is told the same; but such an end leaves
		// its attempt counted.
		return storage.LostSuperseded
	default:
		return storage.LostNotClaimed
	}
}
