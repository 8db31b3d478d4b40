package postgres

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// schemaVersion is the only version that this build works with. D7.
const schemaVersion = 1

// versionTable is where goose keeps the versions.
const versionTable = "queuebox.goose_db_version"

// migrateLock serializes migrations of one database. The number means nothing.
const migrateLock = 7420742074207420

// partitionsAheadMigrate is how many hours of partitions a migration leaves behind
// it: a server whose role may not make tables lives on them until the next run.
const partitionsAheadMigrate = 24

// Migrate brings the schema up to date and tells the versions before and after. It
// also makes the partitions of the coming day. Safe to run beside servers and beside
// another Migrate.
func Migrate(ctx context.Context, c Config) (from, to int64, err error) {
	t, err := parseURL(c.URL)
	if err != nil {
		return 0, 0, err
	}
	from, to, err = migrate(ctx, t)
	if err != nil {
		return 0, 0, classify("migrate", err, false)
	}
	conn, err := pgx.ConnectConfig(ctx, t.connConfig())
	if err != nil {
		return 0, 0, classify("migrate: connect", err, false)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	log := loggerOf(c)
	if err := makePartitions(ctx, conn, partitionsAheadMigrate, log, func() { warnDenied(ctx, log) }); err != nil {
		return 0, 0, classify("migrate: make partitions", err, false)
	}
	return from, to, nil
}

func loggerOf(c Config) *slog.Logger {
	if c.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.Logger
}

func migrate(ctx context.Context, t target) (from, to int64, err error) {
	cfg := t.connConfig()
	// goose speaks database/sql; nothing else here does.
	db := stdlib.OpenDB(*cfg)
	defer func() { _ = db.Close() }()

	// The lock lives in a transaction of its own, so that it works behind a
	// transaction-mode pooler too, where a session lock could land anywhere.
	lock, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = lock.Rollback() }()
	if _, err := lock.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrateLock)); err != nil {
		return 0, 0, fmt.Errorf("wait for another migration: %w", err)
	}
	var exists bool
	if err := db.QueryRowContext(ctx, "SELECT to_regnamespace('queuebox') IS NOT NULL").Scan(&exists); err != nil {
		return 0, 0, err
	}
	if !exists {
		// Not IF NOT EXISTS: that asks for the right to create schemas even where there is
		// nothing to do.
		if _, err := db.ExecContext(ctx, "CREATE SCHEMA queuebox"); err != nil {
			return 0, 0, fmt.Errorf("create schema: %w", err)
		}
	}
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return 0, 0, err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName(versionTable), goose.WithLogger(goose.NopLogger()), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return 0, 0, err
	}
	from, err = p.GetDBVersion(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("read version: %w", err)
	}
	if _, err := p.Up(ctx); err != nil {
		return 0, 0, err
	}
	to, err = p.GetDBVersion(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("read version: %w", err)
	}
	return from, to, lock.Commit()
}
