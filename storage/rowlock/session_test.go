package rowlock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// A transaction whose end is not known leaves its connection to nobody: whoever began the next
// one there would commit what stands.
func TestAConnectionInATransactionIsNotUsedAgain(t *testing.T) {
	failed := errors.New("failed")
	for _, c := range []struct {
		name             string
		run              func() (verdict, error)
		rollback, commit error
		closed           int
	}{
		{name: "committed", run: func() (verdict, error) { return commit, nil }},
		{name: "rolled back", run: func() (verdict, error) { return rollback, nil }},
		{name: "an error", run: func() (verdict, error) { return commit, failed }},
		{name: "the rollback fails", run: func() (verdict, error) { return commit, failed }, rollback: failed, closed: 1},
		{name: "the commit fails", run: func() (verdict, error) { return commit, nil }, commit: failed, closed: 1},
		{name: "a panic", run: func() (verdict, error) { panic("on purpose") }, closed: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			conns := &countedConns{}
			db := sql.OpenDB(conns)
			s, err := New(db, &Engine{
				Name: "fake", Queries: fstest.MapFS{}, Compile: Positional, Errors: noMeaning{},
				Begin: func(context.Context, *sql.Conn) (Transaction, error) {
					return &fakeTransaction{rollback: c.rollback, commit: c.commit}, nil
				},
			}, Options{}, slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			func() {
				defer func() { _ = recover() }()
				_ = s.write(t.Context(), "test", func(*session) (verdict, error) { return c.run() })
			}()
			require.Equal(t, 1, conns.opened)
			require.Equal(t, c.closed, conns.closed)
			require.Equal(t, 0, db.Stats().InUse, "the connection is back")
			require.NoError(t, s.Close())
		})
	}
}

type fakeTransaction struct {
	Querier

	rollback, commit error
}

func (f *fakeTransaction) Commit(context.Context) error   { return f.commit }
func (f *fakeTransaction) Rollback(context.Context) error { return f.rollback }

// countedConns makes connections that do nothing.
type countedConns struct{ opened, closed int }

func (c *countedConns) Connect(context.Context) (driver.Conn, error) {
	c.opened++
	return &countedConn{c}, nil
}
func (c *countedConns) Driver() driver.Driver { return nil }

type countedConn struct{ all *countedConns }

func (c *countedConn) Prepare(string) (driver.Stmt, error) { return nil, driver.ErrSkip }
func (c *countedConn) Begin() (driver.Tx, error)           { return nil, driver.ErrSkip }
func (c *countedConn) Close() error                        { c.all.closed++; return nil }

type noMeaning struct{}

func (noMeaning) RolledBack(error) bool  { return false }
func (noMeaning) Again(error) bool       { return false }
func (noMeaning) Duplicate(error) bool   { return false }
func (noMeaning) LockTimeout(error) bool { return false }
func (noMeaning) Broken(error) bool      { return false }
func (noMeaning) Schema(error) bool      { return false }
func (noMeaning) Unavailable(error) bool { return false }
func (noMeaning) Plain(err error) error  { return err }

// An argument that is missing or has no type fails the statement, on every driver.
func TestPositionalBindsByName(t *testing.T) {
	text, bind, err := Positional("SELECT :a, ':a', `:b`, :b_2, :a FROM t WHERE x = 'it''s :c'")
	require.NoError(t, err)
	require.Equal(t, "SELECT ?, ':a', `:b`, ?, ? FROM t WHERE x = 'it''s :c'", text)
	require.Equal(t, []any{1, "two", 1}, bind(args(a("b_2", "two"), a("a", 1), a("other", 3))))
	for _, v := range bind(args(a("a", nil))) {
		require.False(t, driver.IsValue(v))
		_, err := driver.DefaultParameterConverter.ConvertValue(v)
		require.Error(t, err)
	}
	_, _, err = Positional("SELECT 'open")
	require.Error(t, err)
}
