// Package postgres keeps queues in PostgreSQL 14 to 18, through pgx, natively: no
// database/sql on any path but migrations. Read queries/claim.sql and
// queries/settle.sql first; the Go around them binds, runs and reads rows. The layout
// and its reasons stand in docs/adr/0002-postgres-layout.md.
//
// All objects lie in the schema queuebox and every statement names it, so that the
// role's search path does not matter. Isolation level, time zone and planner settings
// of the role do not matter either: each session sets what it needs, or, behind a
// transaction-mode pooler (pooler=transaction in the URL), each transaction does.
package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/slowlane"
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
	// Logger, where set, hears of what goes on without a caller: lost notification
	// connections, partitions that could not be made.
	Logger *slog.Logger
	// TestClock, for tests only, is the schema that holds functions clock_timestamp and
	// statement_timestamp to call in place of those of the database.
	TestClock string
}

const (
	defaultMaxConns = 10
	minVersion      = 140000
	// slowLanes bounds how many connections wait for rows that somebody else holds: the
	// pool belongs to those who need not wait.
	slowLanes = 2
	// followLanes bounds how many completions with follow-ups run at a time.
	followLanes = 4
)

// Store is a queue in PostgreSQL.
type Store struct {
	pool   *pgxpool.Pool
	sql    statements
	pooled bool
	listen *pgx.ConnConfig // nil where LISTEN is not possible
	log    *slog.Logger
	caps   storage.Capabilities
	slow   slowlane.Lane // for what somebody else holds
	follow slowlane.Lane // for completions with follow-ups
	denied sync.Once     // the warning that this role may not make partitions
	// limited are the queues that had a limit when they were last claimed from: which way to
	// try first. The statements decide, never this.
	limited queueSet
	// whole are the queues whose last claim by claim_ready.sql found nothing: they are claimed from
	// by claim.sql until that finds what the other would have leased.
	whole queueSet

	retainLock sync.Mutex // over retainKeys
	retainKeys keyPass

	keyUse  keyUse
	keyCost time.Duration // keyCost, but in tests
	// What the passes over all messages and all keys leave out.
	emptyMessages, emptyKeys *stretches

	incomingBound, markedBound *ownBound

	vacuumOnce sync.Once
	vacuums    vacuums
	stopVacuum func() // nil where nothing vacuums
}

var (
	_ storage.Store  = (*Store)(nil)
	_ storage.Upkeep = (*Store)(nil)
	_ storage.Own    = (*Store)(nil)

	_ storage.Vacuumer = (*Store)(nil)
)

// ErrNoSchema tells a database without tables of ours: migrate makes them. It matches
// storage.ErrSchema.
var ErrNoSchema = storage.ErrNoSchema

// Open connects, checks what the contract wants of the database (version, encoding, D7,
// D9), and returns the store.
func Open(ctx context.Context, c Config) (*Store, error) {
	t, err := parseURL(c.URL)
	if err != nil {
		return nil, err
	}
	s := &Store{
		pooled: t.pooled, log: loggerOf(c),
		slow: slowlane.New(slowLanes, lockWait+lockWait/2), follow: slowlane.New(followLanes, 0),
		incomingBound: newOwnBound(), markedBound: newOwnBound(),
		emptyMessages: newStretches(), emptyKeys: newStretches(), keyCost: keyCost,
	}
	if s.sql, err = loadStatements(c.TestClock); err != nil {
		return nil, err
	}
	listen := t
	if c.ListenURL != "" {
		if listen, err = parseURL(c.ListenURL); err != nil {
			return nil, fmt.Errorf("listen URL: %w", err)
		}
	}
	if !listen.pooled {
		s.listen = listen.connConfig()
	}
	if c.Migrate {
		if _, _, err := Migrate(ctx, c); err != nil {
			return nil, err
		}
	}
	t.config.MaxConns = defaultMaxConns
	if c.MaxConns > 0 {
		t.config.MaxConns = int32(c.MaxConns)
	}
	t.config.AfterConnect = setUp(t.pooled)
	t.config.PingTimeout = time.Second
	t.config.ConnConfig.BuildContextWatcherHandler = cancelOnContext
	if t.pooled {
		t.config.ConnConfig.BuildContextWatcherHandler = finishOnContext
	}
	if s.pool, err = pgxpool.NewWithConfig(ctx, t.config); err != nil {
		return nil, classify("open", &connectError{err: err}, false)
	}
	if err := s.preflight(ctx, c.AllowUnsafeDurability); err != nil {
		s.pool.Close()
		return nil, err
	}
	return s, nil
}

// preflight is what Open asks the database.
func (s *Store) preflight(ctx context.Context, allowUnsafe bool) error {
	var (
		number                       int32
		version, encoding            string
		fsync, pages, commit, unsafe string
		schema                       bool
	)
	err := s.read(ctx, "open", step{sql: s.sql.durability, scan: one(func(r pgx.Rows) error {
		return r.Scan(&number, &version, &encoding, &fsync, &pages, &commit, &schema)
	})})
	if err != nil {
		return err
	}
	if number < minVersion {
		return fmt.Errorf("postgres: open: the server is version %s, want 14 or later", version)
	}
	if encoding != "UTF8" {
		return fmt.Errorf("postgres: open: the encoding of the database is %s, want UTF8", encoding)
	}
	for _, setting := range []struct{ name, value string }{
		{"fsync", fsync}, {"full_page_writes", pages}, {"synchronous_commit", commit},
	} {
		if setting.value == "off" {
			unsafe = setting.name
			if !allowUnsafe {
				return fmt.Errorf("postgres: open: %w: %s is off", storage.ErrUnsafeDurability, setting.name)
			}
		}
	}
	if !schema {
		return fmt.Errorf("postgres: open: %w", ErrNoSchema)
	}
	if err := s.Ready(ctx); err != nil {
		return err
	}
	s.caps = storage.Capabilities{
		Name:          "postgres",
		ClockTick:     time.Microsecond,
		Notifications: s.listen != nil,
		RowLocks:      true,
		OddKeyed:      true,
		Durability:    "durable: an acknowledged write survives a crash of the database and a power cut (fsync on, synchronous_commit " + commit + ")",
		Version:       version,
	}
	if unsafe != "" {
		s.caps.Durability = "UNSAFE: an acknowledged write may be lost (" + unsafe + " off)"
	}
	return nil
}

// GoString keeps the inside of a store, statements and addresses, out of logs.
func (s *Store) GoString() string { return "postgres.Store" }

// Capabilities implements storage.Store.
func (s *Store) Capabilities() storage.Capabilities { return s.caps }

// Now implements storage.Store.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	var now time.Time
	err := s.read(ctx, "now", step{sql: s.sql.now, scan: one(func(r pgx.Rows) error { return r.Scan(&now) })})
	return now.UTC(), err
}

// Ready implements storage.Store. D7.
func (s *Store) Ready(ctx context.Context) error {
	var version *int64
	err := s.read(ctx, "ready", step{sql: s.sql.ready, scan: one(func(r pgx.Rows) error { return r.Scan(&version) })})
	if err != nil {
		return err
	}
	if version == nil || *version != schemaVersion {
		var have int64
		if version != nil {
			have = *version
		}
		return fmt.Errorf("postgres: ready: %w: the database has %d, this build works with %d", storage.ErrSchema, have, schemaVersion)
	}
	return nil
}

// Close implements storage.Store.
func (s *Store) Close() error {
	s.vacuumOnce.Do(func() {}) // nothing is started any more
	if s.stopVacuum != nil {
		s.stopVacuum()
	}
	s.pool.Close()
	return nil
}

// one reads exactly one row.
func one(scan func(pgx.Rows) error) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		if !rows.Next() {
			if err := rows.Err(); err != nil {
				return err
			}
			return pgx.ErrNoRows
		}
		return scan(rows)
	}
}

// each reads all rows. reset runs first, since a transaction can run again.
func each(reset func(), scan func(pgx.Rows) error) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		if reset != nil {
			reset()
		}
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}

// utc gives a time as the seam wants it; null is the zero time.
func utc(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// nullTime is the other way.
func nullTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	kept := t // not t itself, which would be put on the heap for the zero ones too
	return &kept
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
