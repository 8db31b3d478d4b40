package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/queuebox/queuebox/storage"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Two processes that start on one new file both migrate it. Each step is a transaction
// that holds the write lock, so one of them loses a step and looks again.
const (
	migrateTries = 20
	migratePause = 100 * time.Millisecond
)

// MigrateResult tells the schema versions before and after.
type MigrateResult struct {
	From int64
	To   int64
}

// Migrate brings the file to the schema of this build, making it where it is missing.
// It refuses a newer schema, and a database that is not QueueBox's (storage.ErrSchema).
func Migrate(ctx context.Context, cfg Config) (MigrateResult, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return MigrateResult{}, err
	}
	db, err := sql.Open("sqlite", cfg.dsn(false)+"&_txlock=immediate")
	if err != nil {
		return MigrateResult{}, fmt.Errorf("migrate %s: %w", cfg.Path, classify(err))
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	// The first connection to a new file turns it to WAL, for which SQLite does not wait
	// while another process does the same.
	err = refuseForeign(ctx, db)
	for try := 1; isBusy(err) && try < migrateTries && ctx.Err() == nil; try++ {
		time.Sleep(migratePause)
		err = refuseForeign(ctx, db)
	}
	if err != nil {
		return MigrateResult{}, fmt.Errorf("migrate %s: %w", cfg.Path, err)
	}
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return MigrateResult{}, fmt.Errorf("read migrations: %w", err)
	}
	for try := 1; ; try++ {
		res, err := migrateOnce(ctx, db, files)
		if err == nil || errors.Is(err, storage.ErrSchema) || try == migrateTries || ctx.Err() != nil {
			if err != nil {
				err = fmt.Errorf("migrate %s: %w", cfg.Path, classify(err))
			}
			return res, err
		}
		select {
		case <-time.After(migratePause):
		case <-ctx.Done():
		}
	}
}

func migrateOnce(ctx context.Context, db *sql.DB, files fs.FS) (MigrateResult, error) {
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files,
		goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return MigrateResult{}, fmt.Errorf("read migrations: %w", err)
	}
	have, want, err := p.GetVersions(ctx)
	if err != nil {
		return MigrateResult{}, err
	}
	res := MigrateResult{From: have, To: have}
	if have > want {
		return res, checkSchema(have, want)
	}
	if have == want {
		return res, nil
	}
	if _, err := p.Up(ctx); err != nil {
		return res, err
	}
	res.To = want
	return res, nil
}

// refuseForeign looks at what the file holds before anything is written to it.
func refuseForeign(ctx context.Context, db *sql.DB) error {
	var foreign int
	err := db.QueryRowContext(ctx, `
		SELECT count(*) FROM sqlite_schema
		WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\' AND name <> 'goose_db_version'
		  AND NOT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'position_sequence')`).Scan(&foreign)
	if notADatabase(err) {
		return fmt.Errorf("%w: the file is not a SQLite database: %w", storage.ErrSchema, err)
	}
	if err != nil {
		return classify(err)
	}
	if foreign > 0 {
		return fmt.Errorf("%w: the file is the database of another program", storage.ErrSchema)
	}
	return nil
}

// checkSchema refuses every version but that of this build. D7.
func checkSchema(have, want int64) error {
	if have == want {
		return nil
	}
	return fmt.Errorf("%w: the database has version %d, this build works with %d", storage.ErrSchema, have, want)
}

// latestSchema is the version that the embedded migrations lead to.
func latestSchema() (int64, error) {
	entries, err := migrationFiles.ReadDir("migrations")
	if err != nil {
		return 0, fmt.Errorf("read migrations: %w", err)
	}
	var latest int64
	for _, e := range entries {
		v, err := goose.NumericComponent(e.Name())
		if err != nil {
			return 0, fmt.Errorf("read migration %s: %w", e.Name(), err)
		}
		latest = max(latest, v)
	}
	return latest, nil
}
