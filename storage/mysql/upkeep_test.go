package mysql_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// retainAll runs Retain until nothing is left for it.
func retainAll(t testing.TB, s storage.Store) (deleted int) {
	t.Helper()
	for {
		r, err := s.Retain(t.Context(), storage.RetainParams{Limit: 10000})
		require.NoError(t, err)
		require.Zero(t, r.PartitionsDropped)
		deleted += r.Deleted
		if !r.More {
			return deleted
		}
	}
}

// completeSome completes n messages, each with an idempotency key, and makes them two hours
// old: a queue of these tests keeps them for one.
func (d *database) completeSome(t testing.TB, q storage.Queue, n int) {
	t.Helper()
	enqueue(t, d.store, q.ID, n, func(i int, m *storage.NewMessage) {
		m.IdempotencyKey = fmt.Sprint("key ", i)
		m.ContentHash = sha256.Sum256([]byte(m.IdempotencyKey))
	})
	for left := n; left > 0; {
		got := claim(t, d.store, q.ID, min(left, 500), time.Minute)
		require.NotEmpty(t, got)
		settle(t, d.store, completions(got)...)
		left -= len(got)
	}
	d.exec(t, "UPDATE completed SET finish_time = SYSDATE(6) - INTERVAL 2 HOUR")
}

// beside runs a statement in a transaction of another session, which end rolls back.
func (d *database) beside(t testing.TB, text string, args ...any) (end func()) {
	t.Helper()
	conn := d.session(t)
	ctx := context.Background()
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(t, err)
	require.NoError(t, drain(ctx, tx, text, args...))
	return func() {
		require.NoError(t, tx.Rollback())
		require.NoError(t, conn.Close())
	}
}

func drain(ctx context.Context, tx *sql.Tx, text string, args ...any) error {
	rows, err := tx.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	n := 0
	for rows.Next() {
		n++
	}
	if n == 0 {
		return sql.ErrNoRows
	}
	return rows.Err()
}

// D6, E5: a key that somebody holds keeps its message, and nobody waits; the next time both go.
func TestD6AHeldKeyKeepsItsMessage(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "held")
	d.completeSome(t, q, 3)
	end := d.beside(t, "SELECT * FROM idempotency_key WHERE queue_id = ? AND name = 'key 1' FOR UPDATE", q.ID)
	require.Equal(t, 2, retainAll(t, d.store))
	require.Equal(t, []string{"key 1"}, d.lines(t, "SELECT name FROM idempotency_key"))
	require.Len(t, d.lines(t, "SELECT id FROM completed"), 1)
	end()
	require.Equal(t, 1, retainAll(t, d.store))
	require.Empty(t, d.lines(t, "SELECT name FROM idempotency_key"))
	require.Empty(t, d.lines(t, "SELECT id FROM completed"))
}

// D6: a row that somebody else has locked is passed over, and those after it are not.
func TestD6AHeldRowIsPassedOver(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "held")
	d.completeSome(t, q, 5)
	first := d.lines(t, "SELECT MIN(id) FROM completed")[0]
	end := d.beside(t, "SELECT * FROM completed WHERE id = ? FOR UPDATE", first)
	require.Equal(t, 4, retainAll(t, d.store))
	require.Equal(t, []string{first}, d.lines(t, "SELECT id FROM completed"))
	end()
	require.Equal(t, 1, retainAll(t, d.store))
}

// D6: one server at a time; the other one does nothing and waits for nobody.
func TestD6OneServerAtATime(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "alone")
	d.completeSome(t, q, 3)
	end := d.beside(t, "SELECT * FROM count_turn WHERE id = 2 FOR UPDATE")
	require.Zero(t, retainAll(t, d.store))
	end()
	require.Equal(t, 3, retainAll(t, d.store))
}

// reads runs fn and tells how many pages of the buffer pool were read meanwhile, the least of
// a few times: the database does things of its own beside.
func (d *database) reads(t testing.TB, fn func()) int {
	t.Helper()
	least := 0
	for i := range 5 {
		before := d.pagesRead(t)
		fn()
		if n := d.pagesRead(t) - before; i == 0 || n < least {
			least = n
		}
	}
	return least
}

func (d *database) pagesRead(t testing.TB) int {
	t.Helper()
	n, err := strconv.Atoi(d.rows(t, "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_read_requests'")[0]["Value"])
	require.NoError(t, err)
	return n
}

// D6: what was deleted stays in the indexes for as long as anybody holds an old snapshot. A
// server that deletes the rows of an hour does not walk over them again and again.
func TestD6RetentionDoesNotWalkOverWhatItDeleted(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "walk")
	d.completeSome(t, q, 4000)
	defer d.beside(t, "SELECT COUNT(*) FROM completed")()
	require.Equal(t, 4000, retainAll(t, d.store))
	enqueue(t, d.store, q.ID, 1)
	settle(t, d.store, completions(claim(t, d.store, q.ID, 1, time.Minute))...)
	again := func(s storage.Store) int {
		return d.reads(t, func() { require.Zero(t, retainAll(t, s)) })
	}
	known := again(d.store)
	// A server that has just started has to look from the start, once.
	var anew []int
	for range 3 {
		s := open(t, d.config)
		before := d.pagesRead(t)
		require.Zero(t, retainAll(t, s))
		anew = append(anew, d.pagesRead(t)-before)
	}
	t.Logf("pages read: %d where it was known where to start, %v where not", known, anew)
	require.Less(t, 3*known, min(anew[0], anew[1], anew[2]))
}

// C18: a row that somebody holds is left, at once, and taken the next time.
func TestC18SweepLeavesAHeldRow(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "held")
	d.fill(t, int(q.ID), 1200, "0, 1, SYSDATE(6) - INTERVAL 1 HOUR, SYSDATE(6) - INTERVAL 1 MINUTE, UNHEX(LPAD(HEX(n.i), 32, '0')), 20")
	end := d.beside(t, "SELECT * FROM message WHERE id = (SELECT MIN(id) FROM message) FOR UPDATE")
	sweep := func() (dead int) {
		t.Helper()
		for after := (storage.Ref{}); ; {
			r, err := d.store.Sweep(t.Context(), storage.SweepParams{After: after, Limit: 700})
			require.NoError(t, err)
			dead += r.Dead
			if after = r.Next; after == (storage.Ref{}) {
				return dead
			}
		}
	}
	require.Equal(t, 1199, sweep())
	end()
	require.Equal(t, 1, sweep())
	require.Empty(t, d.lines(t, "SELECT id FROM message"))
}

// C18, S7: of a sweep that races renewals and completions exactly one wins, and no message is
// lost or doubled.
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
	require.Eventually(t, func() bool { return len(d.lines(t, "SELECT id FROM message")) == 0 }, time.Minute, 5*time.Millisecond)
	close(stop)
	wg.Wait()
	t.Logf("%d completed, %d swept", applied, swept)
	require.Equal(t, lost, swept)
	require.Equal(t, n, applied+swept)
	require.Len(t, d.lines(t, "SELECT id FROM completed"), applied)
	require.Len(t, d.lines(t, "SELECT id FROM dead WHERE dead_reason = 3 AND action = 0"), swept)
}

// L3: a server that was killed while it counted is replaced within seconds, and not before.
func TestL3AKilledCounterIsReplaced(t *testing.T) {
	d := newDatabase(t, true)
	now := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	d.setClock(t, now)
	q := queue(t, d.store, "counted")
	enqueue(t, d.store, q.ID, 3)
	d.exec(t, "UPDATE count_turn SET holder = UNHEX(REPEAT('a', 32)), held_until = ? WHERE id = 1", now.Add(6*time.Second))
	count := func() int {
		t.Helper()
		res, err := d.store.Count(t.Context(), storage.CountParams{})
		require.NoError(t, err)
		return res.Counted
	}
	d.setClock(t, now.Add(6*time.Second-time.Microsecond))
	require.Zero(t, count(), "somebody else counts")
	d.setClock(t, now.Add(6*time.Second))
	require.Equal(t, 1, count())
	st, err := d.store.StoredStats(t.Context(), q.ID)
	require.NoError(t, err)
	require.EqualValues(t, 3, st.Ready)
}

// L3: counts of many queues with many rows, some of which end in the middle of a statement, are
// those that the rows say.
func TestL3CountsAcrossThePagesOfThePass(t *testing.T) {
	d := newDatabase(t, false)
	want := make(map[int32]storage.QueueStats)
	for i, n := range []int{3, 900, 0, 2500, 1, 1200} {
		q := queue(t, d.store, fmt.Sprint("queue ", i))
		d.fill(t, int(q.ID), n, readyShape)
		d.fill(t, int(q.ID), n/2, leasedShape)
		d.fillFinished(t, int(q.ID), n)
		want[q.ID] = storage.QueueStats{Ready: int64(n), Leased: int64(n / 2), Completed: int64(n), Dead: int64(n / 2)}
	}
	res, err := d.store.Count(t.Context(), storage.CountParams{})
	require.NoError(t, err)
	require.Equal(t, len(want), res.Counted)
	for id, w := range want {
		for _, read := range []func(context.Context, int32) (storage.QueueStats, error){d.store.StoredStats, d.store.QueueStats} {
			st, err := read(t.Context(), id)
			require.NoError(t, err)
			st.AsOf, st.OldestReady = time.Time{}, time.Time{}
			require.Equal(t, w, st)
		}
	}
}

// L1, L2: a snapshot that somebody holds keeps every old version of every row. A claim of a
// queue with limits does not read more of them the more there are.
func TestL1L2AHeldSnapshotSlowsNoClaim(t *testing.T) {
	const rounds = 300
	d := newDatabase(t, false)
	set := settings()
	set.MaxInFlight, set.MaxClaimsPerSecond = 10, 1e6
	q, err := d.store.CreateQueue(t.Context(), "held", set, 0)
	require.NoError(t, err)
	enqueue(t, d.store, q.ID, 1)
	require.Len(t, claim(t, d.store, q.ID, 1, time.Hour), 1)
	defer d.beside(t, "SELECT COUNT(*) FROM claim_slot")()
	cost := func() int {
		return d.reads(t, func() {
			d.rows(t, "SELECT s.id FROM claim_slot AS s LEFT JOIN message AS m ON m.id = s.id WHERE s.queue_id = ?", q.ID)
		})
	}
	before := cost()
	for range rounds {
		enqueue(t, d.store, q.ID, 4)
		got := claim(t, d.store, q.ID, 4, time.Minute)
		require.Len(t, got, 4)
		settle(t, d.store, completions(got)...)
	}
	after := cost()
	slots := d.lines(t, "SELECT slot FROM claim_slot")
	t.Logf("%d slots; the look at them reads %d pages, %d after %d claims under a held snapshot", len(slots), before, after, rounds)
	require.LessOrEqual(t, len(slots), 10)
	require.LessOrEqual(t, after, before+100)
}
