package postgres

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
)

func scanMessage(r pgx.Rows) (storage.Message, error) {
	var (
		m                                               storage.Message
		key, attributes, ordering, lastError, reason, w *string
		bytes                                           int32
		state, dead                                     int16
		create, ready, expire, lease, finish            *time.Time
	)
	err := r.Scan(
		&m.Ref.QueueID, &m.Ref.Position, &key, &m.Payload, &bytes, &m.ContentType, &attributes,
		&ordering, &m.Priority, &state, &m.Attempt, &m.MaxAttempts, &create, &ready, &expire,
		&lastError, &dead, &reason, &w, &lease, &finish, &m.Result,
	)
	if err != nil {
		return m, err
	}
	m.IdempotencyKey, m.OrderingKey, m.LastError, m.ReasonCode, m.WorkerID = text(key), text(ordering), text(lastError), text(reason), text(w)
	m.PayloadBytes, m.State, m.DeadReason = int64(bytes), storage.State(state), storage.DeadReason(dead)
	m.CreateTime, m.ReadyTime, m.ExpireTime, m.LeaseEnd, m.FinishTime = utc(create), utc(ready), utc(expire), utc(lease), utc(finish)
	m.Attributes, err = attributesOf(attributes)
	return m, err
}

// GetMessage implements storage.Admin.
func (s *Store) GetMessage(ctx context.Context, ref storage.Ref, payload bool) (storage.Message, error) {
	var (
		out   storage.Message
		found bool
	)
	err := s.read(ctx, "get message", step{
		sql: s.sql.messageGet, args: []any{ref.QueueID, ref.Position, payload},
		scan: each(func() { found = false }, func(r pgx.Rows) (err error) {
			found = true
			out, err = scanMessage(r)
			return err
		}),
	})
	if err != nil {
		return storage.Message{}, err
	}
	if !found {
		return storage.Message{}, fmt.Errorf("postgres: get message: %w", storage.ErrMessageNotFound)
	}
	return out, nil
}

// ListMessages implements storage.Admin. It asks for one row more than the page, to
// know whether there is a next one.
func (s *Store) ListMessages(ctx context.Context, p storage.ListMessagesParams) (storage.ListMessagesResult, error) {
	var out storage.ListMessagesResult
	limit := max(p.Limit, 1)
	before := p.Before
	if before == 0 {
		before = math.MaxInt64
	}
	err := s.read(ctx, "list messages", step{
		sql:  s.sql.messageList,
		args: append(filterArgs(p), before, int64(limit)+1, p.Payload),
		scan: each(func() { out.Messages = nil }, func(r pgx.Rows) error {
			m, err := scanMessage(r)
			out.Messages = append(out.Messages, m)
			return err
		}),
	})
	if err != nil {
		return storage.ListMessagesResult{}, err
	}
	if len(out.Messages) > limit {
		out.Messages = out.Messages[:limit]
		out.Next = out.Messages[limit-1].Ref.Position
	}
	return out, nil
}

// filterArgs are the parameters $1 to $10 of the statements that share the filter.
func filterArgs(p storage.ListMessagesParams) []any {
	states := make([]int16, 0, len(p.States))
	for _, st := range p.States {
		states = append(states, int16(st))
	}
	reasons := make([]int16, 0, len(p.DeadReasons))
	for _, r := range p.DeadReasons {
		reasons = append(reasons, int16(r))
	}
	codes := p.ReasonCodes
	if codes == nil {
		codes = []string{}
	}
	positions := p.Positions
	if positions == nil {
		positions = []int64{}
	}
	return []any{
		p.QueueID, states, p.OrderingKey, reasons, codes, p.ErrorContains, p.WorkerID,
		nullTime(p.MinCreateTime), nullTime(p.MaxCreateTime), positions,
	}
}
