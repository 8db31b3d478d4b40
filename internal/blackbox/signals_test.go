package blackbox

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/proxy"
)

func renewals(ms ...*queueboxv1.ClaimedMessage) []*queueboxv1.RenewItem {
	items := make([]*queueboxv1.RenewItem, len(ms))
	for i, m := range ms {
		items[i] = &queueboxv1.RenewItem{MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken()}
	}
	return items
}

// show renews claims over a stream and requires that they are held.
func show(t *testing.T, stream heartbeat, sequence int64, ms ...*queueboxv1.ClaimedMessage) {
	t.Helper()
	out := beat(t, stream, &queueboxv1.HeartbeatRequest{Sequence: sequence, Queue: "q", WorkerId: "w", Renewals: renewals(ms...)})
	for _, r := range out.GetResults() {
		require.Nil(t, r.GetError())
	}
}

// nextSignal requires that the next frame is a signal about one claim.
func nextSignal(t *testing.T, stream heartbeat, m *queueboxv1.ClaimedMessage, lost bool) {
	t.Helper()
	out, err := stream.Recv()
	require.NoError(t, err)
	require.Zero(t, out.GetSequence())
	require.False(t, out.GetDraining())
	require.NotNil(t, out.GetServerTime(), "D11")
	require.Len(t, out.GetRevocations(), 1)
	r := out.GetRevocations()[0]
	require.Equal(t, m.GetMessage().GetMessageId(), r.GetMessageId())
	require.Equal(t, m.GetClaimToken(), r.GetClaimToken())
	require.Equal(t, lost, r.GetClaimLost())
}

func revoke(t *testing.T, c *Client, m *queueboxv1.ClaimedMessage) {
	t.Helper()
	out, err := c.Admin.RevokeClaim(within(t), &queueboxv1.RevokeClaimRequest{
		Queue: "q", MessageId: m.GetMessage().GetMessageId(), RefundAttempt: true,
	})
	require.NoError(t, err)
	require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_PENDING, out.GetMessage().GetState())
	require.Zero(t, out.GetMessage().GetAttempt())
}

func cancelClaimed(t *testing.T, c *Client, m *queueboxv1.ClaimedMessage) {
	t.Helper()
	out, err := c.Cancel(within(t), &queueboxv1.CancelRequest{
		Queue: "q", Target: &queueboxv1.CancelRequest_MessageId{MessageId: m.GetMessage().GetMessageId()},
	})
	require.NoError(t, err)
	require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_PROCESSING, out.GetState())
}

// signalsOf holds n claims over a stream of one server, and ends or asks for them through
// another. It returns how long each signal took. Nobody else hears anything.
func signalsOf(t *testing.T, holder, operator *Client, n int32) []time.Duration {
	t.Helper()
	enqueueMany(t, operator, "q", int(n)+1)
	held := claim(t, holder, "q", n+1, time.Hour)
	require.Len(t, held, int(n)+1)
	other, held := held[n], held[:n]
	stream, stranger := openHeartbeat(within(t), t, holder), openHeartbeat(within(t), t, holder)
	show(t, stream, 1, held...)
	show(t, stranger, 1, other)
	var took []time.Duration
	for i, m := range held {
		lost := i%2 == 0
		start := time.Now()
		if lost {
			revoke(t, operator, m)
		} else {
			cancelClaimed(t, operator, m)
		}
		nextSignal(t, stream, m, lost)
		took = append(took, time.Since(start))
	}
	show(t, stranger, 2, other)
	_, err := complete(t, holder, "q", held[0])
	RequireStatus(t, err, lost("REVOKED"))
	if n > 1 {
		_, err = complete(t, holder, "q", held[1])
		require.NoError(t, err, "S14: Complete still completes what a stop was asked for")
	}
	// What was told once is not told again, neither after a look nor after a settlement.
	time.Sleep(1500 * time.Millisecond)
	out := beat(t, stream, &queueboxv1.HeartbeatRequest{Sequence: 2, Queue: "q", WorkerId: "w", Renewals: renewals(held[0])})
	RequireItem(t, out.GetResults()[0].GetError(), lost("REVOKED"))
	t.Logf("call begun to signal received: p50 %v, p90 %v, worst %v", Percentile(took, 0.5), Percentile(took, 0.9), Percentile(took, 1))
	return took
}

// TestT6SignalsReachAnyServer: RevokeClaim and Cancel on one server are heard on the stream of
// the holder on another one.
func TestT6SignalsReachAnyServer(t *testing.T) {
	db := Postgres(t)
	a, b := db.Start(t), db.Start(t)
	eventually(t, "both listen", func() bool { return listenUp(t, a) == 1 && listenUp(t, b) == 1 })
	took := signalsOf(t, b.Client(t), a.Client(t), 40)
	require.Less(t, Percentile(took, 0.5), 300*time.Millisecond, "a look would take about a third of a second, and the next renewal 20 minutes")
	n, ok := b.Metric(t, `queuebox_signals_total{signal="lost"}`)
	require.True(t, ok)
	require.InDelta(t, 20, n, 0)
}

// TestT6OnTheSameServer: no other server, and no notification, is needed.
func TestT6OnTheSameServer(t *testing.T) {
	KindsParallel(t, func(t *testing.T, db *Database) {
		c := db.Start(t).Client(t)
		took := signalsOf(t, c, c, 20)
		require.Less(t, Percentile(took, 0.5), 300*time.Millisecond)
	})
}

// TestT6TwoServersWithoutNotifications: where the database cannot notify, a look about once a
// second bounds it.
func TestT6TwoServersWithoutNotifications(t *testing.T) {
	withoutNotifications(t, func(t *testing.T, db *Database) {
		took := signalsOf(t, db.Start(t).Client(t), db.Start(t).Client(t), 6)
		require.Less(t, Percentile(took, 0.5), 2*time.Second, "at most one look, and room for a busy machine")
	})
}

// TestT6WithoutTheListenConnection: while nothing can notify the server of the holder, a look
// about once a second bounds it.
func TestT6WithoutTheListenConnection(t *testing.T) {
	db := Postgres(t)
	target, err := url.Parse(db.URL)
	require.NoError(t, err)
	p := proxy.New(t, target.Host)
	through, err := p.URL(db.URL)
	require.NoError(t, err)
	a, b := db.Start(t), db.Start(t, "--listen-url="+through)
	eventually(t, "it listens", func() bool { return listenUp(t, b) == 1 })
	p.Refuse(true)
	p.Cut()
	eventually(t, "the metric tells", func() bool { return listenUp(t, b) == 0 })
	took := signalsOf(t, b.Client(t), a.Client(t), 6)
	require.Less(t, Percentile(took, 0.5), 2*time.Second, "at most one look, and room for a busy machine")
	p.Refuse(false)
	eventually(t, "it listens again", func() bool { return listenUp(t, b) == 1 })
	took = signalsOf(t, b.Client(t), a.Client(t), 20)
	require.Less(t, Percentile(took, 0.5), 300*time.Millisecond, "healed")
}

// TestT6AHostileStreamIsBounded shows 100,000 pairs of message and token that hold nothing, and
// learns nothing.
func TestT6AHostileStreamIsBounded(t *testing.T) {
	KindsParallel(t, func(t *testing.T, db *Database) {
		s := db.Start(t)
		c := s.Client(t)
		const n = 320
		enqueueMany(t, c, "q", n)
		held := claim(t, c, "q", n, time.Hour)
		require.Len(t, held, n)
		stream := openHeartbeat(within(t), t, c)
		var items []*queueboxv1.RenewItem
		sequence := int64(0)
		pairs := 0
		for i := 1; pairs < 25_000; i++ {
			for k, m := range held {
				items = append(items, &queueboxv1.RenewItem{
					MessageId: m.GetMessage().GetMessageId(), ClaimToken: held[(k+i)%n].GetClaimToken(),
				})
			}
			if len(items) < 960 {
				continue
			}
			sequence++
			out := beat(t, stream, &queueboxv1.HeartbeatRequest{Sequence: sequence, Queue: "q", WorkerId: "w", Renewals: items})
			RequireItem(t, out.GetResults()[0].GetError(), Want{Code: codes.FailedPrecondition, Reason: "CLAIM_LOST"})
			pairs += len(items)
			items = items[:0]
		}
		watched, ok := s.Metric(t, "queuebox_watched_claims")
		require.True(t, ok)
		require.Zero(t, watched, "after %d pairs", pairs)
		revoke(t, c, held[0])
		sequence++
		beat(t, stream, &queueboxv1.HeartbeatRequest{Sequence: sequence})
		_, err := complete(t, c, "q", held[1])
		require.NoError(t, err)
	})
}

// TestRevokeClaimOverTheWire: two servers, a waiting worker, an ordering key.
func TestRevokeClaimOverTheWire(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		a, b := db.Start(t).Client(t), db.Start(t).Client(t)
		var ids []string
		for i := range 2 {
			out, err := a.Enqueue(within(t), &queueboxv1.EnqueueRequest{Queue: "q", Payload: []byte(fmt.Sprint(i)), OrderingKey: "k"})
			require.NoError(t, err)
			ids = append(ids, out.GetMessageId())
		}
		m := claimOne(t, a, "q", time.Hour)
		require.Equal(t, ids[0], m.GetMessage().GetMessageId())
		explained, err := b.Admin.ExplainMessage(within(t), &queueboxv1.ExplainMessageRequest{Queue: "q", MessageId: ids[1]})
		require.NoError(t, err)
		require.Equal(t, []string{"behind message " + ids[0] + " of its key"}, explained.GetBlockers())
		require.Equal(t, ids[0], explained.GetBlockingMessageId())
		explained, err = b.Admin.ExplainMessage(within(t), &queueboxv1.ExplainMessageRequest{Queue: "q", MessageId: ids[0]})
		require.NoError(t, err)
		require.Len(t, explained.GetBlockers(), 1)
		require.Contains(t, explained.GetBlockers()[0], "leased by ")
		require.Equal(t, m.GetLeaseExpireTime().AsTime(), explained.GetEarliestClaimTime().AsTime())

		wait := waitFor(t, b, &queueboxv1.ClaimRequest{Queue: "q", WaitMs: 20_000, LeaseMs: 60_000})
		eventually(t, "it waits", func() bool { return waiting(t, b, "q") == 1 })
		revoke(t, a, m)
		got := <-wait
		require.Len(t, got.out.GetMessages(), 1)
		require.Equal(t, ids[0], got.out.GetMessages()[0].GetMessage().GetMessageId(), "O1: the same one first")
		_, err = complete(t, b, "q", got.out.GetMessages()[0])
		require.NoError(t, err)
		_, err = complete(t, b, "q", m)
		RequireStatus(t, err, lost("REVOKED"))
		_, err = a.Admin.RevokeClaim(within(t), &queueboxv1.RevokeClaimRequest{Queue: "q", MessageId: ids[0]})
		RequireStatus(t, err, Want{Code: codes.FailedPrecondition, Reason: "MESSAGE_STATE", Metadata: map[string]string{"state": "COMPLETED"}})
	})
}
