package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// partitionsAheadServe is how many hours of partitions a running server keeps ready.
	partitionsAheadServe = 3
	maintainBatch        = 500
	maintainBatches      = 20
	maintainPaceBatch    = 2000
	maintainPaceBatches  = 200
)

// partitioned tables, by hour.
func partitioned() []string { return []string{"completed", "settlement"} }

// Maintain implements storage.Store: rows of old claim calls, states of limits that newer
// ones have replaced, partitions ahead. Whoever calls it is a server, which vacuums too.
func (s *Store) Maintain(ctx context.Context) error {
	s.keepVacuumed() //nolint:contextcheck // It goes on for as long as the store is open.
	for _, m := range []struct {
		sql            string
		rows, attempts int
	}{
		{s.sql.maintainCalls, maintainBatch, maintainBatches},
		// A busy queue with a limit leaves a state for every claim statement of a minute.
		{s.sql.maintainPaces, maintainPaceBatch, maintainPaceBatches},
		{s.sql.maintainSlots, maintainPaceBatch, maintainBatches},
	} {
		for range m.attempts {
			var gone int64
			err := s.write(ctx, "maintain", step{sql: m.sql, args: []any{int64(m.rows)}, scan: func(rows pgx.Rows) error {
				rows.Close()
				gone = rows.CommandTag().RowsAffected()
				return rows.Err()
			}})
			if err != nil {
				return err
			}
			if gone < int64(m.rows) {
				break
			}
		}
	}
	conn, err := s.acquire(ctx)
	if err != nil {
		return classify("maintain", err, false)
	}
	defer conn.Release()
	err = makePartitions(ctx, conn.Conn(), partitionsAheadServe, s.log, func() {
		s.denied.Do(func() { warnDenied(ctx, s.log) })
	})
	return classify("maintain: partitions", err, true)
}

// warnDenied says what an operator has to do where a role may not make partitions.
func warnDenied(ctx context.Context, log *slog.Logger) {
	log.WarnContext(ctx, "this role may not make the partitions of the coming hours: rows go to the default partition, "+
		"which is slower to clean; run 'queuebox-server migrate' daily with the role that owns the tables, see docs/operations.md")
}

// makePartitions makes the partitions of the coming hours that are missing. A role that
// may not make tables is no error: the rows go to the default partition then, until
// somebody runs migrate. denied is told of it.
func makePartitions(ctx context.Context, conn *pgx.Conn, ahead int32, log *slog.Logger, denied func()) error {
	raw, err := queryFiles.ReadFile("queries/partitions.sql")
	if err != nil {
		return err
	}
	list := bare(string(raw))
	for _, table := range partitioned() {
		rows, err := conn.Query(ctx, list, ahead, table)
		if err != nil {
			return err
		}
		type partition struct {
			from, to time.Time
			name     string
		}
		missing, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (p partition, err error) {
			return p, r.Scan(&p.from, &p.to, &p.name)
		})
		if err != nil {
			return err
		}
		for _, p := range missing {
			err := makePartition(ctx, conn, table, p.name, p.from, p.to)
			switch code(err) {
			case codeInsufficientPrivilege:
				denied()
				return nil
			case codeLockNotAvailable, codeDuplicateTable, codeUniqueViolation, codeCheckViolation, codeDeadlockDetected:
				// Busy, made by another server meanwhile, or rows of that hour lie in the default
				// partition already: they can stay there.
				log.DebugContext(ctx, "partition not made", "partition", p.name, "code", code(err))
				continue
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// makePartition makes a table and attaches it, in one transaction. Attaching locks
// only the (small) default partition for more than an instant; CREATE TABLE ...
// PARTITION OF would keep all writers out.
func makePartition(ctx context.Context, conn *pgx.Conn, table, name string, from, to time.Time) error {
	full := pgx.Identifier{"queuebox", name}.Sanitize()
	parent := pgx.Identifier{"queuebox", table}.Sanitize()
	const stamp = "2006-01-02 15:04:05+00"
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	for _, sql := range []string{
		"SET LOCAL lock_timeout = '100ms'",
		// One at a time, or two servers could meet in the catalog.
		"SELECT pg_advisory_xact_lock(7420742074207422)",
		fmt.Sprintf("CREATE TABLE %s (LIKE %s INCLUDING ALL)", full, parent),
		fmt.Sprintf("ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM ('%s') TO ('%s')",
			parent, full, from.UTC().Format(stamp), to.UTC().Format(stamp)),
	} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return tx.Commit(ctx)
}
