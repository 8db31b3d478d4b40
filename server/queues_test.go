package server

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
)

func TestCreateQueueFillsDefaults(t *testing.T) {
	h := serve(t)
	out, err := h.CreateQueue(h.ctx(), &queueboxv1.CreateQueueRequest{Queue: &queueboxv1.Queue{Queue: "q", MaxAttempts: 3}})
	require.NoError(t, err)
	q := out.GetQueue()
	require.EqualValues(t, 30_000, q.GetDefaultLeaseMs())
	require.EqualValues(t, 1000, q.GetMinLeaseMs())
	require.EqualValues(t, 12*3600*1000, q.GetMaxLeaseMs())
	require.EqualValues(t, 3, q.GetMaxAttempts())
	require.EqualValues(t, 1000, q.GetRetryPolicy().GetMinBackoffMs())
	require.EqualValues(t, 3600*1000, q.GetRetryPolicy().GetMaxBackoffMs())
	require.InDelta(t, 2, q.GetRetryPolicy().GetMultiplier(), 0)
	require.InDelta(t, 0.2, q.GetRetryPolicy().GetJitter(), 0)
	require.EqualValues(t, 3600*1000, q.GetCompletedRetentionMs())
	require.Zero(t, q.GetDeadRetentionMs())
	require.Equal(t, queueboxv1.OrderingMode_ORDERING_MODE_SKIP_DEAD, q.GetOrderingMode())
	require.NotEmpty(t, q.GetEtag())
	require.NotNil(t, q.GetCreateTime())
	got, err := h.GetQueue(h.ctx(), &queueboxv1.GetQueueRequest{Queue: "q"})
	require.NoError(t, err)
	require.Equal(t, q.String(), got.GetQueue().String())
}

func TestUpdateQueueChangesWhatTheMaskNames(t *testing.T) {
	h := serve(t)
	made, err := h.CreateQueue(h.ctx(), &queueboxv1.CreateQueueRequest{Queue: &queueboxv1.Queue{Queue: "q", MaxAttempts: 3}})
	require.NoError(t, err)
	update := func(q *queueboxv1.Queue, paths ...string) (*queueboxv1.Queue, error) {
		q.Queue = "q"
		out, err := h.UpdateQueue(h.ctx(), &queueboxv1.UpdateQueueRequest{Queue: q, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
		return out.GetQueue(), err
	}
	q, err := update(&queueboxv1.Queue{DefaultLeaseMs: 5000, MaxAttempts: 9, Etag: made.GetQueue().GetEtag()}, "default_lease_ms")
	require.NoError(t, err)
	require.EqualValues(t, 5000, q.GetDefaultLeaseMs())
	require.EqualValues(t, 3, q.GetMaxAttempts(), "not in the mask")
	_, err = update(&queueboxv1.Queue{Etag: made.GetQueue().GetEtag()}, "default_lease_ms")
	requireReason(t, err, codes.Aborted, "ETAG_MISMATCH")
	q, err = update(&queueboxv1.Queue{Paused: true, MaxAttempts: 7}, "*")
	require.NoError(t, err)
	require.True(t, q.GetPaused())
	require.EqualValues(t, 7, q.GetMaxAttempts())
	require.EqualValues(t, 30_000, q.GetDefaultLeaseMs(), "zero takes the default")
	// The new limits count at once on this server.
	_, err = update(&queueboxv1.Queue{MinLeaseMs: 10, MaxLeaseMs: 20, DefaultLeaseMs: 15}, "min_lease_ms", "max_lease_ms", "default_lease_ms")
	require.NoError(t, err)
	_, err = h.Claim(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q", LeaseMs: 21})
	requireReason(t, err, codes.InvalidArgument, "LEASE_OUT_OF_RANGE")
}

func TestUpdateQueueResumesToo(t *testing.T) {
	h := serve(t)
	h.enqueue("q", "x")
	_, err := h.PauseQueue(h.ctx(), &queueboxv1.PauseQueueRequest{Queue: "q"})
	require.NoError(t, err)
	ch := h.waitIn(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q", WaitMs: 20_000})
	_, err = h.UpdateQueue(h.ctx(), &queueboxv1.UpdateQueueRequest{
		Queue: &queueboxv1.Queue{Queue: "q"}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"paused"}},
	})
	require.NoError(t, err)
	require.Len(t, (<-ch).out.GetMessages(), 1)
}

func TestListQueuesPages(t *testing.T) {
	h := serve(t)
	for i := range 5 {
		h.enqueue(fmt.Sprintf("q%d", i), "x")
	}
	var names []string
	token := ""
	for pages := 1; ; pages++ {
		out, err := h.ListQueues(h.ctx(), &queueboxv1.ListQueuesRequest{PageSize: 2, PageToken: token})
		require.NoError(t, err)
		for _, q := range out.GetQueues() {
			names = append(names, q.GetQueue())
		}
		if token = out.GetNextPageToken(); token == "" {
			require.Equal(t, 3, pages)
			break
		}
	}
	require.Equal(t, []string{"q0", "q1", "q2", "q3", "q4"}, names)
}

func TestQueuesThatTheServerMayNotMake(t *testing.T) {
	t.Run("not by an enqueue", func(t *testing.T) {
		h := serve(t, func(c *Config) { c.CreateQueues = false })
		_, err := h.Enqueue(h.ctx(), &queueboxv1.EnqueueRequest{Queue: "q"})
		requireReason(t, err, codes.NotFound, "QUEUE_NOT_FOUND")
		_, err = h.CreateQueue(h.ctx(), &queueboxv1.CreateQueueRequest{Queue: &queueboxv1.Queue{Queue: "q"}})
		require.NoError(t, err)
		h.enqueue("q", "x")
	})
	t.Run("not so many", func(t *testing.T) {
		h := serve(t, func(c *Config) { c.MaxQueues = 1 })
		h.enqueue("q", "x")
		_, err := h.Enqueue(h.ctx(), &queueboxv1.EnqueueRequest{Queue: "r"})
		require.Positive(t, requireReason(t, err, codes.ResourceExhausted, "QUEUE_LIMIT").retry)
	})
}

func TestMessagesAreReadAndListed(t *testing.T) {
	h := serve(t)
	var ids []string
	for i := range 5 {
		ids = append(ids, h.enqueue("q", fmt.Sprint(i)))
	}
	m := h.claim()
	got, err := h.GetMessage(h.ctx(), &queueboxv1.GetMessageRequest{Queue: "q", MessageId: m.GetMessage().GetMessageId(), IncludePayload: true})
	require.NoError(t, err)
	require.Equal(t, "0", string(got.GetMessage().GetPayload()))
	require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_PROCESSING, got.GetMessage().GetState())
	require.NotNil(t, got.GetMessage().GetLeaseExpireTime())

	var listed []string
	token := ""
	for {
		out, err := h.ListMessages(h.ctx(), &queueboxv1.ListMessagesRequest{Queue: "q", PageSize: 2, PageToken: token})
		require.NoError(t, err)
		for _, m := range out.GetMessages() {
			require.Empty(t, m.GetPayload())
			require.EqualValues(t, 1, m.GetPayloadBytes())
			listed = append([]string{m.GetMessageId()}, listed...)
		}
		if token = out.GetNextPageToken(); token == "" {
			break
		}
	}
	require.Equal(t, ids, listed, "newest first, each once")

	out, err := h.ListMessages(h.ctx(), &queueboxv1.ListMessagesRequest{Queue: "q", Filter: &queueboxv1.MessageFilter{
		States: []queueboxv1.MessageState{queueboxv1.MessageState_MESSAGE_STATE_PROCESSING},
	}})
	require.NoError(t, err)
	require.Len(t, out.GetMessages(), 1)
	h.enqueue("other", "x")
	other, err := h.ListMessages(h.ctx(), &queueboxv1.ListMessagesRequest{Queue: "other", Filter: &queueboxv1.MessageFilter{MessageIds: ids}})
	require.NoError(t, err)
	require.Empty(t, other.GetMessages(), "ids of another queue match nothing")
}

// TestListMessagesWithBodiesFitsTheClient: the page is cut where it grows too large.
func TestListMessagesWithBodiesFitsTheClient(t *testing.T) {
	h := serve(t)
	for range 8 {
		h.enqueue("q", string(make([]byte, 1<<20)))
	}
	n, token := 0, ""
	for {
		out, err := h.ListMessages(h.ctx(), &queueboxv1.ListMessagesRequest{Queue: "q", IncludePayload: true, PageToken: token})
		require.NoError(t, err)
		n += len(out.GetMessages())
		if token = out.GetNextPageToken(); token == "" {
			break
		}
	}
	require.Equal(t, 8, n)
}

func TestStatsCount(t *testing.T) {
	h := serve(t)
	for range 3 {
		h.enqueue("q", "x")
	}
	h.claim()
	_, err := h.Enqueue(h.ctx(), &queueboxv1.EnqueueRequest{Queue: "q", DelayMs: 3_600_000})
	require.NoError(t, err)
	h.waitIn(h.ctx(), &queueboxv1.ClaimRequest{Queue: "elsewhere", WaitMs: 1000})
	var st *queueboxv1.GetQueueStatsResponse
	require.Eventually(t, func() bool {
		st, err = h.GetQueueStats(h.ctx(), &queueboxv1.GetQueueStatsRequest{Queue: "q"})
		return err == nil && st.GetReadyCount()+st.GetLeasedCount()+st.GetDelayedCount() == 4
	}, 20*time.Second, 50*time.Millisecond, "counts are taken beside, every few seconds")
	require.EqualValues(t, 2, st.GetReadyCount())
	require.EqualValues(t, 1, st.GetLeasedCount())
	require.EqualValues(t, 1, st.GetDelayedCount())
	require.Zero(t, st.GetWaitingClaims())
	require.NotNil(t, st.GetAsOfTime())
	// A call of a user counts nothing, however often it comes.
	counts := h.faults.Calls("queue stats")
	for range 50 {
		_, err := h.GetQueueStats(h.ctx(), &queueboxv1.GetQueueStatsRequest{Queue: "q"})
		require.NoError(t, err)
	}
	require.Equal(t, counts, h.faults.Calls("queue stats"))
	require.LessOrEqual(t, h.faults.Calls("stored stats"), 10, "reads are shared")
}

func TestE7PastTimesMeanNow(t *testing.T) {
	h := serve(t)
	for _, at := range []time.Time{time.Unix(-1<<33, 0), time.Unix(0, 0), time.Now().Add(-time.Hour)} {
		_, err := h.Enqueue(h.ctx(), &queueboxv1.EnqueueRequest{Queue: "q", AvailableTime: timestamppb.New(at)})
		require.NoError(t, err)
		h.claim()
	}
}

func TestContentHashTellsContentsApart(t *testing.T) {
	base := &queueboxv1.EnqueueRequest{Payload: []byte("ab"), ContentType: "c", Attributes: map[string]string{"k": "v", "l": "w"}, Priority: 1, MaxAttempts: 2}
	seen := map[[32]byte]string{contentHash(base): "base"}
	for name, r := range map[string]*queueboxv1.EnqueueRequest{
		"payload and type run together": {Payload: []byte("a"), ContentType: "bc", Attributes: base.GetAttributes(), Priority: 1, MaxAttempts: 2},
		"priority":                      {Payload: []byte("ab"), ContentType: "c", Attributes: base.GetAttributes(), Priority: 2, MaxAttempts: 2},
		"attempts":                      {Payload: []byte("ab"), ContentType: "c", Attributes: base.GetAttributes(), Priority: 1, MaxAttempts: 3},
		"attributes":                    {Payload: []byte("ab"), ContentType: "c", Attributes: map[string]string{"k": "vl", "": "w"}, Priority: 1, MaxAttempts: 2},
		"no attributes":                 {Payload: []byte("ab"), ContentType: "c", Priority: 1, MaxAttempts: 2},
	} {
		sum := contentHash(r)
		require.Empty(t, seen[sum], name)
		seen[sum] = name
	}
	later := &queueboxv1.EnqueueRequest{Queue: "q", IdempotencyKey: "k", DelayMs: 5, Payload: []byte("ab"), ContentType: "c", Attributes: base.GetAttributes(), Priority: 1, MaxAttempts: 2}
	require.Equal(t, contentHash(base), contentHash(later), "times are no content")
}

func TestWireBytesBoundsTheAnswer(t *testing.T) {
	req := &queueboxv1.EnqueueRequest{Queue: "q", Payload: make([]byte, 1000), Attributes: map[string]string{"": "", "k": "v"}}
	m := storage.Message{
		Ref: storage.Ref{QueueID: 1<<31 - 1, Position: 1<<63 - 1}, Payload: req.GetPayload(), PayloadBytes: 1000, Attributes: req.GetAttributes(),
		LastError: string(make([]byte, 2000)), WorkerID: string(make([]byte, 255)), ReasonCode: string(make([]byte, 255)),
		Priority: -1, State: storage.StateProcessing, Attempt: 1 << 30, MaxAttempts: 1 << 30,
		CreateTime: time.Unix(1<<32, 999_999_999), ReadyTime: time.Unix(1<<32, 999_999_999), LeaseEnd: time.Unix(1<<32, 999_999_999),
	}
	full := &queueboxv1.ClaimedMessage{
		Message: wireMessage("q", &m), ClaimToken: string(make([]byte, 33)), LeaseExpireTime: timestamppb.New(m.LeaseEnd), LeaseRemainingMs: 1 << 40,
	}
	require.LessOrEqual(t, int64(protoSize(&queueboxv1.ClaimResponse{Messages: []*queueboxv1.ClaimedMessage{full}})), wireBytes(req))
}
