package rowlock

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	qRetainTurn statement = "retain_turn"

	qRetainCompleted       statement = "retain_completed"
	qRetainCompletedKeys   statement = "retain_completed_keys"
	qRetainCompletedLock   statement = "retain_completed_lock"
	qRetainCompletedFree   statement = "retain_completed_free"
	qRetainCompletedDelete statement = "retain_completed_delete"
	qRetainCompletedOldest statement = "retain_completed_oldest"

	qRetainDead       statement = "retain_dead"
	qRetainDeadKeys   statement = "retain_dead_keys"
	qRetainDeadLock   statement = "retain_dead_lock"
	qRetainDeadFree   statement = "retain_dead_free"
	qRetainDeadDelete statement = "retain_dead_delete"
	qRetainDeadOldest statement = "retain_dead_oldest"

	qRetainCancelled       statement = "retain_cancelled"
	qRetainCancelledOldest statement = "retain_cancelled_oldest"

	qRetainHistory       statement = "retain_history"
	qRetainHistoryDelete statement = "retain_history_delete"
	qRetainHistoryOldest statement = "retain_history_oldest"
)

const (
	// retainRows and retainBytes bound one transaction of Retain.
	retainRows  = 500
	retainBytes = 8 << 20
	// retainBatches bounds the transactions of one call, whatever its limit.
	retainBatches = 40
	// historyKept is how long settlements are kept at least (S5).
	historyKept = 10 * time.Minute
	// A row may be committed some time after the time that stands in it, but not much.
	retainSlack = time.Minute
	// retainAnew is how often a server looks for rows from the start.
	retainAnew = time.Hour
)

// aging is a kind of rows that go when they are old, with the statements for it. find locks the
// oldest ones; keys tells which of them an idempotency key names, lock locks those keys and
// free deletes them; remove deletes the rows; oldest reads the time of the first one.
type aging struct {
	find, keys, lock, free, remove, oldest statement
	kept                                   func(q queueTimes) (d time.Duration, forEver bool)
}

func agings() []aging {
	completed := func(q queueTimes) (time.Duration, bool) { return q.completedKept, false }
	dead := func(q queueTimes) (time.Duration, bool) { return q.deadRetention, q.deadRetention == 0 }
	history := func(q queueTimes) (time.Duration, bool) { return max(q.completedKept, historyKept), false }
	return []aging{
		{
			qRetainCompleted, qRetainCompletedKeys, qRetainCompletedLock, qRetainCompletedFree, qRetainCompletedDelete,
			qRetainCompletedOldest, completed,
		},
		{
			qRetainDead, qRetainDeadKeys, qRetainDeadLock, qRetainDeadFree, qRetainDeadDelete,
			qRetainDeadOldest, dead,
		},
		// Cancelled messages are kept as long as completed ones.
		{
			qRetainCancelled, qRetainDeadKeys, qRetainDeadLock, qRetainDeadFree, qRetainDeadDelete,
			qRetainCancelledOldest, completed,
		},
		{find: qRetainHistory, remove: qRetainHistoryDelete, oldest: qRetainHistoryOldest, kept: history},
	}
}

// floors remembers for each queue and kind a time before which no row is, as far as this server
// knows. So a call asks the database only about queues of which something is old enough, and
// starts where the last one ended: what was deleted stays in the indexes for a while, and
// whoever starts at their beginning walks over it. Only a hint: once an hour it is forgotten.
type floors struct {
	mu    sync.Mutex
	since time.Time
	of    map[floor]time.Time
}

type floor struct {
	queueID int32
	kind    int
}

// Retain implements storage.Upkeep. Each batch is a small transaction of its own, which locks
// only rows that nobody else has, and the lock of a row of count_turn makes one server at a
// time do this; whoever has it not does nothing. There are no partitions to drop: rows are
// deleted, the oldest first.
func (s *Store) Retain(ctx context.Context, p storage.RetainParams) (storage.RetainResult, error) {
	if !s.floors.mu.TryLock() {
		now, err := s.Now(ctx) // another call of this store is at it
		return storage.RetainResult{Now: now}, err
	}
	defer s.floors.mu.Unlock()
	if s.floors.of == nil || time.Since(s.floors.since) > retainAnew {
		s.floors.of, s.floors.since = make(map[floor]time.Time), time.Now() //nolint:forbidigo // paces a look, decides nothing
	}
	r := retention{s: s, left: max(p.Limit, 1)}
	var queues []queueTimes
	err := s.read(ctx, "retain", func(c *session) (err error) {
		if queues, r.out.Now, err = c.allQueues(ctx); err == nil && len(queues) == 0 {
			r.out.Now, err = c.now(ctx)
		}
		return err
	})
	if err != nil {
		return storage.RetainResult{}, err
	}
	for _, q := range queues {
		for n, k := range agings() {
			kept, forEver := k.kept(q)
			from := s.floors.of[floor{q.id, n}]
			if forEver || from.Add(kept).After(r.out.Now) {
				continue
			}
			if r.left <= 0 || r.batches >= retainBatches {
				r.out.More = true
				return r.out, nil
			}
			if err := r.run(ctx, q.id, k, floor{q.id, n}); err != nil || r.beaten {
				return r.out, err
			}
		}
	}
	r.out.More = r.out.More || r.left <= 0
	return r.out, nil
}

// retention is one call of Retain.
type retention struct {
	s       *Store
	left    int // rows that the call may still delete
	batches int
	out     storage.RetainResult
	beaten  bool // another server is at it
}

// old is a row that has passed its retention.
type old struct {
	id    int64
	token [16]byte
	time  time.Time
	bytes int64
}

// run deletes the old rows of one queue and kind, until none is left or a bound is met, and
// notes where the next call starts.
func (r *retention) run(ctx context.Context, queueID int32, k aging, f floor) error {
	start := r.s.floors.of[f]
	if start.Before(earliestTime) {
		start = earliestTime
	}
	from := start
	for more := true; more; {
		if r.left <= 0 || r.batches >= retainBatches {
			r.out.More = true
			break
		}
		r.batches++
		b, err := r.batch(ctx, queueID, k, from)
		if err != nil {
			return err
		}
		if r.beaten = b.beaten; r.beaten {
			return nil
		}
		r.left -= b.gone
		if k.keys != "" {
			r.out.Deleted += b.gone
		}
		if !b.last.IsZero() {
			from = b.last
		}
		// Where nothing went although there is something, somebody holds it: not now.
		more = b.more && b.gone > 0
	}
	// From the start of this call, since a row may have been passed over that somebody held.
	return r.note(ctx, queueID, k, f, start)
}

// note notes the time of the oldest row that is left.
func (r *retention) note(ctx context.Context, queueID int32, k aging, f floor, from time.Time) error {
	return r.s.read(ctx, "retain", func(c *session) error {
		now, err := c.now(ctx)
		if err != nil {
			return err
		}
		next := now.Add(-retainSlack)
		by := args(a("queue_id", queueID), a("from", c.s.engine.Values.Time(from)))
		err = c.each(ctx, k.oldest, by, func(rows *sql.Rows) error {
			var oldest time.Time
			err := rows.Scan(&oldest)
			if oldest = oldest.UTC(); oldest.Before(next) {
				next = oldest
			}
			return err
		})
		if err == nil {
			r.s.floors.of[f] = next
		}
		return err
	})
}

// retained is what one batch did.
type retained struct {
	beaten bool
	gone   int
	more   bool      // there may be more
	last   time.Time // of the last row that was looked at
}

func (r *retention) batch(ctx context.Context, queueID int32, k aging, from time.Time) (out retained, err error) {
	err = r.s.write(ctx, "retain", func(c *session) (verdict, error) {
		out = retained{beaten: true}
		err := c.each(ctx, qRetainTurn, nil, func(*sql.Rows) error { out.beaten = false; return nil })
		if err != nil || out.beaten {
			return rollback, err
		}
		// The retention that the queue has by now.
		queues, now, err := c.queueTimes(ctx, queueID-1, 1)
		if err != nil || len(queues) == 0 || queues[0].id != queueID {
			return rollback, err
		}
		kept, forEver := k.kept(queues[0])
		if forEver {
			return rollback, nil
		}
		limit := min(retainRows, r.left)
		rows, err := c.oldRows(ctx, queueID, k, from, now.Add(-kept), limit)
		if err != nil || len(rows) == 0 {
			return rollback, err
		}
		out.more = len(rows) == limit
		n, bytes := 0, int64(0)
		for n < len(rows) && (n == 0 || bytes+rows[n].bytes <= retainBytes) {
			bytes += rows[n].bytes
			n++
		}
		out.more = out.more || n < len(rows)
		rows = rows[:n]
		out.last = rows[n-1].time
		if k.keys != "" {
			rows, err = c.freeKeys(ctx, k, rows)
		}
		if err != nil || len(rows) == 0 {
			return rollback, err
		}
		gone, err := c.change(ctx, k.remove, c.oldList(rows))
		out.gone = int(gone)
		return verdict(gone > 0), err
	})
	return out, err
}

// oldRows locks the oldest rows of a queue and kind between two times, those that nobody else
// has, and reads them.
func (c *session) oldRows(ctx context.Context, queueID int32, k aging, from, until time.Time, limit int) ([]old, error) {
	v := c.s.engine.Values
	var rows []old
	by := args(a("queue_id", queueID), a("from", v.Time(from)), a("until", v.Time(until)), a("limit", int64(limit)))
	err := c.each(ctx, k.find, by, func(r *sql.Rows) error {
		var o old
		err := r.Scan(&o.id, v.ScanToken(&o.token), &o.time, &o.bytes)
		o.time = o.time.UTC()
		rows = append(rows, o)
		return err
	})
	return rows, err
}

// oldList is the list of some rows: the id, and the token where it is part of the key.
func (c *session) oldList(rows []old) Arg {
	list := make([][]any, len(rows))
	for i, o := range rows {
		list[i] = []any{o.id, c.s.engine.Values.TokenText(o.token)}
	}
	return c.list(list)
}

// freeKeys deletes the idempotency keys that still name the messages (E5), and tells which of
// the messages may go. One whose key somebody else holds keeps its row until the next time.
func (c *session) freeKeys(ctx context.Context, k aging, rows []old) ([]old, error) {
	named, err := c.idsOf(ctx, k.keys, c.oldList(rows))
	if err != nil || len(named) == 0 {
		return rows, err
	}
	ids := make([]int64, 0, len(named))
	for _, o := range rows {
		if named[o.id] {
			ids = append(ids, o.id)
		}
	}
	locked, err := c.idsOf(ctx, k.lock, c.ids(ids))
	if err != nil {
		return nil, err
	}
	ids = ids[:0]
	var going []old
	for _, o := range rows {
		switch {
		case locked[o.id]:
			ids = append(ids, o.id)
		case named[o.id]:
			continue
		}
		going = append(going, o)
	}
	if len(ids) > 0 {
		_, err = c.change(ctx, k.free, c.ids(ids))
	}
	return going, err
}

// idsOf reads the ids that a statement gives.
func (c *session) idsOf(ctx context.Context, q statement, list Arg) (map[int64]bool, error) {
	ids := make(map[int64]bool)
	err := c.each(ctx, q, args(list), func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan(&id)
		ids[id] = true
		return err
	})
	return ids, err
}
