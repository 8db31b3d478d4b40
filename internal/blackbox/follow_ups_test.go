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

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/proxy"
)

func TestS10S5FollowUpsOverTheWire(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		a, b := everyServer(t, db, shortLeases)
		conn := db.Open(t)
		enqueueOrdered(t, a, "key", "head")
		earlier := enqueueOrdered(t, a, "key", "earlier")
		m := claimOne(t, b, "q", time.Minute)
		req := completion("q", m)
		req.Result = []byte("the result")
		req.FollowUps = []*queueboxv1.EnqueueRequest{
			{Queue: "q", OrderingKey: "key", Payload: []byte("later")},
			{Queue: "mail", Payload: []byte("mail"), IdempotencyKey: "once", Attributes: map[string]string{"a": "b"}},
			{Queue: "mail", Payload: []byte("mail"), IdempotencyKey: "once", Attributes: map[string]string{"a": "b"}},
			{Queue: "mail", DelayMs: 3_600_000},
		}
		out, err := a.Complete(within(t), req)
		require.NoError(t, err)
		ids := out.GetFollowUpMessageIds()
		require.Len(t, ids, 4)
		require.Equal(t, ids[1], ids[2], "E1")
		before := db.Dump(t, conn)
		for _, c := range []*Client{a, b} {
			again, err := c.Complete(within(t), req)
			require.NoError(t, err)
			require.True(t, again.GetAlreadySettled(), "S5")
			require.Equal(t, ids, again.GetFollowUpMessageIds())
		}
		require.Equal(t, before, db.Dump(t, conn), "S5: nothing is written twice")

		// First the one that was there, then the follow-up.
		for _, id := range []string{earlier, ids[0]} {
			next := claimOne(t, b, "q", time.Minute)
			require.Equal(t, id, next.GetMessage().GetMessageId())
			_, err = complete(t, a, "q", next)
			require.NoError(t, err)
		}
		mail := claim(t, b, "mail", 10, time.Minute)
		require.Len(t, mail, 1)
		require.Equal(t, ids[1], mail[0].GetMessage().GetMessageId())
		require.Equal(t, map[string]string{"a": "b"}, mail[0].GetMessage().GetAttributes())
		require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_PENDING, message(t, a, "mail", ids[3]).GetState())

		// A lost claim enqueues nothing.
		enqueue(t, a, "q", "lost")
		m = claimOne(t, a, "q", 200*time.Millisecond)
		untilLeaseEnds(t, m)
		req = completion("q", m)
		req.FollowUps = []*queueboxv1.EnqueueRequest{{Queue: "mail", Payload: []byte("never")}}
		_, err = b.Complete(within(t), req)
		RequireStatus(t, err, lost("LEASE_EXPIRED"))
		require.Empty(t, claim(t, b, "mail", 10, time.Minute))
	})
}

const (
	chains = 12
	links  = 40
)

// chainRun is a run of the test below: workers that take a link of a chain and complete it with
// the next one.
type chainRun struct {
	*crashRun

	ended atomic.Int64 // chains at their last link
	links atomic.Int64
}

func (r *chainRun) worker(n int, clients []*Client) {
	rnd := rand.New(rand.NewPCG(r.seed, uint64(300+n)))
	for r.work.Err() == nil {
		claim := &queueboxv1.ClaimRequest{
			Queue: "chains", LeaseMs: 1_000, MaxMessages: 3, WaitMs: 150, WorkerId: fmt.Sprint("c", n), ClaimId: newClaimID(),
		}
		out, err := call(r.work, r.crashRun, rnd, clients, func(ctx context.Context, c *Client) (*queueboxv1.ClaimResponse, error) { return c.Claim(ctx, claim) })
		if err != nil {
			continue
		}
		for _, m := range out.GetMessages() {
			if rnd.IntN(25) == 0 {
				continue // the worker dies
			}
			var chain, link int
			if _, err := fmt.Sscanf(string(m.GetMessage().GetPayload()), "%d/%d", &chain, &link); err != nil {
				r.ledger.problem("payload: %v", err)
				return
			}
			req := completion("chains", m)
			if link < links {
				// No idempotency key: nothing but the transaction keeps it single. Half of the
				// chains are in order with another one.
				next := &queueboxv1.EnqueueRequest{Queue: "chains", Payload: fmt.Appendf(nil, "%d/%d", chain, link+1)}
				if chain%2 == 0 {
					next.OrderingKey = fmt.Sprint(chain % 4)
				}
				req.FollowUps = []*queueboxv1.EnqueueRequest{next}
			}
			done, err := call(r.work, r.crashRun, rnd, clients, func(ctx context.Context, c *Client) (*queueboxv1.CompleteResponse, error) {
				return c.Complete(ctx, req)
			})
			switch {
			case r.work.Err() != nil:
			case err != nil && CheckStatus(err, Want{Code: codes.FailedPrecondition, Reason: "CLAIM_LOST"}) != nil:
				r.ledger.problem("complete: %v", err)
			case err == nil && len(done.GetFollowUpMessageIds()) != len(req.GetFollowUps()):
				r.ledger.problem("S5: %d follow-ups answered, %d asked for", len(done.GetFollowUpMessageIds()), len(req.GetFollowUps()))
			case err == nil:
				r.links.Add(1)
				if link == links {
					r.ended.Add(1)
				}
			}
		}
	}
}

// TestS10D4S5FollowUpsCrash kills the server with SIGKILL again and again while every completion
// enqueues the next link of its chain, without an idempotency key. A completion without its
// follow-up would end a chain, one whose follow-up is there twice would fork it. The answers of
// commits are cut where a proxy can, so that completions are repeated that had happened.
func TestS10D4S5FollowUpsCrash(t *testing.T) { // not parallel: its load would disturb the tests that measure times
	seed := setting(t, "QUEUEBOX_TEST_SEED", uint64(time.Now().UnixNano()))
	Together(t, func(t *testing.T, db *Database) {
		t.Logf("QUEUEBOX_TEST_SEED=%d", seed)
		var servers []*Server
		var proxies []*proxy.Proxy
		for range db.Servers {
			through := db
			if db.Proxied {
				var p *proxy.Proxy
				p, through = proxied(t, db)
				proxies = append(proxies, p)
			}
			servers = append(servers, through.Start(t))
		}
		admin := servers[0].Client(t)
		_, err := admin.Admin.CreateQueue(within(t), &queueboxv1.CreateQueueRequest{Queue: &queueboxv1.Queue{Queue: "chains", MaxAttempts: 100_000}})
		require.NoError(t, err)
		for chain := range chains {
			enqueue(t, admin, "chains", fmt.Sprintf("%d/1", chain))
		}
		work, stop := context.WithCancel(t.Context())
		defer stop()
		r := &chainRun{crashRun: &crashRun{ledger: newLedger(), seed: seed, work: work}}
		var workers sync.WaitGroup
		for n := range 5 {
			var clients []*Client
			for _, s := range servers {
				clients = append(clients, s.Client(t))
			}
			workers.Go(func() { r.worker(n, clients) })
		}
		rnd := rand.New(rand.NewPCG(seed, 1))
		kills, cuts := 0, 0
		for end := time.Now().Add(90 * time.Second); r.ended.Load() < chains && !r.ledger.broken() && time.Now().Before(end); {
			// Under load: a server that is killed while it starts shows nothing.
			before := r.links.Load()
			for r.ended.Load() < chains && r.links.Load() < before+5 && time.Now().Before(end) {
				time.Sleep(time.Millisecond)
			}
			if r.ended.Load() == chains {
				break
			}
			time.Sleep(time.Duration(rnd.IntN(200)) * time.Millisecond)
			victim := kills % len(servers)
			if db.Proxied && kills%3 != 0 {
				cut := proxies[victim].CutAt(proxy.BeforeAnswer, proxy.Statement.Commits)
				select {
				case <-cut.Done():
					cuts++
				case <-time.After(time.Second):
					proxies[victim].Disarm()
				}
			}
			servers[victim].Kill()
			servers[victim].Restart()
			kills++
		}
		stop()
		workers.Wait()
		for _, p := range r.ledger.problems {
			t.Error(p)
		}
		t.Logf("%d kills, %d of them with the answer of a commit cut, %d links", kills, cuts, r.links.Load())
		require.NotZero(t, kills)
		require.EqualValues(t, chains, r.ended.Load(), "every chain has come to its end")
		done := db.Text(t, map[string]string{
			EngineSQLite:   "SELECT CAST(payload AS TEXT), count(*) FROM completed GROUP BY 1",
			EnginePostgres: "SELECT convert_from(payload, 'UTF8'), count(*) FROM queuebox.completed GROUP BY 1",
			EngineMySQL:    "SELECT CONVERT(payload USING utf8mb4) AS link, count(*) FROM completed GROUP BY link",
			EngineMSSQL:    "SELECT link, count(*) FROM (SELECT CAST(payload AS varchar(50)) AS link FROM queuebox.completed) AS c GROUP BY link",
		})
		live := "SELECT count(*) FROM " + db.Table("message")
		conn := db.Open(t)
		require.Equal(t, []string{"0"}, Rows(t, conn, live), "nothing is left over")
		want := map[string]bool{}
		for chain := range chains {
			for link := range links {
				want[fmt.Sprintf("%d/%d|1", chain, link+1)] = true
			}
		}
		for _, row := range Rows(t, conn, done) {
			require.True(t, want[row], "S10: each link once, not %s", row)
			delete(want, row)
		}
		require.Empty(t, want, "S10: each link")
	})
}
