package storagetest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

const (
	// lease is the lease of a claim in a test that does not care.
	lease = 30 * time.Second
	// maxLease is far above every lease of the suite.
	maxLease = 12 * time.Hour
	// soon is how long a test waits for what must happen; it only ends a broken run.
	soon = 20 * time.Second
	// pollEvery is how often a condition outside the store is looked at.
	pollEvery = 5 * time.Millisecond
)

// world is one database with its stores, shared by the tests of a group.
type world struct {
	in   *Instance
	caps storage.Capabilities
	// other is a second store on the database, as another server has one.
	other storage.Store
	// tick is one tick of the storage clock.
	tick time.Duration
	// now is what the settable clock shows; zero on the real clock.
	now    time.Time
	queues int
}

func newWorld(t *testing.T, b Backend, testClock bool) *world {
	t.Helper()
	in := b.New(t, testClock)
	w := &world{in: in, caps: in.Store.Capabilities(), other: in.Another(t)}
	require.Positive(t, w.caps.ClockTick, "Capabilities.ClockTick")
	require.NotEmpty(t, w.caps.Name, "Capabilities.Name")
	w.tick = w.caps.ClockTick
	if testClock {
		require.NotNil(t, in.SetClock, "an instance on the test clock has SetClock")
		// Far from the clock of the host, so that a host's time in a compared column
		// shows at once (C5), and whole milliseconds, so that every backend stores it.
		host := time.Now()
		w.now = host.UTC().Add(3 * time.Hour).Truncate(time.Millisecond)
		in.SetClock(t, w.now)
	}
	return w
}

// env is what one test works with: a queue of its own in a shared database.
type env struct {
	*world

	store storage.Store
	queue storage.Queue
}

// env makes the surroundings of one test.
func (w *world) env(t *testing.T) *env {
	t.Helper()
	e := &env{world: w, store: w.in.Store}
	if w.settable() {
		e.advance(t, time.Second)
	}
	e.queue = e.newQueue(t, settings())
	return e
}

func (w *world) settable() bool { return !w.now.IsZero() }

// settings are those of a queue in a test that does not care.
func settings() storage.QueueSettings {
	return storage.QueueSettings{
		DefaultLease: lease,
		MinLease:     time.Millisecond,
		MaxLease:     maxLease,
		MaxAttempts:  20,
		Retry: storage.RetryPolicy{
			Min: time.Second, Max: time.Hour, Multiplier: 2, Jitter: 0,
		},
		Ordering:           storage.OrderingSkipDead,
		CompletedRetention: time.Hour,
	}
}

func (e *env) newQueue(t *testing.T, s storage.QueueSettings) storage.Queue {
	t.Helper()
	e.queues++
	q, err := e.store.CreateQueue(t.Context(), fmt.Sprintf("queue-%d", e.queues), s, 0)
	require.NoError(t, err, "create queue")
	return q
}

// on returns the same surroundings with another queue.
func (e *env) on(q storage.Queue) *env {
	other := *e
	other.queue = q
	return &other
}

// through returns the same surroundings with another store.
func (e *env) through(s storage.Store) *env {
	other := *e
	other.store = s
	return &other
}

// advance moves the settable clock on.
func (w *world) advance(t *testing.T, d time.Duration) {
	t.Helper()
	require.True(t, w.settable(), "this test needs the settable clock")
	w.now = w.now.Add(d)
	w.in.SetClock(t, w.now)
}

// advanceTo moves the settable clock on to a time.
func (w *world) advanceTo(t *testing.T, to time.Time) {
	t.Helper()
	require.False(t, to.Before(w.now), "the storage clock never goes back")
	w.advance(t, to.Sub(w.now))
}

// waitClock returns when the storage clock has reached a time: at once on the
// settable clock, which it sets, and by looking on the real one.
func (e *env) waitClock(t *testing.T, until time.Time) {
	t.Helper()
	if e.settable() {
		if until.After(e.now) {
			e.advanceTo(t, until)
		}
		return
	}
	eventually(t, "the storage clock reaches "+until.String(), func() bool {
		now, err := e.store.Now(t.Context())
		require.NoError(t, err)
		return !now.Before(until)
	})
}

// eventually waits for a condition, looking at it in the goroutine of the test so
// that the condition may fail the test itself.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for !ok() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			require.FailNow(t, "never happened: "+what)
		}
	}
}

// message returns a plain message for the queue.
func (e *env) message(mods ...func(*storage.NewMessage)) storage.NewMessage {
	m := storage.NewMessage{QueueID: e.queue.ID, Payload: []byte("payload")}
	for _, mod := range mods {
		mod(&m)
	}
	if m.WireBytes == 0 {
		m.WireBytes = int64(len(m.Payload)) + 50
	}
	return m
}

func priority(p int32) func(*storage.NewMessage) {
	return func(m *storage.NewMessage) { m.Priority = p }
}

func delay(d time.Duration) func(*storage.NewMessage) {
	return func(m *storage.NewMessage) { m.Delay = d }
}

func payload(b []byte) func(*storage.NewMessage) {
	return func(m *storage.NewMessage) { m.Payload = b }
}

func maxAttempts(n int32) func(*storage.NewMessage) {
	return func(m *storage.NewMessage) { m.MaxAttempts = n }
}

// keyed sets an idempotency key; content stands for what the hash covers.
func keyed(key, content string) func(*storage.NewMessage) {
	return func(m *storage.NewMessage) {
		m.IdempotencyKey = key
		m.ContentHash = sha256.Sum256([]byte(content))
	}
}

// enqueue inserts messages in one call and requires that each is new.
func (e *env) enqueue(t *testing.T, ms ...storage.NewMessage) []storage.Ref {
	t.Helper()
	res, err := e.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: ms})
	require.NoError(t, err, "enqueue")
	require.Len(t, res.Items, len(ms), "enqueue answers each message")
	refs := make([]storage.Ref, len(ms))
	for i, item := range res.Items {
		require.Equal(t, storage.EnqueueInserted, item.Status)
		require.Equal(t, ms[i].QueueID, item.Ref.QueueID)
		refs[i] = item.Ref
	}
	return refs
}

// one inserts a message.
func (e *env) one(t *testing.T, mods ...func(*storage.NewMessage)) storage.Ref {
	t.Helper()
	return e.enqueue(t, e.message(mods...))[0]
}

// many inserts n equal messages in one call.
func (e *env) many(t *testing.T, n int, mods ...func(*storage.NewMessage)) []storage.Ref {
	t.Helper()
	ms := make([]storage.NewMessage, n)
	for i := range ms {
		ms[i] = e.message(mods...)
	}
	return e.enqueue(t, ms...)
}

// call returns a plain call of Claim.
func call(worker string, n int, d time.Duration) storage.ClaimCall {
	return storage.ClaimCall{Max: n, Lease: d, WorkerID: worker}
}

// claimResult claims for calls and checks what holds of every answer.
func (e *env) claimResult(t *testing.T, p storage.ClaimParams) storage.ClaimResult {
	t.Helper()
	p.QueueID = e.queue.ID
	res, err := e.store.Claim(t.Context(), p)
	require.NoError(t, err, "claim")
	e.checkClaim(t, p, res)
	return res
}

// checkClaim checks what holds of every answer to Claim: C4, C5, C7, D11.
func (e *env) checkClaim(t require.TestingT, p storage.ClaimParams, res storage.ClaimResult) {
	if h, ok := t.(interface{ Helper() }); ok {
		h.Helper()
	}
	require.Len(t, res.Calls, len(p.Calls), "claim answers each call")
	e.checkNow(t, res.Now)
	tokens := map[storage.Token]bool{}
	refs := map[storage.Ref]bool{}
	for i, out := range res.Calls {
		c := p.Calls[i]
		if out.Status != storage.ClaimServed {
			continue
		}
		require.LessOrEqual(t, len(out.Messages), c.Max, "C7: at most Max")
		for _, m := range out.Messages {
			require.Equal(t, p.QueueID, m.Message.Ref.QueueID, "C6: a row of the queue")
			require.NotZero(t, m.Token, "C4: a token")
			require.False(t, tokens[m.Token], "C4: own token for each row")
			require.False(t, refs[m.Message.Ref], "C1: no row twice")
			tokens[m.Token], refs[m.Message.Ref] = true, true
			require.Equal(t, storage.StateProcessing, m.Message.State)
			require.Equal(t, c.WorkerID, m.Message.WorkerID)
			require.Positive(t, m.Message.Attempt)
			if e.settable() {
				sameTime(t, e.now.Add(c.Lease), m.Message.LeaseEnd, "C5: lease end = clock + lease")
			} else {
				require.WithinDuration(t, res.Now.Add(c.Lease), m.Message.LeaseEnd, 5*time.Second, "C5")
			}
		}
	}
}

// checkNow checks D11: an answer carries the storage clock of its statement.
func (e *env) checkNow(t require.TestingT, now time.Time) {
	if h, ok := t.(interface{ Helper() }); ok {
		h.Helper()
	}
	if e.settable() {
		require.True(t, e.now.Equal(now), "D11: Now is the storage clock: want %v, got %v", e.now, now)
		return
	}
	require.False(t, now.IsZero(), "D11: Now is set")
}

// claimN claims up to n messages for a worker.
func (e *env) claimN(t *testing.T, n int) []storage.Claimed {
	t.Helper()
	return e.claimAs(t, "worker", n, lease)
}

func (e *env) claimAs(t *testing.T, worker string, n int, d time.Duration) []storage.Claimed {
	t.Helper()
	res := e.claimResult(t, storage.ClaimParams{Calls: []storage.ClaimCall{call(worker, n, d)}})
	require.Equal(t, storage.ClaimServed, res.Calls[0].Status)
	return res.Calls[0].Messages
}

// claimOne claims exactly the message that is there.
func (e *env) claimOne(t *testing.T) storage.Claimed {
	t.Helper()
	return e.claimOneAs(t, "worker", lease)
}

func (e *env) claimOneAs(t *testing.T, worker string, d time.Duration) storage.Claimed {
	t.Helper()
	got := e.claimAs(t, worker, 1, d)
	require.Len(t, got, 1, "one message is claimable")
	return got[0]
}

// claimNothing requires that nothing is claimable and that the look wrote nothing
// (C11).
func (e *env) claimNothing(t *testing.T) {
	t.Helper()
	e.unchanged(t, func() { require.Empty(t, e.claimN(t, 10), "nothing is claimable") })
}

// unchanged requires that do leaves the whole database as it was.
func (e *env) unchanged(t *testing.T, do func()) {
	t.Helper()
	before := e.in.Dump(t)
	do()
	require.Equal(t, before, e.in.Dump(t), "the database is byte for byte as before")
}

// liveRow returns the columns of a row that must be there.
func (e *env) liveRow(t *testing.T, ref storage.Ref) map[string]string {
	t.Helper()
	row := e.in.Row(t, ref)
	require.NotEmpty(t, row, "a live row of %v", ref)
	return maps.Clone(row)
}

func (e *env) get(t *testing.T, ref storage.Ref) storage.Message {
	t.Helper()
	m, err := e.store.GetMessage(t.Context(), ref, true)
	require.NoError(t, err, "get message %v", ref)
	return m
}

func (e *env) settle(t *testing.T, items ...storage.Settlement) []storage.Settled {
	t.Helper()
	res, err := e.store.Settle(t.Context(), storage.SettleParams{Items: items})
	require.NoError(t, err, "settle")
	require.Len(t, res.Items, len(items), "settle answers each item")
	e.checkNow(t, res.Now)
	return res.Items
}

func (e *env) renew(t *testing.T, items ...storage.Renewal) []storage.Renewed {
	t.Helper()
	res, err := e.store.Renew(t.Context(), storage.RenewParams{Items: items})
	require.NoError(t, err, "renew")
	require.Len(t, res.Items, len(items), "renew answers each item")
	e.checkNow(t, res.Now)
	return res.Items
}

func (e *env) giveBack(t *testing.T, p storage.GiveBackParams) int {
	t.Helper()
	p.QueueID = e.queue.ID
	res, err := e.store.GiveBack(t.Context(), p)
	require.NoError(t, err, "give back")
	e.checkNow(t, res.Now)
	return res.GivenBack
}

// settlement makes a settlement of a claim by an action, with parameters that make
// its facts recognisable.
func settlement(c storage.Claimed, a storage.Action) storage.Settlement {
	return settlementOf(c.Message.Ref, c.Token, a)
}

func settlementOf(ref storage.Ref, token storage.Token, a storage.Action) storage.Settlement {
	s := storage.Settlement{Ref: ref, Token: token, Action: a}
	switch a {
	case storage.ActionComplete:
		s.Result = []byte("result")
	case storage.ActionRetry:
		s.HasDelay, s.Delay, s.Error = true, 7*time.Second, "try again"
	case storage.ActionDeadLetter:
		s.Error, s.ReasonCode = "no use", "rejected"
	case storage.ActionRelease:
		s.Delay = 3 * time.Second
	case storage.ActionRevoke: // no settlement of a worker
	}
	return s
}

func (e *env) complete(t *testing.T, c storage.Claimed) {
	t.Helper()
	got := e.settle(t, settlement(c, storage.ActionComplete))[0]
	require.Equal(t, storage.ItemApplied, got.Status, "complete is applied")
}

func renewal(c storage.Claimed, d time.Duration) storage.Renewal {
	return storage.Renewal{Ref: c.Message.Ref, Token: c.Token, Lease: d, MaxLease: maxLease}
}

func held(cs ...storage.Claimed) []storage.HeldClaim {
	hs := make([]storage.HeldClaim, len(cs))
	for i, c := range cs {
		hs[i] = storage.HeldClaim{Ref: c.Message.Ref, Token: c.Token}
	}
	return hs
}

func refsOf(cs []storage.Claimed) []storage.Ref {
	refs := make([]storage.Ref, len(cs))
	for i, c := range cs {
		refs[i] = c.Message.Ref
	}
	return refs
}

// actions are the four ways to settle, with the words that the test names use.
var actions = []struct {
	name    string
	action  storage.Action
	outcome storage.Outcome
}{
	{"complete", storage.ActionComplete, storage.OutcomeCompleted},
	{"retry", storage.ActionRetry, storage.OutcomeRetried},
	{"dead_letter", storage.ActionDeadLetter, storage.OutcomeDead},
	{"release", storage.ActionRelease, storage.OutcomeReleased},
}

// sameTime requires one instant, in UTC.
func sameTime(t require.TestingT, want, got time.Time, what string) {
	if h, ok := t.(interface{ Helper() }); ok {
		h.Helper()
	}
	require.True(t, want.Equal(got), "%s: want %v, got %v", what, want.UTC(), got.UTC())
	require.Equal(t, time.UTC, got.Location(), "%s is in UTC", what)
}
