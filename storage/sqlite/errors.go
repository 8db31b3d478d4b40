package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	driversqlite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/queuebox/queuebox/storage"
)

// errClosed answers a call that came after Close.
var errClosed = fmt.Errorf("%w: store is closed", storage.ErrUnavailable)

// classify puts a sentinel of package storage before an error of the driver, by its
// code and never by its text. It is for errors from before the commit alone: SQLite has
// rolled the transaction back, or does so with the rollback that follows.
func classify(err error) error {
	if err == nil || isSentinel(err) {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", storage.ErrUnavailable, err)
	}
	if errors.Is(err, sql.ErrConnDone) || errors.Is(err, driver.ErrBadConn) {
		return fmt.Errorf("%w: %w", storage.ErrUnavailable, err)
	}
	var e *driversqlite.Error
	if !errors.As(err, &e) {
		return err
	}
	// The low byte is the primary code; the rest says more of the same.
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return fmt.Errorf("%w: %w", storage.ErrLocked, err)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_INTERRUPT,
		sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
		sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH,
		sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ABORT:
		return fmt.Errorf("%w: %w", storage.ErrUnavailable, err)
	default:
		return fmt.Errorf("%w: %w", storage.ErrRefused, err)
	}
}

func isSentinel(err error) bool {
	for _, sentinel := range []error{
		storage.ErrUnavailable, storage.ErrOutcomeUnknown, storage.ErrQueueNotFound, storage.ErrQueueExists,
		storage.ErrQueueLimit, storage.ErrVersionMismatch, storage.ErrMessageNotFound, storage.ErrSchema,
		storage.ErrUnsafeDurability, storage.ErrNotSupported, storage.ErrRefused,
	} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}

// isBusy tells that another connection holds the lock.
func isBusy(err error) bool {
	var e *driversqlite.Error
	return errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_BUSY
}

// notADatabase tells a file that SQLite does not know as a database.
func notADatabase(err error) bool {
	var e *driversqlite.Error
	return errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_NOTADB
}
