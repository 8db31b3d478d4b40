package dispatch

import (
	"sync"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	// heldFor is how long a key counts as held after somebody has last met its holder. Who needs
	// it meanwhile goes to the slow lane at once, where he has the key as soon as it is let go;
	// a statement that he joins instead is locked out for lockWait with all of its callers.
	heldFor = 10 * time.Second
	// heldMost bounds the keys that are remembered.
	heldMost = 50_000
	// heldPatience is how long the storage waits for a key where it is not told otherwise.
	heldPatience = 2 * time.Second
)

// heldKeys remembers idempotency keys that other sessions held a moment ago (E6).
type heldKeys struct {
	now   func() time.Time
	mu    sync.Mutex
	until map[heldKey]time.Time
}

type heldKey struct {
	queue int32
	key   string
}

// note says that somebody holds a key.
func (h *heldKeys) note(m *storage.NewMessage) {
	if m.IdempotencyKey == "" {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.until == nil || len(h.until) >= heldMost {
		h.until = map[heldKey]time.Time{}
	}
	h.until[heldKey{m.QueueID, m.IdempotencyKey}] = h.now().Add(heldFor)
}

// any tells whether one of the messages needs a key that somebody held a moment ago.
func (h *heldKeys) any(ms []storage.NewMessage) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.until) == 0 {
		return false
	}
	now := h.now()
	for i := range ms {
		k := heldKey{ms[i].QueueID, ms[i].IdempotencyKey}
		until, ok := h.until[k]
		switch {
		case !ok:
		case now.Before(until):
			return true
		default:
			delete(h.until, k)
		}
	}
	return false
}

// had says that the messages had their keys.
func (h *heldKeys) had(ms []storage.NewMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.until) == 0 {
		return
	}
	for i := range ms {
		delete(h.until, heldKey{ms[i].QueueID, ms[i].IdempotencyKey})
	}
}

// heldUpTo is how long one of so many callers waits for what somebody holds, slowFlights of them
// at a time. Where many wait it is so much less that all have their turn in a few seconds: those
// behind the first may need what was let go by now.
func heldUpTo(callers int) time.Duration {
	if callers <= slowFlights {
		return 0
	}
	share := float64(slowFlights) / float64(callers)
	return max(briefWait, time.Duration(share*share*float64(heldPatience)))
}
