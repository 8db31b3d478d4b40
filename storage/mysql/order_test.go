package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// opened is a transaction of the test beside the store, which the test ends when it likes.
type opened struct{ conn *sql.Conn }

func (d *database) begin(t testing.TB) *opened {
	t.Helper()
	o := &opened{d.session(t)}
	t.Cleanup(func() { _ = o.conn.Close() })
	o.run(t, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
	o.run(t, "START TRANSACTION")
	return o
}

func (o *opened) run(t testing.TB, text string, args ...any) {
	t.Helper()
	_, err := o.conn.ExecContext(context.WithoutCancel(t.Context()), text, args...)
	require.NoError(t, err, text)
}

// lockKey locks the row of an ordering key.
func (o *opened) lockKey(t testing.TB, queueID int32, name string) (id int64) {
	t.Helper()
	err := o.conn.QueryRowContext(context.WithoutCancel(t.Context()),
		"SELECT key_id FROM ordering_key WHERE queue_id = ? AND name = ? FOR UPDATE", queueID, name).Scan(&id)
	require.NoError(t, err)
	return id
}

// waits returns when the stores' sessions wait for so many locks.
func (d *database) waits(t testing.TB, n int, what string) {
	t.Helper()
	require.Eventually(t, func() bool { return d.waiting(t) == n }, soon, pollEvery, what)
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

func await[T any](t testing.TB, done <-chan result[T], what string) result[T] {
	t.Helper()
	select {
	case r := <-done:
		return r
	case <-time.After(soon):
		require.FailNow(t, "never ended: "+what)
		return result[T]{}
	}
}

func claimedRefs(claimed []storage.Claimed) []storage.Ref {
	refs := make([]storage.Ref, 0, len(claimed))
	for _, c := range claimed {
		refs = append(refs, c.Message.Ref)
	}
	return refs
}

// O1: the database itself refuses a second head of a key.
func TestO1TwoHeadsAreImpossible(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "heads")
	enqueue(t, d.store, q.ID, 2, under("a"))
	d.inside(t, func(conn *sql.Conn) {
		_, err := conn.ExecContext(t.Context(), "UPDATE message SET place = 1 WHERE place = 2")
		refused, ok := errors.AsType[*driver.MySQLError](err)
		require.True(t, ok, "%v", err)
		require.EqualValues(t, 1062, refused.Number)
	})
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
			o := d.begin(t)
			o.lockKey(t, q.ID, "a")
			o.run(t, `INSERT INTO message (queue_id, place, urgency, ready_time, create_time, key_id, max_attempts, payload_bytes, wire_bytes,
				content_type, idempotency_key, payload) SELECT queue_id, 2, 0, SYSDATE(6), SYSDATE(6), key_id, 20, 0, 100, '', '', '' FROM ordering_key`)
			done := background(func() (storage.SettleResult, error) {
				return d.store.Settle(context.WithoutCancel(t.Context()), storage.SettleParams{Items: completions(held)})
			})
			d.waits(t, 1, "the settlement waits for the key")
			o.run(t, end)
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
	claim(t, d.store, q.ID, 10, time.Minute)
	o := d.begin(t)
	o.lockKey(t, q.ID, "a")
	o.run(t, "DELETE FROM message")
	done := background(func() (storage.EnqueueResult, error) {
		return d.store.Enqueue(context.WithoutCancel(t.Context()), storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: q.ID, OrderingKey: "a"}}})
	})
	d.waits(t, 1, "the enqueue waits for the key")
	o.run(t, "COMMIT")
	r := await(t, done, "the enqueue")
	require.NoError(t, r.err)
	require.Equal(t, []storage.Ref{r.value.Items[0].Ref}, claimedRefs(claim(t, d.store, q.ID, 10, time.Minute)))
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
			o := d.begin(t)
			old := o.lockKey(t, q.ID, "a")
			done := background(func() (storage.EnqueueResult, error) {
				return d.store.Enqueue(context.WithoutCancel(t.Context()), storage.EnqueueParams{Messages: []storage.NewMessage{
					{QueueID: q.ID, OrderingKey: "a", IdempotencyKey: idempotency}, {QueueID: q.ID}, {QueueID: q.ID, OrderingKey: "a"},
				}})
			})
			d.waits(t, 1, "the enqueue waits for the key")
			o.run(t, "DELETE FROM ordering_key WHERE key_id = ?", old)
			o.run(t, "COMMIT")
			r := await(t, done, "the enqueue")
			require.NoError(t, r.err)
			require.Len(t, r.value.Items, 3)
			keys := d.lines(t, "SELECT key_id FROM ordering_key")
			require.Len(t, keys, 1)
			require.NotEqual(t, strconv.FormatInt(old, 10), keys[0], "else this test proves nothing")
			require.Equal(t, []storage.Ref{r.value.Items[0].Ref, r.value.Items[1].Ref}, claimedRefs(claim(t, d.store, q.ID, 10, time.Minute)))
		})
	}
}

// Two transactions make the row of one key at once: the second waits for the first, and uses
// its row, or makes its own where the first one rolls back.
func TestAKeyThatAnotherTransactionMakes(t *testing.T) {
	for _, end := range []string{"COMMIT", "ROLLBACK"} {
		t.Run(end, func(t *testing.T) {
			d := newDatabase(t, false)
			q := queue(t, d.store, "make")
			o := d.begin(t)
			o.run(t, "INSERT INTO ordering_key (queue_id, name) VALUES (?, 'a')", q.ID)
			done := background(func() (storage.EnqueueResult, error) {
				return d.store.Enqueue(context.WithoutCancel(t.Context()), storage.EnqueueParams{Messages: []storage.NewMessage{
					{QueueID: q.ID, OrderingKey: "a"}, {QueueID: q.ID, OrderingKey: "b"},
				}})
			})
			d.waits(t, 1, "the enqueue waits for the key")
			o.run(t, end)
			r := await(t, done, "the enqueue")
			require.NoError(t, r.err)
			require.Equal(t, []string{"a", "b"}, d.lines(t, "SELECT name FROM ordering_key ORDER BY name"))
			require.Len(t, claim(t, d.store, q.ID, 10, time.Minute), 2)
		})
	}
}

// Nobody who waits for the row of a message has the lock of its key meanwhile.
func TestAWaitForARowDoesNotHoldItsKey(t *testing.T) {
	for _, how := range []string{"settle", "settle with a follow-up", "cancel", "revoke"} {
		t.Run(how, func(t *testing.T) {
			d := newDatabase(t, false)
			q := queue(t, d.store, "wait")
			enqueue(t, d.store, q.ID, 2, under("a"))
			held := claim(t, d.store, q.ID, 1, time.Minute)
			ref := held[0].Message.Ref
			o := d.begin(t)
			o.run(t, "SELECT 1 FROM message WHERE id = ? FOR UPDATE", ref.Position/2)
			ctx := context.WithoutCancel(t.Context())
			done := background(func() (bool, error) {
				switch how {
				case "cancel":
					r, err := d.store.Cancel(ctx, storage.CancelParams{QueueID: q.ID, Ref: ref})
					return r.State == storage.StateProcessing, err
				case "revoke":
					r, err := d.store.Revoke(ctx, storage.RevokeParams{Ref: ref})
					return r.Revoked, err
				}
				items := completions(held)
				if how != "settle" {
					items[0].FollowUps = []storage.NewMessage{{QueueID: q.ID, WireBytes: 100, OrderingKey: "a"}}
				}
				r, err := d.store.Settle(ctx, storage.SettleParams{Items: items})
				return err == nil && r.Items[0].Status == storage.ItemApplied && slices.Equal(r.Ready, []int32{q.ID}), err
			})
			d.waits(t, 1, "the call waits for the row")
			enqueue(t, d.store, q.ID, 1, under("a"))
			require.Empty(t, done, "else this test proves nothing")
			o.run(t, "ROLLBACK")
			r := await(t, done, "the call")
			require.NoError(t, r.err)
			require.True(t, r.value)
		})
	}
}

// Who waited for a row and lost it to the next one who waited goes on waiting: a settlement
// that is told nothing of its claim would make its worker do the work again.
func TestAWaitForARowGoesOn(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "wait")
	ctx := context.WithoutCancel(t.Context())
	for _, followUp := range []bool{false, true} {
		enqueue(t, d.store, q.ID, 1, under("a"))
		items := completions(claim(t, d.store, q.ID, 1, time.Minute))
		if followUp {
			items[0].FollowUps = []storage.NewMessage{{QueueID: q.ID, WireBytes: 100, Delay: time.Hour}}
		}
		lock := fmt.Sprintf("SELECT 1 FROM message WHERE id = %d FOR UPDATE", items[0].Ref.Position/2)
		first, second := d.begin(t), d.begin(t)
		first.run(t, lock)
		settled := background(func() (storage.SettleResult, error) {
			return d.store.Settle(ctx, storage.SettleParams{Items: items})
		})
		d.waits(t, 1, "the settlement waits")
		has := background(func() (int, error) {
			_, err := second.conn.ExecContext(ctx, lock)
			return 0, err
		})
		d.waits(t, 2, "and the other one behind it")
		first.run(t, "ROLLBACK")
		require.NoError(t, await(t, has, "the row").err)
		second.run(t, "ROLLBACK")
		r := await(t, settled, "the settlement")
		require.NoError(t, r.err)
		require.Equal(t, storage.ItemApplied, r.value.Items[0].Status)
	}
}

// D12: keys are locked in one order, whatever the order of a call is. Were they not, calls would
// fail here that have lost all their tries. A few deadlocks are InnoDB's own: to see that a key
// has no second head it locks the entry behind that of the key as well, which may be that of a
// key of which another transaction has just removed the head. They are run again.
func TestD12NoDeadlockInAnyOrder(t *testing.T) {
	const keys, rounds = 40, 20
	d := newDatabase(t, false)
	q := queue(t, d.store, "deadlock")
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprintf("key-%d", i)
	}
	back := slices.Clone(names)
	slices.Reverse(back)
	deadlocks := func() int {
		n, err := strconv.Atoi(d.lines(t, "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'")[0])
		require.NoError(t, err)
		return n
	}
	before := deadlocks()
	ctx := context.WithoutCancel(t.Context())
	work := func(order []string, reverse bool) error {
		for range rounds {
			p := storage.EnqueueParams{}
			for _, k := range order {
				p.Messages = append(p.Messages, storage.NewMessage{QueueID: q.ID, OrderingKey: k, WireBytes: 100})
			}
			if _, err := d.store.Enqueue(ctx, p); err != nil {
				return err
			}
			r, err := d.store.Claim(ctx, storage.ClaimParams{QueueID: q.ID, Calls: []storage.ClaimCall{{Max: keys / 2, Lease: time.Minute}}})
			if err != nil {
				return err
			}
			items := completions(r.Calls[0].Messages)
			if reverse {
				slices.Reverse(items)
			}
			if _, err := d.store.Settle(ctx, storage.SettleParams{Items: items}); err != nil {
				return err
			}
			if _, err := d.store.SweepKeys(ctx, storage.SweepKeysParams{Limit: 1000}); err != nil {
				return err
			}
		}
		return nil
	}
	done := make(chan error)
	for w := range 6 {
		go func() {
			if w%2 == 1 {
				done <- work(back, true)
				return
			}
			done <- work(names, false)
		}()
	}
	for range 6 {
		require.NoError(t, <-done)
	}
	require.Less(t, deadlocks()-before, 6*rounds/5)
	require.Empty(t, d.lines(t, "SELECT key_id FROM message WHERE key_id IS NOT NULL GROUP BY key_id HAVING MIN(place) = 2"), "keys without a head")
}
