package queuebox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	queuebox "github.com/queuebox/queuebox/client/go"
	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

func TestReal_S14_Cancel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(t, w.addr)
	sent, err := c.Enqueue(t.Context(), "q", queuebox.NewMessage{IdempotencyKey: "key"})
	require.NoError(t, err)
	held := w.fill(t, c, 1)[0]

	state, err := c.Cancel(t.Context(), "q", queuebox.CancelTarget{IdempotencyKey: "key"})
	require.NoError(t, err)
	require.Equal(t, queuebox.StateCancelled, state)
	require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_CANCELLED, w.message(t, sent.MessageID).GetState())

	h := claimOne(t, c, 600*time.Millisecond)
	require.Equal(t, held, h.Message().ID)
	state, err = c.Cancel(t.Context(), "q", queuebox.CancelTarget{MessageID: held})
	require.NoError(t, err)
	require.Equal(t, queuebox.StateProcessing, state)
	select {
	case <-h.CancelRequested(): // the next renewal tells
	case <-time.After(patience):
		require.Fail(t, "the holder was never asked")
	}
	require.NoError(t, h.Context().Err(), "the claim still holds")
	settled, err := h.Release(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, queuebox.Outcome("CANCELLED"), settled.Outcome)
	require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_CANCELLED, w.message(t, held).GetState())

	_, err = c.Cancel(t.Context(), "q", queuebox.CancelTarget{IdempotencyKey: "unknown"})
	require.ErrorIs(t, err, queuebox.ErrMessageNotFound)
	for _, target := range []queuebox.CancelTarget{{}, {MessageID: held, IdempotencyKey: "key"}} {
		_, err = c.Cancel(t.Context(), "q", target)
		require.ErrorIs(t, err, queuebox.ErrInvalidArgument)
	}
}

func TestReal_E7_AnExpiredMessageIsNeverDelivered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(t, w.addr)
	late, err := c.Enqueue(t.Context(), "q", queuebox.NewMessage{ExpireTime: time.Now().Add(-time.Hour)})
	require.NoError(t, err)
	at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	_, err = c.Enqueue(t.Context(), "q", queuebox.NewMessage{ExpireTime: at})
	require.NoError(t, err)
	h := claimOne(t, c, time.Minute)
	require.True(t, at.Equal(h.Message().ExpireTime))
	require.Eventually(t, func() bool {
		return w.message(t, late.MessageID).GetDeadReason() == queueboxv1.DeadReason_DEAD_REASON_EXPIRED
	}, patience, 20*time.Millisecond)
	_, err = h.Complete(t.Context())
	require.NoError(t, err)
}
