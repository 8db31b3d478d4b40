package server

import (
	"context"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// run looks at what may have changed, until ctx ends: first at what was told, then, when it
// is due, at everything.
func (s *signals) run(ctx context.Context) {
	var pass []storage.HeldClaim // what is left of a look at everything
	var spent, pause time.Duration
	for ctx.Err() == nil {
		claims := s.told()
		told := len(claims) > 0
		if !told && len(pass) == 0 {
			pass = s.everything()
		}
		if !told && len(pass) > 0 {
			n := min(len(pass), lookRows)
			claims, pass = pass[:n], pass[n:]
		}
		if len(claims) == 0 {
			s.sleep(ctx)
			continue
		}
		began := s.now()
		res, err := s.ask(ctx, claims)
		if err != nil {
			if ctx.Err() == nil && pause == 0 {
				s.log.WarnContext(ctx, "the claims of heartbeat streams could not be looked at; trying again", "error", err)
			}
			if told {
				s.want(claims)
			} else {
				pass = nil
				s.dueNow()
			}
			pause = min(max(2*pause, 50*time.Millisecond), maxLookPause)
			rest(ctx, pause)
			continue
		}
		pause = 0
		s.apply(claims, res)
		if told {
			continue
		}
		if spent += s.now().Sub(began); len(pass) == 0 {
			s.again(spent)
			spent = 0
		}
	}
}

// dueNow makes a look at everything due.
func (s *signals) dueNow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = time.Time{}
}

func (s *signals) ask(ctx context.Context, claims []storage.HeldClaim) (storage.RenewResult, error) {
	call, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	return s.look(call, claims)
}

// told takes the watched claims of messages to which something happened.
func (s *signals) told() []storage.HeldClaim {
	s.mu.Lock()
	defer s.mu.Unlock()
	var claims []storage.HeldClaim
	seen := map[storage.HeldClaim]struct{}{}
	for ref := range s.wanted {
		if len(claims) >= lookRows {
			break
		}
		delete(s.wanted, ref)
		for c := s.watched[ref]; c != nil; c = c.next {
			if _, ok := seen[c.claim]; !ok {
				seen[c.claim] = struct{}{}
				claims = append(claims, c.claim)
			}
		}
	}
	return claims
}

// want asks for a look at claims once more.
func (s *signals) want(claims []storage.HeldClaim) {
	refs := make([]storage.Ref, len(claims))
	for i, c := range claims {
		refs[i] = c.Ref
	}
	s.changed(refs)
}

// everything lists all watched claims where a look at them is due, and forgets those that
// were not renewed in time.
func (s *signals) everything() []storage.HeldClaim {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if s.due.After(now) {
		return nil
	}
	claims := make([]storage.HeldClaim, 0, s.count)
	for _, c := range s.watched {
		for c != nil {
			next := c.next // drop changes the list that is walked
			if !c.end.IsZero() && !c.end.After(now) {
				s.drop(c)
			} else {
				claims = append(claims, c.claim)
			}
			c = next
		}
	}
	s.due = now.Add(s.every())
	return claims
}

func (s *signals) every() time.Duration {
	if s.notified {
		return checkClaims
	}
	return pollClaims
}

// again sets when everything is looked at next, after a look that took that long.
func (s *signals) again(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.due.IsZero() {
		return // whether notices arrive has changed meanwhile
	}
	if earliest := s.now().Add(lookShare * took); s.due.Before(earliest) {
		s.due = earliest
	}
}

// sleep waits until something happens, or everything is due.
func (s *signals) sleep(ctx context.Context) {
	s.mu.Lock()
	wait := s.due.Sub(s.now())
	s.mu.Unlock()
	timer := time.NewTimer(max(wait, 0))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-s.wake:
	case <-timer.C:
	}
}

func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// apply tells the streams what a look has found.
func (s *signals) apply(claims []storage.HeldClaim, res storage.RenewResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, claim := range claims {
		if i >= len(res.Items) {
			return
		}
		item := res.Items[i]
		if item.Status == storage.ItemApplied && !item.CancelRequested {
			continue
		}
		for c := range s.of(claim) {
			if c.end.IsZero() {
				// Its renewal is under way. Most often the answer tells the same.
				c.found, c.foundAt = item, res.Now
				continue
			}
			c.tell(item, res.Now)
		}
	}
}

// tell signals what has become of the claim, where its worker does not know it.
func (c *watchedClaim) tell(item storage.Renewed, clock time.Time) {
	s := c.watch.signals
	switch item.Status {
	case storage.ItemApplied:
		if item.CancelRequested && !c.told {
			c.told = true
			c.revocation(false, clock)
		}
	case storage.ItemLost, storage.ItemNotFound:
		s.drop(c)
		c.revocation(true, clock)
	case storage.ItemSettled, storage.ItemAlreadySettled:
		// Its worker knows, for nobody else has the token.
		s.drop(c)
	case storage.ItemUnknown, storage.ItemHeld, storage.ItemKeyReused:
	}
}
