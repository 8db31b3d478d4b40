package postgres_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
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
	die := func() { d.die(t, q.ID) }
	require.Empty(t, vacuum(d.store), "nothing is dead")
	die()

	// An old snapshot: nothing that dies after it can be removed. It is there before the first VACUUM,
	// since other databases of this PostgreSQL use transactions too, which moves the horizon.
	tx, err := d.connect(t).Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "SELECT 1 FROM queuebox.message LIMIT 1")
	require.NoError(t, err)
	require.Equal(t, []string{"message"}, vacuum(d.store), "what died before it")
	require.Empty(t, vacuum(d.store), "it was done just now")
	die()
	require.Empty(t, vacuum(d.store), "nothing that died since could be removed")
	require.NoError(t, tx.Rollback(ctx))
	require.Equal(t, []string{"message"}, vacuum(d.store))

	st := d.store.(*postgres.Store).Vacuums()
	require.EqualValues(t, 2, st.Done)
	require.Zero(t, st.InVain+st.TimedOut+st.Failed)
	require.Equal(t, 5, st.Tables)
	require.Positive(t, st.Took)
	require.WithinDuration(t, time.Now(), st.Last, time.Minute)
}

// die leaves a thousand dead rows.
func (d *database) die(t *testing.T, queueID int32) {
	t.Helper()
	d.fill(t, queueID, 1000, pendingShape)
	d.exec(t, "DELETE FROM queuebox.message")
	d.dead(t, 900)
}

// heard counts the lines of a log, by message.
func heard(log *bytes.Buffer, text string) int { return strings.Count(log.String(), text) }

// A role that may not vacuum leaves it to others, and says so once. From PostgreSQL 17 on it may
// where it has MAINTAIN.
func TestVacuumByTheRightsOfTheRole(t *testing.T) {
	d := newDatabase(t, false)
	d.exec(t, "ALTER TABLE queuebox.message SET (autovacuum_enabled = false)")
	q := queue(t, d.store, "rights")
	d.die(t, q.ID)
	var log bytes.Buffer
	as := func(sql string) *postgres.Store {
		return open(t, postgres.Config{URL: d.role(t, grants+sql), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	}
	poor := as("")
	var v postgres.Vacuumer
	for range 3 {
		done, err := v.Vacuum(t.Context(), poor, 900)
		require.NoError(t, err)
		require.Empty(t, done)
	}
	require.Zero(t, poor.Vacuums().Tables)
	require.Equal(t, 1, heard(&log, "may vacuum no table"))

	if d.lines(t, "SELECT (current_setting('server_version_num')::integer < 170000)::text")[0] == "true" {
		t.Log("PostgreSQL before 17 has no MAINTAIN: the owner alone may vacuum")
		owner := as("ALTER TABLE queuebox.message OWNER TO %;")
		done, err := new(postgres.Vacuumer).Vacuum(t.Context(), owner, 900)
		require.NoError(t, err)
		require.Equal(t, []string{"message"}, done)
		require.Equal(t, 1, owner.Vacuums().Tables)
		d.exec(t, "ALTER TABLE queuebox.message OWNER TO CURRENT_USER")
		return
	}
	maintainer := as("GRANT MAINTAIN ON queuebox.message, queuebox.ordering_key, queuebox.claim_call, queuebox.incoming, queuebox.marked TO %;")
	done, err := new(postgres.Vacuumer).Vacuum(t.Context(), maintainer, 900)
	require.NoError(t, err)
	require.Equal(t, []string{"message"}, done)
	require.Equal(t, 5, maintainer.Vacuums().Tables)
	require.Equal(t, 1, heard(&log, "may vacuum no table"))
}

// A role that does not see the sessions of others vacuums in vain beside their snapshots, says so
// once, and less and less often tries again.
func TestVacuumBesideASnapshotThatTheRoleCannotSee(t *testing.T) {
	d := newDatabase(t, false)
	if d.lines(t, "SELECT (current_setting('server_version_num')::integer < 150000)::text")[0] == "true" {
		t.Skip("SKIPPED: what a VACUUM has left is not known at once before PostgreSQL 15")
	}
	d.exec(t, "ALTER TABLE queuebox.message SET (autovacuum_enabled = false)")
	q := queue(t, d.store, "blind")
	var log bytes.Buffer
	s := open(t, postgres.Config{
		URL: d.role(t, grants+"ALTER TABLE queuebox.message OWNER TO %;"), Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	defer d.exec(t, "ALTER TABLE queuebox.message OWNER TO CURRENT_USER")
	end := d.snapshot(t)
	d.die(t, q.ID)
	var v postgres.Vacuumer
	for n := range 4 {
		done, err := v.Vacuum(t.Context(), s, 900)
		require.NoError(t, err)
		require.Equal(t, []string{"message"}, done)
		require.Greater(t, v.Rests("message"), 9*time.Second<<n)
		d.exec(t, "SELECT pg_current_xact_id()") // the next transaction is another one
	}
	require.EqualValues(t, 4, s.Vacuums().InVain)
	require.Equal(t, 1, heard(&log, "a vacuum removes little"))
	require.Contains(t, log.String(), "sees_all_sessions=false")
	end()
	done, err := v.Vacuum(t.Context(), s, 900)
	require.NoError(t, err)
	require.Equal(t, []string{"message"}, done)
	require.EqualValues(t, 1, s.Vacuums().Done)
	require.Less(t, v.Rests("message"), 9*time.Second)
}

// A snapshot that keeps many dead rows is warned of with its age, once in a while, and the
// metrics tell of it.
func TestVacuumTellsOfAnOldSnapshot(t *testing.T) {
	d := newDatabase(t, false)
	d.exec(t, "ALTER TABLE queuebox.message SET (autovacuum_enabled = false)")
	q := queue(t, d.store, "held")
	var log bytes.Buffer
	s := open(t, postgres.Config{URL: d.url, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	var v postgres.Vacuumer
	look := func() {
		t.Helper()
		_, err := v.Vacuum(t.Context(), s, 900)
		require.NoError(t, err)
	}
	warnings := func() int { return heard(&log, "level=WARN msg=\"a vacuum removes little") }
	end := d.snapshot(t)
	d.die(t, q.ID)
	look()
	look()
	require.Zero(t, warnings(), "the snapshot is young")
	require.GreaterOrEqual(t, s.Vacuums().Dead, int64(900))
	require.Positive(t, s.Vacuums().OldestSnapshot)

	v.CallOld(time.Nanosecond)
	look()
	look()
	require.Equal(t, 1, warnings(), "once a minute at most")
	require.Regexp(t, `table=queuebox.message dead=\d+ sees_all_sessions=true oldest_transaction=\d+s`, log.String())

	end()
	d.exec(t, "SELECT pg_current_xact_id()") // the next transaction is another one
	look()
	look()
	require.Less(t, s.Vacuums().Dead, int64(900))
	require.Zero(t, s.Vacuums().OldestSnapshot)
	require.Equal(t, 1, warnings())
}
