package blackbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/worktest"
)

// streamRun is a load of Work streams that are cut and opened again at random, on servers
// that are killed meanwhile. It ends when every message is completed.
type streamRun struct {
	clients []*Client
	seed    uint64
	// completed holds the completions that were answered, by message.
	mu        sync.Mutex
	completed map[string]time.Time
	problems  []string

	streams, cut, delivered atomic.Int64
}

func (r *streamRun) problem(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.problems) < 20 {
		r.problems = append(r.problems, fmt.Sprintf(format, args...))
	}
}

// done notes a completion. A message that is completed twice has one time (S5).
func (r *streamRun) done(id string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, twice := r.completed[id]; twice && !before.Equal(at) {
		r.problems = append(r.problems, fmt.Sprintf("S7: %s was completed at %v and at %v", id, before, at))
	}
	r.completed[id] = at
}

func (r *streamRun) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.completed)
}

// worker opens one stream after the other until ctx ends.
func (r *streamRun) worker(ctx context.Context, n int) {
	rnd := rand.New(rand.NewPCG(r.seed, uint64(n)))
	for ctx.Err() == nil {
		r.streams.Add(1)
		r.stream(ctx, rnd)
		select {
		case <-time.After(time.Duration(rnd.IntN(30)) * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// stream works over one stream: every frame that comes is dealt with, then the next is read.
func (r *streamRun) stream(ctx context.Context, rnd *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	stream, err := r.clients[rnd.IntN(len(r.clients))].Work(ctx)
	if err != nil {
		return
	}
	given, got := 1+rnd.IntN(20), 0
	start := &queueboxv1.WorkStart{Queue: "q", WorkerId: "w", LeaseMs: 1_500, ReleaseOnClose: rnd.IntN(2) == 0}
	if rnd.IntN(3) == 0 {
		start.MaxOutstandingBytes = int64(1 + rnd.IntN(200))
	}
	err = stream.Send(&queueboxv1.WorkRequest{Start: start, Credit: int32(given)})
	sequence := int64(0)
	asked := map[int64][]*queueboxv1.SettleItem{}
	half := false
	for err == nil {
		var out *queueboxv1.WorkResponse
		if out, err = stream.Recv(); err != nil {
			break
		}
		if got += len(out.GetDeliveries()); got > given {
			r.problem("T3: %d deliveries for a credit of %d", got, given)
		}
		r.delivered.Add(int64(len(out.GetDeliveries())))
		if out.GetSequence() > 0 {
			items, known := asked[out.GetSequence()]
			if !known {
				r.problem("T1: an answer with sequence %d, which nothing waits for", out.GetSequence())
			}
			delete(asked, out.GetSequence())
			r.answered(items, out.GetSettleResults())
		}
		if out.GetDraining() {
			break
		}
		if len(out.GetDeliveries()) == 0 || half {
			continue
		}
		sequence++
		req := &queueboxv1.WorkRequest{Sequence: sequence}
		for _, m := range out.GetDeliveries() {
			switch rnd.IntN(20) {
			case 0: // forgotten
			case 1:
				req.Settlements = append(req.Settlements, &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_Retry{Retry: &queueboxv1.RetryRequest{
					MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(), DelayMs: proto.Int64(0),
				}}})
			case 2:
				req.Settlements = append(req.Settlements, &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_Release{Release: &queueboxv1.ReleaseRequest{
					MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(),
				}}})
			case 3:
				req.Renewals = append(req.Renewals, renewals(m)...)
				fallthrough
			default:
				req.Settlements = append(req.Settlements, worktest.Completions(0, m).GetSettlements()...)
			}
		}
		req.Credit = int32(rnd.IntN(2 * len(out.GetDeliveries())))
		given += int(req.GetCredit())
		asked[sequence] = req.GetSettlements()
		switch rnd.IntN(20) {
		case 0:
			r.cut.Add(1)
			return // and the stream is cut, with what was asked for in it or not
		case 1:
			half = true
			if err = stream.Send(req); err == nil {
				err = stream.CloseSend()
			}
		default:
			err = stream.Send(req)
		}
		if given == got && !half {
			given++
			err = stream.Send(&queueboxv1.WorkRequest{Credit: 1})
		}
	}
	if half && ended(err) && len(asked) > 0 {
		r.problem("T1: the stream ended OK without the answers to %d frames", len(asked))
	}
}

func (r *streamRun) answered(items []*queueboxv1.SettleItem, results []*queueboxv1.SettleResult) {
	if len(items) != len(results) {
		r.problem("S11: %d results for %d settlements", len(results), len(items))
		return
	}
	for i, res := range results {
		if e := res.GetError(); e != nil {
			if code := codes.Code(e.GetCode()); code != codes.Unavailable && code != codes.FailedPrecondition {
				r.problem("a settlement was answered %v", e)
			}
			continue
		}
		if c := items[i].GetComplete(); c != nil {
			if c.GetMessageId() != res.GetMessageId() {
				r.problem("S11: %s stands in the place of %s", res.GetMessageId(), c.GetMessageId())
			}
			r.done(c.GetMessageId(), res.GetCompleteTime().AsTime())
		}
	}
}

// TestT3RandomWorkStreams: whatever is cut or killed, no stream is delivered more than it asked
// for, and every message is completed once.
func TestT3RandomWorkStreams(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		const n, workers = 2_000, 6
		var servers []*Server
		r := &streamRun{seed: setting(t, "QUEUEBOX_TEST_SEED", uint64(time.Now().UnixNano())), completed: map[string]time.Time{}}
		for range db.Servers {
			s := db.Start(t, shortLeases, "--queue-max-attempts=1000")
			servers, r.clients = append(servers, s), append(r.clients, s.Client(t))
		}
		t.Logf("seed %d", r.seed)
		ids := enqueueMany(t, r.clients[0], "q", n)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range workers {
			wg.Go(func() { r.worker(ctx, i) })
		}
		kills := 0
		for end := time.Now().Add(90 * time.Second); r.finished(t) < n && time.Now().Before(end); {
			// The servers are killed while there is something to do.
			if r.count() > (kills+1)*n/4 && kills < 3 {
				s := servers[kills%len(servers)]
				s.Kill()
				kills++
				s.Restart()
			}
			time.Sleep(20 * time.Millisecond)
		}
		cancel()
		wg.Wait()
		t.Logf("%d streams, %d cut, %d deliveries, %d completions answered, %d kills", r.streams.Load(), r.cut.Load(), r.delivered.Load(), r.count(), kills)
		require.Empty(t, r.problems)
		require.Positive(t, kills)
		require.Positive(t, r.cut.Load())
		for _, id := range ids {
			m := message(t, r.clients[0], "q", id)
			require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_COMPLETED, m.GetState())
		}
	})
}

// finished counts the messages that are completed, answered or not.
func (r *streamRun) finished(t *testing.T) int {
	t.Helper()
	out, err := r.clients[0].Admin.GetQueueStats(within(t), &queueboxv1.GetQueueStatsRequest{Queue: "q"})
	if err != nil {
		return 0 // it was killed a moment ago
	}
	return int(out.GetCompletedCount())
}
