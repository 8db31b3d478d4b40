package storagetest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/queuebox/queuebox/storage"
)

// drawClaim draws a claim, the recent ones more often.
func (m *model) drawClaim() (*modelClaim, bool) {
	if len(m.claims) == 0 {
		return nil, false
	}
	from := 0
	if len(m.claims) > 6 && rapid.IntRange(0, 3).Draw(m.rt, "old") > 0 {
		from = len(m.claims) - 6
	}
	return m.claims[rapid.IntRange(from, len(m.claims)-1).Draw(m.rt, "claim")], true
}

// drawTarget draws a message and a token for it, right or wrong. The claim is nil
// where no claim of that message had the token.
func (m *model) drawTarget() (storage.Ref, storage.Token, *modelMessage, *modelClaim, bool) {
	c, ok := m.drawClaim()
	if !ok {
		return storage.Ref{}, storage.Token{}, nil, nil, false
	}
	switch rapid.IntRange(0, 11).Draw(m.rt, "token") {
	case 0:
		return c.m.ref, never, c.m, nil, true
	case 1:
		return c.m.ref, storage.Token{}, c.m, nil, true
	case 2:
		mm := rapid.SampledFrom(m.messages).Draw(m.rt, "message")
		if mm == c.m {
			return mm.ref, c.token, mm, c, true
		}
		return mm.ref, c.token, mm, nil, true
	case 3:
		return storage.Ref{QueueID: m.e.queue.ID, Position: 1 << 60}, c.token, nil, nil, true
	}
	return c.m.ref, c.token, c.m, c, true
}

// judge says what the contract says of a write with a token: the status, and the
// causes that are true where it is lost.
func (m *model) judge(mm *modelMessage, c *modelClaim) (storage.ItemStatus, []storage.LostCause) {
	switch {
	case mm == nil:
		return storage.ItemNotFound, nil
	case c != nil && c.settled != nil:
		return storage.ItemSettled, nil
	case c != nil && c.revoked:
		return storage.ItemLost, []storage.LostCause{storage.LostRevoked}
	case c != nil && m.held(c):
		return storage.ItemApplied, nil
	case mm.state == storage.StateCancelled:
		return storage.ItemLost, []storage.LostCause{storage.LostCancelled}
	case c != nil && mm.claim == c:
		return storage.ItemLost, []storage.LostCause{storage.LostLeaseExpired}
	case mm.state == storage.StateProcessing && c != nil:
		return storage.ItemLost, []storage.LostCause{storage.LostSuperseded}
	case mm.state == storage.StatePending && !m.everClaimed(mm):
		return storage.ItemLost, []storage.LostCause{storage.LostNotClaimed}
	}
	return storage.ItemLost, []storage.LostCause{storage.LostSuperseded, storage.LostNotClaimed}
}

func (m *model) everClaimed(mm *modelMessage) bool {
	for _, c := range m.claims {
		if c.m == mm {
			return true
		}
	}
	return false
}

func (m *model) renew() {
	ref, token, mm, c, ok := m.drawTarget()
	if !ok {
		return
	}
	d := time.Duration(rapid.IntRange(0, 12).Draw(m.rt, "lease")) * time.Second
	res, err := m.store().Renew(m.t.Context(), storage.RenewParams{Items: []storage.Renewal{
		{Ref: ref, Token: token, Lease: d, MaxLease: 8 * time.Second},
	}})
	require.NoError(m.rt, err)
	require.Len(m.rt, res.Items, 1)
	m.e.checkNow(m.rt, res.Now)
	got := res.Items[0]
	status, causes := m.judge(mm, c)
	require.Equal(m.rt, status, got.Status)
	switch status {
	case storage.ItemLost:
		require.Contains(m.rt, causes, got.Cause)
	case storage.ItemSettled:
		require.Equal(m.rt, c.settled.Outcome, got.Outcome)
	case storage.ItemApplied:
		if d == 0 {
			d = min(mm.leaseLen, 8*time.Second)
		}
		mm.leaseLen, mm.leaseEnd = d, m.now().Add(d)
		require.True(m.rt, mm.leaseEnd.Equal(got.LeaseEnd), "lease end")
		require.Equal(m.rt, mm.cancel, got.CancelRequested, "R6")
	case storage.ItemAlreadySettled, storage.ItemNotFound, storage.ItemUnknown, storage.ItemHeld, storage.ItemKeyReused:
		// Nothing more is told.
	}
}

func (m *model) settle() {
	ref, token, mm, c, ok := m.drawTarget()
	if !ok {
		return
	}
	a := rapid.SampledFrom(actions).Draw(m.rt, "action").action
	s := storage.Settlement{Ref: ref, Token: token, Action: a}
	m.serial++
	switch a {
	case storage.ActionComplete:
		s.Result = fmt.Appendf(nil, "result %d", m.serial)
	case storage.ActionRetry:
		s.Error = fmt.Sprintf("error %d", m.serial)
		if s.HasDelay = rapid.Bool().Draw(m.rt, "has delay"); s.HasDelay {
			s.Delay = time.Duration(rapid.IntRange(0, 9).Draw(m.rt, "delay")) * time.Second
		}
	case storage.ActionDeadLetter:
		s.Error, s.ReasonCode = fmt.Sprintf("error %d", m.serial), fmt.Sprintf("code-%d", m.serial)
	case storage.ActionRelease:
		s.Delay = time.Duration(rapid.IntRange(0, 9).Draw(m.rt, "delay")) * time.Second
	case storage.ActionRevoke:
		// No worker asks for that.
	}
	res, err := m.store().Settle(m.t.Context(), storage.SettleParams{Items: []storage.Settlement{s}})
	require.NoError(m.rt, err)
	require.Len(m.rt, res.Items, 1)
	m.e.checkNow(m.rt, res.Now)
	got := res.Items[0]
	status, causes := m.judge(mm, c)
	if status == storage.ItemSettled && c.action == a {
		status = storage.ItemAlreadySettled
	}
	require.Equal(m.rt, status, got.Status)
	switch status {
	case storage.ItemLost:
		require.Contains(m.rt, causes, got.Cause)
	case storage.ItemSettled:
		require.Equal(m.rt, c.settled.Outcome, got.Outcome)
	case storage.ItemAlreadySettled:
		require.Equal(m.rt, facts(*c.settled), facts(got))
	case storage.ItemApplied:
		want := m.apply(mm, s)
		require.Equal(m.rt, facts(want), facts(got))
		c.action, c.settled = a, &want
		m.order.requireReady(m, res.Ready)
	case storage.ItemNotFound, storage.ItemUnknown, storage.ItemHeld, storage.ItemKeyReused:
		// Nothing more is told.
	}
}

// apply settles a message in the model.
func (m *model) apply(mm *modelMessage, s storage.Settlement) storage.Settled {
	now := m.now()
	want := storage.Settled{SettleTime: now}
	mm.claim, mm.leaseEnd = nil, time.Time{}
	finish := func(state storage.State) {
		mm.state, mm.finished = state, now
		m.order.end(mm)
		m.order.arrange(m, mm.key)
	}
	if mm.cancel && (s.Action == storage.ActionRetry || s.Action == storage.ActionRelease) {
		if s.Action == storage.ActionRetry {
			mm.lastError, mm.reasonCode = s.Error, s.ReasonCode
		}
		finish(storage.StateCancelled)
		want.Outcome = storage.OutcomeCancelled
		return want
	}
	switch s.Action {
	case storage.ActionComplete:
		finish(storage.StateCompleted)
		mm.result, want.Outcome = s.Result, storage.OutcomeCompleted
	case storage.ActionDeadLetter:
		finish(storage.StateDead)
		mm.lastError, mm.reasonCode, mm.deadReason = s.Error, s.ReasonCode, storage.DeadReasonRejected
		want.Outcome, want.DeadReason = storage.OutcomeDead, mm.deadReason
	case storage.ActionRelease:
		mm.state, mm.ready = storage.StatePending, now.Add(s.Delay)
		mm.attempt--
		want.Outcome, want.AvailableTime = storage.OutcomeReleased, mm.ready
		m.order.arrange(m, mm.key)
	case storage.ActionRetry:
		mm.lastError, mm.reasonCode = s.Error, s.ReasonCode
		if mm.maxAttempts > 0 && mm.attempt >= mm.maxAttempts {
			finish(storage.StateDead)
			mm.deadReason = storage.DeadReasonAttemptsExhausted
			want.Outcome, want.DeadReason = storage.OutcomeDead, mm.deadReason
			break
		}
		d := s.Delay
		if !s.HasDelay {
			d = min(2*time.Second<<(mm.attempt-1), 10*time.Second)
		}
		mm.state, mm.ready = storage.StatePending, now.Add(d)
		want.Outcome, want.AvailableTime = storage.OutcomeRetried, mm.ready
		m.order.arrange(m, mm.key)
	case storage.ActionRevoke:
		// No worker asks for that.
	}
	return want
}
