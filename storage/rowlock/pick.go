package rowlock

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	qPickPageCompleted statement = "pick_page_completed"
	qPickPageDead      statement = "pick_page_dead"
	qPickPagePending   statement = "pick_page_pending"
	qPickCompleted     statement = "pick_completed"
	qPickDead          statement = "pick_dead"
	qPickPending       statement = "pick_pending"
)

const (
	// operateRows and operateBytes bound what one transaction of Redrive or Purge moves.
	operateRows  = 250
	operateBytes = 4 << 20
	// pickRows is how many messages a call looks at, and countRows how many where it only
	// counts. Neither look holds up anybody.
	pickRows  = 2000
	countRows = 5000
)

// pile is one of the tables that messages are in, with the statements that look at it. walk
// gives the ids to look at, choose those of them that a filter means, hold those that nobody
// else holds, and drop deletes them.
type pile struct{ walk, choose, hold, drop statement }

var (
	pileCompleted = pile{qPickPageCompleted, qPickCompleted, qPurgeCompletedLock, qPurgeCompletedDelete}
	pileDead      = pile{qPickPageDead, qPickDead, qPurgeDeadLock, qDeadDelete}
	pilePending   = pile{qPickPagePending, qPickPending, qPurgePendingLock, qPurgePendingDelete}
)

// picked is a message that a filter means.
type picked struct {
	id          int64
	bytes       int64
	orderingKey string
	blocks      bool // it is dead, and its ordering key waits behind it
}

func (m picked) position() int64 { return positionOf(m.id, m.orderingKey != "") }

// found is what a look at a bounded number of messages found.
type found struct {
	rows []picked
	last int64 // the last id looked at; 0 where there is nothing beyond it
}

// search finds the next messages of a kind that a filter means.
func (s *Store) search(ctx context.Context, what string, k pile, f storage.ListMessagesParams, after int64, dryRun bool) (found, error) {
	looks := pickRows
	if dryRun {
		looks = countRows
	}
	filter, err := filterArgs(s.engine.Values, f)
	if err != nil {
		return found{}, err
	}
	var out found
	err = s.read(ctx, what+": look", func(c *session) error {
		out = found{}
		ids, err := c.lookAt(ctx, k, f, after, looks)
		if err != nil || len(ids) == 0 {
			return err
		}
		if len(ids) == looks {
			out.last = ids[looks-1]
		}
		return c.each(ctx, k.choose, append(filter, c.ids(ids)), func(rows *sql.Rows) error {
			var m picked
			err := rows.Scan(&m.id, &m.orderingKey, &m.bytes, &m.blocks)
			if len(f.Positions) == 0 || slices.Contains(f.Positions, m.position()) {
				out.rows = append(out.rows, m)
			}
			return err
		})
	})
	return out, err
}

// lookAt gives the ids to look at, in their order: the next ones of the table, or of those that
// the filter names.
func (c *session) lookAt(ctx context.Context, k pile, f storage.ListMessagesParams, after int64, looks int) ([]int64, error) {
	if len(f.Positions) > 0 {
		named := make([]int64, len(f.Positions))
		for i, position := range f.Positions {
			named[i] = idOf(position)
		}
		slices.Sort(named)
		named = slices.Compact(named)
		first, _ := slices.BinarySearch(named, after+1)
		return named[first:min(len(named), first+looks)], nil
	}
	ids := make([]int64, 0, looks)
	err := c.each(ctx, k.walk, args(a("queue_id", f.QueueID), a("after", after), a("look", looks)), func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	})
	return ids, err
}

// cut keeps as many rows as one call moves, or counts.
func (f found) cut(limit int, dryRun bool) found {
	limit = max(limit, 1)
	if !dryRun {
		limit = min(limit, operateRows)
	}
	n, bytes := 0, int64(0)
	for n < min(len(f.rows), limit) && (dryRun || n == 0 || bytes+f.rows[n].bytes <= operateBytes) {
		bytes += f.rows[n].bytes
		n++
	}
	if n == len(f.rows) {
		return f
	}
	return found{rows: f.rows[:n], last: f.rows[n-1].id}
}

const (
	// keyTries and keyPause bound how often, and how soon, an operator's call tries again to
	// have the ordering keys that somebody has. It waits between the transactions and not in
	// one, since it would hold other keys meanwhile.
	keyTries = 5
	keyPause = 20 * time.Millisecond
)

// operate runs a transaction between the locks of ordering keys and their promotion. Who has a
// key lets it go soon; where one does not, the keys that nobody has are enough. lock tells
// whether it got them all. ready are the queues in which a message became the head of its key,
// and held names the keys whose head somebody has locked.
func (s *Store) operate(
	ctx context.Context, what string,
	lock func(c *session) (k lockedKeys, all bool, err error), move func(c *session, k lockedKeys) (verdict, error),
) (ready []int32, held []int64, err error) {
	for n := 1; ; n++ {
		again := false
		err = s.write(ctx, what, func(c *session) (verdict, error) {
			again, ready, held = false, nil, nil
			k, all, err := lock(c)
			if err != nil {
				return rollback, err
			}
			if again = !all && n < keyTries; again {
				return rollback, nil
			}
			v, err := move(c, k)
			if err != nil || v == rollback {
				return v, err
			}
			var some bool
			if ready, some, err = c.promote(ctx, k.ids); some {
				held = k.ids
			}
			return v, err
		})
		if err != nil || !again {
			return ready, held, err
		}
		pause := time.NewTimer(keyPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			n = keyTries - 1
		}
	}
}
