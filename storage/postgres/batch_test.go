package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// ended moves all messages of a queue to the dead or the completed ones, by SQL.
func (d *database) ended(t testing.TB, queueID int32, table string) {
	t.Helper()
	columns := `queue_id, position, finish_time, create_time, ready_time, token, priority, attempt, max_attempts, payload_bytes,
		content_type, payload`
	values := `queue_id, position, create_time + position * interval '1 microsecond', create_time, ready_time, gen_random_uuid(), 0, 1, 20,
		payload_bytes, '', payload`
	if table == "dead" {
		columns += ", wire_bytes, state, action, dead_reason, reason_code"
		values += ", wire_bytes, 4, 3, 1, 'X'"
	}
	d.exec(t, fmt.Sprintf(`WITH m AS (DELETE FROM queuebox.message WHERE queue_id = %d RETURNING *)
		INSERT INTO queuebox.%s (%s) SELECT %s FROM m`, queueID, table, columns, values))
	d.exec(t, fmt.Sprintf(`INSERT INTO queuebox.settlement (queue_id, position, token, settle_time, action, outcome, dead_reason)
		SELECT queue_id, position, token, finish_time, 3, 3, 1 FROM queuebox.%s WHERE queue_id = %d`, table, queueID))
}

// C12, D6: whatever is redriven or purged is found by position, a bounded number at a time,
// whatever the statistics were taken on.
func TestC12PlansOfRedriveAndPurge(t *testing.T) {
	const rows, batch = 20000, 100
	for _, at := range []string{"empty", "full"} {
		t.Run("analysed "+at, func(t *testing.T) {
			d := newDatabase(t, false)
			live, dead, done := queue(t, d.store, "live"), queue(t, d.store, "dead"), queue(t, d.store, "done")
			analyse := func() {
				d.exec(t, "ANALYZE queuebox.message, queuebox.completed, queuebox.dead, queuebox.settlement, queuebox.idempotency_key, queuebox.queue")
			}
			if at == "empty" {
				analyse()
			}
			for _, q := range []int32{dead.ID, done.ID, live.ID} {
				d.fill(t, q, rows, pendingShape)
			}
			d.ended(t, dead.ID, "dead")
			d.ended(t, done.ID, "completed")
			d.exec(t, "VACUUM queuebox.message, queuebox.dead, queuebox.completed, queuebox.settlement")
			if at == "full" {
				analyse()
			}
			p := newPlanner(t, d)
			some := func(table string, queueID int32, column string) string {
				return "'{" + strings.Join(d.lines(t, fmt.Sprintf(
					`SELECT '"' || %s::text || '"' FROM queuebox.%s WHERE queue_id = $1 ORDER BY position OFFSET 10000 LIMIT %d`, column, table, batch,
				), queueID), ",") + "}'"
			}
			check := func(name string, buffers int, args ...string) {
				t.Helper()
				plan := p.explain(t, name, args...)
				pinned(t, name, plan)
				for range 2 {
					if again := p.explain(t, name, args...); again.buffers() < plan.buffers() {
						plan = again
					}
				}
				t.Logf("%s: %d buffers", name, plan.buffers())
				require.LessOrEqual(t, plan.buffers(), buffers, name)
			}
			for kind, q := range map[string]int32{"pick_pending": live.ID, "pick_completed": done.ID, "pick_dead": dead.ID} {
				check(kind, 2*2000, append(anyMessage(q), "500", "2000")...)
				few := anyMessage(q)
				few[4], few[5] = "'{NO}'", "'no such text'"
				check(kind, 2*2000, append(few, "500", "2000")...)
			}
			named := anyMessage(dead.ID)
			named[9] = some("dead", dead.ID, "position")
			check("pick_dead", 10*batch, append(named, "0", "2000")...)
			// A row that moves is written elsewhere, with its index entries.
			check("redrive", 30*batch, fmt.Sprint(dead.ID), named[9], "0", "1000", "0")
			check("purge_dead", 30*batch, fmt.Sprint(dead.ID), named[9])
			check("purge_completed", 30*batch, fmt.Sprint(done.ID), some("completed", done.ID, "position"), some("completed", done.ID, "finish_time"))
			pending := anyMessage(live.ID)
			pending[9] = some("message", live.ID, "position")
			check("purge_pending", 30*batch, pending...)
		})
	}
}

// O1, O2: a claim that has not committed yet holds the head of its key. A message with an
// earlier place that is redriven meanwhile is not handed out beside it, and is next.
func TestO2RedriveBesideAnOpenClaim(t *testing.T) {
	for _, end := range []string{"COMMIT", "ROLLBACK"} {
		t.Run(end, func(t *testing.T) {
			ctx := t.Context()
			d := newDatabase(t, false)
			q := queue(t, d.store, "open")
			var refs []storage.Ref
			for _, item := range enqueue(t, d.store, q.ID, 3, func(_ int, m *storage.NewMessage) { m.OrderingKey = "a" }) {
				refs = append(refs, item.Ref)
			}
			first := claim(t, d.store, q.ID, 10, time.Hour)
			require.Len(t, first, 1)
			require.Equal(t, storage.OutcomeDead, settle(t, d.store, storage.Settlement{
				Ref: refs[0], Token: first[0].Token, Action: storage.ActionDeadLetter,
			})[0].Outcome)

			// What a claim writes, in a transaction that stays open.
			other := d.connect(t)
			_, err := other.Exec(ctx, "BEGIN")
			require.NoError(t, err)
			token := storage.Token{7}
			_, err = other.Exec(ctx, `UPDATE queuebox.message SET state = 1, token = $3, lease_end = now() + interval '1 hour', lease_ms = 3600000,
				claim_time = now(), attempt = attempt + 1, worker_id = 'w' WHERE queue_id = $1 AND position = $2`,
				q.ID, refs[1].Position, [16]byte(token))
			require.NoError(t, err)
			began := time.Now()
			res, err := d.store.Redrive(ctx, storage.RedriveParams{Filter: storage.ListMessagesParams{QueueID: q.ID}, Limit: 10})
			require.NoError(t, err)
			require.Equal(t, 1, res.Count)
			require.Less(t, time.Since(began), 2*time.Second, "it does not wait for the claim")
			require.Empty(t, claim(t, d.store, q.ID, 10, time.Hour), "nothing of the key beside the open claim")
			_, err = other.Exec(ctx, end)
			require.NoError(t, err)
			if end == "COMMIT" {
				require.Empty(t, claim(t, d.store, q.ID, 10, time.Hour), "one live lease a key")
				require.Equal(t, storage.ItemApplied, settle(t, d.store, storage.Settlement{
					Ref: refs[1], Token: token, Action: storage.ActionComplete,
				})[0].Status)
			} else {
				_, err = d.store.SweepKeys(ctx, storage.SweepKeysParams{Limit: 100})
				require.NoError(t, err)
			}
			got := claim(t, d.store, q.ID, 10, time.Hour)
			require.Len(t, got, 1)
			require.Equal(t, refs[0], got[0].Message.Ref, "the redriven one is next")
		})
	}
}

// D12: a key that somebody has for long holds up nobody: its messages are left, the others move.
func TestD12RedriveAndPurgeLeaveAHeldKey(t *testing.T) {
	ctx := t.Context()
	d := newDatabase(t, false)
	q := queue(t, d.store, "held")
	enqueue(t, d.store, q.ID, 4, func(i int, m *storage.NewMessage) { m.OrderingKey = []string{"a", "b", "", "c"}[i] })
	for _, c := range claim(t, d.store, q.ID, 10, time.Hour) {
		settle(t, d.store, storage.Settlement{Ref: c.Message.Ref, Token: c.Token, Action: storage.ActionDeadLetter})
	}
	other := d.connect(t)
	hold := func() {
		_, err := other.Exec(ctx, "BEGIN")
		require.NoError(t, err)
		_, err = other.Exec(ctx, "SELECT 1 FROM queuebox.ordering_key WHERE name = 'b' FOR UPDATE")
		require.NoError(t, err)
	}
	free := func() {
		_, err := other.Exec(ctx, "COMMIT")
		require.NoError(t, err)
	}
	p := storage.ListMessagesParams{QueueID: q.ID}
	hold()
	res, err := d.store.Redrive(ctx, storage.RedriveParams{Filter: p, Limit: 10})
	require.NoError(t, err)
	require.Equal(t, [2]int{3, 1}, [2]int{res.Count, res.Left})
	free()
	res, err = d.store.Redrive(ctx, storage.RedriveParams{Filter: p, Limit: 10})
	require.NoError(t, err)
	require.Equal(t, [2]int{1, 0}, [2]int{res.Count, res.Left})
	hold()
	purged, err := d.store.Purge(ctx, storage.PurgeParams{Filter: p, Limit: 10})
	require.NoError(t, err)
	require.Equal(t, [2]int{3, 1}, [2]int{purged.Count, purged.Left})
	free()
	purged, err = d.store.Purge(ctx, storage.PurgeParams{Filter: p, Limit: 10})
	require.NoError(t, err)
	require.Equal(t, [2]int{1, 0}, [2]int{purged.Count, purged.Left})
}
