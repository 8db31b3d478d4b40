package rowlock

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

const (
	qSweepLast  statement = "sweep_last"
	qSweepPage  statement = "sweep_page"
	qSweepNamed statement = "sweep_named"
)

// What upkeep writes in one transaction is bounded in rows and in bytes, so that no row is
// locked for long: a payload of a megabyte costs as much as a thousand small ones. A single
// message is always allowed.
const (
	upkeepRows  = 200
	upkeepBytes = 4 << 20
)

// finding is a message that upkeep has found without a lock, and will look at again under one.
type finding struct {
	ref   storage.Ref
	bytes int64
}

// inBatches calls fn with as many messages as one transaction may write, until all had their
// turn or fn fails.
func inBatches(found []finding, fn func(refs []storage.Ref) error) error {
	for len(found) > 0 {
		n, bytes := 0, int64(0)
		var refs []storage.Ref
		for n < min(len(found), upkeepRows) && (n == 0 || bytes+found[n].bytes <= upkeepBytes) {
			bytes += found[n].bytes
			refs = append(refs, found[n].ref)
			n++
		}
		if err := fn(refs); err != nil {
			return err
		}
		found = found[n:]
	}
	return nil
}

// Sweep implements storage.Upkeep. The rows are looked at without a lock; what is found is
// judged again under one, by the clock of then, and messages with ordering keys in transactions
// of their own that lock the keys first (D12). What somebody else has locked, row or key, is
// left for the next time. Where it fails, what it ended before stays ended.
func (s *Store) Sweep(ctx context.Context, p storage.SweepParams) (storage.SweepResult, error) {
	var (
		res   storage.SweepResult
		found []finding
		limit = max(p.Limit, 1)
	)
	err := s.read(ctx, "sweep", func(c *session) (err error) {
		res, found = storage.SweepResult{}, nil
		if res.Now, err = c.now(ctx); err != nil {
			return err
		}
		now := a("now", s.engine.Values.Time(res.Now))
		if len(p.Refs) > 0 {
			found, res.Next, err = c.sweepNamed(ctx, p.Refs, limit, now)
		} else {
			found, err = c.sweepPage(ctx, idOf(p.After.Position), limit, now, &res)
		}
		return err
	})
	if err != nil {
		return storage.SweepResult{}, err
	}
	for _, withKeys := range []bool{false, true} {
		some := slices.DeleteFunc(slices.Clone(found), func(f finding) bool { return keyed(f.ref) != withKeys })
		err := inBatches(some, func(refs []storage.Ref) error { return s.sweep(ctx, refs, withKeys, &res) })
		if err != nil {
			return res, err
		}
	}
	return res, nil
}

// sweep ends those of the messages that end, in one transaction, and adds up what became of
// them.
func (s *Store) sweep(ctx context.Context, refs []storage.Ref, withKeys bool, res *storage.SweepResult) error {
	var (
		ended []ending
		ready []int32
	)
	err := s.write(ctx, "sweep", func(c *session) (verdict, error) {
		ended, ready = nil, nil
		var keys lockedKeys
		var err error
		if withKeys {
			if keys, err = c.lockKeys(ctx, refs, skipTaken); err != nil {
				return rollback, err
			}
		}
		if ended, err = c.end(ctx, refs, false, keys); err != nil || len(ended) == 0 {
			return rollback, err
		}
		if withKeys {
			ready, _, err = c.promote(ctx, keys.ids)
		}
		return commit, err
	})
	if err != nil {
		return err
	}
	res.Ready = unite(res.Ready, ready...)
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
}

// sweepPage looks at the next messages after an id. Ids are counted up for all queues and are
// the primary key, so a pass goes by the id alone. It returns those that end, and tells of those
// whose lease is over and which stay.
func (c *session) sweepPage(ctx context.Context, after int64, limit int, now Arg, res *storage.SweepResult) (found []finding, err error) {
	last := int64(math.MaxInt64)
	err = c.one(ctx, qSweepLast, args(a("after", after), a("rows", int64(limit-1))), &res.Next.QueueID, &last)
	switch {
	case err == nil:
		res.Next.Position = positionOf(last, false)
	case !errors.Is(err, sql.ErrNoRows):
		return nil, err
	}
	list := args(a("after", after), a("last", last), now)
	err = c.each(ctx, qSweepPage, list, func(rows *sql.Rows) error {
		var (
			f     finding
			id    int64
			key   sql.NullInt64
			ready time.Time
			ends  bool
		)
		err := rows.Scan(&id, &f.ref.QueueID, &key, &f.bytes, &ready, &ends)
		f.ref.Position = positionOf(id, key.Valid)
		if ends {
			found = append(found, f)
		} else {
			res.AddOverdue(f.ref.QueueID, ready.UTC())
		}
		return err
	})
	return found, err
}

// sweepNamed looks at messages that the caller named.
func (c *session) sweepNamed(ctx context.Context, refs []storage.Ref, limit int, now Arg) (found []finding, next storage.Ref, err error) {
	if len(refs) > limit {
		refs = refs[:limit]
		next = refs[limit-1]
	}
	rows := make([][]any, len(refs))
	for i, ref := range refs {
		rows[i] = []any{idOf(ref.Position), ref.QueueID}
	}
	found, err = c.find(ctx, qSweepNamed, args(c.list(rows), now))
	// One may be named twice, and can end but once; another may be named by a position that is
	// not its own.
	found = slices.DeleteFunc(found, func(f finding) bool { return !slices.Contains(refs, f.ref) })
	slices.SortFunc(found, func(a, b finding) int { return compareRefs(a.ref, b.ref) })
	return slices.Compact(found), next, err
}

// find reads the rows of a statement that gives findings.
func (c *session) find(ctx context.Context, q statement, by []Arg) ([]finding, error) {
	var found []finding
	err := c.each(ctx, q, by, func(rows *sql.Rows) error {
		var (
			f   finding
			id  int64
			key sql.NullInt64
		)
		err := rows.Scan(&id, &f.ref.QueueID, &key, &f.bytes)
		f.ref.Position = positionOf(id, key.Valid)
		found = append(found, f)
		return err
	})
	return found, err
}

func compareRefs(a, b storage.Ref) int {
	return cmp.Or(cmp.Compare(a.QueueID, b.QueueID), cmp.Compare(a.Position, b.Position))
}
