package mssql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"time"

	mssqldb "github.com/microsoft/go-mssqldb"

	"github.com/queuebox/queuebox/storage/rowlock"
)

// commitGrace is how long the answer to a commit is waited for once the caller has left: cut
// off, it would be an outcome that nobody knows (D8).
const commitGrace = time.Second

// transaction is one transaction on one connection. It is begun by the driver and not by a
// statement, so that the driver knows when the server has ended it: with XACT_ABORT every
// error does, and a statement that came after it would commit by itself.
type transaction struct {
	tx *sql.Tx
	// end cuts off what waits for the answer to a commit or a rollback: the driver knows no
	// other ctx for them than that of the begin.
	end context.CancelFunc
	// failed: a statement failed, so the server has rolled back or is to.
	failed bool
}

var _ rowlock.Transaction = (*transaction)(nil)

// begin starts a transaction at READ COMMITTED. One of 3 round trips where a transaction has a
// single statement; the pool's reset of the session travels with it.
func begin(ctx context.Context, conn *sql.Conn) (rowlock.Transaction, error) {
	own, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, end)
	tx, err := conn.BeginTx(own, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err == nil && !stop() {
		// The ctx ended at the last moment, and database/sql rolls back by itself.
		err = errors.Join(ctx.Err(), tx.Rollback())
	}
	if err != nil {
		stop()
		end()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	return &transaction{tx: tx, end: end}, nil
}

// ExecContext implements rowlock.Querier.
func (t *transaction) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	res, err := t.tx.ExecContext(ctx, query, args...)
	t.failed = t.failed || err != nil
	return res, err
}

// QueryContext implements rowlock.Querier.
func (t *transaction) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	rows, err := t.tx.QueryContext(ctx, query, args...)
	t.failed = t.failed || err != nil
	return rows, err
}

// errFailed tells a commit after a statement that failed.
var errFailed = errors.New("a statement of the transaction failed, so it cannot be committed")

// Commit implements rowlock.Transaction.
func (t *transaction) Commit(ctx context.Context) error {
	if t.failed || ctx.Err() != nil {
		err := ctx.Err()
		if err == nil {
			err = errFailed
		}
		return &undone{err: errors.Join(err, t.Rollback(ctx))}
	}
	defer t.end()
	ended := make(chan struct{})
	defer close(ended)
	defer context.AfterFunc(ctx, func() {
		patience := time.NewTimer(commitGrace)
		defer patience.Stop()
		select {
		case <-ended:
		case <-patience.C:
			t.end()
		}
	})()
	return t.tx.Commit()
}

// Rollback implements rowlock.Transaction. Where the server has rolled back already nothing is
// sent.
func (t *transaction) Rollback(ctx context.Context) error {
	defer t.end()
	defer context.AfterFunc(ctx, t.end)()
	if err := t.tx.Rollback(); !errors.Is(err, sql.ErrTxDone) && number(err) != errNoRollback {
		return err
	}
	return nil
}

// single reads one row outside the store.
func single(ctx context.Context, q rowlock.Querier, text string, dest ...any) (err error) {
	query, bind, err := compile(text)
	if err != nil {
		return err
	}
	rows, err := q.QueryContext(ctx, query, bind(nil)...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	err = sql.ErrNoRows
	for rows.Next() {
		if err = rows.Scan(dest...); err != nil {
			return err
		}
	}
	return cmp.Or(rows.Err(), err)
}

// call runs a stored procedure by RPC, so that its parameters have the types that the procedure
// declares, and gives its return code.
func call(ctx context.Context, q rowlock.Querier, procedure string, args ...any) (int, error) {
	var code mssqldb.ReturnStatus
	_, err := q.ExecContext(ctx, procedure, append(args, &code)...)
	return int(code), err
}
