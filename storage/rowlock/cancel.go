package rowlock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/queuebox/queuebox/storage"
)

const (
	qCancelAsk   statement = "cancel_ask"
	qKeyPosition statement = "key_position"
)

// Cancel implements storage.Upkeep. The row is locked before it is judged (S13).
func (s *Store) Cancel(ctx context.Context, p storage.CancelParams) (storage.CancelResult, error) {
	ref := p.Ref
	if ref == (storage.Ref{}) {
		var err error
		if ref, err = s.refOfKey(ctx, p.QueueID, p.IdempotencyKey); err != nil {
			return storage.CancelResult{}, err
		}
	}
	if ref.QueueID != p.QueueID {
		return storage.CancelResult{}, fmt.Errorf("%s: cancel: %w", s.engine.Name, storage.ErrMessageNotFound)
	}
	var out storage.CancelResult
	err := s.onRow(ctx, "cancel", ref, func(c *session, keys lockedKeys, locked bool) (verdict, error) {
		out = storage.CancelResult{Ref: ref}
		var err error
		if out.Now, err = c.now(ctx); err != nil {
			return rollback, err
		}
		v := rollback
		if locked {
			if v, err = c.cancel(ctx, &out, keys); err != nil || out.State != 0 {
				return v, err
			}
		}
		m, err := c.message(ctx, ref, false)
		out.State = m.State
		return v, err
	})
	if err != nil {
		return storage.CancelResult{}, err
	}
	return out, nil
}

// cancel ends a message that nobody holds, or asks its holder to (S14). The transaction has the
// lock of the row. The state stays 0 where the message is neither, since it has its end already.
func (c *session) cancel(ctx context.Context, out *storage.CancelResult, keys lockedKeys) (verdict, error) {
	ended, err := c.end(ctx, []storage.Ref{out.Ref}, true, keys)
	if err != nil {
		return rollback, err
	}
	if len(ended) > 0 {
		ready, _, err := c.promote(ctx, keys.ids)
		out.State, out.Ready = storage.StateCancelled, len(ready) > 0
		return commit, err
	}
	// A lease that has run out since makes no difference: the sweep ends the message then.
	n, err := c.change(ctx, qCancelAsk, a("queue_id", out.Ref.QueueID), a("id", idOf(out.Ref.Position)))
	if err == nil && n > 0 {
		out.State = storage.StateProcessing
	}
	return verdict(n > 0), err
}

// refOfKey tells which message an idempotency key names.
func (s *Store) refOfKey(ctx context.Context, queueID int32, key string) (storage.Ref, error) {
	ref := storage.Ref{QueueID: queueID}
	err := s.read(ctx, "cancel: key", func(c *session) error {
		if key == "" {
			return storage.ErrMessageNotFound // no key names no message
		}
		err := c.one(ctx, qKeyPosition, args(a("queue_id", queueID), a("name", c.s.engine.Values.Name(key))), &ref.Position)
		if errors.Is(err, sql.ErrNoRows) {
			return storage.ErrMessageNotFound
		}
		return err
	})
	return ref, err
}

// onRow runs fn in a transaction that has the lock of a live message, and before it that of its
// ordering key; locked is false where the message is not live. One whose row somebody else has
// is waited for, as long as a session waits for locks. That wait comes before the lock of the
// key: who has one waits for nothing else.
func (s *Store) onRow(
	ctx context.Context, what string, ref storage.Ref, fn func(c *session, keys lockedKeys, locked bool) (verdict, error),
) error {
	if !keyed(ref) {
		return s.write(ctx, what, func(c *session) (verdict, error) {
			locked, err := c.waitRow(ctx, ref)
			if err != nil {
				return rollback, err
			}
			return fn(c, lockedKeys{}, locked)
		})
	}
	ctx, cancel := context.WithTimeout(ctx, lockWait+lockWait/2)
	defer cancel()
	had := false
	err := s.waitOutside(ctx, what, ref, func() (bool, error) {
		err := s.write(ctx, what, func(c *session) (verdict, error) {
			keys, err := c.lockKeys(ctx, []storage.Ref{ref}, waitTaken)
			if err != nil {
				return rollback, err
			}
			var live, locked bool
			if live, locked, err = c.tryRow(ctx, ref); err != nil {
				return rollback, err
			}
			if had = locked || !live; !had {
				return rollback, nil
			}
			return fn(c, keys, locked)
		})
		return had, err
	})
	if err == nil && !had {
		err = fmt.Errorf("%s: %s: %w", s.engine.Name, what, storage.ErrLocked)
	}
	return err
}
