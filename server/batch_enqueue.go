package server

import (
	"context"
	"fmt"
	"strconv"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
)

// BatchEnqueue inserts all messages or none. An empty batch is answered with an empty
// answer.
func (a *api) BatchEnqueue(ctx context.Context, req *queueboxv1.BatchEnqueueRequest) (*queueboxv1.BatchEnqueueResponse, error) {
	c := &check{}
	c.batch("requests", len(req.GetRequests()))
	if err := c.err(); err != nil {
		return nil, err
	}
	names := make([]string, len(req.GetRequests()))
	ms := make([]storage.NewMessage, len(req.GetRequests()))
	for i, r := range req.GetRequests() {
		names[i] = r.GetQueue()
		c.item("requests", i, func() { ms[i] = a.newMessage(c, r) })
		if len(c.violations) >= maxViolations {
			break
		}
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	if len(ms) == 0 {
		now, err := a.serverTime(ctx)
		if err != nil {
			return nil, err
		}
		return &queueboxv1.BatchEnqueueResponse{ServerTime: now}, nil
	}
	res, err := a.enqueue(ctx, names, ms)
	if err != nil {
		return nil, err
	}
	resp := &queueboxv1.BatchEnqueueResponse{
		Responses:  make([]*queueboxv1.EnqueueResponse, len(res.Items)),
		ServerTime: stamp(res.Now),
	}
	answers := make([]queueboxv1.EnqueueResponse, len(res.Items))
	for i, id := range messageIDs(refsOf(res.Items)) {
		answer := &answers[i]
		answer.MessageId = id
		answer.Duplicate = res.Items[i].Status == storage.EnqueueDuplicate
		answer.State = wireState(res.Items[i].State)
		answer.ServerTime = resp.GetServerTime()
		resp.Responses[i] = answer
	}
	return resp, nil
}

func refsOf(items []storage.Enqueued) []storage.Ref {
	refs := make([]storage.Ref, len(items))
	for i := range items {
		refs[i] = items[i].Ref
	}
	return refs
}

// keyReused is the error of a whole call, of which item i reused a key (E3).
func keyReused(i, n int) error {
	e := &apiError{
		reason: queueboxv1.ErrorReason_ERROR_REASON_IDEMPOTENCY_KEY_REUSED,
		text:   "the idempotency_key names a message with other content; nothing was inserted; use a new key for new content",
	}
	if n > 1 {
		e.metadata = map[string]string{"index": strconv.Itoa(i)}
		e.text = fmt.Sprintf("requests[%d]: %s", i, e.text)
	}
	return e
}
