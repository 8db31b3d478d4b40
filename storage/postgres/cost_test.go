package postgres_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// counter counts statements of a database by pg_stat_statements.
type counter struct{ d *database }

func newCounter(t *testing.T, d *database) counter {
	t.Helper()
	have := d.lines(t, "SELECT current_setting('shared_preload_libraries')")
	if !strings.Contains(have[0], "pg_stat_statements") {
		t.Skip("SKIPPED: the server has not loaded pg_stat_statements, so statements cannot be counted")
	}
	d.exec(t, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
	return counter{d: d}
}

// of runs f and returns how many statements the store ran meanwhile, BEGIN and COMMIT
// counted, and how much they logged.
func (c counter) of(t *testing.T, f func()) (statements int, wal int) {
	t.Helper()
	c.d.exec(t, "SELECT pg_stat_statements_reset(0, (SELECT oid FROM pg_database WHERE datname = current_database()), 0)")
	f()
	got := c.d.lines(t, `SELECT coalesce(sum(s.calls), 0)::text || ' ' || coalesce(sum(s.wal_bytes), 0)::text
		FROM pg_stat_statements s JOIN pg_database b ON b.oid = s.dbid
		WHERE b.datname = current_database() AND s.query NOT LIKE '%pg_stat_statements%'`)
	_, err := fmt.Sscan(got[0], &statements, &wal)
	require.NoError(t, err)
	return statements, wal
}

// An unkeyed Complete costs one statement and a Claim two, BEGIN and COMMIT counted.
func TestStatementsPerOperation(t *testing.T) {
	d := newDatabase(t, false)
	c := newCounter(t, d)
	q := queue(t, d.store, "count")
	s := d.store
	// Each connection prepares what it runs once: not what is counted here.
	enqueue(t, s, q.ID, 1)
	settle(t, s, completions(claim(t, s, q.ID, 1, time.Minute))...)

	n, wal := c.of(t, func() {
		enqueue(t, s, q.ID, 100, func(_ int, m *storage.NewMessage) { m.Payload = make([]byte, 100) })
	})
	require.Equal(t, 1, n, "enqueue")
	t.Logf("enqueue: %d WAL bytes a message", wal/100)

	var claimed []storage.Claimed
	n, wal = c.of(t, func() { claimed = claim(t, s, q.ID, 100, time.Minute) })
	require.Len(t, claimed, 100)
	require.Equal(t, 1, n, "claim")
	t.Logf("claim: %d WAL bytes a message", wal/100)

	n, wal = c.of(t, func() {
		items := make([]storage.Renewal, 0, len(claimed))
		for _, m := range claimed {
			items = append(items, storage.Renewal{Ref: m.Message.Ref, Token: m.Token, Lease: time.Hour})
		}
		r, err := s.Renew(t.Context(), storage.RenewParams{Items: items})
		require.NoError(t, err)
		require.Equal(t, storage.ItemApplied, r.Items[99].Status)
	})
	require.Equal(t, 1, n, "renew")
	t.Logf("renew: %d WAL bytes a message", wal/100)

	n, wal = c.of(t, func() { require.Equal(t, storage.ItemApplied, settle(t, s, completions(claimed)...)[99].Status) })
	require.Equal(t, 1, n, "complete")
	t.Logf("complete: %d WAL bytes a message", wal/100)

	enqueue(t, s, q.ID, 1)
	n, _ = c.of(t, func() {
		r, err := s.Claim(t.Context(), storage.ClaimParams{QueueID: q.ID, Calls: []storage.ClaimCall{
			{Max: 1, Lease: time.Minute, WorkerID: "w", ClaimID: storage.ClaimID{1}},
		}})
		require.NoError(t, err)
		require.Len(t, r.Calls[0].Messages, 1)
		claimed = r.Calls[0].Messages
	})
	require.Equal(t, 2, n, "claim with a claim id")
	n, _ = c.of(t, func() { settle(t, s, completions(claimed)...) })
	require.Equal(t, 1, n, "one complete")

	// C11: an empty claim writes nothing.
	n, wal = c.of(t, func() { require.Empty(t, claim(t, s, q.ID, 10, time.Minute)) })
	require.Equal(t, 2, n, "the first claim that is empty after one that was not asks the longer way, too")
	require.Zero(t, wal, "an empty claim logs nothing")
	n, _ = c.of(t, func() { require.Empty(t, claim(t, s, q.ID, 10, time.Minute)) })
	require.Equal(t, 1, n, "the next one only that way")
}

// What a claim and a renewal write stays on its page: no index entry is made.
func TestClaimsAndRenewalsStayHOT(t *testing.T) {
	const rows = 2000
	d := newDatabase(t, false)
	q := queue(t, d.store, "hot")
	for range rows / 500 {
		// The size that the layout was measured with; what fits twice on a page is a matter
		// of sizes.
		enqueue(t, d.store, q.ID, 500, func(_ int, m *storage.NewMessage) { m.Payload = make([]byte, 100) })
	}
	counts := func() (updates, hot int) {
		got := d.lines(t, `SELECT n_tup_upd::text || ' ' || n_tup_hot_upd::text FROM pg_stat_user_tables
			WHERE schemaname = 'queuebox' AND relname = 'message'`)
		_, err := fmt.Sscan(got[0], &updates, &hot)
		require.NoError(t, err)
		return updates, hot
	}
	// share runs f through a store of its own: its sessions report what they did, at the
	// latest, when they end.
	share := func(f func(storage.Store)) float64 {
		s := open(t, d.config)
		updates, hot := counts()
		f(s)
		require.NoError(t, s.Close())
		var moreUpdates, moreHot int
		require.Eventually(t, func() bool {
			moreUpdates, moreHot = counts()
			return moreUpdates-updates >= rows
		}, 20*time.Second, 50*time.Millisecond)
		return float64(moreHot-hot) / float64(moreUpdates-updates)
	}
	var claimed []storage.Claimed
	claims := share(func(s storage.Store) {
		for len(claimed) < rows {
			claimed = append(claimed, claim(t, s, q.ID, 100, time.Minute)...)
		}
	})
	renewals := share(func(s storage.Store) {
		for at := 0; at < rows; at += 100 {
			items := make([]storage.Renewal, 0, 100)
			for _, c := range claimed[at : at+100] {
				items = append(items, storage.Renewal{Ref: c.Message.Ref, Token: c.Token, Lease: time.Hour})
			}
			_, err := s.Renew(t.Context(), storage.RenewParams{Items: items})
			require.NoError(t, err)
		}
	})
	t.Logf("HOT: %.1f%% of the claims, %.1f%% of the renewals", 100*claims, 100*renewals)
	require.Greater(t, claims, 0.9)
	require.Greater(t, renewals, 0.9)
}

// C11, seen from inside: no transaction id is drawn.
func TestC11AnEmptyClaimHasNoTransactionID(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "nothing")
	d.fill(t, q.ID, 10, delayedShape)
	d.fill(t, q.ID, 10, leasedShape)
	p := newPlanner(t, d)
	ctx := context.WithoutCancel(t.Context())
	for name, args := range map[string][]string{"claim": claimArgs(q.ID, 10), "claim_ready": readyArgs(claimArgs(q.ID, 10))} {
		_, err := p.conn.Prepare(ctx, name, p.statements[name])
		require.NoError(t, err)
		tx, err := p.conn.Begin(ctx)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, "EXECUTE "+name+"("+strings.Join(args, ", ")+")")
		require.NoError(t, err)
		var none bool
		require.NoError(t, tx.QueryRow(ctx, "SELECT pg_current_xact_id_if_assigned() IS NULL").Scan(&none))
		require.True(t, none, name)
		require.NoError(t, tx.Rollback(ctx))
	}
}

// A statement of many items does as much more work than one of one: with hash and merge
// joins off, a join of two sets of items would look at every pair.
func TestJoinedStatementsAreLinear(t *testing.T) {
	const n = 500
	d := newDatabase(t, false)
	q := queue(t, d.store, "linear")
	d.fill(t, q.ID, n, leasedShape)
	d.fill(t, q.ID, n, pendingShape)
	d.fill(t, q.ID, n, "1, 0, now() - interval '1 second', NULL, NULL, 0")
	d.exec(t, "ANALYZE queuebox.message")
	p := newPlanner(t, d)
	ids, positions, tokens := d.held(t, q.ID, n)
	nulls := repeat(n, "NULL")
	check := func(name string, args ...string) {
		t.Helper()
		dropped := 0.0
		p.explain(t, name, args...).walk(func(c planNode) {
			dropped += c.Loops * (c.FilterDropped + c.JoinDropped)
		})
		t.Logf("%s: %.0f rows looked at in vain", name, dropped)
		require.LessOrEqual(t, dropped, float64(10*n), name)
	}
	for _, action := range []string{"1", "2", "3", "4"} {
		check("settle", ids, positions, tokens, repeat(n, action), nulls, nulls, nulls, nulls)
	}
	check("complete", ids, positions, tokens)
	check("renew", ids, positions, tokens, repeat(n, "30000000"), repeat(n, "0"))
	check("diagnose", ids, positions, tokens)
	check("give_back", "1", positions, tokens)
	check("claim", claimArgs(q.ID, n)...)
	d.exec(t, "UPDATE queuebox.message SET ready_time = now() + interval '1 hour' WHERE place = 1")
	check("claim_ready", readyArgs(claimArgs(q.ID, n))...)
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "key-" + strconv.Itoa(i)
	}
	check("enqueue_keys", ids, "'{"+strings.Join(keys, ",")+"}'", repeat(n, "x"), repeat(n, "f"))
	check("enqueue_keys_read", ids, "'{"+strings.Join(keys, ",")+"}'")
	check("take_names", ids, "'{"+strings.Join(keys, ",")+"}'", "''")
	d.fillKeys(t, q.ID, n, n)
	_, err := p.conn.Exec(t.Context(), "SELECT set_config('queuebox.keys', (SELECT string_agg(key_id::text, ',') FROM queuebox.ordering_key WHERE name <> 'big'), false)")
	require.NoError(t, err)
	none := "'{}'"
	check("enqueue_ordered", "'{1}'", repeat(n, "x"), none, none, none, none, none, none, none, none, repeat(n, "100"), serial(n), none, none, none)
	ids, positions, tokens = d.held(t, q.ID, n)
	check("lock_keys", ids, positions, "''")
	check("complete_ordered", ids, positions, tokens)
}
