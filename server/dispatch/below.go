package dispatch

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	// belowEvery and belowMost bound the pause between two looks below the fronts of a queue:
	// W4 says what the looks of a hundred queues may cost together, W7 how late a message may
	// be found. Between them it is belowRest times as long as the last look took, which may be
	// dear: behind a snapshot that somebody holds it walks over all that is dead.
	belowEvery = 15 * time.Second
	belowMost  = 25 * time.Second
	belowRest  = 20
	// belowAgain is the pause after a look that failed, at least.
	belowAgain = time.Second
)

// lookBelow starts the paced look for what the fronts hide, where it is time (W7). It is made
// beside the claims, which go on, and only while there are some. The lock is held, and the
// poller runs.
func (q *queue) lookBelow(now time.Time) {
	if q.looksBelow || q.info.ID == 0 || q.belowAt.After(now) {
		return
	}
	// What asks for a look while this one is under way asks for another.
	q.looksBelow, q.belowAt = true, now.Add(belowMost)
	rest := q.belowAt
	p := storage.FirstReadyParams{QueueID: q.info.ID, Below: q.fronts.hints(now), DueBelow: q.fronts.due}
	q.fronts.beginLook()
	q.d.work.begin()
	go q.runBelow(p, rest)
}

func (q *queue) runBelow(p storage.FirstReadyParams, rest time.Time) {
	defer q.d.work.end()
	ctx, cancel := context.WithTimeout(q.d.base, q.d.cfg.StatementTimeout)
	defer cancel()
	began := q.d.cfg.Now()
	res, err := q.askBelow(ctx, p)
	now := q.d.cfg.Now()
	if err != nil && q.d.base.Err() == nil {
		q.d.log.WarnContext(ctx, "the look for messages below the scan hints failed; it is tried again",
			"queue", q.name, "error", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	least := belowEvery + time.Duration(q.d.cfg.Jitter()*float64(belowMost-belowEvery))
	if err != nil {
		least = belowAgain // it may have been asked for
	}
	pause := max(belowRest*now.Sub(began), least)
	q.looksBelow = false
	if next := now.Add(min(pause, belowMost)); !q.belowAt.Before(rest) || next.Before(q.belowAt) {
		q.belowAt = next
	}
	if err != nil || q.info.ID != p.QueueID {
		return
	}
	if q.fronts.endLook(res) {
		q.happened()
	}
}

// askBelow asks the store; a panic is an error like another.
func (q *queue) askBelow(ctx context.Context, p storage.FirstReadyParams) (res storage.FirstReadyResult, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			q.d.log.ErrorContext(ctx, "panic while looking below the scan hints", "queue", q.name,
				"panic", fmt.Sprint(panicked), "stack", string(debug.Stack()))
			err = fmt.Errorf("first ready: panic: %v", panicked)
		}
	}()
	return q.d.store.FirstReady(ctx, p)
}

// overdue takes in the leases that have ended: their messages are looked for where they stand.
// One whose place is not known is found by a look below the fronts, soon. It tells whether
// there were any. The lock is held.
func (q *queue) overdue(now time.Time) bool {
	ended := q.leases.pop(now)
	for _, l := range ended {
		if l.known {
			q.fronts.suspect(l.position, l.priority, l.place, now.Add(suspectLife))
		} else {
			q.belowAt = q.belowSoon(now)
		}
	}
	return len(ended) > 0
}

// lowestOf is the earliest ready time of messages that this server has leased, as far as it is
// known; zero where none is.
func (q *queue) lowestOf(positions []int64) (lowest time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, position := range positions {
		at := q.fronts.suspects[position].place
		if l := q.leases.byPosition[position]; l != nil {
			at = l.place
		}
		if ready := time.UnixMicro(at.ready); at != (place{}) && (lowest.IsZero() || ready.Before(lowest)) {
			lowest = ready
		}
	}
	return lowest
}

// belowSoon is when the next look below the fronts may be where there is a reason for one.
func (q *queue) belowSoon(now time.Time) time.Time {
	if soon := now.Add(time.Second); q.belowAt.After(soon) {
		return soon
	}
	return q.belowAt
}
