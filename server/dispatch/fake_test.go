package dispatch

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// fakeStore is a queue in memory, for the timers alone: what a claim may take is
// tested against real databases elsewhere.
type fakeStore struct {
	notifications bool

	mu         sync.Mutex
	ready      []time.Time // ready times, by position
	taken      map[int64]bool
	locked     map[int64]bool // ready, but held by somebody else
	leases     map[int64]time.Time
	ids        map[storage.ClaimID]storage.ClaimOutcome
	workers    map[storage.ClaimID]string
	statements []storage.ClaimParams
	at         []time.Time
	gaveBack   []storage.GiveBackParams
	sent       [][]int32
	claims     []storage.Ref
	failNotify int
	hellos     []time.Time
	mute       bool // hellos do not come back
	// maxLeases and rate are limits of the queue.
	maxLeases int
	rate      float64
	bucket    storage.Bucket
	slow      time.Duration // of a claim, before it reads
	slowAfter time.Duration // of a claim, after it has read
	fail      error
	panics    bool
	running   int
	overlap   bool
	wake      func(int32)
	heard     func(storage.Notice)
	up        func(bool)
}

func newFake() *fakeStore {
	return &fakeStore{
		taken: map[int64]bool{}, locked: map[int64]bool{}, leases: map[int64]time.Time{},
		ids: map[storage.ClaimID]storage.ClaimOutcome{}, workers: map[storage.ClaimID]string{},
	}
}

func (f *fakeStore) Capabilities() storage.Capabilities {
	return storage.Capabilities{Name: "fake", Notifications: f.notifications}
}

// add puts a message into the queue and returns its position.
func (f *fakeStore) add(delay time.Duration) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ready = append(f.ready, time.Now().Add(delay))
	return int64(len(f.ready) - 1)
}

func (f *fakeStore) lock(position int64, locked bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.locked[position] = locked
}

func (f *fakeStore) Claim(_ context.Context, p storage.ClaimParams) (storage.ClaimResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running++
	f.overlap = f.overlap || f.running > 1
	defer func() { f.running-- }()
	f.statements = append(f.statements, p)
	f.at = append(f.at, time.Now())
	f.pause(f.slow)
	if f.panics {
		panic("boom")
	}
	if f.fail != nil {
		return storage.ClaimResult{}, f.fail
	}
	now := time.Now()
	res := storage.ClaimResult{Now: now}
	left := f.leaves(now, &res)
	for _, c := range p.Calls {
		c.Max = max(0, min(c.Max, left))
		out := f.call(c, now)
		res.Calls = append(res.Calls, out)
		left -= len(out.Messages)
	}
	f.spend(now, left, &res)
	res.End = res.Limit == storage.LimitNone && res.Calls[len(res.Calls)-1].Status == storage.ClaimServed
	for i, t := range f.ready {
		pos := int64(i)
		free := !f.taken[pos] || !f.leases[pos].After(now)
		res.End = res.End && (t.After(now) || !free || f.locked[pos])
		if !f.taken[int64(i)] && (res.NextReady.IsZero() || t.Before(res.NextReady)) && t.After(now) {
			res.NextReady = t
		}
	}
	f.pause(f.slowAfter)
	return res, nil
}

// leaves tells how many messages the limits leave.
func (f *fakeStore) leaves(now time.Time, res *storage.ClaimResult) int {
	left := 1 << 30
	if f.maxLeases > 0 {
		left = f.maxLeases
		for _, end := range f.leases {
			if end.After(now) {
				left--
				if res.LimitEnd.IsZero() || end.Before(res.LimitEnd) {
					res.LimitEnd = end
				}
			}
		}
		res.Limit = storage.LimitInFlight
	}
	if f.rate > 0 {
		f.bucket = f.bucket.At(f.rate, now)
		left, res.Limit, res.LimitEnd = f.bucket.Tokens(now), storage.LimitRate, f.bucket.Next()
	}
	return left
}

// spend notes what was taken, and forgets a limit that left something.
func (f *fakeStore) spend(now time.Time, left int, res *storage.ClaimResult) {
	taken := 0
	for _, c := range res.Calls {
		taken += len(c.Messages)
	}
	if f.rate > 0 && taken > 0 {
		f.bucket = f.bucket.Take(now, taken)
		res.LimitEnd = f.bucket.Next()
	}
	if left > 0 {
		res.Limit, res.LimitEnd = storage.LimitNone, time.Time{}
	}
}

// settle ends the lease of a message for good.
func (f *fakeStore) settle(position int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.leases, position)
	f.ready[position] = time.Now().Add(1000 * time.Hour)
}

// pause sleeps without the lock, as a database does.
func (f *fakeStore) pause(d time.Duration) {
	if d > 0 {
		f.mu.Unlock()
		time.Sleep(d)
		f.mu.Lock()
	}
}

func (f *fakeStore) call(c storage.ClaimCall, now time.Time) storage.ClaimOutcome {
	if c.ClaimID != (storage.ClaimID{}) {
		if old, ok := f.ids[c.ClaimID]; ok {
			if f.workers[c.ClaimID] != c.WorkerID {
				return storage.ClaimOutcome{Status: storage.ClaimIDReused}
			}
			old.Status = storage.ClaimReplayed
			return old
		}
	}
	out := storage.ClaimOutcome{Status: storage.ClaimServed}
	for i, t := range f.ready {
		pos := int64(i)
		free := !f.taken[pos] || !f.leases[pos].After(now)
		if len(out.Messages) == c.Max || t.After(now) || !free || f.locked[pos] {
			continue
		}
		f.taken[pos] = true
		f.leases[pos] = now.Add(c.Lease)
		out.Messages = append(out.Messages, storage.Claimed{
			Message: storage.Message{Ref: storage.Ref{QueueID: 1, Position: pos}, ReadyTime: t, LeaseEnd: f.leases[pos]},
			Token:   storage.Token{byte(len(f.statements)), byte(pos)},
		})
	}
	if c.ClaimID != (storage.ClaimID{}) && len(out.Messages) > 0 {
		f.ids[c.ClaimID] = out
		f.workers[c.ClaimID] = c.WorkerID
	}
	return out
}

func (f *fakeStore) FirstReady(context.Context, storage.FirstReadyParams) (storage.FirstReadyResult, error) {
	return storage.FirstReadyResult{Now: time.Now()}, nil
}

func (f *fakeStore) GiveBack(_ context.Context, p storage.GiveBackParams) (storage.GiveBackResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gaveBack = append(f.gaveBack, p)
	for _, c := range p.Claims {
		f.taken[c.Ref.Position] = false
		f.leases[c.Ref.Position] = time.Time{}
	}
	return storage.GiveBackResult{GivenBack: len(p.Claims), Now: time.Now()}, nil
}

func (f *fakeStore) Notify(_ context.Context, n storage.Notice) error {
	f.mu.Lock()
	if n.Hello.Server != 0 {
		f.hellos = append(f.hellos, time.Now())
		heard := f.heard
		mute := f.mute
		f.mu.Unlock()
		if !mute {
			heard(n)
		}
		return nil
	}
	defer f.mu.Unlock()
	if f.failNotify > 0 {
		f.failNotify--
		return storage.ErrUnavailable
	}
	var ids []int32
	for _, q := range n.Queues {
		ids = append(ids, q.QueueID)
	}
	f.sent = append(f.sent, ids)
	f.claims = append(f.claims, n.Claims...)
	return nil
}

func (f *fakeStore) Listen(ctx context.Context, heard func(storage.Notice), up func(bool)) error {
	f.mu.Lock()
	f.heard, f.up = heard, up
	f.wake = func(id int32) { heard(storage.Notice{Queues: []storage.QueueReady{{QueueID: id}}}) }
	f.mu.Unlock()
	up(true)
	<-ctx.Done()
	return nil
}

// hello is that of another server.
func (f *fakeStore) hello(server uint64) {
	f.mu.Lock()
	heard := f.heard
	f.mu.Unlock()
	heard(storage.Notice{Hello: storage.Hello{Server: server}})
}

// claimed returns the statements that there were.
func (f *fakeStore) claimed() []storage.ClaimParams {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.statements)
}

// looks returns how many statements there were.
func (f *fakeStore) looks() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.statements)
}

type noMetrics struct{}

func (noMetrics) Statement(Cause)       {}
func (noMetrics) Limited(storage.Limit) {}
func (noMetrics) GaveBack(int, error)   {}
func (noMetrics) NotifySent(error)      {}
func (noMetrics) NotifyReceived()       {}
func (noMetrics) ListenUp(bool)         {}
func (noMetrics) ServersKnown(int)      {}

// config is one for a store of a test.
func config(store Store, change ...func(*Config)) Config {
	cfg := Config{
		Store: store,
		Resolve: func(context.Context, string) (storage.Queue, bool, error) {
			return storage.Queue{}, false, nil
		},
		Logger: slog.New(slog.DiscardHandler), Metrics: noMetrics{},
		PollInterval: time.Second, MaxWait: 20 * time.Second, MaxWaiters: 2000,
		StatementTimeout: 10 * time.Second, MaxWireBytes: 1 << 20,
		Now: time.Now, Jitter: func() float64 { return 0 },
	}
	for _, c := range change {
		c(&cfg)
	}
	return cfg
}

// start makes a dispatcher over a fake, inside a synctest bubble.
func start(t *testing.T, f *fakeStore, change ...func(*Config)) *Dispatcher {
	t.Helper()
	d := New(config(f, change...))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		d.Close()
		<-done
	})
	return d
}

func request(wait time.Duration) Request {
	return Request{
		Name:     "q",
		Queue:    storage.Queue{ID: 1, Name: "q"},
		LeaseFor: func(storage.Queue) (time.Duration, error) { return 30 * time.Second, nil },
		Max:      1,
		Wait:     wait,
	}
}

// waiting starts a call and returns its answer to come.
type call struct {
	answer Answer
	err    error
	took   time.Duration
}

func begin(ctx context.Context, d *Dispatcher, r Request) <-chan call {
	ch := make(chan call, 1)
	go func() {
		start := time.Now()
		a, err := d.Claim(ctx, r)
		ch <- call{a, err, time.Since(start)}
	}()
	return ch
}

func position(t *testing.T, c call) int64 {
	t.Helper()
	require.NoError(t, c.err)
	require.Len(t, c.answer.Messages, 1)
	return c.answer.Messages[0].Message.Ref.Position
}
