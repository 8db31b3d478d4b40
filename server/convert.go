package server

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/server/wireid"
	"github.com/queuebox/queuebox/storage"
)

// stamp puts a time on the wire; nil for a time that is not set.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// wireState shows a state. A message that a transaction of its worker has marked is
// shown as processing until the transaction is finished.
func wireState(s storage.State) queueboxv1.MessageState {
	switch s {
	case storage.StatePending:
		return queueboxv1.MessageState_MESSAGE_STATE_PENDING
	case storage.StateProcessing, storage.StateSettling:
		return queueboxv1.MessageState_MESSAGE_STATE_PROCESSING
	case storage.StateCompleted:
		return queueboxv1.MessageState_MESSAGE_STATE_COMPLETED
	case storage.StateDead:
		return queueboxv1.MessageState_MESSAGE_STATE_DEAD
	case storage.StateCancelled:
		return queueboxv1.MessageState_MESSAGE_STATE_CANCELLED
	}
	return queueboxv1.MessageState_MESSAGE_STATE_UNSPECIFIED
}

// stamps makes one stamp of times that are the same and stand side by side: those of a batch
// are mostly the clock of one statement.
type stamps struct {
	last time.Time
	ts   *timestamppb.Timestamp
}

func (s *stamps) of(t time.Time) *timestamppb.Timestamp {
	if s.ts == nil || !t.Equal(s.last) {
		s.last, s.ts = t, stamp(t)
	}
	return s.ts
}

// stampIn is stamp with a place for the time.
func stampIn(place *timestamppb.Timestamp, t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	place.Seconds, place.Nanos = t.Unix(), int32(t.Nanosecond())
	return place
}

// messageParts is a message on the wire with the parts that it points to. A batch of a thousand
// messages in one piece of memory costs one allocation and not seven thousand.
type messageParts struct {
	claimed                             queueboxv1.ClaimedMessage
	message                             queueboxv1.Message
	create, available, expire, leaseEnd timestamppb.Timestamp
}

func wireMessage(queue string, m *storage.Message) *queueboxv1.Message {
	return new(messageParts).show(queue, wireid.Message(m.Ref), m)
}

// show fills in the message.
func (p *messageParts) show(queue, id string, m *storage.Message) *queueboxv1.Message {
	w := &p.message
	w.MessageId = id
	w.Queue = queue
	w.IdempotencyKey = m.IdempotencyKey
	w.Payload = m.Payload
	w.ContentType = m.ContentType
	w.Attributes = m.Attributes
	w.OrderingKey = m.OrderingKey
	w.Priority = m.Priority
	w.State = wireState(m.State)
	w.Attempt = m.Attempt
	w.MaxAttempts = m.MaxAttempts
	w.CreateTime = stampIn(&p.create, m.CreateTime)
	w.AvailableTime = stampIn(&p.available, m.ReadyTime)
	w.ExpireTime = stampIn(&p.expire, m.ExpireTime)
	w.LastError = m.LastError
	w.DeadReason = queueboxv1.DeadReason(m.DeadReason)
	w.WorkerId = m.WorkerID
	w.LeaseExpireTime = stampIn(&p.leaseEnd, m.LeaseEnd)
	w.PayloadBytes = m.PayloadBytes
	w.Result = m.Result
	w.ReasonCode = m.ReasonCode
	return w
}

// wireClaims shows claimed messages of a queue, whose statement had the clock now and was sent
// since ago.
func wireClaims(queue string, ms []storage.Claimed, now time.Time, since time.Duration) []*queueboxv1.ClaimedMessage {
	out := make([]*queueboxv1.ClaimedMessage, len(ms))
	parts := make([]messageParts, len(ms))
	text := make([]byte, 0, len(ms)*(wireid.MessageLen+wireid.TokenLen))
	for i := range ms {
		text = wireid.AppendToken(wireid.AppendMessage(text, ms[i].Message.Ref), ms[i].Token)
	}
	names := string(text)
	for i := range ms {
		m, p := &ms[i].Message, &parts[i]
		id, rest := names[:wireid.MessageLen], names[wireid.MessageLen:]
		c := &p.claimed
		c.Message = p.show(queue, id, m)
		c.ClaimToken, names = rest[:wireid.TokenLen], rest[wireid.TokenLen:]
		c.LeaseExpireTime = c.GetMessage().GetLeaseExpireTime()
		c.LeaseRemainingMs = remaining(m.LeaseEnd, now, since)
		out[i] = c
	}
	return out
}

// messageIDs are the ids of messages.
func messageIDs(refs []storage.Ref) []string {
	if len(refs) == 0 {
		return nil
	}
	text := make([]byte, 0, len(refs)*wireid.MessageLen)
	for _, ref := range refs {
		text = wireid.AppendMessage(text, ref)
	}
	names := string(text)
	ids := make([]string, len(refs))
	for i := range ids {
		ids[i], names = names[:wireid.MessageLen], names[wireid.MessageLen:]
	}
	return ids
}

// remaining is what is left of a lease, in whole milliseconds rounded down: the end
// less the clock of the statement that wrote it, less all local time since that
// statement was sent. It errs on the side of less.
func remaining(end, statement time.Time, sinceSent time.Duration) int64 {
	return max(0, (end.Sub(statement) - sinceSent).Milliseconds())
}
