package postgres_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/postgres"
)

// session is a session of the test with the settings of the store, in which it runs the
// statements of the store in transactions that it ends when it likes.
type session struct {
	*pgx.Conn

	statements map[string]string
}

func (d *database) session(t testing.TB) *session {
	t.Helper()
	s := &session{Conn: d.connect(t)}
	var err error
	s.statements, err = postgres.Statements()
	require.NoError(t, err)
	_, err = s.Exec(t.Context(), postgres.SessionSettings)
	require.NoError(t, err)
	return s
}

// run runs a statement by name.
func (s *session) run(t testing.TB, name string, args ...any) {
	t.Helper()
	_, err := s.Exec(context.WithoutCancel(t.Context()), s.statements[name], args...)
	require.NoError(t, err, name)
}

func (s *session) end(t testing.TB, how string) {
	t.Helper()
	_, err := s.Exec(context.WithoutCancel(t.Context()), how)
	require.NoError(t, err)
}

// claimByHand claims one message in the transaction of the session.
func (s *session) claimByHand(t testing.TB, queueID int32) {
	t.Helper()
	call := "EXECUTE claim(" + strings.Join(claimArgs(queueID, 1), ", ") + ")"
	_, err := s.Prepare(t.Context(), "claim", s.statements["claim"])
	require.NoError(t, err)
	_, err = s.Exec(t.Context(), call, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
}

// waiting returns when a session of the database waits for a lock.
func (d *database) waiting(t testing.TB, what string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return d.lines(t, `SELECT count(*)::text FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`)[0] != "0"
	}, 20*time.Second, 2*time.Millisecond, what)
}

// background runs f beside the test.
func background[T any](f func() (T, error)) <-chan result[T] {
	done := make(chan result[T], 1)
	go func() {
		v, err := f()
		done <- result[T]{v, err}
	}()
	return done
}

type result[T any] struct {
	value T
	err   error
}

// reappear makes a message of a key appear with an earlier place than its head, as a redrive
// does: under the lock of the key, parked, and then the key is put right.
func (d *database) reappear(t testing.TB, queueID int32, key string, position int64) storage.Ref {
	t.Helper()
	s := d.session(t)
	s.end(t, "BEGIN")
	s.run(t, "lock_names", []int32{queueID}, []string{key})
	_, err := s.Exec(t.Context(), `INSERT INTO queuebox.message (queue_id, position, key_id, ready_time, create_time, priority,
		max_attempts, payload_bytes, wire_bytes, place, content_type, payload)
		SELECT queue_id, $1, key_id, now(), now(), 0, 20, 1, 100, 2, '', 'x' FROM queuebox.ordering_key WHERE name = $2`, position, key)
	require.NoError(t, err)
	s.run(t, "promote")
	s.end(t, "COMMIT")
	return storage.Ref{QueueID: queueID, Position: position}
}

// O2: a message with an earlier place appears while a claim of the key is uncommitted.
func TestO2AnEarlierMessageBesideAnOpenClaim(t *testing.T) {
	for _, end := range []string{"COMMIT", "ROLLBACK"} {
		t.Run(end, func(t *testing.T) {
			d := newDatabase(t, false)
			q := queue(t, d.store, "open")
			refs := refsOf(enqueue(t, d.store, q.ID, 2, under("a")))
			s := d.session(t)
			s.end(t, "BEGIN")
			s.claimByHand(t, q.ID)
			early := d.reappear(t, q.ID, "a", 1)
			require.Empty(t, claim(t, d.store, q.ID, 10, time.Minute), "the open claim holds the key")
			_, err := d.store.SweepKeys(t.Context(), storage.SweepKeysParams{Limit: 100})
			require.NoError(t, err)
			require.Empty(t, claim(t, d.store, q.ID, 10, time.Minute), "and goes on holding it")
			s.end(t, end)
			if end == "COMMIT" {
				require.Empty(t, claim(t, d.store, q.ID, 10, time.Minute), "one live lease")
				require.Equal(t, "1", d.row(t, refs[0])["state"])
				_, err := d.store.SweepKeys(t.Context(), storage.SweepKeysParams{Limit: 100})
				require.NoError(t, err)
				require.Empty(t, claim(t, d.store, q.ID, 10, time.Minute), "one live lease")
				return
			}
			r, err := d.store.SweepKeys(t.Context(), storage.SweepKeysParams{Limit: 100})
			require.NoError(t, err)
			require.Equal(t, []int32{q.ID}, r.Ready)
			held := claim(t, d.store, q.ID, 10, time.Minute)
			require.Equal(t, []storage.Ref{early}, claimedRefs(held))
			settle(t, d.store, completions(held)...)
			require.Equal(t, refs[:1], claimedRefs(claim(t, d.store, q.ID, 10, time.Minute)))
		})
	}
}

// O2: a claim that has looked, but has no lock yet, does not take a head that has stepped back
// since. Its clock holds it between the two.
func TestO2AClaimLooksAgainUnderTheLock(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "again")
	// As the clock of the database, but with a gate in front of it.
	d.exec(t, `CREATE SCHEMA gate;
		CREATE FUNCTION gate.statement_timestamp() RETURNS timestamptz LANGUAGE plpgsql STABLE AS
		$$ BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN pg_catalog.statement_timestamp(); END $$;`)
	s := d.session(t)
	s.end(t, "SET search_path = gate, pg_catalog")
	s.claimByHand(t, q.ID) // plans it
	refs := refsOf(enqueue(t, d.store, q.ID, 2, under("a")))
	gate := d.connect(t)
	_, err := gate.Exec(t.Context(), "SELECT pg_advisory_lock(4711)")
	require.NoError(t, err)
	done := background(func() (int64, error) {
		tag, err := s.Exec(context.WithoutCancel(t.Context()), "EXECUTE claim("+strings.Join(claimArgs(q.ID, 10), ", ")+")", pgx.QueryExecModeSimpleProtocol)
		return tag.RowsAffected(), err
	})
	d.waiting(t, "the claim stands at the gate")
	early := d.reappear(t, q.ID, "a", 1)
	require.Equal(t, "2", d.row(t, refs[0])["place"], "the head has stepped back")
	require.Equal(t, "0", d.row(t, early)["place"])
	_, err = gate.Exec(t.Context(), "SELECT pg_advisory_unlock(4711)")
	require.NoError(t, err)
	r := await(t, done, "the claim")
	require.NoError(t, r.err)
	require.Equal(t, []string{"0"}, d.lines(t, "SELECT count(*)::text FROM queuebox.message WHERE state = 1"))
	require.Equal(t, []storage.Ref{early}, claimedRefs(claim(t, d.store, q.ID, 10, time.Minute)))
}

// O9: an enqueue that holds the key while its head is settled. The settlement waits for it, and
// sees what it left.
func TestO9ASettlementBesideAnOpenEnqueue(t *testing.T) {
	for _, end := range []string{"COMMIT", "ROLLBACK"} {
		t.Run(end, func(t *testing.T) {
			d := newDatabase(t, false)
			q := queue(t, d.store, "open")
			enqueue(t, d.store, q.ID, 1, under("a"))
			held := claim(t, d.store, q.ID, 10, time.Minute)
			s := d.session(t)
			s.end(t, "BEGIN")
			s.enqueueByHand(t, q.ID, "a")
			done := background(func() (storage.SettleResult, error) {
				return d.store.Settle(context.WithoutCancel(t.Context()), storage.SettleParams{Items: completions(held)})
			})
			d.waiting(t, "the settlement waits for the key")
			s.end(t, end)
			r := await(t, done, "the settlement")
			require.NoError(t, r.err)
			require.Equal(t, storage.ItemApplied, r.value.Items[0].Status)
			next := claim(t, d.store, q.ID, 10, time.Minute)
			if end == "COMMIT" {
				require.Equal(t, []int32{q.ID}, r.value.Ready)
				require.Len(t, next, 1)
				return
			}
			require.Empty(t, r.value.Ready)
			require.Empty(t, next)
		})
	}
}

// O9: the other way about. The message that is enqueued while the settlement of the head is
// open becomes the head.
func TestO9AnEnqueueBesideAnOpenSettlement(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "open")
	enqueue(t, d.store, q.ID, 1, under("a"))
	held := claim(t, d.store, q.ID, 10, time.Minute)
	ref := held[0].Message.Ref
	s := d.session(t)
	s.end(t, "BEGIN")
	s.run(t, "lock_keys", []int32{ref.QueueID}, []int64{ref.Position}, "")
	_, err := s.Exec(t.Context(), "DELETE FROM queuebox.message WHERE position = $1", ref.Position)
	require.NoError(t, err)
	s.run(t, "promote")
	done := background(func() (storage.EnqueueResult, error) {
		return d.store.Enqueue(context.WithoutCancel(t.Context()), storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: q.ID, OrderingKey: "a"}}})
	})
	d.waiting(t, "the enqueue waits for the key")
	s.end(t, "COMMIT")
	r := await(t, done, "the enqueue")
	require.NoError(t, r.err)
	require.Equal(t, []storage.Ref{r.value.Items[0].Ref}, claimedRefs(claim(t, d.store, q.ID, 10, time.Minute)))
}

func (s *session) enqueueByHand(t testing.TB, queueID int32, key string) {
	t.Helper()
	s.run(t, "take_names", []int32{queueID}, []string{key}, "")
	s.run(t, "enqueue_ordered", []int32{queueID}, [][]byte{{}}, []int32{}, []string{}, []*string{}, []int32{}, []*int64{},
		[]*time.Time{}, []int32{}, []*time.Time{}, []int32{1}, []int32{1}, []bool{}, []*int64{}, []string{})
}

// The sweep may remove an idle key between the statement of an enqueue that finds it and the
// one that locks it. Then all is run again, with a new row.
func TestAKeyThatVanishesIsMadeAgain(t *testing.T) {
	for _, idempotency := range []string{"", "once"} {
		t.Run("idempotency key "+idempotency, func(t *testing.T) {
			d := newDatabase(t, false)
			q := queue(t, d.store, "vanish")
			enqueue(t, d.store, q.ID, 1, under("a"))
			settle(t, d.store, completions(claim(t, d.store, q.ID, 1, time.Minute))...)
			old := d.lines(t, "SELECT key_id::text FROM queuebox.ordering_key")
			s := d.session(t)
			s.end(t, "BEGIN")
			s.run(t, "lock_names", []int32{q.ID}, []string{"a"})
			done := background(func() (storage.EnqueueResult, error) {
				return d.store.Enqueue(context.WithoutCancel(t.Context()), storage.EnqueueParams{Messages: []storage.NewMessage{
					{QueueID: q.ID, OrderingKey: "a", IdempotencyKey: idempotency}, {QueueID: q.ID}, {QueueID: q.ID, OrderingKey: "a"},
				}})
			})
			d.waiting(t, "the enqueue waits for the key")
			s.run(t, "remove_keys")
			s.end(t, "COMMIT")
			r := await(t, done, "the enqueue")
			require.NoError(t, r.err)
			require.Len(t, r.value.Items, 3)
			now := d.lines(t, "SELECT key_id::text FROM queuebox.ordering_key")
			require.Len(t, now, 1)
			require.NotEqual(t, old, now, "else this test proves nothing")
			require.Equal(t, []storage.Ref{r.value.Items[0].Ref, r.value.Items[1].Ref}, claimedRefs(claim(t, d.store, q.ID, 10, time.Minute)))
		})
	}
	// Where it keeps vanishing, nothing changed and the caller may try again.
	d := newDatabase(t, false)
	q := queue(t, d.store, "vanish")
	d.exec(t, `CREATE FUNCTION queuebox.never() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
		CREATE TRIGGER never BEFORE INSERT ON queuebox.ordering_key FOR EACH ROW EXECUTE FUNCTION queuebox.never()`)
	_, err := d.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: q.ID, OrderingKey: "a"}}})
	require.ErrorIs(t, err, storage.ErrUnavailable)
	require.NotErrorIs(t, err, storage.ErrQueueNotFound)
}

// Nobody who waits for the row of a message has the lock of its key meanwhile.
func TestAWaitForARowDoesNotHoldItsKey(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "wait")
	enqueue(t, d.store, q.ID, 2, under("a"))
	held := claim(t, d.store, q.ID, 1, time.Minute)
	conn := d.connect(t)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT 1 FROM queuebox.message WHERE position = $1 FOR UPDATE", held[0].Message.Ref.Position)
	require.NoError(t, err)
	settled := background(func() (storage.SettleResult, error) {
		return d.store.Settle(context.WithoutCancel(t.Context()), storage.SettleParams{Items: completions(held)})
	})
	d.waiting(t, "the settlement waits for the row")
	enqueue(t, d.store, q.ID, 1, under("a"))
	require.Empty(t, settled, "else this test proves nothing")
	require.NoError(t, tx.Rollback(t.Context()))
	r := await(t, settled, "the settlement")
	require.NoError(t, r.err)
	require.Equal(t, storage.ItemApplied, r.value.Items[0].Status)
	require.Equal(t, []int32{q.ID}, r.value.Ready)
}

// Who waited for a row and lost it to the next one who waited goes on waiting: a settlement
// that is told nothing of its claim would make its worker do the work again.
func TestAWaitForARowGoesOn(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "wait")
	are := func(n int) bool {
		return d.lines(t, `SELECT count(*)::text FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`)[0] == strconv.Itoa(n)
	}
	waiters := func(n int) {
		require.Eventually(t, func() bool { return are(n) }, 20*time.Second, 2*time.Millisecond)
	}
	ctx := context.WithoutCancel(t.Context())
	for _, followUp := range []bool{false, true} {
		enqueue(t, d.store, q.ID, 1, under("a"))
		items := completions(claim(t, d.store, q.ID, 1, time.Minute))
		if followUp {
			items[0].FollowUps = []storage.NewMessage{{QueueID: q.ID, WireBytes: 100, Delay: time.Hour}}
		}
		lock := "SELECT 1 FROM queuebox.message WHERE position = " + strconv.FormatInt(items[0].Ref.Position, 10) + " FOR UPDATE"
		first, second := d.session(t), d.session(t)
		first.end(t, "BEGIN")
		first.end(t, lock)
		settled := background(func() (storage.SettleResult, error) {
			return d.store.Settle(ctx, storage.SettleParams{Items: items})
		})
		waiters(1)
		second.end(t, "BEGIN")
		has := background(func() (int, error) {
			_, err := second.Exec(ctx, lock)
			return 0, err
		})
		waiters(2)
		first.end(t, "ROLLBACK")
		require.NoError(t, await(t, has, "the row").err)
		require.Eventually(t, func() bool { return len(settled) > 0 || are(1) }, 20*time.Second, 2*time.Millisecond)
		second.end(t, "ROLLBACK")
		r := await(t, settled, "the settlement")
		require.NoError(t, r.err)
		require.Equal(t, storage.ItemApplied, r.value.Items[0].Status)
	}
}

// D12: keys are locked in one order, whatever the order of a call is.
func TestD12NoDeadlockInAnyOrder(t *testing.T) {
	const keys, rounds = 40, 40
	d := newDatabase(t, false)
	q := queue(t, d.store, "deadlock")
	names := make([]string, keys)
	back := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprintf("key-%d", i)
		back[keys-1-i] = names[i]
	}
	sessions := func() string {
		return d.lines(t, "SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'queuebox'")[0]
	}
	before := sessions()
	s := open(t, d.config)
	done := make(chan error)
	ctx := context.WithoutCancel(t.Context())
	for w := range 6 {
		go func() {
			done <- func() error {
				order := names
				if w%2 == 1 {
					order = back
				}
				for range rounds {
					p := storage.EnqueueParams{}
					for _, k := range order {
						p.Messages = append(p.Messages, storage.NewMessage{QueueID: q.ID, OrderingKey: k, WireBytes: 100})
					}
					if _, err := s.Enqueue(ctx, p); err != nil {
						return err
					}
					r, err := s.Claim(ctx, storage.ClaimParams{QueueID: q.ID, Calls: []storage.ClaimCall{{Max: keys / 2, Lease: time.Minute}}})
					if err != nil {
						return err
					}
					items := completions(r.Calls[0].Messages)
					if w%2 == 1 {
						for i, j := 0, len(items)-1; i < j; i, j = i+1, j-1 {
							items[i], items[j] = items[j], items[i]
						}
					}
					if _, err := s.Settle(ctx, storage.SettleParams{Items: items}); err != nil {
						return err
					}
					if _, err := s.SweepKeys(ctx, storage.SweepKeysParams{Limit: 1000}); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range 6 {
		require.NoError(t, <-done)
	}
	// The counts of a session are there for sure when it has ended.
	require.NoError(t, s.Close())
	require.Eventually(t, func() bool { return sessions() == before }, 20*time.Second, 5*time.Millisecond)
	require.Equal(t, []string{"0"}, d.lines(t, "SELECT deadlocks::text FROM pg_stat_database WHERE datname = current_database()"))
	require.Empty(t, d.lines(t, "SELECT key_id::text FROM queuebox.message WHERE key_id IS NOT NULL GROUP BY key_id HAVING min(place) = 2"), "keys without a head")
}

// O1, O5: the row of a key that nobody needs is removed, and made anew by another enqueue,
// while an enqueue that has seen the old row waits for an idempotency key. Its position was
// drawn without the lock of the key that is there now, so it must be drawn again.
func TestO5AKeyThatCameBackMeanwhile(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "came back")
	d.lines(t, `INSERT INTO queuebox.ordering_key (queue_id, name) VALUES ($1, 'a') RETURNING name`, q.ID)
	release := d.holdKey(t, q.ID, "held")
	sweep := d.session(t)
	sweep.end(t, "BEGIN")
	sweep.end(t, "DELETE FROM queuebox.ordering_key")
	first := background(func() (storage.EnqueueResult, error) {
		m := storage.NewMessage{QueueID: q.ID, Payload: []byte("x"), WireBytes: 100, OrderingKey: "a", IdempotencyKey: "held"}
		return d.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{m}})
	})
	d.waiting(t, "the first enqueue waits for the key that is being removed")
	sweep.end(t, "COMMIT")
	require.Eventually(t, func() bool {
		return d.lines(t, `SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database()
			AND wait_event_type = 'Lock' AND query LIKE '%idempotency_key%'`)[0] == "1"
	}, 20*time.Second, 2*time.Millisecond, "the first enqueue waits for the idempotency key")
	second := enqueue(t, d.store, q.ID, 1, under("a"))[0]
	release(false)
	got := <-first
	require.NoError(t, got.err)
	require.Equal(t, storage.EnqueueInserted, got.value.Items[0].Status)
	require.Greater(t, got.value.Items[0].Ref.Position, second.Ref.Position, "drawn under the lock of the key")
	claimed := claim(t, d.store, q.ID, 10, time.Minute)
	require.Len(t, claimed, 1)
	require.Equal(t, second.Ref, claimed[0].Message.Ref)
}
