package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"time"
)

// session is one connection with its prepared statements. One call uses it at a time. It
// stands on the driver itself: what database/sql does beside it, for connections that are shared
// and come and go, cost a tenth of a batch.
type session struct {
	conn    driver.Conn
	queries map[query]string
	stmts   map[query]*statement
	// broken: it may stand in a transaction that nobody can end; never used again.
	broken bool
}

// statement is prepared, and its session closes it.
type statement struct {
	driverStatement
	// order says which argument each parameter is.
	order []int
	// values are the arguments of a run, made once.
	values []driver.NamedValue
}

type driverStatement interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

func openSession(ctx context.Context, connector driver.Connector, queries map[query]string) (*session, error) {
	conn, err := connector.Connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", classify(err))
	}
	return &session{conn: conn, queries: queries, stmts: make(map[query]*statement)}, nil
}

func (c *session) close() error {
	errs := make([]error, 0, len(c.stmts)+1)
	for _, st := range c.stmts {
		errs = append(errs, st.Close())
	}
	return errors.Join(append(errs, c.conn.Close())...)
}

// prepared gives the statement, prepared on its first use and kept.
func (c *session) prepared(ctx context.Context, q query) (*statement, error) {
	if st, ok := c.stmts[q]; ok {
		return st, nil
	}
	text, ok := c.queries[q]
	if !ok {
		return nil, fmt.Errorf("statement %s is missing", q)
	}
	return c.prepare(ctx, q, text)
}

func (c *session) prepare(ctx context.Context, q query, text string) (*statement, error) {
	text, order := nameless(text)
	return c.prepareAs(ctx, q, text, order)
}

// prepareAs prepares a statement whose parameters are the arguments of that order.
func (c *session) prepareAs(ctx context.Context, q query, text string, order []int) (*statement, error) {
	conn, ok := c.conn.(driver.ConnPrepareContext)
	if !ok {
		return nil, fmt.Errorf("prepare %s: %T cannot", q, c.conn)
	}
	// The statement outlives this call, so its ctx must not end with it.
	st, err := conn.PrepareContext(context.WithoutCancel(ctx), text)
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", q, err)
	}
	ds, ok := st.(driverStatement)
	if !ok {
		return nil, errors.Join(fmt.Errorf("prepare %s: %T has no ctx", q, st), st.Close())
	}
	p := &statement{driverStatement: ds, order: order, values: make([]driver.NamedValue, len(order))}
	for i := range p.values {
		p.values[i].Ordinal = i + 1
	}
	c.stmts[q] = p
	return p, nil
}

// bind puts the arguments where the statement wants them.
func (st *statement) bind(args []any) ([]driver.NamedValue, error) {
	for i, n := range st.order {
		if n >= len(args) {
			return nil, fmt.Errorf("argument %d is missing", n+1)
		}
		v, err := toValue(args[n])
		if err != nil {
			return nil, fmt.Errorf("argument %d: %w", n+1, err)
		}
		st.values[i].Value = v
	}
	return st.values, nil
}

// control runs a statement that begins or ends something.
func (c *session) control(ctx context.Context, text string) error {
	st, ok := c.stmts[query(text)]
	if !ok {
		var err error
		if st, err = c.prepare(ctx, query(text), text); err != nil {
			return err
		}
	}
	_, err := st.ExecContext(ctx, nil)
	return err
}

// exec runs a statement and tells how many rows it changed. SQLite keeps the count of
// the statement before where this one changed none by its nature, so exec is for INSERT,
// UPDATE and DELETE alone.
func (c *session) exec(ctx context.Context, q query, args ...any) (int64, error) {
	st, err := c.prepared(ctx, q)
	if err != nil {
		return 0, err
	}
	values, err := st.bind(args)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", q, err)
	}
	res, err := st.ExecContext(ctx, values)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", q, err)
	}
	return res.RowsAffected()
}

// one reads one row; sql.ErrNoRows where there is none.
func (c *session) one(ctx context.Context, q query, args []any, dest ...any) error {
	found := false
	err := c.each(ctx, q, args, func(r *row) error {
		found = true
		if err := r.Scan(dest...); err != nil {
			return err
		}
		return errEnough
	})
	if err == nil && !found {
		err = fmt.Errorf("%s: %w", q, sql.ErrNoRows)
	}
	return err
}

// errEnough stops each; it is no error of the call.
var errEnough = errors.New("enough")

// each calls fn for every row, until fn says errEnough.
func (c *session) each(ctx context.Context, q query, args []any, fn func(r *row) error) error {
	st, err := c.prepared(ctx, q)
	if err != nil {
		return err
	}
	values, err := st.bind(args)
	if err != nil {
		return fmt.Errorf("%s: %w", q, err)
	}
	rows, err := st.QueryContext(ctx, values)
	if err != nil {
		return fmt.Errorf("%s: %w", q, err)
	}
	err = eachRow(ctx, rows, fn)
	if closed := rows.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("%s: %w", q, err)
	}
	return nil
}

// eachRow looks at the ctx between two rows: nobody else does.
func eachRow(ctx context.Context, rows driver.Rows, fn func(r *row) error) error {
	r := row{values: make([]driver.Value, len(rows.Columns()))}
	for {
		switch err := rows.Next(r.values); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := fn(&r); errors.Is(err, errEnough) {
			return nil
		} else if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func (c *session) now(ctx context.Context) (time.Time, error) {
	var ms int64
	if err := c.one(ctx, qNow, nil, &ms); err != nil {
		return time.Time{}, err
	}
	return fromMillis(ms), nil
}

func args(a ...any) []any { return a }
