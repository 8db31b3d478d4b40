package mysql_test

import (
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/internal/testdb"
	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/mysql"
)

// bare is an empty database.
func bare(t testing.TB) *database {
	t.Helper()
	d := &database{url: testdb.MySQL(t)}
	u, err := url.Parse(d.url)
	require.NoError(t, err)
	d.name = strings.TrimPrefix(u.Path, "/")
	d.db = server(t, d.url)
	d.config = mysql.Config{URL: d.url}
	d.looker = d.session(t)
	t.Cleanup(func() { _ = d.looker.Close() })
	return d
}

// D7: checked at Open and while running.
func TestD7SchemaVersion(t *testing.T) {
	d := bare(t)
	_, err := mysql.Open(t.Context(), d.config)
	require.ErrorIs(t, err, storage.ErrNoSchema)

	from, to, err := mysql.Migrate(t.Context(), d.config)
	require.NoError(t, err)
	require.EqualValues(t, 0, from)
	require.EqualValues(t, 1, to)
	from, to, err = mysql.Migrate(t.Context(), d.config)
	require.NoError(t, err)
	require.EqualValues(t, 1, from)
	require.EqualValues(t, 1, to)

	s := open(t, d.config)
	require.NoError(t, s.Ready(t.Context()))
	d.exec(t, "INSERT INTO queuebox_version (version_id, is_applied) VALUES (2, true)")
	require.ErrorIs(t, s.Ready(t.Context()), storage.ErrSchema, "a newer schema, while running")
	_, err = mysql.Open(t.Context(), d.config)
	require.ErrorIs(t, err, storage.ErrSchema, "a newer schema, at Open")
	_, _, err = mysql.Migrate(t.Context(), d.config)
	require.ErrorIs(t, err, storage.ErrSchema, "a newer schema is not migrated")
	d.exec(t, "DELETE FROM queuebox_version WHERE version_id > 0")
	require.ErrorIs(t, s.Ready(t.Context()), storage.ErrSchema, "an older schema")
	d.exec(t, "DROP TABLE queuebox_version")
	require.ErrorIs(t, s.Ready(t.Context()), storage.ErrSchema, "no schema any more")
	d.exec(t, "DROP TABLE queue")
	_, err = s.GetQueue(t.Context(), "q")
	require.ErrorIs(t, err, storage.ErrSchema, "a table is missing")
	d.exec(t, "DROP DATABASE "+d.name)
	require.Eventually(t, func() bool { return s.Ready(t.Context()) != nil }, soon, pollEvery)
	_, err = mysql.Open(t.Context(), d.config)
	require.ErrorIs(t, err, storage.ErrNoSchema, "no database any more")
}

// Two migrations at once: one migrates, the others find it done.
func TestD7MigrateBesideMigrate(t *testing.T) {
	d := bare(t)
	errs := make(chan error)
	var migrated atomic.Int64
	for range 3 {
		go func() {
			from, to, err := mysql.Migrate(t.Context(), d.config)
			migrated.Add(to - from)
			errs <- err
		}()
	}
	for range 3 {
		require.NoError(t, <-errs)
	}
	require.EqualValues(t, 1, migrated.Load())
}

// A change of a table is not taken back: a migration that broke off is run again from its
// start, over what is there.
func TestD7MigrateAfterABrokenMigration(t *testing.T) {
	d := bare(t)
	_, _, err := mysql.Migrate(t.Context(), d.config)
	require.NoError(t, err)
	whole, turns := d.tables(t), d.lines(t, "SELECT id FROM count_turn ORDER BY id")
	for _, table := range []string{"marked", "incoming", "count_turn"} {
		d.exec(t, "DELETE FROM queuebox_version WHERE version_id > 0")
		d.exec(t, "DROP TABLE "+table)
		_, to, err := mysql.Migrate(t.Context(), d.config)
		require.NoError(t, err)
		require.EqualValues(t, 1, to)
		require.Equal(t, whole, d.tables(t))
	}
	require.Equal(t, turns, d.lines(t, "SELECT id FROM count_turn ORDER BY id"))

	// Killed between the table of versions and its first row, in a new database and in one that
	// lost its versions.
	d.exec(t, "DELETE FROM queuebox_version")
	_, to, err := mysql.Migrate(t.Context(), d.config)
	require.NoError(t, err)
	require.EqualValues(t, 1, to)
	for _, table := range whole {
		if table != "queuebox_version" {
			d.exec(t, "DROP TABLE "+table)
		}
	}
	d.exec(t, "DELETE FROM queuebox_version")
	_, to, err = mysql.Migrate(t.Context(), d.config)
	require.NoError(t, err)
	require.EqualValues(t, 1, to)
	require.Equal(t, whole, d.tables(t))
	require.NoError(t, open(t, d.config).Ready(t.Context()))
}

// A role that may make tables and not write to them leaves a table of versions without a row.
func TestD7MigrateAfterARightWasMissing(t *testing.T) {
	d := bare(t)
	_, _, err := mysql.Migrate(t.Context(), mysql.Config{URL: role(t, d.url, "GRANT CREATE, SELECT ON @.* TO %")})
	require.ErrorContains(t, err, `see "Rights" in docs/operations.md`)
	require.Equal(t, []string{"queuebox_version"}, d.tables(t))
	from, to, err := mysql.Migrate(t.Context(), d.config)
	require.NoError(t, err)
	require.EqualValues(t, 0, from)
	require.EqualValues(t, 1, to)
	require.NoError(t, open(t, d.config).Ready(t.Context()))
}

func (d *database) tables(t testing.TB) []string {
	t.Helper()
	return d.lines(t, "SELECT table_name FROM information_schema.tables WHERE table_schema = ? ORDER BY table_name", d.name)
}

// A database of another program is left alone, also one that counts its versions like us.
func TestD7ForeignDatabase(t *testing.T) {
	d := bare(t)
	d.exec(t, "CREATE TABLE goose_db_version (id INT PRIMARY KEY)")
	_, _, err := mysql.Migrate(t.Context(), d.config)
	require.ErrorIs(t, err, storage.ErrSchema)
	require.ErrorContains(t, err, "another program")
	require.Equal(t, []string{"goose_db_version"}, d.tables(t))
	_, err = mysql.Open(t.Context(), d.config)
	require.ErrorIs(t, err, storage.ErrNoSchema)
}

// The database of the URL is made where it is missing.
func TestMigrateMakesTheDatabase(t *testing.T) {
	d := bare(t)
	d.exec(t, "DROP DATABASE "+d.name)
	_, to, err := mysql.Migrate(t.Context(), d.config)
	require.NoError(t, err)
	require.EqualValues(t, 1, to)
	open(t, d.config)
}

// Every table says what decides about it, whatever the server would choose.
func TestTablesAreInnoDBAndComparedByBytes(t *testing.T) {
	d := newDatabase(t, false)
	want := "utf8mb4_nopad_bin"
	if !strings.Contains(d.store.Capabilities().Version, "MariaDB") {
		want = "utf8mb4_0900_bin"
	}
	for _, row := range d.rows(t, `SELECT table_name AS name, engine AS engine, table_collation AS collation FROM information_schema.tables
		WHERE table_schema = ? AND table_name <> 'queuebox_version'`, d.name) {
		require.Equal(t, "InnoDB", row["engine"], row["name"])
		require.Equal(t, want, row["collation"], row["name"])
	}
	require.Empty(t, d.lines(t, `SELECT CONCAT(table_name, '.', column_name) FROM information_schema.columns
		WHERE table_schema = ? AND table_name <> 'queuebox_version' AND collation_name <> ?`, d.name, want))
}

func TestErrorsHoldNoSecrets(t *testing.T) {
	u, err := url.Parse(testdb.MySQL(t))
	require.NoError(t, err)
	u.User = url.UserPassword("queue", "hunter2")
	for _, raw := range []string{
		"mysql://queue:hunter2@127.0.0.1:1/none", // nobody listens on port 1
		"mysql://queue:hunter2@127.0.0.1:port/none",
		"postgres://queue:hunter2@127.0.0.1/none",
		"mysql://queue:hunter2@127.0.0.1/none?pooler=maybe",
		u.String(), // no such user
	} {
		_, err := mysql.Open(t.Context(), mysql.Config{URL: raw})
		require.Error(t, err, raw)
		require.NotContains(t, err.Error(), "hunter2")
		require.NotContains(t, err.Error(), "queue'@")
		_, _, err = mysql.Migrate(t.Context(), mysql.Config{URL: raw})
		require.Error(t, err, raw)
		require.NotContains(t, err.Error(), "hunter2")
	}
	_, err = mysql.Open(t.Context(), mysql.Config{URL: "mysql://queue:hunter2@127.0.0.1:1/none"})
	require.ErrorIs(t, err, storage.ErrUnavailable)
	_, err = mysql.Open(t.Context(), mysql.Config{URL: u.String()})
	require.ErrorIs(t, err, storage.ErrUnavailable, "a password that is changed right now")
}
