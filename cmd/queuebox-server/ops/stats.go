package ops

import (
	"context"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

type queuesStatsCmd struct {
	Queue []string `arg:"" optional:"" complete:"queue" help:"Names of queues; all where none is given."`
	connection
}

// Run counts once.
func (c *queuesStatsCmd) Run(e *Env) error {
	return c.with(e, func(ctx context.Context, s *session) error {
		t := newTable(s.Stdout, statsHead...)
		if err := s.eachStats(ctx, c.Queue, func(queue string, st *queueboxv1.GetQueueStatsResponse) error {
			if s.json {
				return s.printOf(queue, st)
			}
			t.add(statsRow(queue, st)...)
			return nil
		}); err != nil {
			return err
		}
		if s.json {
			return nil
		}
		return t.flush()
	})
}

// eachStats calls f with the counts of every queue that is named, of all where none is.
func (s *session) eachStats(ctx context.Context, queues []string, f func(string, *queueboxv1.GetQueueStatsResponse) error) error {
	one := func(queue string) error {
		st, err := call(ctx, s, s.admin.GetQueueStats, &queueboxv1.GetQueueStatsRequest{Queue: queue})
		if err != nil {
			return about(queue, err)
		}
		return f(queue, st)
	}
	if len(queues) > 0 {
		for _, q := range queues {
			if err := one(q); err != nil {
				return err
			}
		}
		return nil
	}
	return s.eachQueuePage(ctx, func(page []*queueboxv1.Queue) error {
		for _, q := range page {
			if err := one(q.GetQueue()); err != nil {
				return err
			}
		}
		return nil
	})
}

var statsHead = []string{"QUEUE", "READY", "DELAYED", "BLOCKED", "LEASED", "EXPIRED", "COMPLETED", "DEAD", "OLDEST READY", "WAITING"}

func statsRow(queue string, st *queueboxv1.GetQueueStatsResponse) []string {
	oldest := ""
	if st.GetReadyCount() > 0 {
		oldest = spanMS(st.GetOldestReadyAgeMs())
	}
	return []string{
		queue, count(st.GetReadyCount()), count(st.GetDelayedCount()), count(st.GetBlockedCount()), count(st.GetLeasedCount()),
		count(st.GetLeaseExpiredCount()), count(st.GetCompletedCount()), count(st.GetDeadCount()), oldest, count(int64(st.GetWaitingClaims())),
	}
}
