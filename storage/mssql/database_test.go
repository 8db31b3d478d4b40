package mssql_test

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	mssqldb "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/internal/testdb"
	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/mssql"
	"github.com/queuebox/queuebox/storage/storagetest"
)

// testName is the application name of the sessions of the tests, which tells them apart from
// those of the stores.
const testName = "queuebox-test"

// testClock is a function that stands in for the clock. Like the clock of the database it is
// read as it stands when a statement begins to use it, at any isolation level and without a
// lock, since strangers read it in transactions that stay open; it is not inlined, so that the
// statements around it keep their shape.
var testClock = []string{
	"CREATE TABLE queuebox.test_clock (id int NOT NULL PRIMARY KEY, now datetime2(6) NOT NULL)",
	"INSERT INTO queuebox.test_clock (id, now) VALUES (1, '2030-01-02T03:04:05.678901')",
	`CREATE FUNCTION queuebox.test_now() RETURNS datetime2(6) WITH INLINE = OFF AS
		BEGIN RETURN (SELECT c.now FROM queuebox.test_clock AS c WITH (NOLOCK) WHERE c.id = 1) END`,
}

// database is a database of a test, with sessions of the test itself on it.
type database struct {
	url    string
	config mssql.Config
	clock  bool
	store  storage.Store
	db     *sql.DB
}

func open(t testing.TB, c mssql.Config) storage.Store {
	t.Helper()
	s, err := mssql.Open(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// newDatabase makes a migrated database with a store on it. Without a SQL Server the test is
// skipped, out loud.
func newDatabase(t testing.TB, clock bool) *database {
	t.Helper()
	d := &database{url: testdb.MSSQL(t), clock: clock}
	d.db = sessions(t, d.url)
	t.Cleanup(func() { _ = d.db.Close() })
	d.config = mssql.Config{URL: d.url}
	_, _, err := mssql.Migrate(t.Context(), d.config)
	require.NoError(t, err)
	if clock {
		for _, text := range testClock {
			d.exec(t, text)
		}
		d.config.ClockExpr = "queuebox.test_now()"
		// The procedures that others call (E12) have the clock in their texts.
		for _, procedure := range []string{"own_mark", "own_enqueue"} {
			text := d.rows(t, "SELECT OBJECT_DEFINITION(OBJECT_ID(N'queuebox."+procedure+"')) AS text")[0]["text"]
			require.Contains(t, text, "SYSUTCDATETIME()")
			text = strings.Replace(text, "CREATE PROCEDURE", "ALTER PROCEDURE", 1)
			d.exec(t, strings.ReplaceAll(text, "SYSUTCDATETIME()", "queuebox.test_now()"))
		}
	}
	d.store = open(t, d.config)
	return d
}

// sessions opens a pool of the test's own.
func sessions(t require.TestingT, raw string) *sql.DB {
	u, err := url.Parse(raw)
	require.NoError(t, err)
	query := u.Query()
	query.Set("app name", testName)
	u.RawQuery = query.Encode()
	db, err := sql.Open("sqlserver", u.String())
	require.NoError(t, err)
	return db
}

func (d *database) exec(t require.TestingT, text string, args ...any) {
	_, err := d.db.ExecContext(context.Background(), text, args...)
	require.NoError(t, err)
}

// rows reads rows as text; null is "NULL". It reads by versions, so that it waits for nobody
// who holds a row, and sees nothing that is not committed.
func (d *database) rows(t require.TestingT, text string, args ...any) []map[string]string {
	ctx := context.Background()
	tx, err := d.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSnapshot})
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	rows, err := tx.QueryContext(ctx, text, args...)
	require.NoError(t, err)
	out, err := collect(rows)
	require.NoError(t, err)
	return out
}

// collect reads all rows of all result sets.
func collect(rows *sql.Rows) (out []map[string]string, err error) {
	defer func() { _ = rows.Close() }()
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
			row := make(map[string]string, len(names))
			for i, name := range names {
				row[name] = asText(*values[i].(*any)) //nolint:forcetypeassert // It was put there above.
			}
			out = append(out, row)
		}
		if !rows.NextResultSet() {
			return out, rows.Err()
		}
	}
}

func asText(v any) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case []byte:
		return hex.EncodeToString(v)
	case time.Time:
		return v.UTC().Format("2006-01-02 15:04:05.000000")
	}
	return fmt.Sprint(v)
}

// datetime is a time as a parameter that is cast to datetime2(6): the driver would send a
// time.Time as a datetimeoffset.
func datetime(t time.Time) string {
	return t.UTC().Truncate(time.Microsecond).Format("2006-01-02T15:04:05.000000")
}

func (d *database) setClock(t require.TestingT, now time.Time) {
	d.exec(t, "UPDATE queuebox.test_clock SET now = CAST(@p1 AS datetime2(6)) WHERE id = 1", datetime(now))
}

func (d *database) row(t require.TestingT, ref storage.Ref) map[string]string {
	rows := d.rows(t, "SELECT * FROM queuebox.message WHERE queue_id = @p1 AND id = @p2", ref.QueueID, ref.Position/2)
	if len(rows) == 0 {
		return nil
	}
	return rows[0]
}

// dump is the content of all tables but for the versions and the clock.
func (d *database) dump(t require.TestingT) string {
	var out []string
	for _, table := range d.rows(t, `SELECT t.name FROM sys.tables AS t WHERE t.schema_id = SCHEMA_ID('queuebox')
		AND t.name NOT IN ('goose_db_version', 'test_clock')`) {
		for _, row := range d.rows(t, "SELECT * FROM queuebox."+table["name"]) {
			var b strings.Builder
			b.WriteString(table["name"])
			for _, name := range slices.Sorted(maps.Keys(row)) {
				fmt.Fprintf(&b, " %s=%q", name, row[name])
			}
			out = append(out, b.String())
		}
	}
	sort.Strings(out)
	return strings.Join(out, "\n")
}

// transaction runs a statement that changes or finds one row in a transaction of another
// session, and leaves it open until end commits it or rolls it back.
func (d *database) transaction(t require.TestingT, what, text string, args ...any) func(t require.TestingT, commit bool) {
	ctx := context.Background()
	tx, err := d.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	require.NoError(t, err)
	rows, err := tx.QueryContext(ctx, text, args...)
	require.NoError(t, err)
	found, err := collect(rows)
	require.NoError(t, err)
	require.Len(t, found, 1, what)
	return func(t require.TestingT, commit bool) {
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		require.NoError(t, end())
	}
}

// hold locks a row in another session until release is called.
func (d *database) hold(t require.TestingT, ref storage.Ref, how storagetest.HoldKind) func(t require.TestingT, commit bool) {
	text := "SELECT m.id FROM queuebox.message AS m WITH (UPDLOCK, ROWLOCK) WHERE m.queue_id = @p1 AND m.id = @p2"
	switch how {
	case storagetest.HoldLock:
	case storagetest.HoldUpdate:
		text = `UPDATE queuebox.message WITH (ROWLOCK) SET wire_bytes = wire_bytes OUTPUT inserted.id
			WHERE queue_id = @p1 AND id = @p2`
	case storagetest.HoldExtend:
		text = `UPDATE queuebox.message WITH (ROWLOCK) SET lease_end = DATEADD(hour, 1, lease_end) OUTPUT inserted.id
			WHERE queue_id = @p1 AND id = @p2`
	}
	return d.transaction(t, "there is no row to hold", text, ref.QueueID, ref.Position/2)
}

// holdClaim claims a message in another session until end is called.
func (d *database) holdClaim(t require.TestingT, ref storage.Ref, token storage.Token, leaseEnd time.Time) func(t require.TestingT, commit bool) {
	return d.transaction(t, "there is no row to claim", `UPDATE queuebox.message WITH (ROWLOCK)
		SET state = 1, token = @p1, lease_end = CAST(@p2 AS datetime2(6)), lease_us = 1000000, claim_time = CAST(@p2 AS datetime2(6)),
			worker_id = N'other', attempt = attempt + 1
		OUTPUT inserted.id
		WHERE queue_id = @p3 AND id = @p4 AND state = 0 AND place = 0`,
		mssqldb.UniqueIdentifier(token), datetime(leaseEnd), ref.QueueID, ref.Position/2)
}

// holdKey inserts an idempotency key with its message, as an enqueue does. The message is
// delayed, so that no claim of the test meets it.
func (d *database) holdKey(t require.TestingT, queueID int32, key string) func(t require.TestingT, commit bool) {
	return d.transaction(t, "there is a key already", `
		INSERT INTO queuebox.message (queue_id, place, urgency, ready_time, create_time, max_attempts, payload_bytes,
			wire_bytes, content_type, idempotency_key, payload)
		VALUES (@p1, 1, 0, '2999-01-01T00:00:00', SYSUTCDATETIME(), 20, 0, 0, N'', @p2, 0x);
		INSERT INTO queuebox.idempotency_key (queue_id, name, position, create_time, content_hash)
		OUTPUT inserted.position
		VALUES (@p1, @p2, 2 * CAST(SCOPE_IDENTITY() AS bigint), SYSUTCDATETIME(), CAST(0x AS binary(32)))`,
		queueID, []byte(key))
}

// stores are the sessions of the stores, as a condition on sys.dm_exec_sessions.
const stores = "s.database_id = DB_ID() AND s.is_user_process = 1 AND s.program_name <> N'" + testName + "'"

// sever breaks all connections of the stores, and waits until they are gone.
func (d *database) sever(t *testing.T) {
	t.Helper()
	others := func() []string {
		var ids []string
		for _, row := range d.rows(t, "SELECT s.session_id FROM sys.dm_exec_sessions AS s WHERE "+stores) {
			ids = append(ids, row["session_id"])
		}
		return ids
	}
	killed := others()
	for _, id := range killed {
		_, _ = d.db.ExecContext(context.Background(), "KILL "+id) // It may have gone by itself.
	}
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(others(), func(id string) bool { return slices.Contains(killed, id) })
	}, 20*time.Second, 5*time.Millisecond, "the connections end")
}

// waiting tells whether a session of the stores waits for a lock.
func (d *database) waiting(t require.TestingT) bool {
	return len(d.rows(t, `SELECT r.session_id FROM sys.dm_exec_requests AS r
		INNER JOIN sys.dm_exec_sessions AS s ON s.session_id = r.session_id
		WHERE r.wait_type LIKE N'LCK%' AND `+stores)) > 0
}

// leased counts live leases. The clock is read by a later statement than that which fixes
// what the transaction sees, so a lease that ended before another began is not counted with it.
func (d *database) leased(ctx context.Context, queueID int32) (n int, err error) {
	tx, err := d.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSnapshot})
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM queuebox.queue WHERE queue_id = @p1", queueID).Scan(&n); err != nil {
		return 0, err
	}
	err = tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM queuebox.message WHERE queue_id = @p1
		AND (state = 3 OR state = 1 AND lease_end > SYSUTCDATETIME())`, queueID).Scan(&n)
	return n, err
}

func (d *database) instance() *storagetest.Instance {
	ends := func(t *testing.T, end func(require.TestingT, bool)) func(bool) {
		t.Helper()
		return func(commit bool) {
			t.Helper()
			end(t, commit)
		}
	}
	in := &storagetest.Instance{
		Store:   d.store,
		Another: func(t *testing.T) storage.Store { t.Helper(); return open(t, d.config) },
		Row:     func(t *testing.T, ref storage.Ref) map[string]string { t.Helper(); return d.row(t, ref) },
		Dump:    func(t *testing.T) string { t.Helper(); return d.dump(t) },
		Sever:   func(t *testing.T) { t.Helper(); d.sever(t) },
		Waiting: func(t *testing.T) bool { t.Helper(); return d.waiting(t) },
		Leased:  d.leased,
		Own:     d.own(),
	}
	in.Hold = func(t *testing.T, ref storage.Ref, how storagetest.HoldKind) func() {
		t.Helper()
		end := ends(t, d.hold(t, ref, how))
		return func() { t.Helper(); end(true) }
	}
	in.HoldClaim = func(t *testing.T, ref storage.Ref, token storage.Token, leaseEnd time.Time) func(bool) {
		t.Helper()
		return ends(t, d.holdClaim(t, ref, token, leaseEnd))
	}
	in.HoldIdempotencyKey = func(t *testing.T, queueID int32, key string) func(bool) {
		t.Helper()
		return ends(t, d.holdKey(t, queueID, key))
	}
	in.Mark = func(t *testing.T, ref storage.Ref, settleTime time.Time) {
		t.Helper()
		d.exec(t, `UPDATE queuebox.message SET state = 3, lease_end = '9999-12-31T23:59:59', outcome = 1, mark_action = 1,
			settle_time = CAST(@p1 AS datetime2(6)) WHERE queue_id = @p2 AND id = @p3 AND state = 1`,
			datetime(settleTime), ref.QueueID, ref.Position/2)
	}
	if d.clock {
		in.SetClock = func(t *testing.T, now time.Time) { t.Helper(); d.setClock(t, now) }
	}
	return in
}
