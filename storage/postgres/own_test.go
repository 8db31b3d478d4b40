package postgres_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/server/wireid"
	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/storagetest"
)

// own gives the suite sessions outside the store.
func (d *database) own() *storagetest.OwnSessions {
	sqlstate := func(err error, codes ...string) bool {
		pg, ok := errors.AsType[*pgconn.PgError](err)
		if !ok {
			return false
		}
		return slices.Contains(codes, pg.Code)
	}
	return &storagetest.OwnSessions{
		Levels: []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"},
		Begin: func(t require.TestingT, level string) storagetest.OwnSession {
			conn, err := pgx.Connect(context.Background(), d.url)
			require.NoError(t, err)
			tx, err := conn.BeginTx(context.Background(), pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(level)})
			require.NoError(t, err)
			return &ownSession{conn: conn, tx: tx}
		},
		Exec: func(t require.TestingT, sql string) {
			d.lock.Lock()
			defer d.lock.Unlock()
			_, err := d.beside.Exec(context.Background(), sql)
			require.NoError(t, err)
		},
		Conflict: func(err error) bool { return sqlstate(err, "40001", "40P01") },
		Refused: func(err error) bool {
			return sqlstate(err, "23514", "23502", "22P02", "22P05", "22021", "22023", "22001")
		},
	}
}

// ownSession is a session of a worker that shares the database.
type ownSession struct {
	conn *pgx.Conn
	tx   pgx.Tx
}

func (s *ownSession) Query(sql string, args ...any) ([][]string, error) {
	rows, err := s.tx.Query(context.Background(), sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) ([]string, error) {
		values, err := r.Values()
		if err != nil {
			return nil, err
		}
		out := make([]string, len(values))
		for i, v := range values {
			switch v := v.(type) {
			case nil:
			case time.Time:
				out[i] = v.UTC().Format(time.RFC3339Nano)
			default:
				out[i] = fmt.Sprint(v)
			}
		}
		return out, nil
	})
}

func (s *ownSession) Commit() error {
	defer func() { _ = s.conn.Close(context.Background()) }()
	return s.tx.Commit(context.Background())
}

func (s *ownSession) Rollback() error {
	defer func() { _ = s.conn.Close(context.Background()) }()
	return s.tx.Rollback(context.Background())
}

// Kill breaks the connection without a word to the database.
func (s *ownSession) Kill() { _ = s.conn.PgConn().Conn().Close() }

// statement gives a statement of the own transaction for a queue.
func statement(t *testing.T, s storage.Store, q storage.Queue, name string) string {
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

func literal(s string) string { return "'" + s + "'" }

// C12, E12: the statements seek, under the settings of the server and under those of a
// stranger's session, and their scans do not walk over what is done.
func TestE12Plans(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "plans")
	d.fill(t, q.ID, 20000, leasedShape)
	d.exec(t, `INSERT INTO queuebox.completed (queue_id, position, finish_time, create_time, ready_time, token, priority, attempt,
		max_attempts, payload_bytes, content_type, payload)
		SELECT queue_id, position + 10000000, now(), now(), now(), gen_random_uuid(), 0, 1, 1, 0, '', '' FROM queuebox.message`)
	d.exec(t, "VACUUM ANALYZE queuebox.message")
	d.exec(t, "VACUUM ANALYZE queuebox.completed")
	p := newPlanner(t, d)
	ref := d.lines(t, "SELECT position::text || ' ' || token::text FROM queuebox.message ORDER BY position LIMIT 1 OFFSET 777")[0]
	position, token, _ := strings.Cut(ref, " ")
	n, err := strconv.ParseInt(position, 10, 64)
	require.NoError(t, err)
	var raw storage.Token
	decoded, err := hex.DecodeString(strings.ReplaceAll(token, "-", ""))
	require.NoError(t, err)
	copy(raw[:], decoded)
	id, claim := literal(wireid.Message(storage.Ref{QueueID: q.ID, Position: n})), literal(wireid.Token(raw))
	stranger := &planner{conn: d.connect(t), statements: map[string]string{}}
	for _, who := range []*planner{p, stranger} {
		for name, args := range map[string][]string{
			storage.TransactionEnqueue:    {"'x'", "'t'", `'{"a":"b"}'`, "'k'", "'o'", "1", "NULL", "NULL", "NULL", "NULL"},
			storage.TransactionComplete:   {id, claim, "'result'"},
			storage.TransactionRetry:      {id, claim, "NULL", "'error'"},
			storage.TransactionDeadLetter: {id, claim, "'code'", "'error'"},
			storage.TransactionOutcome:    {id, claim},
		} {
			who.statements[name] = statement(t, d.store, q, name)
			plan := who.explain(t, name, args...)
			plan.walk(func(n planNode) {
				// An empty partition may well be scanned by a stranger's session.
				if n.Table == "message" {
					require.NotEqual(t, "Seq Scan", n.Type, "%s: %s", name, n.Table)
				}
			})
			t.Logf("%s: %d buffers", name, plan.buffers())
			require.LessOrEqual(t, plan.buffers(), 120, name)
		}
	}
	// A transaction that stays open keeps dead rows; the bound passes over them.
	holder := d.connect(t)
	_, err = holder.Exec(t.Context(), "BEGIN; SELECT pg_current_xact_id()")
	require.NoError(t, err)
	_, err = holder.Exec(t.Context(), "COMMIT; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM queuebox.queue")
	require.NoError(t, err)
	d.exec(t, fmt.Sprintf(`INSERT INTO queuebox.incoming (queue_id, priority, max_attempts, wire_bytes, payload_limit, attribute_count,
		attribute_bytes, create_time, content_type, payload) SELECT %d, 0, 0, 100, 100, 0, 0, now(), '', 'x' FROM generate_series(1, 5000)`, q.ID))
	d.exec(t, fmt.Sprintf("INSERT INTO queuebox.marked (queue_id, position) SELECT %d, g FROM generate_series(1, 5000) g", q.ID))
	bound := d.lines(t, "SELECT pg_current_xact_id()::text")[0]
	d.exec(t, "DELETE FROM queuebox.incoming; DELETE FROM queuebox.marked")
	_, err = d.beside.Exec(t.Context(), "ANALYZE queuebox.incoming; ANALYZE queuebox.marked")
	require.NoError(t, err)
	// The bound counts as far as no older transaction runs, in any database of this server.
	require.Eventually(t, func() bool {
		return d.lines(t, "SELECT (pg_snapshot_xmin(pg_current_snapshot()) >= '"+bound+"'::xid8)::text")[0] == "true"
	}, time.Minute, 20*time.Millisecond, "older transactions of other tests are over")
	for _, name := range []string{"own_incoming", "own_marked"} {
		whole, above := p.explain(t, name, "'0'", "1000"), p.explain(t, name, literal(bound), "1000")
		pinned(t, name, above)
		t.Logf("%s: %d buffers from the start, %d from the bound", name, whole.buffers(), above.buffers())
		require.LessOrEqual(t, above.buffers(), 20, name)
	}
	_, err = holder.Exec(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	// What places and finishes.
	d.exec(t, fmt.Sprintf(`INSERT INTO queuebox.incoming (queue_id, priority, max_attempts, wire_bytes, payload_limit, attribute_count,
		attribute_bytes, create_time, content_type, payload, idempotency_key) SELECT %d, 0, 0, 100, 100, 0, 0, now(), '', 'x', g::text FROM generate_series(1, 5000) g`, q.ID))
	const batch = 50
	row := func(list string) []string {
		return strings.Split(d.lines(t, "SELECT string_agg(x, '|') FROM ("+list+" LIMIT 50) s")[0], "|")
	}
	names := func(table string) []string {
		xids := row("SELECT xid::text AS x FROM queuebox." + table)
		seqs := row("SELECT seq::text AS x FROM queuebox." + table)
		return []string{literal("{" + strings.Join(xids, ",") + "}"), literal("{" + strings.Join(seqs, ",") + "}")}
	}
	in := names("incoming")
	for name, args := range map[string][]string{
		"own_take": in, "own_place": in,
		"own_insert": append(append([]string{}, in...), literal("{"+strings.Join(row("SELECT (900000000 + 2 * g)::text AS x FROM generate_series(1, 50) g"), ",")+"}"), repeat(batch, "1")),
		"own_refuse": {literal(row("SELECT xid::text AS x FROM queuebox.incoming")[0]), "1", "'23502'"},
	} {
		plan := p.explain(t, name, args...)
		pinned(t, name, plan)
		t.Logf("%s: %d buffers", name, plan.buffers())
		require.LessOrEqual(t, plan.buffers(), 40*batch, name)
	}
	d.exec(t, `UPDATE queuebox.message SET state = 3, outcome = 1 + position / 2 % 3, mark_action = 1, settle_time = now(), mark_delay_us = 0
		WHERE position IN (SELECT position FROM queuebox.message ORDER BY position LIMIT 50)`)
	d.exec(t, "INSERT INTO queuebox.marked (queue_id, position) SELECT queue_id, position FROM queuebox.message WHERE state = 3")
	marks := names("marked")
	plan := p.explain(t, "own_marked_take", marks...)
	pinned(t, "own_marked_take", plan)
	plan = p.explain(t, "own_finish", append(marks, repeat(batch, fmt.Sprint(q.ID)),
		literal("{"+strings.Join(row("SELECT position::text AS x FROM queuebox.marked"), ",")+"}"))...)
	pinned(t, "own_finish", plan)
	t.Logf("own_finish: %d buffers", plan.buffers())
	require.LessOrEqual(t, plan.buffers(), 40*batch, "own_finish")
}

// ownGrants is what a role needs that runs the statements of the own transaction beside its
// own tables; docs/own-transaction.md shows the same.
const ownGrants = `
GRANT USAGE ON SCHEMA queuebox TO %;
GRANT INSERT ON queuebox.incoming, queuebox.marked TO %;
GRANT SELECT (queue_id, retry_min_us, retry_max_us, retry_multiplier, retry_jitter) ON queuebox.queue TO %;
GRANT SELECT (queue_id, position, state, token, lease_end, attempt, max_attempts, expire_time, cancel_requested,
    outcome, mark_dead_reason, settle_time, mark_delay_us) ON queuebox.message TO %;
GRANT UPDATE (state, lease_end, outcome, mark_action, mark_dead_reason, settle_time, mark_delay_us, mark_error,
    mark_reason_code, mark_result) ON queuebox.message TO %;
GRANT SELECT (queue_id, position, token, action, outcome, dead_reason, settle_time, available_time) ON queuebox.settlement TO %;
GRANT SELECT (queue_id, position, token, finish_time) ON queuebox.completed TO %;
GRANT SELECT (queue_id, position, token, state, action, dead_reason, finish_time) ON queuebox.dead TO %;`

// E12: a role with just these rights runs every statement, and reads no payload.
func TestE12LeastPrivilegeRole(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "poor")
	u := d.role(t, ownGrants)
	conn, err := pgx.Connect(t.Context(), u)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	ctx := t.Context()
	for range 3 {
		_, err = conn.Exec(ctx, statement(t, d.store, q, storage.TransactionEnqueue), []byte("x"), nil, nil, "key", nil, nil, nil, nil, nil, nil)
		require.NoError(t, err)
	}
	enqueue(t, d.store, q.ID, 2)
	placed, err := d.store.Place(ctx, storage.PlaceParams{Limit: 10})
	require.NoError(t, err)
	require.Equal(t, [2]int{1, 2}, [2]int{placed.Placed, placed.Duplicates})
	claimed := claim(t, d.store, q.ID, 10, time.Minute)
	require.Len(t, claimed, 3)
	for i, name := range []string{storage.TransactionComplete, storage.TransactionRetry, storage.TransactionDeadLetter} {
		args := []any{wireid.Message(claimed[i].Message.Ref), wireid.Token(claimed[i].Token), nil}
		if i > 0 {
			args = append(args, "text")
		}
		var outcome, reason string
		var at, available *time.Time
		require.NoError(t, conn.QueryRow(ctx, statement(t, d.store, q, name), args...).Scan(&outcome, &reason, &at, &available), name)
		require.NoError(t, conn.QueryRow(ctx, statement(t, d.store, q, storage.TransactionOutcome), args[:2]...).Scan(&outcome, &reason, &at, &available), name)
	}
	_, err = conn.Exec(ctx, statement(t, d.store, q, storage.TransactionNotify))
	require.NoError(t, err)
	done, err := d.store.Finish(ctx, storage.FinishParams{Limit: 10})
	require.NoError(t, err)
	require.Len(t, done.Finished, 3)
	for _, forbidden := range []string{
		"SELECT payload FROM queuebox.message", "SELECT payload FROM queuebox.completed", "SELECT payload FROM queuebox.incoming",
		"DELETE FROM queuebox.message", "UPDATE queuebox.message SET token = NULL", "DELETE FROM queuebox.marked",
		"UPDATE queuebox.queue SET paused = true", "SELECT * FROM queuebox.idempotency_key",
	} {
		_, err := conn.Exec(ctx, forbidden)
		require.ErrorContains(t, err, "42501", forbidden)
	}
}

// E12: a row that can never be a message, as one of a queue that is gone, stands in nobody's
// way, is told once, and is not looked at again.
func TestE12PoisonBlocksNobody(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "well")
	put := func(queueID int32, keys string) {
		d.exec(t, fmt.Sprintf(`INSERT INTO queuebox.incoming (queue_id, priority, max_attempts, wire_bytes, payload_limit, attribute_count,
			attribute_bytes, create_time, content_type, payload, ordering_key, idempotency_key)
			VALUES (%d, 0, 0, 100, 100, 0, 0, now(), '', 'x', %s)`, queueID, keys))
	}
	for _, keys := range []string{"NULL, NULL", "'order', NULL", "NULL, 'once'", "'order', 'twice'"} {
		for range 3 {
			put(q.ID+1000, keys)
			put(q.ID, strings.ReplaceAll(keys, "ce'", fmt.Sprintf("ce%d'", time.Now().UnixNano())))
		}
	}
	res, err := d.store.Place(t.Context(), storage.PlaceParams{Limit: 100})
	require.NoError(t, err)
	require.Equal(t, [2]int{12, 12}, [2]int{res.Placed, res.Refused})
	res, err = d.store.Place(t.Context(), storage.PlaceParams{Limit: 100})
	require.NoError(t, err)
	require.Equal(t, [2]int{0, 0}, [2]int{res.Placed, res.Refused})
	require.Equal(t, []string{"12"}, d.lines(t, "SELECT count(*)::text FROM queuebox.incoming WHERE refused = '23502'"))
	// Somebody holds an ordering key for long: its messages wait, the others do not.
	put(q.ID, "'held', NULL")
	put(q.ID, "'free', NULL")
	enqueue(t, d.store, q.ID, 1, under("held"))
	holder := d.connect(t)
	_, err = holder.Exec(t.Context(), "BEGIN; SELECT 1 FROM queuebox.ordering_key WHERE name = 'held' FOR UPDATE")
	require.NoError(t, err)
	res, err = d.store.Place(t.Context(), storage.PlaceParams{Limit: 100})
	require.ErrorIs(t, err, storage.ErrUnavailable)
	require.Equal(t, 1, res.Placed)
	_, err = holder.Exec(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	res, err = d.store.Place(t.Context(), storage.PlaceParams{Limit: 100})
	require.NoError(t, err)
	require.Equal(t, 1, res.Placed)
}

// E12: nothing that the mark writes is indexed, so that it stays HOT beside claims.
func TestE12TheMarkStaysHOT(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "hot")
	enqueue(t, d.store, q.ID, 300)
	claimed := claim(t, d.store, q.ID, 300, time.Minute)
	conn := d.connect(t)
	stats := func() (updates, hot int64) {
		_, err := conn.Exec(t.Context(), "SELECT pg_stat_force_next_flush()")
		if err != nil { // before version 15
			time.Sleep(time.Second)
		}
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables
			WHERE schemaname = 'queuebox' AND relname = 'message'`).Scan(&updates, &hot))
		return updates, hot
	}
	before, hotBefore := stats()
	for _, c := range claimed {
		_, err := conn.Exec(t.Context(), statement(t, d.store, q, storage.TransactionComplete), wireid.Message(c.Message.Ref), wireid.Token(c.Token), nil)
		require.NoError(t, err)
	}
	updates, hot := stats()
	t.Logf("%d of %d marks are HOT", hot-hotBefore, updates-before)
	require.GreaterOrEqual(t, updates-before, int64(300))
	require.Greater(t, float64(hot-hotBefore), 0.9*float64(updates-before))
}

// The page for users is true: its rights are those that the test above was run with, and its
// table of parameters is that of the statements.
func TestE12ThePageIsTrue(t *testing.T) {
	raw, err := os.ReadFile("../../docs/own-transaction.md")
	require.NoError(t, err)
	page := string(raw)
	require.Contains(t, page, "```sql"+strings.ReplaceAll(ownGrants, "%", "worker")+"\n```")
	d := newDatabase(t, false)
	got, err := d.store.TransactionSQL(storage.TransactionSQLParams{QueueID: 1, QueueName: "q", MaxPayloadBytes: 1})
	require.NoError(t, err)
	for _, s := range got.Statements {
		names := make([]string, len(s.Parameters))
		for i, p := range s.Parameters {
			names[i], _, _ = strings.Cut(p, " ")
		}
		require.Contains(t, page, strings.TrimSpace(fmt.Sprintf("| `%s` | %s", s.Name, strings.Join(names, ", ")))+" |")
	}
}
