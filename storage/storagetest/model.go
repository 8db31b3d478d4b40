package storagetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
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
