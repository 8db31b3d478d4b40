package blackbox

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// ownStatements asks the server for the statements of a queue, by name.
func ownStatements(t *testing.T, c *Client) map[string]*queueboxv1.TransactionSql {
	t.Helper()
	got, err := c.Admin.GetTransactionSql(within(t), &queueboxv1.GetTransactionSqlRequest{Queue: "q"})
	require.NoError(t, err)
	require.EqualValues(t, 1, got.GetContractVersion())
	out := map[string]*queueboxv1.TransactionSql{}
	for _, s := range got.GetStatements() {
		out[s.GetName()] = s
	}
	return out
}

// ownDatabase opens the database as a worker does that shares it: with prepared statements.
func ownDatabase(t *testing.T, db *Database) *sql.DB {
	t.Helper()
	return db.connect(t, true)
}

// TestE12OverTwoServers has one server that hands out, another that finishes, and a worker that
// settles in the database: what one commits every one sees, and the next message of the key
// is there within a second or two, with or without a word to the servers.
func TestE12OverTwoServers(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		a, b := db.Start(t, shortLeases).Client(t), db.Start(t, shortLeases).Client(t)
		conn := ownDatabase(t, db)
		_, err := conn.ExecContext(t.Context(), "CREATE TABLE business (id VARCHAR(100) PRIMARY KEY)")
		require.NoError(t, err)
		enqueue(t, a, "q", "first")
		st := ownStatements(t, b)
		for round, notify := range []bool{true, false} {
			tx, err := conn.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			for i := range 3 {
				_, err = tx.ExecContext(t.Context(), st["enqueue"].GetSql(), fmt.Appendf(nil, "%d", i), nil, nil, nil, fmt.Sprintf("key %d", round), nil, nil, nil, nil, nil)
				require.NoError(t, err)
			}
			if notify && st["notify"] != nil {
				_, err = tx.ExecContext(t.Context(), st["notify"].GetSql())
				require.NoError(t, err)
			}
			require.NoError(t, tx.Commit())
			for range 4 - min(round, 1) {
				m := claimSoon(t, a, "q", time.Minute)
				var level *sql.TxOptions
				if db.Name != EngineSQLite { // which knows no other
					level = &sql.TxOptions{Isolation: sql.LevelSerializable}
				}
				tx, err := conn.BeginTx(t.Context(), level)
				require.NoError(t, err)
				var outcome, reason string
				var at, available any
				require.NoError(t, tx.QueryRowContext(t.Context(), st["complete"].GetSql(), m.GetMessage().GetMessageId(), m.GetClaimToken(), []byte("result")).
					Scan(&outcome, &reason, &at, &available))
				require.Equal(t, "COMPLETED", outcome)
				_, err = tx.ExecContext(t.Context(), fmt.Sprintf("INSERT INTO business VALUES ('%s')", m.GetMessage().GetMessageId()))
				require.NoError(t, err)
				require.NoError(t, tx.Commit())
				for _, c := range []*Client{a, b} {
					got := message(t, c, "q", m.GetMessage().GetMessageId())
					require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_COMPLETED, got.GetState())
					require.Equal(t, "result", string(got.GetResult()))
				}
				again, err := complete(t, b, "q", m)
				require.NoError(t, err)
				require.True(t, again.GetAlreadySettled(), "S5")
				_, err = a.Retry(within(t), &queueboxv1.RetryRequest{Queue: "q", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken()})
				RequireStatus(t, err, settledAs("COMPLETED"))
			}
		}
		require.Equal(t, []string{"7"}, Rows(t, conn, "SELECT count(*) FROM business"))
	})
}

// TestD4AKilledServerLeavesMarksForTheNextOne kills the only server between the commit of a
// transaction and its end.
func TestD4AKilledServerLeavesMarksForTheNextOne(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		first := db.Start(t, shortLeases)
		c := first.Client(t)
		ids := enqueueMany(t, c, "q", 20)
		st := ownStatements(t, c)
		claimed := claim(t, c, "q", 20, time.Minute)
		require.Len(t, claimed, 20)
		conn := ownDatabase(t, db)
		tx, err := conn.BeginTx(context.WithoutCancel(t.Context()), nil)
		require.NoError(t, err)
		for _, m := range claimed {
			var outcome, reason string
			var at, available any
			row := tx.QueryRowContext(t.Context(), st["complete"].GetSql(), m.GetMessage().GetMessageId(), m.GetClaimToken(), nil)
			require.NoError(t, row.Scan(&outcome, &reason, &at, &available))
		}
		_, err = tx.ExecContext(t.Context(), st["enqueue"].GetSql(), []byte("more"), nil, nil, nil, nil, nil, nil, nil, nil, nil)
		require.NoError(t, err)
		first.Kill()
		require.NoError(t, tx.Commit(), "nobody is there to finish it")
		c = db.Start(t, shortLeases).Client(t)
		for _, id := range ids {
			require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_COMPLETED, message(t, c, "q", id).GetState())
		}
		m := claimSoon(t, c, "q", time.Minute)
		require.Equal(t, "more", string(m.GetMessage().GetPayload()))
		require.EqualValues(t, 20, freshStats(t, c).GetCompletedCount())
		eventually(t, "the marks are finished", func() bool {
			return Rows(t, conn, "SELECT count(*) FROM "+db.Table("marked"))[0] == "0"
		})
	})
}

// TestE12TextThatIsNone appends and settles with bytes that are no UTF-8: SQLite keeps any bytes,
// the others refuse them in the transaction. Neither stops the messages behind it, and what
// everybody reads afterwards is text.
func TestE12TextThatIsNone(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		c := db.Start(t, shortLeases).Client(t)
		enqueue(t, c, "q", "first")
		m := claimOne(t, c, "q", time.Minute)
		st := ownStatements(t, c)
		conn := ownDatabase(t, db)
		id, token := m.GetMessage().GetMessageId(), m.GetClaimToken()
		for _, bad := range [][2]string{
			{id[:5] + "!" + id[6:], token}, {id, token[:5] + "u" + token[6:]}, {id + "0", token}, {strings.ToUpper(id), token}, {token, id}, {"", ""},
		} {
			require.Empty(t, Rows(t, conn, st["outcome"].GetSql(), bad[0], bad[1]))
			require.Empty(t, Rows(t, conn, st["complete"].GetSql(), bad[0], bad[1], nil), "names no claim: %q", bad)
		}
		const none = "a\xff\xfe"
		rows := [][]any{{"settle", id, token, "code " + none, "error " + none}}
		for column := 1; column <= 4; column++ {
			row := []any{"append", []byte("poison"), nil, nil, nil, nil, nil, nil, nil, nil, nil}
			row[column+1] = none
			if column == 2 {
				row[column+1] = `{"a": "` + none + `"}`
			}
			rows = append(rows, row)
		}
		for _, row := range rows {
			statement := st["enqueue"].GetSql()
			if row[0] == "settle" {
				statement = st["dead_letter"].GetSql()
			}
			_, err := conn.ExecContext(t.Context(), statement, row[1:]...)
			require.Equal(t, db.Name != EngineSQLite, err != nil, "%v", err)
		}
		_, err := conn.ExecContext(t.Context(), st["enqueue"].GetSql(), []byte("behind"), nil, nil, nil, nil, nil, nil, nil, nil, nil)
		require.NoError(t, err)
		got := claimSoon(t, c, "q", time.Minute)
		require.Equal(t, "behind", string(got.GetMessage().GetPayload()))
		first := message(t, c, "q", id)
		if db.Name == EngineSQLite {
			require.Equal(t, []string{"code a?", "error a?"}, []string{first.GetReasonCode(), first.GetLastError()})
			eventually(t, "the rows are set aside", func() bool {
				return Rows(t, conn, "SELECT count(*) FROM incoming WHERE refused IS NOT NULL")[0] == "4"
			})
		}
		listed, err := c.Admin.ListMessages(within(t), &queueboxv1.ListMessagesRequest{Queue: "q", IncludePayload: true})
		require.NoError(t, err)
		require.Len(t, listed.GetMessages(), 2)
	})
}

// TestE12AHeldClaimSaysWhoHoldsIt asks to cancel and to revoke a claim that an open transaction
// has marked: the answer names the transaction, not a database that is away.
func TestE12AHeldClaimSaysWhoHoldsIt(t *testing.T) {
	t.Parallel()
	db := Postgres(t)
	c := db.Start(t, shortLeases).Client(t)
	id := enqueue(t, c, "q", "x")
	m := claimOne(t, c, "q", time.Minute)
	tx, err := ownDatabase(t, db).BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), ownStatements(t, c)["complete"].GetSql(), id, m.GetClaimToken(), nil)
	require.NoError(t, err)
	_, cancelled := c.Cancel(within(t), &queueboxv1.CancelRequest{Queue: "q", Target: &queueboxv1.CancelRequest_MessageId{MessageId: id}})
	_, revoked := c.Admin.RevokeClaim(within(t), &queueboxv1.RevokeClaimRequest{Queue: "q", MessageId: id})
	require.NoError(t, tx.Rollback())
	for _, err := range []error{cancelled, revoked} {
		RequireStatus(t, err, Want{Code: codes.Unavailable, Reason: "STORAGE_UNAVAILABLE"})
		require.ErrorContains(t, err, "another transaction")
	}
	_, err = complete(t, c, "q", m)
	require.NoError(t, err, "the claim is as before")
}
