// Package dispatch lets claims wait. It holds, per queue, the calls that wait in the
// order of their arrival, and one poller that runs only while somebody waits: it makes
// one storage claim for the sum of their wishes and deals the rows out in order.
//
// A poller looks when a call arrives, when somebody says that a message may be there
// (Wake, a notification of the database), when a delay or a lease that this server
// knows of ends, and, since any of these may be lost, once a second.
//
// Nothing here outlives the process, and nothing here matters to the contract but the
// waiting: the storage alone decides who gets a message.
package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// Errors of Claim beside those of the storage.
var (
	// ErrTooManyWaiters says that Config.MaxWaiters calls wait already.
	ErrTooManyWaiters = errors.New("dispatch: too many waiting claims")
	// ErrClaimIDReused says that another worker used the claim id (C14).
	ErrClaimIDReused = errors.New("dispatch: claim id of another worker")
)

// MinDeadline is how much time a caller must have left for a claim to start: rows that
// are claimed for a caller whose deadline passes meanwhile must be given back (C15).
const MinDeadline = 250 * time.Millisecond

const (
	// maxRows bounds one statement, in messages and in calls.
	maxRows = 1000
	// minSpin and maxSpin bound the pause before a row that was ready but could not be
	// had (somebody else has locked it) is tried again (C3).
	minSpin = 50 * time.Millisecond
	maxSpin = time.Second
	// minLimit is the shortest pause before a queue is asked again whose rate left nothing:
	// at a high rate several tokens are worth one statement.
	minLimit = 10 * time.Millisecond
	// restart is for how long a poller that stopped still knows its queue to be empty.
	restart = 100 * time.Millisecond
	// minPoll is the shortest pause between polls of a busy queue on an engine that has
	// no notifications.
	minPoll = 50 * time.Millisecond
	// maxClaims bounds the claims that wait to be announced; beyond it the other servers
	// find them by looking.
	maxClaims = 10_000
	// cutAgain is longer than what is left of a lease that is cut short.
	cutAgain = 10 * time.Millisecond
	// notifyEvery is the shortest pause between two notifications sent.
	notifyEvery = 5 * time.Millisecond
)

// Store is what dispatch needs of a storage.Store.
type Store interface {
	Capabilities() storage.Capabilities
	Claim(ctx context.Context, p storage.ClaimParams) (storage.ClaimResult, error)
	FirstReady(ctx context.Context, p storage.FirstReadyParams) (storage.FirstReadyResult, error)
	GiveBack(ctx context.Context, p storage.GiveBackParams) (storage.GiveBackResult, error)
	Notify(ctx context.Context, n storage.Notice) error
	Listen(ctx context.Context, heard func(storage.Notice), up func(bool)) error
}

// Config of a Dispatcher. All fields but MaxWireBytes are needed.
type Config struct {
	Store Store
	// Resolve finds a queue by name; false where there is none.
	Resolve func(ctx context.Context, name string) (storage.Queue, bool, error)
	Logger  *slog.Logger
	Metrics Metrics
	// Claims, where set, is told of messages whose holder may have lost his claim, or was
	// asked to stop, on any server (T6); Listening whether it will be, by all other servers.
	// They must not wait.
	Claims    func(refs []storage.Ref)
	Listening func(up bool)
	// Own, where set, is told that a transaction of somebody's own has something for this
	// server (E12). It must not wait.
	Own func()
	// PollInterval is the longest pause between two looks while somebody waits.
	PollInterval time.Duration
	// MaxWait cuts the wait of a call.
	MaxWait time.Duration
	// MaxWaiters bounds the calls that wait at a time, over all queues.
	MaxWaiters int
	// ClaimsAlone gives every call a statement of its own.
	ClaimsAlone bool
	// StatementTimeout is the deadline of a storage call. It is not the caller's: a
	// caller that leaves cancels nobody else.
	StatementTimeout time.Duration
	// MaxWireBytes bounds the answer of a statement (C13).
	MaxWireBytes int64
	// Now is the local clock. It measures pauses and is never compared with a column.
	Now func() time.Time
	// Jitter returns a number in [0, 1).
	Jitter func() float64
}

// Metrics is told what happens.
type Metrics interface {
	// Statement counts a storage claim by the cause that started it.
	Statement(cause Cause)
	// Limited counts storage claims that got less than they asked for by a limit.
	Limited(limit storage.Limit)
	// GaveBack counts claims returned for callers that went away.
	GaveBack(n int, err error)
	// NotifySent and NotifyReceived count notifications.
	NotifySent(err error)
	NotifyReceived()
	// ListenUp tells whether the notification connection stands.
	ListenUp(up bool)
	// ServersKnown tells how many other servers are known.
	ServersKnown(n int)
}

// Cause says why a poller looked.
type Cause string

// The causes.
const (
	CauseCall  Cause = "call"
	CauseWake  Cause = "wake"
	CauseTimer Cause = "timer"
	CauseMore  Cause = "more"
	CausePoll  Cause = "poll"
)

// Causes lists them all.
func Causes() []Cause { return []Cause{CauseCall, CauseWake, CauseTimer, CauseMore, CausePoll} }

// Request is one call of Claim.
type Request struct {
	Name string
	// Queue of that name as the caller knows it; ID 0 where there is none yet.
	Queue storage.Queue
	// LeaseFor finds the lease of the call for the queue, which may appear while the
	// call waits.
	LeaseFor        func(q storage.Queue) (time.Duration, error)
	Max             int
	WorkerID        string
	ClaimID         storage.ClaimID
	MaxPayloadBytes int64
	// Wait is the longest wait for the first message; 0 looks once.
	Wait time.Duration
}

// Empty says why an answer holds no messages, as far as dispatch knows.
type Empty int

// The reasons.
const (
	NotEmpty Empty = iota
	NoneReady
	QueueUnknown
	Draining
	DeadlineTooShort
	// InFlightLimit and RateLimit: a limit of the queue left nothing for now (L1, L2).
	InFlightLimit
	RateLimit
)

// Answer is what a call got.
type Answer struct {
	Messages []storage.Claimed
	Replayed bool
	Empty    Empty
	// Later: the last look for an empty answer saw a delayed message.
	Later bool
	// Now is the database clock of the statement, zero where there was none.
	Now time.Time
	// Sent is the local time just before the statement.
	Sent time.Time

	queueID int32
	claimID storage.ClaimID
}

// Dispatcher is one for a server. Make it with New, start it with Run.
type Dispatcher struct {
	cfg   Config
	store Store
	log   *slog.Logger

	// base is the context of all statements; it ends with Close, not with Drain.
	base   context.Context //nolint:containedctx // statements run under the dispatcher's life, not a caller's
	cancel context.CancelFunc
	work   running // pollers and give-backs

	waiters atomic.Int64
	// notifies is constant: the engine can tell other servers. servers knows whether there are any.
	notifies bool
	servers  *servers
	toldMu   sync.Mutex

	// draining is set under mu, so that nobody enters once it is; it is read anywhere.
	draining atomic.Bool

	// mu is taken before the lock of a queue, and never under it.
	mu     sync.Mutex
	closed bool
	byName map[string]*queue
	byID   map[int32]*queue
	// announced are the queues that a notification ever named.
	announced map[int32]struct{}

	notifyMu sync.Mutex
	pending  map[int32]time.Time      // queues to be told to other servers, with the time of their notice
	claims   map[storage.Ref]struct{} // to be told to other servers
	notify   chan struct{}
}

// New makes a Dispatcher.
func New(cfg Config) *Dispatcher {
	base, cancel := context.WithCancel(context.Background())
	return &Dispatcher{
		cfg: cfg, store: cfg.Store, log: cfg.Logger,
		base: base, cancel: cancel,
		notifies:  cfg.Store.Capabilities().Notifications,
		servers:   newServers(cfg.Now),
		byName:    map[string]*queue{},
		byID:      map[int32]*queue{},
		announced: map[int32]struct{}{},
		pending:   map[int32]time.Time{},
		claims:    map[storage.Ref]struct{}{},
		notify:    make(chan struct{}, 1),
	}
}

// Claim waits for messages as the request says. An error of the storage is returned
// as it is; the error of ctx where the caller went away, and then nothing is kept.
func (d *Dispatcher) Claim(ctx context.Context, req Request) (Answer, error) {
	now := d.cfg.Now()
	until := now.Add(min(req.Wait, d.cfg.MaxWait))
	deadline, hasDeadline := ctx.Deadline()
	if hasDeadline {
		last := deadline.Add(-MinDeadline)
		if last.Before(now) {
			return Answer{Empty: DeadlineTooShort}, nil
		}
		if last.Before(until) {
			until = last
		}
	}
	w := &waiter{req: req, since: now, until: until, answer: make(chan reply, 1)}
	if hasDeadline {
		w.deadline = deadline
	}
	q, entered, err := d.enter(w, until.After(now)) //nolint:contextcheck // the poller serves many callers and outlives each
	if err != nil {
		return Answer{}, err
	}
	if !entered {
		return Answer{Empty: Draining}, nil
	}
	defer d.waiters.Add(-1)

	timer := time.NewTimer(until.Sub(now))
	defer timer.Stop()
	for {
		select {
		case r := <-w.answer:
			if ctx.Err() != nil {
				d.GiveBack(r.answer) //nolint:contextcheck // the give-back outlives the caller
				return Answer{}, context.Cause(ctx)
			}
			return r.answer, r.err
		case <-timer.C:
			q.expire(w)
		case <-ctx.Done():
			if r, ok := q.leave(w); ok {
				d.GiveBack(r.answer) //nolint:contextcheck // the give-back outlives the caller
			}
			return Answer{}, context.Cause(ctx)
		}
	}
}

// enter registers the waiter, before anybody looks for it (W1). It returns false while
// draining.
func (d *Dispatcher) enter(w *waiter, waits bool) (*queue, bool, error) {
	if int(d.waiters.Add(1)) > d.cfg.MaxWaiters {
		d.waiters.Add(-1)
		return nil, false, ErrTooManyWaiters
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.draining.Load() || d.closed {
		d.waiters.Add(-1)
		return nil, false, nil
	}
	q := d.byName[w.req.Name]
	if q == nil {
		q = newQueue(d, w.req.Name)
		d.byName[w.req.Name] = q
	}
	if id := w.req.Queue.ID; id != 0 {
		d.byID[id] = q
	}
	q.register(w, waits)
	return q, true, nil
}

// retire forgets a queue for which nothing is known and nobody waits. While a pause
// after an error runs, it is known.
func (d *Dispatcher) retire(q *queue) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	now := d.cfg.Now()
	if q.running || q.leases.len() > 0 || d.byName[q.name] != q {
		return
	}
	keep := q.notBefore.Sub(now)
	// A worker that asks again and again without a wait finds its hints again.
	if q.looksBelow || q.fronts.known() {
		keep = max(keep, frontLife-now.Sub(q.claimed))
	}
	if keep > 0 {
		if !q.retiring {
			q.retiring = true
			time.AfterFunc(keep, func() { d.retireLater(q) })
		}
		return
	}
	delete(d.byName, q.name)
	if d.byID[q.info.ID] == q {
		delete(d.byID, q.info.ID)
	}
}

// retireLater is retire when its time has come.
func (d *Dispatcher) retireLater(q *queue) {
	q.mu.Lock()
	q.retiring = false
	q.mu.Unlock()
	d.retire(q)
}

// queue finds a queue by id; nil where nobody waited for it.
func (d *Dispatcher) queue(id int32) *queue {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.byID[id]
}

// Wake says that messages of a queue may have become claimable, on this server or on
// another.
func (d *Dispatcher) Wake(queueID int32) {
	if q := d.queue(queueID); q != nil {
		q.wake()
	}
}

// WakeName is Wake for a queue that may have been unknown until now.
func (d *Dispatcher) WakeName(name string) {
	d.mu.Lock()
	q := d.byName[name]
	d.mu.Unlock()
	if q != nil {
		q.wake()
	}
}

// Announce is Wake on this server and on all others. since is a time of the database's clock
// before which none of the messages is ready that became claimable; zero where none did, but a
// limit or a pause is over. A claim that starts behind it would miss them (W7).
func (d *Dispatcher) Announce(queueID int32, since time.Time) {
	if q := d.queue(queueID); q != nil {
		q.wakeSince(since)
	}
	d.tell(queueID, since)
}

// Freed says that a lease of a queue with max_in_flight is over, beside Settled, to the
// other servers: their waiters may be held up by the limit. Where a look of this server was
// not, they are not either.
func (d *Dispatcher) Freed(queueID int32) {
	if q := d.queue(queueID); q != nil && q.unlimited() {
		return
	}
	d.tell(queueID, time.Time{})
}

// tell wakes the other servers, soon, where there may be any.
func (d *Dispatcher) tell(queueID int32, since time.Time) {
	if !d.notifies || !d.servers.tell() {
		return
	}
	d.notifyMu.Lock()
	if old := d.pending[queueID]; !old.IsZero() && (since.IsZero() || old.Before(since)) {
		since = old
	}
	d.pending[queueID] = since
	d.notifyMu.Unlock()
	select {
	case d.notify <- struct{}{}:
	default:
	}
}

// AnnounceClaim tells the other servers that the holder of a message may have lost his
// claim, or was asked to stop (T6).
func (d *Dispatcher) AnnounceClaim(ref storage.Ref) {
	if !d.notifies || !d.servers.tell() {
		return
	}
	d.notifyMu.Lock()
	if len(d.claims) < maxClaims {
		d.claims[ref] = struct{}{}
	}
	d.notifyMu.Unlock()
	select {
	case d.notify <- struct{}{}:
	default:
	}
}

// ReadyAt says that a message of a queue is claimable from ready on; now is the
// database clock that belongs to it, read a moment ago.
func (d *Dispatcher) ReadyAt(queueID int32, ready, now time.Time) {
	if !ready.After(now) {
		d.Announce(queueID, ready)
		return
	}
	if q := d.queue(queueID); q != nil {
		q.delayed(d.cfg.Now().Add(ready.Sub(now)), ready)
	}
}

// LeaseEnds says that the lease of a message now ends at end.
func (d *Dispatcher) LeaseEnds(queueID int32, position int64, end, now time.Time) {
	if q := d.queue(queueID); q != nil {
		q.leaseEnds(position, d.cfg.Now().Add(end.Sub(now)))
	}
}

// LeasesCut is Announce for messages whose leases were cut short, which LeaseEnds has said
// before: they stand where they stood when this server leased them. Whoever looks a moment
// before the end is told once more.
func (d *Dispatcher) LeasesCut(queueID int32, positions []int64) {
	var since time.Time
	if q := d.queue(queueID); q != nil {
		since = q.lowestOf(positions)
	}
	d.Announce(queueID, since)
	time.AfterFunc(cutAgain, func() { d.Announce(queueID, since) })
}

// Overdue says that a queue has messages that should have been claimed by now: their lease or their delay
// is over, and they are ready from a time of the
// database's clock on. Those of this server's own leases it knows by itself; others a claim would
// pass over that starts behind them, until somebody looks below (W7).
func (d *Dispatcher) Overdue(queueID int32, ready time.Time) {
	if q := d.queue(queueID); q != nil {
		q.overdueSince(ready)
	}
}

// Settled says that the leases of messages are over by settlements.
func (d *Dispatcher) Settled(queueID int32, positions ...int64) {
	if q := d.queue(queueID); q != nil {
		q.settled(positions)
	}
}

// Waiting counts the calls that wait on a queue.
func (d *Dispatcher) Waiting(queueID int32) int {
	if q := d.queue(queueID); q != nil {
		return q.count()
	}
	return 0
}

// Waiters counts the calls that wait on any queue.
func (d *Dispatcher) Waiters() int { return int(d.waiters.Load()) }

// Leases counts the leases that this server granted and that are not known to be over.
func (d *Dispatcher) Leases() int {
	n := 0
	for _, q := range d.all() {
		n += q.liveLeases(d.cfg.Now())
	}
	return n
}

func (d *Dispatcher) all() []*queue {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]*queue, 0, len(d.byName))
	for _, q := range d.byName {
		out = append(out, q)
	}
	return out
}

// Drain answers everybody who waits with Draining, now and from now on. A statement
// that runs is finished, and its rows are dealt out.
func (d *Dispatcher) Drain() {
	d.mu.Lock()
	d.draining.Store(true)
	d.mu.Unlock()
	for _, q := range d.all() {
		q.drain()
	}
}

// Close ends all statements and waits for everything that the dispatcher started. Run
// must have been told to end.
func (d *Dispatcher) Close() {
	d.Drain()
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	d.work.wait(context.Background()) // all of it has to end before the store does
}

// Settle waits until running statements and give-backs have ended, or ctx has.
func (d *Dispatcher) Settle(ctx context.Context) { d.work.wait(ctx) }

// GiveBack returns the rows of an answer that could not be handed over (C15). It does
// not wait. What a repeat of the claim received stays claimed.
func (d *Dispatcher) GiveBack(a Answer) {
	if len(a.Messages) == 0 || a.Replayed {
		return
	}
	p := storage.GiveBackParams{QueueID: a.queueID, ClaimID: a.claimID}
	for _, m := range a.Messages {
		p.Claims = append(p.Claims, storage.HeldClaim{Ref: m.Message.Ref, Token: m.Token})
	}
	d.mu.Lock()
	closed := d.closed
	if !closed {
		d.work.begin()
	}
	d.mu.Unlock()
	if closed {
		return // the leases run out
	}
	go func() {
		defer d.work.end()
		ctx, cancel := context.WithTimeout(d.base, d.cfg.StatementTimeout)
		defer cancel()
		began := d.cfg.Now()
		res, err := d.store.GiveBack(ctx, p)
		d.cfg.Metrics.GaveBack(res.GivenBack, err)
		if err != nil {
			d.log.WarnContext(ctx, "claims of a caller that went away were not given back; their leases run out",
				"queue_id", p.QueueID, "claims", len(p.Claims), "error", err)
			return
		}
		if res.GivenBack > 0 {
			for _, c := range p.Claims {
				d.Settled(p.QueueID, c.Ref.Position)
			}
			d.Announce(p.QueueID, res.Now.Add(-d.cfg.Now().Sub(began)))
		}
	}()
}
