package mssql

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/queuebox/queuebox/storage/rowlock"
)

// What sp_getapplock returns where it does not grant. 0 and above is granted, 1 after a wait.
const (
	lockBusy      = -1
	lockCancelled = -2
	lockVictim    = -3
)

// lockWait bounds a wait for an application lock. A waiter occupies a worker thread of the
// server, so waits are short and few.
const lockWait = time.Second

// lockError is a code of sp_getapplock or sp_releaseapplock. A victim of a deadlock still has
// its transaction, so the caller rolls back; -999 is a mistake of ours.
type lockError struct {
	procedure string
	code      int
}

func (e *lockError) Error() string {
	what := "not a call that can be"
	switch e.code {
	case lockCancelled:
		what = "cancelled"
	case lockVictim:
		what = "victim of a deadlock"
	}
	return fmt.Sprintf("%s: %s (code %d)", e.procedure, what, e.code)
}

// gates let one claim at a time of a queue wait for the lock of the queue, so that a server
// with many callers has one waiter in the database. A gate is left as soon as the lock is had.
type gates struct{ byQueue sync.Map } // int32 -> chan struct{}

func (g *gates) of(queueID int32) chan struct{} {
	gate, _ := g.byQueue.LoadOrStore(queueID, make(chan struct{}, 1))
	return gate.(chan struct{}) //nolint:forcetypeassert // Nothing else is stored.
}

// lock implements rowlock.Engine.ClaimLock: an application lock of the transaction, which goes
// with its end. Readers that skip locked rows see no order, so claims of a queue take turns.
func (g *gates) lock(ctx context.Context, tx rowlock.Transaction, queueID int32) error {
	gate := g.of(queueID)
	patience := time.NewTimer(lockWait)
	defer patience.Stop()
	select {
	case gate <- struct{}{}:
	default:
		select {
		case gate <- struct{}{}:
		case <-patience.C:
			return rowlock.ErrBusy
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer func() { <-gate }()
	code, err := call(ctx, tx, "sys.sp_getapplock",
		// Short, so that it is seen whole in sys.dm_tran_locks, which shows 32 characters, and
		// is never cut (at 255, silently). It is that of this database.
		sql.Named("Resource", "queuebox:claim:"+strconv.Itoa(int(queueID))),
		sql.Named("LockMode", "Exclusive"),
		sql.Named("LockOwner", "Transaction"),
		sql.Named("LockTimeout", int32(within(ctx, lockWait).Milliseconds())))
	switch {
	case err != nil:
		return fmt.Errorf("sp_getapplock: %w", err)
	case code >= 0:
		return nil
	case code == lockBusy:
		return rowlock.ErrBusy
	case code == lockCancelled && ctx.Err() != nil:
		return ctx.Err()
	}
	return &lockError{procedure: "sp_getapplock", code: code}
}

// within is a wait that the server ends before the ctx does, so that it says what happened
// instead of being cancelled.
func within(ctx context.Context, wait time.Duration) time.Duration {
	const slack = 200 * time.Millisecond
	if deadline, ok := ctx.Deadline(); ok {
		return max(0, min(wait, time.Until(deadline)-slack))
	}
	return wait
}
