package blackbox

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(workerOf); addr != "" {
		os.Exit(workerProcess(addr))
	}
	widen()
	os.Exit(Main(m))
}

// widen lets more tests run beside each other than there are cores, unless the command line says
// how many: nearly all that are parallel wait, for leases to run out or for processes to come and
// go. What measures a time is not parallel.
func widen() {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0)))
	}
}

// shortLeases lets the tests that wait for the end of a lease be quick.
const shortLeases = "--queue-min-lease=50ms"

// within gives a call an end that only a hanging server reaches.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// enqueue inserts one plain message and returns its id.
func enqueue(t *testing.T, c *Client, queue, payload string) string {
	t.Helper()
	out, err := c.Enqueue(within(t), &queueboxv1.EnqueueRequest{Queue: queue, Payload: []byte(payload)})
	require.NoError(t, err)
	require.NotEmpty(t, out.GetMessageId())
	return out.GetMessageId()
}

// enqueueMany inserts n plain messages in batches and returns their ids.
func enqueueMany(t *testing.T, c *Client, queue string, n int) []string {
	t.Helper()
	var ids []string
	for len(ids) < n {
		var req queueboxv1.BatchEnqueueRequest
		for i := len(ids); i < n && len(req.GetRequests()) < 1000; i++ {
			req.Requests = append(req.Requests, &queueboxv1.EnqueueRequest{Queue: queue, Payload: fmt.Appendf(nil, "%s %d", queue, i)})
		}
		out, err := c.BatchEnqueue(within(t), &req)
		require.NoError(t, err)
		for _, r := range out.GetResponses() {
			ids = append(ids, r.GetMessageId())
		}
	}
	return ids
}

// claim claims up to n messages and does not wait.
func claim(t *testing.T, c *Client, queue string, n int32, lease time.Duration) []*queueboxv1.ClaimedMessage {
	t.Helper()
	return claimWith(t, c, &queueboxv1.ClaimRequest{Queue: queue, MaxMessages: n, LeaseMs: lease.Milliseconds()}).GetMessages()
}

func claimWith(t *testing.T, c *Client, req *queueboxv1.ClaimRequest) *queueboxv1.ClaimResponse {
	t.Helper()
	out, err := c.Claim(within(t), req)
	require.NoError(t, err)
	return out
}

// claimOne claims the one message that must be there.
func claimOne(t *testing.T, c *Client, queue string, lease time.Duration) *queueboxv1.ClaimedMessage {
	t.Helper()
	got := claim(t, c, queue, 1, lease)
	require.Len(t, got, 1)
	return got[0]
}

// claimSoon claims one message, waiting for it if need be.
func claimSoon(t *testing.T, c *Client, queue string, lease time.Duration) *queueboxv1.ClaimedMessage {
	t.Helper()
	got := claimWith(t, c, &queueboxv1.ClaimRequest{Queue: queue, LeaseMs: lease.Milliseconds(), WaitMs: 15_000}).GetMessages()
	require.Len(t, got, 1)
	return got[0]
}

func complete(t *testing.T, c *Client, queue string, m *queueboxv1.ClaimedMessage) (*queueboxv1.CompleteResponse, error) {
	t.Helper()
	return c.Complete(within(t), completion(queue, m))
}

func completion(queue string, m *queueboxv1.ClaimedMessage) *queueboxv1.CompleteRequest {
	return &queueboxv1.CompleteRequest{Queue: queue, MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken()}
}

// message reads a message as an operator does.
func message(t *testing.T, c *Client, queue, id string) *queueboxv1.Message {
	t.Helper()
	out, err := c.Admin.GetMessage(within(t), &queueboxv1.GetMessageRequest{Queue: queue, MessageId: id, IncludePayload: true})
	require.NoError(t, err)
	return out.GetMessage()
}

// untilLeaseEnds waits until a lease is over by the clock of the database, which is
// that of this machine.
func untilLeaseEnds(t *testing.T, m *queueboxv1.ClaimedMessage) {
	t.Helper()
	select {
	case <-time.After(time.Until(m.GetLeaseExpireTime().AsTime()) + 20*time.Millisecond):
	case <-t.Context().Done():
	}
}

// eventually waits until the condition holds; only a defect makes it wait long.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "in vain: %s", what)
	}
}

// waiting tells how many Claims wait on a queue of a server.
func waiting(t *testing.T, c *Client, queue string) int {
	t.Helper()
	out, err := c.Admin.GetQueueStats(within(t), &queueboxv1.GetQueueStatsRequest{Queue: queue})
	require.NoError(t, err)
	return int(out.GetWaitingClaims())
}

// freshStats waits for counts of the queue q that were taken after it was called.
func freshStats(t *testing.T, c *Client) *queueboxv1.GetQueueStatsResponse {
	t.Helper()
	first, err := c.Admin.GetQueueStats(within(t), &queueboxv1.GetQueueStatsRequest{Queue: "q"})
	require.NoError(t, err)
	// A count rests twenty times as long as it took, which a busy machine makes long.
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		out, err := c.Admin.GetQueueStats(within(t), &queueboxv1.GetQueueStatsRequest{Queue: "q"})
		require.NoError(t, err)
		if out.GetAsOfTime().AsTime().After(first.GetServerTime().AsTime()) {
			return out
		}
		require.True(t, time.Now().Before(end), "nobody counts")
	}
}

func newClaimID() string { return uuid.NewString() }

// lease is an answer that tells the end of a lease and the clock of the database.
type lease interface {
	GetLeaseExpireTime() *timestamppb.Timestamp
	GetServerTime() *timestamppb.Timestamp
}

// leaseOf is the lease of a claimed message.
type leaseOf struct {
	*queueboxv1.ClaimedMessage
	answer *queueboxv1.ClaimResponse
}

func (l leaseOf) GetServerTime() *timestamppb.Timestamp { return l.answer.GetServerTime() }

func leaseLength(l lease) time.Duration {
	return l.GetLeaseExpireTime().AsTime().Sub(l.GetServerTime().AsTime())
}

// requireLease checks the length of a lease. The clock is read once for a statement and
// once for its row, so a moment may lie between the two.
func requireLease(t *testing.T, want time.Duration, l lease) {
	t.Helper()
	require.InDelta(t, want.Seconds(), leaseLength(l).Seconds(), 0.5)
}
