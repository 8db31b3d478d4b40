package server

import (
	"database/sql"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/server/wireid"
	"github.com/queuebox/queuebox/storage"
)

// badInput is one wrong request: what it answers, and that it changes nothing.
type badInput struct {
	name   string
	call   func(h *harness, m *queueboxv1.ClaimedMessage) error
	code   codes.Code
	reason string
	field  string // empty where no field is wrong
}

const (
	invalid = "INVALID_ARGUMENT"
	aUUID   = "6f1c3c7a-25c6-4a53-9a94-4a54be1c5ab9"
)

func enqueueWith(change func(r *queueboxv1.EnqueueRequest)) func(*harness, *queueboxv1.ClaimedMessage) error {
	return func(h *harness, _ *queueboxv1.ClaimedMessage) error {
		r := &queueboxv1.EnqueueRequest{Queue: "q", Payload: []byte("x")}
		change(r)
		_, err := h.Enqueue(h.ctx(), r)
		return err
	}
}

func claimWith(change func(r *queueboxv1.ClaimRequest)) func(*harness, *queueboxv1.ClaimedMessage) error {
	return func(h *harness, _ *queueboxv1.ClaimedMessage) error {
		r := &queueboxv1.ClaimRequest{Queue: "q"}
		change(r)
		_, err := h.Claim(h.ctx(), r)
		return err
	}
}

func renewWith(change func(r *queueboxv1.RenewRequest)) func(*harness, *queueboxv1.ClaimedMessage) error {
	return func(h *harness, m *queueboxv1.ClaimedMessage) error {
		r := &queueboxv1.RenewRequest{Queue: "q", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken()}
		change(r)
		_, err := h.Renew(h.ctx(), r)
		return err
	}
}

func completeWith(change func(r *queueboxv1.CompleteRequest)) func(*harness, *queueboxv1.ClaimedMessage) error {
	return func(h *harness, m *queueboxv1.ClaimedMessage) error {
		r := completeItem(m).GetComplete()
		change(r)
		_, err := h.Complete(h.ctx(), r)
		return err
	}
}

func createWith(change func(q *queueboxv1.Queue)) func(*harness, *queueboxv1.ClaimedMessage) error {
	return func(h *harness, _ *queueboxv1.ClaimedMessage) error {
		q := &queueboxv1.Queue{Queue: "new"}
		change(q)
		_, err := h.CreateQueue(h.ctx(), &queueboxv1.CreateQueueRequest{Queue: q})
		return err
	}
}

func updateWith(q *queueboxv1.Queue, paths ...string) func(*harness, *queueboxv1.ClaimedMessage) error {
	return func(h *harness, _ *queueboxv1.ClaimedMessage) error {
		if q.GetQueue() == "" {
			q.Queue = "q"
		}
		_, err := h.UpdateQueue(h.ctx(), &queueboxv1.UpdateQueueRequest{Queue: q, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
		return err
	}
}

func listWith(change func(r *queueboxv1.ListMessagesRequest)) func(*harness, *queueboxv1.ClaimedMessage) error {
	return func(h *harness, _ *queueboxv1.ClaimedMessage) error {
		r := &queueboxv1.ListMessagesRequest{Queue: "q", Filter: &queueboxv1.MessageFilter{}}
		change(r)
		_, err := h.ListMessages(h.ctx(), r)
		return err
	}
}

func badInputs() []badInput {
	long := strings.Repeat("n", 256)
	bad := codes.InvalidArgument
	foreign := wireid.Message(storage.Ref{QueueID: 4711, Position: 1})
	cases := []badInput{
		{"Enqueue without a queue", enqueueWith(func(r *queueboxv1.EnqueueRequest) { r.Queue = "" }), bad, invalid, "queue"},
		{"Enqueue, 256 byte queue", enqueueWith(func(r *queueboxv1.EnqueueRequest) { r.Queue = long }), bad, invalid, "queue"},
		{"Enqueue, NUL in queue", enqueueWith(func(r *queueboxv1.EnqueueRequest) { r.Queue = "a\x00b" }), bad, invalid, "queue"},
		{"Enqueue, long key", enqueueWith(func(r *queueboxv1.EnqueueRequest) { r.IdempotencyKey = long }), bad, invalid, "idempotency_key"},
		{"Enqueue, long content type", enqueueWith(func(r *queueboxv1.EnqueueRequest) { r.ContentType = long }), bad, invalid, "content_type"},
		{"Enqueue, negative delay", enqueueWith(func(r *queueboxv1.EnqueueRequest) { r.DelayMs = -1 }), bad, invalid, "delay_ms"},
		{"Enqueue, endless delay", enqueueWith(func(r *queueboxv1.EnqueueRequest) { r.DelayMs = 1 << 62 }), bad, invalid, "delay_ms"},
		{"E7 Enqueue, delay and time", enqueueWith(func(r *queueboxv1.EnqueueRequest) { r.DelayMs, r.AvailableTime = 1, timestamppb.Now() }), bad, invalid, "available_time"},
		{"Enqueue, no such time", enqueueWith(func(r *queueboxv1.EnqueueRequest) { r.AvailableTime = &timestamppb.Timestamp{Nanos: -5} }), bad, invalid, "available_time"},
		{"Enqueue, year 9000", enqueueWith(func(r *queueboxv1.EnqueueRequest) {
			r.AvailableTime = timestamppb.New(time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC))
		}), bad, invalid, "available_time"},
		{"Enqueue, negative attempts", enqueueWith(func(r *queueboxv1.EnqueueRequest) { r.MaxAttempts = -1 }), bad, invalid, "max_attempts"},
		{"E8 Enqueue, payload too large", enqueueWith(func(r *queueboxv1.EnqueueRequest) { r.Payload = make([]byte, 1<<20+1) }), bad, "PAYLOAD_TOO_LARGE", "payload"},
		{"Enqueue, 65 attributes", enqueueWith(func(r *queueboxv1.EnqueueRequest) {
			r.Attributes = map[string]string{}
			for i := range 65 {
				r.Attributes[fmt.Sprint(i)] = ""
			}
		}), bad, invalid, "attributes"},
		{"Enqueue, 64 KiB of attributes and one byte", enqueueWith(func(r *queueboxv1.EnqueueRequest) {
			r.Attributes = map[string]string{"k": strings.Repeat("v", 64<<10)}
		}), bad, invalid, "attributes"},
		{"Enqueue, NUL in an attribute", enqueueWith(func(r *queueboxv1.EnqueueRequest) { r.Attributes = map[string]string{"k": "\x00"} }), bad, invalid, "attributes"},
		{"E11 Enqueue, long ordering key", enqueueWith(func(r *queueboxv1.EnqueueRequest) { r.OrderingKey = strings.Repeat("k", 256) }), bad, invalid, "ordering_key"},
		{"Enqueue, NUL in the ordering key", enqueueWith(func(r *queueboxv1.EnqueueRequest) { r.OrderingKey = "\x00" }), bad, invalid, "ordering_key"},
		{"E7 Enqueue, invalid expire time", enqueueWith(func(r *queueboxv1.EnqueueRequest) { r.ExpireTime = &timestamppb.Timestamp{Nanos: -1} }), codes.InvalidArgument, "INVALID_ARGUMENT", "expire_time"},
		{"E7 Enqueue, expire time in the year 2200", enqueueWith(func(r *queueboxv1.EnqueueRequest) { r.ExpireTime = timestamppb.New(maxTime().Add(1)) }), codes.InvalidArgument, "INVALID_ARGUMENT", "expire_time"},
		{"E9 BatchEnqueue, one wrong", func(h *harness, _ *queueboxv1.ClaimedMessage) error {
			_, err := h.BatchEnqueue(h.ctx(), &queueboxv1.BatchEnqueueRequest{Requests: []*queueboxv1.EnqueueRequest{{Queue: "q"}, {Queue: "q", DelayMs: -1}}})
			return err
		}, bad, invalid, "requests[1].delay_ms"},
		{"BatchEnqueue, 1001", func(h *harness, _ *queueboxv1.ClaimedMessage) error {
			r := &queueboxv1.BatchEnqueueRequest{}
			for range 1001 {
				r.Requests = append(r.Requests, &queueboxv1.EnqueueRequest{Queue: "q"})
			}
			_, err := h.BatchEnqueue(h.ctx(), r)
			return err
		}, bad, invalid, "requests"},
		{"E3 Enqueue, key of other content", func(h *harness, _ *queueboxv1.ClaimedMessage) error {
			_, err := h.Enqueue(h.ctx(), &queueboxv1.EnqueueRequest{Queue: "q", IdempotencyKey: "taken", Payload: []byte("other")})
			return err
		}, codes.AlreadyExists, "IDEMPOTENCY_KEY_REUSED", ""},

		{"Claim without a queue", claimWith(func(r *queueboxv1.ClaimRequest) { r.Queue = "" }), bad, invalid, "queue"},
		{"C7 Claim, negative max", claimWith(func(r *queueboxv1.ClaimRequest) { r.MaxMessages = -1 }), bad, invalid, "max_messages"},
		{"C7 Claim, 1001", claimWith(func(r *queueboxv1.ClaimRequest) { r.MaxMessages = 1001 }), bad, invalid, "max_messages"},
		{"C8 Claim, short lease", claimWith(func(r *queueboxv1.ClaimRequest) { r.LeaseMs = 999 }), bad, "LEASE_OUT_OF_RANGE", "lease_ms"},
		{"C8 Claim, long lease", claimWith(func(r *queueboxv1.ClaimRequest) { r.LeaseMs = 12*3600*1000 + 1 }), bad, "LEASE_OUT_OF_RANGE", "lease_ms"},
		{"C8 Claim, endless lease", claimWith(func(r *queueboxv1.ClaimRequest) { r.LeaseMs = 1<<63 - 1 }), bad, "LEASE_OUT_OF_RANGE", "lease_ms"},
		{"C8 Claim, negative lease", claimWith(func(r *queueboxv1.ClaimRequest) { r.LeaseMs = -1 }), bad, "LEASE_OUT_OF_RANGE", "lease_ms"},
		{"Claim, negative wait", claimWith(func(r *queueboxv1.ClaimRequest) { r.WaitMs = -1 }), bad, invalid, "wait_ms"},
		{"Claim, negative bytes", claimWith(func(r *queueboxv1.ClaimRequest) { r.MaxBytes = -1 }), bad, invalid, "max_bytes"},
		{"Claim, long worker", claimWith(func(r *queueboxv1.ClaimRequest) { r.WorkerId = long }), bad, invalid, "worker_id"},
		{"C14 claim_id without a worker", claimWith(func(r *queueboxv1.ClaimRequest) { r.ClaimId = aUUID }), bad, invalid, "worker_id"},
		{"C14 claim_id that is none", claimWith(func(r *queueboxv1.ClaimRequest) { r.ClaimId, r.WorkerId = "abc", "w" }), bad, invalid, "claim_id"},
		{"C14 nil claim_id", claimWith(func(r *queueboxv1.ClaimRequest) {
			r.ClaimId, r.WorkerId = "00000000-0000-0000-0000-000000000000", "w"
		}), bad, invalid, "claim_id"},
		{"C14 claim_id with a letter", claimWith(func(r *queueboxv1.ClaimRequest) {
			r.ClaimId, r.WorkerId = strings.Replace(aUUID, "6", "g", 1), "w"
		}), bad, invalid, "claim_id"},
		{"C14 claim_id of another worker", claimWith(func(r *queueboxv1.ClaimRequest) { r.ClaimId, r.WorkerId = aUUID, "other" }), codes.FailedPrecondition, "CLAIM_ID_REUSED", ""},

		{"Renew without a queue", renewWith(func(r *queueboxv1.RenewRequest) { r.Queue = "" }), bad, invalid, "queue"},
		{"Renew without an id", renewWith(func(r *queueboxv1.RenewRequest) { r.MessageId = "" }), bad, invalid, "message_id"},
		{"Renew, malformed id", renewWith(func(r *queueboxv1.RenewRequest) { r.MessageId += "0" }), bad, invalid, "message_id"},
		{"R3 Renew, malformed token", renewWith(func(r *queueboxv1.RenewRequest) { r.ClaimToken += "0" }), bad, invalid, "claim_token"},
		{"R3 Renew, empty token", renewWith(func(r *queueboxv1.RenewRequest) { r.ClaimToken = "" }), codes.FailedPrecondition, "CLAIM_LOST", ""},
		{"R3 Renew, another token", renewWith(func(r *queueboxv1.RenewRequest) { r.ClaimToken = wireid.Token(storage.Token{1}) }), codes.FailedPrecondition, "CLAIM_LOST", ""},
		{"S8 Renew, id of another queue", renewWith(func(r *queueboxv1.RenewRequest) { r.Queue = "other" }), codes.NotFound, "MESSAGE_NOT_FOUND", ""},
		{"S8 Renew, unknown queue", renewWith(func(r *queueboxv1.RenewRequest) { r.Queue = "none" }), codes.NotFound, "MESSAGE_NOT_FOUND", ""},
		{"S8 Renew, foreign id", renewWith(func(r *queueboxv1.RenewRequest) { r.MessageId = foreign }), codes.NotFound, "MESSAGE_NOT_FOUND", ""},
		{"C8 Renew, lease", renewWith(func(r *queueboxv1.RenewRequest) { r.LeaseMs = 5 }), bad, "LEASE_OUT_OF_RANGE", "lease_ms"},

		{"Complete without a queue", completeWith(func(r *queueboxv1.CompleteRequest) { r.Queue = "" }), bad, invalid, "queue"},
		{"Complete, malformed id", completeWith(func(r *queueboxv1.CompleteRequest) { r.MessageId = "7" }), bad, invalid, "message_id"},
		{"Complete, malformed token", completeWith(func(r *queueboxv1.CompleteRequest) { r.ClaimToken = "secret" }), bad, invalid, "claim_token"},
		{"S1 Complete, another token", completeWith(func(r *queueboxv1.CompleteRequest) { r.ClaimToken = wireid.Token(storage.Token{1}) }), codes.FailedPrecondition, "CLAIM_LOST", ""},
		{"S8 Complete, another queue", completeWith(func(r *queueboxv1.CompleteRequest) { r.Queue = "other" }), codes.NotFound, "MESSAGE_NOT_FOUND", ""},
		{"S8 Complete, unknown queue", completeWith(func(r *queueboxv1.CompleteRequest) { r.Queue = "none" }), codes.NotFound, "MESSAGE_NOT_FOUND", ""},
		{"Complete, large result", completeWith(func(r *queueboxv1.CompleteRequest) { r.Result = make([]byte, 1<<20+1) }), bad, "PAYLOAD_TOO_LARGE", "result"},
		{"S10 Complete, a follow-up without a queue", followWith(func(r *queueboxv1.EnqueueRequest) { r.Queue = "" }), bad, invalid, "follow_ups[1].queue"},
		{"S10 Complete, a large follow-up", followWith(func(r *queueboxv1.EnqueueRequest) { r.Payload = make([]byte, 1<<20+1) }), bad, "PAYLOAD_TOO_LARGE", "follow_ups[1].payload"},
		{"S10 Complete, a follow-up with a delay and a time", followWith(func(r *queueboxv1.EnqueueRequest) {
			r.DelayMs, r.AvailableTime = 1, timestamppb.Now()
		}), bad, invalid, "follow_ups[1].available_time"},
		{"S10 Complete, a follow-up with a long ordering key", followWith(func(r *queueboxv1.EnqueueRequest) {
			r.OrderingKey = strings.Repeat("k", 256)
		}), bad, invalid, "follow_ups[1].ordering_key"},
		{"S10 Complete, 1001 follow-ups", completeWith(func(r *queueboxv1.CompleteRequest) {
			for range 1001 {
				r.FollowUps = append(r.FollowUps, &queueboxv1.EnqueueRequest{Queue: "q"})
			}
		}), bad, invalid, "follow_ups"},
		{"S10 BatchSettle, 1001 follow-ups", func(h *harness, m *queueboxv1.ClaimedMessage) error {
			req := &queueboxv1.BatchSettleRequest{Items: []*queueboxv1.SettleItem{completeItem(m), completeItem(m)}}
			for i := range 1001 {
				r := req.GetItems()[i%2].GetComplete()
				r.FollowUps = append(r.FollowUps, &queueboxv1.EnqueueRequest{Queue: "q"})
			}
			_, err := h.BatchSettle(h.ctx(), req)
			return err
		}, bad, invalid, "items"},
		{"Retry, negative delay", func(h *harness, m *queueboxv1.ClaimedMessage) error {
			delay := int64(-1)
			_, err := h.Retry(h.ctx(), &queueboxv1.RetryRequest{Queue: "q", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(), DelayMs: &delay})
			return err
		}, bad, invalid, "delay_ms"},
		{"Release, endless delay", func(h *harness, m *queueboxv1.ClaimedMessage) error {
			_, err := h.Release(h.ctx(), &queueboxv1.ReleaseRequest{Queue: "q", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(), DelayMs: 1 << 60})
			return err
		}, bad, invalid, "delay_ms"},
		{"DeadLetter, long code", func(h *harness, m *queueboxv1.ClaimedMessage) error {
			_, err := h.DeadLetter(h.ctx(), &queueboxv1.DeadLetterRequest{Queue: "q", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(), ReasonCode: long})
			return err
		}, bad, invalid, "reason_code"},
		{"BatchRenew, 1001", func(h *harness, _ *queueboxv1.ClaimedMessage) error {
			_, err := h.BatchRenew(h.ctx(), &queueboxv1.BatchRenewRequest{Queue: "q", Items: make1001(&queueboxv1.RenewItem{})})
			return err
		}, bad, invalid, "items"},
		{"BatchSettle, 1001", func(h *harness, _ *queueboxv1.ClaimedMessage) error {
			_, err := h.BatchSettle(h.ctx(), &queueboxv1.BatchSettleRequest{Items: make1001(&queueboxv1.SettleItem{})})
			return err
		}, bad, invalid, "items"},

		{"CreateQueue without a name", createWith(func(q *queueboxv1.Queue) { q.Queue = "" }), bad, invalid, "queue.queue"},
		{"CreateQueue that is there", createWith(func(q *queueboxv1.Queue) { q.Queue = "q" }), codes.AlreadyExists, "QUEUE_EXISTS", ""},
		{"CreateQueue, etag", createWith(func(q *queueboxv1.Queue) { q.Etag = "v1" }), bad, invalid, "queue.etag"},
		{"CreateQueue, create time", createWith(func(q *queueboxv1.Queue) { q.CreateTime = timestamppb.Now() }), bad, invalid, "queue.create_time"},
		{"CreateQueue, default below min", createWith(func(q *queueboxv1.Queue) { q.DefaultLeaseMs = 10 }), bad, invalid, "queue.default_lease_ms"},
		{"CreateQueue, max of 8 days", createWith(func(q *queueboxv1.Queue) { q.MaxLeaseMs = 8 * 24 * 3600 * 1000 }), bad, invalid, "queue.max_lease_ms"},
		{"CreateQueue, negative min", createWith(func(q *queueboxv1.Queue) { q.MinLeaseMs = -1 }), bad, invalid, "queue.min_lease_ms"},
		{"CreateQueue, multiplier", createWith(func(q *queueboxv1.Queue) { q.RetryPolicy = &queueboxv1.RetryPolicy{Multiplier: 11} }), bad, invalid, "queue.retry_policy.multiplier"},
		{"CreateQueue, jitter", createWith(func(q *queueboxv1.Queue) { q.RetryPolicy = &queueboxv1.RetryPolicy{Jitter: 1.5} }), bad, invalid, "queue.retry_policy.jitter"},
		{"CreateQueue, backoffs", createWith(func(q *queueboxv1.Queue) {
			q.RetryPolicy = &queueboxv1.RetryPolicy{MinBackoffMs: 5000, MaxBackoffMs: 4000}
		}), bad, invalid, "queue.retry_policy.min_backoff_ms"},
		{"CreateQueue, retention", createWith(func(q *queueboxv1.Queue) { q.CompletedRetentionMs = 599_999 }), bad, invalid, "queue.completed_retention_ms"},
		{"CreateQueue, ordering mode", createWith(func(q *queueboxv1.Queue) { q.OrderingMode = 9 }), bad, invalid, "queue.ordering_mode"},
		{"CreateQueue, in flight", createWith(func(q *queueboxv1.Queue) { q.MaxInFlight = -1 }), bad, invalid, "queue.max_in_flight"},
		{"CreateQueue, rate", createWith(func(q *queueboxv1.Queue) { q.MaxClaimsPerSecond = -1 }), bad, invalid, "queue.max_claims_per_second"},
		{"CreateQueue, no rate at all", createWith(func(q *queueboxv1.Queue) { q.MaxClaimsPerSecond = math.NaN() }), bad, invalid, "queue.max_claims_per_second"},
		{"CreateQueue, rate of one in years", createWith(func(q *queueboxv1.Queue) { q.MaxClaimsPerSecond = 1e-9 }), bad, invalid, "queue.max_claims_per_second"},
		{"CreateQueue, rate without end", createWith(func(q *queueboxv1.Queue) { q.MaxClaimsPerSecond = math.Inf(1) }), bad, invalid, "queue.max_claims_per_second"},
		{"CreateQueue, messages", createWith(func(q *queueboxv1.Queue) { q.MaxMessages = -1 }), bad, invalid, "queue.max_messages"},
		{"UpdateQueue without a mask", updateWith(&queueboxv1.Queue{}), bad, invalid, "update_mask"},
		{"UpdateQueue, unknown path", updateWith(&queueboxv1.Queue{}, "max_attempts", "name"), bad, invalid, "update_mask.paths[1]"},
		{"UpdateQueue, output only", updateWith(&queueboxv1.Queue{}, "create_time"), bad, invalid, "update_mask.paths[0]"},
		{"UpdateQueue, etag garbage", updateWith(&queueboxv1.Queue{Etag: "W/abc"}, "max_attempts"), bad, invalid, "queue.etag"},
		{"UpdateQueue, old etag", updateWith(&queueboxv1.Queue{Etag: "v99"}, "max_attempts"), codes.Aborted, "ETAG_MISMATCH", ""},
		{"UpdateQueue, unknown queue", updateWith(&queueboxv1.Queue{Queue: "none"}, "max_attempts"), codes.NotFound, "QUEUE_NOT_FOUND", ""},
		{"UpdateQueue, max of 8 days", updateWith(&queueboxv1.Queue{MaxLeaseMs: 8 * 24 * 3600 * 1000}, "max_lease_ms"), bad, invalid, "queue.max_lease_ms"},
		{"PauseQueue, unknown queue", func(h *harness, _ *queueboxv1.ClaimedMessage) error {
			_, err := h.PauseQueue(h.ctx(), &queueboxv1.PauseQueueRequest{Queue: "none"})
			return err
		}, codes.NotFound, "QUEUE_NOT_FOUND", ""},
		{"GetQueueStats, unknown queue", func(h *harness, _ *queueboxv1.ClaimedMessage) error {
			_, err := h.GetQueueStats(h.ctx(), &queueboxv1.GetQueueStatsRequest{Queue: "none"})
			return err
		}, codes.NotFound, "QUEUE_NOT_FOUND", ""},
		{"GetMessage, another queue", func(h *harness, m *queueboxv1.ClaimedMessage) error {
			_, err := h.GetMessage(h.ctx(), &queueboxv1.GetMessageRequest{Queue: "other", MessageId: m.GetMessage().GetMessageId()})
			return err
		}, codes.NotFound, "MESSAGE_NOT_FOUND", ""},
		{"ListQueues, page token", func(h *harness, _ *queueboxv1.ClaimedMessage) error {
			_, err := h.ListQueues(h.ctx(), &queueboxv1.ListQueuesRequest{PageToken: "q!"})
			return err
		}, bad, invalid, "page_token"},
		{"ListQueues, page size", func(h *harness, _ *queueboxv1.ClaimedMessage) error {
			_, err := h.ListQueues(h.ctx(), &queueboxv1.ListQueuesRequest{PageSize: -1})
			return err
		}, bad, invalid, "page_size"},
		{"ListMessages, unknown queue", listWith(func(r *queueboxv1.ListMessagesRequest) { r.Queue = "none" }), codes.NotFound, "QUEUE_NOT_FOUND", ""},
		{"ListMessages, page token", listWith(func(r *queueboxv1.ListMessagesRequest) { r.PageToken = "5" }), bad, invalid, "page_token"},
		{"ListMessages, page token of another queue", listWith(func(r *queueboxv1.ListMessagesRequest) { r.PageToken = foreign }), bad, invalid, "page_token"},
		{"ListMessages, no such state", listWith(func(r *queueboxv1.ListMessagesRequest) { r.Filter.States = []queueboxv1.MessageState{1, 77} }), bad, invalid, "filter.states[1]"},
		{"ListMessages, no such dead reason", listWith(func(r *queueboxv1.ListMessagesRequest) { r.Filter.DeadReasons = []queueboxv1.DeadReason{77} }), bad, invalid, "filter.dead_reasons[0]"},
		{"ListMessages, malformed id", listWith(func(r *queueboxv1.ListMessagesRequest) { r.Filter.MessageIds = []string{"x"} }), bad, invalid, "filter.message_ids[0]"},
		{"ListMessages, no such time", listWith(func(r *queueboxv1.ListMessagesRequest) {
			r.Filter.MinCreateTime = &timestamppb.Timestamp{Seconds: 1 << 60}
		}), bad, invalid, "filter.min_create_time"},
	}
	return cases
}

func make1001[T any](x *T) []*T {
	out := make([]*T, 1001)
	for i := range out {
		out[i] = x
	}
	return out
}

func TestBadInputsAreRefusedAndChangeNothing(t *testing.T) {
	h := serve(t)
	h.enqueue("q", "first")
	h.enqueue("other", "x")
	out, err := h.Claim(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q", ClaimId: aUUID, WorkerId: "w"})
	require.NoError(t, err)
	m := out.GetMessages()[0]
	_, err = h.Enqueue(h.ctx(), &queueboxv1.EnqueueRequest{Queue: "q", IdempotencyKey: "taken", Payload: []byte("this")})
	require.NoError(t, err)
	before := h.dump()
	require.Contains(t, before, "first")
	for _, tc := range badInputs() {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.call(h, m)
			d := requireReason(t, err, tc.code, tc.reason)
			if tc.field == "" {
				require.Empty(t, d.fields)
			} else {
				require.Equal(t, []string{tc.field}, d.fields)
				require.Equal(t, tc.field, d.metadata["field"])
			}
			require.Equal(t, before, h.dump(), "nothing changed")
		})
	}
	// The good request still works, so the cases above failed for their reason.
	_, err = h.Complete(h.ctx(), completeItem(m).GetComplete())
	require.NoError(t, err)
	require.NotEqual(t, before, h.dump())
}

// TestS11BadItemsStandInTheirPlace: what is wrong with an item is told in its place.
func TestS11BadItemsStandInTheirPlace(t *testing.T) {
	h := serve(t)
	h.enqueue("q", "x")
	m := h.claim()
	retry := &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_Retry{Retry: &queueboxv1.RetryRequest{Queue: "", MessageId: "x", ClaimToken: m.GetClaimToken()}}}
	follow := completeItem(m)
	follow.GetComplete().FollowUps = []*queueboxv1.EnqueueRequest{{Queue: "q"}, {Queue: "q", DelayMs: -1}}
	unknown := completeItem(m)
	unknown.GetComplete().Queue = "none"
	out, err := h.BatchSettle(h.ctx(), &queueboxv1.BatchSettleRequest{Items: []*queueboxv1.SettleItem{{}, retry, follow, unknown, completeItem(m)}})
	require.NoError(t, err)
	require.Len(t, out.GetResults(), 5)
	require.NotNil(t, out.GetServerTime())
	for i, want := range []struct {
		reason queueboxv1.ErrorReason
		field  string
	}{
		{queueboxv1.ErrorReason_ERROR_REASON_INVALID_ARGUMENT, "items[0].action"},
		{queueboxv1.ErrorReason_ERROR_REASON_INVALID_ARGUMENT, "items[1].retry.queue"},
		{queueboxv1.ErrorReason_ERROR_REASON_INVALID_ARGUMENT, "items[2].complete.follow_ups[1].delay_ms"},
		{queueboxv1.ErrorReason_ERROR_REASON_MESSAGE_NOT_FOUND, ""},
	} {
		e := out.GetResults()[i].GetError()
		require.Equal(t, want.reason, e.GetReason(), "item %d", i)
		require.Equal(t, want.field, e.GetMetadata()["field"])
	}
	last := out.GetResults()[4]
	require.Nil(t, last.GetError())
	require.Equal(t, queueboxv1.SettleOutcome_SETTLE_OUTCOME_COMPLETED, last.GetOutcome())
	require.NotNil(t, last.GetCompleteTime())
	require.Equal(t, m.GetClaimToken(), last.GetClaimToken())

	empty, err := h.BatchSettle(h.ctx(), &queueboxv1.BatchSettleRequest{})
	require.NoError(t, err)
	require.NotNil(t, empty.GetServerTime(), "D11")
}

// dump is the whole content of the database, read past the store, but for the counts that a
// server takes by itself.
func (h *harness) dump() string {
	h.t.Helper()
	db, err := sql.Open("sqlite", "file:"+h.path+"?mode=ro")
	require.NoError(h.t, err)
	defer func() { require.NoError(h.t, db.Close()) }()
	ctx := h.t.Context()
	var tables string
	require.NoError(h.t, db.QueryRowContext(ctx,
		"SELECT group_concat(name ORDER BY name) FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT IN ('count_turn', 'queue_stats')").Scan(&tables))
	var out strings.Builder
	for table := range strings.SplitSeq(tables, ",") {
		fmt.Fprintln(&out, table)
		h.dumpTable(db, table, &out)
	}
	return out.String()
}

func (h *harness) dumpTable(db *sql.DB, table string, out *strings.Builder) {
	rows, err := db.QueryContext(h.t.Context(), `SELECT * FROM "`+table+`"`)
	require.NoError(h.t, err)
	defer func() { require.NoError(h.t, rows.Close()) }()
	columns, err := rows.Columns()
	require.NoError(h.t, err)
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		require.NoError(h.t, rows.Scan(values...))
		for i := range values {
			v := *values[i].(*any)
			if b, ok := v.([]byte); ok {
				v = string(b)
			}
			fmt.Fprintf(out, " %s=%v", columns[i], v)
		}
		fmt.Fprintln(out)
	}
	require.NoError(h.t, rows.Err())
}

// followWith completes with two follow-ups, of which the second is bad.
func followWith(change func(*queueboxv1.EnqueueRequest)) func(*harness, *queueboxv1.ClaimedMessage) error {
	return completeWith(func(r *queueboxv1.CompleteRequest) {
		bad := &queueboxv1.EnqueueRequest{Queue: "q"}
		change(bad)
		r.FollowUps = []*queueboxv1.EnqueueRequest{{Queue: "q"}, bad}
	})
}
