package ops

import (
	"context"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

type explainCmd struct {
	Queue string `arg:"" complete:"queue" help:"Name of the queue."`
	ID    string `arg:"" name:"id" help:"Id of the message."`
	connection
}

// Run says why a message is not claimed now.
func (c *explainCmd) Run(e *Env) error {
	return c.with(e, func(ctx context.Context, s *session) error {
		resp, err := call(ctx, s, s.admin.ExplainMessage, &queueboxv1.ExplainMessageRequest{Queue: c.Queue, MessageId: c.ID})
		if err != nil {
			return about(c.Queue, err)
		}
		if s.json {
			return s.print(resp)
		}
		facts := [][2]string{{"claimable now", "no"}}
		if resp.GetClaimable() {
			facts[0][1] = "yes"
		}
		for _, b := range resp.GetBlockers() {
			facts = append(facts, [2]string{"held back", b})
		}
		facts = append(facts, [2]string{"behind message", resp.GetBlockingMessageId()})
		if ts := resp.GetEarliestClaimTime(); ts != nil {
			now, err := s.databaseTime(ctx)
			if err != nil {
				return err
			}
			facts = append(facts, [2]string{"earliest", moment(ts, now)})
		}
		if resp.GetClaimable() || resp.GetMessagesAhead() != 0 {
			facts = append(facts, [2]string{"ahead of it", ahead(resp.GetMessagesAhead())})
		}
		return s.facts(facts...)
	})
}

func ahead(n int64) string {
	if n == -1 {
		return "more than 10,000 messages"
	}
	return many(n, "message")
}
