package ops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

type messagesListCmd struct {
	Queue   string `arg:"" complete:"queue" help:"Name of the queue."`
	Limit   int    `default:"100" placeholder:"N" help:"Most messages to list. Default ${default}."`
	All     bool   `help:"List all that match, however many they are."`
	Payload bool   `help:"Include the bodies. They are shown by -o json alone."`
	stateFlag
	filterFlags
	connection
}

// listPage is the largest page of the server.
const listPage = 1000

// Run lists messages page by page; no more than one page is in memory.
func (c *messagesListCmd) Run(e *Env) error {
	if c.Limit <= 0 {
		return UsageError{fmt.Errorf("--limit: want 1 or more, got %d", c.Limit)}
	}
	if c.Payload && c.Output != "json" {
		return UsageError{errors.New("--payload: bodies do not fit into a table; pass -o json too")}
	}
	return c.with(e, func(ctx context.Context, s *session) error {
		filter, err := c.filter(ctx, s, c.State)
		if err != nil {
			return err
		}
		// The ages of a table are told by the clock of the database, wherever this runs.
		var ahead time.Duration
		if !s.json {
			now, err := s.databaseTime(ctx)
			if err != nil {
				return err
			}
			ahead = time.Until(now)
		}
		t := newTable(s.Stdout, "ID", "STATE", "ATTEMPT", "AGE", "NEXT", "KEY", "WORKER", "REASON", "ERROR")
		req := &queueboxv1.ListMessagesRequest{Queue: c.Queue, Filter: filter, IncludePayload: c.Payload}
		for left := c.Limit; ; {
			req.PageSize = listPage
			if !c.All {
				req.PageSize = int32(min(left, listPage))
			}
			page, err := call(ctx, s, s.admin.ListMessages, req)
			if err != nil {
				return about(c.Queue, err)
			}
			if err := c.show(s, t, page.GetMessages(), time.Now().Add(ahead)); err != nil {
				return err
			}
			left -= len(page.GetMessages())
			req.PageToken = page.GetNextPageToken()
			if req.GetPageToken() == "" {
				return nil
			}
			if !c.All && left <= 0 {
				s.note("there may be more; --limit=N or --all lists them")
				return nil
			}
		}
	})
}

// show prints a page in one write.
func (c *messagesListCmd) show(s *session, t *table, page []*queueboxv1.Message, now time.Time) error {
	if !s.json {
		for _, m := range page {
			t.add(messageRow(m, now)...)
		}
		return t.flush()
	}
	var text bytes.Buffer
	for _, m := range page {
		line, err := document(m)
		if err != nil {
			return err
		}
		text.Write(line)
		text.WriteByte('\n')
	}
	return write(s.Stdout, text.Bytes())
}

// errorRunes is what a row of a table shows of an error; 'messages get' shows it whole.
const errorRunes = 60

func messageRow(m *queueboxv1.Message, now time.Time) []string {
	// The code of a message that died before and lives again belongs to its last error.
	reason := deadName(m.GetDeadReason())
	switch code := m.GetReasonCode(); {
	case code == "" || strings.EqualFold(strings.ReplaceAll(reason, "-", "_"), code):
	case reason == "":
		reason = code
	default:
		reason += "/" + code
	}
	return []string{
		m.GetMessageId(), stateName(m.GetState()), attempts(m), span(max(0, now.Sub(m.GetCreateTime().AsTime()))),
		next(m, now), m.GetOrderingKey(), m.GetWorkerId(), reason, cut(m.GetLastError(), errorRunes),
	}
}

func attempts(m *queueboxv1.Message) string {
	text := strconv.Itoa(int(m.GetAttempt()))
	if m.GetMaxAttempts() > 0 {
		text += "/" + strconv.Itoa(int(m.GetMaxAttempts()))
	}
	return text
}

// next is what happens to a message by itself.
func next(m *queueboxv1.Message, now time.Time) string {
	switch m.GetState() {
	case queueboxv1.MessageState_MESSAGE_STATE_PENDING:
		if d := m.GetAvailableTime().AsTime().Sub(now); d > 0 {
			return "ready in " + span(d)
		}
		return "ready"
	case queueboxv1.MessageState_MESSAGE_STATE_PROCESSING:
		if d := m.GetLeaseExpireTime().AsTime().Sub(now); d > 0 {
			return "leased for " + span(d)
		}
		return "lease ran out"
	default:
		return ""
	}
}

type messagesGetCmd struct {
	Queue   string `arg:"" complete:"queue" help:"Name of the queue."`
	ID      string `arg:"" name:"id" help:"Id of the message."`
	Payload bool   `help:"Show the body too. What is no text is shown by -o json alone, in base64."`
	connection
}

// Run shows one message whole.
func (c *messagesGetCmd) Run(e *Env) error {
	return c.with(e, func(ctx context.Context, s *session) error {
		resp, err := call(ctx, s, s.admin.GetMessage, &queueboxv1.GetMessageRequest{Queue: c.Queue, MessageId: c.ID, IncludePayload: c.Payload})
		if err != nil {
			return about(c.Queue, err)
		}
		if s.json {
			return s.print(resp.GetMessage())
		}
		now, err := s.databaseTime(ctx)
		if err != nil {
			return err
		}
		if err := s.facts(messageFacts(resp.GetMessage(), now)...); err != nil || !c.Payload {
			return err
		}
		return s.say("\n%s", body(resp.GetMessage().GetPayload()))
	})
}

func messageFacts(m *queueboxv1.Message, now time.Time) [][2]string {
	facts := [][2]string{
		{"id", m.GetMessageId()},
		{"queue", m.GetQueue()},
		{"state", stateName(m.GetState())},
		{"dead reason", deadName(m.GetDeadReason())},
		{"reason code", m.GetReasonCode()},
		{"last error", m.GetLastError()},
		{"attempt", attempts(m)},
		{"created", moment(m.GetCreateTime(), now)},
		{"available", moment(m.GetAvailableTime(), now)},
		{"expires", moment(m.GetExpireTime(), now)},
		{"lease ends", moment(m.GetLeaseExpireTime(), now)},
		{"worker", m.GetWorkerId()},
		{"idempotency key", m.GetIdempotencyKey()},
		{"ordering key", m.GetOrderingKey()},
		{"priority", strconv.Itoa(int(m.GetPriority()))},
		{"content type", m.GetContentType()},
	}
	for _, name := range slices.Sorted(maps.Keys(m.GetAttributes())) {
		facts = append(facts, [2]string{"attribute", name + " = " + m.GetAttributes()[name]})
	}
	facts = append(facts, [2]string{"payload", many(m.GetPayloadBytes(), "byte")})
	if len(m.GetResult()) > 0 {
		facts = append(facts, [2]string{"result", body(m.GetResult())})
	}
	return facts
}

// body is bytes as text, where they are one.
func body(b []byte) string {
	if !utf8.Valid(b) {
		return fmt.Sprintf("(%s that are no text; -o json shows them in base64)", many(int64(len(b)), "byte"))
	}
	return replaceControls(string(b), "\n\t")
}

type messagesCancelCmd struct {
	Queue          string   `arg:"" complete:"queue" help:"Name of the queue."`
	ID             []string `arg:"" name:"id" optional:"" help:"Ids of the messages."`
	IdempotencyKey string   `placeholder:"KEY" help:"Cancel the message of this idempotency key instead."`
	connection
}

// Run cancels one message after the other and stops at the first that cannot be.
func (c *messagesCancelCmd) Run(e *Env) error {
	if (len(c.ID) == 0) == (c.IdempotencyKey == "") {
		return UsageError{errors.New("messages cancel: give ids of messages, or one --idempotency-key")}
	}
	return c.with(e, func(ctx context.Context, s *session) error {
		if c.IdempotencyKey != "" {
			return c.cancel(ctx, s, c.IdempotencyKey, &queueboxv1.CancelRequest{
				Queue: c.Queue, Target: &queueboxv1.CancelRequest_IdempotencyKey{IdempotencyKey: c.IdempotencyKey},
			})
		}
		for _, id := range c.ID {
			err := c.cancel(ctx, s, id, &queueboxv1.CancelRequest{Queue: c.Queue, Target: &queueboxv1.CancelRequest_MessageId{MessageId: id}})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *messagesCancelCmd) cancel(ctx context.Context, s *session, name string, req *queueboxv1.CancelRequest) error {
	resp, err := call(ctx, s, s.producer.Cancel, req)
	if err != nil {
		return fmt.Errorf("message %s: %w", harmless(name), about(c.Queue, err))
	}
	if s.json {
		return s.print(resp)
	}
	what := "is " + stateName(resp.GetState())
	if resp.GetState() == queueboxv1.MessageState_MESSAGE_STATE_PROCESSING {
		what = "is held by a worker, which was asked to stop; 'messages revoke' takes it away at once"
	}
	return s.say("%s %s", harmless(name), what)
}

type messagesRevokeCmd struct {
	Queue  string `arg:"" complete:"queue" help:"Name of the queue."`
	ID     string `arg:"" name:"id" help:"Id of the message."`
	Refund bool   `help:"Give the attempt back. Without it a message on its last attempt is dead."`
	connection
}

// Run takes a claim away and shows what became of the message.
func (c *messagesRevokeCmd) Run(e *Env) error {
	return c.with(e, func(ctx context.Context, s *session) error {
		resp, err := call(ctx, s, s.admin.RevokeClaim, &queueboxv1.RevokeClaimRequest{Queue: c.Queue, MessageId: c.ID, RefundAttempt: c.Refund})
		if err != nil {
			return about(c.Queue, err)
		}
		if s.json {
			return s.print(resp.GetMessage())
		}
		now, err := s.databaseTime(ctx)
		if err != nil {
			return err
		}
		return s.facts(messageFacts(resp.GetMessage(), now)...)
	})
}
