package mysql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"
	"slices"
	"testing"

	drivermysql "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/internal/testdb"
	"github.com/queuebox/queuebox/storage/storagetest"
)

// ownClock is the clock of the procedures that a stranger calls. It may be read in a
// transaction that stays open at any isolation level, so it must not lock the row that it
// reads, and yet see the newest one: a table without transactions does that.
var ownClock = []string{
	"CREATE TABLE test_own_clock (now DATETIME(6) NOT NULL) ENGINE=MyISAM",
	"INSERT INTO test_own_clock (now) VALUES ('2030-01-02 03:04:05.678901')",
	"CREATE FUNCTION test_own_now() RETURNS DATETIME(6) NOT DETERMINISTIC READS SQL DATA RETURN (SELECT now FROM test_own_clock)",
}

// strangers opens sessions as a program has them that shares the database: with the defaults of
// the driver, which prepares its statements, and in a time zone of its own.
func (d *database) strangers(t testing.TB) *sql.DB {
	t.Helper()
	u, err := url.Parse(d.url)
	require.NoError(t, err)
	c := testdb.MySQLConfig(u)
	c.DBName = ""
	c.Params = map[string]string{"time_zone": "'+05:45'"}
	connector, err := drivermysql.NewConnector(c)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// stranger opens one of them. It is noted before it uses the database, so that sever leaves it
// alone.
func (d *database) stranger(t require.TestingT, db *sql.DB) *sql.Conn {
	ctx := context.Background()
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	var id int64
	require.NoError(t, conn.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id))
	d.lock.Lock()
	d.own = append(d.own, id)
	d.lock.Unlock()
	_, err = conn.ExecContext(ctx, "USE "+d.name)
	require.NoError(t, err)
	return conn
}

// ownSessions gives the suite sessions outside the store.
func (d *database) ownSessions(t testing.TB) *storagetest.OwnSessions {
	t.Helper()
	db := d.strangers(t)
	number := func(err error, numbers ...uint16) bool {
		e, ok := errors.AsType[*drivermysql.MySQLError](err)
		return ok && slices.Contains(numbers, e.Number)
	}
	return &storagetest.OwnSessions{
		Levels: []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"},
		Begin: func(t require.TestingT, level string) storagetest.OwnSession {
			conn := d.stranger(t, db)
			for _, text := range []string{"SET SESSION TRANSACTION ISOLATION LEVEL " + level, "START TRANSACTION"} {
				_, err := conn.ExecContext(context.Background(), text)
				require.NoError(t, err)
			}
			return &ownSession{conn: conn}
		},
		Exec: func(t require.TestingT, text string) {
			conn := d.stranger(t, db)
			defer func() { _ = conn.Close() }()
			_, err := conn.ExecContext(context.Background(), text)
			require.NoError(t, err)
		},
		// A deadlock, a lock that was not had in time, and a row that has changed since the
		// snapshot of the transaction (innodb_snapshot_isolation of MariaDB).
		Conflict: func(err error) bool { return number(err, 1213, 1205, 1020) },
		Refused:  func(err error) bool { return number(err, 1644) },
	}
}

// ownSession is a session of a worker that shares the database.
type ownSession struct{ conn *sql.Conn }

func (s *ownSession) Query(text string, args ...any) ([][]string, error) {
	rows, err := s.conn.QueryContext(context.Background(), text, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var out [][]string
	for rows.Next() {
		values := make([]any, len(names))
		for i := range values {
			values[i] = new(any)
		}
		if err := rows.Scan(values...); err != nil {
			return nil, err
		}
		row := make([]string, len(names))
		for i := range values {
			if v := *values[i].(*any); v != nil {
				row[i] = asText(v)
			}
		}
		out = append(out, row)
	}
	return out, rows.Err()
}

func (s *ownSession) end(text string) error {
	_, err := s.conn.ExecContext(context.Background(), text)
	if err != nil {
		s.drop()
		return err
	}
	return s.conn.Close()
}

// drop closes the connection for good.
func (s *ownSession) drop() {
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = s.conn.Close()
}

func (s *ownSession) Commit() error   { return s.end("COMMIT") }
func (s *ownSession) Rollback() error { return s.end("ROLLBACK") }

// Kill breaks the session off. The server notices by itself.
func (s *ownSession) Kill() { s.drop() }
