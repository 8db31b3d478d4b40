package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/postgres"
)

// dead waits until the statistics tell of so many dead rows of the hot table.
func (d *database) dead(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		return d.lines(t, `SELECT (n_dead_tup >= $1)::text FROM pg_stat_user_tables
			WHERE schemaname = 'queuebox' AND relname = 'message'`, n)[0] == "true"
	}, 30*time.Second, 20*time.Millisecond)
}

// A server vacuums the hot table when enough of it is dead, and not while an old snapshot makes
// that useless.
func TestVacuumIsPaced(t *testing.T) {
	d := newDatabase(t, false)
	d.exec(t, "ALTER TABLE queuebox.message SET (autovacuum_enabled = false)")
	q := queue(t, d.store, "dead")
	var v postgres.Vacuumer
	ctx := context.WithoutCancel(t.Context())
	vacuum := func(s storage.Store) []string {
		done, err := v.Vacuum(t.Context(), s.(*postgres.Store), 900)
		require.NoError(t, err)
		return done
	}
	die := func() {
		d.fill(t, q.ID, 1000, pendingShape)
		d.exec(t, "DELETE FROM queuebox.message")
		d.dead(t, 900)
	}
	require.Empty(t, vacuum(d.store), "nothing is dead")
	die()
	require.Equal(t, []string{"message"}, vacuum(d.store))
	require.Empty(t, vacuum(d.store), "it was done just now")

	// An old snapshot: nothing that dies after it can be removed.
	tx, err := d.connect(t).Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "SELECT 1 FROM queuebox.message LIMIT 1")
	require.NoError(t, err)
	die()
	require.Empty(t, vacuum(d.store), "nothing that died since could be removed")
	require.NoError(t, tx.Rollback(ctx))
	require.Equal(t, []string{"message"}, vacuum(d.store))

	// A role that may not vacuum leaves it to others.
	config := d.config
	config.URL, config.Migrate = d.role(t, grants), false
	other := open(t, config)
	die()
	require.Empty(t, vacuum(other))
}
