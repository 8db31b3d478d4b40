package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// session is one connection with its prepared statements. One call uses it at a time.
type session struct {
	conn    *sql.Conn
	queries map[query]string
	stmts   map[query]*sql.Stmt
	// broken: it may stand in a transaction that nobody can end; never used again.
	broken bool
}

// statement is prepared. The session that keeps it closes it; whoever runs it cannot.
type statement interface {
	ExecContext(ctx context.Context, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, args ...any) *sql.Row
}

func openSession(ctx context.Context, db *sql.DB, queries map[query]string) (*session, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", classify(err))
	}
	return &session{conn: conn, queries: queries, stmts: make(map[query]*sql.Stmt)}, nil
}

func (c *session) close() error {
	errs := make([]error, 0, len(c.stmts)+1)
	for _, st := range c.stmts {
		errs = append(errs, st.Close())
	}
	return errors.Join(append(errs, c.conn.Close())...)
}

// prepared gives the statement, prepared on its first use and kept.
func (c *session) prepared(ctx context.Context, q query) (statement, error) {
	if st, ok := c.stmts[q]; ok {
		return st, nil
	}
	text, ok := c.queries[q]
	if !ok {
		return nil, fmt.Errorf("statement %s is missing", q)
	}
	// The statement outlives this call, so its ctx must not end with it.
	st, err := c.conn.PrepareContext(context.WithoutCancel(ctx), text)
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", q, err)
	}
	c.stmts[q] = st
	return st, nil
}

// control runs a statement that begins or ends something.
func (c *session) control(ctx context.Context, text string) error {
	st, ok := c.stmts[query(text)]
	if !ok {
		var err error
		if st, err = c.conn.PrepareContext(context.WithoutCancel(ctx), text); err != nil {
			return fmt.Errorf("prepare %s: %w", text, err)
		}
		c.stmts[query(text)] = st
	}
	_, err := st.ExecContext(ctx)
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
	res, err := st.ExecContext(ctx, args...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", q, err)
	}
	return res.RowsAffected()
}

// one reads one row; sql.ErrNoRows where there is none.
func (c *session) one(ctx context.Context, q query, args []any, dest ...any) error {
	st, err := c.prepared(ctx, q)
	if err != nil {
		return err
	}
	if err := st.QueryRowContext(ctx, args...).Scan(dest...); err != nil {
		return fmt.Errorf("%s: %w", q, err)
	}
	return nil
}

// errEnough stops each; it is no error of the call.
var errEnough = errors.New("enough")

// each calls fn for every row, until fn says errEnough.
func (c *session) each(ctx context.Context, q query, args []any, fn func(rows *sql.Rows) error) error {
	st, err := c.prepared(ctx, q)
	if err != nil {
		return err
	}
	rows, err := st.QueryContext(ctx, args...)
	if err != nil {
		return fmt.Errorf("%s: %w", q, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := fn(rows); errors.Is(err, errEnough) {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("%s: %w", q, err)
	}
	return nil
}

func (c *session) now(ctx context.Context) (time.Time, error) {
	var ms int64
	if err := c.one(ctx, qNow, nil, &ms); err != nil {
		return time.Time{}, err
	}
	return fromMillis(ms), nil
}

func args(a ...any) []any { return a }
