package mysql_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The clock of the tests does what that of the database does: it goes on while a statement
// waits, and whoever holds it keeps nobody from setting it.
func TestTheTestClockMovesWhileAStatementWaits(t *testing.T) {
	d := newDatabase(t, true)
	at := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	d.setClock(t, at)
	now, err := d.store.Now(t.Context())
	require.NoError(t, err)
	require.Equal(t, at, now)
	end := d.transaction(t, "no row", func(ctx context.Context, conn *sql.Conn) (n int64, err error) {
		return changed(conn.ExecContext(ctx, "UPDATE count_turn SET held_until = '2026-01-01' WHERE id = 2"))
	})
	done := make(chan error, 1)
	conn := d.session(t)
	defer func() { _ = conn.Close() }()
	_, err = conn.ExecContext(t.Context(), "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
	require.NoError(t, err)
	go func() {
		_, err := conn.ExecContext(context.Background(), "UPDATE count_turn SET next_time = test_now() WHERE id IN (1, 2)")
		done <- err
	}()
	require.Eventually(t, func() bool { return d.waiting(t) > 0 }, soon, pollEvery)
	d.setClock(t, at.Add(time.Hour))
	end(true)
	require.NoError(t, <-done)
	got := d.lines(t, "SELECT next_time FROM count_turn WHERE id IN (1, 2) ORDER BY id")
	require.Equal(t, []string{"2031-01-01 00:00:00.000000", "2031-01-01 01:00:00.000000"}, got)
}
