package mssql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"time"

	mssqldb "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage/storagetest"
)

// levels are those at which a worker may have his transaction (E12), SNAPSHOT among them.
var levels = map[string]sql.IsolationLevel{
	"READ COMMITTED":  sql.LevelReadCommitted,
	"REPEATABLE READ": sql.LevelRepeatableRead,
	"SERIALIZABLE":    sql.LevelSerializable,
	"SNAPSHOT":        sql.LevelSnapshot,
}

// own gives the suite sessions outside the store.
func (d *database) own() *storagetest.OwnSessions {
	is := func(err error, numbers ...int32) bool {
		e, ok := errors.AsType[mssqldb.Error](err)
		return ok && slices.Contains(numbers, e.Number)
	}
	return &storagetest.OwnSessions{
		Levels: []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE", "SNAPSHOT"},
		Begin: func(t require.TestingT, level string) storagetest.OwnSession {
			ctx := context.Background()
			conn, err := d.db.Conn(ctx)
			require.NoError(t, err)
			tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: levels[level]})
			require.NoError(t, err)
			return &ownSession{conn: conn, tx: tx}
		},
		Exec: func(t require.TestingT, text string) { d.exec(t, text) },
		// A victim of a deadlock, and a row that was changed since the snapshot.
		Conflict: func(err error) bool { return is(err, 1205, 3960) },
		// A constraint, a null, a text that is too long or cannot be converted, JSON that is
		// none, and what a statement says itself.
		Refused: func(err error) bool {
			return is(err, 547, 515, 2628, 8152, 8114, 8115, 8169, 245, 241, 242, 13608, 13609, 13614, 50000)
		},
	}
}

// ownSession is a session of a worker that shares the database.
type ownSession struct {
	conn *sql.Conn
	tx   *sql.Tx
}

func (s *ownSession) Query(text string, args ...any) ([][]string, error) {
	rows, err := s.tx.QueryContext(context.Background(), text, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var out [][]string
	for {
		names, err := rows.Columns()
		if err != nil {
			return nil, err
		}
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
				switch v := (*values[i].(*any)).(type) { //nolint:forcetypeassert // It was put there above.
				case nil:
				case []byte:
					row[i] = string(v)
				case time.Time:
					row[i] = v.UTC().Format(time.RFC3339Nano)
				default:
					row[i] = fmt.Sprint(v)
				}
			}
			out = append(out, row)
		}
		if !rows.NextResultSet() {
			return out, rows.Err()
		}
	}
}

func (s *ownSession) Commit() error {
	defer func() { _ = s.conn.Close() }()
	return s.tx.Commit()
}

func (s *ownSession) Rollback() error {
	defer func() { _ = s.conn.Close() }()
	return s.tx.Rollback()
}

// Kill breaks the connection without a word to the database.
func (s *ownSession) Kill() {
	_ = s.conn.Raw(func(conn any) error { return conn.(driver.Conn).Close() }) //nolint:forcetypeassert // It is the driver's.
	_ = s.tx.Rollback()                                                        // of a connection that is gone
	_ = s.conn.Close()
}
