package server

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/server/wireid"
	"github.com/queuebox/queuebox/storage"
)

// bodyPage is the largest page with bodies: they are read before the answer is cut.
const bodyPage = 50

// ListMessages lists messages, newest first. A page_size of 0 means 100, and more than
// 1000 (with bodies 50) means that. A page may hold fewer messages than that and still
// not be the last: next_page_token alone tells.
func (a *api) ListMessages(ctx context.Context, req *queueboxv1.ListMessagesRequest) (*queueboxv1.ListMessagesResponse, error) {
	c := &check{}
	c.queue("queue", req.GetQueue())
	p := storage.ListMessagesParams{Payload: req.GetIncludePayload(), Limit: c.pageSize("page_size", req.GetPageSize())}
	if p.Payload {
		p.Limit = min(p.Limit, bodyPage)
	}
	var refs []storage.Ref
	c.within("filter.", func() { refs = c.filter(req.GetFilter(), &p) })
	var before storage.Ref
	if token := req.GetPageToken(); token != "" {
		ref, err := wireid.ParseMessage(token)
		if err != nil {
			c.wrong("page_token", "is not a page_token that a QueueBox server made; give back the one of the page before")
		}
		before = ref
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	q, err := a.catalog.id(ctx, req.GetQueue())
	if err != nil {
		return nil, err
	}
	if before != (storage.Ref{}) && before.QueueID != q.ID {
		c.wrong("page_token", "belongs to another queue")
		return nil, c.err()
	}
	p.QueueID, p.Before = q.ID, before.Position
	for _, ref := range refs {
		if ref.QueueID == q.ID {
			p.Positions = append(p.Positions, ref.Position)
		}
	}
	if len(refs) > 0 && len(p.Positions) == 0 {
		return &queueboxv1.ListMessagesResponse{}, nil
	}
	call, cancel := a.statement(ctx)
	defer cancel()
	res, err := a.store.ListMessages(call, p)
	if err != nil {
		return nil, err
	}
	return a.messagePage(q, res), nil
}

// messagePage cuts a page where its answer would grow too large.
func (a *api) messagePage(q storage.Queue, res storage.ListMessagesResult) *queueboxv1.ListMessagesResponse {
	resp := &queueboxv1.ListMessagesResponse{}
	next, size := res.Next, int64(0)
	for i := range res.Messages {
		m := wireMessage(q.Name, &res.Messages[i])
		n := int64(proto.Size(m)) + 8
		if i > 0 && size+n > a.answerBytes {
			next = res.Messages[i-1].Ref.Position
			break
		}
		size += n
		resp.Messages = append(resp.Messages, m)
	}
	if next != 0 {
		resp.NextPageToken = wireid.Message(storage.Ref{QueueID: q.ID, Position: next})
	}
	return resp
}

// filter reads a filter, but for the messages that it names, which it returns.
func (c *check) filter(f *queueboxv1.MessageFilter, p *storage.ListMessagesParams) []storage.Ref {
	for i, s := range f.GetStates() {
		state, ok := storedState(s)
		if !ok {
			c.wrong(fmt.Sprintf("states[%d]", i), "is no state of a message")
		}
		p.States = append(p.States, state)
	}
	c.text("ordering_key", f.GetOrderingKey())
	p.OrderingKey = f.GetOrderingKey()
	for i, r := range f.GetDeadReasons() {
		if _, known := queueboxv1.DeadReason_name[int32(r)]; !known || r == queueboxv1.DeadReason_DEAD_REASON_UNSPECIFIED {
			c.wrong(fmt.Sprintf("dead_reasons[%d]", i), "is no reason of a dead message")
		}
		p.DeadReasons = append(p.DeadReasons, storage.DeadReason(r))
	}
	c.batch("reason_codes", len(f.GetReasonCodes()))
	for i, code := range f.GetReasonCodes() {
		c.text(fmt.Sprintf("reason_codes[%d]", i), code)
	}
	p.ReasonCodes = f.GetReasonCodes()
	c.textUpTo("error_contains", f.GetErrorContains(), maxFilterBytes)
	p.ErrorContains = f.GetErrorContains()
	c.text("worker_id", f.GetWorkerId())
	p.WorkerID = f.GetWorkerId()
	p.MinCreateTime = c.time("min_create_time", f.GetMinCreateTime())
	p.MaxCreateTime = c.time("max_create_time", f.GetMaxCreateTime())
	c.batch("message_ids", len(f.GetMessageIds()))
	var refs []storage.Ref
	for i, id := range f.GetMessageIds() {
		refs = append(refs, c.message(fmt.Sprintf("message_ids[%d]", i), id))
		if len(c.violations) >= maxViolations {
			break
		}
	}
	return refs
}

func storedState(s queueboxv1.MessageState) (storage.State, bool) {
	switch s {
	case queueboxv1.MessageState_MESSAGE_STATE_PENDING:
		return storage.StatePending, true
	case queueboxv1.MessageState_MESSAGE_STATE_PROCESSING:
		return storage.StateProcessing, true
	case queueboxv1.MessageState_MESSAGE_STATE_COMPLETED:
		return storage.StateCompleted, true
	case queueboxv1.MessageState_MESSAGE_STATE_DEAD:
		return storage.StateDead, true
	case queueboxv1.MessageState_MESSAGE_STATE_CANCELLED:
		return storage.StateCancelled, true
	case queueboxv1.MessageState_MESSAGE_STATE_UNSPECIFIED:
	}
	return 0, false
}
