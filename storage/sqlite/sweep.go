package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// What upkeep writes in one transaction is bounded in rows and in bytes, since a payload of
// a megabyte costs as much as a thousand small ones. A single message is always allowed.
const (
	upkeepRows  = 100
	upkeepBytes = 4 << 20
)

// upkeepPause lies between two such transactions. Writers of this process stand in a row
// and need no pause; those of another one look at the lock every maxBusyPause and a half.
const upkeepPause = 5 * time.Millisecond

// finding is a message that upkeep has found on a snapshot, and will look at again under
// the write lock.
type finding struct {
	position int64
	bytes    int64
}

// find reads the rows of a statement that gives findings.
func (c *session) find(ctx context.Context, q query, a []any) ([]finding, error) {
	var found []finding
	err := c.each(ctx, q, a, func(rows *row) error {
		var f finding
		err := rows.Scan(&f.position, &f.bytes)
		found = append(found, f)
		return err
	})
	return found, err
}

// inBatches calls fn with as many positions as one transaction may write, until all had
// their turn or fn fails.
func inBatches(ctx context.Context, found []finding, fn func(positions []int64) error) error {
	for first := true; len(found) > 0; first = false {
		if !first {
			if err := upkeepBreak(ctx); err != nil {
				return err
			}
		}
		n, bytes := 0, int64(0)
		for n < min(len(found), upkeepRows) && (n == 0 || bytes+found[n].bytes <= upkeepBytes) {
			bytes += found[n].bytes
			n++
		}
		positions := make([]int64, n)
		for i := range positions {
			positions[i] = found[i].position
		}
		if err := fn(positions); err != nil {
			return err
		}
		found = found[n:]
	}
	return nil
}

func upkeepBreak(ctx context.Context) error {
	select {
	case <-time.After(upkeepPause):
		return nil
	case <-ctx.Done():
		return classify(ctx.Err())
	}
}

// Sweep implements storage.Upkeep. The rows are looked at on a snapshot, so that a sweep
// that finds nothing keeps away from the write lock; what it found is judged again under
// the lock, by the clock of then. Where it fails, what it ended before stays ended.
func (s *Store) Sweep(ctx context.Context, p storage.SweepParams) (storage.SweepResult, error) {
	var res storage.SweepResult
	var found []finding
	err := s.read(ctx, "sweep", func(c *session) error {
		var err error
		if res.Now, err = c.now(ctx); err != nil {
			return err
		}
		if len(p.Refs) > 0 {
			found, res.Next, err = c.sweepRefs(ctx, p)
		} else {
			found, err = c.sweepPage(ctx, p, &res)
		}
		return err
	})
	if err != nil {
		return storage.SweepResult{}, err
	}
	err = inBatches(ctx, found, func(positions []int64) error {
		var ended []ending
		var ready []int32
		err := s.writeAlone(ctx, "sweep", func(quiet context.Context, c *session) (verdict, error) {
			var err error
			ended, ready, err = c.end(quiet, positions, false)
			return verdict(len(ended) > 0), err
		})
		if err != nil {
			return err
		}
		res.Ready = mergeReady(res.Ready, ready)
		for _, e := range ended {
			switch {
			case e.state == storage.StateCancelled:
				res.Cancelled++
			case e.reason == storage.DeadReasonExpired:
				res.Expired++
			default:
				res.Dead++
			}
		}
		return nil
	})
	return res, err
}

// sweepPage looks at the Limit messages after After. Positions are given out once for all
// queues and are the primary key here, so a pass goes by the position alone, and Next names
// no queue. It returns those that end, and tells of those whose lease is over and which stay.
func (c *session) sweepPage(ctx context.Context, p storage.SweepParams, res *storage.SweepResult) (found []finding, err error) {
	last := int64(math.MaxInt64)
	err = c.one(ctx, qSweepPage, args(p.After.Position, p.Limit-1), &res.Next.Position)
	switch {
	case err == nil:
		last = res.Next.Position
	case !errors.Is(err, sql.ErrNoRows):
		return nil, err
	}
	err = c.each(ctx, qSweepFind, args(p.After.Position, last), func(rows *row) error {
		var (
			f       finding
			queueID int32
			ready   int64
			ends    bool
		)
		err := rows.Scan(&f.position, &f.bytes, &queueID, &ready, &ends)
		if ends {
			found = append(found, f)
		} else {
			res.AddOverdue(queueID, fromMillis(ready))
		}
		return err
	})
	return found, err
}

// sweepRefs looks at the messages that the caller named.
func (c *session) sweepRefs(ctx context.Context, p storage.SweepParams) ([]finding, storage.Ref, error) {
	var next storage.Ref
	refs := p.Refs
	if len(refs) > p.Limit {
		refs = refs[:p.Limit]
		next = refs[p.Limit-1]
	}
	pairs := make([][2]int64, len(refs))
	for i, ref := range refs {
		pairs[i] = [2]int64{int64(ref.QueueID), ref.Position}
	}
	list, err := toJSON(pairs)
	if err != nil {
		return nil, next, err
	}
	found, err := c.find(ctx, qSweepFindRefs, args(list))
	// A message may be named twice, and can be moved but once.
	slices.SortFunc(found, func(a, b finding) int { return cmp.Compare(a.position, b.position) })
	return slices.Compact(found), next, err
}

// ending is what became of a message that ended without a settlement.
type ending struct {
	position int64
	state    storage.State
	reason   storage.DeadReason
}

// end moves those of the messages that nobody holds, and that no claim may take any more,
// to the dead ones; with cancel, all that nobody holds. Their ordering keys go on, and ready
// names the queues in which that made another message claimable. The caller holds the write
// lock.
func (c *session) end(ctx context.Context, positions []int64, cancel bool) (ended []ending, ready []int32, err error) {
	list, err := toJSON(positions)
	if err != nil {
		return nil, nil, err
	}
	var moved []int64
	dead := make(map[int64]bool)
	err = c.each(ctx, qEndCopy, args(list, cancel), func(rows *row) error {
		var e ending
		err := rows.Scan(&e.position, &e.state, &e.reason)
		ended = append(ended, e)
		moved = append(moved, e.position)
		dead[e.position] = e.state == storage.StateDead
		return err
	})
	if err != nil || len(moved) == 0 {
		return nil, nil, err
	}
	gone, err := c.remove(ctx, moved)
	if err != nil {
		return nil, nil, err
	}
	keys := make(keySet)
	keys.add(gone)
	if err := c.block(ctx, slices.DeleteFunc(gone, func(r keyedRow) bool { return !dead[r.position] })); err != nil {
		return nil, nil, err
	}
	ready, err = c.promote(ctx, keys.sorted())
	return ended, ready, err
}
