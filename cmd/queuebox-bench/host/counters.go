package host

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Counters reads what a database has done so far. It keeps one connection, to the database
// postgres, so that its own statements count for no contender.
type Counters struct{ conn *pgx.Conn }

// NewCounters connects.
func NewCounters(ctx context.Context, p *Postgres) (*Counters, error) {
	conn, err := pgx.Connect(ctx, p.URL("postgres"))
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	return &Counters{conn: conn}, nil
}

// Count is the state of the counters at one moment.
type Count struct {
	// Statements is the number of calls in the database by pg_stat_statements, BEGIN and COMMIT
	// among them.
	Statements int64
	// WAL is the place in the write-ahead log of the whole server, in bytes.
	WAL int64
}

// Read reads the counters.
func (c *Counters) Read(ctx context.Context, database string) (Count, error) {
	var n Count
	err := c.conn.QueryRow(ctx, `
		SELECT coalesce((SELECT sum(s.calls)::bigint FROM pg_stat_statements(false) s
		                 JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = $1), 0),
		       (pg_current_wal_insert_lsn() - '0/0')::bigint`, database).Scan(&n.Statements, &n.WAL)
	if err != nil {
		return Count{}, fmt.Errorf("counters of PostgreSQL: %w", err)
	}
	return n, nil
}

// Close ends the connection.
func (c *Counters) Close(ctx context.Context) { _ = c.conn.Close(ctx) }
