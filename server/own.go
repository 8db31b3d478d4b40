package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	// ownRows bounds one call of Place or Finish.
	ownRows = 500
	// ownEvery is the longest pause between two looks (E12: within a second), ownSoon the
	// shortest: a look that found something is followed by others soon, since who has
	// committed one transaction will often commit another.
	ownEvery = 900 * time.Millisecond
	ownSoon  = 25 * time.Millisecond
)

// own does for transactions of others what comes after their commit (E12): it places what
// they enqueued and finishes what they marked. Every replica does, all of them at once.
type own struct {
	store  storage.Own
	upkeep *upkeep
	// placed, finished take what was done.
	placed   func(storage.PlaceResult)
	finished func(storage.FinishResult)
	// place, finish are told that there is something.
	place, finish chan struct{}
}

func newOwn() *own {
	return &own{place: make(chan struct{}, 1), finish: make(chan struct{}, 1)}
}

// wake is told by a notification that a transaction was committed.
func (o *own) wake() {
	for _, c := range []chan struct{}{o.place, o.finish} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// run goes on until ctx ends.
func (o *own) run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() {
		o.loop(ctx, "place", o.place, func(ctx context.Context) (did, more bool, err error) {
			res, err := o.store.Place(ctx, storage.PlaceParams{Limit: ownRows})
			// Where it fails half-way, what it placed before is there.
			o.placed(res)
			return res.Placed+res.Duplicates+res.Reused+res.Refused > 0, res.More, err
		})
	})
	wg.Go(func() {
		o.loop(ctx, "finish", o.finish, func(ctx context.Context) (did, more bool, err error) {
			res, err := o.store.Finish(ctx, storage.FinishParams{Limit: ownRows})
			o.finished(res)
			return len(res.Finished) > 0, res.More, err
		})
	})
	wg.Wait()
}

// loop looks again and again: at once while there is more, when it is told, and otherwise
// after a pause that doubles from one empty look to the next.
func (o *own) loop(ctx context.Context, what string, told chan struct{}, look func(context.Context) (did, more bool, err error)) {
	pause, failures := ownEvery, 0
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, statementTimeout)
		did, more, err := look(call)
		cancel()
		if errors.Is(err, storage.ErrNotSupported) {
			return
		}
		o.upkeep.told(ctx, what, err)
		switch {
		case err != nil:
			failures++
			pause = o.upkeep.backoff(failures)
			if did {
				pause = ownEvery // one of them stands in nobody's way
			}
		case more:
			failures, pause = 0, ownSoon
			continue
		case did:
			failures, pause = 0, ownSoon
		default:
			failures, pause = 0, min(2*pause, ownEvery)
		}
		timer := time.NewTimer(pause - time.Duration(o.upkeep.jitter()*float64(pause/5)))
		select {
		case <-ctx.Done():
		case <-told:
			pause = ownSoon
		case <-timer.C:
		}
		timer.Stop()
	}
}

// ownPlaced wakes those who wait for what was placed.
func (a *api) ownPlaced(res storage.PlaceResult) {
	a.metrics.placed(res)
	for _, r := range res.Ready {
		a.dispatch.ReadyAt(r.QueueID, r.ReadyTime, res.Now)
	}
}

// ownFinished forgets the leases of what was finished and wakes those who wait.
func (a *api) ownFinished(res storage.FinishResult) {
	for _, f := range res.Finished {
		a.leaseOver(f.Ref)
		a.metrics.finished(f.Outcome)
	}
	for _, r := range res.Ready {
		a.dispatch.ReadyAt(r.QueueID, r.ReadyTime, res.Now)
	}
}
