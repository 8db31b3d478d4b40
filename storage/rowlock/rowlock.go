package rowlock

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/slowlane"
)

// Store implements storage.Store on an engine.
type Store struct {
	db         *sql.DB
	engine     *Engine
	options    Options
	statements map[statement]compiled
	log        *slog.Logger
	slow       slowlane.Lane // for what somebody else holds
	follow     slowlane.Lane // for completions with follow-ups
	floors     floors

	// Where the scans of what transactions of others left start.
	incomingBound, markedBound *ownBound

	closeOnce sync.Once
	closed    error
}

var _ storage.Store = (*Store)(nil)

const (
	// lockWait is how long a session waits for a lock of another one; the engines set it.
	lockWait = 2 * time.Second
	// slowLanes bounds the transactions that wait for rows, and followLanes those that complete
	// with follow-ups, each of them over all calls of the store.
	slowLanes   = 4
	followLanes = 4
)

// New makes a store on an open database. Close closes the database.
func New(db *sql.DB, e *Engine, o Options, log *slog.Logger) (*Store, error) {
	statements, err := load(e)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Name, err)
	}
	return &Store{
		db: db, engine: e, options: o, statements: statements, log: log,
		slow: slowlane.New(slowLanes, lockWait+lockWait/2), follow: slowlane.New(followLanes, 0),
		incomingBound: newOwnBound(), markedBound: newOwnBound(),
	}, nil
}

// GoString keeps the inside of a store, statements and addresses, out of logs.
func (s *Store) GoString() string { return s.engine.Name + ".Store" }

// Capabilities implements storage.Store.
func (s *Store) Capabilities() storage.Capabilities { return s.options.Capabilities }

// Now implements storage.Store.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	var now time.Time
	err := s.read(ctx, "now", func(c *session) (err error) {
		now, err = c.now(ctx)
		return err
	})
	return now, err
}

// Ready implements storage.Store: the database answers and has the schema of this build (D7).
func (s *Store) Ready(ctx context.Context) error {
	return s.read(ctx, "ready", func(c *session) error {
		have, err := s.options.SchemaVersion(ctx, c.q)
		if err != nil {
			return err
		}
		return CheckSchema(have, s.options.Schema)
	})
}

// CheckSchema refuses every version but that of this build. D7.
func CheckSchema(have, want int64) error {
	if have == want {
		return nil
	}
	return fmt.Errorf("%w: the database has version %d, this build works with %d", storage.ErrSchema, have, want)
}

// Notify implements storage.Store. These engines have no notifications: servers find each
// other's messages by polling.
func (s *Store) Notify(context.Context, storage.Notice) error { return nil }

// Listen implements storage.Store.
func (s *Store) Listen(context.Context, func(storage.Notice), func(bool)) error {
	return fmt.Errorf("%s: listen: %w", s.engine.Name, storage.ErrNotSupported)
}

// Close implements storage.Store.
func (s *Store) Close() error {
	s.closeOnce.Do(func() { s.closed = s.db.Close() })
	return s.closed
}
