// Package storagetest is the conformance suite: every backend runs it, on a
// clock that the tests set and once more on the real clock. The names of the
// tests hold the names of the rules of the contract.
//
// A backend gives a [Backend]; [Run] does the rest. What the suite must see or do
// outside the store (raw columns, row locks of another session) goes through the
// functions of [Instance], which use connections of their own.
package storagetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// Backend makes databases for the suite.
type Backend struct {
	// New makes an empty, migrated database for this test and opens a store on it; both
	// go away with t. With testClock the clock function in the statements is replaced
	// by one that Instance.SetClock sets.
	New func(t *testing.T, testClock bool) *Instance
}

// Instance is one database with a store on it.
type Instance struct {
	Store storage.Store
	// Another opens one more store on the same database, as another server would.
	Another func(t *testing.T) storage.Store
	// SetClock sets the storage clock for every store of the instance at once, also for
	// statements that are waiting for a lock. Nil on the real clock.
	SetClock func(t *testing.T, now time.Time)
	// Row returns every column of the live row of a message, read outside the store,
	// as text; nil where there is no live row.
	Row func(t *testing.T, ref storage.Ref) map[string]string
	// Dump returns the whole content of the database as text, in a stable order, but
	// for bookkeeping that no rule speaks of: equal before and after means that nothing
	// was written.
	Dump func(t *testing.T) string
	// Hold locks the live row of a message in another session until release is called
	// (which commits). Where the backend has no row locks it holds the write lock of the
	// database.
	Hold func(t *testing.T, ref storage.Ref, how HoldKind) (release func())
	// HoldClaim claims a ready message in another session, as Claim does, with this token and
	// lease end, in a transaction that is open until end commits it or rolls it back (O2).
	HoldClaim func(t *testing.T, ref storage.Ref, token storage.Token, leaseEnd time.Time) (end func(commit bool))
	// HoldIdempotencyKey opens a transaction in another session that has inserted the
	// key as an enqueue would (E6); end commits or rolls back. Nil where one writer at a
	// time makes the case impossible.
	HoldIdempotencyKey func(t *testing.T, queueID int32, key string) (end func(commit bool))
	// Waiting tells whether a session of the instance's stores waits for a lock right
	// now. It only makes the held-row tests quicker and surer; nil where the database
	// cannot tell, and the tests give a waiting call a moment instead.
	Waiting func(t *testing.T) bool
	// Mark marks a claimed message as completed, as the documented statement for the
	// transaction of a worker does (E12): state settling, token kept, lease end infinity,
	// outcome, action and settle time set. Nil where the layout has no mark.
	Mark func(t *testing.T, ref storage.Ref, settleTime time.Time)
	// Own gives sessions outside the store, as a worker has them that shares the database
	// (E12). Nil where TransactionSQL is not supported.
	Own *OwnSessions
	// Leased counts the live leases of a queue at an instant, read outside the store: rows
	// that are settling, or processing with a lease end ahead of the clock (L1). It is called
	// on the real clock alone.
	Leased func(ctx context.Context, queueID int32) (int, error)
	// Sever breaks every connection of the instance's stores to the database, as a
	// restart would. Nil where there is no connection.
	Sever func(t *testing.T)
}

// HoldKind says what the other session does to the row that it holds.
type HoldKind int

// The kinds.
const (
	// HoldLock only locks the row.
	HoldLock HoldKind = iota + 1
	// HoldUpdate really updates it, changing no value that a rule speaks of.
	HoldUpdate
	// HoldExtend makes the lease one hour longer, as a renewal does that has not
	// committed yet. Where the backend has no row locks it is the same in a transaction
	// that holds the write lock.
	HoldExtend
)

// OwnSessions are sessions outside the store.
type OwnSessions struct {
	// Levels are the isolation levels that the engine has, as Begin takes them.
	Levels []string
	// Begin opens a session and a transaction of a level in it, ready to write.
	Begin func(t require.TestingT, level string) OwnSession
	// Exec runs SQL of the test by itself, for example to make its table.
	Exec func(t require.TestingT, sql string)
	// Conflict tells an error that asks for the whole transaction to be run again.
	Conflict func(err error) bool
	// Refused tells an error that speaks of a value that the statement does not take.
	Refused func(err error) bool
}

// OwnSession is one transaction in a session of its own. It ends with Commit, Rollback or Kill.
type OwnSession interface {
	// Query runs a statement and returns its rows as text; null is empty.
	Query(sql string, args ...any) ([][]string, error)
	Commit() error
	Rollback() error
	// Kill breaks the session off, as the death of its process does.
	Kill()
}
