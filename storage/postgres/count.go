package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
)

const (
	// countQueues are counted in one statement, with countFew rows of each; what has more is
	// counted by itself, countMany rows a statement.
	countQueues = 100
	countFew    = 1000
	countMany   = 20000
	// countHeld is how often a turn is renewed; it ends 6 seconds after the last time.
	countHeld = 2 * time.Second
)

// tally is the count of a queue, page by page.
type tally struct {
	stats storage.QueueStats
	found bool
	// Where each page begins; nil where the end was reached.
	live, completed, dead *int64
}

func newTally() *tally {
	var live, completed, dead int64
	return &tally{live: &live, completed: &completed, dead: &dead}
}

func (y *tally) open() bool { return y.live != nil || y.completed != nil || y.dead != nil }

// countedPage is a row of count_page.sql.
type countedPage struct {
	id                                                               int32
	now                                                              time.Time
	n, ready, delayed, blocked, leased, over, completed, dead, doneN int64
	kept, goneN, keptDead                                            int64
	last, doneLast, goneLast                                         *int64
	oldest                                                           *time.Time
}

func (p *countedPage) targets() []any {
	return []any{
		&p.id, &p.now, &p.n, &p.last, &p.ready, &p.delayed, &p.blocked, &p.leased, &p.over, &p.completed, &p.dead, &p.oldest,
		&p.doneN, &p.doneLast, &p.kept, &p.goneN, &p.goneLast, &p.keptDead,
	}
}

// add counts a page of at most limit rows of each kind.
func (y *tally) add(p *countedPage, limit int64) {
	st := &y.stats
	if !y.found {
		y.found, st.AsOf = true, p.now.UTC()
	}
	st.Ready += p.ready
	st.Delayed += p.delayed
	st.Blocked += p.blocked
	st.Leased += p.leased
	st.LeaseExpired += p.over
	st.Completed += p.completed + p.kept
	st.Dead += p.dead + p.keptDead
	if t := utc(p.oldest); !t.IsZero() && (st.OldestReady.IsZero() || t.Before(st.OldestReady)) {
		st.OldestReady = t
	}
	y.live, y.completed, y.dead = after(p.last, p.n, limit), after(p.doneLast, p.doneN, limit), after(p.goneLast, p.goneN, limit)
}

// after is where the next page begins.
func after(last *int64, n, limit int64) *int64 {
	if n < limit {
		return nil
	}
	return last
}

// countAll counts queues. between is called before each statement but the first.
func (s *Store) countAll(ctx context.Context, ids []int32, between func() error) (map[int32]*tally, error) {
	all := make(map[int32]*tally, len(ids))
	limit := int64(countFew)
	if len(ids) == 1 {
		limit = countMany
	}
	for _, id := range ids {
		all[id] = newTally()
	}
	if err := s.countPage(ctx, ids, all, limit); err != nil {
		return nil, err
	}
	for _, id := range ids {
		for y := all[id]; y.found && y.open(); {
			if err := between(); err != nil {
				return nil, err
			}
			if err := s.countPage(ctx, []int32{id}, all, countMany); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

func (s *Store) countPage(ctx context.Context, ids []int32, all map[int32]*tally, limit int64) error {
	live, completed, dead := make([]*int64, 0, len(ids)), make([]*int64, 0, len(ids)), make([]*int64, 0, len(ids))
	for _, id := range ids {
		y := all[id]
		live, completed, dead = append(live, y.live), append(completed, y.completed), append(dead, y.dead)
	}
	var pages []countedPage
	err := s.read(ctx, "count", step{
		sql: s.sql.countPage, args: []any{ids, live, completed, dead, limit},
		scan: each(func() { pages = nil }, func(r pgx.Rows) error {
			var p countedPage
			err := r.Scan(p.targets()...)
			pages = append(pages, p)
			return err
		}),
	})
	for i := range pages {
		all[pages[i].id].add(&pages[i], limit)
	}
	return err
}

// QueueStats implements storage.Admin.
func (s *Store) QueueStats(ctx context.Context, queueID int32) (storage.QueueStats, error) {
	all, err := s.countAll(ctx, []int32{queueID}, func() error { return nil })
	if err != nil {
		return storage.QueueStats{}, err
	}
	if !all[queueID].found {
		return storage.QueueStats{}, fmt.Errorf("postgres: queue stats: %w", storage.ErrQueueNotFound)
	}
	return all[queueID].stats, nil
}

// StoredStats implements storage.Admin.
func (s *Store) StoredStats(ctx context.Context, queueID int32) (storage.QueueStats, error) {
	var (
		out          storage.QueueStats
		found        bool
		asOf, oldest *time.Time
		n            [7]*int64
	)
	err := s.read(ctx, "stored stats", step{
		sql: s.sql.statsGet, args: []any{queueID},
		scan: each(func() { found = false }, func(r pgx.Rows) error {
			found = true
			return r.Scan(&asOf, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6], &oldest)
		}),
	})
	if err != nil {
		return storage.QueueStats{}, err
	}
	if !found {
		return storage.QueueStats{}, fmt.Errorf("postgres: stored stats: %w", storage.ErrQueueNotFound)
	}
	if asOf == nil {
		return out, nil
	}
	return storage.QueueStats{
		AsOf: asOf.UTC(), Ready: *n[0], Delayed: *n[1], Blocked: *n[2], Leased: *n[3], LeaseExpired: *n[4],
		Completed: *n[5], Dead: *n[6], OldestReady: utc(oldest),
	}, nil
}

// Count implements storage.Upkeep. The turn to count is a row of its own: whoever has it
// says so every few seconds, and who takes it over when it was not heard of counts anew.
func (s *Store) Count(ctx context.Context, p storage.CountParams) (storage.CountResult, error) {
	if len(p.Queues) > 0 {
		n, err := s.countAndKeep(ctx, p.Queues, func() error { return nil })
		return storage.CountResult{Counted: n}, err
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
	total := 0
	between := func() error {
		now := time.Now() //nolint:forbidigo // paces the renewals of the turn, and the counts
		if cost.Lap(now); now.Sub(held) < countHeld {
			return nil
		}
		held = now
		mine, err := s.countTurn(ctx, me)
		if err == nil && !mine {
			err = fmt.Errorf("postgres: count: %w: another server took over", storage.ErrUnavailable)
		}
		return err
	}
	for from := int32(0); ; {
		cost.Lap(time.Now()) //nolint:forbidigo // the turn, or the put before
		ids, err := s.queuesToCount(ctx, from)
		if err != nil {
			return storage.CountResult{}, err
		}
		if len(ids) == 0 {
			break
		}
		n, err := s.countAndKeep(ctx, ids, between)
		if err != nil {
			return storage.CountResult{}, err
		}
		total += n
		if len(ids) < countQueues {
			break
		}
		from = ids[len(ids)-1]
		if err := between(); err != nil {
			return storage.CountResult{}, err
		}
	}
	cost.Lap(time.Now()) //nolint:forbidigo // the last one
	err = s.write(ctx, "count", step{sql: s.sql.countDone, args: []any{me, cost.Rest().Microseconds()}})
	return storage.CountResult{Counted: total}, err
}

func (s *Store) countTurn(ctx context.Context, me [16]byte) (mine bool, err error) {
	err = s.write(ctx, "count", step{sql: s.sql.countTurn, args: []any{me}, scan: each(
		func() { mine = false },
		func(pgx.Rows) error { mine = true; return nil },
	)})
	return mine, err
}

func (s *Store) queuesToCount(ctx context.Context, from int32) (ids []int32, err error) {
	err = s.read(ctx, "count", step{sql: s.sql.countQueues, args: []any{from, int64(countQueues)}, scan: each(
		func() { ids = nil },
		func(r pgx.Rows) error {
			var id int32
			err := r.Scan(&id)
			ids = append(ids, id)
			return err
		},
	)})
	return ids, err
}

func (s *Store) countAndKeep(ctx context.Context, ids []int32, between func() error) (int, error) {
	all, err := s.countAll(ctx, ids, between)
	if err != nil {
		return 0, err
	}
	var (
		kept   []int32
		asOf   []time.Time
		oldest []*time.Time
		n      [7][]int64
	)
	for _, id := range ids {
		y := all[id]
		if !y.found {
			continue
		}
		st := &y.stats
		kept, asOf, oldest = append(kept, id), append(asOf, st.AsOf), append(oldest, nullTime(st.OldestReady))
		for i, v := range []int64{st.Ready, st.Delayed, st.Blocked, st.Leased, st.LeaseExpired, st.Completed, st.Dead} {
			n[i] = append(n[i], v)
		}
	}
	err = s.write(ctx, "count", step{sql: s.sql.countPut, args: []any{kept, asOf, n[0], n[1], n[2], n[3], n[4], n[5], n[6], oldest}})
	return len(kept), err
}
