package postgres_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// fillKeys makes a key of n messages, and others of a leased head alone.
func (d *database) fillKeys(t testing.TB, queueID int32, n, others int) {
	t.Helper()
	insert := `INSERT INTO queuebox.message (queue_id, position, create_time, max_attempts, payload_bytes,
		wire_bytes, content_type, payload, ready_time, priority, key_id, place, state, token, lease_end, lease_ms)
		SELECT k.queue_id, nextval('queuebox.message_position') + 1, now(), 20, 1, 200, '', 'x', now(), 0, k.key_id, `
	d.exec(t, fmt.Sprintf(`INSERT INTO queuebox.ordering_key (queue_id, name)
		SELECT %[1]d, 'big' UNION ALL SELECT %[1]d, 'key-' || g FROM generate_series(1, %[2]d) g`, queueID, others))
	d.exec(t, fmt.Sprintf(insert+`CASE g WHEN 1 THEN 0 ELSE 2 END, CASE g WHEN 1 THEN 1 ELSE 0 END,
		CASE g WHEN 1 THEN gen_random_uuid() END, CASE g WHEN 1 THEN now() + interval '1 hour' END, 30000
		FROM queuebox.ordering_key k, generate_series(1, %d) g WHERE k.name = 'big' AND k.queue_id = %d`, n, queueID))
	d.exec(t, fmt.Sprintf(insert+`0, 1, gen_random_uuid(), now() + interval '1 hour', 30000
		FROM queuebox.ordering_key k WHERE k.name LIKE 'key-%%' AND k.queue_id = %d`, queueID))
}

// serial is the array 1 to n.
func serial(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = strconv.Itoa(i + 1)
	}
	return "'{" + strings.Join(out, ",") + "}'"
}

// C12, O8: what is done under the lock of a key costs no more for a key of 200,000 messages,
// whatever was known of the tables when it was planned.
func TestC12OrderedPlansArePinned(t *testing.T) {
	if testing.Short() {
		t.Skip("fills large tables")
	}
	const followers, batch = 200000, 50
	tables := "queuebox.message, queuebox.ordering_key, queuebox.dead, queuebox.settlement, queuebox.completed, queuebox.queue"
	for _, at := range []string{"planned empty", "analysed empty", "analysed full", "analysed while nothing was leased"} {
		t.Run(at, func(t *testing.T) {
			d := newDatabase(t, false)
			// No statistics but those that the test takes.
			d.exec(t, `ALTER TABLE queuebox.message SET (autovacuum_enabled = false);
				ALTER TABLE queuebox.ordering_key SET (autovacuum_enabled = false)`)
			set := settings()
			set.Ordering = storage.OrderingBlockOnDead
			q, err := d.store.CreateQueue(t.Context(), "plans", set, 0)
			require.NoError(t, err)
			p := newPlanner(t, d)
			id := fmt.Sprint(q.ID)
			// keys puts a setting of the session where the statements look for that of their transaction.
			keys := func(sql string) {
				_, err := p.conn.Exec(t.Context(), "SELECT set_config('queuebox.keys', coalesce(("+sql+"), ''), false)")
				require.NoError(t, err)
			}
			most := func(name string, items int, limit int, args ...string) {
				t.Helper()
				plan := p.explain(t, name, args...)
				pinned(t, name, plan)
				for range 2 {
					if again := p.explain(t, name, args...); again.buffers() < plan.buffers() {
						plan = again
					}
				}
				t.Logf("%s: %d items, %d buffers", name, items, plan.buffers())
				require.LessOrEqual(t, plan.buffers(), limit*items+40, "%s: buffers for %d items", name, items)
			}
			names := func(n int) string {
				out := []string{"big"}
				for i := range n - 1 {
					out = append(out, "key-"+strconv.Itoa(i+1))
				}
				return "'{" + strings.Join(out, ",") + "}'"
			}
			all := func(ids, positions, tokens, ordering string) {
				t.Helper()
				most("take_names", batch, 12, repeat(batch, id), names(batch), "'100'")
				most("add_names", batch, 10, repeat(batch, id), names(batch))
				most("lock_names", batch, 12, repeat(batch, id), names(batch))
				most("lock_keys", batch, 20, ids, positions, "''")
				most("lock_keys_free", batch, 20, ids, positions, "''")
				most("lock_completion", batch+1, 20, id, "1", repeat(batch, id), names(batch))
				most("blocked", 1, 20, id)
				most("complete_follow_ups", 1, 20, id, "1", "clock_timestamp()", "'{1,2}'")
				most("lock_key_ids", batch, 12, serial(batch))
				null, none := repeat(batch, "NULL"), "'{}'"
				keys("SELECT string_agg(key_id::text, ',') FROM queuebox.ordering_key WHERE name = ANY (" + ordering + "::text[])")
				which := serial(batch)
				if at == "planned empty" && ids == "'{}'" {
					which = repeat(batch, "0") // there is no key
				}
				most("enqueue_ordered", batch, 40, "'{"+id+"}'", repeat(batch, "x"), none, none, none, none, none, none, none, none,
					repeat(batch, "100"), which, none, none, none)
				keys("SELECT string_agg(key_id::text, ',') FROM (SELECT key_id FROM queuebox.ordering_key ORDER BY key_id LIMIT 50) k")
				most("promote", batch, 16)
				most("remove_keys", batch, 16)
				most("keys_look", batch, 16, "'{1}'", "50", "0", "'{1000000}'", "150", "0")
				most("complete_ordered", batch, 40, ids, positions, tokens)
				for _, action := range []string{"1", "3"} {
					most("settle", batch, 40, ids, positions, tokens, repeat(batch, action), null, null, null, null)
				}
				most("sweep", batch, 40, ids, positions, "NULL", "NULL", "0", "500", "4194304", "true", "NULL", "NULL", "0")
				keys("SELECT ''")
				most("promote", 0, 0)
			}
			switch at {
			case "planned empty":
				all("'{}'", "'{}'", "'{}'", repeat(batch, `""`))
			case "analysed empty":
				d.exec(t, "VACUUM ANALYZE "+tables)
			}
			d.fillKeys(t, q.ID, followers, 2000)
			switch at {
			case "analysed full":
				d.exec(t, "VACUUM ANALYZE "+tables)
			case "analysed while nothing was leased":
				d.exec(t, "UPDATE queuebox.message SET state = 0 WHERE place = 0")
				d.exec(t, "VACUUM ANALYZE "+tables)
				d.exec(t, "UPDATE queuebox.message SET state = 1 WHERE place = 0")
				d.exec(t, "VACUUM "+tables)
			}
			ids, positions, tokens := d.held(t, q.ID, batch)
			all(ids, positions, tokens, names(batch))
			// The head of the big key is gone: the next of 200,000 is found at once, and a block holds them.
			d.exec(t, "DELETE FROM queuebox.message m USING queuebox.ordering_key k WHERE k.key_id = m.key_id AND k.name = 'big' AND m.place = 0")
			keys("SELECT key_id::text FROM queuebox.ordering_key WHERE name = 'big'")
			most("promote", 1, 60)
			most("keys_look", 1, 20, "'{1}'", "1", "0", "'{1000000}'", "150", "0")
			d.exec(t, `UPDATE queuebox.ordering_key SET blocked_by = 1 WHERE name = 'big';
				INSERT INTO queuebox.dead (queue_id, position, finish_time, create_time, ready_time, priority, attempt, max_attempts,
					payload_bytes, wire_bytes, state, action, dead_reason, content_type, payload)
				SELECT queue_id, 1, now(), now(), now(), 0, 1, 1, 0, 0, 4, 0, 3, '', '' FROM queuebox.queue`)
			most("promote", 1, 20)
			// O8: a claim of another key does not meet them.
			d.exec(t, "UPDATE queuebox.message SET state = 0, lease_end = NULL, token = NULL WHERE place = 0")
			most("claim", 1, 10, claimArgs(q.ID, 1)...)
		})
	}
}

// O8, seen by a user: with 200,000 messages of one blocked key beside it, another key costs what
// it costs alone.
func TestO8ABigKeyCostsOthersNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("fills large tables")
	}
	d := newDatabase(t, false)
	c := newCounter(t, d)
	q := queue(t, d.store, "big")
	// round sends three messages around and tells the statements and the pages that took.
	round := func() (statements, pages int) {
		statements, _ = c.of(t, func() {
			enqueue(t, d.store, q.ID, 3, under("other"))
			for range 3 {
				settle(t, d.store, completions(claim(t, d.store, q.ID, 1, time.Minute))...)
			}
		})
		got := d.lines(t, `SELECT sum(s.shared_blks_hit + s.shared_blks_read)::text FROM pg_stat_statements s
			JOIN pg_database b ON b.oid = s.dbid WHERE b.datname = current_database() AND s.query NOT LIKE '%pg_stat%'`)
		_, err := fmt.Sscan(got[0], &pages)
		require.NoError(t, err)
		return statements, pages
	}
	round()
	n, alone := round()
	require.Equal(t, 2+3*(1+2), n, "an enqueue is two statements, a claim one, a completion two")
	d.fillKeys(t, q.ID, 200000, 0)
	_, beside := round()
	t.Logf("three messages: %d pages alone, %d beside 200,000 messages of another key", alone, beside)
	require.LessOrEqual(t, beside, 3*alone)
}
