package dispatch

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	// helloEvery is the pause between two hellos, and helloAgain the shortest one.
	helloEvery = 10 * time.Second
	helloAgain = time.Second
	// helloHeard is how long a server knows that others hear it, from the hello on that it heard
	// itself. It is shorter than forgetAfter, so that a server knows that it may be forgotten
	// before anybody forgets it.
	helloHeard = 2 * helloEvery
	// forgetAfter is when a server is forgotten that says nothing any more.
	forgetAfter = 3 * helloEvery
	// answerWithin is how long the others may take to answer: as long as one may have to pause
	// between two hellos, and as long again.
	answerWithin = 2 * helloAgain
	// maxServers bounds the servers that are counted.
	maxServers = 10_000
)

// servers is what this server knows of others on the same database. A notification is a commit
// of its own, so a server that is alone sends none. Each one says hello when its notification
// connection comes up, and every few seconds from then on; who hears a stranger, or is asked,
// says hello too.
//
// It knows that it is alone only where it hears: a hello of its own has come back lately over the
// connection that stands, and everybody who heard the first of them had the time to answer. In
// all other cases it tells, though nobody may be there. By the same rule it knows whether the
// others tell what they do (told).
type servers struct {
	id  uint64
	now func() time.Time
	// kick wakes the loop that says hello.
	kick chan struct{}

	mu sync.Mutex
	up bool // the notification connection stands
	// said is when the last hello was sent, heard until when it is known that hellos arrive.
	said, heard time.Time
	// asked is when the first hello of this connection came back, told that the time for
	// answers is over.
	asked time.Time
	told  bool
	// answer: somebody waits for a hello.
	answer bool
	// others are the other servers, by when they were heard; last is the latest of them.
	others map[uint64]time.Time
	last   time.Time
}

func newServers(now func() time.Time) *servers {
	id := uint64(0)
	for id == 0 {
		id = rand.Uint64() //nolint:gosec // It tells servers apart, and nothing hangs on it.
	}
	return &servers{id: id, now: now, kick: make(chan struct{}, 1), others: map[uint64]time.Time{}}
}

// tell says whether somebody may be there who wants to be told.
func (s *servers) tell() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	return !s.isTold(now) || !s.last.IsZero() && now.Before(s.last.Add(forgetAfter))
}

// areTold says whether this server is told what others do.
func (s *servers) areTold() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isTold(s.now())
}

// isTold is areTold with the lock held.
func (s *servers) isTold(now time.Time) bool { return s.told && now.Before(s.heard) }

// connected notes the state of the notification connection: what was known by the old one is
// in doubt.
func (s *servers) connected(up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up, s.told, s.asked = up, false, time.Time{}
	s.nudge()
}

// hear notes a hello, and tells whether it is that of a stranger.
func (s *servers) hear(h storage.Hello) (stranger bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if h.Server == s.id {
		s.heard = s.said.Add(helloHeard)
		if h.Asks && s.asked.IsZero() && s.up {
			s.asked = now
		}
		return false
	}
	before, known := s.others[h.Server]
	stranger = !known || !now.Before(before.Add(forgetAfter))
	if known || len(s.others) < maxServers {
		s.others[h.Server] = now
	}
	s.last = now
	if stranger || h.Asks {
		s.answer = true
		s.nudge()
	}
	return stranger
}

func (s *servers) nudge() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// step is what the loop has to do.
type step struct {
	hello   *storage.Hello // to be said now
	pause   time.Duration  // until the next step where there is nothing to say
	changed bool           // whether this server is told is not as it was
	known   int            // other servers
}

// next decides what to do at a time; jitter is in [0, 1).
func (s *servers) next(jitter float64) step {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for id, at := range s.others {
		if !now.Before(at.Add(forgetAfter)) {
			delete(s.others, id)
		}
	}
	out := step{pause: helloAgain, known: len(s.others)}
	if !s.asked.IsZero() && !now.Before(s.heard) {
		// Nobody has heard of this server for a while, so it may be forgotten: it begins anew.
		out.changed = s.told
		s.told, s.asked = false, time.Time{}
	}
	if !s.told && !s.asked.IsZero() && !now.Before(s.asked.Add(answerWithin)) {
		s.told, out.changed = true, true
	}
	if !s.up {
		return out
	}
	due := s.said.Add(helloEvery - time.Duration(jitter*float64(helloAgain)))
	if s.answer || s.asked.IsZero() {
		due = s.said.Add(helloAgain)
	}
	if wait := due.Sub(now); !s.said.IsZero() && wait > 0 {
		out.pause = min(out.pause, wait)
		return out
	}
	out.hello = &storage.Hello{Server: s.id, Asks: s.asked.IsZero()}
	s.said, s.answer = now, false
	return out
}

// greet says hello to the other servers until ctx ends.
func (d *Dispatcher) greet(ctx context.Context) {
	for ctx.Err() == nil {
		todo := d.servers.next(d.cfg.Jitter())
		d.cfg.Metrics.ServersKnown(todo.known)
		if todo.changed {
			// Nothing else hangs on the moment: what was not told before is found by a poll, and the
			// hints stayed back for it.
			d.passTold()
		}
		if todo.hello == nil {
			timer := time.NewTimer(todo.pause)
			select {
			case <-ctx.Done():
			case <-d.servers.kick:
			case <-timer.C:
			}
			timer.Stop()
			continue
		}
		call, cancel := context.WithTimeout(ctx, d.cfg.StatementTimeout)
		err := d.store.Notify(call, storage.Notice{Hello: *todo.hello})
		cancel()
		if err != nil && ctx.Err() == nil {
			d.log.WarnContext(ctx, "other servers do not hear of this one; it is tried again", "error", err)
		}
	}
}
