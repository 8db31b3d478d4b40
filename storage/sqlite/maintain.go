package sqlite

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
)

// Each batch of Maintain is a transaction of its own, small enough that nobody waits
// for the write lock noticeably; the rest is left for the next minute.
const (
	maintainBatch   = 500
	maintainBatches = 20
)

// Maintain implements storage.Store: it removes claim calls that are an hour old and of
// which nothing is held any more. They lie in the order of time, so the old ones come first; those that are still
// held are stepped over.
func (s *Store) Maintain(ctx context.Context) error {
	type call struct {
		id      int64
		queueID int32
		held    []byte
	}
	last := int64(0)
	for range maintainBatches {
		var calls []call
		err := s.read(ctx, "maintain claim calls", func(c *session) error {
			return c.each(ctx, qMaintainCalls, args(last, maintainBatch), func(rows *row) error {
				var k call
				err := rows.Scan(&k.id, &k.queueID, &k.held)
				calls = append(calls, k)
				return err
			})
		})
		if err != nil || len(calls) == 0 {
			return err
		}
		err = s.writeAlone(ctx, "maintain claim calls", func(quiet context.Context, c *session) (verdict, error) {
			v := rollback
			for _, k := range calls {
				last = k.id
				live, err := c.anyHeld(quiet, k.queueID, k.held)
				if err != nil {
					return rollback, err
				}
				if live {
					continue
				}
				if _, err := c.exec(quiet, qMaintainCallDelete, k.id); err != nil {
					return rollback, err
				}
				v = commit
			}
			return v, nil
		})
		if err != nil || len(calls) < maintainBatch {
			return err
		}
	}
	return nil
}

func (c *session) anyHeld(ctx context.Context, queueID int32, held []byte) (bool, error) {
	for ; len(held) >= heldBytes; held = held[heldBytes:] {
		var one int
		position := int64(binary.BigEndian.Uint64(held))
		err := c.one(ctx, qMaintainLiveToken, args(queueID, position, held[8:heldBytes]), &one)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return false, err
		}
	}
	return false, nil
}
