package postgres

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
)

func compareRefs(a, b storage.Ref) int {
	return cmp.Or(cmp.Compare(a.QueueID, b.QueueID), cmp.Compare(a.Position, b.Position))
}

// Cancel implements storage.Upkeep: the live message in one statement, and in a second
// one, of a later snapshot, what has become of a message that is not live (any more); both
// in one round trip.
func (s *Store) Cancel(ctx context.Context, p storage.CancelParams) (storage.CancelResult, error) {
	out := storage.CancelResult{Ref: p.Ref}
	notFound := fmt.Errorf("postgres: cancel: %w", storage.ErrMessageNotFound)
	if p.Ref == (storage.Ref{}) {
		position, err := s.positionOfKey(ctx, p.QueueID, p.IdempotencyKey)
		if err != nil {
			return storage.CancelResult{}, err
		}
		if position == nil {
			return storage.CancelResult{}, notFound
		}
		out.Ref = storage.Ref{QueueID: p.QueueID, Position: *position}
	}
	if out.Ref.QueueID != p.QueueID {
		return storage.CancelResult{}, notFound
	}
	var (
		live, other *storage.State
		ready       []int32
	)
	steps := []step{
		{sql: s.sql.cancel, args: []any{out.Ref.QueueID, out.Ref.Position}, scan: each(
			func() { live = nil },
			func(r pgx.Rows) error {
				var now time.Time
				var state *int16
				if err := r.Scan(&now, &state); err != nil {
					return err
				}
				if state != nil {
					st := storage.State(*state)
					live = &st
				}
				return nil
			},
		)},
		{sql: s.sql.messageGet, args: []any{out.Ref.QueueID, out.Ref.Position, false}, scan: each(
			func() { other = nil },
			func(r pgx.Rows) error {
				m, err := scanMessage(r)
				other = &m.State
				return err
			},
		)},
		{sql: s.sql.now, scan: one(func(r pgx.Rows) error { return r.Scan(&out.Now) })},
	}
	if keyed(out.Ref) {
		if err := s.waitRow(ctx, "cancel", out.Ref); err != nil {
			return storage.CancelResult{}, err
		}
		steps = s.withKeys([]storage.Ref{out.Ref}, 0, &ready, steps...)
	}
	if err := s.write(ctx, "cancel", steps...); err != nil {
		return storage.CancelResult{}, err
	}
	out.Now, out.Ready = out.Now.UTC(), len(ready) > 0
	switch {
	case live != nil:
		out.State = *live
	case other != nil:
		out.State = *other
	default:
		return storage.CancelResult{}, notFound
	}
	return out, nil
}

// positionOfKey tells which message an idempotency key names, nil where it names none.
func (s *Store) positionOfKey(ctx context.Context, queueID int32, key string) (position *int64, err error) {
	if key == "" {
		return nil, nil //nolint:nilnil // No key names no message.
	}
	err = s.read(ctx, "cancel: key", step{sql: s.sql.keyPosition, args: []any{queueID, key}, scan: each(
		func() { position = nil },
		func(r pgx.Rows) error { return r.Scan(&position) },
	)})
	return position, err
}
