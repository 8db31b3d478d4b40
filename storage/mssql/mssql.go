package mssql

import (
	"context"
	"embed"
	"fmt"
	"log/slog"
	"time"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/rowlock"
)

//go:embed queries
var queries embed.FS

//go:embed checks/*.sql
var checks embed.FS

// clockExpr is the clock of the database; see the package comment.
const clockExpr = "CAST(SYSUTCDATETIME() AS datetime2(6))"

const defaultMaxConns = 10

// Config says how to open a store.
type Config struct {
	// URL of the database, sqlserver://user:password@host:port?database=name.
	URL string
	// MaxConns bounds the pool; 0 takes 10.
	MaxConns int
	// AllowUnsafeDurability starts although the database may lose what it acknowledged. D9.
	AllowUnsafeDurability bool
	// Migrate brings the schema up to date before the store opens.
	Migrate bool
	// Logger gets what no caller can be told; nil discards it.
	Logger *slog.Logger
	// ClockExpr replaces the clock expression in every statement, such as dbo.test_clock(), a
	// scalar function that gives a datetime2(6). For tests alone: it changes plans, and a
	// process that serves a queue with another clock than its neighbours breaks leases. It has
	// to be a function and not a subquery, which cannot stand in an aggregate.
	ClockExpr string
}

func (c Config) log() *slog.Logger {
	if c.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.Logger
}

// Open connects, checks what the contract wants of the database (version, settings, D7,
// D9), and returns the store.
func Open(ctx context.Context, c Config) (*rowlock.Store, error) {
	t, err := parseURL(c.URL)
	if err != nil {
		return nil, err
	}
	if c.Migrate {
		if _, _, err := Migrate(ctx, c); err != nil {
			return nil, err
		}
	}
	db := t.pool("")
	conns := defaultMaxConns
	if c.MaxConns > 0 {
		conns = c.MaxConns
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	db.SetConnMaxIdleTime(maxIdle)
	db.SetConnMaxLifetime(maxLife)
	s, err := func() (*rowlock.Store, error) {
		found, err := look(ctx, db)
		if err != nil {
			return nil, explain("open", err)
		}
		j, err := judge(found)
		if err != nil {
			return nil, fmt.Errorf("mssql: open: %w", err)
		}
		if j.unsafe != "" && !c.AllowUnsafeDurability {
			return nil, fmt.Errorf("mssql: open: %w: %s", storage.ErrUnsafeDurability, j.unsafe)
		}
		if j.foreign {
			c.log().WarnContext(ctx, "THIS IS NOT MICROSOFT'S SQL SERVER: whether it keeps the promises of QueueBox, "+
				"most of all that two workers never hold one message, is not known", "version", found.version)
		}
		s, err := rowlock.New(db, engine(c), rowlock.Options{
			Capabilities: storage.Capabilities{
				Name:       "mssql",
				ClockTick:  time.Microsecond,
				RowLocks:   true,
				OddKeyed:   true,
				Durability: j.durability,
				Version:    found.product,
			},
			Schema:        schemaVersion,
			SchemaVersion: readVersion,
		}, c.log())
		if err != nil {
			return nil, err
		}
		return s, s.Ready(ctx)
	}()
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return s, nil
}

// engine is what this package brings to rowlock.
func engine(c Config) *rowlock.Engine {
	now := clockExpr
	if c.ClockExpr != "" {
		now = c.ClockExpr
	}
	return &rowlock.Engine{
		Name:       "mssql",
		Queries:    queries,
		Now:        now,
		Compile:    compile,
		Begin:      begin,
		CountByRow: true,
		ClaimLock:  new(gates).lock,
		Insert:     insert,
		Values:     values{},
		Errors:     meaning{},
	}
}

// readVersion reads the version of the schema.
func readVersion(ctx context.Context, q rowlock.Querier) (version int64, err error) {
	text, err := checks.ReadFile("checks/schema.sql")
	if err != nil {
		return 0, err
	}
	err = single(ctx, q, string(text), &version)
	if number(err) == errNoTable {
		return 0, storage.ErrNoSchema
	}
	return version, err
}
