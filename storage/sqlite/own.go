package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/queuebox/queuebox/storage"
)

// What the texts of the own transaction say in place of the values of a queue.
const (
	ownQueueID    = "0 /* queue_id */"
	ownQueueName  = "3277 /* queue_name */"
	ownMaxPayload = "1048576 /* max_payload_bytes */"
	// ownLater is what attempts can add to a message in an answer of Claim, beside the name
	// of its queue: see the wire bytes of an Enqueue.
	ownLater = 2000 + 2*255 + 512
	// ownRows bounds one transaction of Place or Finish.
	ownRows = 200
)

// TransactionSQL implements storage.Own.
func (s *Store) TransactionSQL(p storage.TransactionSQLParams) (storage.TransactionSQL, error) {
	if p.QueueID <= 0 || p.MaxPayloadBytes < 1 {
		return storage.TransactionSQL{}, fmt.Errorf("transaction sql: queue %d, payload limit %d", p.QueueID, p.MaxPayloadBytes)
	}
	of := strings.NewReplacer(
		ownQueueID, strconv.Itoa(int(p.QueueID)),
		ownQueueName, strconv.Itoa(ownLater+len(p.QueueName)),
		ownMaxPayload, strconv.FormatInt(p.MaxPayloadBytes, 10),
	)
	out := storage.TransactionSQL{Version: storage.TransactionContract}
	for _, st := range []struct {
		name       string
		text       query
		parameters []string
	}{
		{storage.TransactionEnqueue, qOwnEnqueue, []string{
			"payload blob", "content_type text", "attributes text, a JSON object of strings", "idempotency_key text",
			"ordering_key text", "priority integer", "delay_ms integer", "available_time integer, milliseconds since the epoch",
			"max_attempts integer", "expire_time integer, milliseconds since the epoch",
		}},
		{storage.TransactionComplete, qOwnComplete, []string{"message_id text", "claim_token text", "result blob"}},
		{storage.TransactionRetry, qOwnRetry, []string{
			"message_id text", "claim_token text", "delay_ms integer, null takes the retry policy of the queue", "error text",
		}},
		{storage.TransactionDeadLetter, qOwnDeadLetter, []string{"message_id text", "claim_token text", "reason_code text", "error text"}},
		{storage.TransactionOutcome, qOwnOutcome, []string{"message_id text", "claim_token text"}},
	} {
		out.Statements = append(out.Statements, storage.TransactionStatement{
			Name: st.name, SQL: of.Replace(bare(s.queries[st.text])), Parameters: st.parameters,
		})
	}
	return out, nil
}

// bare drops the lines that are comments: they are for readers of the file.
func bare(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			b.WriteString(line)
		}
	}
	return strings.TrimSpace(b.String())
}

// some asks on a snapshot, without the write lock, whether there is anything to do.
func (s *Store) some(ctx context.Context, noun string, q query) (some bool, now time.Time, err error) {
	err = s.read(ctx, noun, func(c *session) error {
		if now, err = c.now(ctx); err != nil {
			return err
		}
		return c.one(ctx, q, nil, &some)
	})
	return some, now, err
}

// Place implements storage.Own. One transaction writes at a time, so the rows stand in the
// order of their commits and are placed in it.
func (s *Store) Place(ctx context.Context, p storage.PlaceParams) (storage.PlaceResult, error) {
	var res storage.PlaceResult
	some, now, err := s.some(ctx, "place", qOwnIncomingSome)
	res.Now = now
	if err != nil || !some {
		return res, err
	}
	limit := min(max(p.Limit, 1), ownRows)
	err = s.write(ctx, "place", func(quiet context.Context, c *session) (verdict, error) {
		res = storage.PlaceResult{}
		rows, err := c.incoming(quiet, limit)
		if err != nil {
			return rollback, err
		}
		if res.Now, err = c.now(quiet); err != nil {
			return rollback, err
		}
		b := placeBatch{
			enqueueBatch: enqueueBatch{c: c, maxAttempts: make(map[int32]int32), keys: make(map[orderingKey]int64)},
			now:          res.Now, touched: make(keySet), log: s.log,
		}
		for i := range rows {
			if err := ctx.Err(); err != nil {
				return rollback, err
			}
			if err := b.place(quiet, &rows[i], &res); err != nil {
				return rollback, err
			}
		}
		if err := b.flush(quiet, 1); err != nil {
			return rollback, err
		}
		heads, err := c.promote(quiet, b.touched.sorted())
		for _, id := range heads {
			res.Ready = earliest(res.Ready, storage.QueueReady{QueueID: id, ReadyTime: res.Now})
		}
		res.More = len(rows) >= limit
		return commit, err
	})
	if err != nil {
		return storage.PlaceResult{Now: now}, err
	}
	return res, nil
}

// earliest keeps the earliest ready time of each queue.
func earliest(all []storage.QueueReady, r storage.QueueReady) []storage.QueueReady {
	for i := range all {
		if all[i].QueueID == r.QueueID {
			if r.ReadyTime.Before(all[i].ReadyTime) {
				all[i].ReadyTime = r.ReadyTime
			}
			return all
		}
	}
	return append(all, r)
}

// incomingRow is a row that waits to be placed.
type incomingRow struct {
	storage.NewMessage

	id         int64
	created    int64
	attributes sql.NullString
	// unreadable says why the row cannot be a message; nil where it can.
	unreadable error
}

func (c *session) incoming(ctx context.Context, limit int) ([]incomingRow, error) {
	var all []incomingRow
	err := c.each(ctx, qOwnIncoming, args(limit), func(rows *row) error {
		var (
			r                        incomingRow
			delay, available, expire sql.NullInt64
		)
		err := rows.Scan(&r.id, &r.QueueID, &r.created, &delay, &available, &expire, &r.Priority, &r.MaxAttempts, &r.IdempotencyKey,
			&r.OrderingKey, &r.WireBytes, &r.ContentType, &r.attributes, &r.Payload)
		if err != nil {
			return err
		}
		// A delay counts from the statement that asked for it.
		if delay.Valid {
			available = sql.NullInt64{Int64: r.created + delay.Int64, Valid: true}
		}
		r.AvailableTime, r.ExpireTime = fromNullMillis(available), fromNullMillis(expire)
		r.read()
		r.ContentHash = storage.ContentHash(&r.NewMessage)
		all = append(all, r)
		return nil
	})
	return all, err
}

// read takes what the constraints of the table cannot judge. SQLite keeps any bytes as text, and
// one such row must not stop those behind it.
func (r *incomingRow) read() {
	if r.Attributes, r.unreadable = fromAttributes(r.attributes); r.unreadable != nil {
		return
	}
	for _, text := range []struct{ column, value string }{
		{"content_type", r.ContentType}, {"idempotency_key", r.IdempotencyKey}, {"ordering_key", r.OrderingKey}, {"attributes", r.attributes.String},
	} {
		if !utf8.ValidString(text.value) {
			r.unreadable = fmt.Errorf("%s is not valid UTF-8", text.column)
			return
		}
	}
}

// refuse sets a row aside, so that it blocks nothing.
func (b *placeBatch) refuse(ctx context.Context, r *incomingRow, why string, res *storage.PlaceResult) error {
	if _, err := b.c.exec(ctx, qOwnRefuse, r.id, why); err != nil {
		return err
	}
	res.Refused++
	b.log.ErrorContext(ctx, "a row of incoming can never become a message and was set aside", "id", r.id, "queue_id", r.QueueID, "error", why)
	return nil
}

// placeBatch is one transaction of Place.
type placeBatch struct {
	enqueueBatch

	now     time.Time
	touched keySet
	log     *slog.Logger
}

// place makes a message of one row, or says why it cannot be one.
func (b *placeBatch) place(ctx context.Context, r *incomingRow, res *storage.PlaceResult) error {
	if r.unreadable != nil {
		return b.refuse(ctx, r, r.unreadable.Error(), res)
	}
	if _, err := b.queue(ctx, r.QueueID); errors.Is(err, storage.ErrQueueNotFound) {
		return b.refuse(ctx, r, "the queue is gone", res)
	} else if err != nil {
		return err
	}
	var position int64
	if err := b.c.one(ctx, qEnqueueDraw, args(1), &position); err != nil {
		return err
	}
	var attributes any
	if r.attributes.Valid {
		attributes = r.attributes.String
	}
	b.created = r.created
	item, err := b.add(ctx, &r.NewMessage, attributes, position, b.now.UnixMilli())
	if err != nil {
		return err
	}
	switch item.Status {
	case storage.EnqueueInserted:
		res.Placed++
		res.Ready = earliest(res.Ready, storage.QueueReady{QueueID: r.QueueID, ReadyTime: item.ReadyTime})
	case storage.EnqueueDuplicate:
		res.Duplicates++
	case storage.EnqueueKeyReused:
		res.Reused++
		if err := b.reuse(ctx, r, attributes, position); err != nil {
			return err
		}
	case storage.EnqueueHeld: // nobody else writes here
	}
	_, err = b.c.exec(ctx, qOwnIncomingDelete, r.id)
	return err
}

// reuse makes a dead message of a row whose idempotency key names another one (E3). Where it
// would have been the head of its ordering key, it blocks the key as any dead head does (O7).
func (b *placeBatch) reuse(ctx context.Context, r *incomingRow, attributes any, position int64) error {
	maxAttempts := b.maxAttempts[r.QueueID]
	if r.MaxAttempts != 0 {
		maxAttempts = r.MaxAttempts
	}
	now := b.now.UnixMilli()
	ready := now
	if at, ok := toInstant(r.AvailableTime).(int64); ok && at > now {
		ready = at
	}
	_, err := b.c.exec(ctx, qOwnReused, position, r.QueueID, now, maxAttempts, r.Priority, ready, r.created,
		toInstant(r.ExpireTime), r.ContentType, r.IdempotencyKey, r.OrderingKey, r.WireBytes, attributes, len(r.Payload), blob(r.Payload))
	if err != nil || r.OrderingKey == "" {
		return err
	}
	keyID, behind, err := b.orderingKey(ctx, &r.NewMessage)
	if err != nil {
		return err
	}
	b.touched[keyID.Int64] = struct{}{}
	if behind {
		return nil
	}
	_, err = b.c.exec(ctx, qKeyBlock, keyID.Int64, position)
	return err
}

// markedRow is a mark, with what it says.
type markedRow struct {
	id             int64
	ref            storage.Ref
	state          sql.NullInt16
	outcome        sql.NullInt16
	action         sql.NullInt16
	deadReason     storage.DeadReason
	settled, ready sql.NullInt64
	token          []byte
}

// Finish implements storage.Own.
func (s *Store) Finish(ctx context.Context, p storage.FinishParams) (storage.FinishResult, error) {
	var res storage.FinishResult
	some, now, err := s.some(ctx, "finish", qOwnMarkedSome)
	res.Now = now
	if err != nil || !some {
		return res, err
	}
	limit := min(max(p.Limit, 1), ownRows)
	err = s.write(ctx, "finish", func(quiet context.Context, c *session) (verdict, error) {
		res = storage.FinishResult{}
		var err error
		if res.Now, err = c.now(quiet); err != nil {
			return rollback, err
		}
		var marks []markedRow
		err = c.each(quiet, qOwnMarked, args(limit), func(rows *row) error {
			var m markedRow
			err := rows.Scan(&m.id, &m.ref.QueueID, &m.ref.Position, &m.state, &m.outcome, &m.action, &m.deadReason, &m.settled, &m.ready, &m.token)
			marks = append(marks, m)
			return err
		})
		if err != nil {
			return rollback, err
		}
		keys := make(keySet)
		for i := range marks {
			if err := ctx.Err(); err != nil {
				return rollback, err
			}
			if err := c.finish(quiet, &marks[i], keys, &res); err != nil {
				return rollback, err
			}
		}
		heads, err := c.promote(quiet, keys.sorted())
		for _, id := range heads {
			res.Ready = earliest(res.Ready, storage.QueueReady{QueueID: id, ReadyTime: res.Now})
		}
		res.More = len(marks) >= limit
		return commit, err
	})
	if err != nil {
		return storage.FinishResult{Now: now}, err
	}
	return res, nil
}

// finish settles one message as its mark says. A mark whose message is not settling (any more)
// only goes.
func (c *session) finish(ctx context.Context, m *markedRow, keys keySet, res *storage.FinishResult) error {
	if m.state.Valid && storage.State(m.state.Int16) == storage.StateSettling {
		outcome := storage.Outcome(m.outcome.Int16)
		if err := c.finishAs(ctx, m, outcome, keys, res); err != nil {
			return err
		}
		if outcome != storage.OutcomeCompleted {
			_, err := c.exec(ctx, qSettleHistory, m.ref.QueueID, m.ref.Position, m.token, m.action.Int16, outcome, m.deadReason, m.settled, m.ready)
			if err != nil {
				return err
			}
		}
		res.Finished = append(res.Finished, storage.FinishedMark{Ref: m.ref, Outcome: outcome})
	}
	_, err := c.exec(ctx, qOwnMarkedDelete, m.id)
	return err
}

func (c *session) finishAs(ctx context.Context, m *markedRow, outcome storage.Outcome, keys keySet, res *storage.FinishResult) error {
	switch outcome {
	case storage.OutcomeRetried:
		var ready int64
		var key sql.NullInt64
		if err := c.one(ctx, qOwnFinishRetry, args(m.ref.Position, res.Now.UnixMilli()), &ready, &key); err != nil {
			return err
		}
		if key.Valid {
			keys[key.Int64] = struct{}{}
		}
		res.Ready = earliest(res.Ready, storage.QueueReady{QueueID: m.ref.QueueID, ReadyTime: fromMillis(ready)})
		return nil
	case storage.OutcomeCompleted:
		if _, err := c.exec(ctx, qOwnFinishComplete, m.ref.Position); err != nil {
			return err
		}
	default:
		state := storage.StateDead
		if outcome == storage.OutcomeCancelled {
			state = storage.StateCancelled
		}
		if _, err := c.exec(ctx, qOwnFinishDead, m.ref.Position, state); err != nil {
			return err
		}
	}
	gone, err := c.remove(ctx, []int64{m.ref.Position})
	if err != nil {
		return err
	}
	keys.add(gone)
	if outcome == storage.OutcomeDead {
		return c.block(ctx, gone)
	}
	return nil
}
