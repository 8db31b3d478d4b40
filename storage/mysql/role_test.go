package mysql_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/mysql"
)

// grants is what a role needs to run a server, and nothing more; the operator's pages show
// the same.
const grants = "GRANT SELECT, INSERT, UPDATE, DELETE ON @.* TO %"

// migrators is what a role needs to migrate, beside the rights of a server.
const migrators = "GRANT CREATE, ALTER, DROP, INDEX, REFERENCES, CREATE ROUTINE, ALTER ROUTINE, EXECUTE ON @.* TO %"

// role makes a role with the given rights, where % is the role and @ the database, and
// returns the URL for it.
func role(t *testing.T, raw string, rights ...string) string {
	t.Helper()
	u, err := url.Parse(raw)
	require.NoError(t, err)
	var random [6]byte
	_, _ = rand.Read(random[:])
	name := "queuebox_" + hex.EncodeToString(random[:])
	const password = "not-a-secret"
	db := server(t, raw)
	db.SetMaxOpenConns(1)
	ctx := context.WithoutCancel(t.Context())
	_, err = db.ExecContext(ctx, "SET SESSION TRANSACTION READ WRITE") // whatever the server has as its default
	require.NoError(t, err)
	_, err = db.ExecContext(ctx, "CREATE USER "+name+" IDENTIFIED BY '"+password+"'")
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = db.ExecContext(ctx, "DROP USER "+name) }) // A private server may have gone.
	for _, text := range rights {
		text = strings.ReplaceAll(inDatabase(text, strings.TrimPrefix(u.Path, "/")), "%", name)
		_, err = db.ExecContext(ctx, text)
		require.NoError(t, err)
	}
	u.User = url.UserPassword(name, password)
	return u.String()
}

// inDatabase puts a database in the place of @.
func inDatabase(text, database string) string { return strings.ReplaceAll(text, "@", database) }

// D7: the role of a server reads and writes rows; another one migrates.
func TestD7LeastPrivilegeRole(t *testing.T) {
	d := bare(t)
	unable := role(t, d.url, grants)
	u, err := url.Parse(unable)
	require.NoError(t, err)
	_, _, err = mysql.Migrate(t.Context(), mysql.Config{URL: unable})
	require.Error(t, err)
	require.ErrorContains(t, err, `see "Rights" in docs/operations.md`)
	require.NotContains(t, err.Error(), "not-a-secret")
	require.NotContains(t, err.Error(), u.User.Username())
	_, to, err := mysql.Migrate(t.Context(), mysql.Config{URL: role(t, d.url, grants, migrators)})
	require.NoError(t, err)
	require.EqualValues(t, 1, to)
	poor := mysql.Config{URL: role(t, d.url, grants)}
	from, to, err := mysql.Migrate(t.Context(), poor)
	require.NoError(t, err, "where there is nothing to do, nothing is asked for")
	require.Equal(t, from, to)
	s := open(t, poor)
	story(t, s, "poor")
	_, err = mysql.Open(t.Context(), mysql.Config{URL: role(t, d.url)})
	require.ErrorIs(t, err, storage.ErrUnavailable, "no rights at all")
	reader := open(t, mysql.Config{URL: role(t, d.url, "GRANT SELECT ON @.* TO %")})
	_, err = reader.CreateQueue(t.Context(), "denied", settings(), 0)
	require.ErrorContains(t, err, `see "Rights" in docs/operations.md`)
}
