package sqlite

import (
	"context"
	"slices"

	"github.com/queuebox/queuebox/storage"
)

const (
	// operateRows and operateBytes bound what one transaction of Redrive or Purge moves.
	operateRows  = 250
	operateBytes = 4 << 20
	// pickRows is how many messages a call looks at, and countRows how many where it only
	// counts. Neither look holds up a writer.
	pickRows  = 2000
	countRows = 5000
)

// kind is one of the tables that messages are in, with the statements that look at it. page
// gives the positions to look at, pick those of them that a filter means.
type kind struct{ page, pick, remove query }

var (
	kindDead      = kind{qPageDead, qPickDead, qPurgeDeadDelete}
	kindCompleted = kind{qPageCompleted, qPickCompleted, qPurgeCompletedDelete}
	kindPending   = kind{qPagePending, qPickPending, qPurgePendingDelete}
)

// picked is a message that a filter means.
type picked struct {
	position    int64
	bytes       int64
	orderingKey string
}

// search is what a look at a bounded number of messages found.
type found struct {
	rows []picked
	last int64 // the last position looked at; 0 where there is nothing beyond it
}

// search finds the next messages of a kind that a filter means, on a snapshot.
func (s *Store) search(ctx context.Context, noun string, k kind, f storage.ListMessagesParams, after int64, dryRun bool) (found, error) {
	looks := pickRows
	if dryRun {
		looks = countRows
	}
	var out found
	err := s.read(ctx, noun, func(c *session) error {
		positions, err := c.lookAt(ctx, k, f, after, looks)
		if err != nil || len(positions) == 0 {
			return err
		}
		if len(positions) == looks {
			out.last = positions[looks-1]
		}
		f.Positions = positions
		out.rows, err = c.pick(ctx, k, f)
		return err
	})
	return out, err
}

// lookAt gives the positions to look at, in their order: the next ones of the table, or of
// those that the filter names.
func (c *session) lookAt(ctx context.Context, k kind, f storage.ListMessagesParams, after int64, looks int) ([]int64, error) {
	if len(f.Positions) > 0 {
		named := slices.Clone(f.Positions)
		slices.Sort(named)
		named = slices.Compact(named)
		first, _ := slices.BinarySearch(named, after+1)
		return named[first:min(len(named), first+looks)], nil
	}
	positions := make([]int64, 0, looks)
	a := args(after, looks)
	if k == kindDead {
		a = append(a, f.QueueID)
	}
	err := c.each(ctx, k.page, a, func(rows *row) error {
		var position int64
		err := rows.Scan(&position)
		positions = append(positions, position)
		return err
	})
	return positions, err
}

// pick tells which of the messages that the filter names it means, in their order.
func (c *session) pick(ctx context.Context, k kind, f storage.ListMessagesParams) ([]picked, error) {
	filters, err := listFilters(f)
	if err != nil {
		return nil, err
	}
	reasons, err := toJSON(orEmpty(f.DeadReasons))
	if err != nil {
		return nil, err
	}
	var rows []picked
	a := append(args(f.QueueID, 0), filters...)
	err = c.each(ctx, k.pick, append(a, reasons), func(r *row) error {
		var m picked
		err := r.Scan(&m.position, &m.bytes, &m.orderingKey)
		rows = append(rows, m)
		return err
	})
	return rows, err
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
	return found{rows: f.rows[:n], last: f.rows[n-1].position}
}

func positionsOf(rows []picked) []int64 {
	positions := make([]int64, len(rows))
	for i, m := range rows {
		positions[i] = m.position
	}
	return positions
}
