package mssql

import (
	"context"
	"database/sql/driver"
	"fmt"
	"sync"
	"time"

	mssqldb "github.com/microsoft/go-mssqldb"
)

// cancelGrace is how long a database may take to confirm that a request is cancelled. The driver
// alone would wait for 5 s, and a caller on a network that has gone silent with it.
const cancelGrace = time.Second

// link is a connection of the driver that is cut off where a cancelled request is not confirmed
// in time, and that is not used again where the database has closed it.
type link struct {
	*mssqldb.Conn

	cut   func()
	alive func() bool
}

var (
	_ driver.ConnPrepareContext = (*link)(nil)
	_ driver.ConnBeginTx        = (*link)(nil)
	_ driver.NamedValueChecker  = (*link)(nil)
	_ driver.SessionResetter    = (*link)(nil)
	_ driver.Validator          = (*link)(nil)
)

// ResetSession implements driver.SessionResetter, which the pool calls when it hands a
// connection out. One that was closed meanwhile is replaced without an error: after a failover or
// behind a gateway that ends what is idle, all of the pool are.
func (l *link) ResetSession(ctx context.Context) error {
	if !l.alive() {
		return driver.ErrBadConn
	}
	return l.Conn.ResetSession(ctx)
}

// watch cuts the connection off where the request of ctx goes on for long after ctx has ended.
// The request calls done when it has ended.
func (l *link) watch(ctx context.Context) (done func()) {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		grace := time.NewTimer(cancelGrace)
		defer grace.Stop()
		select {
		case <-ended:
		case <-grace.C:
			l.cut()
		}
	})
	return sync.OnceFunc(func() {
		stop()
		close(ended)
	})
}

// PrepareContext implements driver.ConnPrepareContext: database/sql runs everything by it.
func (l *link) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	s, err := l.Conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	inner, ok := s.(*mssqldb.Stmt)
	if !ok {
		return nil, fmt.Errorf("the driver made a %T of a statement", s)
	}
	return &request{Stmt: inner, link: l}, nil
}

// BeginTx implements driver.ConnBeginTx.
func (l *link) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	defer l.watch(ctx)()
	tx, err := l.Conn.BeginTx(ctx, o)
	if err != nil {
		return nil, err
	}
	return &ending{tx: tx, link: l, ctx: ctx}, nil
}

// ending is the end of a transaction, which the driver waits for as long as the ctx of the begin
// lasts.
type ending struct {
	tx   driver.Tx
	link *link
	ctx  context.Context //nolint:containedctx // driver.Tx takes none.
}

// Commit implements driver.Tx.
func (e *ending) Commit() error {
	defer e.link.watch(e.ctx)()
	return e.tx.Commit()
}

// Rollback implements driver.Tx.
func (e *ending) Rollback() error {
	defer e.link.watch(e.ctx)()
	return e.tx.Rollback()
}

// request is a statement.
type request struct {
	*mssqldb.Stmt

	link *link
}

var (
	_ driver.StmtExecContext  = (*request)(nil)
	_ driver.StmtQueryContext = (*request)(nil)
)

// ExecContext implements driver.StmtExecContext.
func (r *request) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	defer r.link.watch(ctx)()
	return r.Stmt.ExecContext(ctx, args)
}

// QueryContext implements driver.StmtQueryContext. Its request lasts until the rows are closed.
func (r *request) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	done := r.link.watch(ctx)
	found, err := r.Stmt.QueryContext(ctx, args)
	if err != nil {
		done()
		return nil, err
	}
	inner, ok := found.(*mssqldb.Rows)
	if !ok {
		done()
		return nil, fmt.Errorf("the driver answered with a %T", found)
	}
	return &result{Rows: inner, done: done}, nil
}

// result are the rows of a request.
type result struct {
	*mssqldb.Rows

	done func()
}

var _ driver.RowsNextResultSet = (*result)(nil)

// Close implements driver.Rows.
func (r *result) Close() error {
	defer r.done()
	return r.Rows.Close()
}
