package blackbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/proxy"
)

// setting reads a number from the environment of the tests.
func setting(t *testing.T, name string, or uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return or
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, name)
	return n
}

const crashQueue = "crash"

// crashRun is one run of the crash test.
type crashRun struct {
	ledger *ledger
	seed   uint64

	produce context.Context //nolint:containedctx // ends the producers
	work    context.Context //nolint:containedctx // ends the workers
}

// call makes a call until somebody answers it: with OK, or with an error that says
// more than "not now". It changes servers as a client would.
func call[T any](ctx context.Context, r *crashRun, rnd *rand.Rand, clients []*Client, do func(ctx context.Context, c *Client) (T, error)) (T, error) {
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		out, err := do(attempt, clients[rnd.IntN(len(clients))])
		cancel()
		switch status.Code(err) {
		case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
			// Cut off, cut short, or the database was: the next attempt tells.
		case codes.Internal, codes.Unknown, codes.DataLoss, codes.ResourceExhausted:
			r.ledger.problem("a call failed with %v", err)
			return out, err
		default:
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, ctx.Err()
		case <-time.After(time.Duration(5+rnd.IntN(20)) * time.Millisecond):
		}
	}
}

// producer enqueues until told to stop and repeats each call until it is answered.
func (r *crashRun) producer(n int, clients []*Client) {
	rnd := rand.New(rand.NewPCG(r.seed, uint64(100+n)))
	for i := 0; r.produce.Err() == nil; {
		if r.ledger.open() > maxOpen {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		var req queueboxv1.BatchEnqueueRequest
		for range 1 + rnd.IntN(3)*rnd.IntN(4) {
			key := fmt.Sprintf("p%d-%d", n, i)
			req.Requests = append(req.Requests, &queueboxv1.EnqueueRequest{
				Queue: crashQueue, IdempotencyKey: key, OrderingKey: crashKey(rnd), Payload: []byte("payload of " + key),
			})
			i++
		}
		// The last call is finished, too: the work context ends later.
		if len(req.GetRequests()) == 1 {
			out, err := call(r.work, r, rnd, clients, func(ctx context.Context, c *Client) (*queueboxv1.EnqueueResponse, error) {
				return c.Enqueue(ctx, req.GetRequests()[0])
			})
			if err != nil {
				r.ledger.problem("enqueue: %v", err)
				return
			}
			r.ledger.enqueued(req.GetRequests()[0].GetIdempotencyKey(), out.GetMessageId())
			continue
		}
		out, err := call(r.work, r, rnd, clients, func(ctx context.Context, c *Client) (*queueboxv1.BatchEnqueueResponse, error) {
			return c.BatchEnqueue(ctx, &req)
		})
		if err != nil {
			r.ledger.problem("enqueue: %v", err)
			return
		}
		for j, one := range out.GetResponses() {
			r.ledger.enqueued(req.GetRequests()[j].GetIdempotencyKey(), one.GetMessageId())
		}
	}
}

// worker claims and settles until told to stop. Some of its claims it forgets, some it
// outsleeps, as workers do.
func (r *crashRun) worker(n int, clients []*Client) {
	rnd := rand.New(rand.NewPCG(r.seed, uint64(200+n)))
	for r.work.Err() == nil {
		req := &queueboxv1.ClaimRequest{
			Queue: crashQueue, LeaseMs: 1_000, MaxMessages: 1 + rnd.Int32N(8), WaitMs: int64(rnd.IntN(3) * 150),
			WorkerId: fmt.Sprintf("w%d", n), ClaimId: newClaimID(),
		}
		out, err := call(r.work, r, rnd, clients, func(ctx context.Context, c *Client) (*queueboxv1.ClaimResponse, error) { return c.Claim(ctx, req) })
		if err != nil {
			if r.work.Err() == nil {
				r.ledger.problem("claim: %v", err)
			}
			continue
		}
		for _, m := range out.GetMessages() {
			r.ledger.claimed(m)
		}
		if n%2 == 0 && len(out.GetMessages()) > 1 {
			r.completeAll(rnd, clients, out.GetMessages())
			continue
		}
		for _, m := range out.GetMessages() {
			r.handle(rnd, clients, m)
		}
	}
}

func (r *crashRun) handle(rnd *rand.Rand, clients []*Client, m *queueboxv1.ClaimedMessage) {
	id, token := m.GetMessage().GetMessageId(), m.GetClaimToken()
	// lostWhenOver accepts that a claim is lost only when its lease can be over.
	lostWhenOver := func(what string, err error) {
		if CheckStatus(err, Want{Code: codes.FailedPrecondition, Reason: "CLAIM_LOST"}) != nil {
			r.ledger.problem("%s of %s: %v", what, m.GetMessage().GetIdempotencyKey(), err)
		} else if left := time.Until(m.GetLeaseExpireTime().AsTime()); left > 100*time.Millisecond {
			r.ledger.problem("%s of %s: lost with %v of the lease left: %v", what, m.GetMessage().GetIdempotencyKey(), left, err)
		}
	}
	switch dice := rnd.IntN(100); {
	case dice < 3: // the worker dies
		return
	case dice < 6: // the worker sleeps past its lease, and says it is done
		time.Sleep(time.Until(m.GetLeaseExpireTime().AsTime()) + 50*time.Millisecond)
		_, err := call(r.work, r, rnd, clients, func(ctx context.Context, c *Client) (*queueboxv1.CompleteResponse, error) {
			return c.Complete(ctx, completion(crashQueue, m))
		})
		if r.work.Err() == nil && CheckStatus(err, Want{Code: codes.FailedPrecondition, Reason: "CLAIM_LOST"}) != nil {
			r.ledger.problem("S2: %s was settled by a lost claim: %v", m.GetMessage().GetIdempotencyKey(), err)
		}
		return
	case dice < 11:
		_, err := call(r.work, r, rnd, clients, func(ctx context.Context, c *Client) (*queueboxv1.RetryResponse, error) {
			return c.Retry(ctx, &queueboxv1.RetryRequest{Queue: crashQueue, MessageId: id, ClaimToken: token, DelayMs: proto.Int64(0), Error: "again"})
		})
		if err != nil {
			lostWhenOver("retry", err)
			return
		}
		r.ledger.settled(m, didRetry, time.Time{})
		return
	case dice < 16:
		_, err := call(r.work, r, rnd, clients, func(ctx context.Context, c *Client) (*queueboxv1.ReleaseResponse, error) {
			return c.Release(ctx, &queueboxv1.ReleaseRequest{Queue: crashQueue, MessageId: id, ClaimToken: token})
		})
		if err != nil {
			lostWhenOver("release", err)
			return
		}
		r.ledger.settled(m, didRelease, time.Time{})
		return
	case dice < 30: // the worker needs longer, and renews
		out, err := call(r.work, r, rnd, clients, func(ctx context.Context, c *Client) (*queueboxv1.RenewResponse, error) {
			return c.Renew(ctx, &queueboxv1.RenewRequest{Queue: crashQueue, MessageId: id, ClaimToken: token, LeaseMs: 1_000})
		})
		if err != nil {
			lostWhenOver("renew", err)
			return
		}
		m.LeaseExpireTime = out.GetLeaseExpireTime()
		time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond)
	}
	repeats := 1
	if rnd.IntN(10) == 0 {
		repeats = 2
	}
	for i := range repeats {
		out, err := call(r.work, r, rnd, clients, func(ctx context.Context, c *Client) (*queueboxv1.CompleteResponse, error) {
			return c.Complete(ctx, completion(crashQueue, m))
		})
		if err != nil {
			if r.work.Err() == nil {
				lostWhenOver("complete", err)
			}
			return
		}
		if i > 0 && !out.GetAlreadySettled() {
			r.ledger.problem("S5: %s was completed twice", m.GetMessage().GetIdempotencyKey())
		}
		r.ledger.settled(m, didComplete, out.GetCompleteTime().AsTime())
	}
}

// completeAll completes a batch and repeats what was not answered for good.
func (r *crashRun) completeAll(rnd *rand.Rand, clients []*Client, ms []*queueboxv1.ClaimedMessage) {
	for len(ms) > 0 && r.work.Err() == nil {
		var req queueboxv1.BatchSettleRequest
		for _, m := range ms {
			req.Items = append(req.Items, &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_Complete{Complete: completion(crashQueue, m)}})
		}
		out, err := call(r.work, r, rnd, clients, func(ctx context.Context, c *Client) (*queueboxv1.BatchSettleResponse, error) {
			return c.BatchSettle(ctx, &req)
		})
		if err != nil {
			if r.work.Err() == nil {
				r.ledger.problem("batch: %v", err)
			}
			return
		}
		var again []*queueboxv1.ClaimedMessage
		for i, one := range out.GetResults() {
			switch {
			case one.GetError() == nil:
				r.ledger.settled(ms[i], didComplete, one.GetCompleteTime().AsTime())
			case codes.Code(one.GetError().GetCode()) == codes.Unavailable:
				again = append(again, ms[i])
			case CheckItem(one.GetError(), Want{Code: codes.FailedPrecondition, Reason: "CLAIM_LOST"}) != nil:
				r.ledger.problem("batch item: %v", one.GetError())
			case time.Until(ms[i].GetLeaseExpireTime().AsTime()) > 100*time.Millisecond:
				r.ledger.problem("batch: %s is lost before its lease ended: %v", ms[i].GetMessage().GetIdempotencyKey(), one.GetError())
			}
		}
		ms = again
	}
}

// underLoad waits until messages are finished again: a server that is killed while it
// starts, again and again, shows nothing but that nobody was served.
func (r *crashRun) underLoad(t *testing.T) {
	t.Helper()
	before := r.ledger.progress()
	require.Eventually(t, func() bool { return r.ledger.broken() || r.ledger.progress() >= before+5 }, time.Minute, time.Millisecond,
		"nobody is served after a kill")
}

// maxOpen bounds the messages that wait at a time. All workers together can hold as many,
// so that a message whose lease ended stands behind no other one for long.
const maxOpen = 40

// TestD4O1O5O9Crash kills the server with SIGKILL again and again under load, some of the
// times inside a COMMIT, whose answer a proxy cuts first; where the database is no file two
// servers are killed in turn. Nothing may be lost, doubled or stuck for longer than its
// lease, the attempts must be exact, and the messages of an ordering key must be delivered one
// at a time and in order (O1, O5, O9). QUEUEBOX_TEST_KILLS and QUEUEBOX_TEST_SEED
// make it longer or repeat it.
func TestD4O1O5O9Crash(t *testing.T) { // not parallel: its load would disturb the tests that measure times
	kills := int(setting(t, "QUEUEBOX_TEST_KILLS", 50))
	seed := setting(t, "QUEUEBOX_TEST_SEED", uint64(time.Now().UnixNano()))
	Together(t, func(t *testing.T, db *Database) {
		t.Logf("QUEUEBOX_TEST_SEED=%d QUEUEBOX_TEST_KILLS=%d", seed, kills)
		var (
			servers []*Server
			proxies []*proxy.Proxy
		)
		for range db.Servers {
			through := db
			if db.Proxied {
				var p *proxy.Proxy
				p, through = proxied(t, db)
				proxies = append(proxies, p)
			}
			servers = append(servers, through.Start(t))
		}
		_, err := servers[0].Client(t).Admin.CreateQueue(within(t), &queueboxv1.CreateQueueRequest{Queue: &queueboxv1.Queue{Queue: crashQueue, MaxAttempts: 100_000}})
		require.NoError(t, err)
		watch(t, db)

		produce, stopProducers := context.WithCancel(t.Context())
		work, stopWorkers := context.WithCancel(t.Context())
		defer stopWorkers()
		defer stopProducers()
		r := &crashRun{ledger: newLedger(), seed: seed, produce: produce, work: work}
		connect := func() []*Client {
			var all []*Client
			for _, s := range servers {
				all = append(all, s.Client(t))
			}
			return all
		}
		var producers, workers sync.WaitGroup
		for n := range 3 {
			clients := connect()
			producers.Go(func() { r.producer(n, clients) })
		}
		for n := range 6 {
			clients := connect()
			workers.Go(func() { r.worker(n, clients) })
		}

		rnd := rand.New(rand.NewPCG(seed, 1))
		inCommit := 0
		for i := 0; i < kills && !r.ledger.broken(); i++ {
			r.underLoad(t)
			if len(servers) == 1 && i > 0 {
				r.ledger.upAgain(time.Now())
			}
			time.Sleep(time.Duration(rnd.IntN(250)) * time.Millisecond)
			victim := i % len(servers)
			if db.Proxied && i%3 != 0 {
				cut := proxies[victim].CutAt(proxy.BeforeAnswer, proxy.Statement.Commits)
				select {
				case <-cut.Done():
					inCommit++
				case <-time.After(2 * time.Second):
					proxies[victim].Disarm()
				}
				if i%3 == 2 {
					// A cut that the server survives: it must not believe that nothing happened.
					time.Sleep(time.Duration(rnd.IntN(50)) * time.Millisecond)
				}
			}
			if len(servers) == 1 {
				r.ledger.downSince(time.Now())
			}
			servers[victim].Kill()
			servers[victim].Restart()
		}
		stopProducers()
		producers.Wait()
		require.False(t, slices.ContainsFunc(servers, func(s *Server) bool { return s.WaitServing(20*time.Second) != nil }))
		start := time.Now()
		r.ledger.upAgain(start)
		for r.ledger.open() > 0 && !r.ledger.broken() && time.Since(start) < 30*time.Second {
			time.Sleep(10 * time.Millisecond)
		}
		open := r.ledger.open()
		t.Logf("%d kills, %d of them with the answer of a commit cut; the rest drained in %v", kills, inCommit, time.Since(start))
		// Whoever sleeps past a lease wakes up and is refused before the end.
		time.Sleep(1200 * time.Millisecond)
		stopWorkers()
		workers.Wait()
		require.Zero(t, open, "messages are stuck")
		r.ledger.check(t, db, 10*time.Second)
		checkOrder(t, db)
		if db.Proxied {
			require.NotZero(t, inCommit)
		}
	})
}
