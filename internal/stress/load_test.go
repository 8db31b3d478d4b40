package stress

import (
	"context"
	"database/sql"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/blackbox"
	"github.com/queuebox/queuebox/server/wireid"
	"github.com/queuebox/queuebox/storage"
)

// run is one stress run.
type run struct {
	t       *testing.T
	engine  *blackbox.Engine
	seed    uint64
	servers []*blackbox.Server
	clients []*blackbox.Client
	db      *sql.DB
	history *History

	queueIDs map[string]int32

	// produce ends the producers, disturb the kills and cancels, work everything else.
	produce, disturb, work phase
	workers                sync.WaitGroup
	draining               atomic.Bool
	ended                  time.Time
	drained                time.Duration

	kills, looks, abandoned, replays atomic.Int64
	enqueued, finished               atomic.Int64
	followUpsMade, streams           atomic.Int64

	recentMu sync.Mutex
	recent   []storage.Ref
}

// phase is a part of the run that ends at a time, or when it is stopped.
type phase struct {
	end     atomic.Int64
	stopped atomic.Bool
}

func (p *phase) until(t time.Time) { p.end.Store(t.UnixNano()) }
func (p *phase) stop()             { p.stopped.Store(true) }
func (p *phase) over() bool        { return p.stopped.Load() || time.Now().UnixNano() > p.end.Load() }

func ref(queueID int32, position int64) storage.Ref {
	return storage.Ref{QueueID: queueID, Position: position}
}

func refOf(t *testing.T, id string) storage.Ref {
	t.Helper()
	ref, err := wireid.ParseMessage(id)
	if err != nil {
		t.Errorf("message id %q: %v", id, err)
	}
	return ref
}

func (r *run) random(kind, n int) *rand.Rand {
	return rand.New(rand.NewPCG(r.seed, uint64(kind*1000+n)))
}

func (r *run) client(rnd *rand.Rand) *blackbox.Client { return r.clients[rnd.IntN(len(r.clients))] }

// again tells whether the answer of a call was lost or says "not now".
func again(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return true
	default:
		return false
	}
}

func reasonOf(err error) (reason string, metadata map[string]string) {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason(), info.GetMetadata()
		}
	}
	return "", nil
}

func short() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 3*time.Second)
}

func pause(rnd *rand.Rand, most time.Duration) {
	time.Sleep(time.Duration(rnd.Int64N(int64(most) + 1)))
}

// producer enqueues small batches, most of them with keys, and repeats each one until it is
// answered where an idempotency key makes that safe.
func (r *run) producer(n int) {
	rnd := r.random(1, n)
	for i := 0; !r.produce.over(); i++ {
		if r.enqueued.Load()-r.finished.Load() > maxPending {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		req := &queueboxv1.BatchEnqueueRequest{}
		safe := rnd.IntN(3) > 0
		for k := range 1 + rnd.IntN(8) {
			m := &queueboxv1.EnqueueRequest{Queue: skipQueue, Priority: int32(rnd.IntN(3)), Payload: fmt.Appendf(nil, "%d-%d-%d", n, i, k)}
			if rnd.IntN(4) == 0 {
				m.Queue = blockQueue
			}
			if m.GetQueue() == blockQueue || rnd.IntN(5) > 0 {
				m.OrderingKey = fmt.Sprint("key-", rnd.IntN(keyCount))
			}
			if rnd.IntN(10) == 0 {
				m.DelayMs = int64(rnd.IntN(60))
			}
			if safe {
				m.IdempotencyKey = fmt.Sprintf("%d-%d-%d", n, i, k)
			}
			req.Requests = append(req.Requests, m)
		}
		r.enqueue(rnd, req, safe)
		pause(rnd, 20*time.Millisecond)
	}
}

func (r *run) enqueue(rnd *rand.Rand, req *queueboxv1.BatchEnqueueRequest, safe bool) {
	for {
		ctx, cancel := short()
		sent := time.Now()
		out, err := r.client(rnd).BatchEnqueue(ctx, req)
		got := time.Now()
		cancel()
		if err != nil {
			if !again(err) {
				r.history.Fail("enqueue", "%s", describe(err))
				return
			}
			if !safe {
				return
			}
			pause(rnd, 20*time.Millisecond)
			continue
		}
		for i, a := range out.GetResponses() {
			id := refOf(r.t, a.GetMessageId())
			r.history.Enqueued(id, req.GetRequests()[i].GetOrderingKey(), sent, got)
			r.enqueued.Add(1)
			r.remember(id)
		}
		return
	}
}

func (r *run) remember(id storage.Ref) {
	r.recentMu.Lock()
	defer r.recentMu.Unlock()
	if r.recent = append(r.recent, id); len(r.recent) > 1000 {
		r.recent = append([]storage.Ref(nil), r.recent[500:]...)
	}
}

func (r *run) queueOf(id storage.Ref) string {
	if id.QueueID == r.queueIDs[blockQueue] {
		return blockQueue
	}
	return skipQueue
}

// canceller cancels and revokes messages at random.
func (r *run) canceller() {
	rnd := r.random(2, 0)
	for !r.disturb.over() {
		pause(rnd, 60*time.Millisecond)
		r.recentMu.Lock()
		var id storage.Ref
		if len(r.recent) > 0 {
			id = r.recent[rnd.IntN(len(r.recent))]
		}
		r.recentMu.Unlock()
		if id == (storage.Ref{}) {
			continue
		}
		ctx, cancel := short()
		sent := time.Now()
		if rnd.IntN(3) == 0 {
			_, err := r.client(rnd).Admin.RevokeClaim(ctx, &queueboxv1.RevokeClaimRequest{Queue: r.queueOf(id), MessageId: wireid.Message(id), RefundAttempt: rnd.IntN(2) == 0})
			r.history.Called(id, "revoke", sent, time.Now())
			if err != nil && !again(err) && status.Code(err) != codes.FailedPrecondition {
				r.history.Fail("revoke", "%s", describe(err))
			}
		} else {
			out, err := r.client(rnd).Cancel(ctx, &queueboxv1.CancelRequest{Queue: r.queueOf(id), Target: &queueboxv1.CancelRequest_MessageId{MessageId: wireid.Message(id)}})
			r.history.Called(id, "cancel", sent, time.Now())
			if err != nil && !again(err) {
				r.history.Fail("cancel", "%s", describe(err))
			}
			if out.GetState() == queueboxv1.MessageState_MESSAGE_STATE_CANCELLED {
				r.finished.Add(1)
			}
		}
		cancel()
	}
}

// redriver returns dead messages, one a call, so that it knows which were moved. While the
// rest is drained it clears what blocks.
func (r *run) redriver() {
	rnd := r.random(3, 0)
	for !r.work.over() {
		pause(rnd, 100*time.Millisecond)
		dead := r.someDead()
		for _, id := range dead {
			if r.queueOf(id) == skipQueue && (r.draining.Load() || rnd.IntN(4) > 0) {
				continue
			}
			ctx, cancel := short()
			sent := time.Now()
			out, err := r.client(rnd).Admin.RedriveMessages(ctx, &queueboxv1.RedriveMessagesRequest{
				Queue: r.queueOf(id), Filter: &queueboxv1.MessageFilter{MessageIds: []string{wireid.Message(id)}}, MaxMessages: 1, MaxAttempts: 4,
			})
			got := time.Now()
			cancel()
			if err != nil && !again(err) {
				r.history.Fail("redrive", "%s", describe(err))
			}
			if out.GetMessageCount() == 1 {
				r.history.Redriven(id, sent, got)
				r.finished.Add(-1)
			}
		}
	}
}

// someDead reads some dead messages and notes when they died.
func (r *run) someDead() []storage.Ref {
	rows, err := r.db.QueryContext(r.t.Context(), r.sql().dead)
	if err != nil {
		r.history.Fail("look", "%v", err)
		return nil
	}
	defer func() { _ = rows.Close() }()
	var dead []storage.Ref
	for rows.Next() {
		var id storage.Ref
		var finish float64
		if err := rows.Scan(&id.QueueID, &id.Position, &finish); err != nil {
			r.history.Fail("look", "%v", err)
		}
		r.history.SeenDead(id, time.UnixMicro(int64(finish*1e6)))
		dead = append(dead, id)
	}
	if err := rows.Err(); err != nil {
		r.history.Fail("look", "%v", err)
	}
	return dead
}

// killer kills a server with SIGKILL now and then and starts it again.
func (r *run) killer() {
	rnd := r.random(4, 0)
	for {
		next := time.Now().Add(4*time.Second + time.Duration(rnd.Int64N(int64(8*time.Second))))
		for time.Now().Before(next) {
			if r.disturb.over() {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		s := r.servers[rnd.IntN(len(r.servers))]
		s.Kill()
		r.kills.Add(1)
		pause(rnd, time.Second)
		s.Restart()
	}
}

// claimer claims, and deals with what it got.
func (r *run) claimer(n int) {
	rnd := r.random(5, n)
	worker := fmt.Sprint("worker-", n)
	for !r.work.over() {
		req := &queueboxv1.ClaimRequest{
			Queue: skipQueue, LeaseMs: lease.Milliseconds(), MaxMessages: int32(1 + rnd.IntN(15)), WaitMs: 200, WorkerId: worker,
		}
		if rnd.IntN(3) == 0 {
			req.Queue = blockQueue
		}
		if rnd.IntN(3) == 0 {
			req.ClaimId = uuid.NewString()
		}
		ds := r.claim(rnd, req)
		if len(ds) == 0 {
			continue
		}
		pause(rnd, 3*time.Millisecond)
		rnd.Shuffle(len(ds), func(a, b int) { ds[a], ds[b] = ds[b], ds[a] })
		for _, d := range ds {
			r.deal(rnd, req.GetQueue(), d, nil)
		}
	}
}

// claim makes one claim. With a claim id it is repeated until it is answered, and now and
// then once more, on any server (C14).
func (r *run) claim(rnd *rand.Rand, req *queueboxv1.ClaimRequest) []Delivery {
	sent := time.Now()
	var first []Delivery
	for {
		ctx, cancel := short()
		out, err := r.client(rnd).Claim(ctx, req)
		cancel()
		got := time.Now()
		if err != nil {
			if !again(err) {
				r.history.Fail("claim", "%s", describe(err))
				return nil
			}
			if req.GetClaimId() == "" || got.Sub(sent) > lease/2 {
				return nil
			}
			pause(rnd, 10*time.Millisecond)
			continue
		}
		for _, m := range out.GetMessages() {
			first = append(first, Delivery{
				Ref: refOf(r.t, m.GetMessage().GetMessageId()), Key: m.GetMessage().GetOrderingKey(), Token: m.GetClaimToken(),
				Attempt: m.GetMessage().GetAttempt(), Sent: sent, Got: got, Lease: lease,
			})
		}
		break
	}
	r.history.Delivered(first)
	if req.GetClaimId() != "" && len(first) > 0 && rnd.IntN(2) == 0 {
		r.repeatClaim(rnd, req, first)
	}
	return first
}

func (r *run) repeatClaim(rnd *rand.Rand, req *queueboxv1.ClaimRequest, first []Delivery) {
	ctx, cancel := short()
	defer cancel()
	out, err := r.client(rnd).Claim(ctx, req)
	if err != nil {
		if !again(err) {
			r.history.Fail("C14", "%s", describe(err))
		}
		return
	}
	r.replays.Add(1)
	tokens := map[storage.Ref]string{}
	for _, d := range first {
		tokens[d.Ref] = d.Token
	}
	if !out.GetReplayed() {
		r.history.Fail("C14", "a repeat was served anew")
	}
	for _, m := range out.GetMessages() {
		if id := refOf(r.t, m.GetMessage().GetMessageId()); tokens[id] != m.GetClaimToken() {
			r.history.Fail("C14", "%v: a repeat got another message or token", id)
		}
	}
}

// deal decides what becomes of a delivery. It settles over a stream where there is one, and by
// a unary call where that has ended.
func (r *run) deal(rnd *rand.Rand, queue string, d Delivery, over *stream) {
	action := "complete"
	if !r.draining.Load() {
		switch x := rnd.IntN(100); {
		case x < 3:
			r.abandoned.Add(1) // the worker crashed
			return
		case x < 10:
			action = "retry"
		case x < 13:
			action = "dead_letter"
		case x < 16:
			action = "release"
		}
	}
	if rnd.IntN(12) == 0 {
		// Two of the same worker at once; one of them may differ (S7).
		other := []string{"complete", "retry", "dead_letter", action}[rnd.IntN(4)]
		var both sync.WaitGroup
		seed := rnd.Uint64()
		both.Go(func() { r.settle(rand.New(rand.NewPCG(seed, 1)), queue, d, other, over) })
		r.settle(rnd, queue, d, action, over)
		both.Wait()
	} else {
		r.settle(rnd, queue, d, action, over)
	}
	if rnd.IntN(12) == 0 {
		r.settle(rnd, queue, d, action, over) // and the same once more (S5)
	}
}

// followUps are what a completion of the delivery enqueues (S10), the same for everybody who
// completes it, so that every answer must name the same ones (S5); none for most.
func (r *run) followUps(d Delivery) []*queueboxv1.EnqueueRequest {
	h := fnv.New64a()
	_, _ = h.Write([]byte(d.Token))
	rnd := rand.New(rand.NewPCG(h.Sum64(), 1))
	if r.produce.over() || rnd.IntN(8) > 0 {
		return nil
	}
	next := make([]*queueboxv1.EnqueueRequest, 1+rnd.IntN(2))
	for i := range next {
		next[i] = &queueboxv1.EnqueueRequest{Queue: skipQueue, OrderingKey: fmt.Sprint("key-", rnd.IntN(keyCount)), Payload: []byte("follow-up")}
		switch rnd.IntN(4) {
		case 0:
			next[i].OrderingKey = d.Key // that of the completed message, where the queues are the same
		case 1:
			next[i].Queue = blockQueue
		case 2:
			next[i].DelayMs = int64(rnd.IntN(40))
		}
	}
	return next
}

// followed notes the follow-ups of a completion that was answered.
func (r *run) followed(next []*queueboxv1.EnqueueRequest, ids []string, sent time.Time) {
	if len(next) == 0 || len(ids) != len(next) {
		return
	}
	got := time.Now()
	for i, id := range ids {
		ref := refOf(r.t, id)
		r.history.Enqueued(ref, next[i].GetOrderingKey(), sent, got)
		r.remember(ref)
	}
	r.followUpsMade.Add(int64(len(ids)))
}

// settle settles and repeats it until it is answered.
func (r *run) settle(rnd *rand.Rand, queue string, d Delivery, action string, over *stream) {
	var next []*queueboxv1.EnqueueRequest
	if action == "complete" {
		next = r.followUps(d)
	}
	first := time.Now()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); pause(rnd, 20*time.Millisecond) {
		ctx, cancel := short()
		s := Settle{Ref: d.Ref, Token: d.Token, Action: action, Sent: time.Now()}
		send := r.send
		if over != nil {
			send = over.send
		}
		ids, err := send(ctx, r.client(rnd), queue, &s, next)
		if err != nil {
			over = nil
		}
		s.Got = time.Now()
		cancel()
		if err != nil {
			reason, metadata := reasonOf(err)
			switch {
			case again(err):
				s.Verdict = Unknown
			case reason == "CLAIM_LOST":
				s.Verdict = Lost
			case reason == "CLAIM_SETTLED":
				s.Verdict, s.Outcome = Settled, strings.ToLower(metadata["outcome"])
			default:
				r.history.Fail("settle", "%s: %s", action, describe(err))
				return
			}
		}
		r.history.Settled(s)
		r.followed(next, ids, first)
		if s.Verdict == Applied {
			r.enqueued.Add(int64(len(ids)))
		}
		if s.Verdict == Applied && (s.Outcome == "completed" || s.Outcome == "dead" || s.Outcome == "cancelled") {
			r.finished.Add(1)
		}
		if s.Verdict != Unknown {
			return
		}
	}
	r.history.Fail("settle", "%v: no answer for 20 s", d.Ref)
}

// send sends a settlement once. It returns the follow-ups of a completion.
func (r *run) send(ctx context.Context, c *blackbox.Client, queue string, s *Settle, next []*queueboxv1.EnqueueRequest) (followUps []string, err error) {
	id := wireid.Message(s.Ref)
	verdict := func(already bool) string {
		if already {
			return Already
		}
		return Applied
	}
	outcome := func(o queueboxv1.SettleOutcome) string {
		return strings.ToLower(strings.TrimPrefix(o.String(), "SETTLE_OUTCOME_"))
	}
	switch s.Action {
	case "complete":
		out, err := c.Complete(ctx, &queueboxv1.CompleteRequest{Queue: queue, MessageId: id, ClaimToken: s.Token, FollowUps: next})
		if err != nil {
			return nil, err
		}
		s.Verdict, s.Outcome = verdict(out.GetAlreadySettled()), "completed"
		s.Facts = fmt.Sprint(out.GetCompleteTime().AsTime(), out.GetFollowUpMessageIds())
		return out.GetFollowUpMessageIds(), nil
	case "retry":
		req := &queueboxv1.RetryRequest{Queue: queue, MessageId: id, ClaimToken: s.Token, Error: "stress"}
		out, err := c.Retry(ctx, req)
		if err != nil {
			return nil, err
		}
		s.Verdict, s.Outcome = verdict(out.GetAlreadySettled()), outcome(out.GetOutcome())
		s.Facts = s.Outcome + out.GetAvailableTime().AsTime().String()
	case "dead_letter":
		out, err := c.DeadLetter(ctx, &queueboxv1.DeadLetterRequest{Queue: queue, MessageId: id, ClaimToken: s.Token, ReasonCode: "stress"})
		if err != nil {
			return nil, err
		}
		s.Verdict, s.Outcome = verdict(out.GetAlreadySettled()), "dead"
	case "release":
		out, err := c.Release(ctx, &queueboxv1.ReleaseRequest{Queue: queue, MessageId: id, ClaimToken: s.Token})
		if err != nil {
			return nil, err
		}
		s.Verdict, s.Outcome = verdict(out.GetAlreadySettled()), outcome(out.GetOutcome())
		s.Facts = s.Outcome + out.GetAvailableTime().AsTime().String()
	default:
		require.Fail(r.t, "unknown action "+s.Action)
	}
	return nil, nil
}
