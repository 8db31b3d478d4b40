package blackbox

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// badInput is a call that must be refused and must change nothing.
type badInput struct {
	name string
	call func(ctx context.Context) error
	want Want
}

// invalid names the field that a BadRequest must name.
func invalid(field string) Want {
	return Want{Code: codes.InvalidArgument, Reason: "INVALID_ARGUMENT", Field: field}
}

var (
	leaseOutOfRange = Want{Code: codes.InvalidArgument, Reason: "LEASE_OUT_OF_RANGE", Field: "lease_ms"}
	unimplemented   = Want{Code: codes.Unimplemented, Reason: "UNIMPLEMENTED"}
	queueNotFound   = Want{Code: codes.NotFound, Reason: "QUEUE_NOT_FOUND"}
)

// badInputs lists every bad input of the contract. The queue "q" holds a claimed
// message m and a pending one; "other" exists too.
func badInputs(c *Client, m *queueboxv1.ClaimedMessage, maxPayload int) []badInput {
	var (
		all     []badInput
		id      = m.GetMessage().GetMessageId()
		token   = m.GetClaimToken()
		long    = strings.Repeat("n", 256)
		nul     = "a\x00b"
		hour    = time.Hour.Milliseconds()
		badKeys = map[string]string{"empty": "", "256 bytes": long, "256 bytes of UTF-8": strings.Repeat("é", 128), "NUL": nul}
	)
	add := func(want Want, name string, call func(ctx context.Context) error) {
		all = append(all, badInput{name: name, call: call, want: want})
	}
	enqueue := func(want Want, name string, req *queueboxv1.EnqueueRequest) {
		add(want, "Enqueue "+name, func(ctx context.Context) error { _, err := c.Enqueue(ctx, req); return err })
		if want.Field != "" {
			want.Field = "requests[1]." + want.Field
		}
		add(want, "BatchEnqueue "+name, func(ctx context.Context) error {
			_, err := c.BatchEnqueue(ctx, &queueboxv1.BatchEnqueueRequest{Requests: []*queueboxv1.EnqueueRequest{{Queue: "q"}, req, {Queue: "q"}}})
			return err
		})
	}
	claim := func(want Want, name string, req *queueboxv1.ClaimRequest) {
		add(want, "Claim "+name, func(ctx context.Context) error { _, err := c.Claim(ctx, req); return err })
	}
	// held runs all calls that name one claim.
	held := func(want Want, name, queue, id, token string) {
		add(want, "Renew "+name, func(ctx context.Context) error {
			_, err := c.Renew(ctx, &queueboxv1.RenewRequest{Queue: queue, MessageId: id, ClaimToken: token})
			return err
		})
		add(want, "Complete "+name, func(ctx context.Context) error {
			_, err := c.Complete(ctx, &queueboxv1.CompleteRequest{Queue: queue, MessageId: id, ClaimToken: token})
			return err
		})
		add(want, "Retry "+name, func(ctx context.Context) error {
			_, err := c.Retry(ctx, &queueboxv1.RetryRequest{Queue: queue, MessageId: id, ClaimToken: token})
			return err
		})
		add(want, "DeadLetter "+name, func(ctx context.Context) error {
			_, err := c.DeadLetter(ctx, &queueboxv1.DeadLetterRequest{Queue: queue, MessageId: id, ClaimToken: token})
			return err
		})
		add(want, "Release "+name, func(ctx context.Context) error {
			_, err := c.Release(ctx, &queueboxv1.ReleaseRequest{Queue: queue, MessageId: id, ClaimToken: token})
			return err
		})
		item := want
		add(Want{}, "BatchSettle item "+name, func(ctx context.Context) error {
			out, err := c.BatchSettle(ctx, &queueboxv1.BatchSettleRequest{Items: []*queueboxv1.SettleItem{{Action: &queueboxv1.SettleItem_Complete{
				Complete: &queueboxv1.CompleteRequest{Queue: queue, MessageId: id, ClaimToken: token},
			}}}})
			if err != nil {
				return err
			}
			return CheckItem(out.GetResults()[0].GetError(), item)
		})
	}

	for name, queue := range badKeys {
		enqueue(invalid("queue"), "queue: "+name, &queueboxv1.EnqueueRequest{Queue: queue})
		claim(invalid("queue"), "queue: "+name, &queueboxv1.ClaimRequest{Queue: queue})
		held(invalid("queue"), "queue: "+name, queue, id, token)
		add(invalid("queue"), "BatchRenew queue: "+name, func(ctx context.Context) error {
			_, err := c.BatchRenew(ctx, &queueboxv1.BatchRenewRequest{Queue: queue, Items: []*queueboxv1.RenewItem{{MessageId: id, ClaimToken: token}}})
			return err
		})
		add(invalid("queue"), "GetQueue queue: "+name, func(ctx context.Context) error {
			_, err := c.Admin.GetQueue(ctx, &queueboxv1.GetQueueRequest{Queue: queue})
			return err
		})
		add(invalid("queue"), "GetQueueStats queue: "+name, func(ctx context.Context) error {
			_, err := c.Admin.GetQueueStats(ctx, &queueboxv1.GetQueueStatsRequest{Queue: queue})
			return err
		})
		add(invalid("queue"), "PauseQueue queue: "+name, func(ctx context.Context) error {
			_, err := c.Admin.PauseQueue(ctx, &queueboxv1.PauseQueueRequest{Queue: queue})
			return err
		})
		add(invalid("queue"), "ListMessages queue: "+name, func(ctx context.Context) error {
			_, err := c.Admin.ListMessages(ctx, &queueboxv1.ListMessagesRequest{Queue: queue})
			return err
		})
		add(invalid("queue.queue"), "CreateQueue queue: "+name, func(ctx context.Context) error {
			_, err := c.Admin.CreateQueue(ctx, &queueboxv1.CreateQueueRequest{Queue: &queueboxv1.Queue{Queue: queue}})
			return err
		})
	}

	// Enqueue.
	enqueue(invalid("idempotency_key"), "idempotency_key of 256 bytes", &queueboxv1.EnqueueRequest{Queue: "q", IdempotencyKey: long})
	enqueue(invalid("idempotency_key"), "idempotency_key with NUL", &queueboxv1.EnqueueRequest{Queue: "q", IdempotencyKey: nul})
	enqueue(invalid("ordering_key"), "ordering_key of 256 bytes", &queueboxv1.EnqueueRequest{Queue: "q", OrderingKey: long})
	enqueue(invalid("ordering_key"), "ordering_key with NUL", &queueboxv1.EnqueueRequest{Queue: "q", OrderingKey: nul})
	enqueue(invalid("content_type"), "content_type of 256 bytes", &queueboxv1.EnqueueRequest{Queue: "q", ContentType: long})
	enqueue(invalid("content_type"), "content_type with NUL", &queueboxv1.EnqueueRequest{Queue: "q", ContentType: nul})
	enqueue(invalid("delay_ms"), "negative delay_ms", &queueboxv1.EnqueueRequest{Queue: "q", DelayMs: -1})
	enqueue(invalid("delay_ms"), "delay_ms beyond every calendar", &queueboxv1.EnqueueRequest{Queue: "q", DelayMs: math.MaxInt64})
	enqueue(invalid("available_time"), "both delay_ms and available_time (E7)", &queueboxv1.EnqueueRequest{Queue: "q", DelayMs: 1, AvailableTime: timestamppb.Now()})
	enqueue(invalid("available_time"), "available_time that is none", &queueboxv1.EnqueueRequest{Queue: "q", AvailableTime: &timestamppb.Timestamp{Seconds: 1, Nanos: -1}})
	enqueue(invalid("max_attempts"), "negative max_attempts", &queueboxv1.EnqueueRequest{Queue: "q", MaxAttempts: -1})
	enqueue(Want{Code: codes.InvalidArgument, Reason: "PAYLOAD_TOO_LARGE", Field: "payload"}, "payload one byte too large (E8)",
		&queueboxv1.EnqueueRequest{Queue: "q", Payload: make([]byte, maxPayload+1)})
	many := map[string]string{}
	for i := range 65 {
		many[fmt.Sprint(i)] = ""
	}
	enqueue(invalid("attributes"), "65 attributes", &queueboxv1.EnqueueRequest{Queue: "q", Attributes: many})
	enqueue(invalid("attributes"), "attributes beyond 64 KiB", &queueboxv1.EnqueueRequest{Queue: "q", Attributes: map[string]string{"a": strings.Repeat("v", 64<<10)}})
	enqueue(invalid("attributes"), "attribute value with NUL", &queueboxv1.EnqueueRequest{Queue: "q", Attributes: map[string]string{"a": nul}})
	enqueue(invalid("attributes"), "attribute name with NUL", &queueboxv1.EnqueueRequest{Queue: "q", Attributes: map[string]string{nul: "a"}})
	add(invalid("requests"), "BatchEnqueue of 1001", func(ctx context.Context) error {
		req := &queueboxv1.BatchEnqueueRequest{}
		for range 1001 {
			req.Requests = append(req.Requests, &queueboxv1.EnqueueRequest{Queue: "q"})
		}
		_, err := c.BatchEnqueue(ctx, req)
		return err
	})

	// Claim.
	claim(leaseOutOfRange, "lease_ms below the limit (C8)", &queueboxv1.ClaimRequest{Queue: "q", LeaseMs: 999})
	claim(leaseOutOfRange, "lease_ms above the limit (C8)", &queueboxv1.ClaimRequest{Queue: "q", LeaseMs: 12*hour + 1})
	claim(leaseOutOfRange, "lease_ms beyond every calendar", &queueboxv1.ClaimRequest{Queue: "q", LeaseMs: math.MaxInt64})
	claim(leaseOutOfRange, "negative lease_ms", &queueboxv1.ClaimRequest{Queue: "q", LeaseMs: -1})
	claim(invalid("max_messages"), "negative max_messages (C7)", &queueboxv1.ClaimRequest{Queue: "q", MaxMessages: -1})
	claim(invalid("max_messages"), "max_messages of 1001 (C7)", &queueboxv1.ClaimRequest{Queue: "q", MaxMessages: 1001})
	claim(invalid("wait_ms"), "negative wait_ms", &queueboxv1.ClaimRequest{Queue: "q", WaitMs: -1})
	claim(invalid("max_bytes"), "negative max_bytes", &queueboxv1.ClaimRequest{Queue: "q", MaxBytes: -1})
	claim(invalid("worker_id"), "worker_id of 256 bytes", &queueboxv1.ClaimRequest{Queue: "q", WorkerId: long})
	claim(invalid("worker_id"), "worker_id with NUL", &queueboxv1.ClaimRequest{Queue: "q", WorkerId: nul})
	claim(invalid("worker_id"), "claim_id without worker_id (C14)", &queueboxv1.ClaimRequest{Queue: "q", ClaimId: newClaimID()})
	claim(invalid("claim_id"), "claim_id that is no UUID", &queueboxv1.ClaimRequest{Queue: "q", ClaimId: "nonsense", WorkerId: "w"})

	// Calls that name a claim.
	flipped := func(s string) string { // one character changed, so that the check sum is wrong
		last := byte('0')
		if s[len(s)-2] == '0' {
			last = '1'
		}
		return s[:len(s)-2] + string(last) + s[len(s)-1:]
	}
	for name, bad := range map[string]string{"empty": "", "nonsense": "nonsense", "flipped": flipped(id), "upper case": strings.ToUpper(id), "a token": token, "long": id + id} {
		held(invalid("message_id"), "message_id: "+name, "q", bad, token)
		add(invalid("message_id"), "GetMessage message_id: "+name, func(ctx context.Context) error {
			_, err := c.Admin.GetMessage(ctx, &queueboxv1.GetMessageRequest{Queue: "q", MessageId: bad})
			return err
		})
	}
	for name, bad := range map[string]string{"nonsense": "nonsense", "flipped": flipped(token), "upper case": strings.ToUpper(token), "a message_id": id, "long": token + token, "NUL": nul} {
		held(invalid("claim_token"), "claim_token: "+name, "q", id, bad)
	}
	held(lost("SUPERSEDED"), "claim_token: empty (R3)", "q", id, "")
	held(messageNotFound, "wrong queue for the id (S8)", "other", id, token)
	held(messageNotFound, "unknown queue (S8)", "unknown", id, token)
	add(messageNotFound, "GetMessage wrong queue for the id (S8)", func(ctx context.Context) error {
		_, err := c.Admin.GetMessage(ctx, &queueboxv1.GetMessageRequest{Queue: "other", MessageId: id})
		return err
	})
	for name, lease := range map[string]int64{"below the limit": 999, "above the limit": 12*hour + 1, "negative": -1, "beyond every calendar": math.MaxInt64} {
		add(leaseOutOfRange, "Renew lease_ms "+name, func(ctx context.Context) error {
			_, err := c.Renew(ctx, &queueboxv1.RenewRequest{Queue: "q", MessageId: id, ClaimToken: token, LeaseMs: lease})
			return err
		})
		add(Want{}, "BatchRenew item lease_ms "+name, func(ctx context.Context) error {
			out, err := c.BatchRenew(ctx, &queueboxv1.BatchRenewRequest{Queue: "q", Items: []*queueboxv1.RenewItem{{MessageId: id, ClaimToken: token, LeaseMs: lease}}})
			if err != nil {
				return err
			}
			return CheckItem(out.GetResults()[0].GetError(), leaseOutOfRange)
		})
	}
	add(invalid("delay_ms"), "Retry negative delay_ms", func(ctx context.Context) error {
		_, err := c.Retry(ctx, &queueboxv1.RetryRequest{Queue: "q", MessageId: id, ClaimToken: token, DelayMs: proto.Int64(-1)})
		return err
	})
	add(invalid("delay_ms"), "Retry delay_ms beyond every calendar", func(ctx context.Context) error {
		_, err := c.Retry(ctx, &queueboxv1.RetryRequest{Queue: "q", MessageId: id, ClaimToken: token, DelayMs: proto.Int64(math.MaxInt64)})
		return err
	})
	add(invalid("delay_ms"), "Release negative delay_ms", func(ctx context.Context) error {
		_, err := c.Release(ctx, &queueboxv1.ReleaseRequest{Queue: "q", MessageId: id, ClaimToken: token, DelayMs: -1})
		return err
	})
	add(invalid("reason_code"), "DeadLetter reason_code of 256 bytes", func(ctx context.Context) error {
		_, err := c.DeadLetter(ctx, &queueboxv1.DeadLetterRequest{Queue: "q", MessageId: id, ClaimToken: token, ReasonCode: long})
		return err
	})
	add(invalid("reason_code"), "DeadLetter reason_code with NUL", func(ctx context.Context) error {
		_, err := c.DeadLetter(ctx, &queueboxv1.DeadLetterRequest{Queue: "q", MessageId: id, ClaimToken: token, ReasonCode: nul})
		return err
	})
	add(invalid("items"), "BatchRenew of 1001", func(ctx context.Context) error {
		req := &queueboxv1.BatchRenewRequest{Queue: "q"}
		for range 1001 {
			req.Items = append(req.Items, &queueboxv1.RenewItem{MessageId: id, ClaimToken: token})
		}
		_, err := c.BatchRenew(ctx, req)
		return err
	})
	add(invalid("items"), "BatchSettle of 1001", func(ctx context.Context) error {
		req := &queueboxv1.BatchSettleRequest{}
		for range 1001 {
			req.Items = append(req.Items, &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_Complete{Complete: completion("q", m)}})
		}
		_, err := c.BatchSettle(ctx, req)
		return err
	})
	return append(all, badAdminInputs(c, id)...)
}

// badAdminInputs are the bad inputs of AdminService.
func badAdminInputs(c *Client, id string) []badInput {
	var all []badInput
	add := func(want Want, name string, call func(ctx context.Context) error) {
		all = append(all, badInput{name: name, call: call, want: want})
	}
	for name, tc := range map[string]struct {
		field string
		set   func(q *queueboxv1.Queue)
	}{
		"negative default_lease_ms":                {"default_lease_ms", func(q *queueboxv1.Queue) { q.DefaultLeaseMs = -1 }},
		"negative min_lease_ms":                    {"min_lease_ms", func(q *queueboxv1.Queue) { q.MinLeaseMs = -1 }},
		"negative max_lease_ms":                    {"max_lease_ms", func(q *queueboxv1.Queue) { q.MaxLeaseMs = -1 }},
		"max_lease_ms above 7 days":                {"max_lease_ms", func(q *queueboxv1.Queue) { q.MaxLeaseMs = 7*24*3_600_000 + 1 }},
		"negative max_attempts":                    {"max_attempts", func(q *queueboxv1.Queue) { q.MaxAttempts = -1 }},
		"negative min_backoff_ms":                  {"retry_policy.min_backoff_ms", func(q *queueboxv1.Queue) { q.RetryPolicy = &queueboxv1.RetryPolicy{MinBackoffMs: -1} }},
		"negative max_backoff_ms":                  {"retry_policy.max_backoff_ms", func(q *queueboxv1.Queue) { q.RetryPolicy = &queueboxv1.RetryPolicy{MaxBackoffMs: -1} }},
		"multiplier above 10":                      {"retry_policy.multiplier", func(q *queueboxv1.Queue) { q.RetryPolicy = &queueboxv1.RetryPolicy{Multiplier: 10.5} }},
		"multiplier that is no number":             {"retry_policy.multiplier", func(q *queueboxv1.Queue) { q.RetryPolicy = &queueboxv1.RetryPolicy{Multiplier: math.NaN()} }},
		"jitter above 1":                           {"retry_policy.jitter", func(q *queueboxv1.Queue) { q.RetryPolicy = &queueboxv1.RetryPolicy{Jitter: 1.5} }},
		"negative jitter":                          {"retry_policy.jitter", func(q *queueboxv1.Queue) { q.RetryPolicy = &queueboxv1.RetryPolicy{Jitter: -0.5} }},
		"completed_retention_ms below 10 minutes":  {"completed_retention_ms", func(q *queueboxv1.Queue) { q.CompletedRetentionMs = 599_999 }},
		"negative dead_retention_ms":               {"dead_retention_ms", func(q *queueboxv1.Queue) { q.DeadRetentionMs = -1 }},
		"negative max_in_flight":                   {"max_in_flight", func(q *queueboxv1.Queue) { q.MaxInFlight = -1 }},
		"negative max_claims_per_second":           {"max_claims_per_second", func(q *queueboxv1.Queue) { q.MaxClaimsPerSecond = -0.5 }},
		"max_claims_per_second that is no number":  {"max_claims_per_second", func(q *queueboxv1.Queue) { q.MaxClaimsPerSecond = math.NaN() }},
		"max_claims_per_second above 1e6":          {"max_claims_per_second", func(q *queueboxv1.Queue) { q.MaxClaimsPerSecond = 1e7 }},
		"negative max_messages":                    {"max_messages", func(q *queueboxv1.Queue) { q.MaxMessages = -1 }},
		"an ordering_mode that nobody knows (E13)": {"ordering_mode", func(q *queueboxv1.Queue) { q.OrderingMode = 99 }},
	} {
		create, update := &queueboxv1.Queue{Queue: "new"}, &queueboxv1.Queue{Queue: "q"}
		tc.set(create)
		tc.set(update)
		want := invalid("queue." + tc.field)
		if strings.Contains(name, "(E13)") {
			want = Want{Reason: "E13", Field: want.Field}
		}
		add(want, "CreateQueue "+name, func(ctx context.Context) error {
			_, err := c.Admin.CreateQueue(ctx, &queueboxv1.CreateQueueRequest{Queue: create})
			return err
		})
		add(want, "UpdateQueue "+name, func(ctx context.Context) error {
			path, _, _ := strings.Cut(tc.field, ".")
			_, err := c.Admin.UpdateQueue(ctx, &queueboxv1.UpdateQueueRequest{Queue: update, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{path}}})
			return err
		})
	}
	add(invalid("queue.queue"), "CreateQueue without a queue", func(ctx context.Context) error {
		_, err := c.Admin.CreateQueue(ctx, &queueboxv1.CreateQueueRequest{})
		return err
	})
	add(Want{Code: codes.AlreadyExists, Reason: "QUEUE_EXISTS"}, "CreateQueue that exists", func(ctx context.Context) error {
		_, err := c.Admin.CreateQueue(ctx, &queueboxv1.CreateQueueRequest{Queue: &queueboxv1.Queue{Queue: "q"}})
		return err
	})
	add(invalid("queue.min_lease_ms"), "CreateQueue min_lease_ms above max_lease_ms", func(ctx context.Context) error {
		_, err := c.Admin.CreateQueue(ctx, &queueboxv1.CreateQueueRequest{Queue: &queueboxv1.Queue{Queue: "new", MinLeaseMs: 60_000, MaxLeaseMs: 30_000}})
		return err
	})
	add(invalid("update_mask.paths[0]"), "UpdateQueue with an unknown field", func(ctx context.Context) error {
		_, err := c.Admin.UpdateQueue(ctx, &queueboxv1.UpdateQueueRequest{Queue: &queueboxv1.Queue{Queue: "q"}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"nonsense"}}})
		return err
	})
	add(Want{Code: codes.Aborted, Reason: "ETAG_MISMATCH"}, "UpdateQueue with an old etag", func(ctx context.Context) error {
		q, err := c.Admin.GetQueue(ctx, &queueboxv1.GetQueueRequest{Queue: "q"})
		if err != nil {
			return err
		}
		for _, etag := range []string{q.GetQueue().GetEtag() + "1", q.GetQueue().GetEtag()} {
			_, err = c.Admin.UpdateQueue(ctx, &queueboxv1.UpdateQueueRequest{
				Queue: &queueboxv1.Queue{Queue: "q", Etag: etag, MaxAttempts: 7}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"max_attempts"}},
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	for name, call := range map[string]func(ctx context.Context) error{
		"GetQueue": func(ctx context.Context) error {
			_, err := c.Admin.GetQueue(ctx, &queueboxv1.GetQueueRequest{Queue: "unknown"})
			return err
		},
		"UpdateQueue": func(ctx context.Context) error {
			_, err := c.Admin.UpdateQueue(ctx, &queueboxv1.UpdateQueueRequest{
				Queue: &queueboxv1.Queue{Queue: "unknown", MaxAttempts: 7}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"max_attempts"}},
			})
			return err
		},
		"PauseQueue": func(ctx context.Context) error {
			_, err := c.Admin.PauseQueue(ctx, &queueboxv1.PauseQueueRequest{Queue: "unknown"})
			return err
		},
		"ResumeQueue": func(ctx context.Context) error {
			_, err := c.Admin.ResumeQueue(ctx, &queueboxv1.ResumeQueueRequest{Queue: "unknown"})
			return err
		},
		"GetQueueStats": func(ctx context.Context) error {
			_, err := c.Admin.GetQueueStats(ctx, &queueboxv1.GetQueueStatsRequest{Queue: "unknown"})
			return err
		},
		"ListMessages": func(ctx context.Context) error {
			_, err := c.Admin.ListMessages(ctx, &queueboxv1.ListMessagesRequest{Queue: "unknown"})
			return err
		},
	} {
		add(queueNotFound, name+" of an unknown queue", call)
	}
	add(invalid("page_size"), "ListQueues negative page_size", func(ctx context.Context) error {
		_, err := c.Admin.ListQueues(ctx, &queueboxv1.ListQueuesRequest{PageSize: -1})
		return err
	})
	add(invalid("page_size"), "ListMessages negative page_size", func(ctx context.Context) error {
		_, err := c.Admin.ListMessages(ctx, &queueboxv1.ListMessagesRequest{Queue: "q", PageSize: -1})
		return err
	})
	add(invalid("page_token"), "ListMessages foreign page_token", func(ctx context.Context) error {
		_, err := c.Admin.ListMessages(ctx, &queueboxv1.ListMessagesRequest{Queue: "q", PageToken: "nonsense"})
		return err
	})
	add(invalid("page_token"), "ListQueues foreign page_token", func(ctx context.Context) error {
		_, err := c.Admin.ListQueues(ctx, &queueboxv1.ListQueuesRequest{PageToken: "\x01nonsense"})
		return err
	})
	add(invalid("filter.message_ids[0]"), "ListMessages foreign message_ids", func(ctx context.Context) error {
		_, err := c.Admin.ListMessages(ctx, &queueboxv1.ListMessagesRequest{Queue: "q", Filter: &queueboxv1.MessageFilter{MessageIds: []string{"nonsense"}}})
		return err
	})

	for _, bad := range []struct {
		name string
		want Want
		req  *queueboxv1.CancelRequest
	}{
		{"without a target", invalid("target"), &queueboxv1.CancelRequest{Queue: "q"}},
		{"without a queue", invalid("queue"), &queueboxv1.CancelRequest{Target: &queueboxv1.CancelRequest_MessageId{MessageId: id}}},
		{"empty message_id", invalid("message_id"), &queueboxv1.CancelRequest{Queue: "q", Target: &queueboxv1.CancelRequest_MessageId{}}},
		{"foreign message_id", invalid("message_id"), &queueboxv1.CancelRequest{Queue: "q", Target: &queueboxv1.CancelRequest_MessageId{MessageId: "nonsense"}}},
		{"empty idempotency_key", invalid("idempotency_key"), &queueboxv1.CancelRequest{Queue: "q", Target: &queueboxv1.CancelRequest_IdempotencyKey{}}},
		{"idempotency_key of 256 bytes", invalid("idempotency_key"), &queueboxv1.CancelRequest{Queue: "q", Target: &queueboxv1.CancelRequest_IdempotencyKey{IdempotencyKey: strings.Repeat("k", 256)}}},
		{"idempotency_key with NUL", invalid("idempotency_key"), &queueboxv1.CancelRequest{Queue: "q", Target: &queueboxv1.CancelRequest_IdempotencyKey{IdempotencyKey: "k\x00"}}},
		{"S8 message_id of another queue", messageNotFound, &queueboxv1.CancelRequest{Queue: "other", Target: &queueboxv1.CancelRequest_MessageId{MessageId: id}}},
		{"S8 unknown idempotency_key", messageNotFound, &queueboxv1.CancelRequest{Queue: "q", Target: &queueboxv1.CancelRequest_IdempotencyKey{IdempotencyKey: "nobody"}}},
		{"S8 unknown queue", messageNotFound, &queueboxv1.CancelRequest{Queue: "unknown", Target: &queueboxv1.CancelRequest_MessageId{MessageId: id}}},
	} {
		add(bad.want, "Cancel "+bad.name, func(ctx context.Context) error {
			_, err := c.Cancel(ctx, bad.req)
			return err
		})
	}

	for _, bad := range []struct {
		name string
		want Want
		req  *queueboxv1.RevokeClaimRequest
	}{
		{"without a queue", invalid("queue"), &queueboxv1.RevokeClaimRequest{MessageId: id}},
		{"without a message_id", invalid("message_id"), &queueboxv1.RevokeClaimRequest{Queue: "q"}},
		{"foreign message_id", invalid("message_id"), &queueboxv1.RevokeClaimRequest{Queue: "q", MessageId: "nonsense"}},
		{"S8 message_id of another queue", messageNotFound, &queueboxv1.RevokeClaimRequest{Queue: "other", MessageId: id}},
		{"S8 unknown queue", messageNotFound, &queueboxv1.RevokeClaimRequest{Queue: "unknown", MessageId: id}},
	} {
		add(bad.want, "RevokeClaim "+bad.name, func(ctx context.Context) error {
			_, err := c.Admin.RevokeClaim(ctx, bad.req)
			return err
		})
	}

	all = append(all, badBatchInputs(c)...)

	for _, bad := range []struct {
		name string
		want Want
		req  *queueboxv1.ExplainMessageRequest
	}{
		{"without a queue", invalid("queue"), &queueboxv1.ExplainMessageRequest{MessageId: id}},
		{"without a message_id", invalid("message_id"), &queueboxv1.ExplainMessageRequest{Queue: "q"}},
		{"foreign message_id", invalid("message_id"), &queueboxv1.ExplainMessageRequest{Queue: "q", MessageId: "nonsense"}},
		{"S8 message_id of another queue", messageNotFound, &queueboxv1.ExplainMessageRequest{Queue: "other", MessageId: id}},
		{"S8 unknown queue", messageNotFound, &queueboxv1.ExplainMessageRequest{Queue: "unknown", MessageId: id}},
	} {
		add(bad.want, "ExplainMessage "+bad.name, func(ctx context.Context) error {
			_, err := c.Admin.ExplainMessage(ctx, bad.req)
			return err
		})
	}

	// E13: what later builds have is refused, never accepted and ignored.
	later := func(name string, call func(ctx context.Context) error) { add(unimplemented, "E13 "+name, call) }
	add(invalid("queue"), "GetTransactionSql without a queue", func(ctx context.Context) error {
		_, err := c.Admin.GetTransactionSql(ctx, &queueboxv1.GetTransactionSqlRequest{})
		return err
	})
	add(Want{Code: codes.NotFound, Reason: "QUEUE_NOT_FOUND"}, "GetTransactionSql of an unknown queue", func(ctx context.Context) error {
		_, err := c.Admin.GetTransactionSql(ctx, &queueboxv1.GetTransactionSqlRequest{Queue: "unknown"})
		return err
	})
	work := func(req *queueboxv1.WorkRequest) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			stream, err := c.Work(ctx)
			if err != nil {
				return err
			}
			_ = stream.Send(req) // where the stream is over already Recv says why
			_, err = stream.Recv()
			return err
		}
	}
	newer := &queueboxv1.WorkRequest{Start: &queueboxv1.WorkStart{Queue: "q"}, Credit: 1}
	newer.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
	later("Work with a field of a later build", work(newer))
	add(invalid("start"), "Work without a start", work(&queueboxv1.WorkRequest{Credit: 1}))
	add(invalid("credit"), "Work with a credit below zero", work(&queueboxv1.WorkRequest{Start: &queueboxv1.WorkStart{Queue: "q"}, Credit: -1}))
	return all
}

// badFollowUps are completions with a follow-up that Enqueue would refuse too: the whole
// completion is refused, and the claim is held as before (S10).
func badFollowUps(c *Client, m *queueboxv1.ClaimedMessage, maxPayload int) []badInput {
	var all []badInput
	for name, tc := range map[string]struct {
		want Want
		bad  *queueboxv1.EnqueueRequest
	}{
		"without a queue":    {invalid("follow_ups[1].queue"), &queueboxv1.EnqueueRequest{}},
		"too large (E8)":     {Want{Code: codes.InvalidArgument, Reason: "PAYLOAD_TOO_LARGE", Field: "follow_ups[1].payload"}, &queueboxv1.EnqueueRequest{Queue: "q", Payload: make([]byte, maxPayload+1)}},
		"with a key of 256":  {invalid("follow_ups[1].ordering_key"), &queueboxv1.EnqueueRequest{Queue: "q", OrderingKey: strings.Repeat("k", 256)}},
		"with a delay below": {invalid("follow_ups[1].delay_ms"), &queueboxv1.EnqueueRequest{Queue: "q", DelayMs: -1}},
		"that reuses a key (E3)": {
			Want{Code: codes.AlreadyExists, Reason: "IDEMPOTENCY_KEY_REUSED", Metadata: map[string]string{"field": "follow_ups[1].idempotency_key"}},
			&queueboxv1.EnqueueRequest{Queue: "q", IdempotencyKey: "taken", Payload: []byte("other content")},
		},
	} {
		req := completion("q", m)
		req.FollowUps = []*queueboxv1.EnqueueRequest{{Queue: "q", OrderingKey: "k", IdempotencyKey: "new"}, tc.bad}
		all = append(all, badInput{name: "Complete follow-up " + name, want: tc.want, call: func(ctx context.Context) error {
			_, err := c.Complete(ctx, req)
			return err
		}})
		item := tc.want
		if field := item.Field; field != "" {
			item.Metadata = map[string]string{"field": "items[0].complete." + field}
		} else {
			item.Metadata = map[string]string{"field": "items[0].complete." + item.Metadata["field"]}
		}
		all = append(all, badInput{name: "BatchSettle item follow-up " + name, call: func(ctx context.Context) error {
			out, err := c.BatchSettle(ctx, &queueboxv1.BatchSettleRequest{Items: []*queueboxv1.SettleItem{{Action: &queueboxv1.SettleItem_Complete{Complete: req}}}})
			if err != nil {
				return err
			}
			return CheckItem(out.GetResults()[0].GetError(), item)
		}})
	}
	return all
}

// TestBadInputsChangeNothing sends every bad input of the contract: each answers its
// code, its reason and its field, and leaves the database as it was.
func TestBadInputsChangeNothing(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		const maxPayload = 64 << 10
		c := db.Start(t, fmt.Sprintf("--max-payload-bytes=%d", maxPayload)).Client(t)
		conn := db.Open(t)
		enqueue(t, c, "other", "x")
		enqueue(t, c, "q", "x")
		m := claimOne(t, c, "q", time.Hour)
		_, err := c.Enqueue(within(t), &queueboxv1.EnqueueRequest{Queue: "q", IdempotencyKey: "taken", Payload: []byte("pending")})
		require.NoError(t, err)
		before := db.Dump(t, conn)
		for _, tc := range append(badInputs(c, m, maxPayload), badFollowUps(c, m, maxPayload)...) {
			t.Run(tc.name, func(t *testing.T) {
				err := tc.call(within(t))
				switch tc.want.Reason {
				case "E13":
					if CheckStatus(err, invalid(tc.want.Field)) != nil {
						RequireStatus(t, err, unimplemented)
					}
				case "":
					require.NoError(t, err)
				default:
					RequireStatus(t, err, tc.want)
				}
				require.Equal(t, before, db.Dump(t, conn), "the database has changed")
			})
		}
		_, err = complete(t, c, "q", m)
		require.NoError(t, err, "the claim is still good")
	})
}

// TestBadInputLimitsThatHold sends the largest input that must still be taken.
func TestBadInputLimitsThatHold(t *testing.T) {
	KindsParallel(t, func(t *testing.T, db *Database) {
		const maxPayload = 64 << 10
		c := db.Start(t, fmt.Sprintf("--max-payload-bytes=%d", maxPayload)).Client(t)
		attributes := map[string]string{}
		for i := range 64 {
			attributes[fmt.Sprint(i)] = strings.Repeat("v", 900)
		}
		name := strings.Repeat("é", 127) + "n" // 255 bytes
		in := &queueboxv1.EnqueueRequest{
			Queue: name, Payload: make([]byte, maxPayload), ContentType: name, IdempotencyKey: name, Attributes: attributes,
			AvailableTime: timestamppb.New(time.Unix(0, 0)), MaxAttempts: math.MaxInt32,
		}
		_, err := c.Enqueue(within(t), in)
		require.NoError(t, err)
		got := claimWith(t, c, &queueboxv1.ClaimRequest{Queue: name, MaxMessages: 1000, LeaseMs: 12 * 3_600_000, WorkerId: name, ClaimId: newClaimID(), MaxBytes: 1})
		require.Len(t, got.GetMessages(), 1, "one message is always allowed")
		m := got.GetMessages()[0]
		require.Equal(t, attributes, m.GetMessage().GetAttributes())
		require.Len(t, m.GetMessage().GetPayload(), maxPayload)
		_, err = c.DeadLetter(within(t), &queueboxv1.DeadLetterRequest{
			Queue: name, MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(), ReasonCode: name, Error: strings.Repeat("é", 5000),
		})
		require.NoError(t, err)
		require.Equal(t, strings.Repeat("é", 1000), message(t, c, name, m.GetMessage().GetMessageId()).GetLastError(), "S9: cut at 2000 bytes")
		require.Len(t, enqueueMany(t, c, "a", 1000), 1000)
		require.Len(t, claim(t, c, "a", 1000, time.Minute), 1000)
	})
}
