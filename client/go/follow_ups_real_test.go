package queuebox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	queuebox "github.com/queuebox/queuebox/client/go"
)

// TestReal_S10_FollowUpsWhoseAnswerIsLostAreThereOnce cuts the connection between the commit and
// the answer: the repeat tells the same identifiers, and nothing is there twice.
func TestReal_S10_FollowUpsWhoseAnswerIsLostAreThereOnce(t *testing.T) {
	w := newWorld(t)
	c := w.dial(t, w.proxy.Addr())
	w.fill(t, c, 1)
	h := claimOne(t, c, 10*time.Second)
	w.store.onSettle(w.proxy.Cut)
	settled, err := h.Complete(t.Context(), queuebox.WithFollowUps(
		queuebox.FollowUp{NewMessage: queuebox.NewMessage{Payload: []byte("first"), OrderingKey: "customer 7"}},
		queuebox.FollowUp{NewMessage: queuebox.NewMessage{Payload: []byte("second"), OrderingKey: "customer 7"}},
	))
	require.NoError(t, err)
	require.True(t, settled.AlreadySettled, "the first try was written")
	require.Len(t, settled.FollowUpIDs, 2)
	for i, want := range []string{"first", "second"} {
		next := claimOne(t, c, time.Minute)
		require.Equal(t, settled.FollowUpIDs[i], next.Message().ID)
		require.Equal(t, want, string(next.Message().Payload))
		require.Equal(t, "customer 7", next.Message().OrderingKey)
		none, err := c.Claim(t.Context(), queuebox.ClaimOptions{Queue: "q", Max: 10})
		require.NoError(t, err)
		require.Empty(t, none, "O1: one of a key at a time")
		_, err = next.Complete(t.Context())
		require.NoError(t, err)
	}
}

// TestReal_S10_AReusedKeyLeavesTheClaim refuses the whole completion.
func TestReal_S10_AReusedKeyLeavesTheClaim(t *testing.T) {
	w := newWorld(t)
	c := w.dial(t, w.addr)
	w.fill(t, c, 1)
	h := claimOne(t, c, time.Minute)
	_, err := c.Enqueue(t.Context(), "other", queuebox.NewMessage{IdempotencyKey: "k", Payload: []byte("a")})
	require.NoError(t, err)
	follow := queuebox.FollowUp{Queue: "other", NewMessage: queuebox.NewMessage{IdempotencyKey: "k", Payload: []byte("b")}}
	_, err = h.Complete(t.Context(), queuebox.WithFollowUps(follow))
	require.ErrorIs(t, err, queuebox.ErrIdempotencyKeyReused)
	require.NoError(t, h.Context().Err(), "the claim is held as before")
	follow.Payload = []byte("a")
	settled, err := h.Complete(t.Context(), queuebox.WithFollowUps(follow))
	require.NoError(t, err)
	require.Len(t, settled.FollowUpIDs, 1)
}
