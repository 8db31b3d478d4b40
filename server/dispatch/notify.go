package dispatch

import (
	"context"
	"errors"
	"maps"
	"slices"
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
	wg.Go(func() { d.greet(ctx) })
	wg.Wait()
}

func (d *Dispatcher) listen(ctx context.Context) {
	defer d.connected(false)
	for ctx.Err() == nil {
		err := d.store.Listen(ctx, d.hear, d.connected)
		if errors.Is(err, storage.ErrNotSupported) {
			return
		}
		if ctx.Err() == nil {
			d.log.WarnContext(ctx, "listening to notifications ended; trying again", "error", err)
			pause(ctx, time.Second)
		}
	}
}

// hear takes in what some server has sent, this one too.
func (d *Dispatcher) hear(n storage.Notice) {
	if n.Hello.Server != 0 && d.servers.hear(n.Hello) {
		// It may have known nothing of this server until a moment ago, and have told nothing.
		d.wakeAll()
	}
	if len(n.Queues)+len(n.Claims) == 0 && !n.Own {
		return
	}
	d.cfg.Metrics.NotifyReceived()
	for _, q := range n.Queues {
		d.notified(q)
	}
	if d.cfg.Claims != nil && len(n.Claims) > 0 {
		d.cfg.Claims(n.Claims)
	}
	if d.cfg.Own != nil && n.Own {
		d.cfg.Own()
	}
}

// connected notes the state of the notification connection. Whether the others tell what they
// do is not known before they have heard of this server.
func (d *Dispatcher) connected(up bool) {
	d.cfg.Metrics.ListenUp(up)
	d.servers.connected(up)
	d.passTold()
	if up {
		// What was sent while the connection was down is lost.
		d.wakeAll()
	}
}

// passTold passes on whether the others tell this server what they do.
func (d *Dispatcher) passTold() {
	if d.cfg.Listening == nil {
		return
	}
	d.toldMu.Lock() // so that the last one to pass it on says how it is
	defer d.toldMu.Unlock()
	d.cfg.Listening(d.servers.areTold())
}

// wakeAll makes all queues look, soon also below their fronts, since something may have been
// missed.
func (d *Dispatcher) wakeAll() {
	for _, q := range d.all() {
		q.missed()
	}
}

// notified wakes the waiters of a queue that some server announced. A number that was
// never announced before may be that of a queue which did not exist when somebody
// began to wait for it: those who wait for a queue of that kind look again (W1).
func (d *Dispatcher) notified(n storage.QueueReady) {
	if q := d.queue(n.QueueID); q != nil {
		q.wakeSince(n.ReadyTime)
	}
	d.mu.Lock()
	_, before := d.announced[n.QueueID]
	d.announced[n.QueueID] = struct{}{}
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
		n := storage.Notice{
			Queues: make([]storage.QueueReady, 0, len(d.pending)),
			Claims: slices.AppendSeq(make([]storage.Ref, 0, len(d.claims)), maps.Keys(d.claims)),
		}
		for id, ready := range d.pending {
			n.Queues = append(n.Queues, storage.QueueReady{QueueID: id, ReadyTime: ready})
		}
		clear(d.pending)
		clear(d.claims)
		d.notifyMu.Unlock()
		if len(n.Queues)+len(n.Claims) == 0 {
			continue
		}
		call, cancel := context.WithTimeout(ctx, d.cfg.StatementTimeout)
		err := d.store.Notify(call, n)
		cancel()
		if ctx.Err() != nil {
			return
		}
		d.cfg.Metrics.NotifySent(err)
		if err != nil {
			// Others find the messages by polling. A claim has no such poll while they listen,
			// so it is announced again.
			for _, ref := range n.Claims {
				d.AnnounceClaim(ref)
			}
			// Nor do polls find a message that was committed late, and hides below a front.
			for _, q := range n.Queues {
				d.tell(q.QueueID, q.ReadyTime)
			}
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
