package blackbox

import (
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuebox/queuebox/internal/testdb"
)

// Statements counts the statements that sessions of one database run, BEGIN and COMMIT
// counted. Only PostgreSQL with pg_stat_statements can tell.
type Statements struct {
	conn *sql.DB
}

// CountStatements makes a counter, or skips the test out loud.
func CountStatements(tb testing.TB, db *Database) *Statements {
	tb.Helper()
	if db.Name != EnginePostgres {
		tb.Skipf("SKIPPED: %s does not count statements", db.Name)
	}
	conn := db.Open(tb)
	if loaded := Rows(tb, conn, `SHOW shared_preload_libraries`); !strings.Contains(loaded[0], "pg_stat_statements") {
		if testdb.Required(EnginePostgres) {
			tb.Fatal("pg_stat_statements is not in shared_preload_libraries")
		}
		tb.Skip("SKIPPED: pg_stat_statements is not in shared_preload_libraries")
	}
	if _, err := conn.ExecContext(tb.Context(), `CREATE EXTENSION IF NOT EXISTS pg_stat_statements`); err != nil {
		tb.Fatal(err)
	}
	return &Statements{conn: conn}
}

// snapshot reads how often each statement was run so far.
func (s *Statements) snapshot(tb testing.TB) map[string]int64 {
	tb.Helper()
	rows, err := s.conn.QueryContext(tb.Context(), `SELECT query, sum(calls)::bigint FROM pg_stat_statements
		WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND query NOT ILIKE '%pg_stat_statements%' GROUP BY query`)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	all := map[string]int64{}
	for rows.Next() {
		var query string
		var calls int64
		if err := rows.Scan(&query, &calls); err != nil {
			tb.Fatal(err)
		}
		all[query] = calls
	}
	if err := rows.Err(); err != nil {
		tb.Fatal(err)
	}
	return all
}

// During counts the statements that run while do runs, and tells them apart.
func (s *Statements) During(tb testing.TB, do func()) (total int64, each map[string]int64) {
	tb.Helper()
	before := s.snapshot(tb)
	do()
	each = map[string]int64{}
	for query, calls := range s.snapshot(tb) {
		if n := calls - before[query]; n > 0 {
			query = strings.Join(strings.Fields(query), " ")
			each[query[:min(len(query), 60)]] += n
			total += n
		}
	}
	return total, each
}

// Percentile of some durations, p from 0 to 1.
func Percentile(all []time.Duration, p float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}
