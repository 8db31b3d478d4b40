package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
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

// facts are what the database knows of one claim, at one instant.
type facts struct {
	live struct { // the live row
		state, outcome, action, deadReason *int16
		attempt                            *int32
		mine                               *bool
		settleTime, available              *time.Time
	}
	own struct { // the settlement history
		action, outcome, deadReason *int16
		settleTime, available       *time.Time
		others                      *int64
	}
	done struct { // the completed message
		mine       *bool
		finishTime *time.Time
		followUps  []int64
	}
	gone struct { // the dead or cancelled message
		mine                      *bool
		state, action, deadReason *int16
		finishTime                *time.Time
	}
}

// diagnose reads the facts of claims, in their order.
func (s *Store) diagnose(ctx context.Context, what string, claims []storage.HeldClaim) ([]facts, time.Time, error) {
	n := len(claims)
	var (
		ids       = make([]int32, n)
		positions = make([]int64, n)
		tokens    = make([][16]byte, n)
		out       = make([]facts, n)
		now       time.Time
	)
	for i, c := range claims {
		ids[i], positions[i], tokens[i] = c.Ref.QueueID, c.Ref.Position, c.Token
	}
	err := s.read(ctx, what+": diagnose", step{
		sql: s.sql.diagnose, args: []any{ids, positions, tokens},
		scan: each(nil, func(r pgx.Rows) error {
			var ord int64
			var f facts
			err := r.Scan(
				&now, &ord,
				&f.live.state, &f.live.mine, &f.live.attempt, &f.live.outcome, &f.live.action, &f.live.deadReason, &f.live.settleTime, &f.live.available,
				&f.own.action, &f.own.outcome, &f.own.deadReason, &f.own.settleTime, &f.own.available, &f.own.others,
				&f.done.mine, &f.done.finishTime, &f.done.followUps,
				&f.gone.mine, &f.gone.state, &f.gone.action, &f.gone.deadReason, &f.gone.finishTime,
			)
			if err == nil {
				out[ord-1] = f
			}
			return err
		}),
	})
	return out, now.UTC(), err
}

func is(b *bool) bool { return b != nil && *b }

func stateIs(n *int16, s storage.State) bool { return n != nil && storage.State(*n) == s }

// held tells that the claim may hold: its row was locked when a statement passed over
// it, or a transaction ended in between. It may hold though its lease looks over, since
// whoever has the lock may be about to commit a renewal or a settlement of this very
// claim; only who has the lock himself can tell.
func (f *facts) held() bool {
	return stateIs(f.live.state, storage.StateProcessing) && is(f.live.mine)
}

// revoked tells that an operator took this claim away. The history says so, and after it the
// dead message that the claim ended with.
func (f *facts) revoked() bool {
	own, gone := f.own.action, f.gone.action
	return own != nil && storage.Action(*own) == storage.ActionRevoke ||
		is(f.gone.mine) && storage.Action(*gone) == storage.ActionRevoke
}

// recorded is what this token was settled as, nil where it was not (S5, S6).
func (f *facts) recorded() *record {
	switch {
	case f.revoked():
		return nil
	case f.own.action != nil:
		return &record{
			action: storage.Action(*f.own.action), outcome: storage.Outcome(*f.own.outcome),
			deadReason: storage.DeadReason(*f.own.deadReason),
			settleTime: utc(f.own.settleTime), availableTime: utc(f.own.available),
		}
	case is(f.done.mine):
		return &record{
			action: storage.ActionComplete, outcome: storage.OutcomeCompleted, settleTime: utc(f.done.finishTime),
			followUps: fromFollowUps(f.done.followUps),
		}
	case is(f.gone.mine) && *f.gone.action != 0:
		rec := &record{
			action: storage.Action(*f.gone.action), outcome: storage.OutcomeDead,
			deadReason: storage.DeadReason(*f.gone.deadReason), settleTime: utc(f.gone.finishTime),
		}
		if stateIs(f.gone.state, storage.StateCancelled) {
			rec.outcome = storage.OutcomeCancelled
		}
		return rec
	case stateIs(f.live.state, storage.StateSettling) && is(f.live.mine) && f.live.outcome != nil && f.live.action != nil:
		// Marked by a transaction of its worker (E12): everybody sees the outcome already.
		rec := &record{
			action: storage.Action(*f.live.action), outcome: storage.Outcome(*f.live.outcome),
			settleTime: utc(f.live.settleTime), availableTime: utc(f.live.available),
		}
		if f.live.deadReason != nil {
			rec.deadReason = storage.DeadReason(*f.live.deadReason)
		}
		return rec
	default:
		return nil
	}
}

// verdict says what became of a claim that does not hold. S8, S12.
func (f *facts) verdict() (storage.ItemStatus, storage.LostCause) {
	if f.recorded() != nil {
		return storage.ItemSettled, 0
	}
	switch {
	case f.revoked():
		return storage.ItemLost, storage.LostRevoked
	case f.live.state != nil:
		return storage.ItemLost, f.liveCause()
	case f.done.mine != nil:
		return storage.ItemLost, storage.LostSuperseded
	case f.gone.mine != nil:
		switch {
		case stateIs(f.gone.state, storage.StateCancelled):
			return storage.ItemLost, storage.LostCancelled
		case is(f.gone.mine):
			// Nobody settled it, and it died with this claim on it.
			return storage.ItemLost, storage.LostLeaseExpired
		default:
			return storage.ItemLost, storage.LostSuperseded
		}
	default:
		return storage.ItemNotFound, 0
	}
}

func (f *facts) liveCause() storage.LostCause {
	switch {
	case is(f.live.mine):
		return storage.LostLeaseExpired
	case !stateIs(f.live.state, storage.StatePending):
		return storage.LostSuperseded
	case *f.live.attempt > 0 && f.own.others != nil && *f.own.others > 0:
		// It waits, and another claim was settled meanwhile. Tokens that ended by running
		// out are kept nowhere, so a made-up token is told the same; but such an end leaves
		// its attempt counted.
		return storage.LostSuperseded
	default:
		return storage.LostNotClaimed
	}
}
