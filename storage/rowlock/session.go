package rowlock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Inner retries after a deadlock (D2).
const (
	maxAttempts  = 5
	retryPause   = 20 * time.Millisecond
	rollbackTime = time.Second
)

// session runs the statements of one call, in a transaction or each by itself.
type session struct {
	s *Store
	q Querier
}

// a names an argument of a statement.
func a(name string, value any) Arg { return Arg{Name: name, Value: value} }

func (c *session) statement(q statement) (compiled, error) {
	st, ok := c.s.statements[q]
	if !ok {
		return st, fmt.Errorf("statement %s is missing", q)
	}
	return st, nil
}

// change runs a statement that inserts, updates or deletes, and tells how many rows it
// matched.
func (c *session) change(ctx context.Context, q statement, args ...Arg) (int64, error) {
	if c.s.engine.CountByRow {
		var n int64
		err := c.one(ctx, q, args, &n)
		return n, err
	}
	st, err := c.statement(q)
	if err != nil {
		return 0, err
	}
	res, err := c.q.ExecContext(ctx, st.text, st.bind(args)...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", q, err)
	}
	return res.RowsAffected()
}

// one reads one row; sql.ErrNoRows where there is none.
func (c *session) one(ctx context.Context, q statement, args []Arg, dest ...any) error {
	found := false
	err := c.each(ctx, q, args, func(rows *sql.Rows) error {
		if found {
			return errors.New("more than one row")
		}
		found = true
		return rows.Scan(dest...)
	})
	if err == nil && !found {
		err = fmt.Errorf("%s: %w", q, sql.ErrNoRows)
	}
	return err
}

// each calls fn for every row. fn runs no statement: a connection has one at a time. The rows
// are read to their end: rows that are closed before it cancel their statement, which on SQL
// Server may take the transaction with it.
func (c *session) each(ctx context.Context, q statement, args []Arg, fn func(rows *sql.Rows) error) error {
	st, err := c.statement(q)
	if err != nil {
		return err
	}
	rows, err := c.q.QueryContext(ctx, st.text, st.bind(args)...)
	if err != nil {
		return fmt.Errorf("%s: %w", q, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := fn(rows); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("%s: %w", q, err)
	}
	return nil
}

func (c *session) now(ctx context.Context) (time.Time, error) {
	var now time.Time
	err := c.one(ctx, qNow, nil, &now)
	return now.UTC(), err
}

func args(list ...Arg) []Arg { return list }

// verdict is how a transaction shall end when nothing failed.
type verdict bool

const (
	commit   verdict = true
	rollback verdict = false
)

// read runs statements that change nothing, each by itself. fn runs a second time on another
// connection where the first one broke, so it starts from nothing each time.
func (s *Store) read(ctx context.Context, what string, fn func(c *session) error) error {
	run := func() error {
		conn, err := s.acquire(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		err = fn(&session{s: s, q: conn})
		s.leave(conn, err)
		return err
	}
	err := run()
	if err != nil && ctx.Err() == nil && (s.broken(err) || s.engine.Errors.Again(err)) {
		err = run()
	}
	return s.classify(what, err, false)
}

// write runs fn in a transaction. Where fn fails, or says so, it is rolled back and nothing
// has changed. It may run again, so it starts from nothing each time.
func (s *Store) write(ctx context.Context, what string, fn func(c *session) (verdict, error)) error {
	return s.retry(ctx, what, func() (unknown bool, err error) { return s.transact(ctx, fn) })
}

// single runs look, which changes nothing, and then put, whose one statement is a transaction
// by itself: two round trips less than write. Both may run again.
func (s *Store) single(ctx context.Context, what string, look, put func(c *session) error) error {
	return s.retry(ctx, what, func() (unknown bool, err error) {
		conn, err := s.acquire(ctx)
		if err != nil {
			return false, err
		}
		defer func() { _ = conn.Close() }()
		c := &session{s: s, q: conn}
		if err := look(c); err != nil {
			return false, err
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
		err = put(c)
		s.leave(conn, err)
		return err != nil && s.mayHaveHappened(err), err
	})
}

// mayHaveHappened tells of the error of a statement that is its own transaction whether its end
// is unknown (D8): the answer did not come, or was about the commit.
func (s *Store) mayHaveHappened(err error) bool {
	e := s.engine.Errors
	return !e.RolledBack(err) && (s.broken(err) || e.Unavailable(err) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}

// retry runs a transaction until it has an end, a few times.
func (s *Store) retry(ctx context.Context, what string, run func() (unknown bool, err error)) error {
	var err error
	unknown := false
	for n := range maxAttempts {
		unknown, err = run()
		if err == nil || unknown || ctx.Err() != nil || n == maxAttempts-1 || !s.again(err, n) {
			break
		}
		// Jitter, so that the two that met do not meet again.
		pause := time.NewTimer(time.Duration(float64(retryPause) * float64(n+1) * (0.5 + rand.Float64()))) //nolint:gosec // No secret hangs on a pause.
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
	return s.classify(what, err, unknown)
}

// errAgain asks for the transaction to be run again from its start.
var errAgain = errors.New("the rows have changed meanwhile")

// again tells whether a transaction that left nothing is run once more. A connection that
// broke before the commit proves that; once, since the next may be as dead.
func (s *Store) again(err error, n int) bool {
	return errors.Is(err, errAgain) || s.engine.Errors.Again(err) || n == 0 && s.broken(err)
}

// transact runs fn once. unknown says that the commit may or may not have happened (D8).
func (s *Store) transact(ctx context.Context, fn func(c *session) (verdict, error)) (unknown bool, err error) {
	conn, err := s.acquire(ctx)
	if err != nil {
		return false, err
	}
	ended := false
	defer func() {
		if !ended { // also where fn panics: the next one on this connection would commit what stands
			discard(conn)
		}
		_ = conn.Close()
	}()
	tx, err := s.engine.Begin(ctx, conn)
	if err != nil {
		return false, err
	}
	v, err := fn(&session{s: s, q: tx})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil || v == rollback {
		quiet, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
		defer cancel()
		ended = tx.Rollback(quiet) == nil
		s.leave(conn, err)
		return false, err
	}
	if err := tx.Commit(ctx); err != nil {
		quiet, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
		defer cancel()
		_ = tx.Rollback(quiet)
		return !s.engine.Errors.RolledBack(err), err
	}
	ended = true
	return false, nil
}

// connectError marks an error that happened before anything was sent.
type connectError struct{ err error }

func (e *connectError) Error() string { return e.err.Error() }
func (e *connectError) Unwrap() error { return e.err }

func (s *Store) acquire(ctx context.Context) (*sql.Conn, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, &connectError{err: err}
	}
	return conn, nil
}

// discard sees to it that the pool closes a connection which may stand in a transaction.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}

// leave gives up a connection to a database that cannot serve: after a failover the next one may
// lead to another, while the old one still answers and takes no writes.
func (s *Store) leave(conn *sql.Conn, err error) {
	if err != nil && s.engine.Errors.Unavailable(err) {
		discard(conn)
	}
}

// broken tells a connection that died under a statement.
func (s *Store) broken(err error) bool {
	_, connecting := errors.AsType[*connectError](err)
	return !connecting && (errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || isNetError(err) ||
		s.engine.Errors.Broken(err))
}
