package blackbox

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"
)

// Database is an empty, migrated database for one test.
type Database struct {
	*Engine

	// URL for --storage.
	URL string
}

// Each runs a test once on every engine.
func Each(t *testing.T, test func(t *testing.T, db *Database)) {
	t.Helper()
	for _, e := range Engines() {
		t.Run(e.Name, func(t *testing.T) { test(t, e.Make(t)) })
	}
}

// Together is Each with the engines beside each other: for tests that take long and
// measure no times.
func Together(t *testing.T, test func(t *testing.T, db *Database)) {
	t.Helper()
	together(t, Engines(), test)
}

// EachParallel is Together for tests that mostly wait, for leases to run out or the
// like: they run beside others.
func EachParallel(t *testing.T, test func(t *testing.T, db *Database)) {
	t.Helper()
	t.Parallel()
	together(t, Engines(), test)
}

// those are the engines that a test is for.
func those(with func(e *Engine) bool) []*Engine {
	return slices.DeleteFunc(Engines(), func(e *Engine) bool { return !with(e) })
}

func together(t *testing.T, engines []*Engine, test func(t *testing.T, db *Database)) {
	t.Helper()
	for _, e := range engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			test(t, e.Make(t))
		})
	}
}

// Kinds is Each on one engine of each kind, a file and a server, for what a server does before
// or after it asks its store: there is nothing in it that a third engine could do in another way.
func Kinds(t *testing.T, test func(t *testing.T, db *Database)) {
	t.Helper()
	for _, e := range kinds() {
		t.Run(e.Name, func(t *testing.T) { test(t, e.Make(t)) })
	}
}

// KindsParallel is EachParallel on one engine of each kind.
func KindsParallel(t *testing.T, test func(t *testing.T, db *Database)) {
	t.Helper()
	t.Parallel()
	together(t, kinds(), test)
}

func kinds() []*Engine { return []*Engine{sqliteEngine, postgresEngine} }

// SQLite names a file that the server will make.
func SQLite(tb testing.TB) *Database {
	tb.Helper()
	return sqliteEngine.Make(tb)
}

// Postgres makes a database and migrates it with the server's own command. Without a
// PostgreSQL the test is skipped, out loud.
func Postgres(tb testing.TB) *Database {
	tb.Helper()
	return postgresEngine.Make(tb)
}

// MySQL is Postgres on MariaDB or MySQL.
func MySQL(tb testing.TB) *Database {
	tb.Helper()
	return mysqlEngine.Make(tb)
}

// file is the file of a database of SQLite.
func (d *Database) file() string { return strings.TrimPrefix(d.URL, "sqlite://") }

// Start starts a server on the database.
func (d *Database) Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return Start(tb, Options{Storage: d.URL, Args: args})
}

// Open opens a few connections of the test's own, to look at the database from outside.
func (d *Database) Open(tb testing.TB) *sql.DB {
	tb.Helper()
	conn := d.connect(tb, false)
	conn.SetMaxOpenConns(2)
	return conn
}

func (d *Database) connect(tb testing.TB, own bool) *sql.DB {
	tb.Helper()
	conn, err := d.open(d, own)
	if err != nil {
		tb.Fatalf("the URL of the database of %s cannot be used", d.Name) // which may hold a password
	}
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
	types, err := rows.ColumnTypes()
	if err != nil {
		tb.Fatal(err)
	}
	var all []string
	for rows.Next() {
		values, into := make([]any, len(types)), make([]any, len(types))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			tb.Fatal(err)
		}
		text := make([]string, len(types))
		for i, v := range values {
			text[i] = cell(types[i].DatabaseTypeName(), v)
		}
		all = append(all, strings.Join(text, "|"))
	}
	if err := rows.Err(); err != nil {
		tb.Fatal(err)
	}
	return all
}

// cell is one value as text. The driver of MySQL gives texts as bytes, too, so the type of
// the column decides which of them are some.
func cell(column string, v any) string {
	b, ok := v.([]byte)
	if !ok {
		return fmt.Sprint(v)
	}
	for _, text := range []string{"CHAR", "TEXT", "DECIMAL"} {
		if strings.Contains(column, text) {
			return string(b)
		}
	}
	if len(b) > 64 {
		sum := sha256.Sum256(b)
		b = sum[:]
	}
	return hex.EncodeToString(b)
}

// Tables names all tables of the server.
func (d *Database) Tables(tb testing.TB, conn *sql.DB) []string {
	tb.Helper()
	return Rows(tb, conn, d.tables)
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
