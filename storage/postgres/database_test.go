package postgres_test

import (
	"crypto/rand"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/internal/proxy"
	"github.com/queuebox/queuebox/internal/testdb"
	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/postgres"
)

// grants is what a role needs to run a server, and nothing more; the ADR and the
// operator's pages show the same.
const grants = `
GRANT USAGE ON SCHEMA queuebox TO %;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA queuebox TO %;
REVOKE INSERT, UPDATE, DELETE ON queuebox.goose_db_version FROM %;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA queuebox TO %;`

// role makes a role with the given settings and rights, and returns the URL of the
// database for it.
func (d *database) role(t *testing.T, sql string) string {
	t.Helper()
	var raw [6]byte
	_, _ = rand.Read(raw[:])
	name := "queuebox_role_" + hex.EncodeToString(raw[:])
	const password = "not-a-secret"
	d.exec(t, "CREATE ROLE "+name+" LOGIN PASSWORD '"+password+"'")
	t.Cleanup(func() { d.exec(t, "DROP OWNED BY "+name+"; DROP ROLE "+name) })
	d.exec(t, strings.ReplaceAll(sql, "%", name))
	u, err := url.Parse(d.url)
	require.NoError(t, err)
	u.User = url.UserPassword(name, password)
	return u.String()
}

// story sends messages around once, in every way.
func story(t *testing.T, s storage.Store, name string) {
	t.Helper()
	require.Equal(t, 1, storyBeside(t, s, name))
}

// storyBeside is a story with others beside it, whose sweeps may have removed the key
// of this one: it returns how many keys its own sweep removed.
func storyBeside(t *testing.T, s storage.Store, name string) int {
	t.Helper()
	q := queue(t, s, name)
	_, err := s.SetPaused(t.Context(), name, false)
	require.NoError(t, err)
	items := enqueue(t, s, q.ID, 4)
	enqueue(t, s, q.ID, 1, func(_ int, m *storage.NewMessage) {
		m.IdempotencyKey, m.Attributes = "key", map[string]string{"a": "ü"}
	})
	again := enqueue(t, s, q.ID, 1, func(_ int, m *storage.NewMessage) {
		m.IdempotencyKey = "key"
	})
	require.Equal(t, storage.EnqueueDuplicate, again[0].Status)
	call := storage.ClaimParams{QueueID: q.ID, Calls: []storage.ClaimCall{{
		Max: 10, Lease: time.Minute, WorkerID: "w", ClaimID: storage.ClaimID{7},
	}}}
	r, err := s.Claim(t.Context(), call)
	require.NoError(t, err)
	claimed := r.Calls[0].Messages
	require.Len(t, claimed, 5)
	require.Equal(t, items[0].Ref, claimed[0].Message.Ref)
	r, err = s.Claim(t.Context(), call)
	require.NoError(t, err)
	require.Equal(t, storage.ClaimReplayed, r.Calls[0].Status)
	require.Len(t, r.Calls[0].Messages, 5)
	renewed, err := s.Renew(t.Context(), storage.RenewParams{Items: []storage.Renewal{{Ref: claimed[4].Message.Ref, Token: claimed[4].Token}}})
	require.NoError(t, err)
	require.Equal(t, storage.ItemApplied, renewed.Items[0].Status)
	todo := completions(claimed)
	todo[1].Action, todo[1].Error = storage.ActionRetry, "later"
	todo[2].Action, todo[2].ReasonCode = storage.ActionDeadLetter, "bad"
	todo[3].Action = storage.ActionRelease
	for i, item := range settle(t, s, todo...) {
		require.Equal(t, storage.ItemApplied, item.Status, "item %d", i)
	}
	for i, item := range settle(t, s, todo...) {
		require.Equal(t, storage.ItemAlreadySettled, item.Status, "item %d", i)
	}
	stats, err := s.QueueStats(t.Context(), q.ID)
	require.NoError(t, err)
	require.EqualValues(t, 2, stats.Completed)
	require.EqualValues(t, 1, stats.Dead)
	page, err := s.ListMessages(t.Context(), storage.ListMessagesParams{QueueID: q.ID, Limit: 100})
	require.NoError(t, err)
	require.Len(t, page.Messages, 5)
	// The messages of a key one after the other, then the row of the key goes.
	ordered := enqueue(t, s, q.ID, 3, under("order"))
	for _, it := range ordered[:2] {
		next := completions(claim(t, s, q.ID, 10, time.Minute))
		next = slices.DeleteFunc(next, func(st storage.Settlement) bool { return st.Ref.Position&1 == 0 })
		require.Len(t, next, 1)
		require.Equal(t, it.Ref, next[0].Ref)
		require.Equal(t, storage.ItemApplied, settle(t, s, next...)[0].Status)
	}
	gone, err := s.Cancel(t.Context(), storage.CancelParams{QueueID: q.ID, Ref: ordered[2].Ref})
	require.NoError(t, err)
	require.Equal(t, storage.StateCancelled, gone.State)
	swept, err := s.SweepKeys(t.Context(), storage.SweepKeysParams{Limit: 100})
	require.NoError(t, err)
	_, err = s.Sweep(t.Context(), storage.SweepParams{Limit: 100})
	require.NoError(t, err)
	require.NoError(t, s.Maintain(t.Context()))
	require.NoError(t, s.Ready(t.Context()))
	return swept.Removed
}

// D1, C5: what a role has as its defaults does not matter.
func TestD1RoleDefaultsDoNotMatter(t *testing.T) {
	d := newDatabase(t, false)
	u := d.role(t, grants+`
		ALTER ROLE % SET default_transaction_isolation = 'serializable';
		ALTER ROLE % SET TimeZone = 'Asia/Kathmandu';
		ALTER ROLE % SET DateStyle = 'German';
		ALTER ROLE % SET search_path = 'nowhere';
		ALTER ROLE % SET enable_nestloop = 'on';
		ALTER ROLE % SET default_transaction_deferrable = 'on'`)
	s := open(t, postgres.Config{URL: u})
	story(t, s, "defaults")
	before := time.Now().Add(-time.Minute)
	now, err := s.Now(t.Context())
	require.NoError(t, err)
	require.WithinRange(t, now, before, before.Add(2*time.Minute))
	// At SERIALIZABLE these would fail one another by the dozen.
	q := queue(t, s, "level")
	enqueue(t, s, q.ID, 200)
	done := make(chan int)
	for range 4 {
		go func() {
			n := 0
			for {
				r, err := s.Claim(t.Context(), storage.ClaimParams{QueueID: q.ID, Calls: []storage.ClaimCall{{Max: 7, Lease: time.Minute}}})
				if err != nil || len(r.Calls[0].Messages) == 0 {
					done <- n
					return
				}
				n += len(r.Calls[0].Messages)
			}
		}()
	}
	sum := 0
	for range 4 {
		sum += <-done
	}
	require.LessOrEqual(t, sum, 200)
	sum += len(claim(t, s, q.ID, 200, time.Minute))
	require.Equal(t, 200, sum)
}

// A role that may not make tables runs a server: rows for which no partition was made
// ahead lie in the default partition.
func TestLeastPrivilegeRole(t *testing.T) {
	d := newDatabase(t, false)
	for _, table := range []string{"completed", "settlement"} {
		for _, p := range d.lines(t, `SELECT inhrelid::regclass::text FROM pg_inherits
			WHERE inhparent = ('queuebox.' || $1)::regclass AND inhrelid::regclass::text NOT LIKE '%default'`, table) {
			d.exec(t, "DROP TABLE "+p)
		}
	}
	s := open(t, postgres.Config{URL: d.role(t, grants)})
	story(t, s, "poor")
	require.Equal(t, []string{"4"}, d.lines(t, "SELECT count(*)::text FROM queuebox.completed_default"))
	// Once somebody may, partitions are made ahead, but not for an hour that has rows in the
	// default partition already.
	require.NoError(t, d.store.Maintain(t.Context()))
	made := d.lines(t, `SELECT count(*)::text FROM pg_inherits WHERE inhparent = 'queuebox.completed'::regclass`)
	require.NotEqual(t, []string{"1"}, made)
	story(t, s, "still works")
}

func TestPartitionsAreMadeAhead(t *testing.T) {
	d := newDatabase(t, false)
	count := func() []string {
		return d.lines(t, `SELECT count(*)::text FROM pg_inherits WHERE inhparent = 'queuebox.completed'::regclass`)
	}
	made := count()
	require.NoError(t, d.store.Maintain(t.Context()))
	require.Equal(t, made, count(), "nothing to do")
	story(t, d.store, "partitions")
	require.Equal(t, []string{"0"}, d.lines(t, "SELECT count(*)::text FROM queuebox.completed_default"))
	require.Equal(t, []string{"0"}, d.lines(t, "SELECT count(*)::text FROM queuebox.settlement_default"))
}

// D7: checked at Open and while running.
func TestD7SchemaVersion(t *testing.T) {
	u := testdb.Postgres(t)
	_, err := postgres.Open(t.Context(), postgres.Config{URL: u})
	require.ErrorIs(t, err, storage.ErrSchema, "no schema")

	from, to, err := postgres.Migrate(t.Context(), postgres.Config{URL: u})
	require.NoError(t, err)
	require.EqualValues(t, 0, from)
	require.EqualValues(t, 1, to)
	from, to, err = postgres.Migrate(t.Context(), postgres.Config{URL: u})
	require.NoError(t, err)
	require.EqualValues(t, 1, from)
	require.EqualValues(t, 1, to)

	d := &database{url: u}
	d.beside = d.connect(t)
	s := open(t, postgres.Config{URL: u})
	require.NoError(t, s.Ready(t.Context()))
	d.exec(t, "INSERT INTO queuebox.goose_db_version (version_id, is_applied) VALUES (2, true)")
	require.ErrorIs(t, s.Ready(t.Context()), storage.ErrSchema, "a newer schema, while running")
	_, err = postgres.Open(t.Context(), postgres.Config{URL: u})
	require.ErrorIs(t, err, storage.ErrSchema, "a newer schema, at Open")
	d.exec(t, "DELETE FROM queuebox.goose_db_version WHERE version_id > 0")
	require.ErrorIs(t, s.Ready(t.Context()), storage.ErrSchema, "an older schema")
	d.exec(t, "DROP SCHEMA queuebox CASCADE")
	require.ErrorIs(t, s.Ready(t.Context()), storage.ErrSchema, "no schema any more")
	_, err = s.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: 1}}})
	require.ErrorIs(t, err, storage.ErrSchema)
}

// Two migrations at once: one migrates, the other finds it done.
func TestMigrateBesideMigrate(t *testing.T) {
	u := testdb.Postgres(t)
	errs := make(chan error)
	var migrated atomic.Int64
	for range 3 {
		go func() {
			from, to, err := postgres.Migrate(t.Context(), postgres.Config{URL: u})
			migrated.Add(to - from)
			errs <- err
		}()
	}
	for range 3 {
		require.NoError(t, <-errs)
	}
	require.EqualValues(t, 1, migrated.Load())
}

// D9: a database that may lose what it acknowledged stops the start, and is named.
func TestD9UnsafeDurability(t *testing.T) {
	d := newDatabase(t, false)
	u := d.role(t, grants+"ALTER ROLE % SET synchronous_commit = 'off'")
	_, err := postgres.Open(t.Context(), postgres.Config{URL: u})
	require.ErrorIs(t, err, storage.ErrUnsafeDurability)
	require.ErrorContains(t, err, "synchronous_commit")
	require.NotContains(t, err.Error(), "not-a-secret")
	s := open(t, postgres.Config{URL: u, AllowUnsafeDurability: true})
	require.Contains(t, s.Capabilities().Durability, "UNSAFE")
	require.Contains(t, d.store.Capabilities().Durability, "durable")
}

func TestErrorsHoldNoSecrets(t *testing.T) {
	for _, u := range []string{
		"postgres://queue:hunter2@127.0.0.1:1/none", // nobody listens on port 1
		"postgres://queue:hunter2@127.0.0.1:port/none",
		"mysql://queue:hunter2@127.0.0.1/none",
		"postgres://queue:hunter2@127.0.0.1/none?pooler=maybe",
	} {
		_, err := postgres.Open(t.Context(), postgres.Config{URL: u})
		require.Error(t, err, u)
		require.NotContains(t, err.Error(), "hunter2")
	}
	_, err := postgres.Open(t.Context(), postgres.Config{URL: "postgres://queue:hunter2@127.0.0.1:1/none"})
	require.ErrorIs(t, err, storage.ErrUnavailable)
}

// through opens a store whose connections go through a proxy.
func through(t *testing.T, d *database) (*postgres.Store, *proxy.Proxy) {
	t.Helper()
	u, err := url.Parse(d.url)
	require.NoError(t, err)
	p := proxy.New(t, u.Host)
	by, err := p.URL(d.url)
	require.NoError(t, err)
	return open(t, postgres.Config{URL: by}), p
}

// D8: an answer that never came is an unknown outcome, and the repeat tells.
func TestD8LostAnswerIsUnknown(t *testing.T) {
	d := newDatabase(t, false)
	s, p := through(t, d)
	q := queue(t, s, "unknown")
	enqueue(t, s, q.ID, 1)
	claimed := claim(t, s, q.ID, 1, time.Hour)
	_ = settle(t, s, storage.Settlement{Ref: claimed[0].Message.Ref, Action: storage.ActionComplete}) // prepares the statement on the connection
	cut := p.CutAt(proxy.BeforeAnswer, func(st proxy.Statement) bool { return strings.Contains(st.SQL, "removed AS") })
	_, err := s.Settle(t.Context(), storage.SettleParams{Items: completions(claimed)})
	require.ErrorIs(t, err, storage.ErrOutcomeUnknown)
	await(t, cut.Done(), "the cut")
	require.Equal(t, storage.ItemAlreadySettled, settle(t, s, completions(claimed)...)[0].Status)
}

// D3, D8: a database that cannot be reached has certainly changed nothing; a read that
// lost its connection is read again.
func TestD3Unreachable(t *testing.T) {
	d := newDatabase(t, false)
	s, p := through(t, d)
	q := queue(t, s, "away")
	p.CutAt(proxy.BeforeAnswer, func(st proxy.Statement) bool { return strings.Contains(st.SQL, "FROM queuebox.queue q") })
	_, err := s.GetQueueByID(t.Context(), q.ID)
	require.NoError(t, err, "the read ran again on another connection")
	p.Disarm()
	p.Refuse(true)
	p.Cut()
	require.Eventually(t, func() bool {
		_, err := s.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: q.ID}}})
		return err != nil && !isUnknown(err)
	}, 20*time.Second, 10*time.Millisecond, "once the broken connections are found, nothing is unknown any more")
	_, err = s.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: q.ID}}})
	require.ErrorIs(t, err, storage.ErrUnavailable)
	p.Refuse(false)
	require.Eventually(t, func() bool { return s.Ready(t.Context()) == nil }, 20*time.Second, 20*time.Millisecond)
	story(t, s, "back")
}
