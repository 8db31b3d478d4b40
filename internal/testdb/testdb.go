// Package testdb gives each test a database of its own. It is for tests only and never
// reaches a binary.
package testdb

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// The environment that the tests read.
const (
	// EnvPostgres holds the URL of a superuser of a PostgreSQL; scripts/with-postgres
	// sets it.
	EnvPostgres = "QUEUEBOX_TEST_POSTGRES"
	// EnvRequire lists the engines whose absence is a failure, not a skip.
	EnvRequire = "QUEUEBOX_TEST_REQUIRE"
)

// Required tells whether the tests of an engine must not be skipped.
func Required(engine string) bool {
	return slices.Contains(strings.Split(os.Getenv(EnvRequire), ","), engine)
}

// missing skips the test out loud, or fails it where the engine is required.
func missing(t testing.TB, engine, reason string) {
	t.Helper()
	if Required(engine) {
		t.Fatalf("%s is required by %s, but %s", engine, EnvRequire, reason)
	}
	t.Skipf("SKIPPED without %s: %s", engine, reason)
}

// Postgres makes an empty database for this test and returns the URL of a superuser of
// it. The database goes away with t.
func Postgres(t testing.TB) string {
	t.Helper()
	server := os.Getenv(EnvPostgres)
	if server == "" {
		missing(t, "postgres", EnvPostgres+" is not set (run the tests under scripts/with-postgres)")
	}
	u, err := url.Parse(server)
	if err != nil {
		t.Fatalf("%s is no URL", EnvPostgres)
	}
	var raw [8]byte
	_, _ = rand.Read(raw[:])
	name := "queuebox_test_" + hex.EncodeToString(raw[:])
	execute(t, server, "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING 'UTF8'")
	t.Cleanup(func() {
		// FORCE, since a test may have left a session that holds a lock on purpose.
		execute(t, server, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	})
	u.Path = "/" + name
	return u.String()
}

func execute(t testing.TB, server, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		t.Fatalf("connect to the test server: %v", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, sql); err != nil {
		t.Fatalf("test database: %v", err)
	}
}
