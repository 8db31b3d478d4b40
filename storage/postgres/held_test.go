package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/postgres"
)

// snapshot holds one open in a session of its own, until the function that it returns is called.
func (d *database) snapshot(t *testing.T) (end func()) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	tx, err := d.connect(t).Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "SELECT 1 FROM queuebox.message LIMIT 1")
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback(ctx)) }
}

// keeper is the upkeep of a store whose process has a clock of the test.
type keeper struct {
	*postgres.Store

	now time.Time
}

func (d *database) keeper(t *testing.T) *keeper {
	t.Helper()
	s := d.store.(*postgres.Store)
	s.RememberAll()
	return &keeper{Store: s, now: time.Now()}
}

// pass looks at all messages and all keys, some seconds after the pass before.
func (k *keeper) pass(t *testing.T) (sum storage.SweepResult) {
	t.Helper()
	k.now = k.now.Add(4 * time.Second)
	for p := (storage.SweepParams{Limit: 100}); ; {
		r, err := k.SweepAt(t.Context(), p, k.now)
		require.NoError(t, err)
		sum.Dead += r.Dead
		sum.Expired += r.Expired
		sum.Cancelled += r.Cancelled
		if p.After = r.Next; p.After == (storage.Ref{}) {
			break
		}
	}
	for p := (storage.SweepKeysParams{Limit: 100, IdleFor: time.Minute}); ; {
		r, err := k.SweepKeysAt(t.Context(), p, k.now)
		require.NoError(t, err)
		if p.After = r.Next; p.After == 0 {
			return sum
		}
	}
}

// blocks is how many a statement of this kind read on average, by a part of its text.
func (d *database) blocks(t *testing.T, part string) (blocks float64) {
	t.Helper()
	_, err := fmt.Sscan(d.lines(t, `SELECT (sum(shared_blks_hit + shared_blks_read) / sum(calls))::text FROM pg_stat_statements
		WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND position($1 IN regexp_replace(query, '\s+', ' ', 'g')) > 0`, part)[0], &blocks)
	require.NoError(t, err, part)
	return blocks
}

const forget = "SELECT pg_stat_statements_reset(0, (SELECT oid FROM pg_database WHERE datname = current_database()), 0)"

// C12, C18: while somebody holds a snapshot, every message that died since is still in the
// indexes. The pass over the living ones does not walk over more and more of them.
func TestC12C18AHeldSnapshotSlowsNoSweep(t *testing.T) {
	d := newDatabase(t, false)
	newCounter(t, d)
	q := queue(t, d.store, "held")
	other := queue(t, d.store, "other")
	defer d.snapshot(t)()
	k := d.keeper(t)
	later := func(_ int, m *storage.NewMessage) { m.Delay = time.Hour }
	const died, parts = 2000, 20
	var read [parts]float64
	for part := range read {
		for _, id := range []int32{q.ID, other.ID} {
			d.fill(t, id, died, pendingShape)
			d.exec(t, "DELETE FROM queuebox.message WHERE place = 0")
			enqueue(t, d.store, id, 1, later) // it lives on between those that die
		}
		k.pass(t)
		k.pass(t)
		d.exec(t, forget)
		k.pass(t)
		read[part] = d.blocks(t, "UNION ALL SELECT * FROM ( SELECT m.*")
	}
	messages, _ := k.LeftOut()
	t.Logf("blocks a statement: %.0f; %d stretches are left out", read, messages)
	require.Positive(t, messages)
	// What died since the last passes is walked over, and some of the rest, to be sure.
	for _, blocks := range read {
		require.Less(t, blocks, 2.5*died)
	}
}

// C12, O9: nor do the pass over the ordering keys, an enqueue and a settlement of such messages walk
// over all that died with the same keys.
func TestC12O9AHeldSnapshotSlowsNoKeys(t *testing.T) {
	d := newDatabase(t, false)
	newCounter(t, d)
	q := queue(t, d.store, "held")
	defer d.snapshot(t)()
	k := d.keeper(t)
	names := make([]string, 10)
	for i := range names {
		names[i] = fmt.Sprint("key-", i)
	}
	statements := []string{"CROSS JOIN unnest($1::bigint[], $4::bigint[])", "INSERT INTO queuebox.message", "nexts AS MATERIALIZED"}
	var read [5][]float64
	for part := range read {
		d.exec(t, forget)
		for range 4 {
			for range 25 {
				enqueue(t, d.store, q.ID, len(names), under(names...))
				settle(t, d.store, completions(claim(t, d.store, q.ID, len(names), time.Minute))...)
			}
			k.pass(t)
		}
		for _, what := range statements {
			read[part] = append(read[part], d.blocks(t, what))
		}
	}
	for i, what := range statements {
		t.Logf("blocks a statement: %.0f %.0f %.0f %.0f %.0f %s", read[0][i], read[1][i], read[2][i], read[3][i], read[4][i], what)
		require.LessOrEqual(t, read[4][i], 2*read[0][i]+100, what)
	}
}

// C18, W7: rows that come back into what the pass leaves out are found by its paced look: a message
// that was redriven, and one whose transaction was open for long. Each is on its last attempt, and
// its server was killed.
func TestC18W7WhatComesBackIntoAnEmptyStretchIsFound(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "held")
	defer d.snapshot(t)()
	k := d.keeper(t)
	dead := enqueue(t, d.store, q.ID, 1)[0].Ref
	settle(t, d.store, storage.Settlement{
		Ref: dead, Token: claim(t, d.store, q.ID, 1, time.Minute)[0].Token, Action: storage.ActionDeadLetter,
	})
	d.fill(t, q.ID, 3000, pendingShape)
	// A transaction that draws its position now and commits much later.
	late := d.connect(t)
	ctx := context.WithoutCancel(t.Context())
	tx, err := late.Begin(ctx)
	require.NoError(t, err)
	shape := overShape
	_, err = tx.Exec(ctx, fmt.Sprintf(`INSERT INTO queuebox.message (queue_id, position, create_time, max_attempts, payload_bytes,
		wire_bytes, content_type, payload, place, state, ready_time, lease_end, token, priority, lease_ms, attempt)
		SELECT %d, nextval('queuebox.message_position'), now(), 1, 1, 200, '', 'x', %s, 30000, 1`, q.ID, shape))
	require.NoError(t, err)
	d.fill(t, q.ID, 3000, pendingShape)
	d.exec(t, "DELETE FROM queuebox.message WHERE place = 0")
	enqueue(t, d.store, q.ID, 1, func(_ int, m *storage.NewMessage) { m.Delay = time.Hour })
	for range 4 {
		require.Zero(t, k.pass(t).Dead)
	}
	messages, _ := k.LeftOut()
	require.Positive(t, messages, "else this test proves nothing")

	// found makes passes, each four seconds after the other, until one has ended so many messages.
	found := func(n int) {
		t.Helper()
		for passes := 1; ; passes++ {
			if n -= k.pass(t).Dead; n == 0 {
				t.Logf("found in %d passes", passes)
				return
			}
			require.Less(t, 4*passes, 30, "not found within 30 seconds")
		}
	}
	require.NoError(t, tx.Commit(ctx))
	found(1)
	operator := open(t, d.config) // of another server
	r, err := operator.Redrive(ctx, storage.RedriveParams{Filter: storage.ListMessagesParams{QueueID: q.ID}, Limit: 10, MaxAttempts: 1})
	require.NoError(t, err)
	require.Positive(t, r.Count)
	d.exec(t, "UPDATE queuebox.message SET state = 1, attempt = 1, max_attempts = 1, token = gen_random_uuid(), lease_end = now() - interval '1 minute' WHERE position = $1", dead.Position)
	found(1)
}
