package mysql_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage/mysql"
)

// rowsRead is how many rows, index entries among them, the database reads for a statement of
// the store; in one of the claim, place is where in the order of a claim it begins.
func (d *database) rowsRead(t testing.TB, name string, queueID int, place string) (n int) {
	t.Helper()
	text, err := mysql.Statement(name)
	require.NoError(t, err)
	urgency, ready, _ := strings.Cut(place, ", ")
	text = strings.NewReplacer(
		":queue_id", fmt.Sprint(queueID), ":urgency", urgency, ":ready_time", ready, ":last_urgency", "9999999999",
		":limit", "10", ":claim_ids", "'[]'", ":now", "SYSDATE(6)",
	).Replace(strings.ReplaceAll(text, ":now", fmt.Sprintf("TIMESTAMP'%s'", d.lines(t, "SELECT SYSDATE(6)")[0])))
	d.inside(t, func(conn *sql.Conn) {
		defer func() { _, _ = conn.ExecContext(t.Context(), "ROLLBACK") }()
		for _, text := range []string{"FLUSH STATUS", "START TRANSACTION"} {
			_, err := conn.ExecContext(t.Context(), text)
			require.NoError(t, err)
		}
		rows, err := conn.QueryContext(t.Context(), text)
		require.NoError(t, err)
		for rows.Next() {
		}
		require.NoError(t, rows.Err())
		require.NoError(t, rows.Close())
		rows, err = conn.QueryContext(t.Context(), "SHOW SESSION STATUS LIKE 'Handler\\_read\\_%'")
		require.NoError(t, err)
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var counter string
			var value int
			require.NoError(t, rows.Scan(&counter, &value))
			n += value
		}
		require.NoError(t, rows.Err())
	})
	return n
}

const anywhere = "-9999999999, TIMESTAMP'1970-01-01 00:00:00'"

// A claim reads as many rows as it takes, and a few: not what is delayed, not what stands behind
// the last one, and what is leased in front of the first one only without a lock.
func TestC12AClaimReadsWhatItTakes(t *testing.T) {
	d := newDatabase(t, false)
	for i := range 4 {
		queue(t, d.store, fmt.Sprint("queue ", i))
	}
	d.fill(t, 1, 5000, readyShape)
	d.fill(t, 2, 5000, delayedShape)
	d.fill(t, 3, 5000, leasedShape)
	d.exec(t, "UPDATE message SET urgency = urgency - 5 WHERE queue_id = 3")
	d.fill(t, 3, 20, readyShape)
	for range 2 {
		const few = 60
		require.LessOrEqual(t, d.rowsRead(t, "claim_look", 1, anywhere), few)
		require.LessOrEqual(t, d.rowsRead(t, "claim_lock", 1, anywhere), few)
		require.LessOrEqual(t, d.rowsRead(t, "claim_look", 2, anywhere), few)
		require.LessOrEqual(t, d.rowsRead(t, "claim_lock", 2, anywhere), few)
		require.LessOrEqual(t, d.rowsRead(t, "claim_due", 2, anywhere), few)
		require.LessOrEqual(t, d.rowsRead(t, "claim_next", 2, anywhere), few)
		require.LessOrEqual(t, d.rowsRead(t, "claim_lock", 3, "0, TIMESTAMP'1970-01-01 00:00:00'"), few)
		require.Greater(t, d.rowsRead(t, "claim_look", 3, anywhere), 5000, "what the counters count")
		// The same with what the optimizer knows now.
		d.rows(t, "ANALYZE TABLE message")
	}
	for name, index := range map[string]string{"claim_lock": "message_ready", "claim_due": "message_delayed", "claim_next": "message_delayed"} {
		text, err := mysql.Statement(name)
		require.NoError(t, err)
		for _, row := range d.rows(t, "EXPLAIN FORMAT=TRADITIONAL "+explained(t, text)) {
			require.Equal(t, index, row["key"], name)
			require.NotContains(t, row["Extra"], "filesort", "%s: the index has the order (C9)", name)
		}
	}
}
