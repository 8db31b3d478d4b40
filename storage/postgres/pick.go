package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
)

const (
	// operateRows and operateBytes bound what one transaction of Redrive or Purge moves.
	operateRows  = 500
	operateBytes = 4 << 20
	// pickRows is how many messages a call looks at, and countRows how many where it only
	// counts and nobody waits for it.
	pickRows  = 4 * operateRows
	countRows = 10_000
)

// picked is a message that a filter means.
type picked struct {
	position    int64
	bytes       int32
	finishTime  *time.Time
	orderingKey *string
	blocks      bool // it is dead, and its ordering key waits behind it
}

// page is what a look at a bounded number of messages found.
type page struct {
	rows []picked
	last int64 // the last position looked at; 0 where there is nothing beyond it
}

// pick looks at the next messages of one kind; sql says which.
func (s *Store) pick(ctx context.Context, what, sql string, filter storage.ListMessagesParams, after int64, dryRun bool) (page, error) {
	looks := pickRows
	if dryRun {
		looks = countRows
	}
	var out page
	err := s.read(ctx, what+": pick", step{
		sql: sql, args: append(filterArgs(filter), after, int64(looks)),
		scan: each(func() { out = page{} }, func(r pgx.Rows) error {
			var m picked
			var meant bool
			err := r.Scan(&m.position, &m.bytes, &m.finishTime, &m.orderingKey, &meant, &m.blocks)
			if meant {
				out.rows = append(out.rows, m)
			} else {
				out.last = m.position
			}
			return err
		}),
	})
	return out, err
}

// cut keeps as many rows as one call moves, or counts.
func (p page) cut(limit int, dryRun bool) page {
	limit = max(limit, 1)
	if !dryRun {
		limit = min(limit, operateRows)
	}
	n, bytes := 0, int64(0)
	for n < min(len(p.rows), limit) && (dryRun || n == 0 || bytes+int64(p.rows[n].bytes) <= operateBytes) {
		bytes += int64(p.rows[n].bytes)
		n++
	}
	if n == len(p.rows) {
		return p
	}
	return page{rows: p.rows[:n], last: p.rows[n-1].position}
}

func (p page) positions() []int64 {
	positions := make([]int64, len(p.rows))
	for i, m := range p.rows {
		positions[i] = m.position
	}
	return positions
}

// keys names the ordering keys of some of the messages.
func (p page) keys(queueID int32, of func(picked) bool) (ids []int32, names []string) {
	for _, m := range p.rows {
		if m.orderingKey != nil && of(m) {
			ids, names = append(ids, queueID), append(names, *m.orderingKey)
		}
	}
	return ids, names
}

// ordered are those with an ordering key.
func (p page) ordered(queueID int32) (refs []storage.Ref) {
	for _, m := range p.rows {
		if m.orderingKey != nil {
			refs = append(refs, storage.Ref{QueueID: queueID, Position: m.position})
		}
	}
	return refs
}

func (s *Store) lockNamesSQL(free bool) string {
	if free {
		return s.sql.lockNamesFree
	}
	return s.sql.lockNames
}

// keyWait is how long an operator's call waits for an ordering key that somebody has. It holds
// other keys meanwhile, which somebody may wait for in turn.
const keyWait = "SELECT set_config('lock_timeout', '100ms', true)"

// operate runs a statement that moves messages, between the locks of their ordering keys and the
// promotion of those. Who has a key lets it go soon; where one does not, the keys that nobody
// has are enough: lock gives the steps for both. held is that of headsStep.
func (s *Store) operate(ctx context.Context, what string, lock func(free bool) []step, ready *[]int32, held *bool, st step) error {
	steps := func(free bool) []step {
		all := append([]step{{sql: keyWait}}, lock(free)...)
		return append(all, st, s.headsStep(ready, held))
	}
	err := s.write(ctx, what, steps(false)...)
	if hasCode(err, codeLockNotAvailable) {
		err = s.write(ctx, what, steps(true)...)
	}
	return err
}

// counted reads the answer of a statement that moves messages.
func counted(out *storage.BatchResult) func(pgx.Rows) error {
	return one(func(r pgx.Rows) error {
		var n int64
		err := r.Scan(&out.Now, &n)
		out.Count, out.Now = int(n), out.Now.UTC()
		return err
	})
}
