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

func wireMessage(queue string, m *storage.Message) *queueboxv1.Message {
	return &queueboxv1.Message{
		MessageId:       wireid.Message(m.Ref),
		Queue:           queue,
		IdempotencyKey:  m.IdempotencyKey,
		Payload:         m.Payload,
		ContentType:     m.ContentType,
		Attributes:      m.Attributes,
		OrderingKey:     m.OrderingKey,
		Priority:        m.Priority,
		State:           wireState(m.State),
		Attempt:         m.Attempt,
		MaxAttempts:     m.MaxAttempts,
		CreateTime:      stamp(m.CreateTime),
		AvailableTime:   stamp(m.ReadyTime),
		ExpireTime:      stamp(m.ExpireTime),
		LastError:       m.LastError,
		DeadReason:      queueboxv1.DeadReason(m.DeadReason),
		WorkerId:        m.WorkerID,
		LeaseExpireTime: stamp(m.LeaseEnd),
		PayloadBytes:    m.PayloadBytes,
		Result:          m.Result,
		ReasonCode:      m.ReasonCode,
	}
}

// remaining is what is left of a lease, in whole milliseconds rounded down: the end
// less the clock of the statement that wrote it, less all local time since that
// statement was sent. It errs on the side of less.
func remaining(end, statement time.Time, sinceSent time.Duration) int64 {
	return max(0, (end.Sub(statement) - sinceSent).Milliseconds())
}
