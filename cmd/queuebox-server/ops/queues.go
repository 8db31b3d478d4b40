package ops

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

type queuesListCmd struct {
	connection
}

// Run lists all queues, a page at a time.
func (c *queuesListCmd) Run(e *Env) error {
	return c.with(e, func(ctx context.Context, s *session) error {
		t := newTable(s.Stdout, "QUEUE", "STATE", "LEASE", "ATTEMPTS", "RETRY", "IN FLIGHT", "RATE", "ORDERING", "KEPT", "CREATED")
		return s.eachQueuePage(ctx, func(page []*queueboxv1.Queue) error {
			for _, q := range page {
				if s.json {
					if err := s.print(q); err != nil {
						return err
					}
					continue
				}
				t.add(q.GetQueue(), activity(q), spanMS(q.GetDefaultLeaseMs()), limit(q.GetMaxAttempts()), retries(q), limit(q.GetMaxInFlight()),
					rate(q.GetMaxClaimsPerSecond()), plainName(orderingPrefix, q.GetOrderingMode().String()), spanMS(q.GetCompletedRetentionMs()),
					q.GetCreateTime().AsTime().Format("2006-01-02"))
			}
			if s.json {
				return nil
			}
			return t.flush()
		})
	})
}

// eachQueuePage calls f for every page of queues, at least once.
func (s *session) eachQueuePage(ctx context.Context, f func([]*queueboxv1.Queue) error) error {
	req := &queueboxv1.ListQueuesRequest{PageSize: 1000}
	for {
		page, err := call(ctx, s, s.admin.ListQueues, req)
		if err != nil {
			return fmt.Errorf("list queues: %w", err)
		}
		if err := f(page.GetQueues()); err != nil {
			return err
		}
		if page.GetNextPageToken() == "" {
			return nil
		}
		req.PageToken = page.GetNextPageToken()
	}
}

func activity(q *queueboxv1.Queue) string {
	if q.GetPaused() {
		return "paused"
	}
	return "active"
}

func retries(q *queueboxv1.Queue) string {
	p := q.GetRetryPolicy()
	return fmt.Sprintf("%s to %s", spanMS(p.GetMinBackoffMs()), spanMS(p.GetMaxBackoffMs()))
}

// show prints the settings of a queue.
func (s *session) show(q *queueboxv1.Queue) error {
	if s.json {
		return s.print(q)
	}
	p := q.GetRetryPolicy()
	dead := "for ever"
	if q.GetDeadRetentionMs() != 0 {
		dead = spanMS(q.GetDeadRetentionMs())
	}
	return s.facts(
		[2]string{"queue", q.GetQueue()},
		[2]string{"state", activity(q)},
		[2]string{"lease", fmt.Sprintf("%s (%s to %s)", spanMS(q.GetDefaultLeaseMs()), spanMS(q.GetMinLeaseMs()), spanMS(q.GetMaxLeaseMs()))},
		[2]string{"max attempts", limit(q.GetMaxAttempts())},
		[2]string{"retry", fmt.Sprintf("%s, times %s, jitter %s", retries(q),
			strconv.FormatFloat(p.GetMultiplier(), 'f', -1, 64), strconv.FormatFloat(p.GetJitter(), 'f', -1, 64))},
		[2]string{"max in flight", limit(q.GetMaxInFlight())},
		[2]string{"max claims", rate(q.GetMaxClaimsPerSecond())},
		[2]string{"max messages", limit(q.GetMaxMessages())},
		[2]string{"ordering", plainName(orderingPrefix, q.GetOrderingMode().String())},
		[2]string{"completed kept", spanMS(q.GetCompletedRetentionMs())},
		[2]string{"dead kept", dead},
		[2]string{"created", q.GetCreateTime().AsTime().Format("2006-01-02T15:04:05Z07:00")},
		[2]string{"etag", q.GetEtag()},
	)
}

type queuesGetCmd struct {
	Queue string `arg:"" complete:"queue" help:"Name of the queue."`
	connection
}

// Run shows one queue.
func (c *queuesGetCmd) Run(e *Env) error {
	return c.with(e, func(ctx context.Context, s *session) error {
		resp, err := call(ctx, s, s.admin.GetQueue, &queueboxv1.GetQueueRequest{Queue: c.Queue})
		if err != nil {
			return about(c.Queue, err)
		}
		return s.show(resp.GetQueue())
	})
}

// about puts the queue in front of an error.
func about(queue string, err error) error {
	return fmt.Errorf("queue %q: %w", queue, err)
}

type queuesCreateCmd struct {
	Queue string `arg:"" help:"Name of the new queue."`
	settingsFlags
	connection
}

// Run makes a queue and shows it.
func (c *queuesCreateCmd) Run(e *Env) error {
	q := &queueboxv1.Queue{Queue: c.Queue}
	if _, err := c.apply(q); err != nil {
		return err
	}
	return c.with(e, func(ctx context.Context, s *session) error {
		resp, err := call(ctx, s, s.admin.CreateQueue, &queueboxv1.CreateQueueRequest{Queue: q})
		if err != nil {
			return about(c.Queue, err)
		}
		return s.show(resp.GetQueue())
	})
}

type queuesUpdateCmd struct {
	Queue string `arg:"" complete:"queue" help:"Name of the queue."`
	Etag  string `placeholder:"ETAG" help:"Change nothing unless the queue still has this etag, which 'queues get' shows."`
	settingsFlags
	connection
}

// updateTries bounds the repeats of a change to a part of the retry policy that another
// change overtook.
const updateTries = 5

// Run changes settings and shows the queue.
func (c *queuesUpdateCmd) Run(e *Env) error {
	paths, err := c.apply(&queueboxv1.Queue{})
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return errNoSetting
	}
	return c.with(e, func(ctx context.Context, s *session) error {
		for try := 1; ; try++ {
			q, err := c.update(ctx, s, paths)
			if lost, ok := err.(*rpcError); ok && lost.code == codes.Aborted && c.Etag == "" && try < updateTries { //nolint:errorlint // as call returned it
				continue
			}
			if err != nil {
				return about(c.Queue, err)
			}
			return s.show(q)
		}
	})
}

func (c *queuesUpdateCmd) update(ctx context.Context, s *session, paths []string) (*queueboxv1.Queue, error) {
	q := &queueboxv1.Queue{Queue: c.Queue, Etag: c.Etag}
	if slices.Contains(paths, "retry_policy") {
		// The policy is one field, so the part that was not given is the one that there is; and
		// the etag says that it still is.
		old, err := call(ctx, s, s.admin.GetQueue, &queueboxv1.GetQueueRequest{Queue: c.Queue})
		if err != nil {
			return nil, err
		}
		q.RetryPolicy = old.GetQueue().GetRetryPolicy()
		if q.GetEtag() == "" {
			q.Etag = old.GetQueue().GetEtag()
		}
	}
	if _, err := c.apply(q); err != nil {
		return nil, err
	}
	resp, err := call(ctx, s, s.admin.UpdateQueue, &queueboxv1.UpdateQueueRequest{Queue: q, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
	if err != nil {
		return nil, err
	}
	return resp.GetQueue(), nil
}

type queuesPauseCmd struct {
	Queue string `arg:"" complete:"queue" help:"Name of the queue."`
	connection
}

// Run pauses a queue.
func (c *queuesPauseCmd) Run(e *Env) error {
	return c.with(e, func(ctx context.Context, s *session) error {
		resp, err := call(ctx, s, s.admin.PauseQueue, &queueboxv1.PauseQueueRequest{Queue: c.Queue})
		if err != nil {
			return about(c.Queue, err)
		}
		if s.json {
			return s.print(resp.GetQueue())
		}
		return s.say("%s is paused: nothing more is claimed; workers may finish what they hold", harmless(c.Queue))
	})
}

type queuesResumeCmd struct {
	Queue string `arg:"" complete:"queue" help:"Name of the queue."`
	connection
}

// Run lets claims through again.
func (c *queuesResumeCmd) Run(e *Env) error {
	return c.with(e, func(ctx context.Context, s *session) error {
		resp, err := call(ctx, s, s.admin.ResumeQueue, &queueboxv1.ResumeQueueRequest{Queue: c.Queue})
		if err != nil {
			return about(c.Queue, err)
		}
		if s.json {
			return s.print(resp.GetQueue())
		}
		return s.say("%s is active", harmless(c.Queue))
	})
}
