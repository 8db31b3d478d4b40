package blackbox

import (
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/internal/testdb"
)

// percentile of some durations, p from 0 to 1.
func percentile(all []time.Duration, p float64) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}

// over counts the durations above a limit.
func over(all []time.Duration, limit time.Duration) int {
	n := 0
	for _, d := range all {
		if d > limit {
			n++
		}
	}
	return n
}

// counter counts the statements that sessions of one database run, BEGIN and COMMIT
// counted. Only PostgreSQL with pg_stat_statements can tell.
type counter struct {
	conn *sql.DB
}

// countStatements makes a counter, or skips the test out loud.
func countStatements(t *testing.T, db *Database) *counter {
	t.Helper()
	if db.Engine != EnginePostgres {
		t.Skipf("%s does not count statements", db.Engine)
	}
	conn := db.Open(t)
	var loaded string
	require.NoError(t, conn.QueryRowContext(t.Context(), `SHOW shared_preload_libraries`).Scan(&loaded))
	if !strings.Contains(loaded, "pg_stat_statements") {
		if testdb.Required(EnginePostgres) {
			t.Fatal("pg_stat_statements is not in shared_preload_libraries")
		}
		t.Skip("pg_stat_statements is not in shared_preload_libraries")
	}
	_, err := conn.ExecContext(t.Context(), `CREATE EXTENSION IF NOT EXISTS pg_stat_statements`)
	require.NoError(t, err)
	return &counter{conn: conn}
}

// snapshot reads how often each statement was run so far.
func (c *counter) snapshot(t *testing.T) map[string]int64 {
	t.Helper()
	rows, err := c.conn.QueryContext(t.Context(), `SELECT query, sum(calls)::bigint FROM pg_stat_statements
		WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND query NOT ILIKE '%pg_stat_statements%' GROUP BY query`)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	all := map[string]int64{}
	for rows.Next() {
		var query string
		var calls int64
		require.NoError(t, rows.Scan(&query, &calls))
		all[query] = calls
	}
	require.NoError(t, rows.Err())
	return all
}

// during counts the statements that run while do runs, and tells them apart.
func (c *counter) during(t *testing.T, do func()) (total int64, each map[string]int64) {
	t.Helper()
	before := c.snapshot(t)
	do()
	each = map[string]int64{}
	for query, calls := range c.snapshot(t) {
		if n := calls - before[query]; n > 0 {
			each[query] = n
			total += n
		}
	}
	return total, each
}
