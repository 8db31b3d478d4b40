package blackbox

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"net/url"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx", to look at the database from outside
	_ "modernc.org/sqlite"             // the driver "sqlite", likewise

	"github.com/queuebox/queuebox/internal/testdb"
)

// The engines.
const (
	EngineSQLite   = "sqlite"
	EnginePostgres = "postgres"
)

// applicationName marks the sessions of the tests.
const applicationName = "blackbox"

// Database is an empty, migrated database for one test.
type Database struct {
	Engine string
	// URL for --storage.
	URL string

	file string
}

// Each runs a test once on every engine.
func Each(t *testing.T, test func(t *testing.T, db *Database)) {
	t.Helper()
	t.Run(EngineSQLite, func(t *testing.T) { test(t, SQLite(t)) })
	t.Run(EnginePostgres, func(t *testing.T) { test(t, Postgres(t)) })
}

// Together is Each with the engines beside each other: for tests that take long and
// measure no times.
func Together(t *testing.T, test func(t *testing.T, db *Database)) {
	t.Helper()
	t.Run(EngineSQLite, func(t *testing.T) {
		t.Parallel()
		test(t, SQLite(t))
	})
	t.Run(EnginePostgres, func(t *testing.T) {
		t.Parallel()
		test(t, Postgres(t))
	})
}

// EachParallel is Together for tests that mostly wait, for leases to run out or the
// like: they run beside others.
func EachParallel(t *testing.T, test func(t *testing.T, db *Database)) {
	t.Helper()
	t.Parallel()
	Together(t, test)
}

// SQLite names a file that the server will make.
func SQLite(tb testing.TB) *Database {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "queuebox.db")
	return &Database{Engine: EngineSQLite, URL: "sqlite://" + file, file: file}
}

// Postgres makes a database and migrates it with the server's own command. Without a
// PostgreSQL the test is skipped, out loud.
func Postgres(tb testing.TB) *Database {
	tb.Helper()
	db := unmigrated(tb)
	if out, code := Run(tb, nil, "migrate", "--storage", db.URL); code != 0 {
		tb.Fatalf("migrate ended with %d:\n%s", code, out)
	}
	return db
}

func unmigrated(tb testing.TB) *Database {
	tb.Helper()
	return &Database{Engine: EnginePostgres, URL: testdb.Postgres(tb)}
}

// Start starts a server on the database.
func (d *Database) Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return Start(tb, Options{Storage: d.URL, Args: args})
}

// Open opens a connection of the test's own.
func (d *Database) Open(tb testing.TB) *sql.DB {
	tb.Helper()
	driver, dsn := "pgx", d.URL
	if d.Engine == EnginePostgres {
		u, err := url.Parse(d.URL)
		if err != nil {
			tb.Fatal("the URL of the database cannot be parsed")
		}
		// Told apart from the sessions of the server by this name; the simple protocol works
		// behind a pooler, too.
		query := u.Query()
		query.Set("application_name", applicationName)
		query.Set("default_query_exec_mode", "simple_protocol")
		u.RawQuery = query.Encode()
		dsn = u.String()
	}
	if d.Engine == EngineSQLite {
		driver, dsn = "sqlite", (&url.URL{Scheme: "file", Path: d.file, RawQuery: "_pragma=busy_timeout(10000)"}).String()
	}
	conn, err := sql.Open(driver, dsn)
	if err != nil {
		tb.Fatal(err)
	}
	conn.SetMaxOpenConns(2)
	tb.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Rows runs a query and returns every row as one text; long bytes stand there as their
// SHA-256.
func Rows(tb testing.TB, conn *sql.DB, query string, args ...any) []string {
	tb.Helper()
	rows, err := conn.QueryContext(tb.Context(), query, args...)
	if err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
	defer func() { _ = rows.Close() }()
	names, err := rows.Columns()
	if err != nil {
		tb.Fatal(err)
	}
	var all []string
	for rows.Next() {
		values, into := make([]any, len(names)), make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			tb.Fatal(err)
		}
		text := make([]string, len(names))
		for i, v := range values {
			if b, ok := v.([]byte); ok {
				if len(b) > 64 {
					sum := sha256.Sum256(b)
					b = sum[:]
				}
				v = hex.EncodeToString(b)
			}
			text[i] = fmt.Sprint(v)
		}
		all = append(all, strings.Join(text, "|"))
	}
	if err := rows.Err(); err != nil {
		tb.Fatal(err)
	}
	return all
}

// Tables names all tables of the server.
func (d *Database) Tables(tb testing.TB, conn *sql.DB) []string {
	tb.Helper()
	if d.Engine == EngineSQLite {
		return Rows(tb, conn, `SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name`)
	}
	return Rows(tb, conn, `SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg_toast%' ORDER BY 1`)
}

// Dump returns the whole content of the database as text: equal before and after
// means that nothing was written, but for the counts that a server takes by itself.
func (d *Database) Dump(tb testing.TB, conn *sql.DB) string {
	tb.Helper()
	var out strings.Builder
	for _, table := range d.Tables(tb, conn) {
		if strings.HasSuffix(table, "queue_stats") || strings.HasSuffix(table, "count_turn") {
			continue
		}
		rows := Rows(tb, conn, "SELECT * FROM "+table)
		sort.Strings(rows)
		fmt.Fprintf(&out, "%s (%d)\n", table, len(rows))
		for _, r := range rows {
			out.WriteString("  " + r + "\n")
		}
	}
	return out.String()
}
