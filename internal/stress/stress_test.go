package stress

import (
	"database/sql"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/blackbox"
)

var (
	length = flag.Duration("stress", 12*time.Second, "how long the load runs on each engine")
	seed   = flag.Uint64("stress-seed", 0, "seed of the random choices; 0 draws one")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(blackbox.Main(m))
}

// The load: see the fields of run.
const (
	claimers  = 6
	streamers = 3
	producers = 3
	keyCount  = 50
	lease     = time.Second
	// maxPending keeps the backlog short enough for a look every 10 ms.
	maxPending = 1500
	// stuckAfter is how long after the end of the load everything must be settled,
	// claimable, delayed, or behind exactly one head (O9).
	stuckAfter = 5 * time.Second
	drainLimit = 2 * time.Minute
)

// The queues: in one the dead are passed over, in the other they block (O7).
const (
	skipQueue  = "stress-skip"
	blockQueue = "stress-block"
)

// TestStress is the stress run of `make stress`, short by default. Two server processes, one
// on SQLite; each is killed now and then.
func TestStress(t *testing.T) {
	for _, e := range blackbox.Engines() {
		t.Run(e.Name, func(t *testing.T) { stress(t, e.Make(t)) })
	}
}

func stress(t *testing.T, db *blackbox.Database) {
	t.Helper()
	r := &run{t: t, engine: db.Engine, seed: *seed}
	if r.seed == 0 {
		r.seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", r.seed)
	for range db.Servers {
		s := db.Start(t, "--queue-min-lease=100ms")
		r.servers = append(r.servers, s)
		r.clients = append(r.clients, s.Client(t))
	}
	r.createQueues()
	r.db = db.Open(t)
	r.db.SetMaxOpenConns(4)
	before := r.deadlocks()

	started := time.Now()
	r.load(*length)
	r.lookAfterLoad()
	r.drain()
	r.stopAll()
	finals := r.finals()
	finals.deadlocks = r.deadlocks() - before
	problems, more := r.history.Judge()
	t.Logf("%s, %v of load: %s", db.Name, length.Round(time.Second), r.history.Counts())
	t.Logf("%d answers named follow-ups; %d Work streams", r.followUpsMade.Load(), r.streams.Load())
	t.Logf("%d kills of servers, %d looks, %d claims abandoned, %d repeats of a claim id, longest wait from the end of the load until empty %v",
		r.kills.Load(), r.looks.Load(), r.abandoned.Load(), r.replays.Load(), r.drained.Round(time.Millisecond))
	t.Logf("at the end: %d completed, %d dead, %d cancelled, %d live; %d deadlocks; %d violations; %v in all",
		finals.completed, finals.dead, finals.cancelled, finals.live, finals.deadlocks, len(problems)+more, time.Since(started).Round(time.Second))
	for _, p := range problems {
		t.Error(p)
	}
	if more > 0 {
		t.Errorf("and %d more", more)
	}
	require.Zero(t, finals.live, "messages left")
	if !r.sql().neighbours || *length > time.Minute { // such a run is alone
		most := 0
		if per := r.sql().perDeadlock; per > 0 {
			most = (finals.completed + finals.cancelled + finals.dead) / per
		}
		require.LessOrEqual(t, finals.deadlocks, most, "deadlocks")
	}
	require.Positive(t, r.looks.Load())
	require.Positive(t, r.streams.Load())
	require.Positive(t, finals.completed)
	if *length > time.Minute {
		// A run that did not do what it is for proves nothing.
		require.Positive(t, r.kills.Load())
		require.Positive(t, r.replays.Load())
		require.Positive(t, finals.cancelled)
	}
}

func (r *run) createQueues() {
	r.t.Helper()
	ids := map[string]int32{}
	for name, mode := range map[string]queueboxv1.OrderingMode{
		skipQueue:  queueboxv1.OrderingMode_ORDERING_MODE_SKIP_DEAD,
		blockQueue: queueboxv1.OrderingMode_ORDERING_MODE_BLOCK_ON_DEAD,
	} {
		_, err := r.clients[0].Admin.CreateQueue(r.t.Context(), &queueboxv1.CreateQueueRequest{Queue: &queueboxv1.Queue{
			Queue: name, OrderingMode: mode, MaxAttempts: 4,
			MinLeaseMs: 100, MaxLeaseMs: 60_000, DefaultLeaseMs: lease.Milliseconds(),
			RetryPolicy:          &queueboxv1.RetryPolicy{MinBackoffMs: 10, MaxBackoffMs: 200, Multiplier: 2, Jitter: 0.5},
			CompletedRetentionMs: (24 * time.Hour).Milliseconds(),
		}})
		require.NoError(r.t, err)
		out, err := r.clients[0].Enqueue(r.t.Context(), &queueboxv1.EnqueueRequest{Queue: name})
		require.NoError(r.t, err)
		ids[name] = refOf(r.t, out.GetMessageId()).QueueID
	}
	r.queueIDs = ids
	r.history = NewHistory(ids[blockQueue])
}

// load runs everything for the given time.
func (r *run) load(d time.Duration) {
	end := time.Now().Add(d)
	r.produce.until(end)
	r.disturb.until(end)
	r.work.until(end.Add(stuckAfter + drainLimit + time.Minute))
	var load sync.WaitGroup
	for i := range producers {
		load.Go(func() { r.producer(i) })
	}
	load.Go(r.canceller)
	load.Go(r.killer)
	for i := range claimers {
		r.workers.Go(func() { r.claimer(i) })
	}
	for i := range streamers {
		r.workers.Go(func() { r.streamer(i) })
	}
	r.workers.Go(r.redriver)
	r.workers.Go(r.looker)
	load.Wait()
	r.ended = time.Now()
}

// lookAfterLoad checks O9 five seconds after the load ended.
func (r *run) lookAfterLoad() {
	time.Sleep(time.Until(r.ended.Add(stuckAfter)))
	for _, line := range r.query(r.sql().stuck) {
		r.history.Fail("O9", "%v after the load: %s", stuckAfter, line)
	}
}

// drain lets the claimers go on until nothing is live.
func (r *run) drain() {
	r.draining.Store(true)
	for end := time.Now().Add(drainLimit); ; time.Sleep(50 * time.Millisecond) {
		live := r.query(r.sql().live)
		if len(live) == 1 && live[0] == "0" {
			break
		}
		if time.Now().After(end) {
			r.history.Fail("O9", "%v after the load: %v messages are live", time.Since(r.ended).Round(time.Second), live)
			for _, line := range r.query(r.sql().left) {
				r.t.Log("left: " + line)
			}
			break
		}
	}
	r.drained = time.Since(r.ended)
}

func (r *run) stopAll() {
	r.work.stop()
	r.workers.Wait()
}

type finals struct{ completed, dead, cancelled, live, deadlocks int }

// finals reads what the messages have become: each acknowledged one is there once (D3, D4).
func (r *run) finals() finals {
	var f finals
	where := map[[2]int64][]string{}
	rows, err := r.db.QueryContext(r.t.Context(), r.sql().finals)
	require.NoError(r.t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var (
			queueID         int32
			position, state int64
			finish          float64
		)
		require.NoError(r.t, rows.Scan(&queueID, &position, &state, &finish))
		at := time.UnixMicro(int64(finish * 1e6))
		ref := ref(queueID, position)
		name := map[int64]string{0: "live", 1: "live", 3: "live", 2: "completed", 4: "dead", 5: "cancelled"}[state]
		where[[2]int64{int64(queueID), position}] = append(where[[2]int64{int64(queueID), position}], name)
		switch name {
		case "completed":
			f.completed++
		case "dead":
			f.dead++
			r.history.SeenDead(ref, at)
		case "cancelled":
			f.cancelled++
			r.history.SeenDead(ref, at)
		default:
			f.live++
		}
	}
	require.NoError(r.t, rows.Err())
	for _, ref := range r.history.Acknowledged() {
		got := where[[2]int64{int64(ref.QueueID), ref.Position}]
		switch {
		case len(got) == 0:
			r.history.Fail("E10", "%v was acknowledged and is not there", ref)
		case len(got) > 1:
			r.history.Fail("S1", "%v is there %d times: %v", ref, len(got), got)
		case r.history.Completed(ref) && got[0] != "completed":
			r.history.Fail("S3", "%v: its completion was acknowledged, and it is %s", ref, got[0])
		}
	}
	return f
}

// deadlocks counts those that the database had to end so far.
func (r *run) deadlocks() int {
	text := r.sql().deadlocks
	if text == "" {
		return 0
	}
	// PostgreSQL tells its counters with a delay.
	time.Sleep(1500 * time.Millisecond)
	var n int
	require.NoError(r.t, r.db.QueryRowContext(r.t.Context(), text).Scan(&n))
	return n
}

// query runs a statement of the checker and gives its rows as text.
func (r *run) query(text string) []string {
	rows, err := r.db.QueryContext(r.t.Context(), text)
	if err != nil {
		r.history.Fail("look", "%v", err)
		return nil
	}
	defer func() { _ = rows.Close() }()
	names, _ := rows.Columns()
	var out []string
	for rows.Next() {
		values, into := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			r.history.Fail("look", "%v", err)
			return out
		}
		line := ""
		for i, v := range values {
			if i > 0 {
				line += " "
			}
			line += v.String
		}
		out = append(out, line)
	}
	if err := rows.Err(); err != nil {
		r.history.Fail("look", "%v", err)
	}
	return out
}

// looker looks into the database every 10 ms: no key has two heads, or two live leases (O1).
func (r *run) looker() {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !r.work.over() {
		for _, line := range r.query(r.sql().look) {
			r.history.Fail("O1", "seen in the database: %s", line)
		}
		r.looks.Add(1)
		<-tick.C
	}
}

func describe(err error) string { return fmt.Sprint(err) }
