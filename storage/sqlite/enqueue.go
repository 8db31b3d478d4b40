package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/queuebox/queuebox/storage"
)

const (
	placeReady   = 0
	placeDelayed = 1
	placeParked  = 2
)

// Enqueue implements storage.Store.
func (s *Store) Enqueue(ctx context.Context, p storage.EnqueueParams) (storage.EnqueueResult, error) {
	attributes := make([]any, len(p.Messages))
	for i, m := range p.Messages {
		var err error
		if attributes[i], err = toAttributes(m.Attributes); err != nil {
			return storage.EnqueueResult{}, fmt.Errorf("enqueue: message %d: %w", i, err)
		}
	}
	var res storage.EnqueueResult
	err := s.write(ctx, "enqueue", func(quiet context.Context, c *session) (verdict, error) {
		b := newEnqueueBatch(c)
		var err error
		res, err = b.run(ctx, quiet, p.Messages, attributes)
		if err != nil || b.reused || b.inserted == 0 {
			return rollback, err
		}
		return commit, nil
	})
	if err != nil {
		return storage.EnqueueResult{}, err
	}
	return res, nil
}

// orderingKey names an ordering key.
type orderingKey struct {
	queueID int32
	key     string
}

// enqueueBatch is what one transaction enqueues.
type enqueueBatch struct {
	c *session
	// maxAttempts of the queues that were met, read in this transaction.
	maxAttempts map[int32]int32
	// keys are the rows of the ordering keys that have got a message in this transaction.
	keys     map[orderingKey]int64
	reused   bool
	inserted int
	// pending are rows that are not inserted yet.
	pending []enqueueRow
	// created is when a message was made that is only placed here (E12); 0 means now.
	created int64
}

func newEnqueueBatch(c *session) *enqueueBatch {
	return &enqueueBatch{c: c, maxAttempts: make(map[int32]int32), keys: make(map[orderingKey]int64)}
}

func (b *enqueueBatch) run(ctx, quiet context.Context, messages []storage.NewMessage, attributes []any) (storage.EnqueueResult, error) {
	res := storage.EnqueueResult{Items: make([]storage.Enqueued, len(messages))}
	var err error
	if res.Now, err = b.c.now(quiet); err != nil {
		return res, err
	}
	var last int64
	if err := b.c.one(quiet, qEnqueueDraw, args(len(messages)), &last); err != nil {
		return res, err
	}
	position := last - int64(len(messages))
	for i := range messages {
		if err := ctx.Err(); err != nil {
			return res, err
		}
		position++
		if res.Items[i], err = b.add(quiet, &messages[i], attributes[i], position, res.Now.UnixMilli()); err != nil {
			return res, err
		}
	}
	if err := b.flush(quiet, 1); err != nil {
		return res, err
	}
	if b.reused {
		// Nothing is inserted, so nothing may say that it was.
		for i := range res.Items {
			if res.Items[i].Status == storage.EnqueueInserted || res.Items[i].Ref.Position > last-int64(len(messages)) {
				res.Items[i] = storage.Enqueued{Status: keepReused(res.Items[i].Status)}
			}
		}
	}
	return res, nil
}

// keepReused keeps the one status that stays true when nothing was inserted.
func keepReused(st storage.EnqueueStatus) storage.EnqueueStatus {
	if st == storage.EnqueueKeyReused {
		return st
	}
	return 0
}

func (b *enqueueBatch) add(ctx context.Context, m *storage.NewMessage, attributes any, position, now int64) (storage.Enqueued, error) {
	maxAttempts, err := b.queue(ctx, m.QueueID)
	if err != nil {
		return storage.Enqueued{}, err
	}
	if m.MaxAttempts != 0 {
		maxAttempts = m.MaxAttempts
	}
	if m.IdempotencyKey != "" {
		held, err := b.key(ctx, m)
		if err != nil || held.Status != 0 {
			return held, err
		}
	}
	ready, place := now, placeReady
	if m.Delay > 0 {
		ready = now + toMillis(m.Delay)
	} else if at, ok := toInstant(m.AvailableTime).(int64); ok && at > now {
		ready = at
	}
	if ready > now {
		place = placeDelayed
	}
	keyID, behind, err := b.orderingKey(ctx, m)
	if err != nil {
		return storage.Enqueued{}, err
	}
	if behind {
		place = placeParked
	}
	created := now
	if b.created != 0 {
		created = b.created
	}
	if m.IdempotencyKey == "" && !keyID.Valid {
		err = b.pend(ctx, enqueueRow{
			shared:   enqueueShared{m.QueueID, place, m.Priority, ready, maxAttempts, created, toInstant(m.ExpireTime), m.ContentType},
			position: position, wireBytes: m.WireBytes, attributes: attributes, payload: m.Payload,
		})
	} else {
		if err = b.flush(ctx, 1); err != nil {
			return storage.Enqueued{}, err
		}
		_, err = b.c.exec(ctx, qEnqueueInsert, position, m.QueueID, place, ready, m.Priority, maxAttempts, created,
			toInstant(m.ExpireTime), m.WireBytes, m.ContentType, m.IdempotencyKey, keyID, attributes,
			len(m.Payload), blob(m.Payload))
	}
	if err != nil {
		return storage.Enqueued{}, err
	}
	ref := storage.Ref{QueueID: m.QueueID, Position: position}
	if m.IdempotencyKey != "" {
		if _, err := b.c.exec(ctx, qIdempotencyPut, m.QueueID, m.IdempotencyKey, position, m.ContentHash[:]); err != nil {
			return storage.Enqueued{}, err
		}
	}
	b.inserted++
	return storage.Enqueued{
		Status:    storage.EnqueueInserted,
		Ref:       ref,
		State:     storage.StatePending,
		ReadyTime: fromMillis(ready),
	}, nil
}

// queue gives the default of max_attempts, and with it the proof that the queue is there.
func (b *enqueueBatch) queue(ctx context.Context, id int32) (int32, error) {
	if n, ok := b.maxAttempts[id]; ok {
		return n, nil
	}
	q, err := b.c.queueBy(ctx, qQueueGetByID, id)
	if err != nil {
		return 0, err
	}
	b.maxAttempts[id] = q.MaxAttempts
	return q.MaxAttempts, nil
}

// orderingKey gives the id of the row of the ordering key, NULL for a message without one,
// and tells whether the message stands behind another one of its key.
func (b *enqueueBatch) orderingKey(ctx context.Context, m *storage.NewMessage) (id sql.NullInt64, behind bool, err error) {
	if m.OrderingKey == "" {
		return id, false, nil
	}
	k := orderingKey{m.QueueID, m.OrderingKey}
	if id.Int64, id.Valid = b.keys[k]; id.Valid {
		return id, true, nil
	}
	id.Valid = true
	a := args(m.QueueID, m.OrderingKey)
	err = b.c.one(ctx, qOrderingKeyGet, a, &id.Int64, &behind)
	if errors.Is(err, sql.ErrNoRows) {
		err = b.c.one(ctx, qOrderingKeyPut, a, &id.Int64)
	}
	b.keys[k] = id.Int64
	return id, behind, err
}

// key looks who holds the idempotency key. A status of 0 says that the key is free: nobody
// ever took it, or its message is gone or past its retention (E5).
func (b *enqueueBatch) key(ctx context.Context, m *storage.NewMessage) (storage.Enqueued, error) {
	var position int64
	var hash []byte
	err := b.c.one(ctx, qIdempotencyGet, args(m.QueueID, m.IdempotencyKey), &position, &hash)
	if errors.Is(err, sql.ErrNoRows) {
		return storage.Enqueued{}, nil
	}
	if err != nil {
		return storage.Enqueued{}, err
	}
	held := storage.Enqueued{Ref: storage.Ref{QueueID: m.QueueID, Position: position}}
	err = b.c.one(ctx, qMessageState, args(m.QueueID, position), &held.State)
	if errors.Is(err, sql.ErrNoRows) {
		return storage.Enqueued{}, nil
	}
	if err != nil {
		return storage.Enqueued{}, err
	}
	held.Status = storage.EnqueueDuplicate
	if !bytes.Equal(hash, m.ContentHash[:]) {
		held.Status = storage.EnqueueKeyReused
		b.reused = true
	}
	return held, nil
}
