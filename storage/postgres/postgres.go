// Package postgres keeps queues in PostgreSQL 14 to 18.
package postgres

import (
	"context"
	"errors"
	"log/slog"

	"github.com/queuebox/queuebox/storage"
)

// Config says how to open a store.
type Config struct {
	// URL of the database, postgres:// or postgresql://. The parameter
	// pooler=transaction says that a transaction-mode pooler stands in front of it.
	URL string
	// ListenURL is a direct address for LISTEN, beside a pooler; empty takes URL.
	ListenURL string
	// MaxConns bounds the pool; 0 takes 10.
	MaxConns int
	// AllowUnsafeDurability starts although the database may lose what it acknowledged. D9.
	AllowUnsafeDurability bool
	// Migrate brings the schema up to date before the store opens.
	Migrate bool
	Logger  *slog.Logger
	// TestClock, for tests only, is the schema that holds functions clock_timestamp and
	// statement_timestamp to call in place of those of the database.
	TestClock string
}

// Store is a queue in PostgreSQL.
type Store struct{ storage.Store }

// Open opens the store.
func Open(context.Context, Config) (*Store, error) { return nil, errors.ErrUnsupported }

// Migrate brings the schema up to date and tells the versions before and after.
func Migrate(context.Context, Config) (from, to int64, err error) {
	return 0, 0, errors.ErrUnsupported
}
