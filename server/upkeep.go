package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	// upkeepRows bounds what one call looks at or deletes.
	upkeepRows = 1000
	// passEvery is about the pause between two passes over all messages, or over all ordering
	// keys; retainEvery that between two looks for what has passed its retention.
	passEvery   = time.Second
	retainEvery = 10 * time.Second
	// upkeepShare is the part of the time that a loop may keep the database busy: after a
	// call it rests this many times as long.
	upkeepShare = 20
	// maxRest bounds that rest. A call that took long, because the database hung or because it
	// waited for a lock, says nothing about what the next one costs; twenty times a hang of some
	// seconds would leave ordering keys without a head for minutes (O9), and last attempts
	// without their end (C18).
	maxRest = 3 * time.Second
	// endPause lies between two sweeps of ended leases, so that many ends are one sweep.
	endPause = 20 * time.Millisecond
	// sweepRows bounds what a page of the pass over all messages looks at: it only reads them.
	sweepRows = 2 * upkeepRows
	// countPause lies between two counts; they are part of what a hundred queues may cost (W4).
	countPause = 2 * storage.CountEvery
	// countTimeout bounds a count of everything, which is made of many small statements.
	countTimeout = 5 * time.Minute
	// keyIdle is how long what is kept of an ordering key outlives its last message, about.
	keyIdle = time.Minute
	// maxUpkeepPause bounds the pause while the database fails.
	maxUpkeepPause = 10 * time.Second
)

// upkeep is what this server does by itself: it ends messages that no claim may take any
// more, puts ordering keys right, and deletes finished messages past their retention. Every
// replica does it, all of them at once. Where the message that ended was the head of its
// ordering key the next one is claimable, so those who wait are woken, on every server.
type upkeep struct {
	store storage.Upkeep
	// ready wakes those who wait for messages of the queues; overdue those from whom a scan hint
	// may hide a message whose lease is over.
	ready   func(queueIDs []int32, since time.Time)
	overdue func(queueID int32, ready time.Time)
	keyed   *keyedQueues
	ends    *ends
	metrics *metrics
	log     *slog.Logger
	now     func() time.Time
	jitter  func() float64
	// failing is true while calls fail, so that the log tells it once.
	mu      sync.Mutex
	failing map[string]bool
}

// run goes on until ctx ends.
func (u *upkeep) run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { u.sweepEnds(ctx) })
	wg.Go(func() { u.sweepAll(ctx) })
	wg.Go(func() { u.sweepKeys(ctx) })
	wg.Go(func() { u.retain(ctx) })
	wg.Go(func() { u.count(ctx) })
	wg.Wait()
}

// sweepEnds ends messages soon after the leases that this server granted (C18).
func (u *upkeep) sweepEnds(ctx context.Context) {
	for ctx.Err() == nil {
		over, next := u.ends.take(u.now(), upkeepRows)
		if len(over) > 0 {
			// A message that is not had now, for its row is locked or the database fails, is
			// one for the pass over all messages.
			_, _ = u.sweep(ctx, storage.SweepParams{Refs: over, Limit: len(over)})
			u.pause(ctx, endPause)
			continue
		}
		wait := maxUpkeepPause
		if !next.IsZero() {
			wait = next.Sub(u.now())
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-u.ends.soon:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// sweepAll looks at every live message again and again, a page at a time.
func (u *upkeep) sweepAll(ctx context.Context) {
	var after storage.Ref
	failures := 0
	for ctx.Err() == nil {
		began := u.now()
		res, err := u.sweep(ctx, storage.SweepParams{After: after, Limit: sweepRows})
		rest := u.rest(began)
		switch {
		case err != nil:
			failures++
			rest = u.backoff(failures)
		case res.Next == (storage.Ref{}):
			// A last attempt that another server left behind ends within a second, where the
			// live messages fit a page.
			failures, after = 0, storage.Ref{}
			rest = max(rest, passEvery-time.Duration(u.jitter()*float64(passEvery/20)))
		default:
			failures, after = 0, res.Next
		}
		u.pause(ctx, rest)
	}
}

func (u *upkeep) sweep(ctx context.Context, p storage.SweepParams) (storage.SweepResult, error) {
	call, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	began := u.now()
	res, err := u.store.Sweep(call, p)
	u.told(ctx, "sweep", err)
	// Where it fails half-way, what it ended before stays ended.
	u.ready(res.Ready, since(res.Now, u.now().Sub(began)))
	for _, o := range res.Overdue {
		u.overdue(o.QueueID, o.ReadyTime)
	}
	if err == nil {
		u.metrics.swept(res)
	}
	return res, err
}

// sweepKeys looks at every ordering key again and again, a page at a time (O9).
func (u *upkeep) sweepKeys(ctx context.Context) {
	var after int64
	failures := 0
	for ctx.Err() == nil {
		began := u.now()
		call, cancel := context.WithTimeout(ctx, statementTimeout)
		res, err := u.store.SweepKeys(call, storage.SweepKeysParams{After: after, Limit: upkeepRows, IdleFor: keyIdle})
		cancel()
		u.told(ctx, "keys", err)
		u.ready(res.Ready, since(res.Now, u.now().Sub(began)))
		u.keyed.see(res.Queues...)
		rest := u.rest(began)
		switch {
		case err != nil:
			failures++
			rest = u.backoff(failures)
		case res.Next == 0:
			// A key without a head gets one within a second, where the keys fit a page.
			failures, after = 0, 0
			u.keyed.pass()
			rest = max(rest, passEvery-time.Duration(u.jitter()*float64(passEvery/20)))
		default:
			failures, after = 0, res.Next
		}
		u.pause(ctx, rest)
	}
}

// retain deletes finished messages that have passed their retention (D6).
func (u *upkeep) retain(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		began := u.now()
		call, cancel := context.WithTimeout(ctx, statementTimeout)
		res, err := u.store.Retain(call, storage.RetainParams{Limit: upkeepRows})
		cancel()
		u.told(ctx, "retention", err)
		rest := u.rest(began)
		switch {
		case err != nil:
			failures++
			rest = u.backoff(failures)
		default:
			failures = 0
			u.metrics.retained(res)
			if !res.More {
				rest = max(rest, retainEvery-time.Duration(u.jitter()*float64(retainEvery/5)))
			}
		}
		u.pause(ctx, rest)
	}
}

// count takes the counts of all queues, where it is the turn of this server (L3).
func (u *upkeep) count(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, countTimeout)
		_, err := u.store.Count(call, storage.CountParams{})
		cancel()
		u.told(ctx, "count", err)
		rest := countPause + time.Duration(u.jitter()*float64(countPause/10))
		if failures++; err != nil {
			rest = max(rest, u.backoff(failures))
		} else {
			failures = 0
		}
		u.pause(ctx, rest)
	}
}

// told logs the first failure of a row of them.
func (u *upkeep) told(ctx context.Context, what string, err error) {
	if ctx.Err() != nil {
		return
	}
	u.mu.Lock()
	before := u.failing[what]
	u.failing[what] = err != nil
	u.mu.Unlock()
	if err != nil {
		u.metrics.upkeepFailed.WithLabelValues(what).Inc()
		if !before {
			u.log.WarnContext(ctx, "upkeep failed; it is tried again", "what", what, "error", err)
		}
	}
}

// rest is the pause after a call that has just ended.
func (u *upkeep) rest(began time.Time) time.Duration {
	return min(upkeepShare*u.now().Sub(began), maxRest)
}

func (u *upkeep) backoff(failures int) time.Duration {
	d := min(passEvery<<min(failures-1, 8), maxUpkeepPause)
	return d - time.Duration(u.jitter()*float64(d/5))
}

func (u *upkeep) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (a *api) upkeep() *upkeep {
	return &upkeep{
		store: a.store, ready: a.ready, overdue: a.dispatch.Overdue, keyed: a.keyed, ends: a.ends, metrics: a.metrics, log: a.log, now: a.now, jitter: a.jitter,
		failing: map[string]bool{},
	}
}
