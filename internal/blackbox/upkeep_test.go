package blackbox

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

func cancelID(t *testing.T, c *Client, id string) queueboxv1.MessageState {
	t.Helper()
	out, err := c.Cancel(within(t), &queueboxv1.CancelRequest{Queue: "q", Target: &queueboxv1.CancelRequest_MessageId{MessageId: id}})
	require.NoError(t, err)
	require.NotNil(t, out.GetServerTime(), "D11")
	return out.GetState()
}

// finished waits until a message is in its last state with nobody calling anything but
// the look.
func finished(t *testing.T, c *Client, id string, want queueboxv1.MessageState) *queueboxv1.Message {
	t.Helper()
	var m *queueboxv1.Message
	eventually(t, fmt.Sprint("the message is ", want), func() bool {
		m = message(t, c, "q", id)
		return m.GetState() == want
	})
	return m
}

// TestC18APoisonMessageEndsByItself has a worker that takes a message and dies, again
// and again: after exactly max_attempts deliveries it is dead, and nobody has to ask.
func TestC18APoisonMessageEndsByItself(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		c := db.Start(t, shortLeases).Client(t)
		out, err := c.Enqueue(within(t), &queueboxv1.EnqueueRequest{Queue: "q", MaxAttempts: 3, Payload: []byte("poison")})
		require.NoError(t, err)
		var m *queueboxv1.ClaimedMessage
		for attempt := int32(1); attempt <= 3; attempt++ {
			m = claimSoon(t, c, "q", 100*time.Millisecond)
			require.Equal(t, out.GetMessageId(), m.GetMessage().GetMessageId())
			require.Equal(t, attempt, m.GetMessage().GetAttempt())
		}
		dead := finished(t, c, out.GetMessageId(), queueboxv1.MessageState_MESSAGE_STATE_DEAD)
		require.Equal(t, queueboxv1.DeadReason_DEAD_REASON_LEASE_EXPIRED, dead.GetDeadReason())
		require.EqualValues(t, 3, dead.GetAttempt())
		_, err = complete(t, c, "q", m)
		RequireStatus(t, err, lost("LEASE_EXPIRED"))
		require.Empty(t, claim(t, c, "q", 10, 0))
	})
}

// TestC18AnotherServerEndsWhatAKilledOneLeft has nobody left who knows of the lease.
func TestC18AnotherServerEndsWhatAKilledOneLeft(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		first := db.Start(t, shortLeases)
		c := first.Client(t)
		out, err := c.Enqueue(within(t), &queueboxv1.EnqueueRequest{Queue: "q", MaxAttempts: 1})
		require.NoError(t, err)
		claimOne(t, c, "q", 300*time.Millisecond)
		first.Kill()
		c = db.Start(t, shortLeases).Client(t)
		dead := finished(t, c, out.GetMessageId(), queueboxv1.MessageState_MESSAGE_STATE_DEAD)
		require.Equal(t, queueboxv1.DeadReason_DEAD_REASON_LEASE_EXPIRED, dead.GetDeadReason())
	})
}

func TestE7ExpiredMessagesEndByThemselves(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		c := db.Start(t, shortLeases).Client(t)
		at := timestamppb.New(time.Now().Add(-time.Second))
		out, err := c.Enqueue(within(t), &queueboxv1.EnqueueRequest{Queue: "q", ExpireTime: at, IdempotencyKey: "key"})
		require.NoError(t, err)
		require.Empty(t, claim(t, c, "q", 10, 0), "never delivered")
		dead := finished(t, c, out.GetMessageId(), queueboxv1.MessageState_MESSAGE_STATE_DEAD)
		require.Equal(t, queueboxv1.DeadReason_DEAD_REASON_EXPIRED, dead.GetDeadReason())
		require.Zero(t, dead.GetAttempt())
		again, err := c.Enqueue(within(t), &queueboxv1.EnqueueRequest{Queue: "q", IdempotencyKey: "key"})
		require.NoError(t, err, "E3: a time is no content")
		require.True(t, again.GetDuplicate())
		require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_DEAD, again.GetState())

		// A live lease outlives it; its retry does not bring the message back.
		_, err = c.Enqueue(within(t), &queueboxv1.EnqueueRequest{Queue: "q", ExpireTime: timestamppb.New(time.Now().Add(1500 * time.Millisecond))})
		require.NoError(t, err)
		m := claimOne(t, c, "q", time.Minute)
		time.Sleep(time.Until(m.GetMessage().GetExpireTime().AsTime()) + 20*time.Millisecond)
		require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_PROCESSING, message(t, c, "q", m.GetMessage().GetMessageId()).GetState())
		retried, err := c.Retry(within(t), &queueboxv1.RetryRequest{
			Queue: "q", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(), DelayMs: proto.Int64(0),
		})
		require.NoError(t, err)
		require.Equal(t, queueboxv1.SettleOutcome_SETTLE_OUTCOME_DEAD, retried.GetOutcome())
	})
}

func TestS14CancelOverTheWire(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		c := db.Start(t, shortLeases).Client(t)
		id := enqueue(t, c, "q", "pending")
		require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_CANCELLED, cancelID(t, c, id))
		require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_CANCELLED, message(t, c, "q", id).GetState())
		require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_CANCELLED, cancelID(t, c, id), "again")
		require.Empty(t, claim(t, c, "q", 10, 0))

		id = enqueue(t, c, "q", "held")
		m := claimOne(t, c, "q", time.Minute)
		require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_PROCESSING, cancelID(t, c, id))
		renewed, err := c.Renew(within(t), &queueboxv1.RenewRequest{Queue: "q", MessageId: id, ClaimToken: m.GetClaimToken()})
		require.NoError(t, err)
		require.True(t, renewed.GetCancelRequested(), "R6")
		_, err = complete(t, c, "q", m)
		require.NoError(t, err, "Complete still completes")
		require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_COMPLETED, cancelID(t, c, id))

		id = enqueue(t, c, "q", "retried")
		m = claimOne(t, c, "q", time.Minute)
		cancelID(t, c, id)
		retried, err := c.Retry(within(t), &queueboxv1.RetryRequest{Queue: "q", MessageId: id, ClaimToken: m.GetClaimToken()})
		require.NoError(t, err)
		require.Equal(t, queueboxv1.SettleOutcome_SETTLE_OUTCOME_CANCELLED, retried.GetOutcome())
		_, err = complete(t, c, "q", m)
		RequireStatus(t, err, settledAs("CANCELLED"))

		id = enqueue(t, c, "q", "left")
		m = claimOne(t, c, "q", 500*time.Millisecond)
		require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_PROCESSING, cancelID(t, c, id))
		finished(t, c, id, queueboxv1.MessageState_MESSAGE_STATE_CANCELLED)
		_, err = complete(t, c, "q", m)
		RequireStatus(t, err, lost("CANCELLED"))
	})
}
