// Package pgxtx settles claims and enqueues messages in a PostgreSQL transaction of your own,
// through pgx (E12): your rows and the settlement are committed together, or not at all. The
// server must keep its queues in the same database.
//
//	settled, err := pgxtx.Complete(ctx, pool, h, func(ctx context.Context, tx pgx.Tx) error {
//		_, err := tx.Exec(ctx, "INSERT INTO invoice (order_id) VALUES ($1)", order)
//		return err
//	})
//
// An error that matches queuebox.ErrClaimLost says that somebody else has the message by now: the
// transaction was rolled back, and none of your rows is there. docs/own-transaction.md tells the
// whole story, and what a savepoint must not do.
package pgxtx

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	queuebox "github.com/queuebox/queuebox/client/go"
	"github.com/queuebox/queuebox/client/go/internal/owntx"
)

// DB begins transactions: a *pgxpool.Pool, or a *pgx.Conn that nobody else uses meanwhile.
type DB interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// Work does in tx what belongs together with the settlement. It may be run more than once, each
// time in a new transaction, where the database asks for it (serialization failures, deadlocks)
// or a COMMIT brought no answer, so it must do nothing that a rollback does not undo. It must
// neither commit nor roll back, and whatever savepoint it makes holds only what is its own: the
// mark stands before it.
type Work func(ctx context.Context, tx pgx.Tx) error

// Option changes how a transaction is run.
type Option func(*options)

type options struct {
	tx     pgx.TxOptions
	result []byte
	silent bool
}

// WithTxOptions sets the isolation level and the like. Every level is right.
func WithTxOptions(o pgx.TxOptions) Option { return func(s *options) { s.tx = o } }

// WithResult keeps output with the completed message for the retention time of the queue.
func WithResult(result []byte) Option { return func(s *options) { s.result = result } }

// WithoutNotify leaves the notification out: the server finds the transaction within a second
// instead of at once. NOTIFY takes a lock of the whole database at commit, which shows where
// thousands of transactions commit every second.
func WithoutNotify() Option { return func(s *options) { s.silent = true } }

// Complete runs work and completes the message in one transaction.
//
// Renewal stops first, and with it the local deadline of the handle: from the mark on the lock of
// its row holds the claim, not the lease, so work under h.Context() may take as long as it needs.
// Keep it short all the same: an open transaction holds back the vacuum of the whole database.
//
// Where work returns an error everything is rolled back, the claim is as it was, renewed again,
// and the error comes back. An error that matches queuebox.ErrClaimLost says that the claim was
// lost before the mark, one that matches queuebox.ErrOutcomeUnknown that no answer to the COMMIT
// came and the database could not be asked. The handle is settled otherwise.
func Complete(ctx context.Context, db DB, h *queuebox.Handle, work Work, opts ...Option) (queuebox.Settled, error) {
	o := optionsOf(opts)
	mark := owntx.Mark{Statement: func(s queuebox.TransactionSQL) string { return s.Complete }, Args: []any{o.bytes()}}
	return owntx.Settle(ctx, &database{db: db, work: work, options: o.tx}, h, mark, !o.silent)
}

// Retry runs work and returns the message for another attempt in one transaction; otherwise as
// Complete. The outcome says what it came to: DEAD where no attempt is left, CANCELLED where the
// work was asked to stop.
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

// Enqueue appends messages to a queue in tx. They become messages once tx is committed: within a
// second, or at once where Notify runs last in tx. A duplicate of an idempotency key vanishes; a
// key of another content makes a dead message that says so, since nobody is there any more to be
// told.
func Enqueue(ctx context.Context, tx pgx.Tx, c *queuebox.Client, queue string, ms ...queuebox.NewMessage) error {
	sql, err := c.TransactionSQL(ctx, queue)
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	for i := range ms {
		m := &ms[i]
		var attributes *string
		if m.Attributes != nil {
			raw, err := json.Marshal(m.Attributes)
			if err != nil {
				return err
			}
			text := string(raw)
			attributes = &text
		}
		payload := m.Payload
		if payload == nil {
			payload = []byte{}
		}
		b.Queue(sql.Enqueue, payload, m.ContentType, attributes, m.IdempotencyKey, m.OrderingKey, m.Priority,
			owntx.Milliseconds(m.Delay), nullTime(m.AvailableTime), m.MaxAttempts, nullTime(m.ExpireTime))
	}
	return tx.SendBatch(ctx, b).Close()
}

// Notify tells the servers, at the commit of tx, that it has something for them. It belongs at the
// end of a transaction that enqueues; the functions that settle run it by themselves.
func Notify(ctx context.Context, tx pgx.Tx, c *queuebox.Client, queue string) error {
	sql, err := c.TransactionSQL(ctx, queue)
	if err != nil || sql.Notify == "" {
		return err
	}
	_, err = tx.Exec(ctx, sql.Notify)
	return err
}

func nullTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
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

// database runs the steps through pgx.
type database struct {
	db      DB
	work    Work
	options pgx.TxOptions
}

func (d *database) Begin(ctx context.Context) (owntx.Tx, error) {
	tx, err := d.db.BeginTx(ctx, d.options)
	if err != nil {
		return nil, err
	}
	return &transaction{tx: tx, work: d.work}, nil
}

func (d *database) Again(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "40001" || pg.Code == "40P01")
}

// RolledBack: an answer of the database proves it, unless it speaks of the connection or of a
// shutdown, which can come after the commit.
func (d *database) RolledBack(err error) bool {
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return true
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return pgconn.SafeToRetry(err)
	}
	switch pg.Code {
	case "40003", "57P01", "57P02", "57P03":
		return false
	}
	return len(pg.Code) < 2 || pg.Code[:2] != "08"
}

type transaction struct {
	tx   pgx.Tx
	work Work
}

func (t *transaction) Query(ctx context.Context, sql string, args ...any) (*owntx.Row, error) {
	rows, err := t.tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	row, err := pgx.CollectExactlyOneRow(rows, func(r pgx.CollectableRow) (*owntx.Row, error) {
		var (
			row           owntx.Row
			at, available *time.Time
		)
		err := r.Scan(&row.Outcome, &row.DeadReason, &at, &available)
		if at != nil {
			row.SettleTime = at.UTC()
		}
		if available != nil {
			row.AvailableTime = available.UTC()
		}
		return &row, err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // no row is an answer
	}
	return row, err
}

func (t *transaction) Exec(ctx context.Context, sql string) error {
	_, err := t.tx.Exec(ctx, sql)
	return err
}

func (t *transaction) Work(ctx context.Context) error {
	if t.work == nil {
		return nil
	}
	return t.work(ctx, t.tx)
}

func (t *transaction) Commit(ctx context.Context) error   { return t.tx.Commit(ctx) }
func (t *transaction) Rollback(ctx context.Context) error { return t.tx.Rollback(ctx) }
