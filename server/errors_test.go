package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/server/dispatch"
	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/faults"
)

// TestEveryReasonIsDocumented compares the reasons of the wire, the codes that the
// server gives them, the proto comments and the table of docs/errors.md.
func TestEveryReasonIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/errors.md")
	require.NoError(t, err)
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\| `([A-Z_]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		rows[m[1]] = m[2]
	}
	comments, err := os.ReadFile("../proto/queuebox/v1/message.proto")
	require.NoError(t, err)
	for n := range queueboxv1.ErrorReason_name {
		r := queueboxv1.ErrorReason(n)
		if r == queueboxv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
			continue
		}
		name, code := reasonString(r), upperSnake(codeOf(r))
		require.Equal(t, code, rows[name], "docs/errors.md, %s", name)
		delete(rows, name)
		require.Regexp(t, `// `+code+`\. (?:.*\n)(?:\s*//.*\n)*\s*ERROR_REASON_`+name+` =`, string(comments))
		retries := codeOf(r) == codes.Unavailable || codeOf(r) == codes.ResourceExhausted
		require.Equal(t, retries, retryDelay(r) > 0, "%s: RetryInfo", name)
	}
	require.Empty(t, rows, "docs/errors.md has reasons that the wire does not have")
}

func upperSnake(c codes.Code) string {
	return strings.ToUpper(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(c.String(), "${1}_${2}"))
}

func TestStorageErrorsAreMapped(t *testing.T) {
	m := &errorMapper{log: serveLog(), newID: func() string { return "id-1" }}
	for _, tc := range []struct {
		err    error
		code   codes.Code
		reason string
		meta   map[string]string
	}{
		{storage.ErrUnavailable, codes.Unavailable, "STORAGE_UNAVAILABLE", nil},
		{storage.ErrOutcomeUnknown, codes.Unavailable, "STORAGE_UNAVAILABLE", map[string]string{"outcome": "unknown"}},
		{storage.ErrSchema, codes.Unavailable, "STORAGE_UNAVAILABLE", nil},
		{storage.ErrQueueNotFound, codes.NotFound, "QUEUE_NOT_FOUND", nil},
		{storage.ErrQueueExists, codes.AlreadyExists, "QUEUE_EXISTS", nil},
		{storage.ErrQueueLimit, codes.ResourceExhausted, "QUEUE_LIMIT", nil},
		{storage.ErrVersionMismatch, codes.Aborted, "ETAG_MISMATCH", nil},
		{storage.ErrMessageNotFound, codes.NotFound, "MESSAGE_NOT_FOUND", nil},
		{dispatch.ErrTooManyWaiters, codes.ResourceExhausted, "TOO_MANY_WAITERS", nil},
		{dispatch.ErrLaneFull, codes.ResourceExhausted, "TOO_MANY_WAITERS", nil},
		{dispatch.ErrClaimIDReused, codes.FailedPrecondition, "CLAIM_ID_REUSED", nil},
		{errors.New("a defect"), codes.Internal, "INTERNAL", map[string]string{"error_id": "id-1"}},
	} {
		t.Run(tc.err.Error(), func(t *testing.T) {
			wrapped := fmt.Errorf("settle: %w: driver says secret", tc.err)
			d := requireReason(t, m.status(t.Context(), wrapped), tc.code, tc.reason)
			require.NotContains(t, m.status(t.Context(), wrapped).Error(), "secret")
			require.Equal(t, tc.meta, d.metadata)
			require.Equal(t, tc.code == codes.Unavailable || tc.code == codes.ResourceExhausted, d.retry > 0)
			item := m.item(t.Context(), wrapped)
			require.Equal(t, int32(tc.code), item.GetCode())
			require.Equal(t, tc.reason, reasonString(item.GetReason()))
			require.Equal(t, tc.meta, item.GetMetadata())
		})
	}
}

func TestCallerThatIsGoneGetsItsOwnError(t *testing.T) {
	m := &errorMapper{log: serveLog(), newID: randomID}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, codes.Canceled, detailsOf(t, m.status(ctx, storage.ErrUnavailable)).code)
	ctx, cancel = context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	require.Equal(t, codes.DeadlineExceeded, detailsOf(t, m.status(ctx, storage.ErrOutcomeUnknown)).code)
}

// TestD3DatabaseAway: every call says UNAVAILABLE with what to do, and all is well
// again afterwards.
func TestD3DatabaseAway(t *testing.T) {
	h := serve(t)
	h.enqueue("q", "x")
	m := h.claim()
	h.faults.Inject(faults.Any, faults.Fault{Refuse: true})
	id, token := m.GetMessage().GetMessageId(), m.GetClaimToken()
	// Another queue, since what is known of this one is cached.
	for name, call := range map[string]func() error{
		"Enqueue": func() error {
			_, err := h.Enqueue(h.ctx(), &queueboxv1.EnqueueRequest{Queue: "q"})
			return err
		},
		"Enqueue into a new queue": func() error {
			_, err := h.Enqueue(h.ctx(), &queueboxv1.EnqueueRequest{Queue: "new"})
			return err
		},
		"Claim": func() error {
			_, err := h.Claim(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q", WaitMs: 20_000})
			return err
		},
		"Renew": func() error {
			_, err := h.Renew(h.ctx(), &queueboxv1.RenewRequest{Queue: "q", MessageId: id, ClaimToken: token})
			return err
		},
		"Complete": func() error {
			_, err := h.Complete(h.ctx(), &queueboxv1.CompleteRequest{Queue: "q", MessageId: id, ClaimToken: token})
			return err
		},
		"BatchSettle": func() error {
			_, err := h.BatchSettle(h.ctx(), &queueboxv1.BatchSettleRequest{Items: []*queueboxv1.SettleItem{completeItem(m)}})
			return err
		},
		"GetQueue": func() error {
			_, err := h.GetQueue(h.ctx(), &queueboxv1.GetQueueRequest{Queue: "q"})
			return err
		},
		"ListMessages": func() error {
			_, err := h.ListMessages(h.ctx(), &queueboxv1.ListMessagesRequest{Queue: "q"})
			return err
		},
	} {
		d := requireReason(t, call(), codes.Unavailable, "STORAGE_UNAVAILABLE")
		require.Positive(t, d.retry, name)
		require.Empty(t, d.metadata["outcome"], name)
	}
	h.faults.Clear()
	_, err := h.Complete(h.ctx(), &queueboxv1.CompleteRequest{Queue: "q", MessageId: id, ClaimToken: token})
	require.NoError(t, err, "the lease still counts")
}

// TestD8OutcomeUnknown: the repeat tells.
func TestD8OutcomeUnknown(t *testing.T) {
	h := serve(t)
	enqueue := &queueboxv1.EnqueueRequest{Queue: "q", Payload: []byte("x"), IdempotencyKey: "k"}
	h.enqueue("q", "first, so that the queue is there")
	h.claim()
	h.faults.Inject(faults.Enqueue, faults.Fault{Lose: true, Times: 1})
	_, err := h.Enqueue(h.ctx(), enqueue)
	require.Equal(t, "unknown", requireReason(t, err, codes.Unavailable, "STORAGE_UNAVAILABLE").metadata["outcome"])
	out, err := h.Enqueue(h.ctx(), enqueue)
	require.NoError(t, err)
	require.True(t, out.GetDuplicate())

	claim := &queueboxv1.ClaimRequest{Queue: "q", ClaimId: "6f1c3c7a-25c6-4a53-9a94-4a54be1c5ab9", WorkerId: "w"}
	h.faults.Inject(faults.Claim, faults.Fault{Lose: true, Times: 1})
	_, err = h.Claim(h.ctx(), claim)
	requireReason(t, err, codes.Unavailable, "STORAGE_UNAVAILABLE")
	got, err := h.Claim(h.ctx(), claim)
	require.NoError(t, err)
	require.True(t, got.GetReplayed())
	require.Len(t, got.GetMessages(), 1)
	require.EqualValues(t, 1, got.GetMessages()[0].GetMessage().GetAttempt())

	complete := completeItem(got.GetMessages()[0]).GetComplete()
	h.faults.Inject(faults.Settle, faults.Fault{Lose: true, Times: 1})
	_, err = h.Complete(h.ctx(), complete)
	requireReason(t, err, codes.Unavailable, "STORAGE_UNAVAILABLE")
	done, err := h.Complete(h.ctx(), complete)
	require.NoError(t, err)
	require.True(t, done.GetAlreadySettled())
}

func TestErrorsOfGRPCItself(t *testing.T) {
	h := serve(t)
	t.Run("unknown method", func(t *testing.T) {
		err := h.conn.Invoke(h.ctx(), "/queuebox.v1.WorkerService/Nap", &emptypb.Empty{}, &emptypb.Empty{})
		requireReason(t, err, codes.Unimplemented, "UNIMPLEMENTED")
	})
	t.Run("unknown service", func(t *testing.T) {
		err := h.conn.Invoke(h.ctx(), "/queuebox.v9.WorkerService/Claim", &emptypb.Empty{}, &emptypb.Empty{})
		requireReason(t, err, codes.Unimplemented, "UNIMPLEMENTED")
	})
	t.Run("a request that is no message", func(t *testing.T) {
		err := h.conn.Invoke(h.ctx(), "/queuebox.v1.WorkerService/Claim", rawMessage{0x0a, 0xff}, &queueboxv1.ClaimResponse{}, grpc.ForceCodec(rawCodec{}))
		d := requireReason(t, err, codes.InvalidArgument, "INVALID_ARGUMENT")
		require.Equal(t, []string{"(request)"}, d.fields)
		require.Contains(t, h.scrape(), `grpc_server_handled_total{grpc_code="InvalidArgument",grpc_method="Claim"`, "it is counted")
	})
	t.Run("invalid UTF-8 names its field", func(t *testing.T) {
		for field, raw := range map[string]rawMessage{
			"queue":      {0x0a, 0x02, 0xff, 0xfe},
			"attributes": {0x0a, 0x01, 'q', 0x22, 0x06, 0x0a, 0x01, 'k', 0x12, 0x01, 0xff},
		} {
			err := h.conn.Invoke(h.ctx(), "/queuebox.v1.ProducerService/Enqueue", raw, &queueboxv1.EnqueueResponse{}, grpc.ForceCodec(rawCodec{}))
			d := requireReason(t, err, codes.InvalidArgument, "INVALID_ARGUMENT")
			require.Equal(t, []string{field}, d.fields)
		}
		raw := rawMessage{0x0a, 0x06, 0x0a, 0x01, 'q', 0x1a, 0x01, 0xff} // requests[0].content_type
		err := h.conn.Invoke(h.ctx(), "/queuebox.v1.ProducerService/BatchEnqueue", raw, &queueboxv1.BatchEnqueueResponse{}, grpc.ForceCodec(rawCodec{}))
		require.Equal(t, []string{"requests[0].content_type"}, requireReason(t, err, codes.InvalidArgument, "INVALID_ARGUMENT").fields)
	})
	t.Run("E13 a field that this build does not know", func(t *testing.T) {
		raw := rawMessage{0x0a, 0x01, 'q', 0xa0, 0x06, 0x01} // field 100 = 1
		err := h.conn.Invoke(h.ctx(), "/queuebox.v1.ProducerService/Enqueue", raw, &queueboxv1.EnqueueResponse{}, grpc.ForceCodec(rawCodec{}))
		require.Equal(t, []string{"100"}, requireReason(t, err, codes.Unimplemented, "UNIMPLEMENTED").fields)
	})
	t.Run("a bad frame of a stream", func(t *testing.T) {
		stream, err := h.Heartbeat(h.ctx(), grpc.ForceCodec(rawCodec{}))
		require.NoError(t, err)
		require.NoError(t, stream.SendMsg(rawMessage{0x12, 0x01, 0xff}))
		require.Equal(t, []string{"queue"}, requireReason(t, stream.RecvMsg(&queueboxv1.HeartbeatResponse{}), codes.InvalidArgument, "INVALID_ARGUMENT").fields)
	})
	t.Run("far too large", func(t *testing.T) {
		_, err := h.Enqueue(h.ctx(), &queueboxv1.EnqueueRequest{Queue: "q", Payload: make([]byte, 20<<20)})
		require.Equal(t, codes.ResourceExhausted, detailsOf(t, err).code, "gRPC refuses it before anybody else sees it")
	})
}

// rawMessage is sent as it is.
type rawMessage []byte

type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) { return v.(rawMessage), nil }

func (rawCodec) Unmarshal(data []byte, v any) error { return proto.Unmarshal(data, v.(proto.Message)) }

func (rawCodec) Name() string { return "proto" }

func serveLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

func completeItem(m *queueboxv1.ClaimedMessage) *queueboxv1.SettleItem {
	return &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_Complete{Complete: &queueboxv1.CompleteRequest{
		Queue: m.GetMessage().GetQueue(), MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(),
	}}}
}
