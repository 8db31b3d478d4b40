package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/internal/leaktest"
	"github.com/queuebox/queuebox/internal/testdb"
	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/mysql"
	"github.com/queuebox/queuebox/storage/storagetest"
)

func TestMain(m *testing.M) {
	leaktest.Main(m)
}

// testClock is a function that stands in for the clock. It has to show a new time in the
// middle of a statement that reads at a snapshot, so it reads with a lock: that sees the
// newest row. Each new time is a row of its own, which nobody who holds a lock on an older
// one keeps from being inserted.
var testClock = []string{
	"CREATE TABLE test_clock (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, now DATETIME(6) NOT NULL) ENGINE=InnoDB",
	"INSERT INTO test_clock (now) VALUES ('2030-01-02 03:04:05.678901')",
	`CREATE FUNCTION test_now() RETURNS DATETIME(6) NOT DETERMINISTIC READS SQL DATA
		RETURN (SELECT now FROM test_clock ORDER BY id DESC LIMIT 1 LOCK IN SHARE MODE)`,
}

// soon only ends a broken run, and pollEvery is how often a condition is looked at.
const (
	soon      = 20 * time.Second
	pollEvery = 5 * time.Millisecond
)

// infinity is the lease end of a message that is settling.
const infinity = "9999-12-31 23:59:59"

// database is a database of a test, with sessions of the test itself on it.
type database struct {
	url    string
	name   string
	clock  bool
	config mysql.Config
	store  storage.Store
	db     *sql.DB // of the server, without a database: sever tells by that whom it may kill

	lookerLock sync.Mutex
	looker     *sql.Conn

	lock sync.Mutex
	own  []int64 // sessions of the test that use the database
}

func open(t testing.TB, c mysql.Config) storage.Store {
	t.Helper()
	s, err := mysql.Open(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// newDatabase makes a migrated database with a store on it.
func newDatabase(t testing.TB, clock bool) *database {
	t.Helper()
	d := bare(t)
	d.clock = clock
	if clock {
		d.config.OwnClockExpr = "test_own_now()"
	}
	_, _, err := mysql.Migrate(t.Context(), d.config)
	require.NoError(t, err)
	if clock {
		for _, text := range slices.Concat(testClock, ownClock) {
			d.exec(t, text)
		}
		d.config.ClockExpr = "test_now()"
	}
	d.store = open(t, d.config)
	return d
}

// server opens the server of a URL, without a database.
func server(t testing.TB, raw string) *sql.DB {
	t.Helper()
	u, err := url.Parse(raw)
	require.NoError(t, err)
	c := testdb.MySQLConfig(u)
	c.DBName = ""
	c.InterpolateParams, c.ClientFoundRows = true, true
	c.Params = map[string]string{"time_zone": "'+00:00'"}
	connector, err := driver.NewConnector(c)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(4)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// session opens a session beside the store, in the database. It is known as one of the test
// before it uses the database, so that sever leaves it alone.
func (d *database) session(t require.TestingT) *sql.Conn {
	ctx := context.Background()
	conn, err := d.db.Conn(ctx)
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

// inside runs fn in the session of the test, one after the other.
func (d *database) inside(_ testing.TB, fn func(conn *sql.Conn)) {
	d.lookerLock.Lock()
	defer d.lookerLock.Unlock()
	fn(d.looker)
}

func (d *database) exec(t testing.TB, text string, args ...any) {
	t.Helper()
	d.inside(t, func(conn *sql.Conn) {
		_, err := conn.ExecContext(context.Background(), text, args...)
		require.NoError(t, err)
	})
}

// rows reads rows as text; null is "NULL".
func (d *database) rows(t testing.TB, text string, args ...any) (out []map[string]string) {
	t.Helper()
	d.inside(t, func(conn *sql.Conn) {
		rows, err := conn.QueryContext(context.Background(), text, args...)
		require.NoError(t, err)
		defer func() { _ = rows.Close() }()
		names, err := rows.Columns()
		require.NoError(t, err)
		for rows.Next() {
			values := make([]any, len(names))
			for i := range values {
				values[i] = new(any)
			}
			require.NoError(t, rows.Scan(values...))
			row := make(map[string]string, len(names))
			for i, name := range names {
				row[name] = asText(*values[i].(*any))
			}
			out = append(out, row)
		}
		require.NoError(t, rows.Err())
	})
	return out
}

func asText(v any) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case []byte:
		return string(v)
	case time.Time:
		return v.UTC().Format("2006-01-02 15:04:05.000000")
	}
	return fmt.Sprint(v)
}

// lines reads rows of one column.
func (d *database) lines(t testing.TB, text string, args ...any) []string {
	t.Helper()
	var out []string
	for _, row := range d.rows(t, text, args...) {
		for _, v := range row {
			out = append(out, v)
		}
	}
	return out
}

func (d *database) setClock(t testing.TB, now time.Time) {
	t.Helper()
	d.exec(t, "INSERT INTO test_clock (now) VALUES (?)", now.UTC().Truncate(time.Microsecond))
	d.exec(t, "UPDATE test_own_clock SET now = ?", now.UTC().Truncate(time.Microsecond))
}

func (d *database) row(t testing.TB, ref storage.Ref) map[string]string {
	t.Helper()
	rows := d.rows(t, "SELECT * FROM message WHERE queue_id = ? AND id = ?", ref.QueueID, ref.Position/2)
	if len(rows) == 0 {
		return nil
	}
	return rows[0]
}

// dump is the content of all tables but for the versions and the clock.
func (d *database) dump(t testing.TB) string {
	t.Helper()
	var out []string
	for _, table := range d.lines(t, `SELECT table_name FROM information_schema.tables WHERE table_schema = ?
		AND table_name NOT IN ('queuebox_version', 'test_clock', 'test_own_clock')`, d.name) {
		for _, row := range d.rows(t, "SELECT * FROM "+table) {
			var b strings.Builder
			b.WriteString(table)
			for _, name := range sortedKeys(row) {
				fmt.Fprintf(&b, " %s=%q", name, row[name])
			}
			out = append(out, b.String())
		}
	}
	sort.Strings(out)
	return strings.Join(out, "\n")
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// transaction runs a statement in a transaction of another session and leaves it open until
// end commits it or rolls it back.
func (d *database) transaction(t testing.TB, what string, run func(ctx context.Context, conn *sql.Conn) (int64, error)) func(commit bool) {
	t.Helper()
	ctx := context.Background()
	conn := d.session(t)
	_, err := conn.ExecContext(ctx, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
	require.NoError(t, err)
	_, err = conn.ExecContext(ctx, "START TRANSACTION")
	require.NoError(t, err)
	n, err := run(ctx, conn)
	require.NoError(t, err)
	require.EqualValues(t, 1, n, what)
	return func(commit bool) {
		t.Helper()
		end := "ROLLBACK"
		if commit {
			end = "COMMIT"
		}
		_, err := conn.ExecContext(ctx, end)
		require.NoError(t, err)
		_ = conn.Close()
	}
}

func changed(res sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// hold locks a row in another session until release is called.
func (d *database) hold(t testing.TB, ref storage.Ref, how storagetest.HoldKind) func() {
	t.Helper()
	end := d.transaction(t, "there is no row to hold", func(ctx context.Context, conn *sql.Conn) (n int64, err error) {
		switch how {
		case storagetest.HoldUpdate:
			return changed(conn.ExecContext(ctx, "UPDATE message SET wire_bytes = wire_bytes WHERE queue_id = ? AND id = ?",
				ref.QueueID, ref.Position/2))
		case storagetest.HoldExtend:
			return changed(conn.ExecContext(ctx, "UPDATE message SET lease_end = lease_end + INTERVAL 1 HOUR WHERE queue_id = ? AND id = ?",
				ref.QueueID, ref.Position/2))
		case storagetest.HoldLock:
		}
		err = conn.QueryRowContext(ctx, "SELECT 1 FROM message WHERE queue_id = ? AND id = ? FOR UPDATE", ref.QueueID, ref.Position/2).Scan(&n)
		return n, err
	})
	return func() {
		t.Helper()
		end(true)
	}
}

// holdClaim claims a message in another session until end is called.
func (d *database) holdClaim(t testing.TB, ref storage.Ref, token storage.Token, leaseEnd time.Time) func(bool) {
	t.Helper()
	return d.transaction(t, "there is no row to claim", func(ctx context.Context, conn *sql.Conn) (int64, error) {
		return changed(conn.ExecContext(ctx, `UPDATE message SET state = 1, token = ?, lease_end = ?, lease_us = 1000000, claim_time = ?,
			worker_id = 'other', attempt = attempt + 1 WHERE queue_id = ? AND id = ? AND state = 0 AND place = 0`,
			token[:], leaseEnd, leaseEnd, ref.QueueID, ref.Position/2))
	})
}

// holdKey inserts an idempotency key with its message, as an enqueue does.
func (d *database) holdKey(t testing.TB, queueID int32, key string) func(bool) {
	t.Helper()
	return d.transaction(t, "there is a key already", func(ctx context.Context, conn *sql.Conn) (int64, error) {
		// The message is delayed, so that no claim of the test meets it.
		res, err := conn.ExecContext(ctx, `INSERT INTO message (queue_id, place, urgency, ready_time, create_time, max_attempts, payload_bytes,
			wire_bytes, content_type, idempotency_key, payload) VALUES (?, 1, 0, '2999-01-01', SYSDATE(6), 20, 0, 0, '', ?, '')`, queueID, key)
		if err != nil {
			return 0, err
		}
		id, err := res.LastInsertId()
		if err != nil {
			return 0, err
		}
		return changed(conn.ExecContext(ctx, `INSERT INTO idempotency_key (queue_id, name, position, create_time, content_hash)
			VALUES (?, ?, ?, SYSDATE(6), ?)`, queueID, key, 2*id, make([]byte, 32)))
	})
}

// sever breaks all connections of the stores, and waits until they are gone.
func (d *database) sever(t testing.TB) {
	t.Helper()
	ctx := context.Background()
	others := func() (ids []int64) {
		rows, err := d.db.QueryContext(ctx, "SELECT id FROM information_schema.processlist WHERE db = ?", d.name)
		require.NoError(t, err)
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var id int64
			require.NoError(t, rows.Scan(&id))
			ids = append(ids, id)
		}
		require.NoError(t, rows.Err())
		d.lock.Lock()
		defer d.lock.Unlock()
		return slices.DeleteFunc(ids, func(id int64) bool { return slices.Contains(d.own, id) })
	}
	killed := others()
	for _, id := range killed {
		_, _ = d.db.ExecContext(ctx, "KILL ?", id) // It may have gone by itself.
	}
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(others(), func(id int64) bool { return slices.Contains(killed, id) })
	}, soon, pollEvery, "the connections end")
}

// waiting counts the sessions in the database that wait for a lock of a row; other tests may use
// the server too. The views of InnoDB are renewed ten times a second at most, and not at all while
// somebody keeps reading them; its status is always of now.
func (d *database) waiting(t testing.TB) (n int) {
	t.Helper()
	ctx := context.Background()
	var name, value string
	require.NoError(t, d.db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'").Scan(&name, &value))
	if value == "0" {
		return 0
	}
	ids := d.lines(t, "SELECT id FROM information_schema.processlist WHERE db = ?", d.name)
	var kind, status string
	require.NoError(t, d.db.QueryRowContext(ctx, "SHOW ENGINE INNODB STATUS").Scan(&kind, &name, &status))
	for _, block := range strings.Split(status, "---TRANSACTION ")[1:] {
		if !strings.Contains(block, "LOCK WAIT") {
			continue
		}
		_, rest, ok := strings.Cut(block, " thread id ")
		if !ok {
			continue
		}
		id, _, _ := strings.Cut(rest, ",")
		if slices.Contains(ids, strings.TrimSpace(id)) {
			n++
		}
	}
	return n
}

func (d *database) instance(t testing.TB) *storagetest.Instance {
	t.Helper()
	in := &storagetest.Instance{
		Store:   d.store,
		Another: func(t *testing.T) storage.Store { t.Helper(); return open(t, d.config) },
		Row:     func(t *testing.T, ref storage.Ref) map[string]string { t.Helper(); return d.row(t, ref) },
		Dump:    func(t *testing.T) string { t.Helper(); return d.dump(t) },
		Sever:   func(t *testing.T) { t.Helper(); d.sever(t) },
		Waiting: func(t *testing.T) bool { t.Helper(); return d.waiting(t) > 0 },
		Own:     d.ownSessions(t),
	}
	in.Hold = func(t *testing.T, ref storage.Ref, how storagetest.HoldKind) func() {
		t.Helper()
		return d.hold(t, ref, how)
	}
	in.HoldClaim = func(t *testing.T, ref storage.Ref, token storage.Token, leaseEnd time.Time) func(bool) {
		t.Helper()
		return d.holdClaim(t, ref, token, leaseEnd)
	}
	in.HoldIdempotencyKey = func(t *testing.T, queueID int32, key string) func(bool) {
		t.Helper()
		return d.holdKey(t, queueID, key)
	}
	in.Leased = func(ctx context.Context, queueID int32) (n int, err error) {
		err = d.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM `+d.name+`.message WHERE queue_id = ?
			AND (state = 3 OR state = 1 AND lease_end > SYSDATE(6))`, queueID).Scan(&n)
		return n, err
	}
	in.Mark = func(t *testing.T, ref storage.Ref, settleTime time.Time) {
		t.Helper()
		d.exec(t, `UPDATE message SET state = 3, lease_end = ?, outcome = 1, mark_action = 1, settle_time = ?
			WHERE queue_id = ? AND id = ? AND state = 1`, infinity, settleTime, ref.QueueID, ref.Position/2)
	}
	if d.clock {
		in.SetClock = func(t *testing.T, now time.Time) { t.Helper(); d.setClock(t, now) }
	}
	return in
}
