package testdb

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// Postgres makes an empty database for this test and returns the URL of a superuser of
// it. The database goes away with t.
func Postgres(t testing.TB) string {
	t.Helper()
	u := server(t, "postgres", EnvPostgres, " (run the tests under scripts/with-postgres)")
	admin, name := u.String(), newName()
	onPostgres(t, admin, "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING 'UTF8'")
	t.Cleanup(func() {
		// FORCE, since a test may have left a session that holds a lock on purpose.
		onPostgres(t, admin, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	})
	u.Path = "/" + name
	return u.String()
}

func onPostgres(t testing.TB, admin, sql string) {
	t.Helper()
	ctx, cancel := patience()
	defer cancel()
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		t.Fatalf("connect to the test server: %v", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, sql); err != nil {
		t.Fatalf("test database: %v", err)
	}
}
