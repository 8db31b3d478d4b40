package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// limitedQueue makes a queue with limits.
func limitedQueue(t testing.TB, s storage.Store, name string, inFlight int32, rate float64) storage.Queue {
	t.Helper()
	set := settings()
	set.MaxInFlight, set.MaxClaimsPerSecond = inFlight, rate
	q, err := s.CreateQueue(t.Context(), name, set, 0)
	require.NoError(t, err)
	return q
}

// limitedArgs are those of claim_limited.
func limitedArgs(queueID int32, n int) []string {
	return append(claimArgs(queueID, n), "0", "1000", "true", "'{}'", "1", "'{1,2,3,4,5}'")
}

// C12 for a queue with a limit: its statements seek too.
func TestL1PlansArePinned(t *testing.T) {
	const rows, slots = 20000, 100
	d := newDatabase(t, false)
	q := limitedQueue(t, d.store, "plans", slots, 1000)
	// Of another one that is as busy, nothing is read.
	other := limitedQueue(t, d.store, "other", 10000, 1000)
	d.fill(t, q.ID, rows, pendingShape)
	d.fill(t, other.ID, rows, leasedShape)
	for range 20 {
		require.Len(t, claim(t, d.store, q.ID, 4, time.Minute), 4)
	}
	d.exec(t, fmt.Sprintf(`INSERT INTO queuebox.claim_slot (queue_id, position) SELECT queue_id, position FROM queuebox.message
		WHERE queue_id = %d AND state = 1`, other.ID))
	d.exec(t, fmt.Sprintf(`INSERT INTO queuebox.claim_pace (queue_id, rate, full_ns, slot_from) SELECT %d, 1, 1, 1
		FROM generate_series(1, 20000)`, other.ID))
	d.exec(t, fmt.Sprintf("UPDATE queuebox.claim_limit SET fill_time = NULL WHERE queue_id = %d", q.ID))
	for _, at := range []string{"never", "now"} {
		t.Run("analysed "+at, func(t *testing.T) {
			if at == "now" {
				d.exec(t, "VACUUM ANALYZE queuebox.message, queuebox.claim_slot, queuebox.claim_pace, queuebox.claim_limit, queuebox.queue")
			}
			p := newPlanner(t, d)
			check := func(name string, most int, args ...string) {
				t.Helper()
				plan := p.explain(t, name, args...)
				pinned(t, name, plan)
				for range 2 {
					if again := p.explain(t, name, args...); again.buffers() < plan.buffers() {
						plan = again
					}
				}
				t.Logf("%s: %d buffers", name, plan.buffers())
				require.LessOrEqual(t, plan.buffers(), most, name)
			}
			id := fmt.Sprint(q.ID)
			check("limit_lock", 10, id)
			check("limit_fill", 10, id)
			// Of 80 leases: the slot, the message, and a little more for each.
			check("limit_state", 80*8+40, id)
			check("claim_limited", 10*10+120, limitedArgs(q.ID, 10)...)
			check("maintain_paces", 200000, "100")
			check("maintain_slots", 200000, "100")
			plan := p.explain(t, "limit_fill", fmt.Sprint(other.ID))
			pinned(t, "limit_fill", plan)
		})
	}
}

// A claim of a queue with a limit is one transaction of two round trips, and the row that
// serializes it is never updated.
func TestL1StatementsOfAClaim(t *testing.T) {
	d := newDatabase(t, false)
	c := newCounter(t, d)
	q := limitedQueue(t, d.store, "count", 10, 1000)
	d.exec(t, "UPDATE queuebox.claim_limit SET fill_time = NULL")
	enqueue(t, d.store, q.ID, 100)
	for range 3 {
		claim(t, d.store, q.ID, 1, time.Minute)
	}
	n, wal := c.of(t, func() { require.Len(t, claim(t, d.store, q.ID, 5, time.Minute), 5) })
	require.Equal(t, 4, n, "lock, fill, state, claim")
	t.Logf("claim of a limited queue: %d WAL bytes a message", wal/5)
	require.Len(t, claim(t, d.store, q.ID, 10, time.Minute), 2)
	n, _ = c.of(t, func() { require.Empty(t, claim(t, d.store, q.ID, 5, time.Minute)) })
	require.Equal(t, 4, n, "lock, fill, state, ROLLBACK")
}

// A snapshot that somebody holds keeps every old version of every row. A claim of a queue
// with limits must not get slower by what came and went meanwhile.
func TestL1L2AHeldSnapshotSlowsNoClaim(t *testing.T) {
	if testing.Short() {
		t.Skip("makes thousands of claims")
	}
	const rounds = 2000
	d := newDatabase(t, false)
	q := limitedQueue(t, d.store, "held", 10, 1e6)
	enqueue(t, d.store, q.ID, 1)
	long := claim(t, d.store, q.ID, 1, time.Hour) // pins the oldest slot, unless it is moved
	require.Len(t, long, 1)
	ctx := context.WithoutCancel(t.Context())
	conn := d.connect(t)
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "SELECT count(*) FROM queuebox.claim_slot")
	require.NoError(t, err)
	p := newPlanner(t, d)
	cost := func() int { return p.explain(t, "limit_state", fmt.Sprint(q.ID)).buffers() }
	before := cost()
	most := 0
	var from []storage.ScanHint
	for i := range rounds {
		enqueue(t, d.store, q.ID, 4)
		r, err := d.store.Claim(t.Context(), storage.ClaimParams{
			QueueID: q.ID, ScanFrom: from, Calls: []storage.ClaimCall{{Max: 4, Lease: time.Minute, WorkerID: "w"}},
		})
		require.NoError(t, err)
		got := r.Calls[0].Messages
		require.Len(t, got, 4)
		from = []storage.ScanHint{{ReadyTime: got[3].Message.ReadyTime}}
		settle(t, d.store, completions(got)...)
		if i%100 == 99 {
			most = max(most, cost())
		}
	}
	require.NoError(t, tx.Rollback(ctx))
	t.Logf("limit_state: %d buffers before, at most %d in %d claims under a held snapshot", before, most, rounds)
	require.LessOrEqual(t, most, before+150, "what was removed is walked over again and again")
}
