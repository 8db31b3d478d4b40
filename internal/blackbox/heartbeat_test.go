package blackbox

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

type heartbeat = grpc.BidiStreamingClient[queueboxv1.HeartbeatRequest, queueboxv1.HeartbeatResponse]

func openHeartbeat(ctx context.Context, t *testing.T, c *Client) heartbeat {
	t.Helper()
	stream, err := c.Heartbeat(ctx)
	require.NoError(t, err)
	return stream
}

// beat sends one request and returns its answer.
func beat(t *testing.T, stream heartbeat, req *queueboxv1.HeartbeatRequest) *queueboxv1.HeartbeatResponse {
	t.Helper()
	require.NoError(t, stream.Send(req))
	out, err := stream.Recv()
	require.NoError(t, err)
	require.Equal(t, req.GetSequence(), out.GetSequence())
	require.NotNil(t, out.GetServerTime(), "D11")
	return out
}

func TestHeartbeat(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		c := db.Start(t, shortLeases).Client(t)
		enqueueMany(t, c, "q", 20)

		t.Run("T1 each request gets one answer, with its sequence", func(t *testing.T) {
			stream := openHeartbeat(within(t), t, c)
			require.Empty(t, beat(t, stream, &queueboxv1.HeartbeatRequest{Sequence: 1}).GetResults(), "an empty request is a ping")
			held := claim(t, c, "q", 3, time.Minute)
			require.Len(t, held, 3)
			req := &queueboxv1.HeartbeatRequest{Sequence: 7, Queue: "q", WorkerId: "w"}
			for _, m := range held {
				req.Renewals = append(req.Renewals, &queueboxv1.RenewItem{MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(), LeaseMs: 5_000})
			}
			req.Renewals = append(req.Renewals,
				&queueboxv1.RenewItem{MessageId: held[0].GetMessage().GetMessageId(), ClaimToken: held[1].GetClaimToken()},
				&queueboxv1.RenewItem{MessageId: "nonsense", ClaimToken: held[1].GetClaimToken()},
				&queueboxv1.RenewItem{MessageId: held[0].GetMessage().GetMessageId(), ClaimToken: held[0].GetClaimToken(), LeaseMs: 1})
			out := beat(t, stream, req)
			require.Len(t, out.GetResults(), 6)
			for i, r := range out.GetResults() {
				require.Equal(t, req.GetRenewals()[i].GetMessageId(), r.GetMessageId())
				require.Equal(t, req.GetRenewals()[i].GetClaimToken(), r.GetClaimToken())
				if i < 3 {
					require.Nil(t, r.GetError())
					requireLease(t, 5*time.Second, r.GetRenewed())
				}
			}
			RequireItem(t, out.GetResults()[3].GetError(), lost("SUPERSEDED"))
			RequireItem(t, out.GetResults()[4].GetError(), Want{Code: codes.InvalidArgument, Reason: "INVALID_ARGUMENT"})
			RequireItem(t, out.GetResults()[5].GetError(), Want{Code: codes.InvalidArgument, Reason: "LEASE_OUT_OF_RANGE"})

			// Many at once: the answers come back with every sequence exactly once.
			const n = 50
			for i := range n {
				require.NoError(t, stream.Send(&queueboxv1.HeartbeatRequest{Sequence: int64(100 + i), Queue: "q", Renewals: req.GetRenewals()[:2]}))
			}
			seen := map[int64]int{}
			for range n {
				out, err := stream.Recv()
				require.NoError(t, err)
				seen[out.GetSequence()]++
				require.Len(t, out.GetResults(), 2)
			}
			for i := range n {
				require.Equal(t, 1, seen[int64(100+i)])
			}
			require.NoError(t, stream.CloseSend())
			_, err := stream.Recv()
			require.ErrorIs(t, err, io.EOF, "a stream that the client ends, ends OK")
		})

		t.Run("T1 bad requests", func(t *testing.T) {
			m := claimOne(t, c, "q", time.Minute)
			item := &queueboxv1.RenewItem{MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken()}
			many := make([]*queueboxv1.RenewItem, 1001)
			for i := range many {
				many[i] = item
			}
			for name, tc := range map[string]struct {
				req   *queueboxv1.HeartbeatRequest
				field string
			}{
				"renewals without a queue": {&queueboxv1.HeartbeatRequest{Sequence: 1, Renewals: many[:1]}, "queue"},
				"sequence 0":               {&queueboxv1.HeartbeatRequest{Queue: "q", Renewals: many[:1]}, "sequence"},
				"negative sequence":        {&queueboxv1.HeartbeatRequest{Sequence: -1}, "sequence"},
				"1001 renewals":            {&queueboxv1.HeartbeatRequest{Sequence: 1, Queue: "q", Renewals: many}, "renewals"},
				"worker_id with NUL":       {&queueboxv1.HeartbeatRequest{Sequence: 1, WorkerId: "a\x00b"}, "worker_id"},
			} {
				t.Run(name, func(t *testing.T) {
					stream := openHeartbeat(within(t), t, c)
					require.NoError(t, stream.Send(tc.req))
					_, err := stream.Recv()
					RequireStatus(t, err, invalid(tc.field))
				})
			}
		})

		t.Run("T2 breaking the stream changes no lease", func(t *testing.T) {
			m := claimOne(t, c, "q", time.Minute)
			ctx, cancel := context.WithCancel(t.Context())
			own := c // a connection that is cut with the stream
			stream := openHeartbeat(ctx, t, own)
			beat(t, stream, &queueboxv1.HeartbeatRequest{Sequence: 1, Queue: "q", WorkerId: "w", Renewals: []*queueboxv1.RenewItem{{
				MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(), LeaseMs: 45_000,
			}}})
			before := message(t, c, "q", m.GetMessage().GetMessageId())
			cancel()
			_, err := stream.Recv()
			require.Equal(t, codes.Canceled, status.Code(err))
			time.Sleep(200 * time.Millisecond)
			require.True(t, proto.Equal(before, message(t, c, "q", m.GetMessage().GetMessageId())))
			_, err = complete(t, c, "q", m)
			require.NoError(t, err)
		})
	})
}

// TestT4SlowReaderIsCutOff sends renewals and never reads an answer.
func TestT4SlowReaderIsCutOff(t *testing.T) {
	KindsParallel(t, func(t *testing.T, db *Database) {
		s := db.Start(t)
		c := s.Client(t)
		enqueue(t, c, "q", "x")
		m := claimOne(t, c, "q", time.Hour)
		items := make([]*queueboxv1.RenewItem, 500)
		for i := range items {
			items[i] = &queueboxv1.RenewItem{MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken()}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		stream := openHeartbeat(ctx, t, s.Client(t))
		go func() {
			for i := int64(1); stream.Send(&queueboxv1.HeartbeatRequest{Sequence: i, Queue: "q", Renewals: items}) == nil; i++ {
			}
		}()
		start := time.Now()
		cut := func() float64 { n, _ := s.Metric(t, "queuebox_streams_cut_total"); return n }
		for cut() == 0 && time.Since(start) < time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		require.InDelta(t, 1, cut(), 0, "the server never cut the stream")
		t.Logf("cut off after %v", time.Since(start))
		// What fits into the windows of the connection is still there to be read. Then comes
		// the reason, or the end of the connection.
		var err error
		answers := 0
		for ; err == nil; answers++ {
			_, err = stream.Recv()
		}
		require.Less(t, answers, 50, "buffered without bound")
		if status.Code(err) != codes.Unavailable {
			RequireStatus(t, err, tooManyWaiters)
		}

		enqueue(t, c, "other", "x")
		_, err = complete(t, c, "other", claimOne(t, c, "other", time.Minute))
		require.NoError(t, err, "nobody else noticed")
		_, err = complete(t, c, "q", m)
		require.NoError(t, err, "T2")
	})
}

// TestT5StreamsEndBeforeTheConnection: a connection has a maximum age; a stream hears
// of it before and ends OK, and calls that wait are not torn.
func TestT5StreamsEndBeforeTheConnection(t *testing.T) {
	KindsParallel(t, func(t *testing.T, db *Database) {
		s := db.Start(t, "--max-connection-age=3s")
		c := s.Client(t)
		enqueue(t, c, "q", "x")
		m := claimOne(t, c, "q", time.Hour)
		chans := make([]<-chan answered, 4)
		for i := range chans {
			chans[i] = waitFor(t, s.Client(t), &queueboxv1.ClaimRequest{Queue: "q", WaitMs: int64(2_000 + i*1_500)})
		}
		stream := openHeartbeat(within(t), t, c)
		start := time.Now()
		beat(t, stream, &queueboxv1.HeartbeatRequest{Sequence: 1, Queue: "q", Renewals: []*queueboxv1.RenewItem{{MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken()}}})
		out, err := stream.Recv()
		require.NoError(t, err)
		require.Zero(t, out.GetSequence(), "a signal")
		require.True(t, out.GetDraining())
		require.Less(t, time.Since(start), 10*time.Second)
		_, err = stream.Recv()
		require.ErrorIs(t, err, io.EOF, "it ends OK")
		for _, ch := range chans {
			require.Empty(t, (<-ch).out.GetMessages()) // an error would have failed the test
		}
		_, err = complete(t, c, "q", m)
		require.NoError(t, err)
	})
}

// ended tells whether a stream has ended OK.
func ended(err error) bool { return errors.Is(err, io.EOF) }
