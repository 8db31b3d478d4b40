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

// row is a message of a table.
type row struct {
	position int64
	queue    int32
	priority int32
	ready    time.Time
	commit   time.Time // nobody sees it before
	delayed  bool
	locked   bool
	leaseEnd time.Time
	gone     bool
}

// table is a queue in memory that takes scan hints at their word: what stands below one is not
// found. Several servers may use it.
type table struct {
	mu         sync.Mutex
	rows       []*row
	paused     bool
	most       int           // messages a claim may take, as a limit leaves them; 0: any number
	skew       time.Duration // of the clock of the database
	slow       time.Duration // of a claim, after it has read
	fail       error
	deaf       bool // notifications are lost
	failNotify int  // so many fail
	tells      bool // the engine has notifications
	claims     []storage.ClaimParams
	looks      int
	heard      []func(storage.Notice)
	lookFor    time.Duration // how long a look takes
	lag        time.Duration // how long a hello is under way
	notices    int           // that were sent, without the hellos
}

func (s *table) now() time.Time { return time.Now().Add(s.skew) }

// add inserts a row that was made so long ago and is committed now.
func (s *table) add(ago time.Duration, change ...func(*row)) *row {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &row{position: int64(len(s.rows) + 1), queue: 1, ready: s.now().Add(-ago)}
	for _, c := range change {
		c(r)
	}
	s.rows = append(s.rows, r)
	return r
}

// with changes a row, or the table.
func (s *table) with(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *table) Capabilities() storage.Capabilities {
	return storage.Capabilities{Name: "table", Notifications: s.tells}
}

func (r *row) claimable(now time.Time) bool {
	return !r.gone && !r.commit.After(now) && !r.ready.After(now) && !r.leaseEnd.After(now)
}

func (r *row) below(h storage.ScanHint) bool {
	return r.priority == h.Priority && (place{r.ready.UnixMicro(), r.position}).before(place{h.ReadyTime.UnixMicro(), h.Position})
}

func inOrder(a, b *row) int {
	switch {
	case a.priority != b.priority:
		return int(b.priority) - int(a.priority)
	case !a.ready.Equal(b.ready):
		return a.ready.Compare(b.ready)
	default:
		return int(a.position - b.position)
	}
}

func (s *table) Claim(_ context.Context, p storage.ClaimParams) (storage.ClaimResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims = append(s.claims, p)
	if s.fail != nil {
		return storage.ClaimResult{}, s.fail
	}
	now := s.now()
	res := storage.ClaimResult{Now: now, Calls: make([]storage.ClaimOutcome, len(p.Calls))}
	want := 0
	for i, c := range p.Calls {
		res.Calls[i].Status = storage.ClaimServed
		want += c.Max
	}
	var line []*row
	for _, r := range s.rows {
		hidden := slices.ContainsFunc(p.ScanFrom, r.below)
		if r.delayed {
			hidden = r.ready.Before(p.DueFrom)
		}
		if r.queue == p.QueueID && r.claimable(now) && !r.locked && !hidden {
			line = append(line, r)
		}
		if r.queue == p.QueueID && r.delayed && r.ready.After(now) && (res.NextReady.IsZero() || r.ready.Before(res.NextReady)) {
			res.NextReady = r.ready
		}
	}
	slices.SortFunc(line, inOrder)
	if s.paused {
		line = nil
	}
	if s.most > 0 && want > s.most {
		want = s.most
		if len(line) >= want {
			res.Limit = storage.LimitRate
		}
	}
	taken := line[:min(want, len(line))]
	for i, r := range line[len(taken):] {
		if r.delayed {
			r.delayed, r.ready = false, now.Add(time.Duration(i-len(line))*time.Microsecond)
		}
	}
	res.More = len(line) >= want
	res.DueEnd = !s.paused && res.Limit == storage.LimitNone
	res.End = !s.paused && !res.More && res.Limit == storage.LimitNone
	for i, c := range p.Calls {
		n := min(c.Max, len(taken))
		for _, r := range taken[:n] {
			r.delayed, r.leaseEnd = false, now.Add(c.Lease)
			res.Calls[i].Messages = append(res.Calls[i].Messages, storage.Claimed{Message: storage.Message{
				Ref:      storage.Ref{QueueID: r.queue, Position: r.position},
				Priority: r.priority, ReadyTime: r.ready, LeaseEnd: r.leaseEnd,
			}})
		}
		taken = taken[n:]
	}
	if s.slow > 0 {
		s.mu.Unlock()
		time.Sleep(s.slow)
		s.mu.Lock()
	}
	return res, nil
}

func (s *table) FirstReady(_ context.Context, p storage.FirstReadyParams) (storage.FirstReadyResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	now := s.now()
	res := storage.FirstReadyResult{Now: now}
	first := map[int32]*row{}
	for _, h := range p.Below {
		first[h.Priority] = nil
	}
	for _, r := range s.rows {
		i := slices.IndexFunc(p.Below, func(h storage.ScanHint) bool { return h.Priority == r.priority })
		if r.delayed && r.queue == p.QueueID && !r.commit.After(now) && r.ready.Before(p.DueBelow) {
			res.Due = r.ready
		}
		if r.queue != p.QueueID || r.gone || r.delayed || r.commit.After(now) {
			continue
		}
		best := first[r.priority]
		first[r.priority] = best
		if r.claimable(now) && (i < 0 || r.below(p.Below[i])) && (best == nil || inOrder(r, best) < 0) {
			first[r.priority] = r
		}
	}
	for priority, r := range first {
		f := storage.FirstReady{Priority: priority}
		if r != nil {
			f.Found, f.ReadyTime, f.Position = true, r.ready, r.position
		}
		res.Priorities = append(res.Priorities, f)
	}
	storage.SortFirstReady(res.Priorities)
	if s.lookFor > 0 {
		s.mu.Unlock()
		time.Sleep(s.lookFor)
		s.mu.Lock()
	}
	return res, nil
}

func (s *table) GiveBack(_ context.Context, p storage.GiveBackParams) (storage.GiveBackResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for _, c := range p.Claims {
		r := s.rows[c.Ref.Position-1]
		r.ready, r.leaseEnd = now, time.Time{}
	}
	return storage.GiveBackResult{GivenBack: len(p.Claims), Now: now}, nil
}

func (s *table) Notify(_ context.Context, n storage.Notice) error {
	s.mu.Lock()
	heard := slices.Clone(s.heard)
	deaf := s.deaf
	if n.Hello.Server == 0 {
		s.notices++
	}
	if s.failNotify > 0 && n.Hello.Server == 0 {
		s.failNotify--
		s.mu.Unlock()
		return storage.ErrUnavailable
	}
	s.mu.Unlock()
	if deaf {
		return nil
	}
	deliver := func() {
		for _, h := range heard {
			h(n)
		}
	}
	if n.Hello.Server != 0 && s.lag > 0 {
		time.AfterFunc(s.lag, deliver)
		return nil
	}
	deliver()
	return nil
}

func (s *table) Listen(ctx context.Context, heard func(storage.Notice), up func(bool)) error {
	s.with(func() { s.heard = append(s.heard, heard) })
	up(true)
	<-ctx.Done()
	return nil
}

// house is some servers over one table.
type house struct {
	*table

	a, b *Dispatcher
	id   int32 // of the queue, as callers know it
}

func (h *house) request(wait time.Duration) Request {
	r := request(wait)
	r.Queue.ID = h.id
	return r
}

// openHouse starts two servers, in a synctest bubble.
func openHouse(t *testing.T, tells bool) *house {
	t.Helper()
	h := &house{table: &table{tells: tells}, id: 1}
	h.a, h.b = h.server(t), h.server(t)
	time.Sleep(time.Millisecond)
	return h
}

// server starts one more.
func (h *house) server(t *testing.T) *Dispatcher {
	t.Helper()
	cfg := Config{
		Store: h.table, Logger: slog.New(slog.DiscardHandler), Metrics: noMetrics{},
		Resolve: func(context.Context, string) (storage.Queue, bool, error) {
			return storage.Queue{}, false, nil
		},
		PollInterval: time.Second, MaxWait: 20 * time.Second, MaxWaiters: 2000,
		StatementTimeout: 10 * time.Second, MaxWireBytes: 1 << 20,
		Now: time.Now, Jitter: func() float64 { return 0 },
	}
	d := New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); d.Run(ctx) }()
	t.Cleanup(func() { cancel(); d.Close(); <-done })
	return d
}

// pass lets a message go through server a, so that its front moves on.
func (h *house) pass(t *testing.T) {
	t.Helper()
	r := h.add(0, func(r *row) { r.queue = h.id })
	h.a.ReadyAt(h.id, r.ready, r.ready)
	require.Equal(t, r.position, h.find(t, time.Second))
	h.settle(r)
}

func (h *house) settle(r *row) {
	h.with(func() { r.gone = true })
	h.a.Settled(r.queue, r.position)
}

// find waits for the next message through server a, for so long at most.
func (h *house) find(t *testing.T, within time.Duration) int64 {
	t.Helper()
	until := time.Now().Add(within)
	for {
		a, err := h.a.Claim(t.Context(), h.request(20*time.Second))
		require.NoError(t, err)
		require.False(t, time.Now().After(until), "found too late, or never")
		if len(a.Messages) > 0 {
			return a.Messages[0].Message.Ref.Position
		}
	}
}
