package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"

	"github.com/queuebox/queuebox/storage"
)

// scanLive reads a row of the columns that claim_held, get_live and list_live share. more takes
// what a statement reads beyond them.
func scanLive(rows interface{ Scan(...any) error }, more ...any) (storage.Claimed, error) {
	var (
		c                storage.Claimed
		token            []byte
		attributes       sql.NullString
		state            storage.State
		outcome          sql.NullInt16
		create, ready    int64
		expire, leaseEnd sql.NullInt64
	)
	m := &c.Message
	columns := append(args(&token, &m.Ref.Position, &m.Ref.QueueID, &m.IdempotencyKey, &m.PayloadBytes, &m.ContentType, &attributes,
		&m.OrderingKey, &m.Priority, &state, &outcome, &m.Attempt, &m.MaxAttempts, &create, &ready, &expire,
		&m.LastError, &m.ReasonCode, &m.WorkerID, &leaseEnd, &m.Payload), more...)
	if err := rows.Scan(columns...); err != nil {
		return c, err
	}
	copy(c.Token[:], token)
	m.LastError, m.ReasonCode = readable(m.LastError), readable(m.ReasonCode)
	m.State = shownState(state, storage.Outcome(outcome.Int16))
	m.CreateTime, m.ReadyTime = fromMillis(create), fromMillis(ready)
	m.ExpireTime = fromNullMillis(expire)
	if state == storage.StateProcessing {
		m.LeaseEnd = fromNullMillis(leaseEnd)
	}
	var err error
	m.Attributes, err = fromAttributes(attributes)
	return c, err
}

// scanClaimable reads a row of claim_scan, and its size on the wire.
func scanClaimable(r *row) (c storage.Claimed, wire int64, err error) {
	var (
		attributes, idempotency, ordering, failure, code sql.NullString
		create, ready                                    int64
		expire                                           sql.NullInt64
	)
	m := &c.Message
	err = r.Scan(&m.Ref.Position, &wire, &m.PayloadBytes, &m.ContentType, &m.Attempt, &m.MaxAttempts, &create, &ready, &expire,
		&idempotency, &attributes, &ordering, &failure, &code, &m.Payload)
	if err != nil {
		return c, wire, err
	}
	m.IdempotencyKey, m.OrderingKey = idempotency.String, ordering.String
	m.LastError, m.ReasonCode = readable(failure.String), readable(code.String)
	m.CreateTime, m.ReadyTime = fromMillis(create), fromMillis(ready)
	m.ExpireTime = fromNullMillis(expire)
	m.Attributes, err = fromAttributes(attributes)
	return c, wire, err
}

// scanShown reads a row of get_live or list_live: a marked message shows what its mark says (E12).
func scanShown(rows interface{ Scan(...any) error }) (storage.Message, error) {
	var (
		settling, retried   bool
		reason              storage.DeadReason
		settled, ready      sql.NullInt64
		failure, reasonCode sql.NullString
		result              []byte
	)
	c, err := scanLive(rows, &settling, &retried, &reason, &settled, &ready, &failure, &reasonCode, &result)
	m := c.Message
	if err != nil || !settling {
		return m, err
	}
	m.DeadReason, m.Result = reason, result
	if retried {
		m.ReadyTime = fromNullMillis(ready)
	} else {
		m.FinishTime = fromNullMillis(settled)
	}
	if m.State != storage.StateCompleted {
		m.LastError, m.ReasonCode = readable(failure.String), readable(reasonCode.String)
	}
	return m, nil
}

// scanFinished reads a row of the columns that get_completed, get_dead, list_completed
// and list_dead share.
func scanFinished(rows interface{ Scan(...any) error }) (storage.Message, error) {
	var (
		m                     storage.Message
		attributes            sql.NullString
		create, ready, finish int64
		expire                sql.NullInt64
	)
	err := rows.Scan(&m.Ref.Position, &m.Ref.QueueID, &m.IdempotencyKey, &m.PayloadBytes, &m.ContentType, &attributes,
		&m.OrderingKey, &m.Priority, &m.State, &m.DeadReason, &m.Attempt, &m.MaxAttempts, &create, &ready, &expire,
		&m.LastError, &m.ReasonCode, &m.WorkerID, &finish, &m.Result, &m.Payload)
	if err != nil {
		return m, err
	}
	m.LastError, m.ReasonCode = readable(m.LastError), readable(m.ReasonCode)
	m.CreateTime, m.ReadyTime, m.FinishTime = fromMillis(create), fromMillis(ready), fromMillis(finish)
	m.ExpireTime = fromNullMillis(expire)
	m.Attributes, err = fromAttributes(attributes)
	return m, err
}

// withPayload turns the empty payload, which the driver reads as nil, into one that is
// there, and takes away one that was not asked for.
func withPayload(m storage.Message, wanted bool) storage.Message {
	switch {
	case !wanted:
		m.Payload = nil
	case m.Payload == nil:
		m.Payload = []byte{}
	}
	return m
}

// GetMessage implements storage.Admin.
func (s *Store) GetMessage(ctx context.Context, ref storage.Ref, payload bool) (storage.Message, error) {
	var m storage.Message
	err := s.read(ctx, "get message", func(c *session) (err error) {
		m, err = c.message(ctx, ref, payload)
		return err
	})
	if err != nil {
		return storage.Message{}, err
	}
	return m, nil
}

// message reads a message, live or finished and kept; ErrMessageNotFound where there is none.
func (c *session) message(ctx context.Context, ref storage.Ref, payload bool) (storage.Message, error) {
	var m storage.Message
	a := args(ref.QueueID, ref.Position, payload)
	err := c.each(ctx, qGetLive, a, func(rows *row) error {
		var err error
		m, err = scanShown(rows)
		return err
	})
	for _, q := range []query{qGetCompleted, qGetDead} {
		if err != nil || m.Ref.Position != 0 {
			break
		}
		err = c.each(ctx, q, a, func(rows *row) (err error) {
			m, err = scanFinished(rows)
			return err
		})
	}
	if err == nil && m.Ref.Position == 0 {
		err = storage.ErrMessageNotFound
	}
	return withPayload(m, payload), err
}

// ListMessages implements storage.Admin. A message is in one of three tables; all are
// read on one snapshot and merged by position, which never changes, so that pages are
// stable.
func (s *Store) ListMessages(ctx context.Context, p storage.ListMessagesParams) (storage.ListMessagesResult, error) {
	before, from := p.Before, int64(math.MinInt64)
	if before <= 0 {
		before = math.MaxInt64
	}
	if len(p.Positions) > 0 {
		// Nobody walks over a whole table for a few positions that lie together.
		from = slices.Min(p.Positions)
		before = min(before, slices.Max(p.Positions)+1)
	}
	filters, err := listFilters(p)
	if err != nil {
		return storage.ListMessagesResult{}, fmt.Errorf("list messages: %w", err)
	}
	var all []storage.Message
	err = s.read(ctx, "list messages", func(c *session) error {
		a := append(args(p.QueueID, before), filters...)
		a = append(a, p.Payload, p.Limit+1, from)
		var live, completed, dead []storage.Message
		if len(p.DeadReasons) == 0 {
			err := c.each(ctx, qListLive, a, func(rows *row) error {
				m, err := scanShown(rows)
				live = append(live, m)
				return err
			})
			if err != nil {
				return err
			}
			err = c.each(ctx, qListCompleted, a, func(rows *row) error {
				m, err := scanFinished(rows)
				completed = append(completed, m)
				return err
			})
			if err != nil {
				return err
			}
		}
		reasons, err := toJSON(orEmpty(p.DeadReasons))
		if err != nil {
			return err
		}
		err = c.each(ctx, qListDead, append(a, reasons), func(rows *row) error {
			m, err := scanFinished(rows)
			dead = append(dead, m)
			return err
		})
		all = mergeNewest(p.Limit+1, live, completed, dead)
		return err
	})
	if err != nil {
		return storage.ListMessagesResult{}, err
	}
	var res storage.ListMessagesResult
	if len(all) > p.Limit {
		all = all[:p.Limit]
		res.Next = all[p.Limit-1].Ref.Position
	}
	for i := range all {
		all[i] = withPayload(all[i], p.Payload)
	}
	res.Messages = all
	return res, nil
}

// listFilters gives the parameters 3 to 10 of the list statements.
func listFilters(p storage.ListMessagesParams) ([]any, error) {
	states, err := toJSON(orEmpty(p.States))
	if err != nil {
		return nil, err
	}
	codes, err := toJSON(orEmpty(p.ReasonCodes))
	if err != nil {
		return nil, err
	}
	positions, err := toJSON(orEmpty(p.Positions))
	if err != nil {
		return nil, err
	}
	return args(states, p.OrderingKey, codes, p.ErrorContains, p.WorkerID,
		toInstant(p.MinCreateTime), toInstant(p.MaxCreateTime), positions), nil
}

// orEmpty makes a nil list one that JSON writes as a list.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// mergeNewest merges lists that are sorted newest first, up to limit.
func mergeNewest(limit int, lists ...[]storage.Message) []storage.Message {
	var out []storage.Message
	for len(out) < limit {
		best, newest := -1, int64(0)
		for i, l := range lists {
			if len(l) > 0 && (best < 0 || l[0].Ref.Position > newest) {
				best, newest = i, l[0].Ref.Position
			}
		}
		if best < 0 {
			break
		}
		out = append(out, lists[best][0])
		lists[best] = lists[best][1:]
	}
	return out
}
