package rowlock

import (
	"context"
	"database/sql"
	"math"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	qFirstReady   statement = "first_ready"
	qFirstUrgency statement = "first_urgency"
)

// maxPresent bounds the priorities without a place that FirstReady names.
const maxPresent = 64

// latest is after every ready time.
var latest = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// FirstReady implements storage.Store. W7.
func (s *Store) FirstReady(ctx context.Context, p storage.FirstReadyParams) (storage.FirstReadyResult, error) {
	var out storage.FirstReadyResult
	err := s.read(ctx, "first ready", func(c *session) error {
		out = storage.FirstReadyResult{}
		var err error
		if out.Now, err = c.now(ctx); err != nil {
			return err
		}
		add := func(urgency int64, before time.Time) error {
			f, err := c.firstReady(ctx, p.QueueID, urgency, before)
			out.Priorities = append(out.Priorities, f)
			return err
		}
		named := map[int64]bool{}
		for _, part := range segments(p.Below) {
			if part.urgency < -math.MaxInt32 {
				continue // what stands before all places
			}
			named[part.urgency] = true
			if err := add(part.urgency, part.ready); err != nil {
				return err
			}
		}
		for from, others := int64(-math.MaxInt32), 0; others < maxPresent; {
			urgency, found, err := c.firstUrgency(ctx, p.QueueID, from)
			if err != nil || !found {
				return err
			}
			from = urgency + 1
			if named[urgency] {
				continue
			}
			if err := add(urgency, latest); err != nil {
				return err
			}
			others++
		}
		return nil
	})
	if err != nil {
		return storage.FirstReadyResult{}, err
	}
	storage.SortFirstReady(out.Priorities)
	return out, nil
}

// firstUrgency finds the next priority of the ready set, by its urgency.
func (c *session) firstUrgency(ctx context.Context, queueID int32, from int64) (urgency int64, found bool, err error) {
	list := args(a("queue_id", queueID), a("urgency", from))
	err = c.each(ctx, qFirstUrgency, list, func(rows *sql.Rows) error {
		found = true
		return rows.Scan(&urgency)
	})
	return urgency, found, err
}

// firstReady finds the first claimable message of a priority before a ready time.
func (c *session) firstReady(ctx context.Context, queueID int32, urgency int64, before time.Time) (storage.FirstReady, error) {
	f := storage.FirstReady{Priority: int32(-urgency)}
	list := args(a("queue_id", queueID), a("urgency", urgency), a("ready_time", c.s.engine.Values.Time(before)))
	err := c.each(ctx, qFirstReady, list, func(rows *sql.Rows) error {
		f.Found = true
		err := rows.Scan(&f.ReadyTime)
		f.ReadyTime = f.ReadyTime.UTC()
		return err
	})
	return f, err
}
