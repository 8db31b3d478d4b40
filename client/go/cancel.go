package queuebox

import (
	"context"
	"fmt"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// CancelTarget names the message to cancel. Set one of the two.
type CancelTarget struct {
	// MessageID is the identifier that Enqueue returned.
	MessageID string
	// IdempotencyKey is the key that the message was enqueued with.
	IdempotencyKey string
}

// State is the state of a message, as the wire names it without its prefix.
type State string

// The states.
const (
	StatePending    State = "PENDING"
	StateProcessing State = "PROCESSING"
	StateCompleted  State = "COMPLETED"
	StateDead       State = "DEAD"
	StateCancelled  State = "CANCELLED"
)

// Cancel ends a message and returns its state after the call (S14): StateCancelled;
// StateProcessing where a worker holds it and was asked to stop, by Handle.CancelRequested, and
// may still complete it; or the state of a message that was finished before and stays as it is.
//
// It is safe to repeat, and is sent up to five times where no answer comes.
func (c *Client) Cancel(ctx context.Context, queue string, target CancelTarget) (State, error) {
	req := &queueboxv1.CancelRequest{Queue: queue}
	// The server refuses a target that is not set. Of two the wire carries one, so they are
	// refused here.
	switch {
	case target.MessageID != "" && target.IdempotencyKey != "":
		return "", fmt.Errorf("queuebox: cancel: set MessageID or IdempotencyKey, not both: %w", ErrInvalidArgument)
	case target.MessageID != "":
		req.Target = &queueboxv1.CancelRequest_MessageId{MessageId: target.MessageID}
	case target.IdempotencyKey != "":
		req.Target = &queueboxv1.CancelRequest_IdempotencyKey{IdempotencyKey: target.IdempotencyKey}
	}
	var resp *queueboxv1.CancelResponse
	err := c.produce(ctx, "cancel", true, func(ctx context.Context) (err error) {
		resp, err = c.producer.Cancel(ctx, req)
		return err
	})
	if err != nil {
		return "", err
	}
	return stateOf(resp.GetState()), nil
}

// stateOf takes the prefix from the name of an enum value.
func stateOf(s queueboxv1.MessageState) State {
	const prefix = "MESSAGE_STATE_"
	name := s.String()
	if len(name) <= len(prefix) || name[:len(prefix)] != prefix {
		return ""
	}
	return State(name[len(prefix):])
}
