package mysql_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage/mysql"
	"github.com/queuebox/queuebox/storage/rowlock"
)

// numbers is a table of n numbers from 1 on.
func numbers(n int) string {
	digit := "(SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL " +
		"SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	return fmt.Sprintf("(SELECT 1 + a.d + 10 * b.d + 100 * c.d + 1000 * e.d AS i FROM %[1]s AS a, %[1]s AS b, %[1]s AS c, %[1]s AS e HAVING i <= %[2]d) AS n",
		digit, n)
}

// fill puts n live messages into a queue. columns are place, state, ready_time, lease_end,
// token and attempt, where n.i counts the messages.
func (d *database) fill(t testing.TB, queueID, n int, columns string) {
	t.Helper()
	d.exec(t, fmt.Sprintf(`INSERT INTO message (queue_id, place, state, ready_time, lease_end, token, attempt, urgency, create_time, max_attempts,
		payload_bytes, wire_bytes, content_type, idempotency_key, payload)
		SELECT %d, %s, n.i %% 3, SYSDATE(6), 20, 4, 100, '', '', 'load' FROM %s`, queueID, columns, numbers(n)))
}

const (
	readyShape   = "0, 0, SYSDATE(6) - INTERVAL n.i SECOND, NULL, NULL, 0"
	delayedShape = "1, 0, SYSDATE(6) + INTERVAL n.i HOUR, NULL, NULL, 0"
	leasedShape  = "0, 1, SYSDATE(6) - INTERVAL n.i SECOND, SYSDATE(6) + INTERVAL 1 HOUR, UNHEX(LPAD(HEX(n.i), 32, '0')), 1"
)

// fillFinished puts n rows into each of the tables of what is over.
func (d *database) fillFinished(t testing.TB, queueID, n int) {
	t.Helper()
	for _, table := range []string{"completed", "dead", "settlement", "idempotency_key", "ordering_key", "claim_call"} {
		d.exec(t, "DELETE FROM "+table+" WHERE queue_id = ?", queueID)
	}
	for _, text := range []string{
		`INSERT INTO completed (id, queue_id, finish_time, create_time, ready_time, token, priority, attempt, max_attempts, payload_bytes,
			worker_id, reason_code, content_type, ordering_key, idempotency_key, payload)
			SELECT 1000000 + %[1]d * 100000 + n.i, %[1]d, SYSDATE(6), SYSDATE(6), SYSDATE(6), UNHEX(LPAD(HEX(n.i), 32, '0')), 0, 1, 20, 4, 'w', '', '', '', '', 'load' FROM %[2]s`,
		`INSERT INTO dead (id, queue_id, state, finish_time, create_time, ready_time, action, dead_reason, priority, attempt, max_attempts,
			payload_bytes, wire_bytes, worker_id, reason_code, content_type, ordering_key, idempotency_key, payload)
			SELECT 2000000 + %[1]d * 100000 + n.i, %[1]d, 4 + n.i %% 2, SYSDATE(6), SYSDATE(6), SYSDATE(6), 3, 1, 0, 1, 20, 4, 100, 'w', '', '', '', '', 'load' FROM %[2]s`,
		`INSERT INTO settlement (id, token, queue_id, settle_time, action, outcome, dead_reason)
			SELECT 2000000 + %[1]d * 100000 + n.i, UNHEX(LPAD(HEX(n.i), 32, '0')), %[1]d, SYSDATE(6), 3, 1, 1 FROM %[2]s`,
		`INSERT INTO idempotency_key (queue_id, name, position, create_time, content_hash)
			SELECT %[1]d, CONCAT('key ', n.i), 2 * n.i, SYSDATE(6), UNHEX(SHA2(n.i, 256)) FROM %[2]s`,
		`INSERT INTO ordering_key (queue_id, name) SELECT %[1]d, CONCAT('key ', n.i) FROM %[2]s`,
		`INSERT INTO claim_call (queue_id, claim_id, claim_time, worker_id, held) SELECT %[1]d, UNHEX(LPAD(HEX(n.i), 32, '0')), SYSDATE(6), 'w', '' FROM %[2]s`,
	} {
		d.exec(t, fmt.Sprintf(text, queueID, numbers(n)))
	}
}

// literals stand for the arguments of a statement in EXPLAIN, by the name of the argument.
// One that is not here is 1.
var literals = map[string]string{
	"list": "'[]'", "states": "'[0, 1]'", "dead_reasons": "'[1]'", "reason_codes": `'["x"]'`,
	"limit": "100", "rows": "100", "after": "0", "first": "0", "last": "9223372036854775807",
	"name": "'name'", "ordering_key": "'key'", "error_contains": "'x'", "worker_id": "'w'", "reason_code": "'r'",
	"token": "UNHEX('000102030405060708090a0b0c0d0e0f')", "claim_id": "UNHEX('000102030405060708090a0b0c0d0e0f')", "holder": "UNHEX('000102030405060708090a0b0c0d0e0f')",
	"content_hash": "UNHEX('000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f')",
}

// explained puts literals where a statement has arguments.
func explained(t testing.TB, text string) string {
	t.Helper()
	compiled, bind, err := rowlock.Positional(text)
	require.NoError(t, err)
	// The names come back in their order by binding each to itself.
	var args []rowlock.Arg
	for _, found := range argument.FindAllStringSubmatch(text, -1) {
		args = append(args, rowlock.Arg{Name: found[1], Value: found[1]})
	}
	parts := strings.Split(compiled, "?")
	var b strings.Builder
	for i, name := range bind(args) {
		b.WriteString(parts[i])
		name, ok := name.(string)
		require.True(t, ok)
		switch literal := literals[name]; {
		case literal != "":
			b.WriteString(literal)
		case strings.HasSuffix(name, "_time") || name == "now" || name == "until" || name == "bound":
			b.WriteString("TIMESTAMP'2026-01-02 03:04:05.678901'")
		default:
			b.WriteByte('1')
		}
	}
	b.WriteString(parts[len(parts)-1])
	return b.String()
}

var argument = regexp.MustCompile(`:([a-z][a-z0-9_]*)`)

// large are the tables that grow with the messages; a walk over one of the others costs
// nothing.
var large = []string{
	"message", "completed", "dead", "settlement", "idempotency_key", "ordering_key", "claim_call", "claim_slot", "incoming", "marked",
}

// walks are the statements that are meant to walk over an index of a large table, and why.
var walks = map[string]string{
	"ids_marked": "the table has only what waits to be finished, for a second or so",
}

// Every statement is understood by the database, and none walks over a whole table: not at
// any moment in the life of a queue, whose statistics change by the minute. A statement that
// locks rows may not do so where the tables are nearly empty either, since it would lock rows
// of others on its way.
func TestC12PlansOfAllStatements(t *testing.T) {
	names, err := mysql.Statements()
	require.NoError(t, err)
	require.NotEmpty(t, names)
	d := newDatabase(t, false)
	if !strings.Contains(d.store.Capabilities().Version, "MariaDB") {
		t.Skip("SKIPPED on MySQL: the plans are read as MariaDB tells them")
	}
	for i := range 3 {
		queue(t, d.store, fmt.Sprint("queue ", i))
	}
	shapes := []struct {
		name string
		full bool
		fill func()
	}{
		{"few", false, func() {
			for q := 1; q <= 3; q++ {
				d.fill(t, q, 4, readyShape)
				d.fill(t, q, 4, delayedShape)
				d.fillFinished(t, q, 4)
			}
		}},
		{"many ready", true, func() {
			d.fill(t, 1, 5000, readyShape)
			d.fill(t, 2, 2000, readyShape)
			d.fillFinished(t, 2, 5000)
			d.fillFinished(t, 3, 2000)
		}},
		{"all leased", true, func() {
			d.exec(t, "DELETE FROM message")
			d.fill(t, 1, 5000, leasedShape)
		}},
		{"all delayed", true, func() {
			d.exec(t, "DELETE FROM message")
			d.fill(t, 1, 5000, delayedShape)
		}},
		{"nothing live", true, func() { d.exec(t, "DELETE FROM message") }},
	}
	// What the test looks for is what the database tells.
	const walk = "SELECT m.id FROM message AS m WHERE m.wire_bytes = 1 FOR UPDATE"
	d.fill(t, 1, 4, readyShape)
	require.True(t, walksOver(walk, d.rows(t, "EXPLAIN FORMAT=TRADITIONAL "+walk)[0]))
	for _, shape := range shapes {
		shape.fill()
		for _, table := range d.tables(t) {
			d.rows(t, "ANALYZE TABLE "+table)
		}
		for _, name := range names {
			text, err := mysql.Statement(name)
			require.NoError(t, err)
			locks := !strings.HasPrefix(strings.ToUpper(text), "SELECT") || strings.Contains(text, "FOR UPDATE")
			for _, row := range d.rows(t, "EXPLAIN FORMAT=TRADITIONAL "+explained(t, text)) {
				if (shape.full || locks) && walks[name] == "" && walksOver(text, row) {
					t.Errorf("%s: %s walks over %s: %v", shape.name, name, row["table"], row)
				}
			}
		}
	}
}

// walksOver tells a line of a plan that reads all of a large table or of one of its indexes.
func walksOver(text string, row map[string]string) bool {
	return row["select_type"] != "INSERT" && (row["type"] == "ALL" || row["type"] == "index") &&
		slices.Contains(large, tableOf(text, row["table"]))
}

// tableOf is the table that a name in a plan stands for, which may be another name of it.
func tableOf(text, alias string) string {
	for _, table := range large {
		if alias == table || regexp.MustCompile(`(?i)\b`+table+`\s+(AS\s+)?`+regexp.QuoteMeta(alias)+`\b`).MatchString(text) {
			return table
		}
	}
	return ""
}
