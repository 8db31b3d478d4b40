// Package sqltx settles claims and enqueues messages in a transaction of your own, through
// database/sql (E12): your rows and the settlement are committed together, or not at all. The
// server must keep its queues in the same database. It knows no driver: errors are told by their
// SQLSTATE, or by the numbers of SQLite, MySQL and SQL Server, as the common drivers give them.
//
//	settled, err := sqltx.Complete(ctx, db, h, func(ctx context.Context, tx *sql.Tx) error {
//		_, err := tx.ExecContext(ctx, "INSERT INTO invoice (order_id) VALUES ($1)", order)
//		return err
//	})
//
// Package pgxtx does the same for pgx itself. docs/own-transaction.md tells the whole story.
package sqltx

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	queuebox "github.com/queuebox/queuebox/client/go"
	"github.com/queuebox/queuebox/client/go/internal/owntx"
)

// DB begins transactions: a *sql.DB, or a *sql.Conn that nobody else uses meanwhile.
type DB interface {
	BeginTx(ctx context.Context, options *sql.TxOptions) (*sql.Tx, error)
}

// Work does in tx what belongs together with the settlement. It may be run more than once, each
// time in a new transaction, where the database asks for it or a COMMIT brought no answer, so it
// must do nothing that a rollback does not undo. It must neither commit nor roll back.
type Work func(ctx context.Context, tx *sql.Tx) error

// Option changes how a transaction is run.
type Option func(*options)

type options struct {
	tx     *sql.TxOptions
	result []byte
	silent bool
}

// WithTxOptions sets the isolation level and the like. Every level is right.
func WithTxOptions(o sql.TxOptions) Option { return func(s *options) { s.tx = &o } }

// WithResult keeps output with the completed message for the retention time of the queue.
func WithResult(result []byte) Option { return func(s *options) { s.result = result } }

// WithoutNotify leaves the notification out, on databases that have one: the server finds the
// transaction within a second instead of at once.
func WithoutNotify() Option { return func(s *options) { s.silent = true } }

// Complete runs work and completes the message in one transaction. What is said of pgxtx.Complete
// holds here too.
func Complete(ctx context.Context, db DB, h *queuebox.Handle, work Work, opts ...Option) (queuebox.Settled, error) {
	o := optionsOf(opts)
	mark := owntx.Mark{Statement: func(s queuebox.TransactionSQL) string { return s.Complete }, Args: []any{o.bytes()}}
	return owntx.Settle(ctx, &database{db: db, work: work, options: o.tx}, h, mark, !o.silent)
}

// Retry runs work and returns the message for another attempt in one transaction; otherwise as
// Complete. The outcome says what it came to.
func Retry(ctx context.Context, db DB, h *queuebox.Handle, r queuebox.RetryOptions, work Work, opts ...Option) (queuebox.Settled, error) {
	o := optionsOf(opts)
	mark := owntx.Mark{
		Statement: func(s queuebox.TransactionSQL) string { return s.Retry },
		Args:      []any{owntx.Milliseconds(r.Delay), r.Error},
	}
	return owntx.Settle(ctx, &database{db: db, work: work, options: o.tx}, h, mark, !o.silent)
}

// DeadLetter runs work and sets the message aside for operators in one transaction; otherwise as
// Complete.
func DeadLetter(ctx context.Context, db DB, h *queuebox.Handle, reasonCode, errText string, work Work, opts ...Option) (queuebox.Settled, error) {
	o := optionsOf(opts)
	mark := owntx.Mark{
		Statement: func(s queuebox.TransactionSQL) string { return s.DeadLetter },
		Args:      []any{reasonCode, errText},
	}
	return owntx.Settle(ctx, &database{db: db, work: work, options: o.tx}, h, mark, !o.silent)
}

// Enqueue appends messages to a queue in tx. They become messages once tx is committed. What is
// said of pgxtx.Enqueue holds here too.
func Enqueue(ctx context.Context, tx *sql.Tx, c *queuebox.Client, queue string, ms ...queuebox.NewMessage) error {
	statements, err := c.TransactionSQL(ctx, queue)
	if err != nil {
		return err
	}
	for i := range ms {
		m := &ms[i]
		var attributes any
		if m.Attributes != nil {
			raw, err := json.Marshal(m.Attributes)
			if err != nil {
				return err
			}
			attributes = string(raw)
		}
		payload := m.Payload
		if payload == nil {
			payload = []byte{}
		}
		_, err := tx.ExecContext(ctx, statements.Enqueue, payload, m.ContentType, attributes, m.IdempotencyKey, m.OrderingKey, m.Priority,
			owntx.Milliseconds(m.Delay), timeArg(statements.Dialect, m.AvailableTime), m.MaxAttempts, timeArg(statements.Dialect, m.ExpireTime))
		if err != nil {
			return err
		}
	}
	return nil
}

// Notify tells the servers, at the commit of tx, that it has something for them, on databases
// that can. The functions that settle run it by themselves.
func Notify(ctx context.Context, tx *sql.Tx, c *queuebox.Client, queue string) error {
	statements, err := c.TransactionSQL(ctx, queue)
	if err != nil || statements.Notify == "" {
		return err
	}
	_, err = tx.ExecContext(ctx, statements.Notify)
	return err
}

// timeArg is a time as the statements of the dialect take it: but for PostgreSQL, whose type has
// a time zone that every driver knows, they count milliseconds.
func timeArg(dialect string, t time.Time) any {
	switch {
	case t.IsZero():
		return nil
	case dialect == "postgres":
		return t
	default:
		return t.UnixMilli()
	}
}

// bytes is the result as the statement takes it: null where there is none.
func (o *options) bytes() any {
	if o.result == nil {
		return nil
	}
	return o.result
}

func optionsOf(opts []Option) options {
	var o options
	for _, f := range opts {
		f(&o)
	}
	return o
}

// database runs the steps through database/sql.
type database struct {
	db      DB
	work    Work
	options *sql.TxOptions
}

func (d *database) Begin(ctx context.Context) (owntx.Tx, error) {
	tx, err := d.db.BeginTx(ctx, d.options)
	if err != nil {
		return nil, err
	}
	return &transaction{tx: tx, work: d.work}, nil
}

type transaction struct {
	tx   *sql.Tx
	work Work
}

func (t *transaction) Query(ctx context.Context, text string, args ...any) (*owntx.Row, error) {
	var (
		row           owntx.Row
		at, available moment
	)
	err := t.tx.QueryRowContext(ctx, text, args...).Scan(&row.Outcome, &row.DeadReason, &at, &available)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil //nolint:nilnil // no row is an answer
	}
	row.SettleTime, row.AvailableTime = at.Time, available.Time
	return &row, err
}

// moment reads a time of any dialect.
type moment struct{ time.Time }

// Scan implements sql.Scanner.
func (m *moment) Scan(v any) error {
	switch v := v.(type) {
	case nil:
	case time.Time:
		m.Time = v.UTC()
	case int64:
		m.Time = time.UnixMilli(v).UTC()
	case []byte:
		ms, err := strconv.ParseInt(string(v), 10, 64)
		if err != nil {
			return errors.New("sqltx: a time that is no number")
		}
		m.Time = time.UnixMilli(ms).UTC()
	default:
		return errors.New("sqltx: a time of a type that is not known")
	}
	return nil
}

func (t *transaction) Exec(ctx context.Context, text string) error {
	_, err := t.tx.ExecContext(ctx, text)
	return err
}

func (t *transaction) Work(ctx context.Context) error {
	if t.work == nil {
		return nil
	}
	return t.work(ctx, t.tx)
}

func (t *transaction) Commit(context.Context) error   { return t.tx.Commit() }
func (t *transaction) Rollback(context.Context) error { return t.tx.Rollback() }
