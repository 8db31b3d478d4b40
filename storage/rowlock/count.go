package rowlock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	qCountLive           statement = "count_live"
	qCountLiveQueue      statement = "count_live_queue"
	qCountCompleted      statement = "count_completed"
	qCountCompletedQueue statement = "count_completed_queue"
	qCountDead           statement = "count_dead"
	qCountDeadQueue      statement = "count_dead_queue"
	qQueueTimes          statement = "queue_times"
	qTurnTake            statement = "turn_take"
	qTurnDone            statement = "turn_done"
	qStatsGet            statement = "stats_get"
	qStatsUpdate         statement = "stats_update"
	qStatsInsert         statement = "stats_insert"
)

const (
	// countFew rows are counted in the first statement of a count, and countMany in each one
	// after it.
	countFew  = 1000
	countMany = 20000
	// countQueues are read, and countKept are kept, in one statement.
	countQueues = 500
	countKept   = 200
	// countIdle is how old counts may be that have not changed: to keep them again costs a write.
	countIdle = 5 * time.Second
	// countHeld is how often a turn is renewed; it ends 6 seconds after the last time.
	countHeld = 2 * time.Second
)

// queueTimes is a queue with what it keeps and for how long.
type queueTimes struct {
	id                           int32
	completedKept, deadRetention time.Duration
}

// completedFrom and deadFrom tell when the oldest completed and dead messages finished that
// the queue still keeps; what finished then or before has passed its retention.
func (q queueTimes) completedFrom(now time.Time) time.Time { return now.Add(-q.completedKept) }

func (q queueTimes) deadFrom(now time.Time) time.Time {
	if q.deadRetention == 0 {
		return earliestTime
	}
	return now.Add(-q.deadRetention)
}

// earliestTime is before everything that is stored.
var earliestTime = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)

// queueTimes reads up to limit queues after an id, and the clock where there is one.
func (c *session) queueTimes(ctx context.Context, after int32, limit int) (queues []queueTimes, now time.Time, err error) {
	by := args(a("after", after), a("limit", int64(limit)))
	err = c.each(ctx, qQueueTimes, by, func(rows *sql.Rows) error {
		var (
			q               queueTimes
			completed, dead int64
		)
		err := rows.Scan(&q.id, &completed, &dead, &now)
		q.completedKept, q.deadRetention = microseconds(completed), microseconds(dead)
		queues = append(queues, q)
		return err
	})
	return queues, now.UTC(), err
}

// allQueues reads all queues, in the order of their ids.
func (c *session) allQueues(ctx context.Context) (queues []queueTimes, now time.Time, err error) {
	for after := int32(0); ; {
		some, at, err := c.queueTimes(ctx, after, countQueues)
		if err != nil {
			return nil, now, err
		}
		if queues = append(queues, some...); len(some) > 0 {
			after, now = some[len(some)-1].id, at
		}
		if len(some) < countQueues {
			return queues, now, nil
		}
	}
}

// counting is one count, of all queues or of one. The counts of a queue are those of several
// moments where it is large: each statement sees what is there when it runs.
type counting struct {
	s       *Store
	now     time.Time
	between func() error // called before each statement
	stats   map[int32]*storage.QueueStats
	// statements that have counted so far.
	statements int
}

// of are the counts of a queue; those of one that was made meanwhile are nobody's.
func (k *counting) of(id int32) *storage.QueueStats {
	if st := k.stats[id]; st != nil {
		return st
	}
	return &storage.QueueStats{}
}

// page runs a statement that counts up to limit rows.
func (k *counting) page(ctx context.Context, fn func(c *session, limit int64) error) error {
	if err := k.between(); err != nil {
		return err
	}
	limit := int64(countMany)
	if k.statements++; k.statements == 1 {
		limit = countFew
	}
	return k.s.read(ctx, "count", func(c *session) error { return fn(c, limit) })
}

// all counts all queues, in one pass over each table.
func (k *counting) all(ctx context.Context, queues []queueTimes) error {
	last, more := int64(0), true
	for more {
		err := k.page(ctx, func(c *session, limit int64) error {
			n, id, err := k.live(ctx, c, qCountLive, args(a("after", last), a("limit", limit), k.at()))
			if err == nil {
				last, more = id, n == limit
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	completed := func(st *storage.QueueStats) *int64 { return &st.Completed }
	dead := func(st *storage.QueueStats) *int64 { return &st.Dead }
	if err := k.finished(ctx, queues, qCountCompleted, completed, k.completed); err != nil {
		return err
	}
	return k.finished(ctx, queues, qCountDead, dead, k.dead)
}

// one counts one queue. Its live messages are one statement: who asks for the counts of one queue
// does so for one that is new, of which none were kept yet.
func (k *counting) one(ctx context.Context, q queueTimes) error {
	err := k.s.read(ctx, "count", func(c *session) error {
		_, _, err := k.live(ctx, c, qCountLiveQueue, args(a("queue_id", q.id), k.at()))
		return err
	})
	if err == nil {
		err = k.completed(ctx, q)
	}
	if err == nil {
		err = k.dead(ctx, q)
	}
	return err
}

func (k *counting) at() Arg { return a("now", k.s.engine.Values.Time(k.now)) }

// live adds {{count_columns}} by queue, and tells how many rows those were, and the last id.
func (k *counting) live(ctx context.Context, c *session, q statement, by []Arg) (n, last int64, err error) {
	// A read may run again on another connection: what it adds is added at its end.
	var pages []func()
	err = c.each(ctx, q, by, func(rows *sql.Rows) error {
		var (
			p      storage.QueueStats
			id     int32
			some   int64
			until  int64
			oldest sql.NullTime
		)
		err := rows.Scan(&id, &some, &until, &p.Ready, &p.Delayed, &p.Blocked, &p.Leased, &p.LeaseExpired, &p.Completed, &p.Dead, &oldest)
		p.OldestReady = utc(oldest)
		n, last = n+some, max(last, until)
		pages = append(pages, func() { addStats(k.of(id), p) })
		return err
	})
	if err == nil {
		for _, add := range pages {
			add()
		}
	}
	return n, last, err
}

func addStats(st *storage.QueueStats, p storage.QueueStats) {
	st.Ready += p.Ready
	st.Delayed += p.Delayed
	st.Blocked += p.Blocked
	st.Leased += p.Leased
	st.LeaseExpired += p.LeaseExpired
	st.Completed += p.Completed
	st.Dead += p.Dead
	if t := p.OldestReady; !t.IsZero() && (st.OldestReady.IsZero() || t.Before(st.OldestReady)) {
		st.OldestReady = t
	}
}

// finished adds the finished messages of all queues, many queues a statement. The last queue of
// a page that is full may have more, so it is counted by itself.
func (k *counting) finished(
	ctx context.Context, queues []queueTimes, q statement, of func(*storage.QueueStats) *int64, single func(context.Context, queueTimes) error,
) error {
	after := int32(0)
	for {
		var (
			kept map[int32]int64
			last int32
			full bool
		)
		err := k.page(ctx, func(c *session, limit int64) error {
			var n int64
			kept, last = make(map[int32]int64), after
			err := c.each(ctx, q, args(a("after", after), a("limit", limit)), func(rows *sql.Rows) error {
				var some, of int64
				err := rows.Scan(&last, &some, &of)
				kept[last] = of
				n += some
				return err
			})
			full = n == limit
			return err
		})
		if err != nil {
			return err
		}
		if full {
			delete(kept, last)
		}
		for id, n := range kept {
			*of(k.of(id)) += n
		}
		if !full {
			return nil
		}
		if i := slices.IndexFunc(queues, func(q queueTimes) bool { return q.id == last }); i >= 0 {
			if err := single(ctx, queues[i]); err != nil {
				return err
			}
		}
		after = last
	}
}

func (k *counting) completed(ctx context.Context, q queueTimes) error {
	return k.finishedOf(ctx, q, qCountCompletedQueue, q.completedFrom(k.now), &k.of(q.id).Completed)
}

func (k *counting) dead(ctx context.Context, q queueTimes) error {
	return k.finishedOf(ctx, q, qCountDeadQueue, q.deadFrom(k.now), &k.of(q.id).Dead)
}

// finishedOf adds the finished messages of one queue that finished after a time.
func (k *counting) finishedOf(ctx context.Context, q queueTimes, st statement, after time.Time, sum *int64) error {
	lastID := int64(math.MaxInt64)
	for {
		var (
			n    int64
			last sql.NullTime
			id   sql.NullInt64
			full bool
		)
		err := k.page(ctx, func(c *session, limit int64) error {
			by := args(a("queue_id", q.id), a("after_time", c.s.engine.Values.Time(after)), a("after_id", lastID), a("limit", limit))
			err := c.one(ctx, st, by, &n, &last, &id)
			full = n == limit
			return err
		})
		if err != nil {
			return err
		}
		if *sum += n; !full {
			return nil
		}
		after, lastID = utc(last), id.Int64
	}
}

// take counts the queues, those that are named or all, and tells of which queues.
func (s *Store) take(ctx context.Context, ids []int32, between func() error) (*counting, error) {
	k := &counting{s: s, between: between, stats: make(map[int32]*storage.QueueStats)}
	var queues []queueTimes
	err := s.read(ctx, "count", func(c *session) (err error) {
		if len(ids) == 0 {
			queues, k.now, err = c.allQueues(ctx)
			return err
		}
		queues = nil
		for _, id := range ids {
			some, now, err := c.queueTimes(ctx, id-1, 1)
			if err != nil {
				return err
			}
			if len(some) > 0 && some[0].id == id && k.stats[id] == nil {
				queues, k.now = append(queues, some[0]), now
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, q := range queues {
		k.stats[q.id] = &storage.QueueStats{AsOf: k.now}
	}
	if len(ids) == 0 {
		return k, k.all(ctx, queues)
	}
	for _, q := range queues {
		if err := k.one(ctx, q); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// QueueStats implements storage.Admin.
func (s *Store) QueueStats(ctx context.Context, queueID int32) (storage.QueueStats, error) {
	k, err := s.take(ctx, []int32{queueID}, func() error { return nil })
	if err != nil {
		return storage.QueueStats{}, err
	}
	if st := k.stats[queueID]; st != nil {
		return *st, nil
	}
	return storage.QueueStats{}, s.classify("queue stats", storage.ErrQueueNotFound, false)
}

// StoredStats implements storage.Admin.
func (s *Store) StoredStats(ctx context.Context, queueID int32) (storage.QueueStats, error) {
	var st storage.QueueStats
	err := s.read(ctx, "stored stats", func(c *session) error {
		var (
			asOf, oldest sql.NullTime
			n            [7]sql.NullInt64
		)
		err := c.one(ctx, qStatsGet, args(a("queue_id", queueID)), &asOf, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6], &oldest)
		if errors.Is(err, sql.ErrNoRows) {
			return storage.ErrQueueNotFound
		}
		st = storage.QueueStats{
			AsOf: utc(asOf), Ready: n[0].Int64, Delayed: n[1].Int64, Blocked: n[2].Int64, Leased: n[3].Int64,
			LeaseExpired: n[4].Int64, Completed: n[5].Int64, Dead: n[6].Int64, OldestReady: utc(oldest),
		}
		return err
	})
	if err != nil {
		return storage.QueueStats{}, err
	}
	return st, nil
}

// Count implements storage.Upkeep. The turn to count is a row of its own: whoever has it says
// so every few seconds, and who takes it over when it was not heard of counts anew.
func (s *Store) Count(ctx context.Context, p storage.CountParams) (storage.CountResult, error) {
	if len(p.Queues) > 0 {
		k, err := s.take(ctx, p.Queues, func() error { return nil })
		if err != nil {
			return storage.CountResult{}, err
		}
		return storage.CountResult{Counted: len(k.stats)}, s.keepCounts(ctx, k, 0)
	}
	var me [16]byte
	if _, err := rand.Read(me[:]); err != nil {
		return storage.CountResult{}, err
	}
	var cost storage.CountCost
	began := time.Now() //nolint:forbidigo // measures how long the count takes
	cost.Lap(began)
	mine, err := s.countTurn(ctx, me)
	if err != nil || !mine {
		return storage.CountResult{}, err
	}
	held := began
	k, err := s.take(ctx, nil, func() error {
		now := time.Now() //nolint:forbidigo // paces the renewals of the turn, and the counts
		if cost.Lap(now); now.Sub(held) < countHeld {
			return nil
		}
		held = now
		mine, err := s.countTurn(ctx, me)
		if err == nil && !mine {
			err = fmt.Errorf("%s: count: %w: another server took over", s.engine.Name, storage.ErrUnavailable)
		}
		return err
	})
	if err != nil {
		return storage.CountResult{}, err
	}
	if err := s.keepCounts(ctx, k, countIdle); err != nil {
		return storage.CountResult{}, err
	}
	cost.Lap(time.Now()) //nolint:forbidigo // the last one
	rest := cost.Rest()
	err = s.write(ctx, "count", func(c *session) (verdict, error) {
		_, err := c.change(ctx, qTurnDone, a("holder", s.engine.Values.Token(me)), a("rest_us", rest.Microseconds()))
		return commit, err
	})
	return storage.CountResult{Counted: len(k.stats)}, err
}

// countTurn takes the turn to count, or says that it still goes on.
func (s *Store) countTurn(ctx context.Context, me [16]byte) (mine bool, err error) {
	err = s.write(ctx, "count", func(c *session) (verdict, error) {
		n, err := c.change(ctx, qTurnTake, a("holder", s.engine.Values.Token(me)))
		mine = n > 0
		return verdict(mine), err
	})
	return mine, err
}

// keepCounts keeps counts for everybody, a few queues a transaction, unless younger ones are
// there, or the same, not older than idle.
func (s *Store) keepCounts(ctx context.Context, k *counting, idle time.Duration) error {
	ids := make([]int32, 0, len(k.stats))
	for id := range k.stats {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for some := range slices.Chunk(ids, countKept) {
		rows := make([][]any, len(some))
		for i, id := range some {
			st := k.stats[id]
			rows[i] = []any{id, st.Ready, st.Delayed, st.Blocked, st.Leased, st.LeaseExpired, st.Completed, st.Dead, nil}
			if !st.OldestReady.IsZero() {
				rows[i][8] = instant(st.OldestReady)
			}
		}
		err := s.write(ctx, "count", func(c *session) (verdict, error) {
			asOf := a("as_of", s.engine.Values.Time(k.now))
			n, err := c.change(ctx, qStatsUpdate, c.list(rows), asOf, a("idle_time", s.engine.Values.Time(k.now.Add(-idle))))
			if err == nil && n < int64(len(rows)) {
				_, err = c.change(ctx, qStatsInsert, c.list(rows), asOf)
			}
			if err != nil && s.engine.Errors.Duplicate(err) {
				err = errAgain // another server has kept counts of the same queue just now
			}
			return commit, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
