package sqltx

import (
	"errors"
	"reflect"
	"slices"
)

// sqlState is what the errors of pgx and lib/pq have.
func sqlState(err error) string {
	type stated interface {
		error
		SQLState() string
	}
	if e, ok := errors.AsType[stated](err); ok {
		return e.SQLState()
	}
	return ""
}

// sqliteCode is what the errors of modernc.org/sqlite have; the low byte is the code.
func sqliteCode(err error) int {
	type coded interface {
		error
		Code() int
	}
	if e, ok := errors.AsType[coded](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

// serverNumber is what the errors of go-mssqldb have.
func serverNumber(err error) int32 {
	type numbered interface {
		error
		SQLErrorNumber() int32
	}
	if e, ok := errors.AsType[numbered](err); ok {
		return e.SQLErrorNumber()
	}
	return 0
}

// mysqlNumber is what the errors of go-sql-driver/mysql have: fields and no methods, so they are
// told by their shape.
func mysqlNumber(err error) uint64 {
	for ; err != nil; err = errors.Unwrap(err) {
		v := reflect.ValueOf(err)
		if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
			continue
		}
		number, state := v.Elem().FieldByName("Number"), v.Elem().FieldByName("SQLState")
		if number.IsValid() && number.CanUint() && state.IsValid() && state.Kind() == reflect.Array {
			return number.Uint()
		}
	}
	return 0
}

const (
	sqliteBusy   = 5
	sqliteLocked = 6

	// A deadlock, a lock that was not had in time, and a row that has changed since the snapshot of
	// the transaction.
	mysqlDeadlock    = 1213
	mysqlLockTimeout = 1205
	mysqlChanged     = 1020

	// The same on SQL Server, and a COMMIT that found the transaction rolled back.
	serverDeadlock    = 1205
	serverLockTimeout = 1222
	serverChanged     = 3960
	serverNone        = 3902
)

// Again implements owntx.DB.
func (d *database) Again(err error) bool {
	switch sqlState(err) {
	case "40001", "40P01":
		return true
	}
	c := sqliteCode(err)
	return c == sqliteBusy || c == sqliteLocked ||
		slices.Contains([]uint64{mysqlDeadlock, mysqlLockTimeout, mysqlChanged}, mysqlNumber(err)) ||
		slices.Contains([]int32{serverDeadlock, serverLockTimeout, serverChanged}, serverNumber(err))
}

// RolledBack: an answer of PostgreSQL proves it, unless it speaks of the connection or of a
// shutdown, which can come after the commit. Of the others only those answers prove it that are
// known to; to run a transaction again that was committed does no harm.
func (d *database) RolledBack(err error) bool {
	switch state := sqlState(err); state {
	case "":
		return d.Again(err) || serverNumber(err) == serverNone
	case "40003", "57P01", "57P02", "57P03":
		return false
	default:
		return len(state) < 2 || state[:2] != "08"
	}
}
