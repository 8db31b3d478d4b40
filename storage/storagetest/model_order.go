package storagetest

import (
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/queuebox/queuebox/storage"
)

// modelOrder is what the contract says about the ordering keys of the queue of a model: who
// is the head of each, and which wait behind a dead one.
type modelOrder struct {
	mode    storage.OrderingMode
	heads   map[string]*modelMessage
	blocked map[string]bool
	// promoted is the message that the last operation made a head, nil where it made none.
	promoted *modelMessage
}

func newModelOrder(rt *rapid.T) modelOrder {
	return modelOrder{
		mode:    rapid.SampledFrom([]storage.OrderingMode{storage.OrderingSkipDead, storage.OrderingBlockOnDead}).Draw(rt, "mode"),
		heads:   map[string]*modelMessage{},
		blocked: map[string]bool{},
	}
}

func (o *modelOrder) draw(rt *rapid.T) string {
	return rapid.SampledFrom([]string{"", "", "k", "k", "l", "m"}).Draw(rt, "ordering key")
}

// add takes a new message into its key: it is the head where the key has none and waits for
// nobody.
func (o *modelOrder) add(mm *modelMessage) {
	if mm.key != "" && o.heads[mm.key] == nil && !o.blocked[mm.key] {
		o.heads[mm.key] = mm
	}
}

// head tells whether it is the turn of a message (O1, O5).
func (o *modelOrder) head(mm *modelMessage) bool {
	return mm.key == "" || o.heads[mm.key] == mm
}

// end moves the key of a message on that has just ended: the next by position is ready at its
// own time or now (O6), unless a dead head blocks (O7).
func (o *modelOrder) end(m *model, mm *modelMessage) {
	if mm.key == "" || o.heads[mm.key] != mm {
		return
	}
	delete(o.heads, mm.key)
	if mm.state == storage.StateDead && o.mode == storage.OrderingBlockOnDead {
		o.blocked[mm.key] = true
		return
	}
	for _, next := range m.messages {
		if next.key == mm.key && (next.state == storage.StatePending || next.state == storage.StateProcessing) {
			o.heads[mm.key], o.promoted = next, next
			if next.ready.Before(m.now()) {
				next.ready = m.now()
			}
			return
		}
	}
}

// requireReady requires that an answer names the queue where its operation made a message a
// head that may be claimed now.
func (o *modelOrder) requireReady(m *model, ready []int32) {
	next := o.promoted
	o.promoted = nil
	if next != nil && next.state == storage.StatePending && !next.ready.After(m.now()) {
		require.Contains(m.rt, ready, m.e.queue.ID, "%v became claimable", next.ref)
	}
}

// cancelled ends a message that nobody holds (S14).
func (m *model) cancelled(mm *modelMessage) {
	mm.state, mm.finished, mm.leaseEnd = storage.StateCancelled, m.now(), time.Time{}
	m.order.end(m, mm)
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
	}
	require.Equal(m.rt, mm.state, res.State)
	next := m.order.promoted
	if m.order.promoted = nil; next != nil && !next.ready.After(m.now()) {
		require.True(m.rt, res.Ready, "%v became claimable", next.ref)
	}
}

// sweepKeys changes nothing that anybody sees.
func (m *model) sweepKeys() {
	for after := int64(0); ; {
		res, err := m.store().SweepKeys(m.t.Context(), storage.SweepKeysParams{After: after, Limit: 10})
		require.NoError(m.rt, err)
		require.Empty(m.rt, res.Ready, "every key was right")
		if after = res.Next; after == 0 {
			return
		}
	}
}
