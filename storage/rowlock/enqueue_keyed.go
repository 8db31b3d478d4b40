package rowlock

import (
	"bytes"
	"context"
	"database/sql"

	"github.com/queuebox/queuebox/storage"
)

const (
	qIdempotencyLock statement = "idempotency_lock"
	qIdempotencyTry  statement = "idempotency_try"
	qIdempotencyAdd  statement = "idempotency_add"
	qIdempotencyTake statement = "idempotency_take"
	qMessageStates   statement = "message_states"
)

// holder is the message that an idempotency key stands for.
type holder struct {
	position int64
	hash     []byte
	// there tells that the message is live or kept, in this state; where it is not, the key is
	// free (E5).
	there bool
	state storage.State
}

// decide locks the idempotency keys of the messages and tells what becomes of each. A key that
// nobody has is not locked: the primary key decides when it is inserted, and where somebody was
// faster the transaction runs again. E1 to E6.
func (b *batch) decide(ctx context.Context) error {
	held, err := b.holders(ctx)
	if err != nil {
		return err
	}
	b.items = make([]storage.Enqueued, len(b.messages))
	b.first = make(map[int]int)
	mine := make(map[keyName]int)
	for i := range b.messages {
		m := &b.messages[i]
		if m.IdempotencyKey == "" {
			b.fresh = append(b.fresh, i)
			continue
		}
		k := keyName{m.QueueID, m.IdempotencyKey}
		if first, ok := mine[k]; ok {
			b.first[i] = first
			b.repeat(i, b.messages[first].ContentHash == m.ContentHash, storage.Ref{}, storage.StatePending)
			continue
		}
		h, known := held[k]
		if known && h.there {
			b.repeat(i, bytes.Equal(h.hash, m.ContentHash[:]), storage.Ref{QueueID: m.QueueID, Position: h.position}, h.state)
			continue
		}
		mine[k] = i
		b.fresh = append(b.fresh, i)
		if known {
			b.free = append(b.free, i)
		} else {
			b.add = append(b.add, i)
		}
	}
	if !b.reused {
		return nil
	}
	// Nothing is inserted, so nothing may be told of what would have been.
	for i := range b.first {
		if b.items[i].Status != storage.EnqueueKeyReused {
			b.items[i] = storage.Enqueued{}
		}
	}
	b.now, err = b.c.now(ctx)
	return err
}

func (b *batch) repeat(i int, same bool, ref storage.Ref, state storage.State) {
	status := storage.EnqueueDuplicate
	if !same {
		status = storage.EnqueueKeyReused
		b.reused = true
	}
	b.items[i] = storage.Enqueued{Status: status, Ref: ref, State: state}
}

// holders locks the idempotency keys that somebody has and tells who.
func (b *batch) holders(ctx context.Context) (map[keyName]holder, error) {
	var names []keyName
	for i := range b.messages {
		if m := &b.messages[i]; m.IdempotencyKey != "" {
			names = append(names, keyName{m.QueueID, m.IdempotencyKey})
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	held := make(map[keyName]holder)
	list := make([][]any, 0, len(names))
	for _, n := range distinctNames(names) {
		list = append(list, []any{n.queueID, b.c.s.engine.Values.NameText(n.name)})
	}
	var messages [][]any
	lock := qIdempotencyLock
	if b.tries {
		lock = qIdempotencyTry
	}
	err := b.c.each(ctx, lock, args(b.c.list(list)), func(rows *sql.Rows) error {
		var k keyName
		var h holder
		err := rows.Scan(&k.queueID, &k.name, &h.position, &h.hash)
		held[k] = h
		messages = append(messages, []any{k.queueID, idOf(h.position)})
		return err
	})
	if err != nil || len(held) == 0 {
		return held, err
	}
	states := make(map[int64]storage.State, len(messages))
	err = b.c.each(ctx, qMessageStates, args(b.c.list(messages)), func(rows *sql.Rows) error {
		var id int64
		var state storage.State
		err := rows.Scan(&id, &state)
		if _, ok := states[id]; !ok {
			states[id] = state
		}
		return err
	})
	for k, h := range held {
		h.state, h.there = states[idOf(h.position)], false
		if _, ok := states[idOf(h.position)]; ok {
			h.there = true
		}
		held[k] = h
	}
	return held, err
}

// putKeys writes the idempotency keys of the messages that were inserted.
func (b *batch) putKeys(ctx context.Context) error {
	if len(b.free) > 0 {
		if _, err := b.c.change(ctx, qIdempotencyTake, b.keyList(b.free)); err != nil {
			return err
		}
	}
	if len(b.add) == 0 {
		return nil
	}
	_, err := b.c.change(ctx, qIdempotencyAdd, b.keyList(b.add))
	if err != nil && b.c.s.engine.Errors.Duplicate(err) {
		return errAgain
	}
	return err
}

// keyList lists the idempotency keys of some messages in the order of their locks.
func (b *batch) keyList(some []int) Arg {
	of := make(map[keyName]int, len(some))
	names := make([]keyName, len(some))
	for n, i := range some {
		names[n] = keyName{b.messages[i].QueueID, b.messages[i].IdempotencyKey}
		of[names[n]] = i
	}
	list := make([][]any, len(some))
	for n, name := range distinctNames(names) {
		i := of[name]
		list[n] = []any{
			name.queueID, b.c.s.engine.Values.NameText(name.name), b.items[i].Ref.Position,
			b.messages[i].ContentHash[:],
		}
	}
	return b.c.list(list)
}
