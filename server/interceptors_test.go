package server

import (
	"context"
	"testing"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/server/wireid"
	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/faults"
)

// TestInterceptorOrder panics in a handler and looks at what each interceptor made of
// it: recovery inside of metrics and logging, the request id outside of all.
func TestInterceptorOrder(t *testing.T) {
	h := serve(t)
	h.enqueue("q", "x")
	m := h.claim()
	h.faults.Inject(faults.Settle, faults.Fault{Strike: func() { panic("a secret cause") }, Times: 1})
	var header metadata.MD
	ctx := metadata.AppendToOutgoingContext(h.ctx(), requestIDHeader, "req-77")
	_, err := h.Complete(ctx, &queueboxv1.CompleteRequest{
		Queue: "q", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(),
	}, grpc.Header(&header))
	d := requireReason(t, err, codes.Internal, "INTERNAL")
	require.NotContains(t, err.Error(), "secret", "the cause is only in the log")
	require.NotEmpty(t, d.metadata["error_id"])
	require.Equal(t, []string{"req-77"}, header.Get(requestIDHeader))

	scrape := h.scrape()
	require.Contains(t, scrape, `grpc_server_started_total{grpc_method="Complete",grpc_service="queuebox.v1.WorkerService",grpc_type="unary"} 1`)
	require.Contains(t, scrape, `grpc_server_handled_total{grpc_code="Internal",grpc_method="Complete",grpc_service="queuebox.v1.WorkerService",grpc_type="unary"} 1`,
		"metrics stand outside of recovery")
	require.Contains(t, scrape, "queuebox_panics_total 1")

	log := h.log.String()
	require.Contains(t, log, "a secret cause")
	require.Contains(t, log, "error_id="+d.metadata["error_id"])
	require.Regexp(t, `level=ERROR msg="finished call" request_id=req-77 .*grpc.method=Complete .*grpc.code=Internal`, log, "logging stands outside of recovery")

	// The claim is as it was.
	_, err = h.Complete(h.ctx(), &queueboxv1.CompleteRequest{Queue: "q", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken()})
	require.NoError(t, err)
}

func TestInterceptorTableIsTheSameForBothChains(t *testing.T) {
	h := serve(t)
	table := interceptors(callLog{}, grpcprom.NewServerMetrics(), h.server.api.errors, func() {})
	var names []string
	for _, i := range table {
		names = append(names, i.name)
		require.NotNil(t, i.unary, i.name)
		require.NotNil(t, i.stream, i.name)
	}
	require.Equal(t, []string{"request id", "metrics", "logging", "recovery", "error mapping"}, names)
}

func TestPanicInAStreamIsCaught(t *testing.T) {
	h := serve(t)
	h.enqueue("q", "x")
	m := h.claim()
	h.faults.Inject(faults.Renew, faults.Fault{Strike: func() { panic("a secret cause") }, Times: 1})
	stream, err := h.Heartbeat(h.ctx())
	require.NoError(t, err)
	require.NoError(t, stream.Send(&queueboxv1.HeartbeatRequest{Sequence: 1, Queue: "q", Renewals: []*queueboxv1.RenewItem{renewItem(m)}}))
	// It is the renewal that has failed, beside whatever was joined with it; the stream goes on.
	resp, err := stream.Recv()
	require.NoError(t, err)
	failed := resp.GetResults()[0].GetError()
	require.Equal(t, queueboxv1.ErrorReason_ERROR_REASON_INTERNAL, failed.GetReason())
	require.NotContains(t, failed.GetMessage(), "secret")
	require.Contains(t, h.log.String(), "a secret cause")
	require.NoError(t, stream.Send(&queueboxv1.HeartbeatRequest{Sequence: 2, Queue: "q", Renewals: []*queueboxv1.RenewItem{renewItem(m)}}))
	resp, err = stream.Recv()
	require.NoError(t, err)
	require.NotNil(t, resp.GetResults()[0].GetRenewed())
	h.enqueue("q", "the server lives")
}

func TestNoSecretsInTheLog(t *testing.T) {
	h := serve(t)
	h.enqueue("q", "payload-that-is-secret")
	m := h.claim()
	item := renewItem(m)
	_, err := h.Renew(h.ctx(), &queueboxv1.RenewRequest{Queue: "q", MessageId: item.GetMessageId(), ClaimToken: item.GetClaimToken()})
	require.NoError(t, err)
	for range 2 {
		_, _ = h.Retry(h.ctx(), &queueboxv1.RetryRequest{Queue: "q", MessageId: item.GetMessageId(), ClaimToken: item.GetClaimToken(), Error: "error-that-is-secret"})
	}
	_, err = h.Complete(h.ctx(), &queueboxv1.CompleteRequest{Queue: "q", MessageId: item.GetMessageId(), ClaimToken: item.GetClaimToken()})
	requireReason(t, err, codes.FailedPrecondition, "CLAIM_SETTLED")
	_, err = h.Complete(h.ctx(), &queueboxv1.CompleteRequest{Queue: "q", MessageId: item.GetMessageId(), ClaimToken: item.GetClaimToken() + "x"})
	require.Error(t, err)
	require.NotContains(t, err.Error(), item.GetClaimToken())
	h.faults.Inject(faults.Settle, faults.Fault{Err: context.DeadlineExceeded, Times: 1})
	_, err = h.Complete(h.ctx(), &queueboxv1.CompleteRequest{Queue: "q", MessageId: item.GetMessageId(), ClaimToken: wireid.Token(storage.Token{1})})
	require.Error(t, err)
	log := h.log.String()
	require.NotContains(t, log, item.GetClaimToken())
	require.NotContains(t, log, "that-is-secret")
	require.Contains(t, log, "grpc.method=Complete")
}

func TestRequestIDIsMadeWhereNoneIsFit(t *testing.T) {
	h := serve(t)
	for _, sent := range []string{"", "with space", "\x7f"} {
		ctx := h.ctx()
		if sent == "with space" {
			ctx = metadata.AppendToOutgoingContext(ctx, requestIDHeader, sent)
		}
		var header metadata.MD
		_, err := h.GetServerInfo(ctx, &queueboxv1.GetServerInfoRequest{}, grpc.Header(&header))
		require.NoError(t, err)
		require.Len(t, header.Get(requestIDHeader), 1)
		require.Len(t, header.Get(requestIDHeader)[0], 32)
	}
}

func renewItem(m *queueboxv1.ClaimedMessage) *queueboxv1.RenewItem {
	return &queueboxv1.RenewItem{MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken()}
}

// TestMethodsThatTheServerDoesNotHaveAreNotCounted: their names come from callers, and each
// would be a series that stays.
func TestMethodsThatTheServerDoesNotHaveAreNotCounted(t *testing.T) {
	h := serve(t)
	for _, name := range []string{"/queuebox.v1.WorkerService/Nothing", "/nobody.Knows/It", "/queuebox.v1.AdminService/Nothing"} {
		err := h.conn.Invoke(h.ctx(), name, &queueboxv1.GetServerInfoRequest{}, &queueboxv1.GetServerInfoResponse{})
		require.Equal(t, codes.Unimplemented, status.Code(err))
	}
	scrape := h.scrape()
	require.NotContains(t, scrape, "nobody.Knows")
	require.NotContains(t, scrape, `grpc_method="Nothing"`)
	require.Contains(t, scrape, `grpc_server_started_total{grpc_method="Heartbeat",grpc_service="queuebox.v1.WorkerService",grpc_type="bidi_stream"} 0`)
	require.Contains(t, scrape, `grpc_server_started_total{grpc_method="Work",grpc_service="queuebox.v1.WorkerService",grpc_type="bidi_stream"} 0`)
}
