package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"math"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	driversqlite "modernc.org/sqlite"

	"github.com/queuebox/queuebox/internal/leaktest"
	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/sqlite"
	"github.com/queuebox/queuebox/storage/storagetest"
)

func TestMain(m *testing.M) {
	if runAsWriter() {
		return
	}
	driversqlite.MustRegisterScalarFunction("test_clock", 1,
		func(_ *driversqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
			n, _ := args[0].(int64)
			c, ok := clocks.Load(n)
			if !ok {
				return nil, fmt.Errorf("no test clock %d", n)
			}
			return c.(*atomic.Int64).Load(), nil
		})
	leaktest.Main(m)
}

// clocks are the settable clocks, by number. The function test_clock reads them anew at
// every call, also in a statement that was waiting for a lock, which a table in the
// database could not do: whoever waits for the write lock keeps others from setting it.
var (
	clocks    sync.Map
	lastClock atomic.Int64
)

// TestSuite runs the conformance suite.
func TestSuite(t *testing.T) {
	storagetest.Run(t, storagetest.Backend{New: newInstance})
}

func newInstance(t *testing.T, testClock bool) *storagetest.Instance {
	t.Helper()
	path := filepath.Join(t.TempDir(), "queuebox.db")
	cfg := sqlite.Config{Path: path}
	in := &storagetest.Instance{}
	if testClock {
		// Nothing here asks what a power cut leaves, and the run on the real clock waits for
		// the disk as a server does.
		cfg.Synchronous, cfg.AllowUnsafeDurability = "OFF", true
		n := lastClock.Add(1)
		ms := new(atomic.Int64)
		ms.Store(time.Now().UnixMilli())
		clocks.Store(n, ms)
		cfg.ClockExpr = "test_clock(" + strconv.FormatInt(n, 10) + ")"
		in.SetClock = func(_ *testing.T, now time.Time) { ms.Store(now.UnixMilli()) }
	}
	open := func(t *testing.T) storage.Store {
		t.Helper()
		s, err := sqlite.Open(t.Context(), cfg)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	in.Store = open(t)
	in.Another = open
	outside := openOutside(t, path)
	in.Row = func(t *testing.T, ref storage.Ref) map[string]string {
		t.Helper()
		return readRow(t, outside, ref)
	}
	in.Dump = func(t *testing.T) string {
		t.Helper()
		return dump(t, outside)
	}
	in.Hold = func(t *testing.T, ref storage.Ref, how storagetest.HoldKind) func() {
		t.Helper()
		return hold(t, outside, ref, how)
	}
	in.Leased = func(ctx context.Context, queueID int32) (n int, err error) {
		err = outside.QueryRowContext(ctx, `SELECT count(*) FROM message WHERE queue_id = ?1
			AND (state = 3 OR state = 1 AND lease_end > CAST(round(unixepoch('subsec') * 1000) AS INTEGER))`, queueID).Scan(&n)
		return n, err
	}
	in.HoldClaim = func(t *testing.T, ref storage.Ref, token storage.Token, leaseEnd time.Time) func(bool) {
		t.Helper()
		return holdClaim(t, outside, ref, token, leaseEnd)
	}
	in.Own = ownSessions(path)
	in.Mark = func(t *testing.T, ref storage.Ref, settleTime time.Time) {
		t.Helper()
		_, err := outside.ExecContext(t.Context(), `UPDATE message SET state = 3, lease_end = ?3, outcome = 1, mark_action = 1, settle_time = ?4
			WHERE position = ?2 AND queue_id = ?1 AND state = 1`, ref.QueueID, ref.Position, int64(math.MaxInt64), settleTime.UnixMilli())
		require.NoError(t, err)
	}
	return in
}

// openOutside opens the file beside the stores.
func openOutside(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+url.PathEscape(path)+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func readRow(t *testing.T, db *sql.DB, ref storage.Ref) map[string]string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT * FROM message WHERE position = ? AND queue_id = ?", ref.Position, ref.QueueID)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	found := readRows(t, rows)
	if len(found) == 0 {
		return nil
	}
	return found[0]
}

func readRows(t *testing.T, rows *sql.Rows) []map[string]string {
	t.Helper()
	names, err := rows.Columns()
	require.NoError(t, err)
	var found []map[string]string
	for rows.Next() {
		values := make([]any, len(names))
		pointers := make([]any, len(names))
		for i := range values {
			pointers[i] = &values[i]
		}
		require.NoError(t, rows.Scan(pointers...))
		row := make(map[string]string, len(names))
		for i, name := range names {
			// Text stays readable, since rules look for it in a dump.
			format := "%T %x"
			if _, ok := values[i].(string); ok {
				format = "%T %q"
			}
			row[name] = fmt.Sprintf(format, values[i], values[i])
		}
		found = append(found, row)
	}
	require.NoError(t, rows.Err())
	return found
}

// dump reads every table but the one of the migrations, sorted by all of its columns.
func dump(t *testing.T, db *sql.DB) string {
	t.Helper()
	var tables []string
	rows, err := db.QueryContext(t.Context(), `SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'goose_db_version' ORDER BY name`)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		tables = append(tables, name)
	}
	require.NoError(t, rows.Err())
	var b strings.Builder
	for _, table := range tables {
		fmt.Fprintf(&b, "%s\n", table)
		for _, row := range readTable(t, db, table) {
			fmt.Fprintf(&b, "  %v\n", row)
		}
	}
	return b.String()
}

func readTable(t *testing.T, db *sql.DB, table string) []map[string]string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT * FROM "`+table+`" ORDER BY 1, 2`)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	return readRows(t, rows)
}

// holdClaim claims a message in a transaction that holds the write lock of the file.
func holdClaim(t *testing.T, db *sql.DB, ref storage.Ref, token storage.Token, leaseEnd time.Time) func(bool) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	_, err = conn.ExecContext(ctx, "BEGIN IMMEDIATE")
	require.NoError(t, err)
	res, err := conn.ExecContext(ctx, `UPDATE message SET state = 1, token = ?3, lease_end = ?4, lease = 1000, claim_time = ?4,
		worker_id = 'other', attempt = attempt + 1 WHERE queue_id = ?1 AND position = ?2 AND state = 0 AND place = 0`,
		ref.QueueID, ref.Position, token[:], leaseEnd.UnixMilli())
	require.NoError(t, err)
	n, err := res.RowsAffected()
	require.NoError(t, err)
	require.EqualValues(t, 1, n, "there is no row to claim")
	return func(commit bool) {
		t.Helper()
		how := "ROLLBACK"
		if commit {
			how = "COMMIT"
		}
		_, err := conn.ExecContext(ctx, how)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
}

// hold takes the write lock of the file, and for HoldUpdate writes the row as it is.
func hold(t *testing.T, db *sql.DB, ref storage.Ref, how storagetest.HoldKind) func() {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	_, err = conn.ExecContext(ctx, "BEGIN IMMEDIATE")
	require.NoError(t, err)
	if how == storagetest.HoldUpdate {
		_, err = conn.ExecContext(ctx, "UPDATE message SET wire_bytes = wire_bytes WHERE position = ? AND queue_id = ?", ref.Position, ref.QueueID)
		require.NoError(t, err)
	}
	if how == storagetest.HoldExtend {
		_, err = conn.ExecContext(ctx, "UPDATE message SET lease_end = lease_end + 3600000 WHERE position = ? AND queue_id = ?", ref.Position, ref.QueueID)
		require.NoError(t, err)
	}
	return func() {
		_, err := conn.ExecContext(ctx, "COMMIT")
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
}
