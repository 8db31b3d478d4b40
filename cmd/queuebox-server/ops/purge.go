package ops

import (
	"context"
	"fmt"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

type purgeCmd struct {
	Queue string `arg:"" complete:"queue" help:"Name of the queue."`
	stateFlag
	filterFlags
	batchFlags
	connection
}

// Run purges in batches.
func (c *purgeCmd) Run(e *Env) error {
	return c.with(e, func(ctx context.Context, s *session) error {
		filter, err := c.filter(ctx, s, c.State)
		if err != nil {
			return err
		}
		if empty(filter) {
			return UsageError{fmt.Errorf("purge: %w, or --state=dead for every dead message of the queue", errNoFilter)}
		}
		b := &batches{
			verb: "purge", done: "purged", queue: c.Queue, flags: &c.batchFlags, mustConfirm: true,
			step: func(ctx context.Context, most int32, dryRun bool) (int64, bool, error) {
				resp, err := call(ctx, s, s.admin.PurgeMessages, &queueboxv1.PurgeMessagesRequest{
					Queue: c.Queue, Filter: filter, MaxMessages: most, DryRun: dryRun,
				})
				return resp.GetMessageCount(), resp.GetMore(), err
			},
			report: func(n int64, more bool) error {
				return s.print(&queueboxv1.PurgeMessagesResponse{MessageCount: n, More: more})
			},
		}
		if err := b.check(); err != nil {
			return err
		}
		return b.run(ctx, s)
	})
}
