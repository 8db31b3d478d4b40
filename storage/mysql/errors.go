package mysql

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"strings"

	driversql "github.com/go-sql-driver/mysql"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/rowlock"
)

// The numbers that mean something here; no other file knows one. The names are those of
// the manuals of MySQL and MariaDB. Where the two give a number another meaning, it is not
// used.
const (
	errDuplicateKey        = 1022 // ER_DUP_KEY
	errHostBlocked         = 1129 // ER_HOST_IS_BLOCKED
	errHostNotAllowed      = 1130 // ER_HOST_NOT_PRIVILEGED
	errRecordChanged       = 1020 // ER_CHECKREAD
	errDiskFull            = 1021 // ER_DISK_FULL
	errEngine              = 1030 // ER_GET_ERRNO, among others for a full disk
	errOutOfMemory         = 1037 // ER_OUTOFMEMORY
	errOutOfSortMemory     = 1038 // ER_OUT_OF_SORTMEMORY
	errTooManyConnections  = 1040 // ER_CON_COUNT_ERROR
	errOutOfResources      = 1041 // ER_OUT_OF_RESOURCES
	errDatabaseDenied      = 1044 // ER_DBACCESS_DENIED_ERROR
	errAccessDenied        = 1045 // ER_ACCESS_DENIED_ERROR
	errNotReady            = 1047 // ER_UNKNOWN_COM_ERROR, which a Galera node says that is not ready
	errUnknownDatabase     = 1049 // ER_BAD_DB_ERROR
	errServerShutdown      = 1053 // ER_SERVER_SHUTDOWN
	errUnknownColumn       = 1054 // ER_BAD_FIELD_ERROR
	errDuplicateEntry      = 1062 // ER_DUP_ENTRY
	errSyntax              = 1064 // ER_PARSE_ERROR
	errTableFull           = 1114 // ER_RECORD_FILE_FULL
	errTableDenied         = 1142 // ER_TABLEACCESS_DENIED_ERROR
	errColumnDenied        = 1143 // ER_COLUMNACCESS_DENIED_ERROR
	errNoSuchTable         = 1146 // ER_NO_SUCH_TABLE
	errAborting            = 1152 // ER_ABORTING_CONNECTION
	errNetRead             = 1158 // ER_NET_READ_ERROR
	errNetReadInterrupted  = 1159 // ER_NET_READ_INTERRUPTED
	errNetWrite            = 1160 // ER_NET_ERROR_ON_WRITE
	errNetWriteInterrupted = 1161 // ER_NET_WRITE_INTERRUPTED
	errDuringCommit        = 1180 // ER_ERROR_DURING_COMMIT
	errNewAborting         = 1184 // ER_NEW_ABORTING_CONNECTION
	errUserConnections     = 1203 // ER_TOO_MANY_USER_CONNECTIONS
	errLockWaitTimeout     = 1205 // ER_LOCK_WAIT_TIMEOUT
	errLockTableFull       = 1206 // ER_LOCK_TABLE_FULL
	errDeadlock            = 1213 // ER_LOCK_DEADLOCK
	errUserLimit           = 1226 // ER_USER_LIMIT_REACHED
	errNeedPrivilege       = 1227 // ER_SPECIFIC_ACCESS_DENIED_ERROR
	errAuthProtocol        = 1251 // ER_NOT_SUPPORTED_AUTH_MODE
	errReadOnlyOption      = 1290 // ER_OPTION_PREVENTS_STATEMENT
	errInterrupted         = 1317 // ER_QUERY_INTERRUPTED
	errRoutineDenied       = 1370 // ER_PROCACCESS_DENIED_ERROR
	errDefinitionChanged   = 1412 // ER_TABLE_DEF_CHANGED
	errDuplicateEntryKey   = 1586 // ER_DUP_ENTRY_WITH_KEY_NAME
	errReprepare           = 1615 // ER_NEED_REPREPARE
	errNoPassword          = 1698 // ER_ACCESS_DENIED_NO_PASSWORD_ERROR
	errReadOnlyTransaction = 1792 // ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION
	errMustChangePassword  = 1820 // ER_MUST_CHANGE_PASSWORD
	errReadOnlyMode        = 1836 // ER_READ_ONLY_MODE
	errPasswordExpired     = 1862 // ER_MUST_CHANGE_PASSWORD_LOGIN
	errConnectionKilled    = 1927 // MariaDB: ER_CONNECTION_KILLED
	errStatementTimeout    = 1969 // MariaDB: ER_STATEMENT_TIMEOUT
	errExecutionTimeout    = 3024 // MySQL: ER_QUERY_TIMEOUT
	errHookFailed          = 3100 // MySQL: ER_RUN_HOOK_ERROR, of group replication
	errHookRolledBack      = 3101 // MySQL: ER_TRANSACTION_ROLLBACK_DURING_COMMIT, of group replication
	errAccountLocked       = 3118 // MySQL: ER_ACCOUNT_HAS_BEEN_LOCKED
	errSessionKilled       = 3169 // MySQL: ER_SESSION_WAS_KILLED
	errLockNowait          = 3572 // MySQL: ER_LOCK_NOWAIT; MariaDB says 1205
	errIdleClosed          = 4031 // MySQL: ER_CLIENT_INTERACTION_TIMEOUT
	errAccountBlocked      = 4151 // MariaDB: ER_ACCOUNT_HAS_BEEN_LOCKED
)

// number is that of an error which the database sent; 0 where it sent none.
func number(err error) int {
	if e, ok := errors.AsType[*driversql.MySQLError](err); ok {
		return int(e.Number)
	}
	return 0
}

// meaning implements rowlock.Errors.
type meaning struct{}

// RolledBack implements rowlock.Errors. It names what proves that the transaction left
// nothing: an answer to COMMIT that the transaction was a victim (in a cluster that is told
// at the commit), or waited in vain for the lock of a backup, or met a server that takes no
// writes; that there was no room for what a statement writes; and a COMMIT that was never
// sent. Every other error may come after the commit.
func (meaning) RolledBack(err error) bool {
	switch number(err) {
	case errDeadlock, errRecordChanged, errLockWaitTimeout, errHookRolledBack, errReadOnlyOption, errReadOnlyMode, errReadOnlyTransaction,
		errDefinitionChanged, errReprepare, errDiskFull, errTableFull, errLockTableFull:
		return true
	case 0:
		return errors.Is(err, driver.ErrBadConn)
	}
	return false
}

// Again implements rowlock.Errors. MariaDB rolls a transaction back that would lock a row which
// has changed since the snapshot (innodb_snapshot_isolation). At READ COMMITTED that was not
// met, and it would be no more than a deadlock.
func (meaning) Again(err error) bool {
	switch number(err) {
	case errDeadlock, errRecordChanged, errHookRolledBack, errDefinitionChanged, errReprepare:
		return true
	}
	return false
}

// Duplicate implements rowlock.Errors.
func (meaning) Duplicate(err error) bool {
	switch number(err) {
	case errDuplicateEntry, errDuplicateEntryKey, errDuplicateKey:
		return true
	}
	return false
}

// LockTimeout implements rowlock.Errors.
func (meaning) LockTimeout(err error) bool {
	n := number(err)
	return n == errLockWaitTimeout || n == errLockNowait
}

// Schema implements rowlock.Errors.
func (meaning) Schema(err error) bool {
	switch number(err) {
	case errNoSuchTable, errUnknownColumn, errUnknownDatabase:
		return true
	}
	return false
}

// Broken implements rowlock.Errors: the connection is gone, and with it the transaction.
func (meaning) Broken(err error) bool {
	switch number(err) {
	case errServerShutdown, errConnectionKilled, errSessionKilled, errIdleClosed, errAborting, errNewAborting,
		errNetRead, errNetReadInterrupted, errNetWrite, errNetWriteInterrupted:
		return true
	case 0:
		return errors.Is(err, driver.ErrBadConn) || errors.Is(err, driversql.ErrInvalidConn) ||
			errors.Is(err, driversql.ErrMalformPkt) || errors.Is(err, driversql.ErrPktSync) || errors.Is(err, driversql.ErrPktSyncMul)
	}
	return false
}

// Unavailable implements rowlock.Errors.
func (m meaning) Unavailable(err error) bool {
	switch number(err) {
	case errReadOnlyOption, errReadOnlyMode, errReadOnlyTransaction, // a failover, mostly
		errDiskFull, errTableFull, errEngine, errOutOfMemory, errOutOfSortMemory, errOutOfResources, errLockTableFull,
		errTooManyConnections, errUserConnections, errUserLimit, errHostBlocked, errHostNotAllowed,
		errAccessDenied, errDatabaseDenied, errNoPassword, errAuthProtocol, errMustChangePassword, errPasswordExpired,
		errAccountLocked, errAccountBlocked,
		errInterrupted, errStatementTimeout, errExecutionTimeout,
		errNotReady, errDuringCommit, errHookFailed:
		return true
	}
	return m.Broken(err)
}

// Plain implements rowlock.Errors.
func (meaning) Plain(err error) error {
	if e, ok := errors.AsType[*driversql.MySQLError](err); ok {
		return &databaseError{answer: e}
	}
	if errors.Is(err, driversql.ErrPktTooLarge) {
		return fmt.Errorf("%w: the statement is larger than max_allowed_packet of the database", driversql.ErrPktTooLarge)
	}
	return connectCause(err)
}

// databaseError shows what an error of the database says, without what is no name of ours:
// values of rows, user and host.
type databaseError struct{ answer *driversql.MySQLError }

func (e *databaseError) Unwrap() error { return e.answer }

func (e *databaseError) Error() string {
	text := fmt.Sprintf("%s (error %d)", harmless(int(e.answer.Number), e.answer.Message), e.answer.Number)
	if advice := e.Advice(); advice != "" {
		text += "; " + advice
	}
	return text
}

// Advice is what an operator can do about it, empty where nothing is known. It is part of the
// text already.
func (e *databaseError) Advice() string {
	switch int(e.answer.Number) {
	case errDatabaseDenied:
		return `check the name of the database in the URL, and grant this role its rights: see "Rights" in docs/operations.md`
	case errTableDenied, errColumnDenied, errRoutineDenied, errNeedPrivilege:
		return `grant this role its rights: see "Rights" in docs/operations.md`
	case errAccessDenied, errNoPassword:
		return "check the user and the password in the URL, from which hosts that user may log in, and whether it has to use TLS"
	case errHostNotAllowed, errHostBlocked:
		return "the database takes no connection from this host: check the host part of the user in the database"
	case errTooManyConnections, errUserConnections, errUserLimit:
		return "lower --max-conns of the servers, or let the database take more connections"
	case errMustChangePassword, errPasswordExpired:
		return "give the user a new password in the database, and write it into the URL"
	case errAccountLocked, errAccountBlocked:
		return "unlock the user in the database, or name another one in the URL"
	}
	return ""
}

// quoted is what a message of the database has between its first and its last quote: values
// are written there as they are, quotes and all.
var quoted = regexp.MustCompile(`(?s)'.*'`)

func harmless(number int, message string) string {
	switch number {
	case errNoSuchTable, errUnknownColumn:
		return message // the quotes hold a name of ours
	case errSyntax:
		// The rest of the statement follows, up to a first value.
		if before, rest, ok := strings.Cut(message, "near '"); ok {
			rest, _, _ = strings.Cut(rest, "'")
			return before + "near '" + strings.TrimSuffix(rest, "_binary") + "…"
		}
	}
	return quoted.ReplaceAllStringFunc(message, func(in string) string {
		if in == "'max_allowed_packet'" {
			return in
		}
		return "'…'"
	})
}

// connectCause says why the database did not answer. It is told by the types of the errors,
// so that nothing of their texts, which name hosts and users, comes along.
func connectCause(err error) error {
	if errors.Is(err, driversql.ErrNoTLS) {
		return &rowlock.AdvisedError{Err: errors.New("connection not made: the database does not encrypt connections"), Text: "set TLS up in the database, or leave tls out of the URL"}
	}
	if errors.Is(err, driversql.ErrInvalidConn) || errors.Is(err, driversql.ErrMalformPkt) {
		return fmt.Errorf("connection broken, or what answers is neither MySQL nor MariaDB: %w", err)
	}
	return rowlock.ConnectCause(err, "check ca and server-name of the URL, or the host in it: see docs/operations.md")
}

// explain puts the sentinel of package storage in front of an error of Open and Migrate,
// which run outside a store.
func explain(what string, err error) error {
	m := meaning{}
	switch {
	case errors.Is(err, storage.ErrSchema), errors.Is(err, storage.ErrUnavailable), errors.Is(err, storage.ErrUnsafeDurability):
		return fmt.Errorf("mysql: %s: %w", what, err)
	case number(err) == errUnknownDatabase:
		return fmt.Errorf("mysql: %s: %w: the database of the URL does not exist", what, storage.ErrNoSchema)
	case m.Schema(err):
		return fmt.Errorf("mysql: %s: %w: %w", what, storage.ErrSchema, m.Plain(err))
	case number(err) == 0, m.LockTimeout(err), m.Again(err), m.Unavailable(err):
		return fmt.Errorf("mysql: %s: %w: %w", what, storage.ErrUnavailable, m.Plain(err))
	}
	return fmt.Errorf("mysql: %s: %w", what, m.Plain(err))
}
