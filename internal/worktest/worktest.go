// Package worktest reads and writes Work streams in tests, one frame after the other.
package worktest

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// Stream is a Work stream whose frames the test expects one by one. What its methods do not
// expect fails the test.
type Stream struct {
	grpc.BidiStreamingClient[queueboxv1.WorkRequest, queueboxv1.WorkResponse]
	tb testing.TB
}

// Open opens a stream and sends its first frame, with so much credit.
func Open(ctx context.Context, tb testing.TB, c queueboxv1.WorkerServiceClient, start *queueboxv1.WorkStart, credit int32) Stream {
	tb.Helper()
	stream, err := c.Work(ctx)
	require.NoError(tb, err)
	s := Stream{stream, tb}
	s.Write(&queueboxv1.WorkRequest{Start: start, Credit: credit})
	return s
}

// Write sends a frame.
func (s Stream) Write(req *queueboxv1.WorkRequest) {
	s.tb.Helper()
	require.NoError(s.tb, s.Send(req))
}

// Next is the next frame, whatever it is.
func (s Stream) Next() *queueboxv1.WorkResponse {
	s.tb.Helper()
	out, err := s.Recv()
	require.NoError(s.tb, err)
	require.NotNil(s.tb, out.GetServerTime(), "D11")
	return out
}

// Take reads frames until n messages were delivered; nothing else may come between.
func (s Stream) Take(n int) []*queueboxv1.ClaimedMessage {
	s.tb.Helper()
	var out []*queueboxv1.ClaimedMessage
	for len(out) < n {
		f := s.Next()
		require.Zero(s.tb, f.GetSequence())
		require.NotEmpty(s.tb, f.GetDeliveries(), "%v", f)
		out = append(out, f.GetDeliveries()...)
	}
	require.Len(s.tb, out, n, "T3")
	return out
}

// Ask sends a frame and reads its answer, which must come next.
func (s Stream) Ask(req *queueboxv1.WorkRequest) *queueboxv1.WorkResponse {
	s.tb.Helper()
	s.Write(req)
	out := s.Next()
	require.Equal(s.tb, req.GetSequence(), out.GetSequence(), "%v", out)
	require.Empty(s.tb, out.GetDeliveries())
	return out
}

// Leave closes the stream from this side and waits for its end.
func (s Stream) Leave() {
	s.tb.Helper()
	require.NoError(s.tb, s.CloseSend())
	s.Ends()
}

// Ends requires that the stream ends OK now.
func (s Stream) Ends() {
	s.tb.Helper()
	out, err := s.Recv()
	require.ErrorIs(s.tb, err, io.EOF, "%v", out)
}

// Completions is a frame that completes messages. It names no queue, so it is that of the stream.
func Completions(sequence int64, ms ...*queueboxv1.ClaimedMessage) *queueboxv1.WorkRequest {
	req := &queueboxv1.WorkRequest{Sequence: sequence}
	for _, m := range ms {
		req.Settlements = append(req.Settlements, &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_Complete{
			Complete: &queueboxv1.CompleteRequest{MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken()},
		}})
	}
	return req
}
