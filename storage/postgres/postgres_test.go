package postgres_test

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/internal/leaktest"
	"github.com/queuebox/queuebox/internal/testdb"
	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/postgres"
	"github.com/queuebox/queuebox/storage/storagetest"
)

func TestMain(m *testing.M) {
	leaktest.Main(m)
}

// testClock is a schema with two functions that stand in for the clock. The one for
// clock_timestamp is volatile, so that it sees a new time in the middle of a statement;
// the one for statement_timestamp is stable, so that it bounds index scans.
const testClock = `
CREATE SCHEMA queuebox_clock;
CREATE TABLE queuebox_clock.clock (now timestamptz NOT NULL);
INSERT INTO queuebox_clock.clock VALUES ('2030-01-02 03:04:05.678901+00');
CREATE FUNCTION queuebox_clock.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS
  $$ BEGIN RETURN (SELECT now FROM queuebox_clock.clock); END $$;
CREATE FUNCTION queuebox_clock.statement_timestamp() RETURNS timestamptz LANGUAGE plpgsql STABLE AS
  $$ BEGIN RETURN (SELECT now FROM queuebox_clock.clock); END $$;`

// database is a database of a test, with a session of the test itself on it.
type database struct {
	url    string
	config postgres.Config
	store  storage.Store
	beside *pgx.Conn
	lock   sync.Mutex // of beside
}

func open(t testing.TB, c postgres.Config) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// newDatabase makes a migrated database with a store on it.
func newDatabase(t testing.TB, clock bool) *database {
	t.Helper()
	d := &database{url: testdb.Postgres(t)}
	d.beside = d.connect(t)
	d.config = postgres.Config{URL: d.url, Migrate: true}
	if clock {
		d.exec(t, testClock)
		d.config.TestClock = "queuebox_clock"
	}
	d.store = open(t, d.config)
	return d
}

// connect opens a session beside the store.
func (d *database) connect(t testing.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.WithoutCancel(t.Context()), d.url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (d *database) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	d.lock.Lock()
	defer d.lock.Unlock()
	ctx := context.WithoutCancel(t.Context())
	var err error
	if len(args) == 0 {
		_, err = d.beside.PgConn().Exec(ctx, sql).ReadAll() // may be several statements
	} else {
		_, err = d.beside.Exec(ctx, sql, args...)
	}
	require.NoError(t, err)
}

// lines reads rows of one text column.
func (d *database) lines(t testing.TB, sql string, args ...any) []string {
	t.Helper()
	d.lock.Lock()
	defer d.lock.Unlock()
	rows, err := d.beside.Query(context.WithoutCancel(t.Context()), sql, args...)
	require.NoError(t, err)
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return out
}

func (d *database) setClock(t testing.TB, now time.Time) {
	t.Helper()
	d.exec(t, "UPDATE queuebox_clock.clock SET now = $1", now)
}

func (d *database) row(t testing.TB, ref storage.Ref) map[string]string {
	t.Helper()
	pairs := d.lines(t, `SELECT e.key || '=' || coalesce(e.value, '<null>')
		FROM queuebox.message m, jsonb_each_text(to_jsonb(m)) e WHERE m.queue_id = $1 AND m.position = $2`,
		ref.QueueID, ref.Position)
	if len(pairs) == 0 {
		return nil
	}
	out := make(map[string]string, len(pairs))
	for _, p := range pairs {
		k, v, _ := strings.Cut(p, "=")
		out[k] = v
	}
	return out
}

// dump is the content of all tables of the schema but for the versions.
func (d *database) dump(t testing.TB) string {
	t.Helper()
	tables := d.lines(t, `SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'queuebox'::regnamespace
		AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname <> 'goose_db_version' ORDER BY 1`)
	parts := make([]string, 0, len(tables))
	for _, table := range tables {
		parts = append(parts, fmt.Sprintf("SELECT '%[1]s ' || to_jsonb(x)::text FROM queuebox.%[1]s x", table))
	}
	rows := d.lines(t, strings.Join(parts, " UNION ALL "))
	sort.Strings(rows)
	return strings.Join(rows, "\n")
}

// hold locks a row in another session until release is called.
func (d *database) hold(t testing.TB, ref storage.Ref, how storagetest.HoldKind) func() {
	t.Helper()
	sql := "SELECT 1 FROM queuebox.message WHERE queue_id = $1 AND position = $2 FOR UPDATE"
	if how == storagetest.HoldUpdate {
		sql = "UPDATE queuebox.message SET wire_bytes = wire_bytes WHERE queue_id = $1 AND position = $2"
	}
	if how == storagetest.HoldExtend {
		sql = "UPDATE queuebox.message SET lease_end = lease_end + interval '1 hour' WHERE queue_id = $1 AND position = $2"
	}
	conn := d.connect(t)
	ctx := context.WithoutCancel(t.Context())
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	tag, err := tx.Exec(ctx, sql, ref.QueueID, ref.Position)
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected(), "there is no row to hold")
	return func() {
		t.Helper()
		require.NoError(t, tx.Commit(ctx))
		_ = conn.Close(ctx)
	}
}

// holdClaim claims a message in another session until end is called.
func (d *database) holdClaim(t testing.TB, ref storage.Ref, token storage.Token, leaseEnd time.Time) func(bool) {
	t.Helper()
	conn := d.connect(t)
	ctx := context.WithoutCancel(t.Context())
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	tag, err := tx.Exec(ctx, `UPDATE queuebox.message SET state = 1, token = $3::uuid, lease_end = $4, lease_ms = 1000, claim_time = $4,
		worker_id = 'other', attempt = attempt + 1 WHERE queue_id = $1 AND position = $2 AND state = 0 AND place = 0`,
		ref.QueueID, ref.Position, [16]byte(token), leaseEnd)
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected(), "there is no row to claim")
	return func(commit bool) {
		t.Helper()
		if commit {
			require.NoError(t, tx.Commit(ctx))
		} else {
			require.NoError(t, tx.Rollback(ctx))
		}
		_ = conn.Close(ctx)
	}
}

func (d *database) holdKey(t testing.TB, queueID int32, key string) func(bool) {
	t.Helper()
	conn := d.connect(t)
	ctx := context.WithoutCancel(t.Context())
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	// The message is delayed, so that no claim of the test meets it.
	_, err = tx.Exec(ctx, `WITH m AS (
		INSERT INTO queuebox.message (queue_id, position, ready_time, create_time, priority, max_attempts,
			payload_bytes, wire_bytes, place, content_type, idempotency_key, payload)
		VALUES ($1, nextval('queuebox.message_position'), '2999-01-01', clock_timestamp(), 0, 20, 0, 0, 1, '', $2, '')
		RETURNING queue_id, position)
		INSERT INTO queuebox.idempotency_key (queue_id, key, position, create_time, content_hash)
		SELECT queue_id, $2, position, clock_timestamp(), '\x00' FROM m`, queueID, key)
	require.NoError(t, err)
	return func(commit bool) {
		t.Helper()
		if commit {
			require.NoError(t, tx.Commit(ctx))
		} else {
			require.NoError(t, tx.Rollback(ctx))
		}
		_ = conn.Close(ctx)
	}
}

// sever breaks all connections of the stores, and waits until they are gone.
func (d *database) sever(t testing.TB) {
	t.Helper()
	d.lines(t, `SELECT pg_terminate_backend(pid, 5000)::text FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'queuebox'`)
}

func (d *database) instance(clock bool) *storagetest.Instance {
	in := &storagetest.Instance{
		Store:   d.store,
		Another: func(t *testing.T) storage.Store { t.Helper(); return open(t, d.config) },
		Row:     func(t *testing.T, ref storage.Ref) map[string]string { t.Helper(); return d.row(t, ref) },
		Dump:    func(t *testing.T) string { t.Helper(); return d.dump(t) },
		HoldIdempotencyKey: func(t *testing.T, queueID int32, key string) func(bool) {
			t.Helper()
			return d.holdKey(t, queueID, key)
		},
		Sever: func(t *testing.T) { t.Helper(); d.sever(t) },
		Waiting: func(t *testing.T) bool {
			t.Helper()
			return len(d.lines(t, `SELECT 'x' FROM pg_stat_activity WHERE datname = current_database()
				AND application_name = 'queuebox' AND wait_event_type = 'Lock'`)) > 0
		},
		Hold: func(t *testing.T, ref storage.Ref, how storagetest.HoldKind) func() {
			t.Helper()
			return d.hold(t, ref, how)
		},
	}
	in.HoldClaim = func(t *testing.T, ref storage.Ref, token storage.Token, leaseEnd time.Time) func(bool) {
		t.Helper()
		return d.holdClaim(t, ref, token, leaseEnd)
	}
	in.Own = d.own()
	in.Leased = func(ctx context.Context, queueID int32) (n int, err error) {
		d.lock.Lock()
		defer d.lock.Unlock()
		err = d.beside.QueryRow(ctx, `SELECT count(*) FROM queuebox.message WHERE queue_id = $1
			AND (state = 3 OR state = 1 AND lease_end > clock_timestamp())`, queueID).Scan(&n)
		return n, err
	}
	in.Mark = func(t *testing.T, ref storage.Ref, settleTime time.Time) {
		t.Helper()
		d.exec(t, `UPDATE queuebox.message SET state = 3, lease_end = 'infinity', outcome = 1, mark_action = 1, settle_time = $3
			WHERE queue_id = $1 AND position = $2 AND state = 1`, ref.QueueID, ref.Position, settleTime)
	}
	in.Waiting = func(t *testing.T) bool {
		t.Helper()
		return len(d.lines(t, "SELECT 'waits' FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' LIMIT 1")) > 0
	}
	if clock {
		in.SetClock = func(t *testing.T, now time.Time) { t.Helper(); d.setClock(t, now) }
	}
	return in
}

func settings() storage.QueueSettings {
	return storage.QueueSettings{
		DefaultLease: 30 * time.Second, MinLease: time.Second, MaxLease: 12 * time.Hour, MaxAttempts: 20,
		Retry:    storage.RetryPolicy{Min: time.Second, Max: time.Hour, Multiplier: 2},
		Ordering: storage.OrderingSkipDead, CompletedRetention: time.Hour,
	}
}

func queue(t testing.TB, s storage.Store, name string) storage.Queue {
	t.Helper()
	q, err := s.CreateQueue(t.Context(), name, settings(), 0)
	require.NoError(t, err)
	return q
}

// enqueue inserts n small messages.
func enqueue(t testing.TB, s storage.Store, queueID int32, n int, change ...func(int, *storage.NewMessage)) []storage.Enqueued {
	t.Helper()
	p := storage.EnqueueParams{Messages: make([]storage.NewMessage, n)}
	for i := range p.Messages {
		payload := fmt.Sprintf("message %d", i)
		p.Messages[i] = storage.NewMessage{QueueID: queueID, Payload: []byte(payload), WireBytes: int64(len(payload)) + 100}
		for _, f := range change {
			f(i, &p.Messages[i])
		}
	}
	r, err := s.Enqueue(t.Context(), p)
	require.NoError(t, err)
	require.Len(t, r.Items, n)
	return r.Items
}

func claim(t testing.TB, s storage.Store, queueID int32, n int, lease time.Duration) []storage.Claimed {
	t.Helper()
	r, err := s.Claim(t.Context(), storage.ClaimParams{
		QueueID: queueID, Calls: []storage.ClaimCall{{Max: n, Lease: lease, WorkerID: "w"}},
	})
	require.NoError(t, err)
	require.Len(t, r.Calls, 1)
	return r.Calls[0].Messages
}

func settle(t testing.TB, s storage.Store, items ...storage.Settlement) []storage.Settled {
	t.Helper()
	r, err := s.Settle(t.Context(), storage.SettleParams{Items: items})
	require.NoError(t, err)
	require.Len(t, r.Items, len(items))
	return r.Items
}

func completions(claimed []storage.Claimed) []storage.Settlement {
	out := make([]storage.Settlement, 0, len(claimed))
	for _, c := range claimed {
		out = append(out, storage.Settlement{Ref: c.Message.Ref, Token: c.Token, Action: storage.ActionComplete})
	}
	return out
}

// TestMigrateStory is the first thing to look at when nothing works: make the schema,
// send one message around.
func TestMigrateStory(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "story")
	enqueue(t, d.store, q.ID, 3)
	got := claim(t, d.store, q.ID, 2, time.Minute)
	require.Len(t, got, 2)
	require.Equal(t, "message 0", string(got[0].Message.Payload))
	r, err := d.store.Renew(t.Context(), storage.RenewParams{Items: []storage.Renewal{{Ref: got[0].Message.Ref, Token: got[0].Token, Lease: time.Hour}}})
	require.NoError(t, err)
	require.Equal(t, storage.ItemApplied, r.Items[0].Status)
	items := settle(t, d.store, completions(got)...)
	require.Equal(t, storage.ItemApplied, items[0].Status)
	require.Equal(t, storage.ItemApplied, items[1].Status)
	items = settle(t, d.store, completions(got)...)
	require.Equal(t, storage.ItemAlreadySettled, items[0].Status)
	m, err := d.store.GetMessage(t.Context(), got[0].Message.Ref, true)
	require.NoError(t, err)
	require.Equal(t, storage.StateCompleted, m.State)
	page, err := d.store.ListMessages(t.Context(), storage.ListMessagesParams{QueueID: q.ID, Limit: 2})
	require.NoError(t, err)
	require.Len(t, page.Messages, 2)
	require.NotZero(t, page.Next)
	stats, err := d.store.QueueStats(t.Context(), q.ID)
	require.NoError(t, err)
	require.EqualValues(t, 1, stats.Ready)
	require.EqualValues(t, 2, stats.Completed)
	require.NoError(t, d.store.Maintain(t.Context()))
	require.NoError(t, d.store.Ready(t.Context()))
}
