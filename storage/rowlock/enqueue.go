package rowlock

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/slowlane"
)

const (
	qEnqueueQueues statement = "enqueue_queues"
	qEnqueueKeys   statement = "enqueue_keys"
)

// Enqueue implements storage.Store. Messages without keys are one INSERT, which is its own
// transaction, after a look at the clock and the queues. Keys are locked in front of that, so
// that messages without one pay nothing for them.
func (s *Store) Enqueue(ctx context.Context, p storage.EnqueueParams) (storage.EnqueueResult, error) {
	if len(p.Messages) == 0 {
		now, err := s.Now(ctx)
		return storage.EnqueueResult{Now: now}, err
	}
	attributes, err := attributesOfAll(p.Messages)
	if err != nil {
		return storage.EnqueueResult{}, fmt.Errorf("%s: enqueue: %w", s.engine.Name, err)
	}
	if p.FindHeld && p.LockWait > 0 {
		if out, some, err := s.findHeld(ctx, p.Messages); some || err != nil {
			return out, err
		}
	}
	var res storage.EnqueueResult
	if plain(p.Messages, attributes) {
		var b *batch
		var rows []MessageRow
		err = s.single(ctx, "enqueue", func(c *session) (err error) {
			b = &batch{c: c, messages: p.Messages, attributes: attributes}
			b.takeAll()
			rows, err = b.rows(ctx, nil)
			return err
		}, func(c *session) error {
			ids, err := c.insert(ctx, rows)
			if err == nil {
				b.answer(rows, ids)
			}
			res = storage.EnqueueResult{Items: b.items, Now: b.now}
			return err
		})
	} else {
		names := distinctNames(orderingKeys(p.Messages))
		put := func(how taken) error {
			return s.write(ctx, "enqueue", func(c *session) (verdict, error) {
				b := &batch{c: c, messages: p.Messages, attributes: attributes, tries: p.LockWait > 0 || len(names) > 0}
				keys, err := c.lockNames(ctx, names, how)
				if err == nil && len(keys.named) < len(names) {
					err = errKeyTaken
				}
				if err != nil {
					return rollback, err
				}
				if err := b.decide(ctx); err != nil {
					return rollback, err
				}
				if !b.reused {
					err = b.put(ctx, keys.named)
				}
				res = storage.EnqueueResult{Items: b.items, Now: b.now}
				return verdict(!b.reused && len(b.fresh) > 0), err
			})
		}
		if p.LockWait <= 0 && len(names) > 0 {
			err = slowlane.UntilFree(ctx, lockWait, func(time.Duration) error { return put(waitTaken) })
		} else {
			err = s.untilKeys(ctx, p.LockWait, put)
		}
	}
	if err != nil {
		return storage.EnqueueResult{}, err
	}
	return res, nil
}

// plain tells that messages have no keys of either kind and go into one INSERT.
func plain(messages []storage.NewMessage, attributes [][]byte) bool {
	rows := make([]MessageRow, len(messages))
	for i := range messages {
		m := &messages[i]
		if m.IdempotencyKey != "" || m.OrderingKey != "" {
			return false
		}
		rows[i].Payload, rows[i].Attributes = m.Payload, attributes[i]
	}
	return insertable(rows) == len(rows)
}

func attributesOfAll(messages []storage.NewMessage) ([][]byte, error) {
	all := make([][]byte, len(messages))
	for i := range messages {
		var err error
		if all[i], err = attributesText(messages[i].Attributes); err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
	}
	return all, nil
}

// orderingKeys lists the ordering keys of messages, some of them more than once.
func orderingKeys(messages []storage.NewMessage) []keyName {
	var keys []keyName
	for i := range messages {
		if m := &messages[i]; m.OrderingKey != "" {
			keys = append(keys, keyName{m.QueueID, m.OrderingKey})
		}
	}
	return keys
}

// batch is what one transaction enqueues: new messages, the follow-ups of a completion (S10) or
// what a transaction of somebody's own has committed (E12). The caller locks the ordering keys
// first, then decide takes the lock of the idempotency keys and tells what becomes of each
// message, then put inserts those that are new. What the caller does to other messages it does
// after decide (D12).
type batch struct {
	c        *session
	messages []storage.NewMessage
	// attributes are those of the messages as they are stored.
	attributes [][]byte
	// created tells when a message was made that is only placed here; nil means now.
	created []time.Time

	// tries says that an idempotency key which somebody has locked is not waited for: the caller
	// has a storage.LockWait, or the locks of ordering keys, whose neighbours would wait with it
	// (E6). The engines count that wait in seconds, or not for one statement alone, so that a
	// short one is no wait at all. Without a LockWait the caller waits with slowlane.UntilFree.
	tries bool

	now   time.Time
	items []storage.Enqueued
	// fresh are the messages to insert.
	fresh []int
	// first has, for a message whose idempotency key a fresh one before it has too, that one.
	first map[int]int
	// free are those of the fresh ones whose idempotency key is to be taken over, add those
	// whose key nobody has.
	free, add []int
	// reused tells that an idempotency key names a message of other content, so that nothing
	// of the call may be inserted (E3).
	reused bool
}

// newBatch makes a batch of messages.
func (c *session) newBatch(messages []storage.NewMessage) (*batch, error) {
	attributes, err := attributesOfAll(messages)
	return &batch{c: c, messages: messages, attributes: attributes}, err
}

// takeAll decides that all messages are new.
func (b *batch) takeAll() {
	b.items = make([]storage.Enqueued, len(b.messages))
	for i := range b.messages {
		b.fresh = append(b.fresh, i)
	}
}

// put inserts the fresh messages; keys has the ids of their ordering keys. Where they are none,
// it only reads the clock.
func (b *batch) put(ctx context.Context, keys map[keyName]int64) error {
	if len(b.fresh) == 0 {
		var err error
		b.now, err = b.c.now(ctx)
		return err
	}
	rows, err := b.rows(ctx, keys)
	if err != nil {
		return err
	}
	ids, err := b.c.insert(ctx, rows)
	if err != nil {
		return err
	}
	b.answer(rows, ids)
	return b.putKeys(ctx)
}

// rows makes the rows of the fresh messages.
func (b *batch) rows(ctx context.Context, keys map[keyName]int64) ([]MessageRow, error) {
	most, err := b.queues(ctx)
	if err != nil {
		return nil, err
	}
	behind, err := b.behind(ctx, keys)
	if err != nil {
		return nil, err
	}
	rows := make([]MessageRow, 0, len(b.fresh))
	for _, i := range b.fresh {
		m := &b.messages[i]
		maxAttempts, ok := most[m.QueueID]
		if !ok {
			return nil, storage.ErrQueueNotFound
		}
		if m.MaxAttempts != 0 {
			maxAttempts = m.MaxAttempts
		}
		row := MessageRow{
			QueueID: m.QueueID, Place: placeReady, Priority: m.Priority, ReadyTime: b.now, CreateTime: b.now,
			ExpireTime: ceil(m.ExpireTime), MaxAttempts: maxAttempts, WireBytes: max(m.WireBytes, int64(len(m.Payload))),
			ContentType: m.ContentType, IdempotencyKey: m.IdempotencyKey, Attributes: b.attributes[i], Payload: m.Payload,
		}
		if b.created != nil {
			row.CreateTime = b.created[i]
		}
		at := ceil(m.AvailableTime)
		if m.Delay > 0 {
			at = b.now.Add(ceilDuration(m.Delay))
		}
		if at.After(b.now) {
			row.ReadyTime, row.Place = at, placeDelayed
		}
		if m.OrderingKey != "" {
			row.KeyID = keys[keyName{m.QueueID, m.OrderingKey}]
			parked, ok := behind[row.KeyID]
			if !ok {
				// The sweep of the keys removed it before this transaction had its lock.
				return nil, errAgain
			}
			if parked {
				row.Place = placeParked
			}
			behind[row.KeyID] = true
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// queues reads the clock, and the limits of attempts of the queues of the fresh messages.
func (b *batch) queues(ctx context.Context) (map[int32]int32, error) {
	most := make(map[int32]int32, 1)
	var list [][]any
	for _, i := range b.fresh {
		id := b.messages[i].QueueID
		if _, ok := most[id]; !ok {
			most[id] = 0
			list = append(list, []any{id})
		}
	}
	clear(most)
	err := b.c.each(ctx, qEnqueueQueues, args(b.c.list(list)), func(rows *sql.Rows) error {
		var id, maxAttempts int32
		err := rows.Scan(&b.now, &id, &maxAttempts)
		most[id] = maxAttempts
		return err
	})
	b.now = b.now.UTC()
	return most, err
}

// behind tells for each ordering key whether a new message of it stands behind others.
func (b *batch) behind(ctx context.Context, keys map[keyName]int64) (map[int64]bool, error) {
	behind := make(map[int64]bool, len(keys))
	var list []int64
	for _, i := range b.fresh {
		m := &b.messages[i]
		if m.OrderingKey == "" {
			continue
		}
		id := keys[keyName{m.QueueID, m.OrderingKey}]
		if _, ok := behind[id]; !ok {
			behind[id] = false
			list = append(list, id)
		}
	}
	if len(list) == 0 {
		return behind, nil
	}
	clear(behind)
	err := b.c.each(ctx, qEnqueueKeys, args(b.c.ids(list)), func(rows *sql.Rows) error {
		var id int64
		var parked bool
		err := rows.Scan(&id, &parked)
		behind[id] = parked
		return err
	})
	return behind, err
}

// answer fills in what was inserted.
func (b *batch) answer(rows []MessageRow, ids []int64) {
	for n, i := range b.fresh {
		b.items[i] = storage.Enqueued{
			Status:    storage.EnqueueInserted,
			Ref:       storage.Ref{QueueID: rows[n].QueueID, Position: positionOf(ids[n], rows[n].KeyID != 0)},
			State:     storage.StatePending,
			ReadyTime: rows[n].ReadyTime,
		}
	}
	for i, first := range b.first {
		b.items[i].Ref = b.items[first].Ref
	}
}

// ceil rounds a time up to what a column holds, so that nothing is ready or over too early.
func ceil(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	down := t.UTC().Truncate(time.Microsecond)
	if down.Before(t) {
		return down.Add(time.Microsecond)
	}
	return down
}

func ceilDuration(d time.Duration) time.Duration {
	down := d.Truncate(time.Microsecond)
	if down < d {
		return down + time.Microsecond
	}
	return down
}

// distinctNames sorts names in the order of the locks and drops repetitions.
func distinctNames(names []keyName) []keyName {
	slices.SortFunc(names, compareKeys)
	return slices.Compact(names)
}
