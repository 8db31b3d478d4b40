package storagetest

import (
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/queuebox/queuebox/storage"
)

// revokeOne takes the claim of a message away, if it has one (S8).
func (m *model) revokeOne() {
	if len(m.messages) == 0 {
		return
	}
	mm := rapid.SampledFrom(m.messages).Draw(m.rt, "message")
	refund := rapid.Bool().Draw(m.rt, "refund")
	res, err := m.store().Revoke(m.t.Context(), storage.RevokeParams{Ref: mm.ref, Refund: refund})
	require.NoError(m.rt, err)
	m.e.checkNow(m.rt, res.Now)
	require.Equal(m.rt, m.live(mm), res.Revoked, "only a live lease is taken away")
	if res.Revoked {
		require.Equal(m.rt, mm.worker, res.WorkerID)
		m.revoked(mm, refund)
	}
	res.Message.Payload = mm.payload
	m.compare(mm, res.Message)
	if m.order.becameReady(m) || res.Revoked && mm.state == storage.StatePending {
		require.True(m.rt, res.Ready, "a message became claimable")
	}
}

// revoked ends the claim in the model.
func (m *model) revoked(mm *modelMessage, refund bool) {
	out := mm.maxAttempts > 0 && mm.attempt >= mm.maxAttempts && !refund
	mm.claim.revoked = true
	mm.claim = nil
	if refund {
		mm.attempt--
	}
	switch {
	case mm.cancel:
		m.cancelled(mm)
	case out:
		mm.state, mm.finished, mm.deadReason = storage.StateDead, m.now(), storage.DeadReasonAttemptsExhausted
		m.order.end(mm)
	default:
		mm.state, mm.ready = storage.StatePending, m.now()
	}
	mm.leaseEnd = time.Time{}
	m.order.arrange(m, mm.key)
}

// lookAtClaims asks what has become of claims, old and new (T6).
func (m *model) lookAtClaims() {
	if len(m.claims) == 0 {
		return
	}
	var cs []*modelClaim
	var claims []storage.HeldClaim
	for range rapid.IntRange(1, 5).Draw(m.rt, "claims") {
		c, _ := m.drawClaim()
		cs = append(cs, c)
		claims = append(claims, storage.HeldClaim{Ref: c.m.ref, Token: c.token})
	}
	res, err := m.store().Look(m.t.Context(), claims)
	require.NoError(m.rt, err)
	m.e.checkNow(m.rt, res.Now)
	require.Len(m.rt, res.Items, len(cs))
	for i, c := range cs {
		got := res.Items[i]
		status, causes := m.judge(c.m, c)
		if c.m.claim == c && m.expired(c.m) {
			status = storage.ItemApplied // nobody has ended it
		}
		require.Equal(m.rt, status, got.Status, "claim of %v", c.m.ref)
		switch status { //nolint:exhaustive // nothing more is told of the others
		case storage.ItemApplied:
			require.Equal(m.rt, c.m.cancel, got.CancelRequested)
		case storage.ItemSettled:
			require.Equal(m.rt, c.settled.Outcome, got.Outcome)
		case storage.ItemLost:
			require.Contains(m.rt, causes, got.Cause)
		}
	}
}

// explainOne asks why a message is not claimable.
func (m *model) explainOne() {
	if len(m.messages) == 0 {
		return
	}
	mm := rapid.SampledFrom(m.messages).Draw(m.rt, "message")
	x, err := m.store().Explain(m.t.Context(), mm.ref)
	require.NoError(m.rt, err)
	m.e.checkNow(m.rt, x.Now)
	x.Message.Payload = mm.payload
	m.compare(mm, x.Message)
	live := mm.state == storage.StatePending || mm.state == storage.StateProcessing
	require.Equal(m.rt, m.paused, x.Paused)
	require.Equal(m.rt, live && mm.cancel, x.CancelRequested)
	require.Equal(m.rt, live && mm.maxAttempts > 0 && mm.attempt >= mm.maxAttempts, x.LastAttempt)
	require.False(m.rt, x.Settling || x.InFlightLimit || x.RateLimit)
	parked := live && !m.order.head(mm)
	require.Equal(m.rt, parked, x.Parked)
	head, blocker := m.order.heads[mm.key], m.order.blocker(mm.key)
	switch {
	case parked && head != nil:
		require.Equal(m.rt, head.ref, x.Head)
		require.Equal(m.rt, head.state, x.HeadState)
	case parked && blocker != nil && blocker.ref.Position < mm.ref.Position:
		require.Equal(m.rt, blocker.ref, x.Head)
		require.Equal(m.rt, storage.StateDead, x.HeadState)
	default:
		require.Zero(m.rt, x.Head, "nothing stands in front, or the key has not moved on yet")
	}
	m.checkAhead(mm, x.Ahead)
}

// checkAhead compares the count with the model, but where a lease has run out: such a message
// may stand in two places (C9).
func (m *model) checkAhead(mm *modelMessage, got int64) {
	paused := m.paused
	m.paused = false
	defer func() { m.paused = paused }()
	var want int64
	for _, other := range m.messages {
		if m.expired(other) {
			return
		}
		if other != mm && m.claimable(other) && before(other, mm) {
			want++
		}
	}
	if mm.state != storage.StatePending || mm.ready.After(m.now()) || !m.order.head(mm) {
		want = 0
	}
	require.Equal(m.rt, want, got, "messages ahead of %v", mm.ref)
}
