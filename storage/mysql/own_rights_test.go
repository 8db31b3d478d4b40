package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"testing"
	"time"

	drivermysql "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/internal/testdb"
	"github.com/queuebox/queuebox/server/wireid"
	"github.com/queuebox/queuebox/storage"
)

// workers is what a role needs that settles and enqueues in transactions of its own;
// docs/own-transaction.md shows the same.
var workers = []string{
	"GRANT EXECUTE ON PROCEDURE @.queuebox_mark TO %",
	"GRANT EXECUTE ON PROCEDURE @.queuebox_outcome TO %",
	"GRANT EXECUTE ON PROCEDURE @.queuebox_enqueue TO %",
}

// ownStatement gives a statement of the own transaction for a queue.
func ownStatement(t *testing.T, s storage.Store, q storage.Queue, name string) string {
	t.Helper()
	got, err := s.TransactionSQL(storage.TransactionSQLParams{QueueID: q.ID, QueueName: q.Name, MaxPayloadBytes: 1 << 20})
	require.NoError(t, err)
	for _, st := range got.Statements {
		if st.Name == name {
			return st.SQL
		}
	}
	require.Fail(t, "no statement "+name)
	return ""
}

// claimOne enqueues a message and claims it.
func claimOne(t *testing.T, s storage.Store, q storage.Queue, lease time.Duration) storage.Claimed {
	t.Helper()
	_, err := s.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: q.ID}}})
	require.NoError(t, err)
	res, err := s.Claim(t.Context(), storage.ClaimParams{
		QueueID: q.ID, Calls: []storage.ClaimCall{{WorkerID: "w", Max: 1, Lease: lease}},
	})
	require.NoError(t, err)
	require.Len(t, res.Calls[0].Messages, 1)
	return res.Calls[0].Messages[0]
}

// E12: a worker executes the procedures, from a database of his own, and reads no token.
func TestE12AWorkerNeedsExecuteAlone(t *testing.T) {
	d := newDatabase(t, false)
	q, err := d.store.CreateQueue(t.Context(), "q", settings(), 0)
	require.NoError(t, err)
	u, err := url.Parse(role(t, d.url, workers...))
	require.NoError(t, err)
	c := testdb.MySQLConfig(u)
	c.DBName = "" // his tables are elsewhere
	connector, err := drivermysql.NewConnector(c)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	claimed := claimOne(t, d.store, q, time.Minute)
	id, token := wireid.Message(claimed.Message.Ref), wireid.Token(claimed.Token)

	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	var outcome, reason string
	var at, available any
	require.NoError(t, tx.QueryRowContext(t.Context(), ownStatement(t, d.store, q, storage.TransactionComplete), id, token, []byte("result")).
		Scan(&outcome, &reason, &at, &available))
	require.Equal(t, "COMPLETED", outcome)
	_, err = tx.ExecContext(t.Context(), ownStatement(t, d.store, q, storage.TransactionEnqueue), []byte("next"), nil, nil, nil, nil, nil, nil, nil, nil, nil)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	require.NoError(t, db.QueryRowContext(t.Context(), ownStatement(t, d.store, q, storage.TransactionOutcome), id, token).
		Scan(&outcome, &reason, &at, &available))
	require.Equal(t, "COMPLETED", outcome)
	done, err := d.store.Finish(t.Context(), storage.FinishParams{Limit: 10})
	require.NoError(t, err)
	require.Len(t, done.Finished, 1)
	placed, err := d.store.Place(t.Context(), storage.PlaceParams{Limit: 10})
	require.NoError(t, err)
	require.Equal(t, 1, placed.Placed)

	for _, text := range []string{"SELECT token FROM @.message", "SELECT payload FROM @.incoming", "UPDATE @.message SET state = 0"} {
		_, err := db.ExecContext(t.Context(), inDatabase(text, d.name))
		e, ok := errors.AsType[*drivermysql.MySQLError](err)
		require.True(t, ok, "%s: %v", text, err)
		require.Contains(t, []uint16{1142, 1143, 1044}, e.Number, text)
	}
}

// E12, S13: what the mark judges is the row as it is, and not as a snapshot shows it that was
// made before; where the engine makes that a conflict, the transaction is to be run again.
func TestE12AStaleSnapshotJudgesNoStaleRow(t *testing.T) {
	d := newDatabase(t, false)
	q, err := d.store.CreateQueue(t.Context(), "q", settings(), 0)
	require.NoError(t, err)
	own := d.ownSessions(t)
	ctx := context.Background()
	for _, c := range []struct {
		name string
		// meanwhile happens after the snapshot, marks says what becomes of the mark.
		meanwhile func(t *testing.T, c storage.Claimed)
		marks     bool
	}{
		{"the lease was made longer", func(t *testing.T, c storage.Claimed) {
			t.Helper()
			_, err := d.store.Renew(ctx, storage.RenewParams{Items: []storage.Renewal{{Ref: c.Message.Ref, Token: c.Token, Lease: time.Minute}}})
			require.NoError(t, err)
			require.Eventually(t, func() bool { // the lease that the snapshot shows is over
				now, err := d.store.Now(ctx)
				return err == nil && now.After(c.Message.LeaseEnd)
			}, 20*time.Second, 10*time.Millisecond)
		}, true},
		{"somebody else has claimed it", func(t *testing.T, _ storage.Claimed) {
			t.Helper()
			require.Eventually(t, func() bool {
				res, err := d.store.Claim(ctx, storage.ClaimParams{
					QueueID: q.ID, Calls: []storage.ClaimCall{{WorkerID: "other", Max: 1, Lease: time.Minute}},
				})
				return err == nil && len(res.Calls[0].Messages) == 1
			}, 20*time.Second, 10*time.Millisecond)
		}, false},
		{"it was settled", func(t *testing.T, c storage.Claimed) {
			t.Helper()
			_, err := d.store.Settle(ctx, storage.SettleParams{Items: []storage.Settlement{
				{Ref: c.Message.Ref, Token: c.Token, Action: storage.ActionRetry, HasDelay: true, Delay: time.Hour},
			}})
			require.NoError(t, err)
		}, false},
	} {
		for _, level := range []string{"REPEATABLE READ", "SERIALIZABLE"} {
			t.Run(c.name+"/"+level, func(t *testing.T) {
				claimed := claimOne(t, d.store, q, 600*time.Millisecond)
				s := own.Begin(t, level)
				defer func() { _ = s.Rollback() }()
				_, err := s.Query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
				require.NoError(t, err)
				c.meanwhile(t, claimed)
				rows, err := s.Query(ownStatement(t, d.store, q, storage.TransactionComplete), wireid.Message(claimed.Message.Ref), wireid.Token(claimed.Token), nil)
				if err != nil {
					require.True(t, own.Conflict(err), "%v", err)
					return
				}
				require.Equal(t, c.marks, len(rows) == 1)
			})
		}
	}
}

// E12: an ordering key that somebody has keeps the marks of others from nothing.
func TestE12AKeyThatSomebodyHasKeepsNobodyElseBack(t *testing.T) {
	d := newDatabase(t, false)
	q, err := d.store.CreateQueue(t.Context(), "q", settings(), 0)
	require.NoError(t, err)
	messages := []storage.NewMessage{{QueueID: q.ID, OrderingKey: "a"}, {QueueID: q.ID, OrderingKey: "b"}, {QueueID: q.ID}}
	_, err = d.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: messages})
	require.NoError(t, err)
	res, err := d.store.Claim(t.Context(), storage.ClaimParams{
		QueueID: q.ID, Calls: []storage.ClaimCall{{WorkerID: "w", Max: 3, Lease: time.Minute}},
	})
	require.NoError(t, err)
	require.Len(t, res.Calls[0].Messages, 3)
	s := d.ownSessions(t).Begin(t, "READ COMMITTED")
	for _, c := range res.Calls[0].Messages {
		rows, err := s.Query(ownStatement(t, d.store, q, storage.TransactionComplete), wireid.Message(c.Message.Ref), wireid.Token(c.Token), nil)
		require.NoError(t, err)
		require.Len(t, rows, 1)
	}
	require.NoError(t, s.Commit())
	end := d.transaction(t, "no key", func(ctx context.Context, conn *sql.Conn) (n int64, err error) {
		err = conn.QueryRowContext(ctx, "SELECT 1 FROM ordering_key FORCE INDEX (ordering_key_name) WHERE queue_id = ? AND name = 'a' FOR UPDATE", q.ID).Scan(&n)
		return n, err
	})
	done, err := d.store.Finish(t.Context(), storage.FinishParams{Limit: 10})
	require.NoError(t, err)
	require.Len(t, done.Finished, 2)
	end(true)
	done, err = d.store.Finish(t.Context(), storage.FinishParams{Limit: 10})
	require.NoError(t, err)
	require.Len(t, done.Finished, 1)
}

// E12: an ordering key that somebody has keeps messages of others from nothing, and its own in
// their order.
func TestE12AKeyThatSomebodyHasKeepsNoOtherMessageBack(t *testing.T) {
	d := newDatabase(t, false)
	q, err := d.store.CreateQueue(t.Context(), "q", settings(), 0)
	require.NoError(t, err)
	claimed := claimKeyed(t, d, q, "a")
	s := d.ownSessions(t).Begin(t, "READ COMMITTED")
	for _, key := range []any{"a", "b", "a", nil} {
		_, err := s.Query(ownStatement(t, d.store, q, storage.TransactionEnqueue), []byte("x"), nil, nil, nil, key, nil, nil, nil, nil, nil)
		require.NoError(t, err)
	}
	require.NoError(t, s.Commit())
	end := d.transaction(t, "no key", func(ctx context.Context, conn *sql.Conn) (n int64, err error) {
		err = conn.QueryRowContext(ctx, "SELECT 1 FROM ordering_key FORCE INDEX (ordering_key_name) WHERE queue_id = ? AND name = 'a' FOR UPDATE", q.ID).Scan(&n)
		return n, err
	})
	done, err := d.store.Place(t.Context(), storage.PlaceParams{Limit: 10})
	require.NoError(t, err)
	require.Equal(t, 2, done.Placed)
	end(true)
	done, err = d.store.Place(t.Context(), storage.PlaceParams{Limit: 10})
	require.NoError(t, err)
	require.Equal(t, 2, done.Placed)
	require.Equal(t, []string{"2"}, d.lines(t, "SELECT COUNT(*) FROM message WHERE key_id IS NOT NULL AND place = 2"), "behind %v", claimed.Message.Ref)
}

// claimKeyed enqueues a message with an ordering key and claims it, so that the key stays.
func claimKeyed(t *testing.T, d *database, q storage.Queue, key string) storage.Claimed {
	t.Helper()
	_, err := d.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: q.ID, OrderingKey: key}}})
	require.NoError(t, err)
	res, err := d.store.Claim(t.Context(), storage.ClaimParams{
		QueueID: q.ID, Calls: []storage.ClaimCall{{WorkerID: "w", Max: 1, Lease: time.Minute}},
	})
	require.NoError(t, err)
	require.Len(t, res.Calls[0].Messages, 1)
	return res.Calls[0].Messages[0]
}
