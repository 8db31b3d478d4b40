package server

import (
	"context"
	"iter"
	"log/slog"
	"sync"
	"time"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/server/wireid"
	"github.com/queuebox/queuebox/storage"
)

const (
	// maxWatched bounds the claims that one stream watches, maxWatchedInAll those of all
	// streams of the server. Of a claim beyond them a worker hears at its next renewal.
	maxWatched      = 1 << 14
	maxWatchedInAll = 1 << 18
	// lookRows bounds one look, and one signal.
	lookRows = 1000
	// pollClaims is the pause between two looks at all watched claims where nobody tells of
	// them, checkClaims where the database notifies: a notice can be lost with the server
	// that meant to send it.
	pollClaims  = 700 * time.Millisecond
	checkClaims = 10 * time.Second
	// lookShare bounds the part of the time that those looks take.
	lookShare = 3
	// maxLookPause bounds the pause while the database fails.
	maxLookPause = time.Second
)

// signals tells streams what becomes of the claims that they have shown (T6), by a renewal
// or, a Work stream, by their delivery: that a claim is lost, or that its holder is asked to
// stop. It learns that something has happened
// to the claim of a message from the calls of this server, from the notifications of others,
// and, where there are none, by looking at all watched claims about once a second. What has
// happened it asks of the storage, which alone knows. A token is told to nobody but the
// streams that showed it.
type signals struct {
	look    func(ctx context.Context, claims []storage.HeldClaim) (storage.RenewResult, error)
	metrics *metrics
	log     *slog.Logger
	now     func() time.Time
	wake    chan struct{}

	mu sync.Mutex
	// watched holds the claims by message, the first one of each, count their number.
	watched map[storage.Ref]*watchedClaim
	count   int
	// wanted are the messages of which something was told.
	wanted map[storage.Ref]struct{}
	// notified: other servers' notices arrive. due is the next look at everything.
	notified bool
	due      time.Time
}

// watch is what one stream has shown.
type watch struct {
	signals *signals
	// wake tells the stream that there is a signal to send.
	wake chan struct{}

	// Under the lock of signals:
	first   *watchedClaim // of all claims, count is their number
	count   int
	spare   []watchedClaim // to be used for the next ones
	pending []*queueboxv1.Revocation
	clock   time.Time // of the database, when the last of them was found
	swept   time.Time // when those that were not renewed in time were last looked for
	// bytes are the payload bytes of the claims that were delivered; freed is told when one
	// of the claims is forgotten. Both belong to a Work stream.
	bytes int64
	freed chan<- struct{}
	// keeps: the bounds do not hold for what the stream delivers (see keep).
	keeps bool
}

type watchedClaim struct {
	claim storage.HeldClaim
	watch *watch
	// next is the next one of the same message; before and after are those of the same watch.
	next, before, after *watchedClaim
	dropped             bool
	// end of the lease in local time; zero until its first renewal is answered, or its
	// delivery is sent.
	end time.Time
	// leaseEnd is the same end by the clock of the database.
	leaseEnd time.Time
	// bytes of the payload, where it was delivered on the stream.
	bytes int64
	// told: the worker knows that a stop is asked for.
	told bool
	// found is what a look found while the first renewal was under way, by the clock foundAt.
	found   storage.Renewed
	foundAt time.Time
}

func newSignals(store storage.Store, m *metrics, log *slog.Logger, now func() time.Time) *signals {
	return &signals{
		look: store.Look, metrics: m, log: log, now: now, wake: make(chan struct{}, 1),
		watched: map[storage.Ref]*watchedClaim{}, wanted: map[storage.Ref]struct{}{},
	}
}

func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// open begins to watch for a stream; close ends it.
func (s *signals) open() *watch {
	return &watch{signals: s, wake: make(chan struct{}, 1)}
}

func (w *watch) close() {
	w.signals.mu.Lock()
	defer w.signals.mu.Unlock()
	for c := range w.all() {
		w.signals.drop(c)
	}
	w.pending = nil
}

// all goes through the claims, of which the present one may be dropped. The lock is held.
func (w *watch) all() iter.Seq[*watchedClaim] {
	return func(yield func(*watchedClaim) bool) {
		for c := w.first; c != nil; {
			after := c.after
			if !yield(c) {
				return
			}
			c = after
		}
	}
}

// find is the claim as this stream has shown it, nil where it has not. The lock is held.
func (w *watch) find(claim storage.HeldClaim) *watchedClaim {
	for c := range w.signals.of(claim) {
		if c.watch == w {
			return c
		}
	}
	return nil
}

// drop forgets a claim. The lock is held.
func (s *signals) drop(c *watchedClaim) {
	if c.dropped {
		return
	}
	c.dropped = true
	w := c.watch
	if c.before == nil {
		w.first = c.after
	} else {
		c.before.after = c.after
	}
	if c.after != nil {
		c.after.before = c.before
	}
	w.count--
	w.bytes -= c.bytes
	poke(w.freed)
	s.count--
	s.metrics.watchedClaims.Set(float64(s.count))
	head := s.watched[c.claim.Ref]
	switch {
	case head != c:
		for head.next != c {
			head = head.next
		}
		head.next = c.next
	case c.next == nil:
		delete(s.watched, c.claim.Ref)
	default:
		s.watched[c.claim.Ref] = c.next
	}
}

// show notes the claims of a renewal that is about to be asked of the storage: what happens
// to them from here on is not missed. A nil watch notes nothing.
func (w *watch) show(items []storage.Renewal) {
	if w == nil {
		return
	}
	s := w.signals
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); w.count+len(items) > maxWatched && now.Sub(w.swept) >= time.Second {
		w.forgetEnded(now)
	}
	for _, it := range items {
		w.add(storage.HeldClaim{Ref: it.Ref, Token: it.Token}, false)
	}
	s.metrics.watchedClaims.Set(float64(s.count))
}

// add watches over a claim, and returns nil where the bounds do not allow it; always says
// that they do. The lock is held.
func (w *watch) add(claim storage.HeldClaim, always bool) *watchedClaim {
	s := w.signals
	if c := w.find(claim); c != nil {
		return c
	}
	if !always && (w.count >= maxWatched || s.count >= maxWatchedInAll) {
		return nil
	}
	if len(w.spare) == 0 {
		w.spare = make([]watchedClaim, 1)
	}
	c := &w.spare[0]
	w.spare = w.spare[1:]
	*c = watchedClaim{claim: claim, watch: w, next: s.watched[claim.Ref], after: w.first}
	if w.first != nil {
		w.first.before = c
	}
	w.first = c
	s.watched[claim.Ref] = c
	w.count++
	s.count++
	return c
}

// shown notes what became of the renewal: only what the storage has renewed is watched.
func (w *watch) shown(items []storage.Renewal, res storage.RenewResult, err error) {
	if w == nil {
		return
	}
	s := w.signals
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for i, it := range items {
		c := w.find(storage.HeldClaim{Ref: it.Ref, Token: it.Token})
		if c == nil {
			continue // or lost meanwhile, as it was told
		}
		status := storage.ItemUnknown
		if err == nil {
			status = res.Items[i].Status
		}
		switch {
		case status == storage.ItemApplied:
			c.told = c.told || res.Items[i].CancelRequested
			c.held(res.Items[i].LeaseEnd, res.Now, now)
		case status == storage.ItemUnknown && !c.end.IsZero():
			// Nothing is known of it, so it is watched as before.
		default:
			s.drop(c)
		}
	}
}

// held notes that the claim is held to an end, and tells what a look has found meanwhile.
func (c *watchedClaim) held(end, clock, local time.Time) {
	c.leaseEnd, c.end = end, local.Add(end.Sub(clock))
	if c.found.Status != 0 {
		c.tell(c.found, c.foundAt)
		c.found = storage.Renewed{}
	}
}

// forgetEnded forgets the claims that were not renewed in time.
func (w *watch) forgetEnded(now time.Time) {
	w.swept = now
	for c := range w.all() {
		if !c.end.IsZero() && !c.end.After(now) {
			w.signals.drop(c)
		}
	}
}

// settled forgets claims that have ended as their workers know.
func (s *signals) settled(claims []storage.HeldClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == 0 {
		return
	}
	for _, claim := range claims {
		for c := range s.of(claim) {
			s.drop(c)
		}
	}
}

// of finds who watches a claim. The present one may be dropped. The lock is held.
func (s *signals) of(claim storage.HeldClaim) iter.Seq[*watchedClaim] {
	return func(yield func(*watchedClaim) bool) {
		for c := s.watched[claim.Ref]; c != nil; {
			next := c.next
			if c.claim.Token == claim.Token && !yield(c) {
				return
			}
			c = next
		}
	}
}

// changed says that something happened to the claims of these messages.
func (s *signals) changed(refs []storage.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ref := range refs {
		if _, ok := s.watched[ref]; ok {
			s.wanted[ref] = struct{}{}
		}
	}
	if len(s.wanted) > 0 {
		poke(s.wake)
	}
}

// claimChanged tells the holder of a message, on whatever server his stream is, that his claim
// is lost or that he is asked to stop (T6).
func (a *api) claimChanged(ref storage.Ref) {
	a.signals.changed([]storage.Ref{ref})
	a.dispatch.AnnounceClaim(ref)
}

// listening says whether the notices of other servers arrive from now on. What was sent
// before may have been missed either way.
func (s *signals) listening(up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notified, s.due = up, time.Time{}
	poke(s.wake)
}

// revocation makes the signal of a claim, under the lock.
func (c *watchedClaim) revocation(lost bool, clock time.Time) {
	c.watch.pending = append(c.watch.pending, &queueboxv1.Revocation{
		MessageId: wireid.Message(c.claim.Ref), ClaimToken: wireid.Token(c.claim.Token), ClaimLost: lost,
	})
	c.watch.clock = clock
	poke(c.watch.wake)
}

// signal takes what the stream has to tell its worker now, and the clock of the database
// that belongs to it; nothing where there is nothing to tell.
func (w *watch) signal() ([]*queueboxv1.Revocation, time.Time) {
	w.signals.mu.Lock()
	defer w.signals.mu.Unlock()
	n := min(len(w.pending), lookRows)
	if n == 0 {
		return nil, time.Time{}
	}
	out := w.pending[:n:n]
	if w.pending = w.pending[n:]; len(w.pending) == 0 {
		w.pending = nil
	} else {
		poke(w.wake)
	}
	for _, r := range out {
		w.signals.metrics.signalled(r.GetClaimLost())
	}
	return out, w.clock
}
