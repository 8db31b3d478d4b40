package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/stretchr/testify/require"
	driversqlite "modernc.org/sqlite"

	"github.com/queuebox/queuebox/storage/storagetest"
)

// ownSessions gives the suite sessions on the file beside the stores, each with a connection
// of its own, as another process has them.
func ownSessions(path string) *storagetest.OwnSessions {
	open := func(t require.TestingT) *sql.DB {
		db, err := sql.Open("sqlite", "file:"+url.PathEscape(path)+"?_pragma=busy_timeout(20000)")
		require.NoError(t, err)
		return db
	}
	code := func(err error) int {
		e, ok := errors.AsType[*driversqlite.Error](err)
		if !ok {
			return 0
		}
		return e.Code() & 0xff
	}
	return &storagetest.OwnSessions{
		Levels: []string{"IMMEDIATE"},
		Begin: func(t require.TestingT, _ string) storagetest.OwnSession {
			db := open(t)
			conn, err := db.Conn(context.Background())
			require.NoError(t, err)
			return &ownSession{db: db, conn: conn}
		},
		Exec: func(t require.TestingT, text string) {
			db := open(t)
			_, err := db.ExecContext(context.Background(), text)
			require.NoError(t, err)
			require.NoError(t, db.Close())
		},
		Conflict: func(err error) bool { return code(err) == 5 || code(err) == 6 },
		Refused: func(err error) bool {
			const sqliteError, sqliteConstraint = 1, 19 // malformed JSON is the former
			return code(err) == sqliteConstraint || code(err) == sqliteError && strings.Contains(err.Error(), "JSON")
		},
	}
}

// ownSession begins with its first statement, so that the suite can hold one open and look at
// what others do before it has written anything.
type ownSession struct {
	db    *sql.DB
	conn  *sql.Conn
	begun bool
}

func (s *ownSession) Query(text string, args ...any) ([][]string, error) {
	ctx := context.Background()
	if !s.begun {
		if _, err := s.conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
			return nil, err
		}
		s.begun = true
	}
	rows, err := s.conn.QueryContext(ctx, text, args...)
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
		values, into := make([]any, len(names)), make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		row := make([]string, len(names))
		for i, v := range values {
			if v != nil {
				row[i] = fmt.Sprint(v)
			}
		}
		out = append(out, row)
	}
	return out, rows.Err()
}

func (s *ownSession) end(text string) error {
	defer s.Kill()
	if !s.begun {
		return nil
	}
	_, err := s.conn.ExecContext(context.Background(), text)
	return err
}

func (s *ownSession) Commit() error   { return s.end("COMMIT") }
func (s *ownSession) Rollback() error { return s.end("ROLLBACK") }

// Kill closes the connection; what it has not committed is gone, as with the death of its
// process.
func (s *ownSession) Kill() {
	_ = s.conn.Close()
	_ = s.db.Close()
}
