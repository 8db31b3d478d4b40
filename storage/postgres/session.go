package postgres

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/queuebox/queuebox/storage"
)

// The settings every statement runs under, for the session and, behind a pooler, for
// one transaction. Generic plans and forbidden scans pin the plans (C12): the
// statistics of a queue change by the minute and would flip them. The isolation level
// is set whatever the role's default is (D1). lock_timeout bounds every wait (lockWait); a
// transaction whose server has vanished between two statements frees its keys in time.
const sessionSettings = `SELECT set_config('default_transaction_isolation', 'read committed', false),
 set_config('plan_cache_mode', 'force_generic_plan', false),
 set_config('enable_seqscan', 'off', false), set_config('enable_bitmapscan', 'off', false),
 set_config('enable_hashjoin', 'off', false), set_config('enable_mergejoin', 'off', false),
 set_config('jit', 'off', false), set_config('lock_timeout', '2s', false),
 set_config('idle_in_transaction_session_timeout', '10s', false)`

const transactionSettings = `SELECT set_config('plan_cache_mode', 'force_generic_plan', true),
 set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
 set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
 set_config('jit', 'off', true), set_config('lock_timeout', '2s', true),
 set_config('idle_in_transaction_session_timeout', '10s', true)`

const lockTimeout = `SELECT set_config('lock_timeout', $1, true)`

const (
	begin         = "BEGIN ISOLATION LEVEL READ COMMITTED"
	beginSnapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
)

// Inner retries after a deadlock or a serialization failure (D2).
const (
	maxAttempts = 4
	retryPause  = 20 * time.Millisecond
)

// step is one statement of a transaction. scan reads its rows; since a transaction can
// run again, it starts from nothing each time.
type step struct {
	sql  string
	args []any
	scan func(pgx.Rows) error
	// rerun says that only a transaction that runs again needs the step.
	rerun bool
}

// setUp prepares a new connection, in one round trip.
func setUp(pooled bool) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, c *pgx.Conn) error {
		// uuid arrays go in and out as arrays of bytes, which pgx does not guess by itself
		// where it does not ask the database for the types.
		c.TypeMap().RegisterDefaultPgType([][16]byte(nil), "_uuid")
		c.TypeMap().RegisterDefaultPgType([]*[16]byte(nil), "_uuid")
		c.TypeMap().RegisterDefaultPgType([16]byte{}, "uuid")
		quickArrays(c.TypeMap())
		if pooled {
			return nil
		}
		_, err := c.Exec(ctx, sessionSettings, pgx.QueryExecModeExec)
		return err
	}
}

// atMost gives the step that bounds the waits for locks of the steps after it in a transaction
// (storage.LockWait), none where the bound of the session is meant.
func atMost(wait storage.LockWait) []step {
	if wait <= 0 {
		return nil
	}
	return []step{{sql: lockTimeout, args: []any{waits(wait)}}}
}

// waits says the same to the statements that lock keys, which set it themselves: a statement
// less. Empty leaves the bound of the session.
func waits(wait storage.LockWait) string {
	if wait <= 0 {
		return ""
	}
	return strconv.FormatInt(max(1, wait.Milliseconds()), 10)
}

// read runs steps that change nothing. They may run a second time on another
// connection where the first one broke.
func (s *Store) read(ctx context.Context, what string, steps ...step) error {
	return s.run(ctx, what, false, steps)
}

// write runs steps in one transaction, in one round trip.
func (s *Store) write(ctx context.Context, what string, steps ...step) error {
	return s.run(ctx, what, true, steps)
}

func (s *Store) run(ctx context.Context, what string, write bool, steps []step) error {
	return classify(what, s.repeat(ctx, write, func(rerun bool) error {
		conn, err := s.acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		if !s.pooled {
			return s.send(ctx, conn, rerun, steps)
		}
		all := make([]step, 0, len(steps)+3)
		all = append(all, step{sql: begin}, step{sql: transactionSettings})
		all = append(all, steps...)
		return s.send(ctx, conn, rerun, append(all, step{sql: "COMMIT"}))
	}), write)
}

// snapshot runs steps that change nothing, all on one snapshot, in one round trip.
func (s *Store) snapshot(ctx context.Context, what string, steps ...step) error {
	return classify(what, s.repeat(ctx, false, func(rerun bool) error {
		conn, err := s.acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		all := make([]step, 0, len(steps)+3)
		all = append(all, step{sql: beginSnapshot})
		if s.pooled {
			all = append(all, step{sql: transactionSettings})
		}
		all = append(all, steps...)
		return s.send(ctx, conn, rerun, append(all, step{sql: "COMMIT"}))
	}), false)
}

// transact runs two round trips in one transaction: first, then what next makes of
// its rows. Next returns commit = false to roll back, which is no error.
func (s *Store) transact(ctx context.Context, what string, first []step, next func() (steps []step, commit bool)) error {
	return classify(what, s.repeat(ctx, true, func(rerun bool) error {
		conn, err := s.acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		all := []step{{sql: begin}}
		if s.pooled {
			all = append(all, step{sql: transactionSettings})
		}
		if err := s.send(ctx, conn, rerun, append(all, first...)); err != nil {
			return err
		}
		steps, commit := next()
		if !commit {
			return s.send(ctx, conn, rerun, []step{{sql: "ROLLBACK"}})
		}
		return s.send(ctx, conn, rerun, append(steps, step{sql: "COMMIT"}))
	}), true)
}

// converse runs a transaction of as many round trips as f makes. f returns commit = false to
// roll back, which is no error. It may run again, so it starts from nothing each time.
func (s *Store) converse(ctx context.Context, what string, f func(send func(...step) error) (commit bool, err error)) error {
	return classify(what, s.repeat(ctx, true, func(rerun bool) error {
		conn, err := s.acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		before := []step{{sql: begin}}
		if s.pooled {
			before = append(before, step{sql: transactionSettings})
		}
		commit, err := f(func(steps ...step) error {
			steps = append(before, steps...)
			before = nil
			return s.send(ctx, conn, rerun, steps)
		})
		switch {
		case err != nil || before != nil:
			return err
		case !commit:
			return s.send(ctx, conn, rerun, []step{{sql: "ROLLBACK"}})
		}
		return s.send(ctx, conn, rerun, []step{{sql: "COMMIT"}})
	}), true)
}

// repeat runs a transaction again after an error that proves its rollback and that may
// well not come back, and a read after a broken connection.
func (s *Store) repeat(ctx context.Context, write bool, f func(rerun bool) error) error {
	var err error
	for n := range maxAttempts {
		err = f(n > 0)
		if err == nil || ctx.Err() != nil {
			return err
		}
		lost := !write && !rolledBack(err) // a read whose connection broke
		if !again(err) && (n > 0 || (!lost && !stray(err))) {
			return err
		}
		if n == maxAttempts-1 {
			break
		}
		if n == 0 && keyVanished(err) {
			continue // whoever made or removed the key has ended
		}
		// Jitter, so that the two that met do not meet again.
		pause := time.NewTimer(time.Duration(float64(retryPause) * float64(n+1) * (0.5 + rand.Float64()))) //nolint:gosec // No secret hangs on a pause.
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
	return err
}

// stray tells whether a statement was cancelled, though its own caller is there still. A
// request to cancel names a connection and not a statement: that of a caller who left can
// come so late that it meets the next one on his connection. It proves the rollback, so
// the transaction is run once more; a statement timeout of the role looks the same, and
// will not pass the second time.
func stray(err error) bool { return code(err) == codeQueryCanceled }

func (s *Store) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, &connectError{err: err}
	}
	return conn, nil
}

// send puts all steps on the wire at once. Without BEGIN among them the database makes
// one transaction of them. rerun tells that the transaction has run before.
func (s *Store) send(ctx context.Context, conn *pgxpool.Conn, rerun bool, steps []step) error {
	b := &pgx.Batch{}
	for _, st := range steps {
		if st.rerun && !rerun {
			continue
		}
		q := b.Queue(st.sql, st.args...)
		if st.scan != nil {
			q.Query(st.scan)
		}
	}
	err := conn.SendBatch(ctx, b).Close()
	if err == nil {
		return nil
	}
	switch code(err) {
	case codeAdminShutdown, codeCrashShutdown:
		// The other connections are as dead as this one: better found out now than by the
		// next calls.
		s.pool.Reset()
	}
	if !conn.Conn().IsClosed() && conn.Conn().PgConn().TxStatus() != 'I' {
		// The pool would throw away a connection with an open transaction; an error such as
		// a lock timeout is no reason to connect anew.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_, _ = conn.Exec(ctx, "ROLLBACK", pgx.QueryExecModeExec)
	}
	return err
}
