package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
)

// maxPresent bounds the priorities without a place that FirstReady names.
const maxPresent = 64

// FirstReady implements storage.Store. W7.
func (s *Store) FirstReady(ctx context.Context, p storage.FirstReadyParams) (storage.FirstReadyResult, error) {
	var (
		out             storage.FirstReadyResult
		priorities      []int32
		times           []time.Time
		positions       []int64
		highest, lowest []int32
	)
	g := segmentsOf(p.Below)
	for i, hinted := range g.hinted {
		if hinted {
			priorities, times, positions = append(priorities, g.highest[i]), append(times, g.from[i]), append(positions, g.position[i])
		} else {
			highest, lowest = append(highest, g.highest[i]), append(lowest, g.lowest[i])
		}
	}
	err := s.read(ctx, "first ready", step{
		sql: s.sql.firstReady, args: []any{p.QueueID, priorities, times, positions, highest, lowest, maxPresent, p.DueBelow},
		scan: each(
			func() { out = storage.FirstReadyResult{} },
			func(r pgx.Rows) error {
				var priority *int32
				var at, due *time.Time
				var position *int64
				if err := r.Scan(&out.Now, &priority, &at, &position, &due); err != nil {
					return err
				}
				out.Now, out.Due = out.Now.UTC(), utc(due)
				if priority == nil {
					return nil
				}
				f := storage.FirstReady{Priority: *priority}
				if at != nil {
					f.Found, f.ReadyTime, f.Position = true, at.UTC(), *position
				}
				out.Priorities = append(out.Priorities, f)
				return nil
			},
		),
	})
	if err != nil {
		return storage.FirstReadyResult{}, err
	}
	return out, nil
}
