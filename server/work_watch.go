package server

import (
	"time"

	"github.com/queuebox/queuebox/storage"
)

// heldLease is a claim with the end of its lease, as the stream that holds it was told.
type heldLease struct {
	claim    storage.HeldClaim
	leaseEnd time.Time
}

// claimsAtOnce is how many watched claims are allocated together: few, for the last of them
// that is held keeps the others in memory.
const claimsAtOnce = 16

// keep makes the watch keep every claim that the stream delivers, since the stream counts
// their bytes or ends their leases. Such a stream claims no more than it can keep: as many as it
// may have credit for, where all streams together do not watch too many.
func (w *watch) keep(all bool) {
	w.signals.mu.Lock()
	defer w.signals.mu.Unlock()
	w.keeps = all
}

// deliver notes claims that are about to be sent.
func (w *watch) deliver(ms []storage.Claimed) {
	s := w.signals
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range ms {
		m := &ms[i].Message
		if len(w.spare) == 0 {
			w.spare = make([]watchedClaim, min(len(ms)-i, claimsAtOnce))
		}
		c := w.add(storage.HeldClaim{Ref: m.Ref, Token: ms[i].Token}, w.keeps)
		if c != nil {
			c.bytes = int64(len(m.Payload))
			w.bytes += c.bytes
		}
	}
	s.metrics.watchedClaims.Set(float64(s.count))
}

// delivered notes that claims were sent, or with an error that they were not. The clock is
// that of their statement, which was sent at a local time.
func (w *watch) delivered(ms []storage.Claimed, clock, sent time.Time, err error) {
	s := w.signals
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range ms {
		m := &ms[i].Message
		c := w.find(storage.HeldClaim{Ref: m.Ref, Token: ms[i].Token})
		switch {
		case c == nil: // settled or lost meanwhile
		case err != nil:
			s.drop(c)
		default:
			c.held(m.LeaseEnd, clock, sent)
		}
	}
}

// room says how many more payload bytes the stream may have outstanding, of a limit of which
// 0 is none; false where a payload of need bytes does not fit in, or where there are more
// claims than the watch can keep. One message always fits where nothing is outstanding.
func (w *watch) room(limit, need int64) (int64, bool) {
	w.signals.mu.Lock()
	defer w.signals.mu.Unlock()
	switch {
	case w.keeps && (w.count >= maxCredit || w.count >= maxWatched && w.signals.count >= maxWatchedInAll):
		return 0, false
	case limit == 0:
		return 0, true
	case w.bytes == 0:
		return limit, true
	}
	room := limit - w.bytes
	return room, room >= max(need, 1)
}

// forgetOver forgets the claims whose lease has run out.
func (w *watch) forgetOver() {
	w.signals.mu.Lock()
	defer w.signals.mu.Unlock()
	w.forgetEnded(w.signals.now())
}

// held lists the claims that the stream holds: those that it delivered or renewed, and of
// which it does not know that they have ended.
func (w *watch) held() []heldLease {
	w.signals.mu.Lock()
	defer w.signals.mu.Unlock()
	out := make([]heldLease, 0, w.count)
	for c := range w.all() {
		if !c.end.IsZero() {
			out = append(out, heldLease{claim: c.claim, leaseEnd: c.leaseEnd})
		}
	}
	return out
}
