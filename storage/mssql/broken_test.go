package mssql_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A test that cannot fail proves nothing: here statements are broken, one place each, and the
// rule that has to notice it is named.
func TestBrokenStatementsAreNoticed(t *testing.T) {
	l := readLayout(t)
	source := readRowlock(t)
	for _, c := range []struct{ what, name, old, broken, problem string }{
		{"a lock that waits", "claim_lock", "READPAST, ", "", "tables and hints are"},
		{"a lock that is none", "claim_lock", "UPDLOCK, ", "", "READPAST without READCOMMITTEDLOCK"},
		{"a lock of a page", "held_lock", ", ROWLOCK)", ")", "UPDLOCK without ROWLOCK"},
		{"a hint that is misspelt", "held_lock", "READPAST", "READPASST", "the parser saw"},
		{"no token in the fence", "renew", "AND m.token = j.token", "", "without the condition on token"},
		{"a fence that holds at the end of the lease", "renew", "m.lease_end > ", "m.lease_end >= ", "without the condition on lease_end"},
		{"a fence by another clock", "renew", "m.lease_end > {{now}}", "m.lease_end > m.claim_time", "without the condition on lease_end"},
		{"a settling message passes the fence", "settle_return", "m.state = 1", "m.state IN (1, 3)", "without the condition on state"},
		{"a copy without the fence", "complete_copy", "m.lease_end > {{now}}", "m.lease_end > 0", "without the condition on lease_end"},
		{"a state that comes as a parameter", "cancel_ask", "state = 1", "state = @state", "state = @state"},
		{"no condition at all", "cancel_ask", "WHERE id = @id AND queue_id = @queue_id AND state = 1", "", "without a condition"},
		{"any number of rows", "cancel_ask", "id = @id AND ", "", "of any number of rows"},
		{"no schema", "queue_get", "queuebox.queue", "queue", "has no schema"},
		{"a table that is not there", "queue_get", "queuebox.queue", "queuebox.queues", "no table"},
		{"a column that is misspelt", "renew", "m.token = j.token", "m.tokn = j.token", "no column m.tokn"},
		{"a column that is not in the list", "renew", "m.token = j.token", "m.token = j.claim", "no column j.claim"},
		{"a column that is not given", "settle_history", ", outcome, dead_reason)", ", outcome)", "settlement.dead_reason is not given"},
		{"fewer values than columns", "settle_history", ", j.outcome, j.reason", ", j.outcome", "8 columns and 7 values"},
		{"the list behind the table", "key_park", "INNER LOOP JOIN", "INNER JOIN", "may be scanned"},
		{"a subquery on the list", "message_delete", "ON m.id = j.id;", "ON m.id = j.id WHERE m.id IN (SELECT x.id FROM queuebox.message AS x);", "by a scan"},
		{"a hint that a target must not have", "cancel_ask", "WITH (ROWLOCK)", "WITH (ROWLOCK, FORCESEEK)", "not allowed on the target"},
		{"a parameter that Go does not give", "queue_get", "@name", "@nam", `Go gives ["name"]`},
		{"no count", "cancel_ask", "SELECT @@ROWCOUNT AS changed;", "", "no count"},
		{"the count of something else", "cancel_ask", "SELECT @@ROWCOUNT", "SELECT COUNT(*) FROM queuebox.queue; SELECT @@ROWCOUNT", "what is counted is no write"},
		{"rows that are not committed", "message_live", "AS m\n", "AS m WITH (NOLOCK)\n", "before it is committed"},
		{"which rows is left to chance", "claim_lock", "ORDER BY m.urgency, m.ready_time, m.id", "", "TOP without ORDER BY"},
		{"microseconds as an int", "claim_lease", "DATEADD(microsecond, CAST(j.lease_us % 1000000 AS int),", "DATEADD(microsecond, j.lease_us,", "may overflow"},
		{"the clock of the server's zone", "now", "{{now}}", "GETDATE()", "is not the clock"},
		{"a clock that tests cannot set", "now", "{{now}}", "SYSUTCDATETIME()", "cannot set it"},
		{"base64 that is not decoded", "key_ids", "varbinary(max)", "varbinary(255)", "is base64 and"},
		{"an index that is not sought", "key_ids", "k.name = CAST(j.name AS varbinary(255))", "k.name = j.name", "no index serves"},
		{"texts of which blanks at the end do not count", "cancel_ask", "AND state = 1", "AND state = 1 AND worker_id = N'w'", "is text in"},
		{"a common table expression", "queue_get", "SELECT", "WITH c AS (SELECT 1 AS one) SELECT", "a common table expression"},
		{"MERGE", "queue_pause", "UPDATE queuebox.queue", "MERGE queuebox.queue AS t USING queuebox.queue AS s ON t.queue_id = s.queue_id WHEN MATCHED THEN DELETE; UPDATE queuebox.queue", "MERGE"},
		{"a word that is taken for a procedure", "cancel_ask", "SELECT @@ROWCOUNT AS changed;", "rowcount;", "a word was taken for the name of a procedure"},
		{"a statement more", "cancel_ask", "SELECT @@ROWCOUNT", "DELETE FROM queuebox.message WHERE id = @id; SELECT @@ROWCOUNT", "it does UPDATE DELETE SELECT"},
		{"every column", "queue_get", "{{queue_columns}}", "*", "SELECT *"},
		{"a level that is not taken back", "message_live", "\nSET TRANSACTION ISOLATION LEVEL READ COMMITTED;", "", "a level that is not taken back"},
		{"no index named", "queue_get", "Leans on queue_name.", "", "the comment above names none"},
	} {
		t.Run(c.what, func(t *testing.T) {
			whole := readFile(t, c.name)
			require.Empty(t, problems(whole, wants[c.name], l, source.calls[c.name]), "before it is broken")
			require.Contains(t, whole.raw, c.old)
			broken := newFile(t, c.name, strings.Replace(whole.raw, c.old, c.broken, 1))
			found := strings.Join(problems(broken, wants[c.name], l, source.calls[c.name]), "\n")
			require.Contains(t, found, c.problem)
		})
	}
}

// The same of the layout and of the procedures in it.
func TestBrokenLayoutsAreNoticed(t *testing.T) {
	whole := migrations(t)
	require.Empty(t, layoutProblems(layoutOf(t, whole)), "before it is broken")
	require.Empty(t, markProblems(layoutOf(t, whole)), "before it is broken")
	for _, c := range []struct{ what, old, broken, problem string }{
		{"locks that become one of the table", "ALTER TABLE queuebox.message SET (LOCK_ESCALATION = DISABLE);", "", "message: many row locks"},
		{"an index with page locks", "(queue_id, urgency, ready_time, id)\n    WHERE place = 0 WITH (ALLOW_PAGE_LOCKS = OFF)", "(queue_id, urgency, ready_time, id)\n    WHERE place = 0", "message_ready may lock pages"},
		{"a key with page locks", "PRIMARY KEY CLUSTERED (queue_id, name) WITH (ALLOW_PAGE_LOCKS = OFF)", "PRIMARY KEY CLUSTERED (queue_id, name)", "idempotency_key_name may lock pages"},
		{"a key of text", "name                    varbinary(255) NOT NULL", "name                    nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL", "name is text"},
		{"the collation of the database", "worker_id         nvarchar(255) COLLATE Latin1_General_100_BIN2", "worker_id         nvarchar(255)", "worker_id has the collation"},
		{"ticks of 100 ns", "lease_end         datetime2(6)", "lease_end         datetime2", "lease_end is datetime2"},
		{"no schema", "CREATE TABLE queuebox.dead (", "CREATE TABLE dead (", "dead has no schema"},
		{"the clock before the lock", "SET @now = SYSUTCDATETIME();\n    IF @state = 1", "IF @state = 1", "the order is"},
		{"no lock before the look", "WITH (UPDLOCK, ROWLOCK, READCOMMITTEDLOCK)", "WITH (ROWLOCK, READCOMMITTEDLOCK)", "the order is"},
		{"a mark without the token", "state = 1 AND token = @token AND lease_end > @now;", "state = 1 AND lease_end > @now;", "without the condition on token"},
		{"a mark after the lease", "state = 1 AND token = @token AND lease_end > @now;", "state = 1 AND token = @token;", "without the condition on lease_end"},
	} {
		t.Run(c.what, func(t *testing.T) {
			require.Contains(t, whole, c.old)
			l := layoutOf(t, strings.Replace(whole, c.old, c.broken, 1))
			require.Contains(t, strings.Join(append(layoutProblems(l), markProblems(l)...), "\n"), c.problem)
		})
	}
}
