package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
)

// replay answers a call whose claim id was used before (C14). found is false where
// the earlier call does not exist any more.
func (s *Store) replay(ctx context.Context, queueID int32, call storage.ClaimCall) (out storage.ClaimOutcome, now time.Time, found bool, err error) {
	id := [16]byte(call.ClaimID)
	var owner *string
	err = s.write(
		ctx, "claim: replay",
		step{sql: s.sql.claimCalls, args: []any{queueID, [][16]byte{id}}, scan: each(
			func() { owner = nil },
			func(r pgx.Rows) error {
				var other [16]byte
				return r.Scan(&other, &owner)
			},
		)},
		// From here on the row of the call is locked: a give-back waits, and finds it replayed.
		step{sql: s.sql.claimReplayed, args: []any{queueID, id, call.WorkerID}, scan: each(
			func() { found = false },
			func(r pgx.Rows) error {
				found = true
				return r.Scan(&now)
			},
		)},
		step{sql: s.sql.claimReplay, args: []any{queueID, id}, scan: each(
			func() { out = storage.ClaimOutcome{Status: storage.ClaimReplayed} },
			func(r pgx.Rows) error {
				var token [16]byte
				var m claimedColumns
				if err := r.Scan(append([]any{&token}, m.targets()...)...); err != nil {
					return err
				}
				message, err := m.message(queueID)
				if err != nil {
					return err
				}
				out.Messages = append(out.Messages, storage.Claimed{Message: message, Token: storage.Token(token)})
				return nil
			},
		)},
	)
	if err != nil {
		return storage.ClaimOutcome{}, time.Time{}, false, err
	}
	if owner != nil && *owner != call.WorkerID {
		now, err := s.Now(ctx)
		return storage.ClaimOutcome{Status: storage.ClaimIDReused}, now, true, err
	}
	return out, now.UTC(), found, nil
}

// GiveBack implements storage.Store. C15.
func (s *Store) GiveBack(ctx context.Context, p storage.GiveBackParams) (storage.GiveBackResult, error) {
	positions := make([]int64, 0, len(p.Claims))
	tokens := make([][16]byte, 0, len(p.Claims))
	var ordered []storage.Ref
	for _, c := range p.Claims {
		if c.Ref.QueueID == p.QueueID {
			positions = append(positions, c.Ref.Position)
			tokens = append(tokens, c.Token)
			if keyed(c.Ref) {
				ordered = append(ordered, c.Ref)
			}
		}
	}
	st := step{sql: s.sql.giveBack, args: []any{p.QueueID, positions, tokens}}
	if p.ClaimID != (storage.ClaimID{}) {
		st = step{sql: s.sql.giveBackCall, args: []any{p.QueueID, positions, tokens, [16]byte(p.ClaimID)}}
	}
	var (
		now   time.Time
		count int64
	)
	st.scan = one(func(r pgx.Rows) error { return r.Scan(&now, &count) })
	steps := []step{st}
	if len(ordered) > 0 {
		// A head that is given back steps behind one that was redriven meanwhile (O7).
		steps = s.withKeys(ordered, 0, nil, st)
	}
	if err := s.write(ctx, "give back", steps...); err != nil {
		return storage.GiveBackResult{}, err
	}
	return storage.GiveBackResult{GivenBack: int(count), Now: now.UTC()}, nil
}

// claimedColumns are the columns of a message that a replay returns.
type claimedColumns struct {
	position                                     *int64
	key, contentType, lastError, reason, worker  *string
	ordering, attributes                         *string
	payload                                      []byte
	payloadBytes, priority, attempt, maxAttempts *int32
	createTime, readyTime, expireTime, leaseEnd  *time.Time
}

func (c *claimedColumns) targets() []any {
	return []any{
		&c.position, &c.key, &c.payload, &c.payloadBytes, &c.contentType, &c.attributes, &c.priority, &c.attempt,
		&c.maxAttempts, &c.createTime, &c.readyTime, &c.expireTime, &c.lastError, &c.reason, &c.worker,
		&c.leaseEnd, &c.ordering,
	}
}

func (c *claimedColumns) message(queueID int32) (storage.Message, error) {
	attributes, err := attributesOf(c.attributes)
	if err != nil {
		return storage.Message{}, err
	}
	return storage.Message{
		Ref:            storage.Ref{QueueID: queueID, Position: *c.position},
		IdempotencyKey: text(c.key),
		Payload:        c.payload,
		PayloadBytes:   int64(*c.payloadBytes),
		ContentType:    text(c.contentType),
		Attributes:     attributes,
		OrderingKey:    text(c.ordering),
		Priority:       *c.priority,
		State:          storage.StateProcessing,
		Attempt:        *c.attempt,
		MaxAttempts:    *c.maxAttempts,
		CreateTime:     utc(c.createTime),
		ReadyTime:      utc(c.readyTime),
		ExpireTime:     utc(c.expireTime),
		LastError:      text(c.lastError),
		ReasonCode:     text(c.reason),
		WorkerID:       text(c.worker),
		LeaseEnd:       utc(c.leaseEnd),
	}, nil
}

func attributesOf(raw *string) (map[string]string, error) {
	if raw == nil {
		return nil, nil //nolint:nilnil // No attributes are a nil map.
	}
	m := make(map[string]string)
	if err := json.Unmarshal([]byte(*raw), &m); err != nil {
		return nil, fmt.Errorf("postgres: attributes of a message: %w", err)
	}
	return m, nil
}
