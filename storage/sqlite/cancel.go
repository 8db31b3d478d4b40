package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/queuebox/queuebox/storage"
)

// Cancel implements storage.Upkeep. The write lock is held from the first look on, so the
// message is what the look saw until the commit.
func (s *Store) Cancel(ctx context.Context, p storage.CancelParams) (storage.CancelResult, error) {
	var res storage.CancelResult
	err := s.write(ctx, "cancel", func(quiet context.Context, c *session) (verdict, error) {
		var err error
		if res.Now, err = c.now(quiet); err != nil {
			return rollback, err
		}
		if res.Ref, err = c.cancelRef(quiet, p); err != nil {
			return rollback, err
		}
		err = c.one(quiet, qMessageState, args(res.Ref.QueueID, res.Ref.Position), &res.State)
		if errors.Is(err, sql.ErrNoRows) {
			return rollback, storage.ErrMessageNotFound
		}
		if err != nil {
			return rollback, err
		}
		return c.cancel(quiet, &res)
	})
	if err != nil {
		return storage.CancelResult{}, err
	}
	return res, nil
}

// cancelRef finds the message. One that its key names may be gone already; the caller sees.
func (c *session) cancelRef(ctx context.Context, p storage.CancelParams) (storage.Ref, error) {
	if p.Ref != (storage.Ref{}) {
		if p.Ref.QueueID != p.QueueID {
			return storage.Ref{}, storage.ErrMessageNotFound
		}
		return p.Ref, nil
	}
	ref := storage.Ref{QueueID: p.QueueID}
	var hash []byte
	err := c.one(ctx, qIdempotencyGet, args(p.QueueID, p.IdempotencyKey), &ref.Position, &hash)
	if errors.Is(err, sql.ErrNoRows) {
		err = storage.ErrMessageNotFound
	}
	return ref, err
}

// cancel ends a message that nobody holds, asks the holder of one that is held (S14), and
// leaves one alone that is finished. It notes the state after that.
func (c *session) cancel(ctx context.Context, res *storage.CancelResult) (verdict, error) {
	if res.State != storage.StatePending && res.State != storage.StateProcessing {
		return rollback, nil
	}
	ended, ready, err := c.end(ctx, []int64{res.Ref.Position}, true)
	if err != nil {
		return rollback, err
	}
	if len(ended) > 0 {
		res.State, res.Ready = storage.StateCancelled, len(ready) > 0
		return commit, nil
	}
	n, err := c.exec(ctx, qCancelAsk, res.Ref.QueueID, res.Ref.Position)
	return verdict(n > 0), err
}
