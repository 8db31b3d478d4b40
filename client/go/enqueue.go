package queuebox

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// enqueueTries bounds how often a keyed enqueue is sent. A producer has a caller of its own who
// waits; unlike a claim it does not go on for ever.
const enqueueTries = 5

// NewMessage is a message to enqueue.
type NewMessage struct {
	// Payload is the body, up to the limit of the server (1 MiB unless it is set otherwise).
	Payload []byte
	// ContentType is the media type of the body, at most 255 bytes.
	ContentType string
	// Attributes are headers: at most 64, and 64 KiB in all.
	Attributes map[string]string
	// IdempotencyKey makes the enqueue safe to repeat (E1): a second message with the key of a
	// kept one is the same message. At most 255 bytes; empty means none.
	IdempotencyKey string
	// OrderingKey puts the messages of one key in order: the next one is delivered when the one
	// before has been settled for good (O1, O5). At most 255 bytes; empty means no order.
	OrderingKey string
	// Priority is larger where the message runs sooner.
	Priority int32
	// Delay hides the message for that long by the database clock. It is rounded up to
	// milliseconds.
	Delay time.Duration
	// AvailableTime hides it until then by the database clock, instead of Delay. The past means
	// now.
	AvailableTime time.Time
	// MaxAttempts is how many deliveries are allowed; 0 takes the setting of the queue.
	MaxAttempts int32
	// ExpireTime is when the message stops being worth a delivery, by the database clock: from
	// then on it is dead (EXPIRED), but for a lease that is live. Zero: never.
	ExpireTime time.Time
}

// Enqueued names a message in its queue.
type Enqueued struct {
	// MessageID is the identifier of the message, or of the one that holds the idempotency key.
	MessageID string
	// Duplicate is true where the idempotency key was there already; nothing was inserted.
	Duplicate bool
}

// Enqueue inserts a message. Once it returned without an error the message survives any crash
// (E10).
//
// A message with an IdempotencyKey is sent up to five times where no answer comes. One without is
// sent once: after an error that matches ErrUnavailable, context.DeadlineExceeded or
// context.Canceled it may be in the queue or not. Without a deadline in ctx a try ends after 30
// seconds.
func (c *Client) Enqueue(ctx context.Context, queue string, m NewMessage) (Enqueued, error) {
	req := m.request(queue)
	var resp *queueboxv1.EnqueueResponse
	err := c.produce(ctx, "enqueue", m.IdempotencyKey != "", func(ctx context.Context) (err error) {
		resp, err = c.producer.Enqueue(ctx, req)
		return err
	})
	if err != nil {
		return Enqueued{}, err
	}
	return Enqueued{MessageID: resp.GetMessageId(), Duplicate: resp.GetDuplicate()}, nil
}

// EnqueueBatch inserts messages of one queue, all or none (E9), at most 1000. The answers are in
// the order of the messages. It is repeated like Enqueue where every message has an
// IdempotencyKey.
func (c *Client) EnqueueBatch(ctx context.Context, queue string, ms []NewMessage) ([]Enqueued, error) {
	if len(ms) == 0 {
		return nil, nil
	}
	req := &queueboxv1.BatchEnqueueRequest{Requests: make([]*queueboxv1.EnqueueRequest, len(ms))}
	keyed := true
	for i, m := range ms {
		req.Requests[i] = m.request(queue)
		keyed = keyed && m.IdempotencyKey != ""
	}
	var resp *queueboxv1.BatchEnqueueResponse
	err := c.produce(ctx, "batch enqueue", keyed, func(ctx context.Context) (err error) {
		resp, err = c.producer.BatchEnqueue(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(resp.GetResponses()) != len(ms) {
		return nil, fmt.Errorf("queuebox: batch enqueue: %d answers to %d messages", len(resp.GetResponses()), len(ms))
	}
	out := make([]Enqueued, len(ms))
	for i, r := range resp.GetResponses() {
		out[i] = Enqueued{MessageID: r.GetMessageId(), Duplicate: r.GetDuplicate()}
	}
	return out, nil
}

// produce sends a call of a producer, again and again where that is safe: with a key.
func (c *Client) produce(ctx context.Context, op string, keyed bool, send func(context.Context) error) error {
	pause := pauses{base: 50 * time.Millisecond, limit: time.Second}
	for try := 1; ; try++ {
		err := send(ctx)
		if err == nil {
			return nil
		}
		e := fromRPC(op, err)
		if !keyed || try == enqueueTries || ctx.Err() != nil || !e.unanswered() {
			return c.orClosed(e)
		}
		c.logger.WarnContext(ctx, "a call is sent again", "call", op, "try", try, "error", e)
		if c.sleep(ctx, pause.next(e.RetryDelay)) != nil {
			return c.orClosed(e)
		}
	}
}

func (m *NewMessage) request(queue string) *queueboxv1.EnqueueRequest {
	req := &queueboxv1.EnqueueRequest{
		Queue:          queue,
		Payload:        m.Payload,
		ContentType:    m.ContentType,
		Attributes:     m.Attributes,
		IdempotencyKey: m.IdempotencyKey,
		OrderingKey:    m.OrderingKey,
		Priority:       m.Priority,
		DelayMs:        milliseconds(m.Delay),
		MaxAttempts:    m.MaxAttempts,
	}
	if !m.AvailableTime.IsZero() {
		req.AvailableTime = timestamppb.New(m.AvailableTime)
	}
	if !m.ExpireTime.IsZero() {
		req.ExpireTime = timestamppb.New(m.ExpireTime)
	}
	return req
}
