package blackbox

import (
	"database/sql"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx", to look at the database from outside
	mssql "github.com/microsoft/go-mssqldb"
	_ "modernc.org/sqlite" // the driver "sqlite", likewise

	"github.com/queuebox/queuebox/internal/testdb"
)

// The engines, by the names that GetServerInfo tells.
const (
	EngineSQLite   = "sqlite"
	EnginePostgres = "postgres"
	EngineMySQL    = "mysql"
	EngineMSSQL    = "mssql"
)

// Engine is what the tests have to know of a database beside what the server tells: one
// engine more is one row more of [Engines].
type Engine struct {
	Name string
	// Servers is how many servers the engine is for, at least in the tests: two, or one
	// where the database is a file.
	Servers int
	// Notifies: the database tells every server at once what another one has done. Without
	// that a server finds it by its next look, within a second (W1, T6).
	Notifies bool
	// Migrates: a server brings the schema up to date by itself.
	Migrates bool
	// Proxied: what lies between server and database is a connection that can be broken,
	// of a protocol that package proxy reads.
	Proxied bool
	// Schema stands before the names of our tables.
	Schema string
	// versions is the table of the versions of the schema.
	versions string

	// url makes an empty database and returns its URL for --storage; without a server of
	// the engine it skips the test out loud.
	url func(tb testing.TB) string
	// open opens connections of the test's own. own: as a program does that shares the
	// database, not as one that looks at it from outside.
	open func(d *Database, own bool) (*sql.DB, error)
	// tables is the statement that lists all tables of a database.
	tables string
	// kill ends the sessions of others on the database; nil where there are none.
	kill func(tb testing.TB, conn *sql.DB)
}

// Engines are all databases that the server runs on.
func Engines() []*Engine {
	return []*Engine{sqliteEngine, postgresEngine, mysqlEngine, mssqlEngine}
}

// EngineNamed finds an engine.
func EngineNamed(name string) *Engine {
	for _, e := range Engines() {
		if e.Name == name {
			return e
		}
	}
	panic("no engine " + name)
}

var sqliteEngine = &Engine{
	Name:     EngineSQLite,
	versions: "goose_db_version",
	Servers:  1,
	Migrates: true,
	url: func(tb testing.TB) string {
		tb.Helper()
		return "sqlite://" + filepath.Join(tb.TempDir(), "queuebox.db")
	},
	open: func(d *Database, _ bool) (*sql.DB, error) {
		return sql.Open("sqlite", (&url.URL{Scheme: "file", Path: d.file(), RawQuery: "_pragma=busy_timeout(10000)"}).String())
	},
	tables: `SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name`,
}

// applicationName marks the sessions of the tests on PostgreSQL.
const applicationName = "blackbox"

var postgresEngine = &Engine{
	Name:     EnginePostgres,
	versions: "goose_db_version",
	Servers:  2,
	Notifies: true,
	Proxied:  true,
	Schema:   "queuebox.",
	url:      testdb.Postgres,
	open: func(d *Database, own bool) (*sql.DB, error) {
		u, err := url.Parse(d.URL)
		if err != nil {
			return nil, err
		}
		if !own {
			// Told apart from the sessions of the server by this name; the simple protocol works
			// behind a pooler, too.
			query := u.Query()
			query.Set("application_name", applicationName)
			query.Set("default_query_exec_mode", "simple_protocol")
			u.RawQuery = query.Encode()
		}
		return sql.Open("pgx", u.String())
	},
	tables: `SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg_toast%' ORDER BY 1`,
	kill: func(tb testing.TB, conn *sql.DB) {
		tb.Helper()
		Rows(tb, conn, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
			AND application_name <> '`+applicationName+`' AND backend_type = 'client backend'`)
	},
}

var mysqlEngine = &Engine{
	Name:     EngineMySQL,
	versions: "queuebox_version",
	Servers:  2,
	Proxied:  true,
	url:      testdb.MySQL,
	open: func(d *Database, _ bool) (*sql.DB, error) {
		u, err := url.Parse(d.URL)
		if err != nil {
			return nil, err
		}
		config := testdb.MySQLConfig(u)
		// The stored times are UTC; a look at the clock has to be, too.
		config.Params = map[string]string{"time_zone": "'+00:00'"}
		connector, err := mysql.NewConnector(config)
		if err != nil {
			return nil, err
		}
		return sql.OpenDB(connector), nil
	},
	tables: `SELECT table_name FROM information_schema.tables WHERE table_schema = database() AND table_type = 'BASE TABLE' ORDER BY table_name`,
	kill: func(tb testing.TB, conn *sql.DB) {
		tb.Helper()
		killEach(tb, conn, `SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()`)
	},
}

var mssqlEngine = &Engine{
	Name:     EngineMSSQL,
	versions: "goose_db_version",
	Servers:  2,
	Schema:   "queuebox.",
	url:      testdb.MSSQL,
	open: func(d *Database, own bool) (*sql.DB, error) {
		connector, err := mssql.NewConnector(d.URL)
		if err != nil {
			return nil, err
		}
		if !own {
			// A look under locks would see rows of many moments, and stand in the way.
			connector.SessionInitSQL = "SET TRANSACTION ISOLATION LEVEL SNAPSHOT"
		}
		return sql.OpenDB(connector), nil
	},
	tables: `SELECT schema_name(schema_id) + '.' + name FROM sys.tables ORDER BY 1`,
	kill: func(tb testing.TB, conn *sql.DB) {
		tb.Helper()
		killEach(tb, conn, `SELECT session_id FROM sys.dm_exec_sessions WHERE database_id = db_id() AND session_id <> @@SPID`)
	},
}

// killEach kills the sessions whose numbers a statement gives; one that has ended by itself
// is killed enough.
func killEach(tb testing.TB, conn *sql.DB, sessions string) {
	tb.Helper()
	for _, id := range Rows(tb, conn, sessions) {
		_, _ = conn.ExecContext(tb.Context(), "KILL "+id)
	}
}

// Make makes an empty, migrated database for one test. Without a server of the engine the
// test is skipped, out loud.
func (e *Engine) Make(tb testing.TB) *Database {
	tb.Helper()
	db := e.empty(tb)
	if !e.Migrates {
		if out, code := Run(tb, nil, "migrate", "--storage", db.URL); code != 0 {
			tb.Fatalf("migrate ended with %d:\n%s", code, out)
		}
	}
	return db
}

// empty makes a database without our tables, or names a file where one will be.
func (e *Engine) empty(tb testing.TB) *Database {
	tb.Helper()
	return &Database{Engine: e, URL: e.url(tb)}
}

// Table is the name of a table of ours in a statement.
func (e *Engine) Table(name string) string { return e.Schema + name }

// String is the name.
func (e *Engine) String() string { return e.Name }

// Text chooses the statement of the engine: a test that looks into the database has one for
// each.
func (e *Engine) Text(tb testing.TB, texts map[string]string) string {
	tb.Helper()
	text, ok := texts[e.Name]
	if !ok {
		tb.Fatalf("the test has no statement for %s", e)
	}
	return text
}
