// Package owntx is what pgxtx and sqltx share: the order of steps in which a transaction of the
// user's own settles a claim (E12), which was measured to be right, and what is done where a step
// fails. It knows no driver.
package owntx

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	queuebox "github.com/queuebox/queuebox/client/go"
)

// Tries bounds how often a transaction is run where the database asks for it, or where nobody
// knows whether it was committed.
const Tries = 10

// Row is what a mark, or the look at an outcome, returned.
type Row struct {
	Outcome, DeadReason string
	SettleTime          time.Time
	AvailableTime       time.Time
}

// Tx is one transaction.
type Tx interface {
	// Query runs a statement that returns one Row, or none: nil.
	Query(ctx context.Context, sql string, args ...any) (*Row, error)
	// Exec runs a statement whose rows mean nothing.
	Exec(ctx context.Context, sql string) error
	// Work runs what the user wants to do in it.
	Work(ctx context.Context) error
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// DB makes transactions, and tells errors apart.
type DB interface {
	Begin(ctx context.Context) (Tx, error)
	// Again: the transaction is rolled back and may well pass when it is run once more.
	Again(err error) bool
	// RolledBack: the error of a COMMIT proves that nothing was committed.
	RolledBack(err error) bool
}

// Mark is the statement that settles, with its parameters after message and token.
type Mark struct {
	Statement func(queuebox.TransactionSQL) string
	Args      []any
}

// Settle runs the transaction: renewal stops; BEGIN; the mark first, so that everything after it
// holds the claim by the lock of its row; the work; COMMIT. No row from the mark: everything is
// rolled back and the claim is lost.
func Settle(ctx context.Context, db DB, h *queuebox.Handle, m Mark, notify bool) (queuebox.Settled, error) {
	s, err := h.Surrender()
	if err != nil {
		return queuebox.Settled{}, err
	}
	// A panic of the work leaves the claim as it was.
	defer s.Return()
	sql, err := s.Client().TransactionSQL(ctx, s.Queue())
	if err != nil {
		return queuebox.Settled{}, err
	}
	r := run{db: db, s: s, sql: sql, mark: m, notify: notify}
	return r.settle(ctx)
}

type run struct {
	db     DB
	s      *queuebox.Surrendered
	sql    queuebox.TransactionSQL
	mark   Mark
	notify bool
	// maybe: a COMMIT brought no answer.
	maybe error
}

func (r *run) settle(ctx context.Context) (queuebox.Settled, error) {
	for try := 1; ; try++ {
		row, err := r.once(ctx)
		switch {
		case err == nil && row != nil:
			r.s.Settled()
			return settledOf(row), nil
		case err == nil && r.maybe == nil:
			return queuebox.Settled{}, r.s.Lost()
		case err == nil:
			// No row after a COMMIT without an answer: it was committed, or the claim is lost.
			if row, err = r.outcome(ctx); err == nil && row == nil {
				return queuebox.Settled{}, r.s.Lost()
			}
			if err == nil {
				r.s.Settled()
				out := settledOf(row)
				out.AlreadySettled = true
				return out, nil
			}
		}
		if _, unknown := errors.AsType[*unknownError](err); unknown {
			r.maybe = err
		}
		again := r.maybe != nil || r.db.Again(err)
		if !again || try == Tries || !pause(ctx, try) {
			if r.maybe != nil {
				r.s.Unknown(err)
				return queuebox.Settled{}, fmt.Errorf("queuebox: own transaction: %w: %w", queuebox.ErrOutcomeUnknown, err)
			}
			r.s.Return()
			return queuebox.Settled{}, err
		}
	}
}

// unknownError is the error of a COMMIT that may have happened.
type unknownError struct{ err error }

func (e *unknownError) Error() string { return "commit: " + e.err.Error() }
func (e *unknownError) Unwrap() error { return e.err }

// once runs the transaction once. Nil and nil: the mark returned no row.
func (r *run) once(ctx context.Context) (row *Row, err error) {
	tx, err := r.db.Begin(ctx)
	if err != nil {
		return nil, err
	}
	done := false
	defer func() {
		if !done {
			// Also where the work panics. The context of the caller may have ended.
			quiet, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			_ = tx.Rollback(quiet)
		}
	}()
	args := append([]any{r.s.MessageID(), r.s.Token()}, r.mark.Args...)
	row, err = tx.Query(ctx, r.mark.Statement(r.sql), args...)
	if err != nil || row == nil {
		return nil, err
	}
	if err := tx.Work(ctx); err != nil {
		return nil, err
	}
	if r.notify && r.sql.Notify != "" {
		if err := tx.Exec(ctx, r.sql.Notify); err != nil {
			return nil, err
		}
	}
	err = tx.Commit(ctx)
	done = err == nil
	if err != nil && !r.db.RolledBack(err) {
		return nil, &unknownError{err: err}
	}
	if err != nil {
		return nil, err
	}
	return row, nil
}

// outcome reads what the claim was settled as, in a transaction of its own.
func (r *run) outcome(ctx context.Context) (*Row, error) {
	tx, err := r.db.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	return tx.Query(ctx, r.sql.Outcome, r.s.MessageID(), r.s.Token())
}

func settledOf(row *Row) queuebox.Settled {
	out := queuebox.Settled{Outcome: queuebox.Outcome(row.Outcome), AvailableTime: row.AvailableTime}
	if out.Outcome == queuebox.OutcomeCompleted {
		out.CompleteTime = row.SettleTime
	}
	return out
}

// pause waits a little longer from try to try, and tells whether ctx still runs.
func pause(ctx context.Context, try int) bool {
	d := min(time.Duration(try)*10*time.Millisecond, 200*time.Millisecond)
	timer := time.NewTimer(d/2 + rand.N(d)) //nolint:gosec // No secret hangs on a pause.
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Milliseconds rounds up, as the statements want a delay; nil takes the policy of the queue.
func Milliseconds(d time.Duration) any {
	if d == 0 {
		return nil
	}
	return (max(d, 0) + time.Millisecond - 1).Milliseconds()
}
