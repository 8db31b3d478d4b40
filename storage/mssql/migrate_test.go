package mssql

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/mssql/internal/faketds"
)

// database is what a fake knows of migrations.
type database struct {
	schema, ours, others int64
	version              int64
	busy                 atomic.Int32 // how often the lock is busy
	release              int32        // what sp_releaseapplock returns
}

func (d *database) answer(r faketds.Request) faketds.Answer {
	switch {
	case r.Procedure == "sys.sp_getapplock":
		if d.busy.Add(-1) >= 0 {
			return faketds.Answer{Return: lockBusy}
		}
		return faketds.Answer{}
	case r.Procedure == "sys.sp_releaseapplock":
		return faketds.Answer{Return: d.release}
	case strings.Contains(r.Text, "sys.objects"):
		return rows([]string{"present", "ours", "others"}, []any{d.schema, d.ours, d.others})
	case strings.Contains(r.Text, "FROM queuebox.goose_db_version AS v"):
		return rows([]string{"version"}, []any{d.version})
	case strings.Contains(r.Text, "SELECT TOP 1 tstamp"):
		if d.ours == 0 {
			return faketds.Answer{Error: faketds.Error{Number: errNoTable, Message: "Invalid object name."}}
		}
		return rows([]string{"tstamp", "is_applied"}, []any{time.Unix(0, 0), true})
	case strings.Contains(r.Text, "SELECT version_id, is_applied"):
		if d.version == 0 {
			return rows([]string{"version_id", "is_applied"}, []any{int64(0), true})
		}
		return rows([]string{"version_id", "is_applied"}, []any{d.version, true}, []any{int64(0), true})
	case strings.Contains(r.Text, "SELECT MAX(version_id)"):
		return rows([]string{"version"}, []any{int64(schemaVersion)})
	}
	return faketds.Answer{}
}

func (d *database) migrate(t *testing.T) (from, to int64, sent []faketds.Request, err error) {
	t.Helper()
	s := faketds.Start(t, d.answer)
	from, to, err = Migrate(t.Context(), Config{URL: s.URL()})
	return from, to, s.Requests(), err
}

// index tells where a text was sent first, -1 where it was not.
func index(sent []faketds.Request, text string) int {
	return slices.IndexFunc(sent, func(r faketds.Request) bool {
		return strings.Contains(r.Text, text) || strings.Contains(r.Procedure, text)
	})
}

func TestMigrate_AnEmptyDatabase(t *testing.T) {
	d := &database{}
	d.busy.Store(2)
	from, to, sent, err := d.migrate(t)
	require.NoError(t, err)
	require.EqualValues(t, 0, from)
	require.EqualValues(t, schemaVersion, to)

	lock, schema, versions, tables, release := index(sent, "sp_getapplock"), index(sent, "CREATE SCHEMA queuebox"),
		index(sent, "CREATE TABLE queuebox.goose_db_version"), index(sent, "CREATE TABLE queuebox.message "), index(sent, "sp_releaseapplock")
	require.True(t, lock >= 0 && lock < schema && schema < versions && versions < tables && tables < release,
		"%d %d %d %d %d", lock, schema, versions, tables, release)
	require.Equal(t, "CREATE SCHEMA queuebox", sent[schema].Text)
	require.Equal(t, []faketds.Param{
		{Name: "Resource", Type: "nvarchar(16)", Value: "queuebox:migrate"},
		{Name: "LockMode", Type: "nvarchar(9)", Value: "Exclusive"},
		{Name: "LockOwner", Type: "nvarchar(7)", Value: "Session"},
		{Name: "LockTimeout", Type: "int", Value: int64(1000)},
	}, sent[lock].Params)
	asked := 0
	for _, r := range sent {
		if r.Procedure == "sys.sp_getapplock" {
			asked++
		}
	}
	require.Equal(t, 3, asked, "a lock that is busy is asked for again, in short steps")
	// The migration is one transaction, and the session rolls back at any error.
	require.NotZero(t, sent[tables].Transaction)
	require.Equal(t, sent[lock].Conn, sent[release].Conn)
	require.Equal(t, migrateSession, sent[0].Text)
	require.True(t, sent[0].Reset)
}

func TestMigrate_NothingToDo(t *testing.T) {
	d := &database{schema: 1, ours: 1, others: 14, version: schemaVersion}
	from, to, sent, err := d.migrate(t)
	require.NoError(t, err)
	require.EqualValues(t, schemaVersion, from)
	require.EqualValues(t, schemaVersion, to)
	require.Equal(t, -1, index(sent, "CREATE "))
	require.NotEqual(t, -1, index(sent, "sp_releaseapplock"))
}

func TestMigrate_Refuses(t *testing.T) {
	for want, d := range map[string]*database{
		"another program":            {schema: 1, others: 1},
		"the database has version 2": {schema: 1, ours: 1, others: 14, version: schemaVersion + 1},
	} {
		_, _, sent, err := d.migrate(t)
		require.ErrorIs(t, err, storage.ErrSchema)
		require.ErrorContains(t, err, want)
		require.Equal(t, -1, index(sent, "CREATE "), "nothing was changed")
		require.NotEqual(t, -1, index(sent, "sp_releaseapplock"))
	}
}

func TestMigrate_ADatabaseThatIsNotThere(t *testing.T) {
	s := faketds.Start(t, func(r faketds.Request) faketds.Answer {
		if r.Kind == faketds.Login {
			return faketds.Answer{Error: faketds.Error{Number: errNoDatabase, Message: `Cannot open database "queuebox" requested by the login. The login failed.`}}
		}
		return faketds.Answer{}
	})
	_, _, err := Migrate(t.Context(), Config{URL: s.URL()})
	require.ErrorIs(t, err, storage.ErrUnavailable)
	require.ErrorContains(t, err, "CREATE DATABASE")
	_, err = Open(t.Context(), Config{URL: s.URL()})
	require.ErrorContains(t, err, "CREATE DATABASE")
}

// A lock that could not be released goes with its connection, which is closed.
func TestMigrate_AReleaseThatFails(t *testing.T) {
	for _, answer := range []func(d *database, r faketds.Request) faketds.Answer{
		func(d *database, r faketds.Request) faketds.Answer { d.release = -999; return d.answer(r) },
		func(*database, faketds.Request) faketds.Answer { return faketds.Answer{Drop: true} },
	} {
		d := &database{}
		s := faketds.Start(t, func(r faketds.Request) faketds.Answer {
			if r.Procedure == "sys.sp_releaseapplock" {
				return answer(d, r)
			}
			return d.answer(r)
		})
		target, err := parseURL(s.URL())
		require.NoError(t, err)
		db := target.pool(migrateSession)
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, lockMigration(t.Context(), conn))
		unlockMigration(t.Context(), conn)
		require.Error(t, conn.PingContext(t.Context()), "it is closed")
		require.Zero(t, db.Stats().OpenConnections)
		require.NoError(t, db.Close())
	}
}

func TestMigrate_FailsHalfway(t *testing.T) {
	d := &database{}
	s := faketds.Start(t, func(r faketds.Request) faketds.Answer {
		if strings.Contains(r.Text, "CREATE TABLE queuebox.dead ") {
			return failing(errDeniedDatabase, "CREATE TABLE permission denied in database 'secret'.")
		}
		return d.answer(r)
	})
	_, _, err := Migrate(t.Context(), Config{URL: s.URL()})
	require.ErrorContains(t, err, `see "Rights" in docs/operations.md`)
	require.NotContains(t, err.Error(), "secret")
	require.NotEqual(t, -1, index(s.Requests(), "sp_releaseapplock"))
	require.NotContains(t, kinds(s.Requests())[index(s.Requests(), "CREATE TABLE queuebox.message "):], faketds.Commit)
}
