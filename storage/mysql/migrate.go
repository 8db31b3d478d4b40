package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/pressly/goose/v3"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/rowlock"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// schemaVersion is the only version that this build works with. D7.
const schemaVersion = 1

// versionTable is where goose keeps the versions. Its name tells a database of ours from
// that of another program.
const versionTable = "queuebox_version"

// Migrate brings the schema up to date and tells the versions before and after. It makes
// the database of the URL where it is missing and the role may. Safe to run beside servers
// and beside another Migrate. A migration that broke off in its middle is run again, since
// neither MySQL nor MariaDB takes a change of a table back.
func Migrate(ctx context.Context, c Config) (from, to int64, err error) {
	t, err := parseURL(c.URL)
	if err != nil {
		return 0, 0, err
	}
	if from, to, err = migrate(ctx, t, c.ownClock()); err != nil {
		return 0, 0, explain("migrate", err)
	}
	return from, to, nil
}

func migrate(ctx context.Context, t target, clock string) (from, to int64, err error) {
	if err := createDatabase(ctx, t); err != nil {
		return 0, 0, err
	}
	db, err := t.pool(0)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = db.Close() }()
	// The lock is that of a connection, so it goes away with its process.
	lock, err := db.Conn(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = lock.Close() }()
	if err := lockMigration(ctx, lock, t.config.DBName); err != nil {
		return 0, 0, err
	}
	if err := refuseForeign(ctx, lock); err != nil {
		return 0, 0, err
	}
	if err := countFromZero(ctx, lock); err != nil {
		return 0, 0, err
	}
	found, err := lookAt(ctx, lock)
	if err != nil {
		return 0, 0, err
	}
	if err := found.floor(); err != nil {
		return 0, 0, err
	}
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return 0, 0, err
	}
	p, err := goose.NewProvider(goose.DialectMySQL, db, layout{files, found.collation(), clock},
		goose.WithTableName(versionTable), goose.WithLogger(goose.NopLogger()), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return 0, 0, err
	}
	if from, err = p.GetDBVersion(ctx); err != nil {
		// goose tries its first row again and then speaks of a table without rows; what kept
		// the row away is the cause.
		if cause := countFromZero(ctx, lock); cause != nil {
			err = cause
		}
		return 0, 0, fmt.Errorf("read version: %w", err)
	}
	if from > schemaVersion {
		return 0, 0, rowlock.CheckSchema(from, schemaVersion)
	}
	if _, err := p.Up(ctx); err != nil {
		return 0, 0, err
	}
	if to, err = p.GetDBVersion(ctx); err != nil {
		return 0, 0, fmt.Errorf("read version: %w", err)
	}
	return from, to, nil
}

// createDatabase makes the database of the URL. It asks first whether it is there, since
// CREATE DATABASE IF NOT EXISTS asks for the right to make one even where there is nothing
// to do.
func createDatabase(ctx context.Context, t target) error {
	db, err := t.pool(0)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	err = db.PingContext(ctx)
	if number(err) != errUnknownDatabase {
		return err
	}
	without := t
	without.config = t.config.Clone()
	without.config.DBName = ""
	server, err := without.pool(0)
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	if _, err := server.ExecContext(ctx, "CREATE DATABASE IF NOT EXISTS `"+t.config.DBName+"` DEFAULT CHARACTER SET utf8mb4"); err != nil {
		return fmt.Errorf("create the database of the URL: %w", err)
	}
	return nil
}

// lockMigration waits for its turn. The name of a lock is that of the whole server and has
// at most 64 characters.
func lockMigration(ctx context.Context, conn *sql.Conn, database string) error {
	sum := sha256.Sum256([]byte(database))
	name := "queuebox-migrate-" + hex.EncodeToString(sum[:16])
	// The connection is idle while the tables are made.
	if _, err := conn.ExecContext(ctx, "SET SESSION wait_timeout = 28800"); err != nil {
		return err
	}
	for {
		var got sql.NullInt64
		if err := single(ctx, conn, "SELECT GET_LOCK(?, 2)", []any{name}, &got); err != nil {
			return fmt.Errorf("wait for another migration: %w", err)
		}
		if got.Int64 == 1 {
			return nil
		}
	}
}

// refuseForeign looks at what the database holds before anything is written to it.
func refuseForeign(ctx context.Context, conn *sql.Conn) error {
	var tables, ours int
	err := single(ctx, conn, `SELECT COUNT(*), COALESCE(SUM(table_name = '`+versionTable+`'), 0)
		FROM information_schema.tables WHERE table_schema = DATABASE()`, nil, &tables, &ours)
	if err != nil {
		return err
	}
	if tables > 0 && ours == 0 {
		return &rowlock.AdvisedError{
			Err:  fmt.Errorf("%w: the database of the URL has tables of another program", storage.ErrSchema),
			Text: "QueueBox wants a database of its own: name one in the URL that is empty, or that is not there yet",
		}
	}
	return nil
}

// countFromZero writes the first version, 0, where the table of versions is there without a
// row: goose makes the table and then writes it, and a migration that was killed between the
// two would leave a database that goose refuses for ever. It runs under the lock.
func countFromZero(ctx context.Context, conn *sql.Conn) error {
	rows := 0
	err := single(ctx, conn, "SELECT COUNT(*) FROM "+versionTable, nil, &rows)
	if number(err) == errNoSuchTable {
		return nil
	}
	if err != nil || rows > 0 {
		return err
	}
	_, err = conn.ExecContext(ctx, "INSERT INTO "+versionTable+" (version_id, is_applied) VALUES (0, TRUE)")
	return err
}

// layout gives the migrations with the collation of this database, and the clock of the
// procedures, in them.
type layout struct {
	fs.FS
	collation, clock string
}

// Open implements fs.FS.
func (l layout) Open(name string) (fs.File, error) {
	f, err := l.FS.Open(name)
	if err != nil || !strings.HasSuffix(name, ".sql") {
		return f, err
	}
	raw, err := fs.ReadFile(l.FS, name)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	text := strings.NewReplacer("{{bytes}}", l.collation, "{{utc}}", l.clock).Replace(string(raw))
	return &migration{File: f, text: strings.NewReader(text)}, nil
}

type migration struct {
	fs.File
	text *strings.Reader
}

// Read implements fs.File.
func (m *migration) Read(p []byte) (int, error) { return m.text.Read(p) }
