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
)

// The environment that the tests read.
const (
	// EnvPostgres holds the URL of a superuser of a PostgreSQL; scripts/with-postgres
	// sets it.
	EnvPostgres = "QUEUEBOX_TEST_POSTGRES"
	// EnvMySQL holds the URL of a superuser of a MariaDB or MySQL, in the form of --storage;
	// scripts/with-mariadb sets it.
	EnvMySQL = "QUEUEBOX_TEST_MYSQL"
	// EnvMSSQL holds the URL of a sysadmin of a SQL Server, in the form of --storage.
	EnvMSSQL = "QUEUEBOX_TEST_MSSQL"
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

// server reads the URL of the server of an engine. Without one the test ends here.
func server(t testing.TB, engine, variable, hint string) *url.URL {
	t.Helper()
	raw := os.Getenv(variable)
	if raw == "" {
		missing(t, engine, variable+" is not set"+hint)
	}
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatalf("%s is no URL", variable)
	}
	return u
}

// newName draws the name of a database.
func newName() string {
	var raw [8]byte
	_, _ = rand.Read(raw[:])
	return "queuebox_test_" + hex.EncodeToString(raw[:])
}

// patience bounds what the making and the removal of a database may take.
func patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Minute)
}
