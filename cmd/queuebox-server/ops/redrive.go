package ops

import (
	"context"
	"fmt"
	"time"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

type redriveCmd struct {
	Queue       string        `arg:"" complete:"queue" help:"Name of the queue."`
	AllDead     bool          `group:"Filter" help:"All dead messages of the queue, where no other filter is given."`
	Spread      time.Duration `placeholder:"DURATION" help:"Spread what is redriven over this time instead of making it ready at once. Later messages of an ordering key wait behind it until then."`
	MaxAttempts int32         `placeholder:"N" help:"Attempts to allow on top of those made. 0 takes the setting of the queue."`
	filterFlags
	batchFlags
	connection
}

// Run redrives in batches.
func (c *redriveCmd) Run(e *Env) error {
	spread, err := milliseconds("spread", c.Spread)
	if err != nil {
		return err
	}
	return c.with(e, func(ctx context.Context, s *session) error {
		filter, err := c.filter(ctx, s, nil)
		if err != nil {
			return err
		}
		if empty(filter) && !c.AllDead {
			return UsageError{fmt.Errorf("redrive: %w, or --all-dead for every dead message of the queue", errNoFilter)}
		}
		filter.States = []queueboxv1.MessageState{queueboxv1.MessageState_MESSAGE_STATE_DEAD}
		b := &batches{
			verb: "redrive", done: "redriven", queue: c.Queue, flags: &c.batchFlags,
			step: func(ctx context.Context, most int32, dryRun bool) (int64, bool, error) {
				resp, err := call(ctx, s, s.admin.RedriveMessages, &queueboxv1.RedriveMessagesRequest{
					Queue: c.Queue, Filter: filter, MaxMessages: most, DryRun: dryRun, SpreadMs: spread, MaxAttempts: c.MaxAttempts,
				})
				return resp.GetMessageCount(), resp.GetMore(), err
			},
			report: func(n int64, more bool) error {
				return s.print(&queueboxv1.RedriveMessagesResponse{MessageCount: n, More: more})
			},
		}
		if err := b.check(); err != nil {
			return err
		}
		return b.run(ctx, s)
	})
}
