package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
)

// columns are the messages of an Enqueue as the arrays that the statements unnest.
type columns struct {
	queueID, priority, maxAttempts, wireBytes []int32
	payload                                   [][]byte
	contentType                               []string
	attributes                                []*string
	delay                                     []*int64
	available, expire                         []*time.Time
}

func columnsOf(messages []storage.NewMessage) (columns, error) {
	n := len(messages)
	c := columns{
		queueID: make([]int32, 0, n), priority: make([]int32, 0, n), maxAttempts: make([]int32, 0, n),
		wireBytes: make([]int32, 0, n), payload: make([][]byte, 0, n), contentType: make([]string, 0, n),
		attributes: make([]*string, 0, n), delay: make([]*int64, 0, n),
		available: make([]*time.Time, 0, n), expire: make([]*time.Time, 0, n),
	}
	for i := range messages {
		m := &messages[i]
		var attributes *string
		if m.Attributes != nil {
			raw, err := json.Marshal(m.Attributes)
			if err != nil {
				return c, fmt.Errorf("postgres: enqueue: attributes: %w", err)
			}
			s := string(raw)
			attributes = &s
		}
		var delay *int64
		if m.Delay > 0 {
			us := m.Delay.Microseconds()
			delay = &us
		}
		payload := m.Payload
		if payload == nil {
			payload = []byte{} // nil would be a null
		}
		c.queueID = append(c.queueID, m.QueueID)
		c.priority = append(c.priority, m.Priority)
		c.maxAttempts = append(c.maxAttempts, m.MaxAttempts)
		c.wireBytes = append(c.wireBytes, int32(min(max(m.WireBytes, int64(len(payload))), math.MaxInt32)))
		c.payload = append(c.payload, payload)
		c.contentType = append(c.contentType, m.ContentType)
		c.attributes = append(c.attributes, attributes)
		c.delay = append(c.delay, delay)
		c.available = append(c.available, nullTime(m.AvailableTime))
		c.expire = append(c.expire, nullTime(m.ExpireTime))
	}
	return c, nil
}

func (c columns) args() []any {
	return []any{
		c.queueID, c.payload, c.contentType, c.attributes, c.priority, c.delay,
		c.available, c.maxAttempts, c.expire, c.wireBytes,
	}
}

// first are the arguments of enqueue_one.sql.
func (c columns) first() []any {
	return []any{
		c.queueID[0], c.payload[0], c.contentType[0], c.attributes[0], c.priority[0], c.delay[0],
		c.available[0], c.maxAttempts[0], c.expire[0], c.wireBytes[0],
	}
}

// sparse are the arguments of enqueue.sql: what the messages have in common is said once, and
// an array of nothing but defaults is empty. Each array costs a message a value on the wire, in
// this program and in the database.
func (c columns) sparse() []any {
	queues := make([]int32, 0, 1)
	var which []int32
	for i, id := range c.queueID {
		at := slices.Index(queues, id)
		if at < 0 {
			at = len(queues)
			queues = append(queues, id)
		}
		if at > 0 && which == nil {
			which = make([]int32, len(c.queueID))
			for k := range i {
				which[k] = 1 // not reached by a second queue before
			}
		}
		if which != nil {
			which[i] = int32(at + 1)
		}
	}
	return []any{
		queues, c.payload, filled(which), some(c.contentType), some(c.attributes), some(c.priority), some(c.delay),
		some(c.available), some(c.maxAttempts), some(c.expire), c.wireBytes,
	}
}

// some gives all values where one of them is not the zero of its type, and else none.
func some[T comparable](values []T) []T {
	var zero T
	for _, v := range values {
		if v != zero {
			return values
		}
	}
	return []T{}
}

// filled is never nil, which would be a null.
func filled[T any](values []T) []T {
	if values == nil {
		return []T{}
	}
	return values
}

// inserted is a row that an insert returned.
type inserted struct {
	position int64
	ready    time.Time
	created  time.Time
}

func scanInserted(into *[]inserted) func(pgx.Rows) error {
	return each(func() { *into = (*into)[:0] }, func(r pgx.Rows) error {
		row := raw(r)
		*into = append(*into, inserted{position: row.int(0), ready: row.time(1), created: row.time(2)})
		return row.err
	})
}

// Enqueue implements storage.Store. Messages with idempotency keys go another way, and those
// with ordering keys take the locks of their keys before, so that the others pay nothing for
// either. A call goes one way as a whole, since it is atomic (E9).
func (s *Store) Enqueue(ctx context.Context, p storage.EnqueueParams) (storage.EnqueueResult, error) {
	if len(p.Messages) == 0 {
		now, err := s.Now(ctx)
		return storage.EnqueueResult{Now: now}, err
	}
	c, err := columnsOf(p.Messages)
	if err != nil {
		return storage.EnqueueResult{}, err
	}
	if p.FindHeld && p.LockWait > 0 {
		if out, some := s.findHeld(ctx, p.Messages); some {
			return out, nil
		}
	}
	for i := range p.Messages {
		if p.Messages[i].IdempotencyKey != "" {
			return s.enqueueKeyed(ctx, p)
		}
	}
	rows := make([]inserted, 0, len(p.Messages))
	insert := step{sql: s.sql.enqueue, scan: scanInserted(&rows)}
	var steps []step
	switch keys := orderingKeys(p.Messages); {
	case len(keys) > 0:
		steps = s.takeNames(keys, p.LockWait)
		which, behind := keys.places(p.Messages)
		insert.sql, insert.args = s.sql.enqueueOrdered, append(c.sparse(), which, some(behind), []int64{}, []string{})
	case len(p.Messages) == 1:
		insert.sql, insert.args = s.sql.enqueueOne, c.first()
	default:
		insert.args = c.sparse()
	}
	if err := s.write(ctx, "enqueue", append(steps, insert)...); err != nil {
		return storage.EnqueueResult{}, noQueue("enqueue", err)
	}
	// A database promises no order of returned rows; positions rise with the items.
	slices.SortFunc(rows, func(a, b inserted) int { return int(a.position - b.position) })
	out := storage.EnqueueResult{Items: make([]storage.Enqueued, len(p.Messages))}
	if insert.sql == s.sql.enqueueOne && len(rows) == 0 {
		return storage.EnqueueResult{}, fmt.Errorf("postgres: enqueue: %w", storage.ErrQueueNotFound)
	}
	if len(rows) != len(p.Messages) {
		return out, fmt.Errorf("postgres: enqueue: %d rows for %d messages", len(rows), len(p.Messages))
	}
	for i, row := range rows {
		out.Items[i] = storage.Enqueued{
			Status:    storage.EnqueueInserted,
			Ref:       storage.Ref{QueueID: p.Messages[i].QueueID, Position: row.position},
			State:     storage.StatePending,
			ReadyTime: row.ready.UTC(),
		}
		out.Now = row.created.UTC()
	}
	return out, nil
}

// orderingKeys lists the ordering keys of messages.
func orderingKeys(messages []storage.NewMessage) namedKeys {
	var keys []namedKey
	for i := range messages {
		if m := &messages[i]; m.OrderingKey != "" {
			if keys == nil {
				keys = make([]namedKey, 0, len(messages)-i)
			}
			keys = append(keys, namedKey{queueID: m.QueueID, name: m.OrderingKey})
		}
	}
	return uniqueKeys(keys)
}

// noQueue names the one thing that the inserts refuse by a null in max_attempts: a queue that
// is not there.
func noQueue(what string, err error) error {
	if nullColumn(err) == "max_attempts" {
		return fmt.Errorf("postgres: %s: %w", what, storage.ErrQueueNotFound)
	}
	return err
}
