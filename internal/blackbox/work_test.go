package blackbox

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/worktest"
)

// openWork opens a Work stream of the queue "q", for tests that read one frame after the other.
func openWork(ctx context.Context, t *testing.T, c *Client, credit int32, start *queueboxv1.WorkStart) worktest.Stream {
	t.Helper()
	start.Queue, start.WorkerId = "q", "w"
	return worktest.Open(ctx, t, c, start, credit)
}

func minuteLease() *queueboxv1.WorkStart { return &queueboxv1.WorkStart{LeaseMs: 60_000} }

func TestWorkStream(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		c := db.Start(t, shortLeases).Client(t)

		t.Run("T3 what was asked for, settled in frames, and no more", func(t *testing.T) {
			w := openWork(within(t), t, c, 30, minuteLease())
			ids := enqueueMany(t, c, "q", 50)
			ms := w.Take(30)
			for i, m := range ms {
				require.Equal(t, ids[i], m.GetMessage().GetMessageId(), "C9")
				require.EqualValues(t, 1, m.GetMessage().GetAttempt())
				require.InDelta(t, 60_000, m.GetLeaseRemainingMs(), 10_000)
			}
			out := w.Ask(worktest.Completions(1, ms...))
			for i, r := range out.GetSettleResults() {
				require.Nil(t, r.GetError())
				require.Equal(t, ids[i], r.GetMessageId())
				require.Equal(t, queueboxv1.SettleOutcome_SETTLE_OUTCOME_COMPLETED, r.GetOutcome())
				require.NotNil(t, r.GetCompleteTime())
			}
			require.Len(t, out.GetSettleResults(), 30)
			w.Ask(&queueboxv1.WorkRequest{Sequence: 2})
			w.Write(&queueboxv1.WorkRequest{Credit: 20})
			rest := w.Take(20)
			// Every settlement stands in its place, whatever becomes of its neighbours.
			id := func(i int) (string, string) { return rest[i].GetMessage().GetMessageId(), rest[i].GetClaimToken() }
			retry, dead, release := &queueboxv1.RetryRequest{DelayMs: proto.Int64(60_000)}, &queueboxv1.DeadLetterRequest{ReasonCode: "x"}, &queueboxv1.ReleaseRequest{DelayMs: 60_000}
			retry.MessageId, retry.ClaimToken = id(0)
			dead.MessageId, dead.ClaimToken = id(1)
			release.MessageId, release.ClaimToken = id(2)
			req := worktest.Completions(3, rest[3], ms[0])
			req.GetSettlements()[1].GetComplete().ClaimToken = rest[4].GetClaimToken()
			req.Settlements = append(req.Settlements,
				&queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_Retry{Retry: retry}},
				&queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_DeadLetter{DeadLetter: dead}},
				&queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_Release{Release: release}},
				&queueboxv1.SettleItem{})
			req.Renewals = append(renewals(rest[5:7]...), &queueboxv1.RenewItem{MessageId: ids[49], ClaimToken: rest[5].GetClaimToken()})
			out = w.Ask(req)
			require.Equal(t, queueboxv1.SettleOutcome_SETTLE_OUTCOME_COMPLETED, out.GetSettleResults()[0].GetOutcome())
			RequireItem(t, out.GetSettleResults()[1].GetError(), lost("SUPERSEDED"))
			require.Equal(t, queueboxv1.SettleOutcome_SETTLE_OUTCOME_RETRIED, out.GetSettleResults()[2].GetOutcome())
			require.Equal(t, queueboxv1.SettleOutcome_SETTLE_OUTCOME_DEAD, out.GetSettleResults()[3].GetOutcome())
			require.Equal(t, queueboxv1.SettleOutcome_SETTLE_OUTCOME_RELEASED, out.GetSettleResults()[4].GetOutcome())
			RequireItem(t, out.GetSettleResults()[5].GetError(), Want{Code: codes.InvalidArgument, Reason: "INVALID_ARGUMENT"})
			require.Positive(t, out.GetRenewResults()[1].GetRenewed().GetLeaseRemainingMs())
			RequireItem(t, out.GetRenewResults()[2].GetError(), lost("SUPERSEDED"))
			// What was sent before the half-close is answered.
			w.Write(worktest.Completions(4, rest[5:]...))
			require.NoError(t, w.CloseSend())
			require.Len(t, w.Next().GetSettleResults(), 15)
			w.Ends()
		})

		t.Run("T1 bad frames end the stream and change nothing", func(t *testing.T) {
			enqueue(t, c, "q", "x")
			m := claimOne(t, c, "q", time.Minute)
			bad := worktest.Completions(0, m)
			bad.Credit = 1
			many := worktest.Completions(1)
			for range 1001 {
				many.Settlements = append(many.Settlements, worktest.Completions(1, m).GetSettlements()...)
			}
			for name, tc := range map[string]struct {
				frames []*queueboxv1.WorkRequest
				want   Want
			}{
				"no start":         {[]*queueboxv1.WorkRequest{worktest.Completions(1, m)}, invalid("start")},
				"start twice":      {[]*queueboxv1.WorkRequest{{Start: &queueboxv1.WorkStart{Queue: "q"}}, {Start: &queueboxv1.WorkStart{Queue: "q"}}}, invalid("start")},
				"no queue":         {[]*queueboxv1.WorkRequest{{Start: &queueboxv1.WorkStart{}}}, invalid("start.queue")},
				"sequence 0":       {[]*queueboxv1.WorkRequest{{Start: &queueboxv1.WorkStart{Queue: "q"}}, bad}, invalid("sequence")},
				"negative credit":  {[]*queueboxv1.WorkRequest{{Start: &queueboxv1.WorkStart{Queue: "q"}, Credit: -1}}, invalid("credit")},
				"far too much":     {[]*queueboxv1.WorkRequest{{Start: &queueboxv1.WorkStart{Queue: "q"}, Credit: 2_000_000_000}}, invalid("credit")},
				"1001 settlements": {[]*queueboxv1.WorkRequest{{Start: &queueboxv1.WorkStart{Queue: "q"}}, many}, invalid("settlements")},
				"lease too short": {
					[]*queueboxv1.WorkRequest{{Start: &queueboxv1.WorkStart{Queue: "q", LeaseMs: 1}, Credit: 1}},
					Want{Code: codes.InvalidArgument, Reason: "LEASE_OUT_OF_RANGE", Field: "start.lease_ms"},
				},
			} {
				t.Run(name, func(t *testing.T) {
					stream, err := c.Work(within(t))
					require.NoError(t, err)
					for _, f := range tc.frames {
						require.NoError(t, stream.Send(f))
					}
					_, err = stream.Recv()
					RequireStatus(t, err, tc.want)
				})
			}
			_, err := complete(t, c, "q", m)
			require.NoError(t, err)
		})

		t.Run("T3 a cut stream leaves its leases to run out", func(t *testing.T) {
			id := enqueue(t, c, "q", "x")
			ctx, cancel := context.WithCancel(within(t))
			w := openWork(ctx, t, c, 5, &queueboxv1.WorkStart{LeaseMs: 1_500})
			m := w.Take(1)[0]
			cancel()
			_, err := w.Recv()
			require.Equal(t, codes.Canceled, status.Code(err))
			again := claimSoon(t, c, "q", time.Minute)
			require.Equal(t, id, again.GetMessage().GetMessageId())
			require.EqualValues(t, 2, again.GetMessage().GetAttempt())
			require.False(t, again.GetLeaseExpireTime().AsTime().Add(-time.Minute).Before(m.GetLeaseExpireTime().AsTime()), "not before the end of its lease")
			_, err = complete(t, c, "q", again)
			require.NoError(t, err)
		})

		t.Run("T3 release_on_close ends them at once", func(t *testing.T) {
			ids := enqueueMany(t, c, "q", 4)
			ctx, cancel := context.WithCancel(within(t))
			w := openWork(ctx, t, c, 10, &queueboxv1.WorkStart{LeaseMs: 3_600_000, ReleaseOnClose: true})
			ms := w.Take(4)
			w.Ask(worktest.Completions(1, ms[0]))
			_, err := c.Renew(within(t), &queueboxv1.RenewRequest{Queue: "q", MessageId: ids[1], ClaimToken: ms[1].GetClaimToken()})
			require.NoError(t, err)
			cancel()
			for i := range 2 {
				again := claimSoon(t, c, "q", time.Minute)
				require.Contains(t, ids[2:], again.GetMessage().GetMessageId())
				require.EqualValues(t, 2, again.GetMessage().GetAttempt(), "it stays counted")
				_, err := complete(t, c, "q", again)
				require.NoError(t, err)
				_, err = complete(t, c, "q", ms[2+i])
				require.Error(t, err)
			}
			_, err = complete(t, c, "q", ms[1])
			require.NoError(t, err, "renewed without the stream, it is in use elsewhere")
		})

		t.Run("T3 the bound on bytes", func(t *testing.T) {
			for range 3 {
				enqueue(t, c, "q", string(make([]byte, 400)))
			}
			enqueue(t, c, "q", string(make([]byte, 3_000)))
			w := openWork(within(t), t, c, 100, &queueboxv1.WorkStart{LeaseMs: 60_000, MaxOutstandingBytes: 1_000})
			ms := w.Take(2)
			w.Ask(worktest.Completions(1, ms[0]))
			third := w.Take(1)[0]
			w.Ask(worktest.Completions(2, third))
			w.Ask(&queueboxv1.WorkRequest{Sequence: 3})
			_, err := complete(t, c, "q", ms[1])
			require.NoError(t, err)
			large := w.Take(1)[0]
			require.EqualValues(t, 1, large.GetMessage().GetAttempt())
			w.Ask(worktest.Completions(4, large))
			w.Leave()
		})
	})
}

// TestT4SlowReaderOfDeliveriesIsCutOff: what it was sent is its own, the rest is not lost.
func TestT4SlowReaderOfDeliveriesIsCutOff(t *testing.T) {
	KindsParallel(t, func(t *testing.T, db *Database) {
		s := db.Start(t)
		c := s.Client(t)
		body := string(make([]byte, 100_000))
		for range 30 {
			enqueue(t, c, "q", body)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		w := openWork(ctx, t, s.Client(t), 100, &queueboxv1.WorkStart{LeaseMs: 20_000})
		start := time.Now()
		cut := func() float64 { n, _ := s.Metric(t, "queuebox_streams_cut_total"); return n }
		for cut() == 0 && time.Since(start) < time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		require.InDelta(t, 1, cut(), 0, "the server never cut the stream")
		var err error
		for err == nil {
			_, err = w.Recv()
		}
		for range 30 {
			m := claimSoon(t, c, "q", time.Minute)
			_, err := complete(t, c, "q", m)
			require.NoError(t, err)
		}
	})
}

// TestT5WorkStreamsAreToldToLeave before the connection is too old, and work on meanwhile.
func TestT5WorkStreamsAreToldToLeave(t *testing.T) {
	KindsParallel(t, func(t *testing.T, db *Database) {
		c := db.Start(t, "--max-connection-age=3s").Client(t)
		enqueue(t, c, "q", "x")
		w := openWork(within(t), t, c, 5, &queueboxv1.WorkStart{LeaseMs: 60_000, ReleaseOnClose: true})
		m := w.Take(1)[0]
		out := w.Next()
		require.True(t, out.GetDraining())
		require.Zero(t, out.GetSequence())
		require.Positive(t, w.Ask(&queueboxv1.WorkRequest{Sequence: 1, Renewals: renewals(m)}).GetRenewResults()[0].GetRenewed().GetLeaseRemainingMs())
		w.Leave()
		_, err := complete(t, c, "q", m)
		require.NoError(t, err, "the worker was asked to go elsewhere, so it keeps its lease")
	})
}

// TestT6RevocationsReachOnlyTheStreamThatWasDelivered: on another server than the operator's.
func TestT6RevocationsReachOnlyTheStreamThatWasDelivered(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		a, b := everyServer(t, db)
		enqueueMany(t, a, "q", 2)
		w := openWork(within(t), t, b, 1, minuteLease())
		m := w.Take(1)[0]
		other := openWork(within(t), t, b, 1, minuteLease())
		other.Take(1)
		revoke(t, a, m)
		out := w.Next()
		require.Zero(t, out.GetSequence())
		require.Len(t, out.GetRevocations(), 1)
		require.Equal(t, m.GetClaimToken(), out.GetRevocations()[0].GetClaimToken())
		require.True(t, out.GetRevocations()[0].GetClaimLost())
		// The message comes back to the one that has credit left, with a new token.
		other.Write(&queueboxv1.WorkRequest{Credit: 1})
		again := other.Take(1)[0]
		require.Equal(t, m.GetMessage().GetMessageId(), again.GetMessage().GetMessageId())
		require.NotEqual(t, m.GetClaimToken(), again.GetClaimToken())
		require.Empty(t, other.Ask(&queueboxv1.WorkRequest{Sequence: 1}).GetRevocations())
	})
}

// TestW1WorkStreamsHearOfOtherServers: what is enqueued on one server is delivered by another.
func TestW1WorkStreamsHearOfOtherServers(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		a, b := everyServer(t, db)
		w := openWork(within(t), t, b, 1000, minuteLease())
		var wg sync.WaitGroup
		wg.Go(func() { enqueueMany(t, a, "q", 300) })
		ms := w.Take(300)
		wg.Wait()
		require.Len(t, w.Ask(worktest.Completions(1, ms...)).GetSettleResults(), 300)
	})
}
