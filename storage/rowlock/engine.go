package rowlock

import (
	"context"
	"database/sql"
	"io/fs"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// Engine is what an engine brings.
type Engine struct {
	// Name is that of storage.Capabilities and stands in front of errors.
	Name string
	// Queries holds queries/*.sql and queries/parts/*.sql.
	Queries fs.FS
	// Now is the clock of the database as its SQL spells it.
	Now string
	// Compile makes of the text of a statement, with :name for each parameter, what the
	// driver takes, and a function that orders the arguments for it.
	Compile func(text string) (compiled string, bind func([]Arg) []any, err error)
	// Begin starts a transaction at READ COMMITTED, whatever the default of the role is (D1).
	Begin func(ctx context.Context, conn *sql.Conn) (Transaction, error)
	// CountByRow: a statement that changes rows returns the count as a row (SQL Server).
	CountByRow bool
	// MatchedRows is the statement that tells how many rows the one before it in the same text
	// matched. Where it is set, the driver takes several statements in one text, and several of a
	// transaction go in one round trip (session.together); else they go one after the other.
	MatchedRows string
	// ClaimLock serialises the claims of a queue, within the transaction; nil where row locks
	// suffice. An error that matches ErrBusy says that the lock was not had in time.
	ClaimLock func(ctx context.Context, tx Transaction, queueID int32) error
	// Insert runs message_insert for some messages and gives their ids, which the database
	// counts up, in the order of the rows.
	Insert func(ctx context.Context, q Querier, st Statement, rows []MessageRow) ([]int64, error)
	// Qualifier stands in front of the procedures that others call (E12), so that they are found
	// from another database of the server; empty where the text has what it needs.
	Qualifier string
	Values    Values
	Errors    Errors
}

// Arg is a parameter of a statement with its name.
type Arg struct {
	Name  string
	Value any
}

// Querier runs statements.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Transaction is one transaction on one connection. Rollback may be called after any error
// and after Commit. Where Rollback fails, the connection must not be used again.
type Transaction interface {
	Querier
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// Values makes the values that a driver takes, each always of the same type and size, so
// that a statement has one plan. The zero of each is NULL, but for Bytes, where nil is.
// Numbers and bool are passed as they are, an int32 where the column is an int; one that may
// be NULL is a sql.NullInt64 or a sql.NullInt32. A bare nil has no type and is refused.
type Values interface {
	Time(t time.Time) any
	Token(t [16]byte) any
	Bytes(b []byte) any
	Text(s string) any // up to 2000 bytes
	// Name is the name of a queue or a key, as its columns are compared: by bytes, trailing
	// blanks too (E11). On SQL Server that is varbinary(255), since blanks at the end are no
	// difference to a text there.
	Name(s string) any
	// List is JSON text of any length.
	List(json []byte) any
	// TokenText is a token as it stands in the JSON of a list.
	TokenText(t [16]byte) string
	// NameText is a name as it stands in the JSON of a list: itself, or base64 where names
	// are bytes.
	NameText(s string) string
	// ScanToken reads a token column, null as the zero token.
	ScanToken(into *[16]byte) sql.Scanner
}

// Errors tells what an error of the driver means. Whichever it is, the transaction has ended
// with it: SQL Server rolls back at once (XACT_ABORT), so a duplicate or a lock that was not
// had is answered by another transaction, never by going on.
type Errors interface {
	// RolledBack: the error proves that the transaction left nothing (D8).
	RolledBack(err error) bool
	// Again: the same transaction, run once more, may well pass (D2): a deadlock.
	Again(err error) bool
	// Duplicate: a unique index refused a row.
	Duplicate(err error) bool
	// LockTimeout: a lock was not had in time.
	LockTimeout(err error) bool
	// Broken: the connection is gone or unusable, in the words of the driver or the database;
	// what package net says of it need not be told here.
	Broken(err error) bool
	// Schema: a table or column is missing.
	Schema(err error) bool
	// Unavailable: the database answers and cannot serve: read-only, out of space or of
	// connections, shutting down, refusing the login.
	Unavailable(err error) bool
	// Plain drops what a log should not hold, such as values of rows, user and database.
	Plain(err error) error
}

// Options of New.
type Options struct {
	Capabilities storage.Capabilities
	// Schema is the version that this build works with (D7); SchemaVersion reads the one
	// that the database has.
	Schema        int64
	SchemaVersion func(ctx context.Context, q Querier) (int64, error)
}
