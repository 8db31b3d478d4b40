package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage/postgres"
)

// planNode is a node of EXPLAIN (FORMAT JSON).
type planNode struct {
	Type  string  `json:"Node Type"`
	Table string  `json:"Relation Name"`
	Index string  `json:"Index Name"`
	Hit   int     `json:"Shared Hit Blocks"`
	Read  int     `json:"Shared Read Blocks"`
	CTE   string  `json:"CTE Name"`
	Sub   string  `json:"Subplan Name"`
	Loops float64 `json:"Actual Loops"`
	// Rows that a node read and threw away, each time it ran.
	FilterDropped float64    `json:"Rows Removed by Filter"`
	JoinDropped   float64    `json:"Rows Removed by Join Filter"`
	Plans         []planNode `json:"Plans"`
}

func (n planNode) walk(f func(planNode)) {
	f(n)
	for _, p := range n.Plans {
		p.walk(f)
	}
}

// buffers sums what a statement touched. What a writing CTE touches that nobody reads
// from is not in the sum of the root.
func (n planNode) buffers() int {
	read := map[string]bool{}
	n.walk(func(c planNode) { read["CTE "+c.CTE] = true })
	sum := n.Hit + n.Read
	n.walk(func(c planNode) {
		if c.Type == "ModifyTable" && strings.HasPrefix(c.Sub, "CTE ") && !read[c.Sub] {
			sum += c.Hit + c.Read
		}
	})
	return sum
}

// planner is a session with the settings of the store, in which statements are
// explained while they run, and rolled back.
type planner struct {
	conn       *pgx.Conn
	statements map[string]string
}

func newPlanner(t *testing.T, d *database) *planner {
	t.Helper()
	p := &planner{conn: d.connect(t)}
	var err error
	p.statements, err = postgres.Statements()
	require.NoError(t, err)
	_, err = p.conn.Exec(t.Context(), postgres.SessionSettings)
	require.NoError(t, err)
	return p
}

// explain runs a statement by name, with arguments written as SQL literals, and takes
// it back. It is planned once before, so that the catalog is in the caches.
func (p *planner) explain(t *testing.T, name string, args ...string) planNode {
	t.Helper()
	ctx := t.Context()
	_, err := p.conn.Prepare(ctx, name, p.statements[name])
	require.NoError(t, err)
	call := "EXECUTE " + name
	if len(args) > 0 {
		call += "(" + strings.Join(args, ", ") + ")"
	}
	_, err = p.conn.Exec(ctx, "EXPLAIN "+call, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err, name)
	tx, err := p.conn.Begin(ctx)
	require.NoError(t, err)
	var raw string
	sql := "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) " + call
	require.NoError(t, tx.QueryRow(ctx, sql, pgx.QueryExecModeSimpleProtocol).Scan(&raw), name)
	require.NoError(t, tx.Rollback(context.WithoutCancel(ctx)))
	var out []struct{ Plan planNode }
	require.NoError(t, json.Unmarshal([]byte(raw), &out))
	return out[0].Plan
}

// pinned fails where a plan scans a table, or all of an index, instead of seeking.
func pinned(t *testing.T, name string, plan planNode) {
	t.Helper()
	plan.walk(func(n planNode) {
		require.NotEqual(t, "Seq Scan", n.Type, "%s: sequential scan of %s", name, n.Table)
		require.NotContains(t, n.Type, "Bitmap", "%s: on %s", name, n.Table)
		require.NotEqual(t, "Hash Join", n.Type, name)
		require.NotEqual(t, "Merge Join", n.Type, name)
	})
}

func repeat(n int, value string) string {
	return "'{" + strings.TrimSuffix(strings.Repeat(value+",", n), ",") + "}'"
}

func claimArgs(queueID int32, n int) []string {
	return []string{
		fmt.Sprint(queueID), fmt.Sprint(n), "0", "0", repeat(n, "1"), "'{30000000}'", "'{w}'", "'{NULL}'", "'{0}'",
		"'{2147483647}'", "'{-2147483648}'", "'{-infinity}'", "false",
		repeat(n, "6f1c9a52-3b7e-4d0f-9a51-0c2d7be84f13"), "'-infinity'",
	}
}

func hintArgs(queueID int32, n int, hint string) []string {
	a := claimArgs(queueID, n)
	a[8] = "'{0,0,0}'"
	a[9], a[10], a[11], a[12] = "'{2147483647,0,-1}'", "'{1,0,-2147483648}'", "ARRAY['-infinity',"+hint+",'-infinity']::timestamptz[]", "true"
	return a
}

// readyArgs are the arguments of claim_ready.sql out of those of claim.sql.
func readyArgs(a []string) []string {
	return []string{a[0], a[1], a[2], a[4], a[5], a[6], a[9], a[10], a[11], a[8], a[13], a[14]}
}

// anyMessage is the filter of the messages of a queue that means all of them.
func anyMessage(queueID int32) []string {
	return []string{fmt.Sprint(queueID), "'{}'", "''", "'{}'", "'{}'", "''", "''", "NULL", "NULL", "'{}'"}
}

// fill inserts n messages by SQL. shape is what follows of the columns place, state,
// ready_time, lease_end, token, priority.
func (d *database) fill(t testing.TB, queueID int32, n int, shape string) {
	t.Helper()
	d.exec(t, fmt.Sprintf(`INSERT INTO queuebox.message (queue_id, position, create_time, max_attempts, payload_bytes,
		wire_bytes, content_type, payload, place, state, ready_time, lease_end, token, priority, lease_ms, attempt)
		SELECT %d, nextval('queuebox.message_position'), now(), 20, 100, 200, '', decode(repeat('ab', 100), 'hex'), %s, 30000, 1
		FROM generate_series(1, %d) g`, queueID, shape, n))
}

const (
	pendingShape = "0, 0, now() - interval '1 hour' + g * interval '1 microsecond', NULL, NULL, 0"
	leasedShape  = "0, 1, now() - interval '1 hour' + g * interval '1 microsecond', now() + interval '1 hour', gen_random_uuid(), 0"
	delayedShape = "1, 0, now() + interval '1 hour' + g * interval '1 microsecond', NULL, NULL, 0"
)

// held lists ids and tokens of n leased rows as the arguments of renew and settle.
func (d *database) held(t testing.TB, queueID int32, n int) (ids, positions, tokens string) {
	t.Helper()
	got := d.lines(t, `SELECT string_agg(position::text, ',') || ' ' || string_agg(token::text, ',') FROM (
		SELECT position, token FROM queuebox.message WHERE queue_id = $1 AND state = 1
		ORDER BY md5(position::text) LIMIT $2) s`, queueID, n)
	p, k, _ := strings.Cut(got[0], " ")
	return repeat(n, fmt.Sprint(queueID)), "'{" + p + "}'", "'{" + k + "}'"
}

// C12: plans are generic and pinned, whatever the statistics were taken on.
func TestC12PlansArePinned(t *testing.T) {
	const rows, batch = 20000, 100
	d := newDatabase(t, false)
	// An ANALYZE by autovacuum keeps what the repeats of a statement leave behind from being pruned.
	d.exec(t, "ALTER TABLE queuebox.message SET (autovacuum_enabled = false)")
	q := queue(t, d.store, "plans")
	other := queue(t, d.store, "other")
	for _, at := range []string{"empty", "full", "all leased"} {
		t.Run("analysed "+at, func(t *testing.T) {
			d.exec(t, "TRUNCATE queuebox.message, queuebox.completed, queuebox.dead, queuebox.settlement")
			switch at {
			case "full":
				d.fill(t, q.ID, rows, pendingShape)
			case "all leased":
				d.fill(t, q.ID, rows, leasedShape)
			}
			d.exec(t, "VACUUM ANALYZE queuebox.message")
			d.exec(t, "ANALYZE queuebox.completed, queuebox.dead, queuebox.settlement, queuebox.queue, queuebox.claim_call")
			p := newPlanner(t, d)
			// What the statistics do not know of: the other half of the story.
			d.fill(t, q.ID, rows, pendingShape)
			d.fill(t, other.ID, rows, leasedShape)
			ids, positions, tokens := d.held(t, other.ID, batch)

			check := func(name string, items int, args ...string) {
				t.Helper()
				plan := p.explain(t, name, args...)
				pinned(t, name, plan)
				// A page that happens to be full, or to be pruned, costs more once and not again; where
				// something keeps what a repeat leaves behind from being pruned, for as long as that.
				limit := 10*items + 40
				for n := range 12 {
					if n > 1 && plan.buffers() <= limit {
						break
					}
					if n > 1 {
						time.Sleep(250 * time.Millisecond)
					}
					if again := p.explain(t, name, args...); again.buffers() < plan.buffers() {
						plan = again
					}
				}
				t.Logf("%s: %d items, %d buffers", name, items, plan.buffers())
				require.LessOrEqual(t, plan.buffers(), limit, "%s: buffers for %d items", name, items)
			}
			if at != "all leased" {
				check("claim", 1, claimArgs(q.ID, 1)...)
				check("claim", batch, claimArgs(q.ID, batch)...)
				check("claim_ready", 1, readyArgs(claimArgs(q.ID, 1))...)
				check("claim_ready", batch, readyArgs(claimArgs(q.ID, batch))...)
			}
			hint := "(SELECT max(ready_time) FROM queuebox.message WHERE queue_id = " + fmt.Sprint(q.ID) + ") - interval '10 milliseconds'"
			got := d.lines(t, "SELECT ("+hint+")::text")
			check("claim", batch, hintArgs(q.ID, batch, "'"+got[0]+"'")...)
			check("claim_ready", batch, readyArgs(hintArgs(q.ID, batch, "'"+got[0]+"'"))...)
			// W7: below a hint, in the gaps beside it, and where nothing is named.
			at := "ARRAY['" + got[0] + "']::timestamptz[]"
			for _, args := range [][]string{
				{"'{5}'", at, "'{0}'", "'{2147483647,4}'", "'{6,-2147483648}'"}, {"'{}'", "'{}'", "'{}'", "'{2147483647}'", "'{-2147483648}'"},
			} {
				plan := p.explain(t, "first_ready", append(append([]string{fmt.Sprint(q.ID)}, args...), "64", "now()")...)
				pinned(t, "first_ready", plan)
				plan.walk(func(n planNode) {
					require.Contains(t, []string{"", "message_ready", "message_delayed"}, n.Index, "first_ready")
				})
			}
			check("renew", batch, ids, positions, tokens, repeat(batch, "30000000"), repeat(batch, "0"))
			check("renew_wait", batch, ids, positions, tokens, repeat(batch, "30000000"), repeat(batch, "0"))
			for _, name := range []string{"settle", "settle_wait"} {
				for _, action := range []string{"1", "2", "3", "4"} {
					plan := p.explain(t, name, ids, positions, tokens, repeat(batch, action), repeat(batch, "NULL"),
						repeat(batch, "NULL"), repeat(batch, "NULL"), repeat(batch, "NULL"))
					pinned(t, name, plan)
					// A settlement writes a row and its index entries elsewhere too.
					t.Logf("%s %s: %d buffers", name, action, plan.buffers())
					require.LessOrEqual(t, plan.buffers(), 25*batch, "%s %s", name, action)
				}
			}
			complete := p.explain(t, "complete", ids, positions, tokens)
			pinned(t, "complete", complete)
			t.Logf("complete: %d buffers", complete.buffers())
			require.LessOrEqual(t, complete.buffers(), 25*batch, "complete")
			_, one, _ := strings.Cut(positions, "{")
			one, _, _ = strings.Cut(one, ",")
			check("complete_one", 3, fmt.Sprint(other.ID), one, "'6f1c9a52-3b7e-4d0f-9a51-0c2d7be84f13'")
			plan := p.explain(t, "give_back", fmt.Sprint(other.ID), positions, tokens)
			pinned(t, "give_back", plan)
			require.LessOrEqual(t, plan.buffers(), 20*batch, "give_back writes the ready index too")
			plan = p.explain(t, "diagnose", ids, positions, tokens)
			pinned(t, "diagnose", plan)
			plan = p.explain(t, "enqueue", "'{"+fmt.Sprint(q.ID)+"}'", repeat(batch, "x"), "'{}'", "'{}'", "'{}'", "'{}'", "'{}'", "'{}'",
				"'{}'", "'{}'", repeat(batch, "100"))
			pinned(t, "enqueue", plan)
			require.LessOrEqual(t, plan.buffers(), 15*batch, "enqueue")
			check("enqueue_one", 1, fmt.Sprint(q.ID), "'x'", "''", "NULL", "0", "NULL", "NULL", "0", "NULL", "100")
			plan = p.explain(t, "blocked", fmt.Sprint(q.ID))
			pinned(t, "blocked", plan)
			plan = p.explain(t, "message_get", fmt.Sprint(q.ID), "1", "true")
			pinned(t, "message_get", plan)
			plan = p.explain(t, "message_list", append(anyMessage(q.ID), "9223372036854775807", "101", "false")...)
			pinned(t, "message_list", plan)
			require.LessOrEqual(t, plan.buffers(), 10*101+100, "message_list")
		})
	}
}

// C12: what stands in the way costs a claim nothing.
func TestC12CostOfAClaim(t *testing.T) {
	if testing.Short() {
		t.Skip("fills large tables")
	}
	d := newDatabase(t, false)
	empty, delayed, leased := queue(t, d.store, "empty"), queue(t, d.store, "delayed"), queue(t, d.store, "leased")
	d.fill(t, delayed.ID, 300000, delayedShape)
	d.fill(t, leased.ID, 100000, leasedShape)
	d.exec(t, "VACUUM ANALYZE queuebox.message")
	p := newPlanner(t, d)
	base := p.explain(t, "claim", claimArgs(empty.ID, 1)...).buffers()
	require.LessOrEqual(t, p.explain(t, "claim", claimArgs(delayed.ID, 1)...).buffers(), 3*base, "an empty claim of 300k delayed messages")
	// The same once more where some are due: only those are looked at.
	d.fill(t, delayed.ID, 3, "1, 0, now(), NULL, NULL, 0")
	due := p.explain(t, "claim", claimArgs(delayed.ID, 1)...).buffers()
	t.Logf("three due among 300k delayed: %d buffers", due)
	require.LessOrEqual(t, due, base+100)
	d.exec(t, "DELETE FROM queuebox.message WHERE place = 1 AND ready_time <= now()")
	for _, q := range []int32{empty.ID, delayed.ID, leased.ID} {
		d.fill(t, q, 1, "0, 0, now(), NULL, NULL, 0")
	}
	base = p.explain(t, "claim", claimArgs(empty.ID, 1)...).buffers()
	got := p.explain(t, "claim", claimArgs(delayed.ID, 1)...).buffers()
	t.Logf("one ready message: %d buffers alone, %d beside 300k delayed", base, got)
	require.LessOrEqual(t, got, 3*base)
	unhinted := p.explain(t, "claim", claimArgs(leased.ID, 1)...).buffers()
	hinted := p.explain(t, "claim", hintArgs(leased.ID, 1, "now() - interval '5 minutes'")...).buffers()
	t.Logf("one ready message behind 100k leased: %d buffers without a hint, %d with it", unhinted, hinted)
	require.LessOrEqual(t, hinted, 3*base)
	for _, q := range []int32{empty.ID, delayed.ID} {
		ready := p.explain(t, "claim_ready", readyArgs(claimArgs(q, 1))...).buffers()
		require.LessOrEqual(t, ready, base+10, "claim_ready of one message")
	}
	ready := p.explain(t, "claim_ready", readyArgs(hintArgs(leased.ID, 1, "now() - interval '5 minutes'"))...).buffers()
	t.Logf("the same by claim_ready: %d buffers with a hint", ready)
	require.LessOrEqual(t, ready, 3*base)
	require.Greater(t, unhinted, hinted, "the leased rows stand in the way, else this test proves nothing")
}
