package mssql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/rowlock"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// schemaVersion is the only version that this build works with. D7.
const schemaVersion = 1

// versionTable is where goose keeps the versions.
const versionTable = "queuebox.goose_db_version"

// migrateSession is run at each start of a session of Migrate. Round trips are cheap there,
// and the statements of goose have no settings in front.
const migrateSession = "SET XACT_ABORT ON; SET LOCK_TIMEOUT 30000;"

// Migrate brings the schema of a database that is there up to date and tells the versions
// before and after. Each migration is one transaction, so one that broke off left nothing. Safe
// to run beside servers and beside another Migrate.
func Migrate(ctx context.Context, c Config) (from, to int64, err error) {
	t, err := parseURL(c.URL)
	if err != nil {
		return 0, 0, err
	}
	if from, to, err = migrate(ctx, t); err != nil {
		return 0, 0, explain("migrate", err)
	}
	return from, to, nil
}

func migrate(ctx context.Context, t target) (from, to int64, err error) {
	db := t.pool(migrateSession)
	defer func() { err = errors.Join(err, db.Close()) }()
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return 0, 0, err
	}
	turn := &migrateLock{}
	p, err := goose.NewProvider(goose.DialectMSSQL, db, files, goose.WithTableName(versionTable),
		goose.WithSessionLocker(turn), goose.WithLogger(goose.NopLogger()), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return 0, 0, err
	}
	if _, err := p.Up(ctx); err != nil {
		return 0, 0, err
	}
	return turn.from, schemaVersion, nil
}

// migrateLock lets one Migrate of a database run at a time. It is an application lock of the
// session, since migrations have transactions of their own.
type migrateLock struct {
	// from is the version that was found when it was our turn.
	from int64
}

var _ lock.SessionLocker = (*migrateLock)(nil)

// SessionLock waits for the turn, in short steps, since a waiter occupies a worker thread of
// the server. Then it looks at what is there, and makes the schema: goose wants its table in it.
func (l *migrateLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	for {
		code, err := call(ctx, conn, "sys.sp_getapplock",
			sql.Named("Resource", "queuebox:migrate"), sql.Named("LockMode", "Exclusive"),
			sql.Named("LockOwner", "Session"), sql.Named("LockTimeout", int32(lockWait.Milliseconds())))
		if err != nil || code < lockBusy {
			if err == nil {
				err = &lockError{procedure: "sp_getapplock", code: code}
			}
			discard(conn) // it may have the lock all the same
			return fmt.Errorf("wait for another migration: %w", err)
		}
		if code >= 0 {
			break
		}
	}
	if err := l.prepare(ctx, conn); err != nil {
		return errors.Join(err, l.SessionUnlock(context.WithoutCancel(ctx), conn))
	}
	return nil
}

// SessionUnlock gives the turn away. Where that fails the connection is closed, which does it
// too: in the pool it would keep the lock, since a session is reset when it is used again.
func (l *migrateLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	code, err := call(ctx, conn, "sys.sp_releaseapplock",
		sql.Named("Resource", "queuebox:migrate"), sql.Named("LockOwner", "Session"))
	if err != nil || code < 0 {
		discard(conn)
	}
	return nil
}

// prepare refuses a newer schema and one of another program, and makes ours where there is none.
func (l *migrateLock) prepare(ctx context.Context, conn *sql.Conn) error {
	var schema, ours, others int
	err := single(ctx, conn, `
		SELECT CASE WHEN SCHEMA_ID(N'queuebox') IS NULL THEN 0 ELSE 1 END AS present,
		    COALESCE(SUM(CASE WHEN o.name = N'goose_db_version' THEN 1 ELSE 0 END), 0) AS ours,
		    COALESCE(SUM(CASE WHEN o.name = N'goose_db_version' THEN 0 ELSE 1 END), 0) AS others
		FROM sys.objects AS o
		WHERE o.schema_id = SCHEMA_ID(N'queuebox') AND o.type IN ('U', 'V', 'P', 'FN', 'SN')`, &schema, &ours, &others)
	if err != nil {
		return fmt.Errorf("look at the schema: %w", err)
	}
	switch {
	case schema == 0:
		// By itself: it has to be the first of its batch.
		if _, err := conn.ExecContext(ctx, "CREATE SCHEMA queuebox"); err != nil {
			return fmt.Errorf("create schema: %w", err)
		}
	case ours > 0:
		if l.from, err = readVersion(ctx, conn); err != nil {
			return fmt.Errorf("read version: %w", err)
		}
		if l.from > schemaVersion {
			return rowlock.CheckSchema(l.from, schemaVersion)
		}
	case others > 0:
		return fmt.Errorf("%w: the schema queuebox of the database belongs to another program", storage.ErrSchema)
	}
	return nil
}

// discard sees to it that the pool closes a connection.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}
