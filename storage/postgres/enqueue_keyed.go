package postgres

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/slowlane"
)

// keyTries bounds how often an Enqueue starts anew because a key went away between
// two of its statements.
const keyTries = 3

// briefly bounds the wait for an idempotency key in a transaction that has locked ordering
// keys: who needs one of those, and no more, does not wait with it (E6). What it could not have
// is waited for without any lock (slowlane.UntilFree).
const briefly = 10 * time.Millisecond

// queueKey names an idempotency key.
type queueKey struct {
	queueID int32
	key     string
}

// heldKey is what a key stands for.
type heldKey struct {
	position int64
	hash     []byte
	// state of its message as everybody sees it; nil where the message is not there or is
	// past its retention, so that the key is free (E5).
	state *int16
}

// enqueueKeyed inserts messages of which some have idempotency keys (E1 to E6). Two
// round trips: the keys are taken and locked, then what they say decides, then the
// messages are inserted. Positions are drawn first, in the order of the messages,
// though the keys are taken in their own order. Ordering keys are locked before all that.
func (s *Store) enqueueKeyed(ctx context.Context, p storage.EnqueueParams) (out storage.EnqueueResult, err error) {
	try := func(wait storage.LockWait) (err error) {
		again := true
		for n := 0; again && n < keyTries; n++ {
			if out, again, err = s.enqueueKeyedOnce(ctx, p.Messages, wait); err != nil {
				return err
			}
		}
		if again {
			return fmt.Errorf("postgres: enqueue: %w: an idempotency key keeps vanishing", storage.ErrUnavailable)
		}
		return nil
	}
	if len(orderingKeys(p.Messages)) == 0 {
		err = try(p.LockWait)
	} else {
		err = slowlane.UntilFree(ctx, cmp.Or(p.LockWait, lockWait), try)
	}
	return out, err
}

func (s *Store) enqueueKeyedOnce(ctx context.Context, messages []storage.NewMessage, wait storage.LockWait) (out storage.EnqueueResult, again bool, err error) {
	var (
		now  time.Time
		rows []inserted
		plan keyedPlan
	)
	// Ordering keys come before everything (D12), so positions are drawn under their locks.
	ordering := orderingKeys(messages)
	var first []step
	if len(ordering) > 0 {
		first = s.takeNames(ordering, wait)
	} else {
		first = atMost(wait)
	}
	taken := s.takeKeys(messages, wait, len(ordering) > 0)
	first = append(first, taken.steps...)
	first = append(first, step{sql: s.sql.now, scan: one(func(r pgx.Rows) error { return r.Scan(&now) })})
	err = s.transact(ctx, "enqueue", first, func() ([]step, bool) {
		plan = planKeyed(messages, taken.positions, taken.held)
		again = plan.again
		if plan.again || plan.reused || len(plan.fresh) == 0 {
			return nil, false
		}
		return s.insertKeyed(messages, &plan, taken, ordering, &rows), true
	})
	if err != nil {
		return storage.EnqueueResult{}, false, noQueue("enqueue", err)
	}
	if again {
		return storage.EnqueueResult{}, true, nil
	}
	out = storage.EnqueueResult{Items: plan.items, Now: now.UTC()}
	if plan.reused {
		return out, false, nil
	}
	ready := make(map[int64]time.Time, len(rows))
	for _, row := range rows {
		ready[row.position] = row.ready.UTC()
		out.Now = row.created.UTC()
	}
	for _, i := range plan.fresh {
		at, ok := ready[taken.positions[i]]
		if !ok {
			return out, false, fmt.Errorf("postgres: enqueue: no row for position %d", taken.positions[i])
		}
		out.Items[i].ReadyTime = at
	}
	return out, false, nil
}

// takenKeys are the positions drawn for messages, and the idempotency keys that a transaction
// has locked for them.
type takenKeys struct {
	steps     []step
	keys      []string
	positions []int64
	held      map[queueKey]heldKey
}

// takeKeys gives the steps that draw positions, in the order of the messages, and take and
// lock their idempotency keys. What they find is there when they have run. ordering tells that
// the transaction has locked ordering keys; wait bounds the waits for locks before and after.
func (s *Store) takeKeys(messages []storage.NewMessage, wait storage.LockWait, ordering bool) *takenKeys {
	var (
		n       = len(messages)
		t       = &takenKeys{keys: make([]string, n), positions: make([]int64, n)}
		ids     = make([]int32, n)
		hashes  = make([][]byte, n)
		ordered = make([]bool, n)
		some    bool
	)
	for i := range messages {
		ids[i], t.keys[i], hashes[i] = messages[i].QueueID, messages[i].IdempotencyKey, messages[i].ContentHash[:]
		ordered[i] = messages[i].OrderingKey != ""
		some = some || t.keys[i] != ""
	}
	t.steps = []step{{sql: s.sql.enqueueKeys, args: []any{ids, t.keys, hashes, ordered}, scan: each(nil, func(r pgx.Rows) error {
		var ord, position, taken int64
		if err := r.Scan(&ord, &position, &taken); err != nil {
			return err
		}
		t.positions[ord-1] = position
		return nil
	})}}
	if !some {
		return t
	}
	t.steps = append(
		t.steps,
		step{sql: s.sql.enqueueKeysLock, args: []any{ids, t.keys}},
		step{sql: s.sql.enqueueKeysRead, args: []any{ids, t.keys}, scan: each(
			func() { t.held = make(map[queueKey]heldKey) },
			func(r pgx.Rows) error {
				var k queueKey
				var h heldKey
				if err := r.Scan(&k.queueID, &k.key, &h.position, &h.hash, &h.state); err != nil {
					return err
				}
				t.held[k] = h
				return nil
			},
		)},
	)
	if ordering {
		t.steps = append(append(atMost(min(wait, briefly)), t.steps...), atMost(wait)...)
	}
	return t
}

// insertKeyed gives the steps that insert the messages that the plan says are new, and take
// over the keys that are free again. ordering are the ordering keys that are locked.
func (s *Store) insertKeyed(messages []storage.NewMessage, plan *keyedPlan, taken *takenKeys, ordering namedKeys, rows *[]inserted) []step {
	if len(plan.fresh) == 0 {
		return nil
	}
	steps := make([]step, 0, 2)
	if len(plan.take.ids) > 0 {
		steps = append(steps, step{sql: s.sql.enqueueKeysTake, args: []any{
			plan.take.ids, plan.take.keys, plan.take.positions, plan.take.hashes,
		}})
	}
	insert := make([]storage.NewMessage, 0, len(plan.fresh))
	at := make([]int64, 0, len(plan.fresh))
	named := make([]string, 0, len(plan.fresh))
	for _, i := range plan.fresh {
		insert = append(insert, messages[i])
		at = append(at, taken.positions[i])
		named = append(named, taken.keys[i])
	}
	c, _ := columnsOf(insert) // the caller has been through it
	put := step{sql: s.sql.enqueueKeyed, args: append(c.args(), at, named), scan: scanInserted(rows)}
	if len(ordering) > 0 {
		which, behind := ordering.places(insert)
		put.sql, put.args = s.sql.enqueueOrdered, append(c.sparse(), which, some(behind), at, named)
	}
	return append(steps, put)
}

// keyedPlan is what the keys decide.
type keyedPlan struct {
	items  []storage.Enqueued
	fresh  []int
	reused bool
	again  bool
	take   struct {
		ids       []int32
		keys      []string
		positions []int64
		hashes    [][]byte
	}
}

func planKeyed(messages []storage.NewMessage, positions []int64, held map[queueKey]heldKey) keyedPlan {
	p := keyedPlan{items: make([]storage.Enqueued, len(messages))}
	mine := make(map[queueKey]int) // the message of this call that has the key
	for i := range messages {
		m := &messages[i]
		ref := storage.Ref{QueueID: m.QueueID, Position: positions[i]}
		fresh := func() {
			p.fresh = append(p.fresh, i)
			p.items[i] = storage.Enqueued{Status: storage.EnqueueInserted, Ref: ref, State: storage.StatePending}
		}
		if m.IdempotencyKey == "" {
			fresh()
			continue
		}
		k := queueKey{queueID: m.QueueID, key: m.IdempotencyKey}
		if first, ok := mine[k]; ok {
			// The same key twice in one call: the first one is the message.
			p.repeat(i, messages[first].ContentHash == m.ContentHash, p.items[first].Ref, storage.StatePending)
			continue
		}
		h, ok := held[k]
		switch {
		case !ok:
			// Retention removed the key between the two statements.
			p.again = true
		case h.position == positions[i]:
			mine[k] = i
			fresh()
		case h.state == nil:
			mine[k] = i
			fresh()
			p.take.ids = append(p.take.ids, m.QueueID)
			p.take.keys = append(p.take.keys, m.IdempotencyKey)
			p.take.positions = append(p.take.positions, positions[i])
			p.take.hashes = append(p.take.hashes, m.ContentHash[:])
		default:
			p.repeat(i, bytes.Equal(h.hash, m.ContentHash[:]),
				storage.Ref{QueueID: m.QueueID, Position: h.position}, storage.State(*h.state))
		}
	}
	if p.reused {
		// Nothing is inserted, so the items must not name messages that will never be.
		gone := make(map[storage.Ref]bool, len(p.fresh))
		for _, i := range p.fresh {
			gone[p.items[i].Ref] = true
		}
		for i := range p.items {
			if p.items[i].Status != storage.EnqueueKeyReused && gone[p.items[i].Ref] {
				p.items[i] = storage.Enqueued{}
			}
		}
	}
	return p
}

func (p *keyedPlan) repeat(i int, same bool, ref storage.Ref, state storage.State) {
	status := storage.EnqueueDuplicate
	if !same {
		status = storage.EnqueueKeyReused
		p.reused = true
	}
	p.items[i] = storage.Enqueued{Status: status, Ref: ref, State: state}
}
