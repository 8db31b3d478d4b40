package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	driversqlite "modernc.org/sqlite"

	"github.com/queuebox/queuebox/storage"
)

// DefaultBusyTimeout bounds the wait for the write lock of another process.
const DefaultBusyTimeout = 5 * time.Second

// defaultReaders is enough for operators' calls and for the first look of claims;
// more readers only compete with the writer for the processor.
const defaultReaders = 4

// Config says which file to open and how.
type Config struct {
	// Path of the database file. Its directory must exist and be writable, since SQLite
	// keeps its log beside the file.
	Path string
	// Synchronous is FULL where it is empty. EXTRA is as safe; NORMAL and OFF lose
	// acknowledged writes at a power cut and need AllowUnsafeDurability.
	Synchronous string
	// AllowUnsafeDurability opens the file also where it may lose what it acknowledged. D9.
	AllowUnsafeDurability bool
	// BusyTimeout bounds the wait for the write lock of another process; 0 takes
	// DefaultBusyTimeout. A wait that takes longer is storage.ErrUnavailable.
	BusyTimeout time.Duration
	// Readers is the number of connections that read beside the writer; 0 takes 4.
	Readers int
	// Logger gets what no caller can be told; nil discards it.
	Logger *slog.Logger
	// ClockExpr replaces the clock expression in every statement. For tests alone: a
	// process that serves a queue with another clock than its neighbours breaks leases.
	ClockExpr string
}

// Store is a storage.Store on one SQLite file.
type Store struct {
	cfg     Config
	log     *slog.Logger
	queries map[query]string
	schema  int64
	// file is what was opened, to notice when the path names something else.
	file fs.FileInfo
	caps storage.Capabilities

	// What opens the connections that write, and those that read.
	writeConnector driver.Connector
	readConnector  driver.Connector

	writer *writer
	// readers holds the idle sessions that read; a nil one is opened on use.
	readers chan *session

	// busy remembers the queues whose last claim found messages: there the first look
	// without the write lock would be in vain.
	busy sync.Map

	// open is held for reading by every call, and for writing by Close.
	open   sync.RWMutex
	closed bool
}

var (
	_ storage.Store  = (*Store)(nil)
	_ storage.Upkeep = (*Store)(nil)
)

// Open opens the file, makes it where it is missing, and migrates it to the schema of
// this build. Errors: storage.ErrUnsafeDurability (D9), storage.ErrSchema for a schema
// that is newer than this build or a file that is not QueueBox's (D7),
// storage.ErrUnavailable where the file cannot be opened or is locked.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if _, err := Migrate(ctx, cfg); err != nil {
		return nil, err
	}
	queries, err := loadQueries(cfg.ClockExpr)
	if err != nil {
		return nil, err
	}
	// As SQLite syncs where a distribution built it: what fsync writes beyond, the time of the last
	// change, keeps no message, and a commit waited a seventh longer for it. Where the system does
	// not have it, fsync stays.
	if _, err := driversqlite.Fdatasync(true); err != nil && !errors.Is(err, driversqlite.ErrFdatasyncUnavailable) {
		return nil, fmt.Errorf("open %s: %w", cfg.Path, err)
	}
	s := &Store{
		cfg:     cfg,
		log:     cfg.Logger,
		queries: queries,
		readers: make(chan *session, cfg.Readers),
	}
	s.writer = newWriter(s)
	if s.schema, err = latestSchema(); err != nil {
		return nil, err
	}
	if s.writeConnector, err = driversqlite.NewConnector(cfg.dsn(false)); err != nil {
		return nil, fmt.Errorf("open %s: %w", cfg.Path, classify(err))
	}
	if s.readConnector, err = driversqlite.NewConnector(cfg.dsn(true)); err != nil {
		return nil, fmt.Errorf("open %s: %w", cfg.Path, classify(err))
	}
	for range cfg.Readers {
		s.readers <- nil
	}
	if err := s.prove(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	if s.file, err = os.Stat(cfg.Path); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("open %s: %w: %w", cfg.Path, storage.ErrUnavailable, err)
	}
	return s, nil
}

func (c Config) withDefaults() (Config, error) {
	if c.Path == "" || strings.HasPrefix(c.Path, ":memory:") {
		return c, fmt.Errorf("open sqlite: a file is needed, not %q", c.Path)
	}
	if c.Synchronous == "" {
		c.Synchronous = "FULL"
	}
	c.Synchronous = strings.ToUpper(c.Synchronous)
	switch c.Synchronous {
	case "EXTRA", "FULL", "NORMAL", "OFF":
	default:
		return c, fmt.Errorf("open sqlite: synchronous is one of EXTRA, FULL, NORMAL, OFF, not %q", c.Synchronous)
	}
	if c.BusyTimeout <= 0 {
		c.BusyTimeout = DefaultBusyTimeout
	}
	if c.Readers <= 0 {
		c.Readers = defaultReaders
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.ClockExpr == "" {
		c.ClockExpr = clockExpr
	}
	return c, nil
}

// dsn names the file and the settings of a connection. The name is escaped, since
// SQLite reads it as a URI.
func (c Config) dsn(readOnly bool) string {
	pragmas := []string{
		"busy_timeout(" + strconv.FormatInt(c.BusyTimeout.Milliseconds(), 10) + ")",
		"journal_mode(WAL)",
		"synchronous(" + c.Synchronous + ")",
		"temp_store(MEMORY)",
		"cache_size(-32768)",
		// 16 MiB: a page that many commits wrote is copied once.
		"wal_autocheckpoint(4000)",
		"journal_size_limit(67108864)",
		"trusted_schema(OFF)",
	}
	if readOnly {
		pragmas = append(pragmas, "query_only(ON)")
	}
	segments := strings.Split(filepath.ToSlash(c.Path), "/")
	for i, seg := range segments {
		segments[i] = url.PathEscape(seg)
	}
	return "file:" + strings.Join(segments, "/") + "?" + url.Values{"_pragma": pragmas}.Encode()
}

// prove opens the session that writes, and reads back what it really has: a setting that was
// asked for is not always had, WAL for one on a file system without shared memory.
func (s *Store) prove(ctx context.Context) error {
	c, err := s.openWriter(ctx)
	if err != nil {
		return err
	}
	s.writer.session = c
	var journal, version string
	var synchronous int
	for text, to := range map[query]any{
		"PRAGMA journal_mode": &journal, "PRAGMA synchronous": &synchronous, "SELECT sqlite_version()": &version,
	} {
		_, err := c.prepare(ctx, text, string(text))
		if err == nil {
			err = c.one(ctx, text, nil, to)
		}
		if err != nil {
			return fmt.Errorf("read settings of %s: %w", s.cfg.Path, classify(err))
		}
	}
	durability, err := judgeDurability(journal, synchronous, s.cfg.AllowUnsafeDurability)
	if err != nil {
		return err
	}
	s.caps = storage.Capabilities{
		Name:       "sqlite",
		ClockTick:  time.Millisecond,
		Durability: durability,
		Version:    version,
	}
	return nil
}

// judgeDurability says what an acknowledged write survives, or refuses (D9). Measured
// with cut power: FULL kept 300 of 300 writes, NORMAL 0 of 300.
func judgeDurability(journal string, synchronous int, allow bool) (string, error) {
	const full = 2
	var unsafe []string
	if !strings.EqualFold(journal, "wal") {
		unsafe = append(unsafe, "journal_mode="+journal+" (needs wal)")
	}
	if synchronous < full {
		name := "OFF"
		if synchronous == 1 {
			name = "NORMAL"
		}
		unsafe = append(unsafe, "synchronous="+name+" (needs FULL)")
	}
	if len(unsafe) == 0 {
		return "journal_mode=wal, synchronous=FULL: an acknowledged write survives a crash and a power cut", nil
	}
	what := strings.Join(unsafe, ", ")
	if !allow {
		return "", fmt.Errorf("%w: %s", storage.ErrUnsafeDurability, what)
	}
	return what + ": an acknowledged write may be lost at a power cut", nil
}

// Capabilities implements storage.Store.
func (s *Store) Capabilities() storage.Capabilities { return s.caps }

// Now implements storage.Store.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	var now time.Time
	err := s.read(ctx, "now", func(c *session) (err error) {
		now, err = c.now(ctx)
		return err
	})
	return now, err
}

// Ready implements storage.Store: the file answers, its schema is that of this build (D7),
// and it still lies at its path. SQLite itself goes on in a file that was deleted or
// replaced, and nobody would ever find what is written there.
func (s *Store) Ready(ctx context.Context) error {
	if err := s.atItsPath(); err != nil {
		return fmt.Errorf("ready: %w", err)
	}
	return s.read(ctx, "ready", func(c *session) error {
		var have int64
		if err := c.one(ctx, qSchemaVersion, nil, &have); err != nil {
			return err
		}
		return checkSchema(have, s.schema)
	})
}

// atItsPath tells whether the open file still lies at its path. SQLite itself does not
// look, and goes on writing where no other process will ever read.
func (s *Store) atItsPath() error {
	if file, err := os.Stat(s.cfg.Path); err != nil || !os.SameFile(file, s.file) {
		return fmt.Errorf("%w: the database file was moved, deleted or replaced; stop the server, bring the file back and start again",
			storage.ErrUnavailable)
	}
	return nil
}

// Notify implements storage.Store. Servers on one file find each other's messages by
// polling.
func (s *Store) Notify(context.Context, storage.Notice) error { return nil }

// Listen implements storage.Store; SQLite has no notifications.
func (s *Store) Listen(context.Context, func(storage.Notice), func(bool)) error {
	return fmt.Errorf("listen: %w", storage.ErrNotSupported)
}

// Close implements storage.Store. The last process to close the file moves the log
// into it.
func (s *Store) Close() error {
	s.open.Lock()
	defer s.open.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	for range cap(s.readers) {
		if c := <-s.readers; c != nil {
			errs = append(errs, c.close())
		}
	}
	errs = append(errs, s.writer.stop())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close %s: %w", s.cfg.Path, err)
	}
	return nil
}
