package postgres_test

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/postgres"
	"github.com/queuebox/queuebox/storage/storagetest"
)

// sweepAll runs one whole pass.
func sweepAll(t testing.TB, s storage.Store, limit int) (sum storage.SweepResult) {
	t.Helper()
	for {
		r, err := s.Sweep(t.Context(), storage.SweepParams{After: sum.Next, Limit: limit})
		require.NoError(t, err)
		sum.Dead += r.Dead
		sum.Expired += r.Expired
		sum.Cancelled += r.Cancelled
		sum.Next = r.Next
		if r.Next == (storage.Ref{}) {
			return sum
		}
	}
}

// retainAll runs Retain until nothing is left for it.
func retainAll(t testing.TB, s storage.Store) (sum storage.RetainResult) {
	t.Helper()
	for {
		r, err := s.Retain(t.Context(), storage.RetainParams{Limit: 100})
		require.NoError(t, err)
		sum.Deleted += r.Deleted
		sum.PartitionsDropped += r.PartitionsDropped
		if !r.More {
			return sum
		}
	}
}

const overShape = "0, 1, now() - interval '1 hour', now() - interval '1 minute', gen_random_uuid(), 0"

// C12, C18: a page of the sweep reads the primary key and nothing else, however large
// the table is.
func TestC18SweepPageReadsThePrimaryKey(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "plan")
	d.fill(t, q.ID, 20000, pendingShape)
	d.exec(t, "VACUUM ANALYZE queuebox.message")
	p := newPlanner(t, d)
	// In three parts, of which two have 250 messages each.
	id := fmt.Sprint(q.ID)
	plan := p.explain(t, "sweep", "'{}'", "'{}'", repeat(3, id), "'{0,502,2002}'", "500", "500", "4194304", "false",
		repeat(3, id), "'{502,502,1000000}'", "0")
	pinned(t, "sweep", plan)
	plan.walk(func(n planNode) {
		if n.Table == "message" && n.Index != "" {
			require.Equal(t, "message_pkey", n.Index)
		}
	})
	t.Logf("sweep: 500 rows of 20000 looked at, %d buffers", plan.buffers())
	require.LessOrEqual(t, plan.buffers(), 700)
	pinned(t, "cancel", p.explain(t, "cancel", fmt.Sprint(q.ID), "5"))
	for name, args := range map[string][]string{
		"retain_dead": {"100", "1000000"}, "retain_completed": {"100", "1000000"}, "retain_settlement": {"100"},
	} {
		p.explain(t, name, args...).walk(func(n planNode) {
			// All queues are read, and they are few; nothing else is.
			require.False(t, n.Type == "Seq Scan" && n.Table != "queue", "%s: sequential scan of %s", name, n.Table)
		})
	}
}

// C18: a row that somebody holds is left, at once, and taken the next time; many at once
// take several statements and are all taken.
func TestC18SweepLeavesAHeldRow(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "held")
	d.fill(t, q.ID, 1200, overShape)
	d.exec(t, "UPDATE queuebox.message SET max_attempts = 1")
	var first int64
	require.NoError(t, d.beside.QueryRow(t.Context(), "SELECT min(position) FROM queuebox.message").Scan(&first))
	held := storage.Ref{QueueID: q.ID, Position: first}
	release := d.hold(t, held, storagetest.HoldLock)
	require.Equal(t, 1199, sweepAll(t, d.store, 2000).Dead)
	require.NotNil(t, d.row(t, held))
	release()
	require.Equal(t, 1, sweepAll(t, d.store, 2000).Dead)
}

// C18, S7: of a sweep that races claims, renewals and completions exactly one wins, and
// no message is lost or doubled.
func TestC18SweepRacesTheHolder(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "race")
	const n = 150
	enqueue(t, d.store, q.ID, n, func(_ int, m *storage.NewMessage) { m.MaxAttempts = 1 })
	claimed := claim(t, d.store, q.ID, n, 300*time.Millisecond)
	require.Len(t, claimed, n)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	swept := 0
	wg.Go(func() {
		for {
			r, err := d.store.Sweep(t.Context(), storage.SweepParams{Limit: 1000})
			if err != nil {
				return
			}
			swept += r.Dead
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	applied, lost := 0, 0
	for i, c := range claimed {
		if i%2 == 0 {
			_, err := d.store.Renew(t.Context(), storage.RenewParams{Items: []storage.Renewal{{
				Ref: c.Message.Ref, Token: c.Token, Lease: 100 * time.Millisecond,
			}}})
			require.NoError(t, err)
		}
		switch item := settle(t, d.store, completions([]storage.Claimed{c})...)[0]; item.Status {
		case storage.ItemApplied:
			applied++
		default:
			require.Equal(t, storage.ItemLost, item.Status, "never settled by a sweep")
			require.Equal(t, storage.LostLeaseExpired, item.Cause)
			lost++
		}
	}
	require.Eventually(t, func() bool {
		return len(d.lines(t, "SELECT 'x' FROM queuebox.message")) == 0
	}, time.Minute, 5*time.Millisecond)
	close(stop)
	wg.Wait()
	t.Logf("%d completed, %d swept", applied, swept)
	require.Equal(t, lost, swept)
	require.Equal(t, n, applied+swept)
	require.Equal(t, []string{fmt.Sprint(applied)}, d.lines(t, "SELECT count(*)::text FROM queuebox.completed"))
	require.Equal(t, []string{fmt.Sprint(swept)}, d.lines(t, "SELECT count(*)::text FROM queuebox.dead WHERE dead_reason = 3 AND action = 0"))
}

// S14: a Cancel of a row that somebody holds ends within the wait, and changes nothing.
func TestS14CancelOfAHeldRowIsBounded(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "cancel")
	ref := enqueue(t, d.store, q.ID, 1)[0].Ref
	release := d.hold(t, ref, storagetest.HoldLock)
	_, err := d.store.Cancel(t.Context(), storage.CancelParams{QueueID: q.ID, Ref: ref})
	require.ErrorIs(t, err, storage.ErrUnavailable)
	release()
	require.Equal(t, "f", d.row(t, ref)["cancel_requested"][:1])
	r, err := d.store.Cancel(t.Context(), storage.CancelParams{QueueID: q.ID, Ref: ref})
	require.NoError(t, err)
	require.Equal(t, storage.StateCancelled, r.State)
}

// age makes an old hour of completed messages out of those there are: they move into a
// partition of ten hours ago.
func (d *database) age(t testing.TB) (partition string) {
	t.Helper()
	hour := time.Now().UTC().Truncate(time.Hour).Add(-10 * time.Hour)
	for _, table := range []string{"completed", "settlement"} {
		d.exec(t, fmt.Sprintf("CREATE TABLE queuebox.%[1]s_%[2]s PARTITION OF queuebox.%[1]s FOR VALUES FROM ('%[3]s') TO ('%[4]s')",
			table, hour.Format("2006010215"), hour.Format(time.RFC3339), hour.Add(time.Hour).Format(time.RFC3339)))
	}
	d.exec(t, "UPDATE queuebox.completed SET finish_time = $1", hour.Add(time.Minute))
	return "completed_" + hour.Format("2006010215")
}

func keyedMessage(queueID int32, key string) storage.EnqueueParams {
	return storage.EnqueueParams{Messages: []storage.NewMessage{{
		QueueID: queueID, Payload: []byte(key), WireBytes: 100, IdempotencyKey: key, ContentHash: sha256.Sum256([]byte(key)),
	}}}
}

// D6, E5: an old hour is dropped, its keys are freed before, and what is not finished stays.
func TestD6OldHoursAreDropped(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "drop")
	_, err := d.store.Enqueue(t.Context(), keyedMessage(q.ID, "k"))
	require.NoError(t, err)
	settle(t, d.store, completions(claim(t, d.store, q.ID, 1, time.Minute))...)
	partition := d.age(t)
	enqueue(t, d.store, q.ID, 2)
	require.Len(t, claim(t, d.store, q.ID, 1, time.Minute), 1)
	d.exec(t, "UPDATE queuebox.message SET create_time = now() - interval '1 year'")

	// A key that somebody holds keeps the whole hour.
	tx, err := d.beside.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT 1 FROM queuebox.idempotency_key FOR UPDATE")
	require.NoError(t, err)
	r := retainAll(t, d.store)
	require.Equal(t, 1, r.PartitionsDropped, "the history alone")
	require.NoError(t, tx.Rollback(t.Context()))

	r = retainAll(t, d.store)
	require.Equal(t, 1, r.PartitionsDropped)
	require.Equal(t, []string{"0"}, d.lines(t, "SELECT count(*)::text FROM pg_class WHERE relname = $1", partition))
	require.Empty(t, d.lines(t, "SELECT key FROM queuebox.idempotency_key"))
	require.Len(t, d.lines(t, "SELECT 'x' FROM queuebox.message"), 2, "pending and processing rows stay")
	again, err := d.store.Enqueue(t.Context(), keyedMessage(q.ID, "k"))
	require.NoError(t, err)
	require.Equal(t, storage.EnqueueInserted, again.Items[0].Status)
}

// D6: an hour with more rows than one call may look at is dropped by the calls that follow.
func TestD6AnHourLargerThanOneCall(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "large")
	_, err := d.store.Enqueue(t.Context(), keyedMessage(q.ID, "k"))
	require.NoError(t, err)
	settle(t, d.store, completions(claim(t, d.store, q.ID, 1, time.Minute))...)
	partition := d.age(t)
	d.exec(t, fmt.Sprintf(`INSERT INTO queuebox.completed (queue_id, position, finish_time, create_time, ready_time, token, priority,
		attempt, max_attempts, payload_bytes, content_type, payload)
		SELECT queue_id, g - 100000, finish_time, create_time, ready_time, gen_random_uuid(), 0, 1, 1, 0, '', ''
		FROM queuebox.%s, generate_series(1, 45000) g`, partition))
	r := retainAll(t, d.store)
	require.Equal(t, 2, r.PartitionsDropped, "completed messages and their history")
	require.Empty(t, d.lines(t, "SELECT key FROM queuebox.idempotency_key"), "the key of the last row too")
}

// D6: a role that may not drop tables deletes the rows, keys and all; a key that names
// another message by now stays.
func TestD6RetentionWithoutTheRightToDrop(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "poor")
	for _, key := range []string{"k", "moved"} {
		_, err := d.store.Enqueue(t.Context(), keyedMessage(q.ID, key))
		require.NoError(t, err)
	}
	settle(t, d.store, completions(claim(t, d.store, q.ID, 2, time.Minute))...)
	partition := d.age(t)
	s := open(t, postgres.Config{URL: d.role(t, grants)})
	_, err := s.Enqueue(t.Context(), keyedMessage(q.ID, "moved"))
	require.NoError(t, err)
	r := retainAll(t, s)
	require.Zero(t, r.PartitionsDropped)
	require.Equal(t, 2, r.Deleted)
	require.Equal(t, []string{"1"}, d.lines(t, "SELECT count(*)::text FROM pg_class WHERE relname = $1", partition))
	require.Empty(t, d.lines(t, "SELECT 'x' FROM queuebox.completed"))
	require.Equal(t, []string{"moved"}, d.lines(t, "SELECT key FROM queuebox.idempotency_key"))
}

// D6: one replica at a time; the other one does nothing and waits for nobody.
func TestD6OneReplicaAtATime(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "alone")
	enqueue(t, d.store, q.ID, 1)
	settle(t, d.store, completions(claim(t, d.store, q.ID, 1, time.Minute))...)
	d.age(t)
	tx, err := d.beside.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock(7420742074207423)")
	require.NoError(t, err)
	r := retainAll(t, d.store)
	require.Zero(t, r.Deleted+r.PartitionsDropped)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, 2, retainAll(t, d.store).PartitionsDropped)
}
