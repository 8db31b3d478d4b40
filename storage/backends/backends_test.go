package backends_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/backends"
)

func TestOpen_SQLite(t *testing.T) {
	t.Run("an absolute path", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "a b.db")
		res, err := backends.Migrate(t.Context(), "sqlite://"+path, backends.Options{})
		require.NoError(t, err)
		require.Equal(t, backends.MigrateResult{From: 0, To: 1}, res)
		res, err = backends.Migrate(t.Context(), "sqlite://"+path, backends.Options{})
		require.NoError(t, err)
		require.Equal(t, backends.MigrateResult{From: 1, To: 1}, res)
		openAndClose(t, "sqlite://"+filepath.Dir(path)+"/a%20b.db")
		require.FileExists(t, path)
	})
	t.Run("a relative path", func(t *testing.T) {
		t.Chdir(t.TempDir())
		require.NoError(t, os.Mkdir("data", 0o700))
		openAndClose(t, "sqlite://data/queuebox.db")
		require.FileExists(t, filepath.Join("data", "queuebox.db"))
	})
	t.Run("D9 unsafe durability", func(t *testing.T) {
		path := "sqlite://" + filepath.Join(t.TempDir(), "q.db") + "?synchronous=normal"
		s, err := backends.Open(t.Context(), path, backends.Options{})
		require.ErrorIs(t, err, storage.ErrUnsafeDurability)
		require.Nil(t, s)
		s, err = backends.Open(t.Context(), path, backends.Options{AllowUnsafeDurability: true})
		require.NoError(t, err)
		require.NoError(t, s.Close())
	})
}

func openAndClose(t *testing.T, storageURL string) {
	t.Helper()
	s, err := backends.Open(t.Context(), storageURL, backends.Options{})
	require.NoError(t, err)
	require.Equal(t, "sqlite", s.Capabilities().Name)
	require.NoError(t, s.Close())
}

func TestOpen_RefusesOtherURLs(t *testing.T) {
	for storageURL, want := range map[string]string{
		"":                                  "scheme",
		"queuebox.db":                       "the scheme is missing; for the SQLite file write sqlite://queuebox.db",
		"/var/lib/q.sqlite":                 "write sqlite:///var/lib/q.sqlite",
		"password=secret.db":                "is not one of",
		"mongodb://user:secret@host/x":      "mongodb",
		"sqlite::memory:":                   "sqlite://",
		"sqlite:queuebox.db":                "sqlite://",
		"sqlite://":                         "needs a file",
		"sqlite://:memory:":                 "needs a file",
		"sqlite:///tmp/%zz":                 `invalid URL escape "%zz"; a % that belongs to the name is written %25`,
		"sqlite:///tmp/q.db?mode=memory":    "mode",
		"sqlite:///tmp/q.db?synchronous=no": "synchronous",
	} {
		t.Run(storageURL, func(t *testing.T) {
			s, err := backends.Open(t.Context(), storageURL, backends.Options{})
			require.Nil(t, s)
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "secret")
			_, err = backends.Migrate(t.Context(), storageURL, backends.Options{})
			require.ErrorContains(t, err, want)
			require.ErrorIs(t, backends.Check(storageURL), backends.ErrURL)
			require.Empty(t, backends.File(storageURL))
		})
	}
}

func TestOpen_PostgresHidesThePassword(t *testing.T) {
	s, err := backends.Open(t.Context(), "postgres://someone:secret@127.0.0.1:1/x?connect_timeout=2", backends.Options{})
	require.Nil(t, s)
	require.ErrorIs(t, err, storage.ErrUnavailable)
	require.NotContains(t, err.Error(), "secret")
}

func TestCheckAndFile(t *testing.T) {
	require.NoError(t, backends.Check("sqlite://a%20b.db?synchronous=full"))
	require.Equal(t, "a b.db", backends.File("sqlite://a%20b.db"))
	require.NoError(t, backends.Check("postgres://someone:secret@db/q"))
	require.Empty(t, backends.File("postgres://someone:secret@db/q"))
	for _, wrong := range []string{"postgres://someone:%zzsecret@db/q", "postgres://someone:secret@db:port/q", "postgres://db/q?pooler=secretive"} {
		err := backends.Check(wrong)
		require.ErrorIs(t, err, backends.ErrURL)
		require.NotContains(t, err.Error(), "someone")
	}
	require.ErrorContains(t, backends.Check("postgres://someone:%zz@db/q"), "%25 is %")
}

func TestMySQLURLs(t *testing.T) {
	for _, good := range []string{
		"mysql://someone:secret@db/q", "mariadb://someone:se%40cret@db:3307/q?tls=true", "mysql://someone:secret@[::1]:3306/q?tls=false",
		"mysql://someone:secret@/q?socket=/run/mysqld/mysqld.sock", "mysql://someone@db/q?cluster=one-writer&tls=skip-verify",
	} {
		require.NoError(t, backends.Check(good), good)
		require.Empty(t, backends.File(good))
	}
	for wrong, want := range map[string]string{
		"mysql://someone:%zzsecret@db/q":                   "%25 is %",
		"mysql://someone:secret@db:port/q":                 "percent-encoded",
		"mysql://someone:secret@db:0/q":                    "percent-encoded",
		"mysql:someone:secret@db/q":                        "mysql://user:password@host:port/database",
		"mysql://db/q":                                     "names no user",
		"mysql://someone:secret@db":                        "names no database",
		"mysql://someone:secret@db/q/r":                    "want a name",
		"mysql://someone:secret@db/q%60":                   "want a name",
		"mysql://someone:secret@/q":                        "names no host",
		"mysql://someone:secret@db/q?socket=/x":            "one of the two",
		"mysql://someone:secret@db/q?sslmode=require":      `parameter "sslmode" of the URL is not known; there are tls, ca`,
		"mysql://someone:secret@db/q?tls=true&tls=false":   "twice",
		"mysql://someone:secret@db/q?tls=sometimes":        "want true, skip-verify, preferred or false",
		"mysql://someone:secret@db/q?ca=/nowhere/ca.pem":   "no such file",
		"mysql://someone:secret@db/q?cert=/nowhere/me.pem": "want both",
		"mysql://someone:secret@/q?socket=/x&tls=true":     "server-name",
		"mysql://someone:secret@db/q?cluster=many":         "one-writer",
	} {
		err := backends.Check(wrong)
		require.ErrorIs(t, err, backends.ErrURL, wrong)
		require.ErrorContains(t, err, want, wrong)
		require.NotContains(t, err.Error(), "secret", wrong)
	}
}

func TestOpen_MySQLHidesThePassword(t *testing.T) {
	s, err := backends.Open(t.Context(), "mysql://someone:secret@127.0.0.1:1/x", backends.Options{})
	require.Nil(t, s)
	require.ErrorIs(t, err, storage.ErrUnavailable)
	require.NotContains(t, err.Error(), "secret")
	require.NotContains(t, err.Error(), "someone")
}

func TestSQLServerURLs(t *testing.T) {
	for _, good := range []string{
		"sqlserver://someone:secret@db?database=q", "sqlserver://someone:se%40cret@db:1444?database=q&encrypt=strict",
		"sqlserver://someone:secret@db/INSTANCE?database=q&encrypt=true&trustservercertificate=true",
	} {
		require.NoError(t, backends.Check(good), good)
		require.Empty(t, backends.File(good))
	}
	for _, wrong := range []string{
		"sqlserver://someone:%zzsecret@db?database=q", "sqlserver://someone:secret@db", "sqlserver://someone:secret@db?database=q&sslmode=secret",
	} {
		err := backends.Check(wrong)
		require.ErrorIs(t, err, backends.ErrURL, wrong)
		require.NotContains(t, err.Error(), "secret", wrong)
	}
	for _, open := range []func() error{
		func() error {
			s, err := backends.Open(t.Context(), "sqlserver://someone:secret@127.0.0.1:1?database=q", backends.Options{})
			require.Nil(t, s)
			return err
		},
		func() error {
			_, err := backends.Migrate(t.Context(), "sqlserver://someone:secret@127.0.0.1:1?database=q", backends.Options{})
			return err
		},
	} {
		err := open()
		require.ErrorIs(t, err, storage.ErrUnavailable)
		require.NotContains(t, err.Error(), "secret")
		require.NotContains(t, err.Error(), "someone")
	}
}
