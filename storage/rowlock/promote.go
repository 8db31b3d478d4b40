package rowlock

import (
	"context"
	"database/sql"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	qKeyLook     statement = "key_look"
	qKeyHeads    statement = "key_heads"
	qKeyPark     statement = "key_park"
	qKeyPromote  statement = "key_promote"
	qKeyUnblock  statement = "key_unblock"
	qKeyBlocking statement = "key_blocking"
	qKeyBlock    statement = "key_block"
)

// keyState is how an ordering key stands.
type keyState struct {
	id      int64
	queueID int32
	// blockedBy is the position that was noted to block the key, and blocked whether it still does.
	blockedBy sql.NullInt64
	blocked   bool
	// head is the message that is not parked, and parked the first one of those that are.
	head, parked sql.NullInt64
	// pending: nobody holds the head, as far as a look without its lock tells.
	pending bool
}

// stale tells that what blocked the key is gone, or that its queue does not block any more.
func (k keyState) stale() bool { return k.blockedBy.Valid && !k.blocked }

// idle tells that nothing needs the row of the key.
func (k keyState) idle() bool { return !k.head.Valid && !k.parked.Valid && !k.blocked }

// next tells whether a parked message should be the head: there is none, or it has let an
// earlier one wait (O5, O7). What stands before the dead one is not behind it, so that does
// not wait.
func (k keyState) next() bool {
	switch {
	case !k.parked.Valid:
		return false
	case k.head.Valid:
		return k.parked.Int64 < k.head.Int64
	default:
		return !k.blocked || positionOf(k.parked.Int64, true) < k.blockedBy.Int64
	}
}

// lookAtKeys reads how keys stand. It waits for nobody.
func (c *session) lookAtKeys(ctx context.Context, ids []int64) ([]keyState, error) {
	states := make([]keyState, 0, len(ids))
	if len(ids) == 0 {
		return nil, nil
	}
	err := c.each(ctx, qKeyLook, args(c.ids(ids)), func(rows *sql.Rows) error {
		var k keyState
		err := rows.Scan(&k.id, &k.queueID, &k.blockedBy, &k.blocked, &k.head, &k.pending, &k.parked)
		states = append(states, k)
		return err
	})
	return states, err
}

// promote sees to it that each of the keys, which the transaction has locked, has the head that
// it should have, and gives the queues in which a message became one. It comes after all that
// the transaction does to messages of the keys. held says that a head should have stepped back
// that nobody holds, but that somebody has locked, or that it did behind a message that somebody has
// locked: he may have been a claim that takes other messages than this one, so the caller looks
// again after the commit (headsAgain).
func (c *session) promote(ctx context.Context, keys []int64) (ready []int32, held bool, err error) {
	states, err := c.lookAtKeys(ctx, keys)
	if err != nil {
		return nil, false, err
	}
	return c.arrange(ctx, states)
}

// lockedRow is a message that arrange has locked.
type lockedRow struct {
	place int
	free  bool // nobody holds a claim of it
}

// arrange does what promote found. A row that somebody has locked is passed over; the sweep
// of the keys comes back for it (O9).
func (c *session) arrange(ctx context.Context, states []keyState) (ready []int32, held bool, err error) {
	var unblock, rows, park, heads []int64
	for _, k := range states {
		if k.stale() {
			unblock = append(unblock, k.id)
		}
		if k.next() {
			rows = append(rows, k.parked.Int64)
			if k.head.Valid {
				rows = append(rows, k.head.Int64)
			}
		}
	}
	locked, now, err := c.lockHeads(ctx, rows)
	if err != nil {
		return nil, false, err
	}
	for _, k := range states {
		if !k.next() {
			continue
		}
		next, ok := locked[k.parked.Int64]
		if k.head.Valid {
			head, had := locked[k.head.Int64]
			if !had && k.pending {
				held = true
			}
			if !had || !head.free || head.place == placeParked || ok && next.place != placeParked {
				continue
			}
			// It steps back also where somebody has the one before it, and does not go first (O5).
			park = append(park, k.head.Int64)
			held = held || !ok
		}
		if !ok || next.place != placeParked {
			continue
		}
		heads = append(heads, k.parked.Int64)
		ready = unite(ready, k.queueID)
	}
	if len(unblock) > 0 {
		if err := c.exactly(ctx, qKeyUnblock, len(unblock), c.ids(unblock)); err != nil {
			return nil, false, err
		}
	}
	if len(park) > 0 {
		if err := c.exactly(ctx, qKeyPark, len(park), c.ids(park)); err != nil {
			return nil, false, err
		}
	}
	if len(heads) > 0 {
		// One clock for all of them, so that those of one call keep their order (C9).
		err := c.exactly(ctx, qKeyPromote, len(heads), c.ids(heads), a("now", c.s.engine.Values.Time(now)))
		if err != nil && c.s.engine.Errors.Duplicate(err) {
			err = errAgain // there is a head that the look has not seen
		}
		if err != nil {
			return nil, false, err
		}
	}
	return ready, held, nil
}

// lockHeads locks those of the messages that nobody else has locked, and reads the clock.
func (c *session) lockHeads(ctx context.Context, ids []int64) (locked map[int64]lockedRow, now time.Time, err error) {
	locked = make(map[int64]lockedRow, len(ids))
	if len(ids) == 0 {
		return locked, now, nil
	}
	err = c.each(ctx, qKeyHeads, args(c.ids(ids)), func(rows *sql.Rows) error {
		var (
			id int64
			r  lockedRow
			at time.Time
		)
		err := rows.Scan(&id, &r.place, &r.free, &at)
		locked[id] = r
		if at.After(now) {
			now = at.UTC()
		}
		return err
	})
	return locked, now, err
}

// died is a message with an ordering key that has died just now as the head of its key.
type died struct {
	keyID int64
	ref   storage.Ref
}

// block notes what waits behind them, where their queue says so: a key behind its head (O7). A
// message that died behind the head blocks nothing, so it is not among them. Of two dead ones
// the later blocks: nothing behind it may go before it is gone.
func (c *session) block(ctx context.Context, heads []died) error {
	if len(heads) == 0 {
		return nil
	}
	var blocking [][]any
	rows := make([][]any, len(heads))
	for i, d := range heads {
		rows[i] = []any{d.keyID, d.ref.Position}
	}
	err := c.each(ctx, qKeyBlocking, args(c.list(rows)), func(rows *sql.Rows) error {
		var keyID, position int64
		err := rows.Scan(&keyID, &position)
		blocking = append(blocking, []any{keyID, position})
		return err
	})
	if err != nil || len(blocking) == 0 {
		return err
	}
	_, err = c.change(ctx, qKeyBlock, c.list(blocking))
	return err
}
