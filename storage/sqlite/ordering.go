package sqlite

import (
	"context"
	"database/sql"
	"maps"
	"slices"
)

// keySet holds the ids of the ordering keys that a transaction has touched. Whatever takes a
// keyed message out of the live ones, or puts one there, notes its key here, and the
// transaction calls promote for all of them before it commits.
type keySet map[int64]struct{}

func (k keySet) add(rows []keyedRow) {
	for _, r := range rows {
		k[r.keyID] = struct{}{}
	}
}

// sorted gives the keys as promote takes them.
func (k keySet) sorted() []int64 { return slices.Sorted(maps.Keys(k)) }

// keyedRow is a live message that has an ordering key.
type keyedRow struct {
	keyID    int64
	position int64
	head     bool
}

// keyedRows gives those of the listed live messages that have an ordering key.
func (c *session) keyedRows(ctx context.Context, list string) ([]keyedRow, error) {
	var keyed []keyedRow
	err := c.each(ctx, qKeyRows, args(list), func(rows *row) error {
		var r keyedRow
		err := rows.Scan(&r.keyID, &r.position, &r.head)
		keyed = append(keyed, r)
		return err
	})
	return keyed, err
}

// block notes what waits behind messages that have died just now: where the queue blocks, a
// key behind its head (O7). A message that died behind the head blocks nothing.
func (c *session) block(ctx context.Context, died []keyedRow) error {
	for _, r := range died {
		if !r.head {
			continue
		}
		if _, err := c.exec(ctx, qKeyBlock, r.keyID, r.position); err != nil {
			return err
		}
	}
	return nil
}

// keyState is how an ordering key stands.
type keyState struct {
	id      int64
	queueID int32
	// blockedBy is what was noted to block the key, and blocked whether it still does.
	blockedBy sql.NullInt64
	blocked   bool
	// first is the live message of the lowest position; head is the one that is not parked,
	// and held says that a worker has it.
	first, head sql.NullInt64
	held        bool
}

// stale tells that what blocked the key is gone, or that its queue does not block any more.
func (k keyState) stale() bool { return k.blockedBy.Valid && !k.blocked }

// idle tells that nothing needs the row of the key.
func (k keyState) idle() bool { return !k.first.Valid && !k.blocked }

// next tells which message becomes the head, if any, and whether the present one steps back
// for it. What stands before the dead one is not behind it, so that does not wait.
func (k keyState) next() (promote, park bool) {
	switch {
	case !k.first.Valid || k.first == k.head:
		return false, false
	case k.head.Valid:
		return !k.held, !k.held
	default:
		return !k.blocked || k.first.Int64 < k.blockedBy.Int64, false
	}
}

// look reads how keys stand.
func (c *session) look(ctx context.Context, keyIDs []int64) ([]keyState, error) {
	list, err := toJSON(keyIDs)
	if err != nil {
		return nil, err
	}
	states := make([]keyState, 0, len(keyIDs))
	err = c.each(ctx, qKeyLook, args(list), func(rows *row) error {
		var k keyState
		err := rows.Scan(&k.id, &k.queueID, &k.blockedBy, &k.blocked, &k.first, &k.head, &k.held)
		states = append(states, k)
		return err
	})
	return states, err
}

// promote sees to it that each of the keys has the head that it should have, and gives the
// queues in which a message became one. The caller holds the write lock and has written
// before what moves the key on, so that this finds it.
func (c *session) promote(ctx context.Context, keyIDs []int64) ([]int32, error) {
	if len(keyIDs) == 0 {
		return nil, nil
	}
	states, err := c.look(ctx, keyIDs)
	if err != nil {
		return nil, err
	}
	return c.arrange(ctx, states)
}

// arrange does what promote found.
func (c *session) arrange(ctx context.Context, states []keyState) ([]int32, error) {
	var unblock, park, heads []int64
	var ready []int32
	for _, k := range states {
		if k.stale() {
			unblock = append(unblock, k.id)
		}
		promote, step := k.next()
		if step {
			park = append(park, k.head.Int64)
		}
		if promote {
			heads = append(heads, k.first.Int64)
			if !slices.Contains(ready, k.queueID) {
				ready = append(ready, k.queueID)
			}
		}
	}
	for _, step := range []struct {
		q  query
		on []int64
	}{{qKeyUnblock, unblock}, {qKeyPark, park}, {qKeyPromote, heads}} {
		if len(step.on) == 0 {
			continue
		}
		list, err := toJSON(step.on)
		if err != nil {
			return nil, err
		}
		if _, err := c.exec(ctx, step.q, list); err != nil {
			return nil, err
		}
	}
	return ready, nil
}

// mergeReady adds queues to a list that names each once.
func mergeReady(ready, more []int32) []int32 {
	for _, id := range more {
		if !slices.Contains(ready, id) {
			ready = append(ready, id)
		}
	}
	return ready
}
