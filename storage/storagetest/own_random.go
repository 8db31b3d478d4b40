package storagetest

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/server/wireid"
	"github.com/queuebox/queuebox/storage"
)

// ownOpenFor is how long the transaction of ownOpen stays open; environment-free, since the
// rule is the same for a minute, only dearer.
const ownOpenFor = 3 * time.Second

// ownOpen: a transaction that stays open, with a mark and messages of a key in it, keeps
// nobody waiting: neighbours of the row, of the key and of the tables go on at their pace.
func ownOpen(t *testing.T, e *env) {
	const slow = time.Second
	e.enqueue(t, e.message(ordered("k1")), e.message(ordered("k1")), e.message(ordered("k2")), e.message(ordered("k2")))
	s := e.begin(t, e.anyLevel()) // before the claim, since the lease is short
	mine := e.claimOneAs(t, "mine", 200*time.Millisecond)
	rows, err := e.mark(s, t, mine, storage.ActionComplete)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.NoError(t, e.appendOwn(s, t, e.message(ordered("k2"), payload([]byte("open")))))
	require.NoError(t, e.appendOwn(s, t, e.message(payload([]byte("open")))))
	quick := func(what string, f func()) {
		t.Helper()
		began := time.Now()
		f()
		require.Less(t, time.Since(began), slow, what)
	}
	rounds := 0
	for began := time.Now(); time.Since(began) < ownOpenFor; rounds++ {
		quick("enqueue", func() { e.enqueue(t, e.message(), e.message(ordered("k2"))) })
		quick("own enqueue", func() { e.enqueueOwn(t, e.message(), e.message(ordered("k2")), e.message(ordered("k1"))) })
		quick("place", func() { require.Equal(t, 3, e.place(t).Placed) })
		var got []storage.Claimed
		quick("claim", func() { got = e.claimN(t, 100) })
		require.NotEmpty(t, got)
		for i, c := range got {
			require.NotEqual(t, mine.Message.Ref, c.Message.Ref, "the row lock holds the claim")
			require.NotEqual(t, "k1", c.Message.OrderingKey, "its key stands")
			if i%2 == 0 {
				quick("settle", func() { e.complete(t, c) })
			} else {
				quick("own settle", func() { e.marked(t, settlement(c, storage.ActionComplete)) })
			}
		}
		quick("finish", func() { e.finishMarks(t) })
		quick("sweep", func() { e.sweepAll(t, 100) })
	}
	require.Greater(t, rounds, 3)
	require.NoError(t, s.Commit())
	require.Len(t, e.finishMarks(t).Finished, 1)
	require.Equal(t, 2, e.place(t).Placed)
	found := map[string]bool{}
	for _, c := range e.claimN(t, 100) {
		found[c.Message.OrderingKey] = true
	}
	require.True(t, found["k1"], "the key goes on")
}

// ownLoad is a random run over one queue.
type ownLoad struct {
	*env

	t     *testing.T
	table string
	stop  atomic.Bool
	// Where a session that writes holds the whole database, everybody waits for it: what is
	// held is held for a shorter time, and leases are longer.
	lease, late, long time.Duration

	mu sync.Mutex
	// sent are the committed messages: producer/number, in the order of each producer.
	plain  int
	idem   map[string]bool
	counts map[string]int
	claims map[storage.Ref]int32
	faults []string
}

func (l *ownLoad) count(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[what]++
}

func (l *ownLoad) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

// ownRandom: producers and workers with transactions of their own at random levels, held,
// rolled back and killed; placers and finishers of two servers whose connections break;
// settlements by the store beside them; then what is left must add up.
func ownRandom(t *testing.T, e *env) {
	set := settings()
	set.MaxAttempts, set.Retry = 6, storage.RetryPolicy{Min: 5 * time.Millisecond, Max: 50 * time.Millisecond, Multiplier: 2}
	e = e.on(e.newQueue(t, set))
	l := &ownLoad{
		env: e, t: t, table: fmt.Sprintf("own_business_%d", e.queue.ID),
		lease: 300 * time.Millisecond, late: 400 * time.Millisecond, long: 700 * time.Millisecond,
		idem: map[string]bool{}, counts: map[string]int{}, claims: map[storage.Ref]int32{},
	}
	if !e.caps.RowLocks {
		l.lease, l.late, l.long = 1200*time.Millisecond, 1300*time.Millisecond, 30*time.Millisecond
	}
	e.in.Own.Exec(t, "CREATE TABLE "+l.table+" (message_id TEXT NOT NULL, claim_token TEXT NOT NULL, outcome TEXT NOT NULL)")
	var load, upkeep sync.WaitGroup
	for p := range 3 {
		load.Go(func() { l.produce(p) })
	}
	for w := range 5 {
		load.Go(func() { l.work(w) })
	}
	var stopUpkeep atomic.Bool
	for _, store := range []storage.Store{e.store, e.other} {
		upkeep.Go(func() { l.serve(store, &stopUpkeep) })
	}
	upkeep.Go(func() { l.check(&stopUpkeep) })
	for range 8 {
		time.Sleep(time.Second) // the load runs; nothing is waited for
		if e.in.Sever != nil {
			e.in.Sever(t)
		}
	}
	l.stop.Store(true)
	load.Wait()
	stopUpkeep.Store(true)
	upkeep.Wait()
	l.drain()
	l.verify()
	t.Logf("%d messages; %v", l.plain+len(l.idem), l.counts)
	for _, what := range []string{"mark committed", "mark rolled back", "mark killed", "mark lost", "enqueue rolled back"} {
		require.NotZero(t, l.counts[what], "the run did not meet: %s", what)
	}
}

func (l *ownLoad) level() string {
	levels := l.in.Own.Levels
	return levels[rand.IntN(len(levels))]
}

func (l *ownLoad) produce(p int) {
	for n := 0; !l.stop.Load(); {
		s := l.begin(failLater{}, l.level())
		plain, idem := 0, []string(nil)
		var err error
		for range 1 + rand.IntN(5) {
			n++
			m := l.message(payload(fmt.Appendf(nil, "%d/%06d", p, n)))
			if rand.IntN(5) > 0 {
				m.OrderingKey = fmt.Sprintf("k%d", rand.IntN(15))
			}
			if rand.IntN(5) == 0 {
				i := rand.IntN(300)
				m.IdempotencyKey, m.OrderingKey, m.Payload = fmt.Sprintf("i%d", i), fmt.Sprintf("k%d", i%15), fmt.Appendf(nil, "i%d", i)
				idem = append(idem, m.IdempotencyKey)
			} else {
				plain++
			}
			if err = l.appendOwn(s, failLater{}, m); err != nil {
				break
			}
		}
		if rand.IntN(10) == 0 {
			time.Sleep(rand.N(l.long)) // a transaction that takes its time
		}
		switch {
		case err != nil || rand.IntN(7) == 0:
			_ = s.Rollback()
			l.count("enqueue rolled back")
		case rand.IntN(30) == 0:
			s.Kill()
			l.count("enqueue killed")
		default:
			if err := s.Commit(); err != nil {
				if !l.in.Own.Conflict(err) {
					l.fault("commit of an enqueue: %v", err)
				}
				l.count("enqueue conflict")
				continue
			}
			l.count("enqueue committed")
			l.mu.Lock()
			l.plain += plain
			for _, k := range idem {
				l.idem[k] = true
			}
			l.mu.Unlock()
		}
		time.Sleep(rand.N(40 * time.Millisecond)) // so that workers keep up
	}
}

func (l *ownLoad) work(w int) {
	for !l.stop.Load() {
		res, err := l.store.Claim(l.t.Context(), storage.ClaimParams{
			QueueID: l.queue.ID, Calls: []storage.ClaimCall{call(fmt.Sprint("w", w), 1+rand.IntN(4), l.lease)},
		})
		if err != nil || len(res.Calls[0].Messages) == 0 {
			time.Sleep(5 * time.Millisecond) // nothing there
			continue
		}
		for _, c := range res.Calls[0].Messages {
			l.mu.Lock()
			l.claims[c.Message.Ref] = max(l.claims[c.Message.Ref], c.Message.Attempt)
			l.mu.Unlock()
			switch z := rand.IntN(100); {
			case z < 65:
				l.settleOwn(c)
			case z < 92:
				a := ownActions[rand.IntN(3)]
				_, _ = l.store.Settle(l.t.Context(), storage.SettleParams{Items: []storage.Settlement{
					{Ref: c.Message.Ref, Token: c.Token, Action: a, HasDelay: true},
				}})
				l.count("settled by the store")
			default:
				l.count("left to its lease")
			}
		}
	}
}

// settleOwn settles in a transaction with a business row.
func (l *ownLoad) settleOwn(c storage.Claimed) {
	if rand.IntN(8) == 0 {
		time.Sleep(rand.N(l.late)) // too long for some
	}
	s := l.begin(failLater{}, l.level())
	item := storage.Settlement{Ref: c.Message.Ref, Token: c.Token, Action: ownActions[[]int{0, 0, 0, 0, 1, 2}[rand.IntN(6)]], HasDelay: rand.IntN(2) == 0}
	rows, err := l.markAs(s, failLater{}, item)
	if err == nil && len(rows) == 1 {
		_, err = s.Query(fmt.Sprintf("INSERT INTO %s VALUES ('%s', '%s', '%s')", l.table,
			wireid.Message(c.Message.Ref), wireid.Token(c.Token), rows[0][0]))
	}
	if err != nil {
		_ = s.Rollback()
		if !l.in.Own.Conflict(err) {
			l.fault("mark: %v", err)
		}
		l.count("mark conflict")
		return
	}
	if len(rows) == 0 {
		_ = s.Rollback()
		l.count("mark lost")
		return
	}
	if rand.IntN(8) == 0 {
		time.Sleep(rand.N(l.long)) // past the end of the lease
	}
	switch z := rand.IntN(100); {
	case z < 12:
		_ = s.Rollback()
		l.count("mark rolled back")
	case z < 16:
		s.Kill()
		l.count("mark killed")
	default:
		if err := s.Commit(); err != nil {
			if !l.in.Own.Conflict(err) {
				l.fault("commit of a mark: %v", err)
			}
			l.count("mark conflict")
			return
		}
		l.count("mark committed")
	}
}

// serve is what a server does beside the calls.
func (l *ownLoad) serve(store storage.Store, stop *atomic.Bool) {
	var after storage.Ref
	for !stop.Load() {
		ctx := l.t.Context()
		_, _ = store.Place(ctx, storage.PlaceParams{Limit: 20})
		_, _ = store.Finish(ctx, storage.FinishParams{Limit: 10})
		res, err := store.Sweep(ctx, storage.SweepParams{After: after, Limit: 200})
		if err == nil {
			after = res.Next
		}
		_, _ = store.SweepKeys(ctx, storage.SweepKeysParams{Limit: 100})
		time.Sleep(rand.N(10 * time.Millisecond)) // its pace
	}
}

// check looks for two live leases of a key (O1).
func (l *ownLoad) check(stop *atomic.Bool) {
	for !stop.Load() {
		res, err := l.other.ListMessages(l.t.Context(), storage.ListMessagesParams{
			QueueID: l.queue.ID, States: []storage.State{storage.StateProcessing}, Limit: 1000,
		})
		now, errNow := l.other.Now(l.t.Context())
		if err == nil && errNow == nil {
			held := map[string]storage.Ref{}
			for _, m := range res.Messages {
				if m.OrderingKey == "" || !m.LeaseEnd.After(now) {
					continue
				}
				if ref, ok := held[m.OrderingKey]; ok {
					l.fault("O1: %v and %v of key %s are both leased", ref, m.Ref, m.OrderingKey)
				}
				held[m.OrderingKey] = m.Ref
			}
			l.count("looks")
		}
		time.Sleep(20 * time.Millisecond) // its pace
	}
}

// drain settles whatever is left. A message that can never be had is stuck.
func (l *ownLoad) drain() {
	deadline := time.Now().Add(60 * time.Second)
	for time.Now().Before(deadline) {
		ctx := l.t.Context()
		_, _ = l.store.Place(ctx, storage.PlaceParams{Limit: 1000})
		_, _ = l.store.Finish(ctx, storage.FinishParams{Limit: 1000})
		l.sweepAll(l.t, 1000)
		_, _ = l.store.SweepKeys(ctx, storage.SweepKeysParams{Limit: 1000})
		res, err := l.store.Claim(ctx, storage.ClaimParams{QueueID: l.queue.ID, Calls: []storage.ClaimCall{call("drain", 200, lease)}})
		require.NoError(l.t, err)
		for _, c := range res.Calls[0].Messages {
			l.claims[c.Message.Ref] = max(l.claims[c.Message.Ref], c.Message.Attempt)
			l.complete(l.t, c)
		}
		stats, err := l.store.QueueStats(ctx, l.queue.ID)
		require.NoError(l.t, err)
		if stats.Ready+stats.Delayed+stats.Blocked+stats.Leased+stats.LeaseExpired == 0 && len(res.Calls[0].Messages) == 0 {
			if int(stats.Completed+stats.Dead) >= l.plain+len(l.idem) {
				return
			}
		}
	}
	l.fault("O9: something is stuck")
}

func (l *ownLoad) verify() {
	t := l.t
	final := map[storage.Ref]storage.Message{}
	lastOf := map[string]int{} // producer and key -> number of the last message
	var before int64
	for {
		res, err := l.store.ListMessages(t.Context(), storage.ListMessagesParams{QueueID: l.queue.ID, Payload: true, Before: before, Limit: 1000})
		require.NoError(t, err)
		for _, m := range res.Messages { // newest first
			final[m.Ref] = m
			var p, n int
			if _, err := fmt.Sscanf(string(m.Payload), "%d/%d", &p, &n); err != nil || m.OrderingKey == "" {
				continue
			}
			lane := strconv.Itoa(p) + "/" + m.OrderingKey
			if last, ok := lastOf[lane]; ok && n > last {
				l.fault("order of %s: %d stands before %d", lane, n, last)
			}
			lastOf[lane] = n
			if m.Attempt < l.claims[m.Ref] {
				l.fault("%v ended at attempt %d and was handed out for attempt %d", m.Ref, m.Attempt, l.claims[m.Ref])
			}
		}
		if before = res.Next; before == 0 {
			break
		}
	}
	require.Len(t, final, l.plain+len(l.idem), "committed less duplicates = placed")
	s := l.begin(t, l.anyLevel())
	rows, err := s.Query("SELECT message_id, claim_token, outcome FROM " + l.table)
	require.NoError(t, err)
	require.NotEmpty(t, rows)
	finals := map[string]string{}
	for _, r := range rows {
		got, err := s.Query(l.sqlOf(t, storage.TransactionOutcome), r[0], r[1])
		require.NoError(t, err)
		if len(got) != 1 || got[0][0] != r[2] {
			l.fault("a business row says %s of %s, the history %v", r[2], r[0], got)
		}
		if r[2] == "RETRIED" {
			continue
		}
		if other, ok := finals[r[0]]; ok {
			l.fault("%s was settled for good twice: %s, %s", r[0], other, r[2])
		}
		finals[r[0]] = r[2]
		ref, err := wireid.ParseMessage(r[0])
		require.NoError(t, err)
		want := map[string]storage.State{"COMPLETED": storage.StateCompleted, "DEAD": storage.StateDead}[r[2]]
		if m := final[ref]; m.State != want {
			l.fault("%v is in state %d, its business row says %s", ref, m.State, r[2])
		}
	}
	require.NoError(t, s.Commit())
	require.Empty(t, l.faults)
}
