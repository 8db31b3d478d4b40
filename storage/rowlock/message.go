package rowlock

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// positionOf is the position of the message that has an id: odd where it has an ordering key.
func positionOf(id int64, keyed bool) int64 {
	if keyed {
		return id<<1 | 1
	}
	return id << 1
}

// idOf is the id of the message at a position.
func idOf(position int64) int64 { return position >> 1 }

// keyed tells whether a message has an ordering key. Whatever may end or move such a message
// locks its key first; only a claim and a renewal do not.
func keyed(ref storage.Ref) bool { return ref.Position&1 == 1 }

// scanClaimed reads {{message_columns}} and the payload of a live message, and into more what
// a statement has beyond them. The message is as its row says: a claim fills in what it writes.
func (c *session) scanClaimed(rows *sql.Rows, more ...any) (storage.Claimed, error) {
	out, _, err := c.scanLive(rows, more...)
	out.Message = withPayload(out.Message, true)
	return out, err
}

// scanLive is scanClaimed, and tells the state that stands in the row.
func (c *session) scanLive(rows *sql.Rows, more ...any) (out storage.Claimed, state storage.State, err error) {
	var (
		id, urgency                        int64
		key                                sql.NullInt64
		outcome                            sql.NullInt16
		expire, leaseEnd                   sql.NullTime
		attributes, orderingKey, lastError sql.NullString
		m                                  = &out.Message
	)
	into := append(make([]any, 0, 24+len(more)),
		&id, &m.Ref.QueueID, &key, c.s.engine.Values.ScanToken((*[16]byte)(&out.Token)), &state, &outcome, &urgency,
		&m.Attempt, &m.MaxAttempts, &m.PayloadBytes, &m.IdempotencyKey, &m.ContentType, &attributes, &orderingKey,
		&m.CreateTime, &m.ReadyTime, &expire, &leaseEnd, &lastError, &m.ReasonCode, &m.WorkerID, &m.Payload,
	)
	if err := rows.Scan(append(into, more...)...); err != nil {
		return out, state, err
	}
	m.Ref.Position = positionOf(id, key.Valid)
	m.Priority = int32(-urgency)
	m.OrderingKey, m.LastError, m.ReasonCode = orderingKey.String, readable(lastError.String), readable(m.ReasonCode)
	m.State = shownState(state, storage.Outcome(outcome.Int16))
	m.CreateTime, m.ReadyTime, m.ExpireTime = m.CreateTime.UTC(), m.ReadyTime.UTC(), utc(expire)
	if state == storage.StateProcessing {
		m.LeaseEnd = utc(leaseEnd)
	}
	m.Attributes, err = attributesOf(attributes)
	return out, state, err
}

// scanShown reads {{message_columns}}, the payload and {{mark_columns}} of a live message, as
// everybody sees it: a marked one shows what its mark says (E12).
func (c *session) scanShown(rows *sql.Rows) (storage.Message, error) {
	var (
		reason              sql.NullInt16
		settled             sql.NullTime
		delay               sql.NullInt64
		failure, reasonCode sql.NullString
		result              []byte
	)
	out, state, err := c.scanLive(rows, &reason, &settled, &delay, &failure, &reasonCode, &result)
	m := out.Message
	if err != nil || state != storage.StateSettling {
		return m, err
	}
	m.DeadReason, m.Result = storage.DeadReason(reason.Int16), result
	if m.State == storage.StatePending {
		m.ReadyTime = utc(settled).Add(microseconds(delay.Int64))
	} else {
		m.FinishTime = utc(settled)
	}
	if m.State != storage.StateCompleted {
		m.LastError, m.ReasonCode = readable(failure.String), readable(reasonCode.String)
	}
	return m, nil
}

// scanFinished reads {{finished_columns}}, the state, the reason of the death, the result and
// the payload of a finished message.
func scanFinished(rows *sql.Rows) (storage.Message, error) {
	var (
		m                     storage.Message
		id                    int64
		expire                sql.NullTime
		attributes, lastError sql.NullString
	)
	err := rows.Scan(&id, &m.Ref.QueueID, &m.Priority, &m.Attempt, &m.MaxAttempts, &m.PayloadBytes, &m.IdempotencyKey,
		&m.ContentType, &attributes, &m.OrderingKey, &m.CreateTime, &m.ReadyTime, &expire, &m.FinishTime, &lastError,
		&m.ReasonCode, &m.WorkerID, &m.State, &m.DeadReason, &m.Result, &m.Payload)
	if err != nil {
		return m, err
	}
	m.Ref.Position = positionOf(id, m.OrderingKey != "")
	m.LastError, m.ReasonCode = readable(lastError.String), readable(m.ReasonCode)
	m.CreateTime, m.ReadyTime, m.FinishTime, m.ExpireTime = m.CreateTime.UTC(), m.ReadyTime.UTC(), m.FinishTime.UTC(), utc(expire)
	m.Attributes, err = attributesOf(attributes)
	return m, err
}

// withPayload turns the empty payload, which a driver may read as nil, into one that is there,
// and takes away one that was not asked for.
func withPayload(m storage.Message, wanted bool) storage.Message {
	switch {
	case !wanted:
		m.Payload = nil
	case m.Payload == nil:
		m.Payload = []byte{}
	}
	return m
}

// shownState is the state that everybody sees: a marked message (E12) shows its outcome.
func shownState(state storage.State, outcome storage.Outcome) storage.State {
	if state != storage.StateSettling {
		return state
	}
	switch outcome {
	case storage.OutcomeCompleted:
		return storage.StateCompleted
	case storage.OutcomeDead:
		return storage.StateDead
	case storage.OutcomeCancelled:
		return storage.StateCancelled
	default:
		return storage.StatePending
	}
}

// readable is a text that a worker may have given in a transaction of his own (E12): the wire
// carries valid UTF-8 alone, and S9 removes NUL. It never grows.
func readable(s string) string {
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "")
	}
	return strings.ToValidUTF8(s, "?")
}

// attributesText is how attributes are stored; no map and an empty one stay two things.
func attributesText(m map[string]string) ([]byte, error) {
	if m == nil {
		return nil, nil
	}
	text, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("attributes: %w", err)
	}
	return text, nil
}

func attributesOf(text sql.NullString) (map[string]string, error) {
	if !text.Valid {
		return nil, nil //nolint:nilnil // No attributes are a nil map.
	}
	m := map[string]string{}
	if err := json.Unmarshal([]byte(text.String), &m); err != nil {
		return nil, fmt.Errorf("attributes: %w", err)
	}
	return m, nil
}

func utc(t sql.NullTime) time.Time {
	if !t.Valid {
		return time.Time{}
	}
	return t.Time.UTC()
}

func microseconds(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
