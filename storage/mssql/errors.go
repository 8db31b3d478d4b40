package mssql

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"

	mssqldb "github.com/microsoft/go-mssqldb"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/rowlock"
)

// The numbers that mean something here; no other file knows one. The names are ours: the
// manual of SQL Server ("Database Engine events and errors") has texts alone.
const (
	// errNone is what the driver says itself, where it knows that the server has ended the
	// transaction, or where the server said that something failed and not what.
	errNone = 0

	errDeadlock         = 1205
	errLockTimeout      = 1222
	errDuplicateIndex   = 2601
	errDuplicateKey     = 2627
	errSnapshotConflict = 3960
	errDependency       = 41301
	errUpdateConflict   = 41302
	errRepeatableRead   = 41305
	errSerializable     = 41325
	errDependencies     = 41839
	errMoved            = 601 // a read past the locks of others, whose rows have moved under it

	errNoTransaction     = 3902 // COMMIT without BEGIN
	errNoRollback        = 3903 // ROLLBACK without BEGIN
	errUncommittable     = 3930
	errUncommittableLeft = 3998

	errNoColumn    = 207
	errNoTable     = 208
	errNoProcedure = 2812

	errDenied         = 229 // on an object
	errDeniedColumn   = 230
	errDeniedDatabase = 262
	errNoAccess       = 916

	errNoDatabase      = 4060 // or the login may not open it
	errLoginFailed     = 18456
	errLoginUntrusted  = 18452
	errLoginLocked     = 18486
	errPasswordExpired = 18487
	errPasswordChange  = 18488
	errNoSuchLogin     = 40532 // Azure
	errFirewall        = 40615 // Azure

	errReadOnly         = 3906
	errEmergency        = 3908
	errSingleUser       = 924
	errDatabaseOffline  = 942
	errDatabaseClosed   = 945
	errTransition       = 952
	errSecondary        = 976
	errSecondaryIntent  = 978
	errSecondaryRole    = 979
	errReplicaRole      = 983
	errNoSpaceOnDisk    = 1101
	errNoSpace          = 1105
	errLogFull          = 9002
	errNoLocks          = 1204
	errNoMemory         = 701
	errNoBuffers        = 802
	errMemoryWait       = 8645
	errMemoryLow        = 8651
	errLoginTimeout     = 17197
	errPaused           = 17142
	errQuota            = 40544 // Azure, and so are those that follow
	errLongTransaction  = 40549
	errManyLocks        = 40550
	errMuchTempdb       = 40551
	errMuchLog          = 40552
	errMuchMemory       = 40553
	errResourceLimit    = 10928
	errResourceMinimum  = 10929
	errManyRequests     = 10936
	errServiceError     = 40197
	errServiceBusy      = 40501
	errNotAvailable     = 40613
	errNotEnough        = 49918
	errManyCreates      = 49919
	errManyOperations   = 49920
	errElasticPoolQuota = 1132

	// Numbers of the network that some gateways put into an error of the database.
	errInstance      = 20
	errPipeBroken    = 64
	errSemaphore     = 121
	errNoProcess     = 233
	errAborted       = 10053
	errReset         = 10054
	errNetTimeout    = 10060
	errShutdown      = 6005
	errKilledSession = 596
)

// number is that of an error which the database sent, -1 where it sent none.
func number(err error) int {
	if e, ok := errors.AsType[mssqldb.Error](err); ok {
		return int(e.Number)
	}
	return -1
}

// undone is an error of a transaction that was never asked to commit.
type undone struct{ err error }

func (u *undone) Error() string { return u.err.Error() }
func (u *undone) Unwrap() error { return u.err }

// meaning implements rowlock.Errors.
type meaning struct{}

var _ rowlock.Errors = meaning{}

// RolledBack implements rowlock.Errors. It names what proves that a commit left nothing: it
// was never sent, the transaction had ended before, or it was a victim. Everything else may
// come after the commit, as far as anybody knows.
func (meaning) RolledBack(err error) bool {
	if _, ok := errors.AsType[*undone](err); ok {
		return true
	}
	switch number(err) {
	case errDeadlock, errLockTimeout, errSnapshotConflict, errDependency, errUpdateConflict, errRepeatableRead,
		errSerializable, errDependencies, errNoTransaction, errUncommittable, errUncommittableLeft, errReadOnly:
		return true
	}
	return false
}

// Again implements rowlock.Errors.
func (meaning) Again(err error) bool {
	if e, ok := errors.AsType[*lockError](err); ok {
		return e.code == lockVictim
	}
	switch number(err) {
	case errDeadlock, errSnapshotConflict, errDependency, errUpdateConflict, errRepeatableRead, errSerializable, errDependencies,
		errMoved:
		return true
	}
	return false
}

// Duplicate implements rowlock.Errors.
func (meaning) Duplicate(err error) bool {
	n := number(err)
	return n == errDuplicateIndex || n == errDuplicateKey
}

// LockTimeout implements rowlock.Errors.
func (meaning) LockTimeout(err error) bool {
	return number(err) == errLockTimeout || errors.Is(err, rowlock.ErrBusy)
}

// Schema implements rowlock.Errors.
func (meaning) Schema(err error) bool {
	n := number(err)
	return n == errNoTable || n == errNoColumn
}

// Broken implements rowlock.Errors: the stream of the driver is out of step, the server ended
// the session, or a gateway says so by a number.
func (meaning) Broken(err error) bool {
	if _, ok := errors.AsType[mssqldb.StreamError](err); ok {
		return true
	}
	if _, ok := errors.AsType[mssqldb.ServerError](err); ok {
		return true
	}
	switch number(err) {
	case errInstance, errPipeBroken, errSemaphore, errNoProcess, errAborted, errReset, errNetTimeout,
		errShutdown, errKilledSession, errServiceError:
		return true
	}
	return errors.Is(err, driver.ErrBadConn)
}

// Unavailable implements rowlock.Errors.
func (m meaning) Unavailable(err error) bool {
	if e, ok := errors.AsType[*lockError](err); ok {
		return e.code == lockCancelled
	}
	switch number(err) {
	case errNone, errNoTransaction, errNoRollback, errUncommittable, errUncommittableLeft,
		errNoDatabase, errNoAccess, errLoginFailed, errLoginUntrusted, errLoginLocked, errPasswordExpired, errPasswordChange,
		errNoSuchLogin, errFirewall, errLoginTimeout, errPaused,
		errReadOnly, errEmergency, errSingleUser, errDatabaseOffline, errDatabaseClosed, errTransition,
		errSecondary, errSecondaryIntent, errSecondaryRole, errReplicaRole,
		errNoSpaceOnDisk, errNoSpace, errLogFull, errNoLocks, errNoMemory, errNoBuffers, errMemoryWait, errMemoryLow,
		errQuota, errElasticPoolQuota, errLongTransaction, errManyLocks, errMuchTempdb, errMuchLog, errMuchMemory,
		errResourceLimit, errResourceMinimum, errManyRequests, errServiceBusy, errNotAvailable,
		errNotEnough, errManyCreates, errManyOperations:
		return true
	}
	return m.Broken(err)
}

// Plain implements rowlock.Errors.
func (meaning) Plain(err error) error {
	if _, ok := errors.AsType[*lockError](err); ok {
		return err
	}
	if e, ok := errors.AsType[mssqldb.Error](err); ok {
		return &databaseError{answer: e}
	}
	return rowlock.ConnectCause(err, "check certificate and hostnameincertificate of the URL, or the host in it: see docs/operations.md")
}

// databaseError shows what an error of the database says, without values of rows, logins and
// names of databases.
type databaseError struct{ answer mssqldb.Error }

func (e *databaseError) Unwrap() error { return e.answer }

func (e *databaseError) Error() string {
	text := fmt.Sprintf("%s (error %d, state %d)", harmless(e.answer), e.answer.Number, e.answer.State)
	if advice := e.Advice(); advice != "" {
		text += "; " + advice
	}
	return text
}

// Advice is what an operator can do about it, empty where nothing is known. It is part of the
// text already.
func (e *databaseError) Advice() string {
	switch e.answer.Number {
	case errDenied, errDeniedColumn, errDeniedDatabase:
		return `grant this login its rights: see "Rights" in docs/operations.md`
	case errLoginFailed, errLoginUntrusted, errNoSuchLogin:
		return "check the login and the password in the URL; the log of the database tells more"
	case errNoAccess:
		return "make a user for this login in the database of the URL: see \"Rights\" in docs/engines.md"
	case errLoginLocked, errPasswordExpired, errPasswordChange:
		return "unlock the login in the database, or give it a new password and write that into the URL"
	case errFirewall:
		return "let the address of this host through the firewall of the database"
	}
	return ""
}

var (
	// A text ends at its last quote: what is in it may have quotes of its own.
	singleQuoted = regexp.MustCompile(`(?s)'.*'`)
	doubleQuoted = regexp.MustCompile(`(?s)".*"`)
	// bracketed is how the value of a key is told: The duplicate key value is (1, 0x41).
	bracketed = regexp.MustCompile(`(?s)\(.*\)`)
)

func harmless(e mssqldb.Error) string {
	switch e.Number {
	case errNoTable, errNoColumn, errDenied, errDeniedColumn, errNoProcedure, errDeadlock, errLockTimeout:
		return e.Message // names of ours, and numbers of processes
	}
	text := singleQuoted.ReplaceAllString(e.Message, "'…'")
	text = doubleQuoted.ReplaceAllString(text, `"…"`)
	return bracketed.ReplaceAllString(text, "(…)")
}

// explain puts the sentinel of package storage in front of an error of Open and Migrate,
// which run outside a store.
func explain(what string, err error) error {
	m := meaning{}
	n := number(err)
	switch {
	case errors.Is(err, storage.ErrSchema), errors.Is(err, storage.ErrUnavailable), errors.Is(err, storage.ErrUnsafeDurability):
		return fmt.Errorf("mssql: %s: %w", what, err)
	case n == errNoDatabase:
		return fmt.Errorf("mssql: %s: %w: the database of the URL does not exist, or the login may not open it; "+
			"make it first (CREATE DATABASE), QueueBox makes what is in it", what, storage.ErrUnavailable)
	case n == -1, m.LockTimeout(err), m.Again(err), m.Unavailable(err):
		return fmt.Errorf("mssql: %s: %w: %w", what, storage.ErrUnavailable, m.Plain(err))
	case m.Schema(err):
		return fmt.Errorf("mssql: %s: %w: %w", what, storage.ErrSchema, m.Plain(err))
	}
	return fmt.Errorf("mssql: %s: %w", what, m.Plain(err))
}
