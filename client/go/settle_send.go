package queuebox

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// settleAlone sends one settlement as a call of its own.
func (c *Client) settleAlone(ctx context.Context, st *settlement) settleAnswer {
	ctx, cancel := context.WithTimeout(ctx, st.timeout)
	defer cancel()
	var (
		settled Settled
		err     error
	)
	switch item := st.item.GetAction().(type) {
	case *queueboxv1.SettleItem_Complete:
		var resp *queueboxv1.CompleteResponse
		resp, err = c.worker.Complete(ctx, item.Complete)
		settled = Settled{
			Outcome:        OutcomeCompleted,
			AlreadySettled: resp.GetAlreadySettled(),
			CompleteTime:   timeOf(resp.GetCompleteTime()),
			FollowUpIDs:    resp.GetFollowUpMessageIds(),
		}
	case *queueboxv1.SettleItem_Retry:
		var resp *queueboxv1.RetryResponse
		resp, err = c.worker.Retry(ctx, item.Retry)
		settled = Settled{
			Outcome:        outcomeOf(resp.GetOutcome()),
			AlreadySettled: resp.GetAlreadySettled(),
			AvailableTime:  timeOf(resp.GetAvailableTime()),
		}
	case *queueboxv1.SettleItem_DeadLetter:
		var resp *queueboxv1.DeadLetterResponse
		resp, err = c.worker.DeadLetter(ctx, item.DeadLetter)
		settled = Settled{Outcome: OutcomeDead, AlreadySettled: resp.GetAlreadySettled()}
	case *queueboxv1.SettleItem_Release:
		var resp *queueboxv1.ReleaseResponse
		resp, err = c.worker.Release(ctx, item.Release)
		settled = Settled{
			Outcome:        outcomeOf(resp.GetOutcome()),
			AlreadySettled: resp.GetAlreadySettled(),
			AvailableTime:  timeOf(resp.GetAvailableTime()),
		}
	}
	if err != nil {
		return settleAnswer{err: fromRPC(st.op, err), sent: true}
	}
	return settleAnswer{settled: settled, sent: true}
}

// settleBatch sends a batch and answers each of it.
func (c *Client) settleBatch(batch []*settlement) {
	if len(batch) == 1 {
		batch[0].answer <- c.settleAlone(c.life, batch[0])
		return
	}
	req := &queueboxv1.BatchSettleRequest{Items: make([]*queueboxv1.SettleItem, len(batch))}
	timeout := batch[0].timeout
	for i, st := range batch {
		req.Items[i] = st.item
		timeout = min(timeout, st.timeout)
	}
	ctx, cancel := context.WithTimeout(c.life, timeout)
	resp, err := c.worker.BatchSettle(ctx, req)
	cancel()
	if err == nil {
		err = matches(batch, resp.GetResults())
	}
	if err != nil {
		if e := fromRPC("settle", err); e.refusedTogether(batch) {
			// One item, or the size of all, had the others refused with it.
			c.settleBatch(batch[:len(batch)/2])
			c.settleBatch(batch[len(batch)/2:])
			return
		}
		c.logger.WarnContext(c.life, "settlements brought no answer", "messages", len(batch), "error", fromRPC("settle", err))
		for _, st := range batch {
			st.answer <- settleAnswer{err: fromRPC(st.op, err), sent: true, logged: true}
		}
		return
	}
	for i, st := range batch {
		st.answer <- answerOf(st.op, resp.GetResults()[i])
	}
}

// matches tells what is wrong with answers that are not those to the batch. An answer to another
// claim must never be taken for one's own.
func matches(batch []*settlement, results []*queueboxv1.SettleResult) error {
	if len(results) != len(batch) {
		return status.Errorf(codes.Internal, "%d answers to %d settlements", len(results), len(batch))
	}
	for i, st := range batch {
		if token := results[i].GetClaimToken(); token != "" && token != st.token {
			return status.Errorf(codes.Internal, "answer %d is one to another settlement", i)
		}
	}
	return nil
}

// answerOf reads the answer to one item.
func answerOf(op string, r *queueboxv1.SettleResult) settleAnswer {
	if r.GetError() != nil {
		return settleAnswer{err: fromItem(op, r.GetError()), sent: true}
	}
	return settleAnswer{sent: true, settled: Settled{
		Outcome:        outcomeOf(r.GetOutcome()),
		AlreadySettled: r.GetAlreadySettled(),
		AvailableTime:  timeOf(r.GetAvailableTime()),
		CompleteTime:   timeOf(r.GetCompleteTime()),
		FollowUpIDs:    r.GetFollowUpMessageIds(),
	}}
}

// refusedTogether tells that a batch was turned away as a whole, for something that need not be
// true of each of its items.
func (e *Error) refusedTogether(batch []*settlement) bool {
	if !e.refused() || e.busy() {
		return false
	}
	switch e.Code() {
	case codes.Unauthenticated:
		return false // the same credentials go with every call
	case codes.PermissionDenied:
		return slices.ContainsFunc(batch, func(st *settlement) bool { return st.queue != batch[0].queue })
	default:
		return true
	}
}

// sizeOf is about what an item takes on the wire. The usual settlement holds nothing that needs
// counting.
func sizeOf(item *queueboxv1.SettleItem) int {
	const plain = 1 << 10 // names, identifier and token
	switch a := item.GetAction().(type) {
	case *queueboxv1.SettleItem_Complete:
		if len(a.Complete.GetFollowUps()) > 0 {
			return plain + proto.Size(a.Complete)
		}
		return plain + len(a.Complete.GetResult())
	case *queueboxv1.SettleItem_Retry:
		return plain + len(a.Retry.GetError())
	case *queueboxv1.SettleItem_DeadLetter:
		return plain + len(a.DeadLetter.GetError()) + len(a.DeadLetter.GetReasonCode())
	default:
		return plain
	}
}
