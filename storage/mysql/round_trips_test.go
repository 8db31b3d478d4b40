package mysql_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/internal/proxy"
	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/mysql"
)

// roundTrips counts the commands that a store sends, each of which is answered before the next.
type roundTrips struct {
	mu   sync.Mutex
	sent []string
}

func (r *roundTrips) watch(p *proxy.Proxy) {
	p.CutAt(proxy.BeforeRequest, func(st proxy.Statement) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.sent = append(r.sent, st.SQL)
		return false
	})
}

func (r *roundTrips) of(call func()) []string {
	r.mu.Lock()
	r.sent = nil
	r.mu.Unlock()
	call()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sent
}

// What each call costs in round trips, and that COMMIT is one by itself, so that its answer tells
// its own outcome (D8).
func TestD8RoundTripsOfEachCall(t *testing.T) {
	d := newDatabase(t, false)
	s, p := through(t, d)
	q := queue(t, s, "round trips")
	require.Empty(t, claim(t, s, q.ID, 1, time.Minute)) // the connection is made
	var trips roundTrips
	trips.watch(p)
	most := func(what string, n int, call func()) {
		t.Helper()
		sent := trips.of(call)
		t.Logf("%s: %d round trips", what, len(sent))
		require.LessOrEqual(t, len(sent), n, "%s: %s", what, strings.Join(sent, "\n--\n"))
		for _, text := range sent {
			if strings.Contains(text, "COMMIT") {
				require.Equal(t, "COMMIT", text)
			}
		}
	}
	var claimed []storage.Claimed
	take := func(at, n int, id storage.ClaimID) func() {
		return func() {
			r, err := s.Claim(t.Context(), storage.ClaimParams{
				QueueID: q.ID, Calls: []storage.ClaimCall{{Max: at, Lease: time.Minute, WorkerID: "w", ClaimID: id}},
			})
			require.NoError(t, err)
			claimed = r.Calls[0].Messages
			require.Len(t, claimed, n)
		}
	}
	apply := func(action storage.Action, status storage.ItemStatus) func() {
		return func() {
			items := completions(claimed)
			for i := range items {
				items[i].Action = action
			}
			for _, it := range settle(t, s, items...) {
				require.Equal(t, status, it.Status)
			}
		}
	}
	held := func() []storage.HeldClaim {
		var out []storage.HeldClaim
		for _, c := range claimed {
			out = append(out, storage.HeldClaim{Ref: c.Message.Ref, Token: c.Token})
		}
		return out
	}
	most("an empty claim", 1, take(1, 0, storage.ClaimID{}))
	most("enqueue", 2, func() { enqueue(t, s, q.ID, 100) })
	most("claim", 4, take(10, 10, storage.ClaimID{}))
	most("renew", 3, func() {
		r, err := s.Renew(t.Context(), storage.RenewParams{Items: []storage.Renewal{{Ref: claimed[0].Message.Ref, Token: claimed[0].Token}}})
		require.NoError(t, err)
		require.Equal(t, storage.ItemApplied, r.Items[0].Status)
	})
	most("look", 1, func() {
		r, err := s.Look(t.Context(), held())
		require.NoError(t, err)
		require.False(t, r.Now.IsZero())
	})
	most("complete", 3, apply(storage.ActionComplete, storage.ItemApplied))
	most("complete again", 5, apply(storage.ActionComplete, storage.ItemAlreadySettled))
	most("claim with a claim id", 5, take(10, 10, storage.ClaimID{1}))
	most("release", 3, apply(storage.ActionRelease, storage.ItemApplied))
	most("claim", 4, take(10, 10, storage.ClaimID{}))
	most("dead letter", 3, apply(storage.ActionDeadLetter, storage.ItemApplied))
	most("claim", 4, take(10, 10, storage.ClaimID{}))
	most("retry", 4, apply(storage.ActionRetry, storage.ItemApplied))
	most("claim with a claim id", 5, take(10, 10, storage.ClaimID{2}))
	most("give back", 3, func() {
		r, err := s.GiveBack(t.Context(), storage.GiveBackParams{QueueID: q.ID, ClaimID: storage.ClaimID{2}, Claims: held()})
		require.NoError(t, err)
		require.Equal(t, 10, r.GivenBack)
		require.False(t, r.Now.IsZero())
	})
	enqueue(t, s, q.ID, 1, func(_ int, m *storage.NewMessage) { m.Delay = time.Microsecond }) // over before anybody can ask
	most("claim of what was delayed", 5, take(100, 71, storage.ClaimID{}))
	p.Disarm()
}

// Statements for which one text has no room go one by one: a driver that cannot write the
// arguments into the text prepares it, and of several statements the database prepares none.
func TestC13LargeListsGoOneByOne(t *testing.T) {
	d := newDatabase(t, false)
	s, p := through(t, d)
	q := queue(t, s, "large")
	enqueue(t, s, q.ID, 3)
	claimed := claim(t, s, q.ID, 3, time.Hour)
	items := completions(claimed)
	for i := range items {
		items[i].Result = make([]byte, 3<<20) // twice so much in the list
	}
	var trips roundTrips
	trips.watch(p)
	sent := trips.of(func() {
		for _, it := range settle(t, s, items...) {
			require.Equal(t, storage.ItemApplied, it.Status)
		}
	})
	p.Disarm()
	require.Len(t, sent, 6, "a copy for each, the removal, and what is around them")
	require.Equal(t, []string{"3"}, d.lines(t, "SELECT COUNT(*) FROM completed WHERE LENGTH(result) = ?", 3<<20))
}

// The same of the start of a transaction, which goes with its first statement.
func TestD1ALargeFirstStatementComesAfterTheStart(t *testing.T) {
	d := newDatabase(t, false)
	db, err := mysql.Pool(d.url)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	d.exec(t, "CREATE TABLE sizes (n INT NOT NULL) ENGINE=InnoDB")
	for _, size := range []int{1, 9 << 20} {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		tx, err := mysql.Begin(t.Context(), conn)
		require.NoError(t, err)
		result, err := tx.ExecContext(t.Context(), "INSERT INTO sizes (n) VALUES (LENGTH(?))", strings.Repeat("'", size)) // escaped, it is twice as long
		require.NoError(t, err)
		n, err := result.RowsAffected()
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		require.NoError(t, tx.Rollback(t.Context()))
		require.NoError(t, conn.Close())
		require.Equal(t, []string{"0"}, d.lines(t, "SELECT COUNT(*) FROM sizes"), "a statement of %d bytes is part of the transaction", size)
	}
}
