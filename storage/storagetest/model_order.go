package storagetest

import (
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/queuebox/queuebox/storage"
)

// modelOrder is what the contract says about the ordering keys of the queue of a model: who
// is the head of each, and which wait behind a dead one.
type modelOrder struct {
	mode  storage.OrderingMode
	heads map[string]*modelMessage
	// blocked are the dead heads that were noted. One counts while it is dead and the queue
	// blocks.
	blocked map[string]*modelMessage
	// promoted are the messages that the last operation made heads.
	promoted []*modelMessage
}

func newModelOrder(rt *rapid.T) modelOrder {
	return modelOrder{
		mode:    drawMode(rt),
		heads:   map[string]*modelMessage{},
		blocked: map[string]*modelMessage{},
	}
}

func drawMode(rt *rapid.T) storage.OrderingMode {
	return rapid.SampledFrom([]storage.OrderingMode{storage.OrderingSkipDead, storage.OrderingBlockOnDead}).Draw(rt, "mode")
}

func (o *modelOrder) draw(rt *rapid.T) string {
	return rapid.SampledFrom([]string{"", "", "k", "k", "l", "m"}).Draw(rt, "ordering key")
}

// blocker returns the dead message behind which a key waits (O7), nil where there is none.
func (o *modelOrder) blocker(key string) *modelMessage {
	if b := o.blocked[key]; b != nil && b.state == storage.StateDead && o.mode == storage.OrderingBlockOnDead {
		return b
	}
	return nil
}

// first returns the live message of a key that has the lowest position but for one, nil where
// there is none.
func (o *modelOrder) first(m *model, key string, but *modelMessage) *modelMessage {
	for _, mm := range m.messages {
		if mm != but && mm.key == key && (mm.state == storage.StatePending || mm.state == storage.StateProcessing) {
			return mm
		}
	}
	return nil
}

// add takes a new message into its key: it is the head where it is alone and waits for
// nobody.
func (o *modelOrder) add(m *model, mm *modelMessage) {
	if mm.key != "" && o.first(m, mm.key, mm) == nil && o.blocker(mm.key) == nil {
		o.heads[mm.key] = mm
	}
}

// head tells whether it is the turn of a message (O1, O5).
func (o *modelOrder) head(mm *modelMessage) bool {
	return mm.key == "" || o.heads[mm.key] == mm
}

// end takes a message out of its key that has just ended. Only a head blocks.
func (o *modelOrder) end(mm *modelMessage) {
	if mm.key == "" || o.heads[mm.key] != mm {
		return
	}
	delete(o.heads, mm.key)
	if mm.state != storage.StateDead || o.mode != storage.OrderingBlockOnDead {
		return
	}
	if b := o.blocked[mm.key]; b == nil || b.ref.Position < mm.ref.Position {
		o.blocked[mm.key] = mm
	}
}

// arrange moves a key on: the first message by position is the head, unless somebody holds the
// present one (O5, O7) or it waits behind a dead one; it is ready at its own time or now (O6).
func (o *modelOrder) arrange(m *model, key string) {
	if key == "" {
		return
	}
	if o.blocker(key) == nil {
		delete(o.blocked, key)
	}
	first := o.due(m, key)
	if first == nil {
		return
	}
	o.heads[key] = first
	o.promoted = append(o.promoted, first)
	if first.ready.Before(m.now()) {
		first.ready = m.now()
	}
}

// due is the message of a key whose turn it would be and that is not the head yet.
func (o *modelOrder) due(m *model, key string) *modelMessage {
	first, head, blocker := o.first(m, key, nil), o.heads[key], o.blocker(key)
	switch {
	case first == nil || first == head:
		return nil
	case head != nil && m.live(head):
		return nil
	case head == nil && blocker != nil && first.ref.Position > blocker.ref.Position:
		return nil
	}
	return first
}

// astray tells whether a key waits for somebody to look at it: its block is over, or the lease
// of a head that stands behind another message. Whoever looks first puts it right, a
// settlement that is refused, too, so what a claim gives meanwhile depends on that.
func (o *modelOrder) astray(m *model) bool {
	for key := range o.blocked {
		if o.blocker(key) == nil {
			return true
		}
	}
	return slices.ContainsFunc(m.messages, func(mm *modelMessage) bool { return mm.key != "" && o.due(m, mm.key) != nil })
}

// becameReady takes the messages that the last operation made heads, and tells whether one of
// them may be claimed now.
func (o *modelOrder) becameReady(m *model) bool {
	promoted := o.promoted
	o.promoted = nil
	return slices.ContainsFunc(promoted, func(mm *modelMessage) bool {
		return mm.state == storage.StatePending && !mm.ready.After(m.now())
	})
}

// requireReady requires that an answer names the queue where its operation made a message a
// head that may be claimed now.
func (o *modelOrder) requireReady(m *model, ready []int32) {
	if o.becameReady(m) {
		require.Contains(m.rt, ready, m.e.queue.ID, "a message became claimable")
	}
}

// cancelled ends a message that nobody holds (S14).
func (m *model) cancelled(mm *modelMessage) {
	mm.state, mm.finished, mm.leaseEnd = storage.StateCancelled, m.now(), time.Time{}
	m.order.end(mm)
}

// cancelOne cancels a message in whatever state it is.
func (m *model) cancelOne() {
	if len(m.messages) == 0 {
		return
	}
	mm := rapid.SampledFrom(m.messages).Draw(m.rt, "message")
	res, err := m.store().Cancel(m.t.Context(), storage.CancelParams{QueueID: m.e.queue.ID, Ref: mm.ref})
	require.NoError(m.rt, err)
	m.e.checkNow(m.rt, res.Now)
	switch {
	case m.live(mm):
		mm.cancel = true
	case mm.state == storage.StatePending || mm.state == storage.StateProcessing:
		m.cancelled(mm)
		m.order.arrange(m, mm.key)
	}
	require.Equal(m.rt, mm.state, res.State)
	if m.order.becameReady(m) {
		require.True(m.rt, res.Ready, "the next one became claimable")
	}
}

// redriveOne returns a dead message to its place (O7).
func (m *model) redriveOne() {
	var dead []*modelMessage
	for _, mm := range m.messages {
		if mm.state == storage.StateDead {
			dead = append(dead, mm)
		}
	}
	if len(dead) == 0 {
		return
	}
	mm := rapid.SampledFrom(dead).Draw(m.rt, "message")
	p := storage.RedriveParams{Filter: storage.ListMessagesParams{QueueID: m.e.queue.ID, Positions: []int64{mm.ref.Position}}, Limit: 10}
	p.Delay = time.Duration(rapid.IntRange(0, 3).Draw(m.rt, "delay")) * time.Second
	res, err := m.store().Redrive(m.t.Context(), p)
	require.NoError(m.rt, err)
	m.e.checkNow(m.rt, res.Now)
	require.Equal(m.rt, 1, res.Count)
	mm.state, mm.cancel, mm.deadReason, mm.finished = storage.StatePending, false, storage.DeadReasonNone, time.Time{}
	mm.ready = m.now().Add(p.Delay)
	mm.maxAttempts = mm.attempt + 4
	m.order.arrange(m, mm.key)
	if m.order.becameReady(m) {
		require.True(m.rt, res.Ready)
	}
}

// setMode changes what a dead head does from now on; a key that waits goes on when somebody
// looks at it.
func (m *model) setMode() {
	m.order.mode = drawMode(m.rt)
	q, err := m.store().GetQueue(m.t.Context(), m.e.queue.Name)
	require.NoError(m.rt, err)
	q.Ordering = m.order.mode
	_, err = m.store().UpdateQueue(m.t.Context(), q.Name, q.QueueSettings, q.Version)
	require.NoError(m.rt, err)
}

// sweepKeys puts every key right, and changes nothing else that anybody sees.
func (m *model) sweepKeys() {
	for _, mm := range m.messages {
		m.order.arrange(m, mm.key)
	}
	work := len(m.order.promoted) > 0
	var ready []int32
	for after := int64(0); ; {
		res, err := m.store().SweepKeys(m.t.Context(), storage.SweepKeysParams{After: after, Limit: 200})
		require.NoError(m.rt, err)
		ready = append(ready, res.Ready...)
		if after = res.Next; after == 0 {
			break
		}
	}
	m.order.requireReady(m, ready)
	if !work {
		require.NotContains(m.rt, ready, m.e.queue.ID, "every key was right")
	}
}
