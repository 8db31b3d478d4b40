package server

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/server/wireid"
	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/faults"
)

func TestT1EachRequestGetsOneAnswer(t *testing.T) {
	h := serve(t)
	h.enqueue("q", "x")
	m := h.claim()
	stream, err := h.Heartbeat(h.ctx())
	require.NoError(t, err)

	require.NoError(t, stream.Send(&queueboxv1.HeartbeatRequest{Sequence: 1}))
	out, err := stream.Recv()
	require.NoError(t, err)
	require.EqualValues(t, 1, out.GetSequence())
	require.Empty(t, out.GetResults())
	require.NotNil(t, out.GetServerTime(), "D11")

	lost := &queueboxv1.RenewItem{MessageId: m.GetMessage().GetMessageId(), ClaimToken: wireid.Token(storage.Token{1})}
	malformed := &queueboxv1.RenewItem{MessageId: "?", ClaimToken: m.GetClaimToken()}
	require.NoError(t, stream.Send(&queueboxv1.HeartbeatRequest{
		Sequence: 2, Queue: "q", WorkerId: "w", Renewals: []*queueboxv1.RenewItem{malformed, renewItem(m), lost},
	}))
	require.NoError(t, stream.Send(&queueboxv1.HeartbeatRequest{Sequence: 3, Queue: "none", Renewals: []*queueboxv1.RenewItem{renewItem(m)}}))
	out, err = stream.Recv()
	require.NoError(t, err)
	require.EqualValues(t, 2, out.GetSequence())
	require.Len(t, out.GetResults(), 3)
	require.Equal(t, queueboxv1.ErrorReason_ERROR_REASON_INVALID_ARGUMENT, out.GetResults()[0].GetError().GetReason())
	require.Equal(t, "message_id", out.GetResults()[0].GetError().GetMetadata()["field"])
	require.Positive(t, out.GetResults()[1].GetRenewed().GetLeaseRemainingMs())
	require.Equal(t, m.GetClaimToken(), out.GetResults()[1].GetClaimToken())
	require.Equal(t, queueboxv1.ErrorReason_ERROR_REASON_CLAIM_LOST, out.GetResults()[2].GetError().GetReason())
	out, err = stream.Recv()
	require.NoError(t, err)
	require.EqualValues(t, 3, out.GetSequence())
	require.Equal(t, queueboxv1.ErrorReason_ERROR_REASON_MESSAGE_NOT_FOUND, out.GetResults()[0].GetError().GetReason())

	require.NoError(t, stream.CloseSend())
	_, err = stream.Recv()
	require.ErrorIs(t, err, io.EOF, "the caller ended it, so it ends OK")
}

func TestHeartbeatBadRequestEndsTheStream(t *testing.T) {
	h := serve(t)
	for name, tc := range map[string]struct {
		req   *queueboxv1.HeartbeatRequest
		field string
	}{
		"queue missing":  {&queueboxv1.HeartbeatRequest{Sequence: 1, Renewals: []*queueboxv1.RenewItem{{}}}, "queue"},
		"sequence 0":     {&queueboxv1.HeartbeatRequest{Queue: "q"}, "sequence"},
		"1001 renewals":  {&queueboxv1.HeartbeatRequest{Sequence: 1, Queue: "q", Renewals: make1001(&queueboxv1.RenewItem{})}, "renewals"},
		"NUL in a queue": {&queueboxv1.HeartbeatRequest{Sequence: 1, Queue: "\x00"}, "queue"},
	} {
		t.Run(name, func(t *testing.T) {
			stream, err := h.Heartbeat(h.ctx())
			require.NoError(t, err)
			require.NoError(t, stream.Send(&queueboxv1.HeartbeatRequest{Sequence: 1}))
			require.NoError(t, stream.Send(tc.req))
			_, err = stream.Recv()
			require.NoError(t, err, "what was answered before is sent")
			_, err = stream.Recv()
			require.Equal(t, []string{tc.field}, requireReason(t, err, codes.InvalidArgument, "INVALID_ARGUMENT").fields)
		})
	}
}

// TestHeartbeatSurvivesTheDatabase: a renewal that failed is unknown, not lost, and
// the stream goes on.
func TestHeartbeatSurvivesTheDatabase(t *testing.T) {
	h := serve(t)
	h.enqueue("q", "x")
	m := h.claim()
	stream, err := h.Heartbeat(h.ctx())
	require.NoError(t, err)
	h.faults.Inject(faults.Renew, faults.Fault{Refuse: true, Times: 1})
	for i, want := range []queueboxv1.ErrorReason{queueboxv1.ErrorReason_ERROR_REASON_STORAGE_UNAVAILABLE, 0} {
		require.NoError(t, stream.Send(&queueboxv1.HeartbeatRequest{Sequence: int64(i + 1), Queue: "q", Renewals: []*queueboxv1.RenewItem{renewItem(m)}}))
		out, err := stream.Recv()
		require.NoError(t, err)
		require.Equal(t, want, out.GetResults()[0].GetError().GetReason())
	}
}

func TestT2BreakingTheStreamChangesNoLease(t *testing.T) {
	h := serve(t)
	h.enqueue("q", "x")
	m := h.claim()
	before := h.dump()
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := queueboxv1.NewWorkerServiceClient(h.dial()).Heartbeat(ctx)
	require.NoError(t, err)
	require.NoError(t, stream.Send(&queueboxv1.HeartbeatRequest{Sequence: 1, Queue: "q"}))
	_, err = stream.Recv()
	require.NoError(t, err)
	cancel()
	_, err = stream.Recv()
	require.Error(t, err)
	require.Eventually(t, func() bool {
		_, body := h.get("/metrics")
		return containsLine(body, "queuebox_heartbeat_streams 0")
	}, 10*time.Second, time.Millisecond)
	require.Equal(t, before, h.dump())
	_, err = h.Complete(h.ctx(), completeItem(m).GetComplete())
	require.NoError(t, err)
}

func TestT5DrainTellsTheStreams(t *testing.T) {
	h := serve(t, func(c *Config) { c.DrainTimeout = 20 * time.Second })
	h.enqueue("q", "x")
	m := h.claim()
	stream, err := h.Heartbeat(h.ctx())
	require.NoError(t, err)
	require.NoError(t, stream.Send(&queueboxv1.HeartbeatRequest{Sequence: 1}))
	_, err = stream.Recv()
	require.NoError(t, err)
	wait := h.waitIn(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q", WaitMs: 20_000})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		h.stop()
	}()
	c := <-wait
	require.NoError(t, c.err)
	require.Equal(t, queueboxv1.EmptyReason_EMPTY_REASON_DRAINING, c.out.GetEmptyReason())
	out, err := stream.Recv()
	require.NoError(t, err)
	require.Zero(t, out.GetSequence())
	require.True(t, out.GetDraining())

	// What has a lease is still served, on the stream and beside it; claims are not.
	require.NoError(t, stream.Send(&queueboxv1.HeartbeatRequest{Sequence: 2, Queue: "q", Renewals: []*queueboxv1.RenewItem{renewItem(m)}}))
	out, err = stream.Recv()
	require.NoError(t, err)
	require.Positive(t, out.GetResults()[0].GetRenewed().GetLeaseRemainingMs())
	empty, err := h.Claim(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q", WaitMs: 20_000})
	require.NoError(t, err)
	require.Equal(t, queueboxv1.EmptyReason_EMPTY_REASON_DRAINING, empty.GetEmptyReason())
	code, body := h.get("/readyz")
	require.Equal(t, 503, code)
	require.Contains(t, body, "draining")
	_, err = h.Complete(h.ctx(), completeItem(m).GetComplete())
	require.NoError(t, err)

	_, err = stream.Recv()
	require.ErrorIs(t, err, io.EOF, "the stream ends OK")
	<-stopped
}

// TestT5StreamLeavesBeforeItsConnection: the connection's time is nearly up.
func TestT5StreamLeavesBeforeItsConnection(t *testing.T) {
	h := serve(t, func(c *Config) { c.MaxConnectionAge = 2 * time.Second })
	stream, err := h.Heartbeat(h.ctx())
	require.NoError(t, err)
	require.NoError(t, stream.Send(&queueboxv1.HeartbeatRequest{Sequence: 1}))
	out, err := stream.Recv()
	require.NoError(t, err)
	require.EqualValues(t, 1, out.GetSequence())
	out, err = stream.Recv()
	require.NoError(t, err)
	require.True(t, out.GetDraining())
	// The next stream goes over another connection, so it is not told to leave at once.
	next, err := h.Heartbeat(h.ctx())
	require.NoError(t, err)
	require.NoError(t, next.Send(&queueboxv1.HeartbeatRequest{Sequence: 1}))
	out, err = next.Recv()
	require.NoError(t, err)
	require.EqualValues(t, 1, out.GetSequence())
	_, err = stream.Recv()
	require.ErrorIs(t, err, io.EOF)
}

// slowStream is a stream whose answers nobody reads.
type slowStream struct {
	heartbeatStream
	ctx  context.Context //nolint:containedctx // a stream has one
	recv chan *queueboxv1.HeartbeatRequest
}

func (s *slowStream) Context() context.Context { return s.ctx }

func (s *slowStream) Send(*queueboxv1.HeartbeatResponse) error {
	<-s.ctx.Done()
	return s.ctx.Err()
}

func (s *slowStream) Recv() (*queueboxv1.HeartbeatRequest, error) {
	select {
	case r := <-s.recv:
		return r, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

// TestT4SlowReaderIsCutOff: the server stops to read when its few answers are not
// taken, and then ends the stream.
func TestT4SlowReaderIsCutOff(t *testing.T) {
	h := serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := &slowStream{ctx: ctx, recv: make(chan *queueboxv1.HeartbeatRequest)}
	ended := make(chan error, 1)
	go func() { ended <- h.server.api.Heartbeat(s) }()
	taken := 0
	for {
		select {
		case s.recv <- &queueboxv1.HeartbeatRequest{Sequence: int64(taken + 1)}:
			taken++
		case err := <-ended:
			require.LessOrEqual(t, taken, heartbeatQueue+2, "nothing is buffered without bound")
			require.Equal(t, codes.ResourceExhausted, codeOf(classify(err).reason))
			require.Contains(t, h.scrape(), "queuebox_streams_cut_total 1")
			return
		}
	}
}

func TestBornListenerTellsTheAgeOfAConnection(t *testing.T) {
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = lis.Close() }()
	at := time.Unix(77, 0)
	born := bornListener{Listener: lis, now: func() time.Time { return at }}
	client, err := new(net.Dialer).DialContext(t.Context(), "tcp", lis.Addr().String())
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	conn, err := born.Accept()
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	addr, ok := conn.RemoteAddr().(bornAddr)
	require.True(t, ok)
	require.Equal(t, at, addr.born)
	require.Equal(t, client.LocalAddr().String(), addr.String())
}
