// Package backends opens the store that a URL names. It is the one package that imports
// all drivers; only cmd and tests import it.
//
// The URLs are sqlite:///absolute/path, sqlite://relative/path, postgres:// or
// postgresql:// as PostgreSQL knows them, mysql:// or mariadb:// as
// mysql://user:password@host:port/database, and
// sqlserver://user:password@host:port?database=name.
package backends

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/mssql"
	"github.com/queuebox/queuebox/storage/mysql"
	"github.com/queuebox/queuebox/storage/postgres"
	"github.com/queuebox/queuebox/storage/sqlite"
)

// ErrURL tells a storage URL that is not understood. Its text holds no secrets.
var ErrURL = errors.New("storage URL")

// ErrNoSchema tells a database without tables of ours, where migrate has to be run first. It
// matches storage.ErrSchema.
var ErrNoSchema = storage.ErrNoSchema

// Options of Open and Migrate.
type Options struct {
	// AllowUnsafeDurability opens a database that may lose what it acknowledged. D9.
	AllowUnsafeDurability bool
	// Migrate brings the schema up to date at Open. SQLite always does.
	Migrate bool
	// ListenURL is a direct address for notifications, beside a pooler (W6).
	ListenURL string
	// MaxConns bounds the connections; 0 takes the default of the backend.
	MaxConns int
	// Logger gets what no caller can be told; nil discards it.
	Logger *slog.Logger
}

// MigrateResult tells the schema versions before and after.
type MigrateResult struct {
	From int64
	To   int64
}

// Open opens the store that the URL names.
func Open(ctx context.Context, storageURL string, o Options) (storage.Store, error) {
	switch scheme(storageURL) {
	case "sqlite":
		cfg, err := sqliteConfig(storageURL, o)
		if err != nil {
			return nil, err
		}
		s, err := sqlite.Open(ctx, cfg)
		if err != nil {
			return nil, err
		}
		return s, nil
	case "postgres", "postgresql":
		s, err := postgres.Open(ctx, postgresConfig(storageURL, o))
		if err != nil {
			return nil, err
		}
		return s, nil
	case "mysql", "mariadb":
		s, err := mysql.Open(ctx, mysqlConfig(storageURL, o))
		if err != nil {
			return nil, err
		}
		return s, nil
	case "sqlserver":
		s, err := mssql.Open(ctx, mssqlConfig(storageURL, o))
		if err != nil {
			return nil, err
		}
		return s, nil
	default:
		return nil, unknownScheme(storageURL)
	}
}

// Migrate brings the schema of the database that the URL names up to date.
func Migrate(ctx context.Context, storageURL string, o Options) (MigrateResult, error) {
	switch scheme(storageURL) {
	case "sqlite":
		cfg, err := sqliteConfig(storageURL, o)
		if err != nil {
			return MigrateResult{}, err
		}
		res, err := sqlite.Migrate(ctx, cfg)
		return MigrateResult(res), err
	case "postgres", "postgresql":
		from, to, err := postgres.Migrate(ctx, postgresConfig(storageURL, o))
		return MigrateResult{From: from, To: to}, err
	case "mysql", "mariadb":
		from, to, err := mysql.Migrate(ctx, mysqlConfig(storageURL, o))
		return MigrateResult{From: from, To: to}, err
	case "sqlserver":
		from, to, err := mssql.Migrate(ctx, mssqlConfig(storageURL, o))
		return MigrateResult{From: from, To: to}, err
	default:
		return MigrateResult{}, unknownScheme(storageURL)
	}
}

// Check tells whether a URL can be opened, as far as its text tells; its error matches ErrURL.
func Check(storageURL string) error {
	switch scheme(storageURL) {
	case "sqlite":
		_, err := sqliteConfig(storageURL, Options{})
		return err
	case "postgres", "postgresql":
		if err := postgres.CheckURL(storageURL); err != nil {
			return fmt.Errorf("%w: %w", ErrURL, err)
		}
		return nil
	case "mysql", "mariadb":
		if err := mysql.CheckURL(storageURL); err != nil {
			return fmt.Errorf("%w: %w", ErrURL, err)
		}
		return nil
	case "sqlserver":
		if err := mssql.CheckURL(storageURL); err != nil {
			return fmt.Errorf("%w: %w", ErrURL, err)
		}
		return nil
	default:
		return unknownScheme(storageURL)
	}
}

// File returns the path of the file that a URL of SQLite names, empty for other databases and
// where Check finds a mistake.
func File(storageURL string) string {
	if scheme(storageURL) != "sqlite" {
		return ""
	}
	cfg, err := sqliteConfig(storageURL, Options{})
	if err != nil {
		return ""
	}
	return cfg.Path
}

func scheme(storageURL string) string {
	s, _, ok := strings.Cut(storageURL, ":")
	if !ok {
		return ""
	}
	return strings.ToLower(s)
}

// unknownScheme names the scheme alone, since the rest may hold a password. What looks like
// the name of a file is no secret, and the most common slip.
func unknownScheme(storageURL string) error {
	if scheme(storageURL) == "" && !strings.ContainsAny(storageURL, " @=?") {
		switch filepath.Ext(storageURL) {
		case ".db", ".sqlite", ".sqlite3":
			return fmt.Errorf("%w: the scheme is missing; for the SQLite file write sqlite://%s", ErrURL, storageURL)
		}
	}
	return fmt.Errorf("%w: scheme %q is not one of sqlite, postgres, postgresql, mysql, mariadb, sqlserver; "+
		"write it as in mysql://user:password@host:port/database or sqlserver://user:password@host:port?database=name", ErrURL, scheme(storageURL))
}

func postgresConfig(storageURL string, o Options) postgres.Config {
	return postgres.Config{
		URL:                   storageURL,
		ListenURL:             o.ListenURL,
		MaxConns:              o.MaxConns,
		AllowUnsafeDurability: o.AllowUnsafeDurability,
		Migrate:               o.Migrate,
		Logger:                o.Logger,
	}
}

func mysqlConfig(storageURL string, o Options) mysql.Config {
	return mysql.Config{
		URL:                   storageURL,
		MaxConns:              o.MaxConns,
		AllowUnsafeDurability: o.AllowUnsafeDurability,
		Migrate:               o.Migrate,
		Logger:                o.Logger,
	}
}

func mssqlConfig(storageURL string, o Options) mssql.Config {
	return mssql.Config{
		URL:                   storageURL,
		MaxConns:              o.MaxConns,
		AllowUnsafeDurability: o.AllowUnsafeDurability,
		Migrate:               o.Migrate,
		Logger:                o.Logger,
	}
}

// sqliteConfig reads sqlite:///absolute/path and sqlite://relative/path. The path is
// taken as it stands but for percent escapes, so that a host part is no special case. The
// one parameter is synchronous.
func sqliteConfig(storageURL string, o Options) (sqlite.Config, error) {
	rest, ok := strings.CutPrefix(storageURL[len("sqlite:"):], "//")
	if !ok {
		return sqlite.Config{}, fmt.Errorf("%w: write sqlite:///absolute/path or sqlite://relative/path", ErrURL)
	}
	rawPath, rawQuery, _ := strings.Cut(rest, "?")
	path, err := url.PathUnescape(rawPath)
	if err != nil {
		return sqlite.Config{}, fmt.Errorf("%w: path: %w; a %% that belongs to the name is written %%25", ErrURL, err)
	}
	if path == "" || strings.Contains(path, ":memory:") {
		return sqlite.Config{}, fmt.Errorf("%w: sqlite needs a file; memory would lose what was acknowledged", ErrURL)
	}
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return sqlite.Config{}, fmt.Errorf("%w: parameters: %w", ErrURL, err)
	}
	for key := range query {
		if key != "synchronous" {
			return sqlite.Config{}, fmt.Errorf("%w: parameter %q is not known; sqlite knows synchronous", ErrURL, key)
		}
	}
	switch strings.ToUpper(query.Get("synchronous")) {
	case "", "EXTRA", "FULL", "NORMAL", "OFF":
	default:
		return sqlite.Config{}, fmt.Errorf("%w: synchronous is one of EXTRA, FULL, NORMAL, OFF", ErrURL)
	}
	return sqlite.Config{
		Path:                  path,
		Synchronous:           query.Get("synchronous"),
		AllowUnsafeDurability: o.AllowUnsafeDurability,
		Logger:                o.Logger,
	}, nil
}
