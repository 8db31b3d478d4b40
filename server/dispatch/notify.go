package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// Run listens to other servers and tells them, until ctx ends. Claims work without
// it, at the pace of the polls.
func (d *Dispatcher) Run(ctx context.Context) {
	if !d.notifies {
		<-ctx.Done()
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { d.listen(ctx) })
	wg.Go(func() { d.send(ctx) })
	wg.Wait()
}

func (d *Dispatcher) listen(ctx context.Context) {
	defer d.cfg.Metrics.ListenUp(false)
	for ctx.Err() == nil {
		err := d.store.Listen(ctx, func(queueID int32) {
			d.cfg.Metrics.NotifyReceived()
			d.notified(queueID)
		}, func(up bool) {
			d.cfg.Metrics.ListenUp(up)
			if !up {
				return
			}
			// What was sent while the connection was down is lost.
			for _, q := range d.all() {
				q.wake()
			}
		})
		if errors.Is(err, storage.ErrNotSupported) {
			return
		}
		if ctx.Err() == nil {
			d.log.WarnContext(ctx, "listening to notifications ended; trying again", "error", err)
			pause(ctx, time.Second)
		}
	}
}

// notified wakes the waiters of a queue that some server announced. A number that was
// never announced before may be that of a queue which did not exist when somebody
// began to wait for it: those who wait for a queue of that kind look again (W1).
func (d *Dispatcher) notified(queueID int32) {
	d.Wake(queueID)
	d.mu.Lock()
	_, before := d.announced[queueID]
	d.announced[queueID] = struct{}{}
	d.mu.Unlock()
	if before {
		return
	}
	for _, q := range d.all() {
		if !q.known() {
			q.wake()
		}
	}
}

// send notifies about all queues that were announced since the last time: NOTIFY
// takes a lock of the whole database at commit, so it is sent rarely and for many.
func (d *Dispatcher) send(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.notify:
		}
		d.notifyMu.Lock()
		ids := make([]int32, 0, len(d.pending))
		for id := range d.pending {
			ids = append(ids, id)
		}
		clear(d.pending)
		d.notifyMu.Unlock()
		if len(ids) == 0 {
			continue
		}
		call, cancel := context.WithTimeout(ctx, d.cfg.StatementTimeout)
		err := d.store.Notify(call, ids)
		cancel()
		if ctx.Err() != nil {
			return
		}
		d.cfg.Metrics.NotifySent(err)
		if err != nil {
			// Others find the messages by polling.
			d.log.WarnContext(ctx, "other servers could not be notified", "error", err)
			pause(ctx, time.Second)
			continue
		}
		pause(ctx, notifyEvery)
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
