package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
)

// Revoke implements storage.Operator: the claim in one statement, and in a second one, of a
// later snapshot, what the message is after that; both in one round trip. One with an ordering
// key is waited for before its key is locked.
func (s *Store) Revoke(ctx context.Context, p storage.RevokeParams) (storage.RevokeResult, error) {
	var (
		out     storage.RevokeResult
		outcome *int16
		worker  *string
		found   bool
		ready   []int32
		now     time.Time
	)
	steps := []step{{sql: s.sql.revoke, args: []any{p.Ref.QueueID, p.Ref.Position, p.Refund}, scan: each(
		func() { outcome, worker = nil, nil },
		func(r pgx.Rows) error { return r.Scan(&outcome, &worker) },
	)}}
	if keyed(p.Ref) {
		if err := s.waitRow(ctx, "revoke", p.Ref); err != nil {
			return storage.RevokeResult{}, err
		}
		steps = s.withKeys([]storage.Ref{p.Ref}, 0, &ready, steps...)
	}
	steps = append(
		steps,
		step{sql: s.sql.messageGet, args: []any{p.Ref.QueueID, p.Ref.Position, false}, scan: each(
			func() { found = false },
			func(r pgx.Rows) (err error) {
				found = true
				out.Message, err = scanMessage(r)
				return err
			},
		)},
		step{sql: s.sql.now, scan: one(func(r pgx.Rows) error { return r.Scan(&now) })},
	)
	if err := s.write(ctx, "revoke", steps...); err != nil {
		return storage.RevokeResult{}, err
	}
	if !found {
		return storage.RevokeResult{}, fmt.Errorf("postgres: revoke: %w", storage.ErrMessageNotFound)
	}
	out.Now = now.UTC()
	if outcome != nil {
		out.Revoked, out.WorkerID = true, text(worker)
		out.Ready = storage.Outcome(*outcome) == storage.OutcomeReleased || len(ready) > 0
	}
	return out, nil
}
