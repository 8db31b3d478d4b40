package queuebox

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// Message is a claimed message. The bytes and the map belong to the receiver.
type Message struct {
	// ID is the identifier that the server gave it, opaque to clients.
	ID string
	// Queue is the queue it was claimed from.
	Queue string
	// Payload is the body.
	Payload []byte
	// ContentType is the media type of the body.
	ContentType string
	// Attributes are the headers.
	Attributes map[string]string
	// IdempotencyKey is the key its producer gave it; together with Queue it is what an
	// external effect should be made idempotent with, since a message can run twice.
	IdempotencyKey string
	// OrderingKey is empty where the message has no order.
	OrderingKey string
	// Priority is larger where the message runs sooner.
	Priority int32
	// Attempt counts deliveries, this one included: 1 on the first. A release gives it back.
	Attempt int32
	// MaxAttempts is how many deliveries are allowed; 0 means no limit.
	MaxAttempts int32
	// CreateTime is when it was enqueued, by the database clock.
	CreateTime time.Time
	// AvailableTime is when it became claimable, by the database clock.
	AvailableTime time.Time
	// ExpireTime is when it stops being worth running; zero where it never does.
	ExpireTime time.Time
	// LastError is the error text of the last retry.
	LastError string
}

// LastAttempt tells whether a retry of this delivery would end the message as dead (S4).
func (m *Message) LastAttempt() bool {
	return m.MaxAttempts > 0 && m.Attempt >= m.MaxAttempts
}

func newMessage(queue string, m *queueboxv1.Message) *Message {
	return &Message{
		ID:             m.GetMessageId(),
		Queue:          queue,
		Payload:        m.GetPayload(),
		ContentType:    m.GetContentType(),
		Attributes:     m.GetAttributes(),
		IdempotencyKey: m.GetIdempotencyKey(),
		OrderingKey:    m.GetOrderingKey(),
		Priority:       m.GetPriority(),
		Attempt:        m.GetAttempt(),
		MaxAttempts:    m.GetMaxAttempts(),
		CreateTime:     timeOf(m.GetCreateTime()),
		AvailableTime:  timeOf(m.GetAvailableTime()),
		ExpireTime:     timeOf(m.GetExpireTime()),
		LastError:      m.GetLastError(),
	}
}

// timeOf keeps an absent time the zero time; AsTime would make it 1970.
func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// milliseconds rounds away from zero: a short delay must not become none, and a negative one
// must still be refused by the server.
func milliseconds(d time.Duration) int64 {
	ms := d.Milliseconds()
	switch rest := d - time.Duration(ms)*time.Millisecond; {
	case rest > 0:
		return ms + 1
	case rest < 0:
		return ms - 1
	default:
		return ms
	}
}
