package testdb

import (
	"database/sql"
	"os"
	"testing"

	_ "github.com/microsoft/go-mssqldb" // the driver "sqlserver"
)

// EnvMSSQLSnapshot says by "on" that the databases read committed rows by versions
// (READ_COMMITTED_SNAPSHOT), as on Azure; a new database of SQL Server reads under locks.
const EnvMSSQLSnapshot = "QUEUEBOX_TEST_MSSQL_RCSI"

// MSSQL makes an empty database for this test on the SQL Server of the environment and returns
// its URL, in the form of --storage. The database goes away with t.
func MSSQL(t testing.TB) string {
	t.Helper()
	u := server(t, "mssql", EnvMSSQL, "")
	admin, name := u.String(), newName()
	onMSSQL(t, admin, "CREATE DATABASE "+name)
	// Tests may look by versions, which changes nothing for whoever does not ask for it.
	onMSSQL(t, admin, "ALTER DATABASE "+name+" SET ALLOW_SNAPSHOT_ISOLATION ON")
	if os.Getenv(EnvMSSQLSnapshot) == "on" {
		onMSSQL(t, admin, "ALTER DATABASE "+name+" SET READ_COMMITTED_SNAPSHOT ON WITH ROLLBACK IMMEDIATE")
	}
	t.Cleanup(func() {
		// Alone first, since a test may have left a session that holds a lock on purpose.
		onMSSQL(t, admin, "ALTER DATABASE "+name+" SET SINGLE_USER WITH ROLLBACK IMMEDIATE")
		onMSSQL(t, admin, "DROP DATABASE "+name)
	})
	query := u.Query()
	query.Set("database", name)
	u.RawQuery = query.Encode()
	return u.String()
}

func onMSSQL(t testing.TB, admin, text string) {
	t.Helper()
	ctx, cancel := patience()
	defer cancel()
	db, err := sql.Open("sqlserver", admin)
	if err != nil {
		t.Fatalf("%s is no URL of SQL Server", EnvMSSQL)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(ctx, text); err != nil {
		t.Fatalf("test database: %v", err)
	}
}
