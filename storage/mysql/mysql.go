package mysql

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/rowlock"
)

//go:embed queries
var queries embed.FS

// clockExpr is the clock of the database; see the package comment.
const clockExpr = "SYSDATE(6)"

// ownClockExpr is the clock of the procedures that others call (E12), in a session whose time
// zone is theirs: the time of the statement in UTC, and what has passed since by the clock
// that goes on.
const ownClockExpr = "UTC_TIMESTAMP(6) + INTERVAL TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)) MICROSECOND"

const defaultMaxConns = 10

var plainName = regexp.MustCompile(`^[A-Za-z0-9_]+$`)

// Config says how to open a store.
type Config struct {
	// URL of the database, mysql:// or mariadb://.
	URL string
	// MaxConns bounds the pool; 0 takes 10.
	MaxConns int
	// AllowUnsafeDurability starts although the database may lose what it acknowledged. D9.
	AllowUnsafeDurability bool
	// Migrate brings the schema up to date before the store opens.
	Migrate bool
	// Logger gets what no caller can be told; nil discards it.
	Logger *slog.Logger
	// ClockExpr replaces the clock expression in every statement. For tests alone: a
	// process that serves a queue with another clock than its neighbours breaks leases.
	ClockExpr string
	// OwnClockExpr is the same for the procedures that Migrate makes. For tests alone.
	OwnClockExpr string
}

func (c Config) ownClock() string {
	if c.OwnClockExpr != "" {
		return c.OwnClockExpr
	}
	return ownClockExpr
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
	found, err := look(ctx, t)
	if err != nil {
		return nil, explain("open", err)
	}
	verdict, err := judge(found, t)
	if err != nil {
		return nil, fmt.Errorf("mysql: open: %w", err)
	}
	if verdict.unsafe != "" && !c.AllowUnsafeDurability {
		return nil, fmt.Errorf("mysql: open: %w: %s", storage.ErrUnsafeDurability, verdict.unsafe)
	}
	db, err := t.pool(found.maxPacket)
	if err != nil {
		return nil, err
	}
	conns := defaultMaxConns
	if c.MaxConns > 0 {
		conns = c.MaxConns
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	db.SetConnMaxIdleTime(maxIdle)
	db.SetConnMaxLifetime(maxLife)
	s, err := rowlock.New(db, engine(c, t.config.DBName), rowlock.Options{
		Capabilities: storage.Capabilities{
			Name:       "mysql",
			ClockTick:  time.Microsecond,
			RowLocks:   true,
			OddKeyed:   true,
			Durability: verdict.durability,
			Version:    found.version,
			MaxPayload: maxPayload(found.maxPacket),
		},
		Schema:        schemaVersion,
		SchemaVersion: readVersion,
	}, c.log())
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	if err := s.Ready(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// maxPayload is the largest payload or result that fits into a packet. A value that the text of
// a statement has no room for is sent as a packet of its own; a result is hexadecimal there,
// in a list with the id and the token of its message.
func maxPayload(maxPacket int) int64 {
	const beside = 1 << 10
	return int64(maxPacket-beside) / 2
}

// engine is what this package brings to rowlock.
func engine(c Config, database string) *rowlock.Engine {
	now := clockExpr
	if c.ClockExpr != "" {
		now = c.ClockExpr
	}
	qualifier := ""
	if plainName.MatchString(database) {
		// A name of other characters could not stand in a text that clients put placeholders of
		// their own into.
		qualifier = "`" + database + "`."
	}
	return &rowlock.Engine{
		Name:    "mysql",
		Queries: queries,
		Now:     now,
		Compile: rowlock.Positional,
		Begin:   begin,
		Insert:  insert,
		// With ClientFoundRows it counts as the driver does: what was found, changed or not.
		MatchedRows: "SELECT ROW_COUNT()",
		Qualifier:   qualifier,
		Values:      values{},
		Errors:      meaning{},
	}
}

// readVersion reads the version of the schema.
func readVersion(ctx context.Context, q rowlock.Querier) (version int64, err error) {
	rows, err := q.QueryContext(ctx, "SELECT COALESCE(MAX(version_id), 0) FROM "+versionTable)
	if number(err) == errNoSuchTable {
		return 0, storage.ErrNoSchema
	}
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := rows.Scan(&version); err != nil {
			return 0, err
		}
	}
	return version, rows.Err()
}

// single reads one row outside the store.
func single(ctx context.Context, conn *sql.Conn, text string, args []any, dest ...any) error {
	return conn.QueryRowContext(ctx, text, args...).Scan(dest...)
}
