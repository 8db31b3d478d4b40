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
	// The lock is not given to goose as its SessionLocker: goose looks for something to do, and
	// makes its table for that, before it asks for the lock.
	conn, err := db.Conn(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = conn.Close() }()
	if err := lockMigration(ctx, conn); err != nil {
		return 0, 0, err
	}
	defer unlockMigration(ctx, conn)
	if from, err = prepare(ctx, conn); err != nil {
		return 0, 0, err
	}
	p, err := goose.NewProvider(goose.DialectMSSQL, db, files, goose.WithTableName(versionTable),
		goose.WithLogger(goose.NopLogger()), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return 0, 0, err
	}
	if _, err := p.Up(ctx); err != nil {
		return 0, 0, err
	}
	return from, schemaVersion, nil
}

// migrationLock is an application lock of the session, so that one Migrate of a database runs
// at a time: migrations have transactions of their own.
const migrationLock = "queuebox:migrate"

// lockMigration waits for the turn, in short steps, since a waiter occupies a worker thread of
// the server.
func lockMigration(ctx context.Context, conn *sql.Conn) error {
	for {
		code, err := call(ctx, conn, "sys.sp_getapplock",
			sql.Named("Resource", migrationLock), sql.Named("LockMode", "Exclusive"),
			sql.Named("LockOwner", "Session"), sql.Named("LockTimeout", int32(lockWait.Milliseconds())))
		if err == nil && code < lockBusy {
			err = &lockError{procedure: "sp_getapplock", code: code}
		}
		if err != nil {
			discard(conn) // it may have the lock all the same
			return fmt.Errorf("wait for another migration: %w", err)
		}
		if code >= 0 {
			return nil
		}
	}
}

// unlockMigration gives the turn away. Where that fails the connection is closed, which does it
// too: in a pool it would keep the lock, since a session is reset when it is used again.
func unlockMigration(ctx context.Context, conn *sql.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout)
	defer cancel()
	code, err := call(ctx, conn, "sys.sp_releaseapplock", sql.Named("Resource", migrationLock), sql.Named("LockOwner", "Session"))
	if err != nil || code < 0 {
		discard(conn)
	}
}

// prepare refuses a newer schema and one of another program, makes ours where there is none, and
// tells the version.
func prepare(ctx context.Context, conn *sql.Conn) (version int64, err error) {
	var schema, ours, others int
	err = single(ctx, conn, `
		SELECT CASE WHEN SCHEMA_ID(N'queuebox') IS NULL THEN 0 ELSE 1 END AS present,
		    COALESCE(SUM(CASE WHEN o.name = N'goose_db_version' THEN 1 ELSE 0 END), 0) AS ours,
		    COALESCE(SUM(CASE WHEN o.name = N'goose_db_version' THEN 0 ELSE 1 END), 0) AS others
		FROM sys.objects AS o
		WHERE o.schema_id = SCHEMA_ID(N'queuebox') AND o.type IN ('U', 'V', 'P', 'FN', 'SN')`, &schema, &ours, &others)
	if err != nil {
		return 0, fmt.Errorf("look at the schema: %w", err)
	}
	switch {
	case schema == 0:
		// By itself: it has to be the first of its batch.
		if _, err := conn.ExecContext(ctx, "CREATE SCHEMA queuebox"); err != nil {
			return 0, fmt.Errorf("create schema: %w", err)
		}
	case ours > 0:
		if version, err = readVersion(ctx, conn); err != nil {
			return 0, fmt.Errorf("read version: %w", err)
		}
		if version > schemaVersion {
			return 0, rowlock.CheckSchema(version, schemaVersion)
		}
	case others > 0:
		return 0, fmt.Errorf("%w: the schema queuebox of the database belongs to another program", storage.ErrSchema)
	}
	return version, nil
}

// discard sees to it that the pool closes a connection.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}
