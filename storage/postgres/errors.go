package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/queuebox/queuebox/storage"
)

// The codes that mean something here; no other file knows one. The names are those
// of the PostgreSQL manual, appendix A.
const (
	codeStatementCompletionUnknown = "40003"
	codeSerializationFailure       = "40001"
	codeDeadlockDetected           = "40P01"
	codeUniqueViolation            = "23505"
	codeNotNullViolation           = "23502"
	codeCheckViolation             = "23514"
	codeReadOnlyTransaction        = "25006"
	codeIdleInTransactionTimeout   = "25P03"
	codeTransactionTimeout         = "25P04"
	codeInsufficientPrivilege      = "42501"
	codeUndefinedTable             = "42P01"
	codeUndefinedColumn            = "42703"
	codeInvalidSchemaName          = "3F000"
	codeDuplicateTable             = "42P07"
	codeLockNotAvailable           = "55P03"
	codeQueryCanceled              = "57014"
	codeAdminShutdown              = "57P01"
	codeCrashShutdown              = "57P02"
	codeCannotConnectNow           = "57P03"
	codeIdleSessionTimeout         = "57P05"
	classConnection                = "08"
	classData                      = "22"
	classIntegrity                 = "23"
	classResources                 = "53"
	classAuthorization             = "28"
)

// code is the SQLSTATE of err, empty where the database did not answer with one.
func code(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

func hasCode(err error, want string) bool { return code(err) == want }

// rolledBack tells whether err proves that its transaction left nothing (D8). An error
// that the database sent is such a proof, but for those that speak of the connection
// or of the server going down: these can come after the commit.
func rolledBack(err error) bool {
	switch c := code(err); {
	case c == "":
		return pgconn.SafeToRetry(err)
	case c == codeStatementCompletionUnknown, c == codeAdminShutdown, c == codeCrashShutdown,
		c == codeCannotConnectNow, c == codeTransactionTimeout, c[:2] == classConnection:
		return false
	default:
		return true
	}
}

// again tells whether the same transaction, run once more, may well pass (D2).
func again(err error) bool {
	c := code(err)
	return c == codeSerializationFailure || c == codeDeadlockDetected || keyVanished(err)
}

// connectError marks an error that happened before anything was sent.
type connectError struct{ err error }

func (e *connectError) Error() string { return e.err.Error() }
func (e *connectError) Unwrap() error { return e.err }

// classify puts the sentinel of package storage in front of a driver's error. write
// says that the call may have changed something.
func classify(what string, err error, write bool) error {
	if err == nil {
		return nil
	}
	wrap := func(sentinel error) error {
		return fmt.Errorf("postgres: %s: %w: %w", what, sentinel, plain(err))
	}
	for _, known := range []error{
		storage.ErrUnavailable, storage.ErrOutcomeUnknown, storage.ErrQueueNotFound, storage.ErrQueueExists,
		storage.ErrQueueLimit, storage.ErrVersionMismatch, storage.ErrMessageNotFound, storage.ErrSchema,
		storage.ErrUnsafeDurability, storage.ErrNotSupported, storage.ErrRefused,
	} {
		if errors.Is(err, known) {
			return fmt.Errorf("postgres: %s: %w", what, err)
		}
	}
	if _, ok := errors.AsType[*connectError](err); ok {
		return wrap(storage.ErrUnavailable)
	}
	c := code(err)
	if c == "" || !rolledBack(err) {
		// The connection broke or the caller left. What was only read is simply not there.
		if write && !rolledBack(err) {
			return wrap(storage.ErrOutcomeUnknown)
		}
		return wrap(storage.ErrUnavailable)
	}
	switch c {
	case codeInsufficientPrivilege:
		return fmt.Errorf("postgres: %s: %w; grant this role its rights: see \"Rights\" in docs/operations.md", what, plain(err))
	case codeLockNotAvailable:
		return wrap(storage.ErrLocked)
	case codeSerializationFailure, codeDeadlockDetected, codeQueryCanceled, codeReadOnlyTransaction,
		// This process stood still for long: what it sends then is not run any more.
		codeIdleInTransactionTimeout, codeIdleSessionTimeout:
		return wrap(storage.ErrUnavailable)
	case codeUndefinedTable, codeUndefinedColumn, codeInvalidSchemaName:
		return wrap(storage.ErrSchema)
	}
	if keyVanished(err) {
		return wrap(storage.ErrUnavailable)
	}
	switch c[:2] {
	case classResources, classAuthorization:
		return wrap(storage.ErrUnavailable)
	}
	return wrap(storage.ErrRefused)
}

// plain drops what a log should not hold: the text of a driver's connect error names
// user and database, the detail of a database's error can hold values of a row.
func plain(err error) error {
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	if errors.Is(err, context.DeadlineExceeded) && !connecting {
		return context.DeadlineExceeded
	}
	if errors.Is(err, context.Canceled) {
		return context.Canceled
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return &databaseError{pg: pg}
	}
	if connecting {
		return connectCause(err)
	}
	return err
}

// connectCause says why a connection was not made. It is told by the types of the errors, so
// that nothing of their texts, which name user and database, comes along.
func connectCause(err error) error {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		switch {
		case dns.IsNotFound:
			return errors.New("connection not made: no such host")
		case dns.IsTimeout:
			return errors.New("connection not made: timeout of the name service")
		}
		return errors.New("connection not made: the name service failed")
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("connection not made: %w", syscall.ECONNREFUSED)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("connection not made: timeout: %w", context.DeadlineExceeded)
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return errors.New("connection not made: timeout")
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return errors.New("connection not made: the certificate of the database is not accepted")
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("connection not made: %w", op.Err)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("connection not made: closed by the other side")
	}
	return errors.New("connection not made")
}

// databaseError shows code and message of an error of the database, nothing else.
type databaseError struct{ pg *pgconn.PgError }

func (e *databaseError) Error() string {
	return fmt.Sprintf("%s (SQLSTATE %s)", e.pg.Message, e.pg.Code)
}
func (e *databaseError) Unwrap() error { return e.pg }
