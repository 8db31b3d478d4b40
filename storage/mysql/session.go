package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	driversql "github.com/go-sql-driver/mysql"

	"github.com/queuebox/queuebox/storage/rowlock"
)

// The settings every connection runs under, whatever the defaults of the server and of
// the role are (D1). Each stands for something that would otherwise break:
// NAMES, so that text arrives as it is; time_zone, since all times are UTC; sql_mode,
// so that a value that does not fit is an error and not cut off; autocommit and
// completion_type, so that a transaction begins and ends where we say; unique_checks,
// since the unique indexes decide; default_storage_engine, for the table of the versions, which goose makes and
// which has to survive a crash; sql_safe_updates, sql_select_limit and sql_big_selects,
// which forbid or cut statements; max_statement_time of MariaDB and max_execution_time of MySQL, which
// end them (a server has them for programs without deadlines; ours have one each); auto_increment_increment
// and _offset, since the ids of one INSERT are counted from the first. Every wait for a lock ends after two seconds. A
// connection whose server has vanished gives up its locks: MariaDB ends a transaction
// that does nothing, MySQL knows only the end of an idle connection, which the pool
// closes long before.
const sessionSettings = `SET NAMES utf8mb4, autocommit = 1, completion_type = 'NO_CHAIN',
 time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION',
 auto_increment_increment = 1, auto_increment_offset = 1, unique_checks = 1, foreign_key_checks = 1,
 default_storage_engine = InnoDB, sql_safe_updates = 0, sql_select_limit = 18446744073709551615, sql_big_selects = 1,
 innodb_lock_wait_timeout = 2, lock_wait_timeout = 2, wait_timeout = 60
 /*!50708 , max_execution_time = 0 */
 /*M!100300 , max_statement_time = 0, idle_transaction_timeout = 10 */`

// isolation cannot be set in the same statement: the name of its variable differs.
const isolation = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE"

const (
	// maxIdle is well below wait_timeout, so that the pool closes a connection before the
	// server does.
	maxIdle = 30 * time.Second
	// maxLife moves connections on to where a name leads by now.
	maxLife = 30 * time.Minute
	// connectTimeout bounds one attempt to connect, log in and set the session up.
	connectTimeout = 5 * time.Second
	// commitGrace is how long the answer to a COMMIT is waited for once the caller has left:
	// cut off, it would be an outcome that nobody knows (D8).
	commitGrace = time.Second
)

// connector makes connections that have our settings. It bounds the login too: the driver bounds
// the dialing alone, and would wait for ever for a server that takes connections and says nothing,
// such as one of another kind that waits for the client to speak first.
type connector struct{ driver.Connector }

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	e, ok := conn.(driver.ExecerContext)
	if !ok {
		_ = conn.Close()
		return nil, errors.New("the driver runs no statements")
	}
	for _, text := range []string{sessionSettings, isolation} {
		if _, err := e.ExecContext(ctx, text, nil); err != nil {
			_ = conn.Close()
			return nil, err
		}
	}
	return conn, nil
}

// pool makes a pool whose connections have our settings. maxPacket is what the server
// takes; 0 where that is not known yet.
func (t target) pool(maxPacket int) (*sql.DB, error) {
	cfg := t.config.Clone()
	if maxPacket > 0 {
		cfg.MaxAllowedPacket = maxPacket
	}
	c, err := driversql.NewConnector(cfg)
	if err != nil {
		return nil, errURL
	}
	return sql.OpenDB(connector{c}), nil
}

// transaction is one transaction on one connection, told by statements: database/sql
// would not let COMMIT have a ctx.
type transaction struct {
	*sql.Conn
	begun, done bool
}

var _ rowlock.Transaction = (*transaction)(nil)

// startTransaction says READ WRITE because the default of a session is not ours alone.
const startTransaction = "START TRANSACTION READ WRITE"

// maxWithStart bounds the arguments of a statement that goes in one text with startTransaction.
// One for which the text has no room would be prepared, and that is for single statements; twice
// so much, for what is escaped, has room in the smallest packet that serves.
const maxWithStart = 4 << 20

// begin makes a transaction, which starts in one round trip with its first statement.
func begin(_ context.Context, conn *sql.Conn) (rowlock.Transaction, error) {
	return &transaction{Conn: conn}, nil
}

// start makes the text of a statement, with the start of the transaction in front of the first.
// The driver answers with the rows, or the count, of the statement: the start has none.
func (t *transaction) start(ctx context.Context, query string, args []any) (string, error) {
	if t.begun {
		return query, nil
	}
	t.begun = true
	bytes := 0
	for _, v := range args {
		switch v := v.(type) {
		case string:
			bytes += len(v)
		case []byte:
			bytes += len(v)
		}
	}
	if bytes <= maxWithStart {
		return startTransaction + ";\n" + query, nil
	}
	_, err := t.Conn.ExecContext(ctx, startTransaction)
	return query, err
}

// ExecContext implements rowlock.Querier.
func (t *transaction) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	query, err := t.start(ctx, query, args)
	if err != nil {
		return nil, err
	}
	return t.Conn.ExecContext(ctx, query, args...)
}

// QueryContext implements rowlock.Querier.
func (t *transaction) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	query, err := t.start(ctx, query, args)
	if err != nil {
		return nil, err
	}
	return t.Conn.QueryContext(ctx, query, args...)
}

// Commit implements rowlock.Transaction.
func (t *transaction) Commit(ctx context.Context) error {
	if !t.begun {
		t.done = true
		return nil
	}
	patient, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		select {
		case <-patient.Done():
		case <-time.After(commitGrace):
			cancel()
		}
	})()
	_, err := t.Conn.ExecContext(patient, "COMMIT")
	t.done = err == nil
	return err
}

// Rollback implements rowlock.Transaction.
func (t *transaction) Rollback(ctx context.Context) error {
	if t.done || !t.begun {
		return nil
	}
	_, err := t.Conn.ExecContext(ctx, "ROLLBACK")
	return err
}
