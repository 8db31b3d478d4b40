package storagetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/queuebox/queuebox/storage"
)

// modelRules run random operations against a small model of the contract on the
// settable clock. A failure prints the seed and the shortest story that rapid finds.
func modelRules() []rule {
	return []rule{
		{name: "C1_C2_C3_C9_C14_C15_C18_R1_R2_S1_S2_S5_S6_S8_S14_T6_E1_E3_O1_O3_O5_O6_O7_O9_random_operations_against_a_model", clocks: settable, run: randomOperations},
	}
}

const (
	// stories is the number of random stories, storySteps the length of each; a slow
	// database tells fewer, as many as begin in storyTime.
	stories    = 80
	storySteps = 60
	storyTime  = 8 * time.Second
)

func randomOperations(t *testing.T, e *env) {
	stores := []storage.Store{e.store, e.other}
	told, failed := 0, false
	ctx, cancel := context.WithTimeout(t.Context(), storyTime)
	defer cancel()
	rapid.Check(t, func(rt *rapid.T) {
		// rapid has one number of checks for a whole binary; this test has its own. After a
		// failure every further story is one that rapid makes shorter, so it runs.
		if (told >= stories || ctx.Err() != nil) && !failed {
			return
		}
		told++
		failed = true // until the story has ended well
		m := newModel(t, rt, e, stores)
		steps := rapid.IntRange(storySteps/2, storySteps).Draw(rt, "steps")
		for range steps {
			m.step()
		}
		m.compareAll()
		failed = false
	})
	t.Logf("%d stories", told)
}

// model is what the contract says about one queue.
type model struct {
	t      *testing.T
	rt     *rapid.T
	e      *env
	stores []storage.Store
	paused bool
	order  modelOrder

	messages []*modelMessage
	keys     map[string]*modelMessage
	claims   []*modelClaim // every claim there ever was, in order
	calls    map[storage.ClaimID]*modelCall
	serial   int
}

type modelMessage struct {
	ref         storage.Ref
	payload     []byte
	priority    int32
	maxAttempts int32
	content     string
	key         string // of its order
	created     time.Time

	cancel     bool // somebody asked its holder to stop
	state      storage.State
	attempt    int32
	ready      time.Time
	claim      *modelClaim // the present one, while processing
	leaseEnd   time.Time
	leaseLen   time.Duration
	lastError  string
	reasonCode string
	deadReason storage.DeadReason
	worker     string
	finished   time.Time
	result     []byte
}

// modelClaim is one token.
type modelClaim struct {
	m     *modelMessage
	token storage.Token
	// settled is how it was settled, nil while it was not.
	settled *storage.Settled
	action  storage.Action
	// back is set where it was given back.
	back bool
	// revoked is set where an operator took it away.
	revoked bool
}

type modelCall struct {
	worker   string
	claims   []*modelClaim
	replayed bool
	back     bool
}

func newModel(t *testing.T, rt *rapid.T, e *env, stores []storage.Store) *model {
	t.Helper()
	s := settings()
	s.MaxAttempts = 4
	s.Retry = storage.RetryPolicy{Min: 2 * time.Second, Max: 10 * time.Second, Multiplier: 2}
	order := newModelOrder(rt)
	s.Ordering = order.mode
	e.advance(t, time.Second)
	return &model{
		t: t, rt: rt, e: e.on(e.newQueue(t, s)), stores: stores,
		keys: map[string]*modelMessage{}, calls: map[storage.ClaimID]*modelCall{}, order: order,
	}
}

func (m *model) now() time.Time { return m.e.now }

// store draws the server that is asked: all of them are one queue.
func (m *model) store() storage.Store {
	return m.stores[rapid.IntRange(0, len(m.stores)-1).Draw(m.rt, "store")]
}

func (m *model) step() {
	ops := []struct {
		name   string
		weight int
		do     func()
	}{
		{"enqueue", 5, m.enqueue},
		{"claim", 6, m.claim},
		{"claim with id", 3, m.claimWithID},
		{"repeat claim id", 2, m.repeatClaimID},
		{"give back", 2, m.giveBack},
		{"renew", 4, m.renew},
		{"settle", 8, m.settle},
		{"advance", 5, m.advance},
		{"pause or resume", 1, m.pause},
		{"look", 2, m.look},
		{"sweep", 2, m.sweep},
		{"cancel", 2, m.cancelOne},
		{"redrive", 2, m.redriveOne},
		{"sweep keys", 1, m.sweepKeys},
		{"ordering mode", 1, m.setMode},
		{"revoke", 2, m.revokeOne},
		{"look at claims", 1, m.lookAtClaims},
		{"explain", 2, m.explainOne},
	}
	var wheel []int
	for i, op := range ops {
		for range op.weight {
			wheel = append(wheel, i)
		}
	}
	op := ops[rapid.SampledFrom(wheel).Draw(m.rt, "op")]
	m.rt.Logf("%s", op.name)
	op.do()
	if m.order.astray(m) {
		m.sweepKeys()
	}
}

func (m *model) enqueue() {
	n := rapid.IntRange(1, 4).Draw(m.rt, "messages")
	var ms []storage.NewMessage
	var want []*modelMessage
	reused := false
	expect := make([]storage.EnqueueStatus, n)
	inCall := map[string]*modelMessage{}
	for i := range n {
		m.serial++
		mm := &modelMessage{
			payload:  fmt.Appendf(nil, "payload %d", m.serial),
			priority: rapid.Int32Range(-1, 1).Draw(m.rt, "priority"),
			created:  m.now(), ready: m.now(), maxAttempts: 4,
		}
		nm := m.e.message(priority(mm.priority), payload(mm.payload))
		switch rapid.IntRange(0, 3).Draw(m.rt, "when") {
		case 0:
			nm.Delay = time.Duration(rapid.IntRange(1, 10).Draw(m.rt, "delay")) * time.Second
			mm.ready = m.now().Add(nm.Delay)
		case 1:
			nm.AvailableTime = m.now().Add(time.Duration(rapid.IntRange(-5, 5).Draw(m.rt, "at")) * time.Second)
			if nm.AvailableTime.After(m.now()) {
				mm.ready = nm.AvailableTime
			}
		}
		if k := rapid.Int32Range(0, 3).Draw(m.rt, "max attempts"); k > 0 {
			nm.MaxAttempts, mm.maxAttempts = k, k
		}
		mm.key = m.order.draw(m.rt)
		nm.OrderingKey = mm.key
		expect[i] = storage.EnqueueInserted
		want = append(want, mm)
		if key := rapid.SampledFrom([]string{"", "", "a", "b", "c", "d", "e"}).Draw(m.rt, "key"); key != "" {
			mm.content = rapid.SampledFrom([]string{"x", "x", "x", "y"}).Draw(m.rt, "content")
			nm.IdempotencyKey, nm.ContentHash = key, sha256.Sum256([]byte(mm.content))
			first, ok := m.keys[key]
			if !ok {
				first, ok = inCall[key]
			}
			switch {
			case ok && first.content != mm.content:
				expect[i], reused = storage.EnqueueKeyReused, true
			case ok:
				expect[i] = storage.EnqueueDuplicate
				want[i] = first
			default:
				inCall[key] = mm
			}
		}
		ms = append(ms, nm)
	}
	res, err := m.store().Enqueue(m.t.Context(), storage.EnqueueParams{Messages: ms})
	require.NoError(m.rt, err)
	require.Len(m.rt, res.Items, n)
	m.e.checkNow(m.rt, res.Now)
	for i, item := range res.Items {
		if reused {
			// Nothing was inserted; the items that reuse a key say so.
			if expect[i] == storage.EnqueueKeyReused {
				require.Equal(m.rt, storage.EnqueueKeyReused, item.Status, "item %d", i)
			}
			continue
		}
		require.Equal(m.rt, expect[i], item.Status, "item %d", i)
		if item.Status == storage.EnqueueDuplicate {
			require.Equal(m.rt, want[i].ref, item.Ref)
			require.Equal(m.rt, want[i].state, item.State)
			continue
		}
		require.True(m.rt, want[i].ready.Equal(item.ReadyTime), "ready time of item %d", i)
		want[i].ref = item.Ref
		if len(m.messages) > 0 {
			require.Greater(m.rt, item.Ref.Position, m.messages[len(m.messages)-1].ref.Position, "positions rise")
		}
		m.messages = append(m.messages, want[i])
		m.order.add(m, want[i])
		if key := ms[i].IdempotencyKey; key != "" {
			m.keys[key] = want[i]
		}
	}
}

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

func (m *model) advance() {
	// Now and then exactly to, or one tick before, a moment at which something changes.
	var moments []time.Time
	for _, mm := range m.messages {
		for _, at := range []time.Time{mm.ready, mm.leaseEnd} {
			if at.After(m.now()) {
				moments = append(moments, at, at.Add(-m.e.tick))
			}
		}
	}
	if len(moments) > 0 && rapid.Bool().Draw(m.rt, "to a moment") {
		m.e.advanceTo(m.t, rapid.SampledFrom(moments).Draw(m.rt, "moment"))
		return
	}
	m.e.advance(m.t, time.Duration(rapid.IntRange(1, 5000).Draw(m.rt, "ms"))*time.Millisecond)
}

// sweep ends last attempts whose lease is over (C18) and what nobody holds of what was to be
// cancelled (S14), and nothing else.
func (m *model) sweep() {
	if len(m.messages) == 0 {
		return
	}
	refs := make([]storage.Ref, len(m.messages))
	var want, cancelled int
	var moved []*modelMessage
	for i, mm := range m.messages {
		refs[i] = mm.ref
		switch {
		case mm.cancel && (m.expired(mm) || mm.state == storage.StatePending):
			cancelled++
			m.cancelled(mm)
		case m.expired(mm) && mm.maxAttempts > 0 && mm.attempt >= mm.maxAttempts:
			want++
			mm.state, mm.deadReason = storage.StateDead, storage.DeadReasonLeaseExpired
			mm.finished, mm.leaseEnd = m.now(), time.Time{}
			m.order.end(mm)
		default:
			continue
		}
		moved = append(moved, mm)
	}
	for _, mm := range moved {
		m.order.arrange(m, mm.key)
	}
	res, err := m.store().Sweep(m.t.Context(), storage.SweepParams{Refs: refs, Limit: len(refs)})
	require.NoError(m.rt, err)
	m.e.checkNow(m.rt, res.Now)
	require.Equal(m.rt, [3]int{want, 0, cancelled}, [3]int{res.Dead, res.Expired, res.Cancelled})
	m.order.requireReady(m, res.Ready)
}

func (m *model) pause() {
	m.paused = rapid.Bool().Draw(m.rt, "paused")
	q, err := m.store().SetPaused(m.t.Context(), m.e.queue.Name, m.paused)
	require.NoError(m.rt, err)
	require.Equal(m.rt, m.paused, q.Paused)
}

func (m *model) look() {
	if len(m.messages) == 0 {
		return
	}
	mm := rapid.SampledFrom(m.messages).Draw(m.rt, "message")
	got, err := m.store().GetMessage(m.t.Context(), mm.ref, true)
	require.NoError(m.rt, err)
	m.compare(mm, got)
}

func (m *model) compare(mm *modelMessage, got storage.Message) {
	rt := m.rt
	require.Equal(rt, mm.ref, got.Ref)
	require.Equal(rt, mm.state, got.State, "state of %v", mm.ref)
	require.Equal(rt, mm.attempt, got.Attempt, "attempt of %v", mm.ref)
	require.Equal(rt, mm.maxAttempts, got.MaxAttempts)
	require.Equal(rt, mm.priority, got.Priority)
	require.Equal(rt, mm.key, got.OrderingKey)
	require.Equal(rt, mm.payload, got.Payload)
	require.True(rt, mm.created.Equal(got.CreateTime), "create time of %v", mm.ref)
	require.Equal(rt, mm.lastError, got.LastError, "last error of %v", mm.ref)
	require.Equal(rt, mm.reasonCode, got.ReasonCode, "reason code of %v", mm.ref)
	require.Equal(rt, mm.deadReason, got.DeadReason, "dead reason of %v", mm.ref)
	require.True(rt, mm.finished.Equal(got.FinishTime), "finish time of %v: want %v, got %v", mm.ref, mm.finished, got.FinishTime)
	require.True(rt, bytes.Equal(mm.result, got.Result), "result of %v", mm.ref)
	if mm.state == storage.StatePending {
		require.True(rt, mm.ready.Equal(got.ReadyTime), "ready time of %v: want %v, got %v", mm.ref, mm.ready, got.ReadyTime)
	}
	if mm.state == storage.StateProcessing {
		require.Equal(rt, mm.worker, got.WorkerID)
		require.True(rt, mm.leaseEnd.Equal(got.LeaseEnd), "lease end of %v", mm.ref)
	}
}

// compareAll reads the whole queue at the end of a story.
func (m *model) compareAll() {
	got := m.e.through(m.store()).list(m.rt, storage.ListMessagesParams{Limit: 7, Payload: true})
	require.Len(m.rt, got, len(m.messages), "no message lost, none doubled")
	var want storage.QueueStats
	for i, mm := range m.messages {
		m.compare(mm, got[len(got)-1-i])
		switch {
		case mm.state == storage.StateCompleted:
			want.Completed++
		case mm.state == storage.StateDead:
			want.Dead++
		case mm.state == storage.StateCancelled:
			// Counted nowhere.
		case mm.state == storage.StatePending && !m.order.head(mm):
			want.Blocked++
		case m.live(mm):
			want.Leased++
		case m.expired(mm):
			want.LeaseExpired++
		case mm.ready.After(m.now()):
			want.Delayed++
		default:
			want.Ready++
		}
	}
	stats, err := m.store().QueueStats(m.t.Context(), m.e.queue.ID)
	require.NoError(m.rt, err)
	stats.AsOf, stats.OldestReady = time.Time{}, time.Time{}
	require.Equal(m.rt, want, stats)
}
