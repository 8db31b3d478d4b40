package owntx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	mssqldriver "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	queuebox "github.com/queuebox/queuebox/client/go"
	"github.com/queuebox/queuebox/client/go/pgxtx"
	"github.com/queuebox/queuebox/client/go/sqltx"
	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/leaktest"
	"github.com/queuebox/queuebox/internal/proxy"
	"github.com/queuebox/queuebox/internal/testdb"
	"github.com/queuebox/queuebox/internal/testserver"
	"github.com/queuebox/queuebox/server"
	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/mssql"
	"github.com/queuebox/queuebox/storage/mysql"
	"github.com/queuebox/queuebox/storage/postgres"
	"github.com/queuebox/queuebox/storage/sqlite"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// tx is the transaction of a test's work, of either helper.
type tx interface {
	exec(ctx context.Context, sql string) error
}

// helper is pgxtx or sqltx on one database.
type helper struct {
	name    string
	settle  func(ctx context.Context, h *queuebox.Handle, a action, work func(context.Context, tx) error) (queuebox.Settled, error)
	enqueue func(ctx context.Context, c *queuebox.Client, commit bool, ms ...queuebox.NewMessage) error
}

// action says how to settle.
type action struct {
	kind         string // complete, retry or dead
	serializable bool
	retry        queuebox.RetryOptions
}

type pgxTx struct{ pgx.Tx }

func (t pgxTx) exec(ctx context.Context, sql string) error {
	_, err := t.Exec(ctx, sql)
	return err
}

type sqlTx struct{ *sql.Tx }

func (t sqlTx) exec(ctx context.Context, text string) error {
	_, err := t.ExecContext(ctx, text)
	return err
}

func pgxHelper(t *testing.T, databaseURL string) helper {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), databaseURL)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return helper{
		name: "pgxtx",
		settle: func(ctx context.Context, h *queuebox.Handle, a action, work func(context.Context, tx) error) (queuebox.Settled, error) {
			f := func(ctx context.Context, tx pgx.Tx) error { return work(ctx, pgxTx{tx}) }
			var opts []pgxtx.Option
			if a.serializable {
				opts = append(opts, pgxtx.WithTxOptions(pgx.TxOptions{IsoLevel: pgx.Serializable}))
			}
			switch a.kind {
			case "retry":
				return pgxtx.Retry(ctx, pool, h, a.retry, f, opts...)
			case "dead":
				return pgxtx.DeadLetter(ctx, pool, h, "bad", "no use", f, opts...)
			}
			return pgxtx.Complete(ctx, pool, h, f, append(opts, pgxtx.WithResult([]byte("result")))...)
		},
		enqueue: func(ctx context.Context, c *queuebox.Client, commit bool, ms ...queuebox.NewMessage) error {
			tx, err := pool.Begin(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
			if err := pgxtx.Enqueue(ctx, tx, c, "q", ms...); err != nil || !commit {
				return err
			}
			if err := pgxtx.Notify(ctx, tx, c, "q"); err != nil {
				return err
			}
			return tx.Commit(ctx)
		},
	}
}

func sqlHelper(t *testing.T, driver, dsn string) helper {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return helperOn(driver, db)
}

// helperOn is sqltx on a database.
func helperOn(driver string, db *sql.DB) helper {
	return helper{
		name: "sqltx/" + driver,
		settle: func(ctx context.Context, h *queuebox.Handle, a action, work func(context.Context, tx) error) (queuebox.Settled, error) {
			f := func(ctx context.Context, tx *sql.Tx) error { return work(ctx, sqlTx{tx}) }
			var opts []sqltx.Option
			if a.serializable {
				opts = append(opts, sqltx.WithTxOptions(sql.TxOptions{Isolation: sql.LevelSerializable}))
			}
			switch a.kind {
			case "retry":
				return sqltx.Retry(ctx, db, h, a.retry, f, opts...)
			case "dead":
				return sqltx.DeadLetter(ctx, db, h, "bad", "no use", f, opts...)
			}
			return sqltx.Complete(ctx, db, h, f, append(opts, sqltx.WithResult([]byte("result")))...)
		},
		enqueue: func(ctx context.Context, c *queuebox.Client, commit bool, ms ...queuebox.NewMessage) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			if err := sqltx.Enqueue(ctx, tx, c, "q", ms...); err != nil || !commit {
				return err
			}
			if err := sqltx.Notify(ctx, tx, c, "q"); err != nil {
				return err
			}
			return tx.Commit()
		},
	}
}

// world is a server on a database, with a client and the table of a program of its own.
type world struct {
	helper

	client *queuebox.Client
	count  func(t *testing.T, table string) int
	exec   func(t *testing.T, sql string)
	// hold runs a statement in another session and keeps its locks until release is called; nil
	// where a serialization failure makes the same case.
	hold func(t *testing.T, sql string) (release func())
	cut  *proxy.Proxy // between the helper and the database; nil where there is no connection
}

func (w *world) claim(t *testing.T, lease time.Duration) *queuebox.Handle {
	t.Helper()
	hs, err := w.client.Claim(t.Context(), queuebox.ClaimOptions{Queue: "q", Lease: lease, Wait: 20 * time.Second})
	require.NoError(t, err)
	require.Len(t, hs, 1)
	return hs[0]
}

func (w *world) put(t *testing.T) string {
	t.Helper()
	got, err := w.client.Enqueue(t.Context(), "q", queuebox.NewMessage{Payload: []byte("payload")})
	require.NoError(t, err)
	return got.MessageID
}

func (w *world) state(t *testing.T, id string) queueboxv1.MessageState {
	t.Helper()
	got, err := queueboxv1.NewAdminServiceClient(w.client.Conn()).GetMessage(t.Context(), &queueboxv1.GetMessageRequest{Queue: "q", MessageId: id})
	require.NoError(t, err)
	return got.GetMessage().GetState()
}

func serve(t *testing.T, config server.Config) *queuebox.Client {
	t.Helper()
	config.QueueDefaults.MinLease = time.Millisecond
	config.QueueDefaults.Retry.Min, config.QueueDefaults.Retry.Max = 10*time.Millisecond, 50*time.Millisecond
	config.DrainTimeout = 5 * time.Second
	addr, _ := testserver.Serve(t, config, testserver.Anywhere)
	c, err := queuebox.Dial(addr, queuebox.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// onPostgres runs a test with pgxtx and with sqltx.
func onPostgres(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	for _, name := range []string{"pgxtx", "sqltx"} {
		t.Run(name, func(t *testing.T) {
			databaseURL := testdb.Postgres(t)
			store, err := postgres.Open(t.Context(), postgres.Config{URL: databaseURL, Migrate: true})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, store.Close()) })
			config := server.DefaultConfig()
			config.Store = store
			w := &world{client: serve(t, config)}
			u, err := url.Parse(databaseURL)
			require.NoError(t, err)
			w.cut = proxy.New(t, u.Host)
			through, err := w.cut.URL(databaseURL)
			require.NoError(t, err)
			beside, err := pgx.Connect(t.Context(), databaseURL)
			require.NoError(t, err)
			t.Cleanup(func() { _ = beside.Close(context.Background()) })
			w.exec = func(t *testing.T, text string) {
				t.Helper()
				_, err := beside.Exec(t.Context(), text)
				require.NoError(t, err)
			}
			w.count = func(t *testing.T, table string) (n int) {
				t.Helper()
				require.NoError(t, beside.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
				return n
			}
			w.exec(t, "CREATE TABLE invoice (n integer PRIMARY KEY)")
			if name == "pgxtx" {
				w.helper = pgxHelper(t, through)
			} else {
				w.helper = sqlHelper(t, "pgx", through)
			}
			test(t, w)
		})
	}
}

// onMySQL runs a test with sqltx on MariaDB or MySQL, through connections in a time zone and at
// an isolation level of their own.
func onMySQL(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Run("sqltx/mysql", func(t *testing.T) {
		databaseURL := testdb.MySQL(t)
		store, err := mysql.Open(t.Context(), mysql.Config{URL: databaseURL, Migrate: true})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		connect := func(raw string) driver.Connector {
			u, err := url.Parse(raw)
			require.NoError(t, err)
			c := testdb.MySQLConfig(u)
			c.Params = map[string]string{"time_zone": "'-09:30'", "innodb_lock_wait_timeout": "1"}
			connector, err := mysqldriver.NewConnector(c)
			require.NoError(t, err)
			return connector
		}
		cut, through := proxy.Before(t, databaseURL)
		w := onServer(t, store, connect(through), connect(databaseURL))
		w.cut = cut
		test(t, w)
	})
}

// onMSSQL runs a test with sqltx on SQL Server.
func onMSSQL(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Run("sqltx/mssql", func(t *testing.T) {
		databaseURL := testdb.MSSQL(t)
		store, err := mssql.Open(t.Context(), mssql.Config{URL: databaseURL, Migrate: true})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		connector, err := mssqldriver.NewConnector(databaseURL)
		require.NoError(t, err)
		test(t, onServer(t, store, connector, connector))
	})
}

// onServer makes the world of a test on a database that sqltx reaches by a connector, and the
// test beside it by another.
func onServer(t *testing.T, store storage.Store, connector, other driver.Connector) *world {
	t.Helper()
	config := server.DefaultConfig()
	config.Store = store
	w := &world{client: serve(t, config)}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	w.helper = helperOn(store.Capabilities().Name, db)
	beside := sql.OpenDB(other)
	t.Cleanup(func() { require.NoError(t, beside.Close()) })
	w.exec = func(t *testing.T, text string) {
		t.Helper()
		_, err := beside.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	w.hold = func(t *testing.T, text string) func() {
		t.Helper()
		tx, err := beside.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), text)
		require.NoError(t, err)
		return func() { require.NoError(t, tx.Commit()) }
	}
	w.count = func(t *testing.T, table string) (n int) {
		t.Helper()
		require.NoError(t, beside.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
		return n
	}
	w.exec(t, "CREATE TABLE invoice (n integer PRIMARY KEY)")
	return w
}

// everywhere runs a test on PostgreSQL, and on the other databases with sqltx.
func everywhere(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	onPostgres(t, test)
	onMySQL(t, test)
	onMSSQL(t, test)
	t.Run("sqltx/sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "queue.db")
		store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		config := server.DefaultConfig()
		config.Store = store
		w := &world{client: serve(t, config)}
		dsn := "file:" + path + "?_pragma=busy_timeout(10000)"
		w.helper = sqlHelper(t, "sqlite", dsn)
		beside, err := sql.Open("sqlite", dsn)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, beside.Close()) })
		w.exec = func(t *testing.T, text string) {
			t.Helper()
			_, err := beside.ExecContext(t.Context(), text)
			require.NoError(t, err)
		}
		w.count = func(t *testing.T, table string) (n int) {
			t.Helper()
			require.NoError(t, beside.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
			return n
		}
		w.exec(t, "CREATE TABLE invoice (n integer PRIMARY KEY)")
		test(t, w)
	})
}

func insert(n int) func(context.Context, tx) error {
	return func(ctx context.Context, tx tx) error {
		return tx.exec(ctx, fmt.Sprintf("INSERT INTO invoice VALUES (%d)", n))
	}
}

func TestE12_EverySettlementIsCommittedWithTheRows(t *testing.T) {
	everywhere(t, everySettlement)
}

func everySettlement(t *testing.T, w *world) {
	t.Helper()
	for n, a := range []struct {
		action

		want    queuebox.Outcome
		becomes queueboxv1.MessageState
	}{
		{action{kind: "complete"}, queuebox.OutcomeCompleted, queueboxv1.MessageState_MESSAGE_STATE_COMPLETED},
		{action{kind: "complete", serializable: true}, queuebox.OutcomeCompleted, queueboxv1.MessageState_MESSAGE_STATE_COMPLETED},
		{action{kind: "dead"}, queuebox.OutcomeDead, queueboxv1.MessageState_MESSAGE_STATE_DEAD},
		{action{kind: "retry", retry: queuebox.RetryOptions{Delay: time.Hour, Error: "later"}}, queuebox.OutcomeRetried, queueboxv1.MessageState_MESSAGE_STATE_PENDING},
	} {
		id := w.put(t)
		h := w.claim(t, time.Minute)
		got, err := w.settle(t.Context(), h, a.action, insert(n))
		require.NoError(t, err)
		require.Equal(t, a.want, got.Outcome)
		require.False(t, got.AlreadySettled)
		require.Equal(t, a.becomes, w.state(t, id), "from the commit on")
		require.Equal(t, n+1, w.count(t, "invoice"))
		require.ErrorIs(t, context.Cause(h.Context()), queuebox.ErrAlreadySettled)
		_, err = h.Complete(t.Context())
		require.ErrorIs(t, err, queuebox.ErrAlreadySettled, "K5")
		_, err = w.settle(t.Context(), h, a.action, insert(100))
		require.ErrorIs(t, err, queuebox.ErrAlreadySettled)
		switch a.kind {
		case "complete":
			require.False(t, got.CompleteTime.IsZero())
		case "retry":
			require.Greater(t, time.Until(got.AvailableTime), 50*time.Minute)
		}
	}
}

func TestE12_AFailureOfTheWorkLeavesTheClaimAsItWas(t *testing.T) {
	everywhere(t, workFails)
}

func workFails(t *testing.T, w *world) {
	t.Helper()
	id := w.put(t)
	h := w.claim(t, time.Minute)
	mine := errors.New("mine")
	_, err := w.settle(t.Context(), h, action{kind: "complete"}, func(ctx context.Context, tx tx) error {
		require.NoError(t, insert(1)(ctx, tx))
		return mine
	})
	require.ErrorIs(t, err, mine)
	require.Panics(t, func() {
		_, _ = w.settle(t.Context(), h, action{kind: "complete"}, func(context.Context, tx) error { panic("work") })
	})
	ctx, cancel := context.WithCancel(t.Context())
	_, err = w.settle(ctx, h, action{kind: "complete"}, func(ctx context.Context, tx tx) error {
		cancel()
		return insert(2)(ctx, tx)
	})
	require.Error(t, err)
	require.Zero(t, w.count(t, "invoice"))
	require.NoError(t, h.Context().Err(), "still held")
	require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_PROCESSING, w.state(t, id))
	_, err = w.settle(t.Context(), h, action{kind: "complete"}, insert(3))
	require.NoError(t, err)
	require.Equal(t, 1, w.count(t, "invoice"))
}

func TestE12_ALostClaimLeavesNoRow(t *testing.T) {
	everywhere(t, lostClaim)
}

func lostClaim(t *testing.T, w *world) {
	t.Helper()
	id := w.put(t)
	h := w.claim(t, time.Minute)
	_, err := queueboxv1.NewAdminServiceClient(w.client.Conn()).RevokeClaim(t.Context(), &queueboxv1.RevokeClaimRequest{Queue: "q", MessageId: id})
	require.NoError(t, err)
	ran := false
	_, err = w.settle(t.Context(), h, action{kind: "complete"}, func(ctx context.Context, tx tx) error {
		ran = true
		return insert(1)(ctx, tx)
	})
	require.ErrorIs(t, err, queuebox.ErrClaimLost)
	require.False(t, ran, "the mark comes first")
	require.Zero(t, w.count(t, "invoice"))
	require.ErrorIs(t, context.Cause(h.Context()), queuebox.ErrClaimLost)
}

// TestK2_TheLeaseMayEndWhileTheTransactionIsOpen: the row lock holds the claim, and nothing ends
// the context of the work.
func TestK2_TheLeaseMayEndWhileTheTransactionIsOpen(t *testing.T) {
	everywhere(t, leaseEnds)
}

func leaseEnds(t *testing.T, w *world) {
	t.Helper()
	id := w.put(t)
	h := w.claim(t, 400*time.Millisecond)
	got, err := w.settle(h.Context(), h, action{kind: "complete"}, func(ctx context.Context, tx tx) error {
		require.NoError(t, insert(1)(ctx, tx))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(1200 * time.Millisecond): // three leases long
		}
		return insert(2)(ctx, tx)
	})
	require.NoError(t, err)
	require.Equal(t, queuebox.OutcomeCompleted, got.Outcome)
	require.Equal(t, 2, w.count(t, "invoice"))
	require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_COMPLETED, w.state(t, id))
}

func TestE12_AConflictRunsTheWorkAgain(t *testing.T) {
	onPostgres(t, func(t *testing.T, w *world) {
		w.exec(t, "CREATE TABLE stock (n integer)")
		w.exec(t, "INSERT INTO stock VALUES (10)")
		w.put(t)
		h := w.claim(t, time.Minute)
		runs := 0
		_, err := w.settle(t.Context(), h, action{kind: "complete", serializable: true}, func(ctx context.Context, tx tx) error {
			runs++
			if err := tx.exec(ctx, "SELECT n FROM stock"); err != nil {
				return err
			}
			if runs == 1 {
				w.exec(t, "UPDATE stock SET n = n - 1") // another one is faster
			}
			return tx.exec(ctx, "UPDATE stock SET n = n - 1")
		})
		require.NoError(t, err)
		require.Equal(t, 2, runs)
		require.Equal(t, 1, w.count(t, "stock WHERE n = 8"))
	})
}

// Where others are waited for and nothing is a conflict by itself, the wait ends with an error that
// asks for the transaction to be run again.
func TestE12_ALockThatWasNotHadInTimeRunsTheWorkAgain(t *testing.T) {
	onMySQL(t, func(t *testing.T, w *world) {
		w.exec(t, "CREATE TABLE stock (n integer)")
		w.exec(t, "INSERT INTO stock VALUES (10)")
		w.put(t)
		h := w.claim(t, time.Minute)
		release := w.hold(t, "UPDATE stock SET n = n - 1")
		runs := 0
		_, err := w.settle(t.Context(), h, action{kind: "complete"}, func(ctx context.Context, tx tx) error {
			runs++
			if runs == 2 {
				release()
			}
			return tx.exec(ctx, "UPDATE stock SET n = n - 1")
		})
		require.NoError(t, err)
		require.Equal(t, 2, runs)
		require.Equal(t, 1, w.count(t, "stock WHERE n = 8"))
	})
}

// TestD8_ACommitWithoutAnAnswer: whatever became of it, the rows and the settlement are there
// exactly once.
func TestD8_ACommitWithoutAnAnswer(t *testing.T) {
	for _, when := range []struct {
		name  string
		point proxy.Moment
	}{{"it was committed", proxy.BeforeAnswer}, {"it was not", proxy.BeforeRequest}} {
		t.Run(when.name, func(t *testing.T) {
			answered := func(t *testing.T, w *world) {
				t.Helper()
				id := w.put(t)
				h := w.claim(t, time.Minute)
				var runs atomic.Int32
				got, err := w.settle(t.Context(), h, action{kind: "complete"}, func(ctx context.Context, tx tx) error {
					if runs.Add(1) == 1 {
						w.cut.CutAt(when.point, func(s proxy.Statement) bool { return s.SQL == "commit" || s.SQL == "COMMIT" })
					}
					return insert(1)(ctx, tx)
				})
				require.NoError(t, err)
				// The commit was cut off: the work ran again, or a second mark found that it must not.
				require.Equal(t, map[proxy.Moment]int32{proxy.BeforeAnswer: 1, proxy.BeforeRequest: 2}[when.point], runs.Load())
				require.Equal(t, when.point == proxy.BeforeAnswer, got.AlreadySettled)
				require.Equal(t, 1, w.count(t, "invoice"))
				require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_COMPLETED, w.state(t, id))
			}
			onPostgres(t, answered)
			onMySQL(t, answered)
		})
	}
}

func TestE12_EnqueueIsCommittedWithTheRows(t *testing.T) {
	everywhere(t, enqueues)
}

func enqueues(t *testing.T, w *world) {
	t.Helper()
	require.ErrorIs(t, w.enqueue(t.Context(), w.client, true, queuebox.NewMessage{}), queuebox.ErrQueueNotFound, "the statements hold its id")
	w.put(t)
	_, err := w.claim(t, time.Minute).Complete(t.Context())
	require.NoError(t, err)
	at := time.Now().Add(-time.Hour)
	full := queuebox.NewMessage{
		Payload: []byte("full"), ContentType: "text/plain", Attributes: map[string]string{"a": "b"}, IdempotencyKey: "key",
		Priority: 3, AvailableTime: at, MaxAttempts: 7, ExpireTime: time.Now().Add(time.Hour),
	}
	require.NoError(t, w.enqueue(t.Context(), w.client, false, full), "rolled back")
	require.NoError(t, w.enqueue(t.Context(), w.client, true, full, queuebox.NewMessage{}))
	// They are placed one after the other, so either may be the first to be claimed.
	h, other := w.claim(t, time.Minute), w.claim(t, time.Minute)
	if len(h.Message().Payload) == 0 {
		h, other = other, h
	}
	require.Empty(t, other.Message().Payload)
	m := h.Message()
	require.Equal(t, "full", string(m.Payload))
	require.Equal(t, "text/plain", m.ContentType)
	require.Equal(t, map[string]string{"a": "b"}, m.Attributes)
	require.EqualValues(t, 7, m.MaxAttempts)
	_, err = h.Complete(t.Context())
	require.NoError(t, err)
	// The same over gRPC is a duplicate of it.
	got, err := w.client.Enqueue(t.Context(), "q", full)
	require.NoError(t, err)
	require.True(t, got.Duplicate)
	require.Equal(t, m.ID, got.MessageID)
	require.Error(t, w.enqueue(t.Context(), w.client, true, queuebox.NewMessage{Payload: make([]byte, 2<<20)}), "too large")
}
