package storagetest

import (
	"bytes"
	"slices"
	"sort"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/queuebox/queuebox/storage"
)

func (m *model) live(mm *modelMessage) bool {
	return mm.state == storage.StateProcessing && mm.leaseEnd.After(m.now())
}

func (m *model) expired(mm *modelMessage) bool {
	return mm.state == storage.StateProcessing && !mm.leaseEnd.After(m.now())
}

func (m *model) claimable(mm *modelMessage) bool {
	if m.paused || mm.cancel || !m.order.head(mm) {
		return false
	}
	if mm.state == storage.StatePending {
		return !mm.ready.After(m.now())
	}
	return m.expired(mm) && (mm.maxAttempts == 0 || mm.attempt < mm.maxAttempts)
}

// before is C9 for two messages whose ready times are exact.
func before(a, b *modelMessage) bool {
	if a.priority != b.priority {
		return a.priority > b.priority
	}
	if !a.ready.Equal(b.ready) {
		return a.ready.Before(b.ready)
	}
	return a.ref.Position < b.ref.Position
}

// take checks the messages of calls, dealt in order, against the model and moves
// it on.
func (m *model) take(calls []storage.ClaimCall, outs []storage.ClaimOutcome) [][]*modelClaim {
	var ready []*modelMessage
	byRef := map[storage.Ref]*modelMessage{}
	for _, mm := range m.messages {
		byRef[mm.ref] = mm
		if m.claimable(mm) {
			ready = append(ready, mm)
		}
	}
	sort.Slice(ready, func(i, j int) bool { return before(ready[i], ready[j]) })
	total := 0
	for _, c := range calls {
		total += c.Max
	}
	total = min(total, len(ready))

	var got []*modelMessage
	claims := make([][]*modelClaim, len(calls))
	for i, out := range outs {
		require.Equal(m.rt, storage.ClaimServed, out.Status)
		require.Len(m.rt, out.Messages, min(calls[i].Max, total-len(got)), "call %d of %d ready messages", i, len(ready))
		for _, c := range out.Messages {
			mm := byRef[c.Message.Ref]
			require.NotNil(m.rt, mm, "a message of the queue")
			require.True(m.rt, m.claimable(mm), "%v is claimable", mm.ref)
			got = append(got, mm)
			require.Equal(m.rt, mm.payload, c.Message.Payload)
			require.Equal(m.rt, mm.attempt+1, c.Message.Attempt)
			for _, old := range m.claims {
				require.NotEqual(m.rt, old.token, c.Token, "C4: never seen before")
			}
		}
	}
	m.checkOrder(ready, got)
	// Only now the model moves on: claimable was asked of the state before.
	n := 0
	for i, out := range outs {
		for _, c := range out.Messages {
			mm := got[n]
			n++
			claim := &modelClaim{m: mm, token: c.Token}
			m.claims = append(m.claims, claim)
			claims[i] = append(claims[i], claim)
			mm.state, mm.claim, mm.worker = storage.StateProcessing, claim, calls[i].WorkerID
			mm.attempt++
			mm.leaseLen = calls[i].Lease
			mm.leaseEnd = m.now().Add(mm.leaseLen)
			require.True(m.rt, mm.leaseEnd.Equal(c.Message.LeaseEnd), "lease end")
		}
	}
	return claims
}

// checkOrder is C9: exact among messages that were pending; one whose lease ran out
// may stand at its old or at a new ready time, but never outside its priority.
func (m *model) checkOrder(ready, got []*modelMessage) {
	taken := map[*modelMessage]bool{}
	last := map[bool]*modelMessage{}
	for i, mm := range got {
		require.False(m.rt, taken[mm], "taken once")
		taken[mm] = true
		if i > 0 {
			require.GreaterOrEqual(m.rt, got[i-1].priority, mm.priority, "priority first")
		}
		if m.expired(mm) {
			continue
		}
		if prev := last[true]; prev != nil {
			require.True(m.rt, before(prev, mm), "%v before %v", prev.ref, mm.ref)
		}
		last[true] = mm
	}
	for _, left := range ready {
		if taken[left] {
			continue
		}
		for _, mm := range got {
			require.GreaterOrEqual(m.rt, mm.priority, left.priority, "a larger priority is not passed over")
			if !m.expired(left) && !m.expired(mm) {
				require.True(m.rt, before(mm, left), "%v was passed over for %v", left.ref, mm.ref)
			}
		}
	}
}

func (m *model) drawCall() storage.ClaimCall {
	return storage.ClaimCall{
		Max:      rapid.IntRange(1, 4).Draw(m.rt, "max"),
		Lease:    time.Duration(rapid.IntRange(1, 12).Draw(m.rt, "lease")) * time.Second,
		WorkerID: rapid.SampledFrom([]string{"A", "B"}).Draw(m.rt, "worker"),
	}
}

func (m *model) claimCalls(calls ...storage.ClaimCall) storage.ClaimResult {
	p := storage.ClaimParams{QueueID: m.e.queue.ID, Calls: calls}
	res, err := m.store().Claim(m.t.Context(), p)
	require.NoError(m.rt, err)
	m.e.checkClaim(m.rt, p, res)
	return res
}

func (m *model) claim() {
	var calls []storage.ClaimCall
	for range rapid.IntRange(1, 3).Draw(m.rt, "calls") {
		calls = append(calls, m.drawCall())
	}
	m.take(calls, m.claimCalls(calls...).Calls)
}

func (m *model) claimWithID() {
	c := m.drawCall()
	m.serial++
	c.ClaimID = claimID(m.serial)
	claims := m.take([]storage.ClaimCall{c}, m.claimCalls(c).Calls)[0]
	if len(claims) > 0 {
		m.calls[c.ClaimID] = &modelCall{worker: c.WorkerID, claims: claims}
	}
}

// drawCallID draws a claim id that left a row.
func (m *model) drawCallID() (storage.ClaimID, *modelCall, bool) {
	var ids []storage.ClaimID
	for id, call := range m.calls {
		if !call.back {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return storage.ClaimID{}, nil, false
	}
	sort.Slice(ids, func(i, j int) bool { return bytes.Compare(ids[i][:], ids[j][:]) < 0 })
	id := rapid.SampledFrom(ids).Draw(m.rt, "claim id")
	return id, m.calls[id], true
}

// held tells whether a claim is still held.
func (m *model) held(c *modelClaim) bool { return c.m.claim == c && m.live(c.m) }

func (m *model) repeatClaimID() {
	id, call, ok := m.drawCallID()
	if !ok {
		return
	}
	c := m.drawCall()
	c.ClaimID = id
	out := m.claimCalls(c).Calls[0]
	if c.WorkerID != call.worker {
		require.Equal(m.rt, storage.ClaimIDReused, out.Status)
		require.Empty(m.rt, out.Messages)
		return
	}
	require.Equal(m.rt, storage.ClaimReplayed, out.Status)
	call.replayed = true
	var want []storage.Token
	for _, claim := range call.claims {
		if m.held(claim) {
			want = append(want, claim.token)
		}
	}
	var got []storage.Token
	for _, claimed := range out.Messages {
		got = append(got, claimed.Token)
		mm := m.byToken(claimed.Token).m
		require.Equal(m.rt, mm.ref, claimed.Message.Ref)
		require.Equal(m.rt, mm.attempt, claimed.Message.Attempt)
		require.True(m.rt, mm.leaseEnd.Equal(claimed.Message.LeaseEnd))
	}
	require.Equal(m.rt, want, got, "what is still held")
}

func (m *model) byToken(token storage.Token) *modelClaim {
	for _, c := range m.claims {
		if c.token == token {
			return c
		}
	}
	require.FailNow(m.rt, "a token that no claim had")
	return nil
}

func (m *model) giveBack() {
	var p storage.GiveBackParams
	var claims []*modelClaim
	if id, call, ok := m.drawCallID(); ok && rapid.Bool().Draw(m.rt, "with id") {
		p.ClaimID, claims = id, call.claims
		if call.replayed {
			claims = nil
		} else {
			call.back = true
		}
		for _, c := range call.claims {
			p.Claims = append(p.Claims, storage.HeldClaim{Ref: c.m.ref, Token: c.token})
		}
	} else if c, ok := m.drawClaim(); ok && !m.hasCall(c) {
		claims = []*modelClaim{c}
		p.Claims = []storage.HeldClaim{{Ref: c.m.ref, Token: c.token}}
	} else {
		return
	}
	p.QueueID = m.e.queue.ID
	res, err := m.store().GiveBack(m.t.Context(), p)
	require.NoError(m.rt, err)
	m.e.checkNow(m.rt, res.Now)
	n := 0
	var moved []*modelMessage
	for _, c := range claims {
		if !m.held(c) {
			continue
		}
		n++
		c.back = true
		mm := c.m
		mm.state, mm.claim, mm.leaseEnd = storage.StatePending, nil, time.Time{}
		mm.attempt--
		// Claimable at once; whether at its old ready time or now is the backend's choice.
		stored, err := m.store().GetMessage(m.t.Context(), mm.ref, false)
		require.NoError(m.rt, err)
		require.True(m.rt, stored.ReadyTime.Equal(m.now()) || stored.ReadyTime.Equal(mm.ready),
			"ready time %v is neither %v nor %v", stored.ReadyTime, m.now(), mm.ready)
		require.False(m.rt, stored.ReadyTime.After(m.now()))
		mm.ready = stored.ReadyTime
		moved = append(moved, mm)
	}
	for _, mm := range moved {
		m.order.arrange(m, mm.key)
	}
	require.Equal(m.rt, n, res.GivenBack)
	m.order.promoted = nil // the answer does not tell
}

func (m *model) hasCall(c *modelClaim) bool {
	for _, call := range m.calls {
		if slices.Contains(call.claims, c) {
			return true
		}
	}
	return false
}
