package stress

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/blackbox"
	"github.com/queuebox/queuebox/server/wireid"
	"github.com/queuebox/queuebox/storage"
)

// stream is one open Work stream of a streamer, whose handlers settle over it.
type stream struct {
	run    *run
	queue  string
	wire   grpc.BidiStreamingClient[queueboxv1.WorkRequest, queueboxv1.WorkResponse]
	cancel context.CancelFunc

	mu       sync.Mutex
	sequence int64
	given    int
	answers  map[int64]chan *queueboxv1.WorkResponse
	closed   bool
	// held are the messages that were delivered and not settled, by the tokens of the deliveries: a
	// message can be delivered again before its last settlement, or a repeat of it, is answered.
	held map[string]storage.Ref
}

// streamer works over Work streams, one after the other. They are cut at random.
func (r *run) streamer(n int) {
	rnd := r.random(6, n)
	for !r.work.over() {
		r.overStream(rnd, fmt.Sprint("streamer-", n))
		pause(rnd, 20*time.Millisecond)
	}
}

// overStream works until the stream ends, or is cut after some time.
func (r *run) overStream(rnd *rand.Rand, worker string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+rnd.IntN(6))*time.Second)
	defer cancel()
	s := &stream{
		run: r, queue: skipQueue, cancel: cancel, given: 1 + rnd.IntN(20),
		answers: map[int64]chan *queueboxv1.WorkResponse{}, held: map[string]storage.Ref{},
	}
	if rnd.IntN(3) == 0 {
		s.queue = blockQueue
	}
	var err error
	if s.wire, err = r.client(rnd).Work(ctx); err != nil {
		return
	}
	start := &queueboxv1.WorkStart{Queue: s.queue, WorkerId: worker, LeaseMs: lease.Milliseconds(), ReleaseOnClose: rnd.IntN(2) == 0}
	if rnd.IntN(3) == 0 {
		start.MaxOutstandingBytes = int64(1 + rnd.IntN(60))
	}
	if s.wire.Send(&queueboxv1.WorkRequest{Start: start, Credit: int32(s.given)}) != nil {
		return
	}
	r.streams.Add(1)
	var handlers sync.WaitGroup
	got := 0
	for {
		out, err := s.wire.Recv()
		if err != nil {
			if !again(err) && status.Code(err) != codes.Unknown { // io.EOF is Unknown to it
				r.history.Fail("work", "%s", describe(err))
			}
			break
		}
		if out.GetSequence() > 0 {
			s.answered(out)
		}
		ds := s.delivered(out)
		if got += len(ds); got > s.credit(0) {
			r.history.Fail("T3", "%d deliveries for a credit of %d", got, s.credit(0))
		}
		for _, d := range ds {
			seed := rnd.Uint64()
			handlers.Go(func() {
				rnd := rand.New(rand.NewPCG(seed, 1))
				r.deal(rnd, s.queue, d, s)
				s.more()
			})
		}
		if out.GetDraining() {
			_ = s.wire.CloseSend()
		}
	}
	s.close(start.GetReleaseOnClose())
	handlers.Wait()
}

// delivered notes the deliveries of a frame. The moment of a claim is told by its lease.
func (s *stream) delivered(out *queueboxv1.WorkResponse) []Delivery {
	now := time.Now()
	ds := make([]Delivery, len(out.GetDeliveries()))
	for i, m := range out.GetDeliveries() {
		ds[i] = Delivery{
			Ref: refOf(s.run.t, m.GetMessage().GetMessageId()), Key: m.GetMessage().GetOrderingKey(), Token: m.GetClaimToken(),
			Attempt: m.GetMessage().GetAttempt(), Sent: m.GetLeaseExpireTime().AsTime().Add(-lease - clockSlack), Got: now, Lease: lease,
		}
	}
	s.mu.Lock()
	for _, d := range ds {
		s.held[d.Token] = d.Ref
	}
	s.mu.Unlock()
	s.run.history.Delivered(ds)
	return ds
}

// credit adds to what was asked for and returns it.
func (s *stream) credit(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.given += n
	return s.given
}

// more asks for another message.
func (s *stream) more() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.given++; !s.closed {
		_ = s.wire.Send(&queueboxv1.WorkRequest{Credit: 1})
	}
}

func (s *stream) answered(out *queueboxv1.WorkResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch, ok := s.answers[out.GetSequence()]
	if !ok {
		s.run.history.Fail("T1", "an answer with sequence %d, which nothing waits for", out.GetSequence())
		return
	}
	delete(s.answers, out.GetSequence())
	ch <- out
}

// close ends the stream. With release the leases that it holds end soon after.
func (s *stream) close(release bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	now := time.Now()
	if release {
		for _, ref := range s.held {
			// The server may have noticed the end of the stream a moment before this client did.
			s.run.history.Called(ref, "close", now.Add(-lease), now.Add(lease))
		}
	}
	s.cancel()
	for sequence, ch := range s.answers {
		delete(s.answers, sequence)
		close(ch)
	}
}

// errStreamEnded says that no answer came over the stream.
var errStreamEnded = status.Error(codes.Unavailable, "the stream has ended")

// send settles over the stream.
func (s *stream) send(ctx context.Context, _ *blackbox.Client, queue string, set *Settle, next []*queueboxv1.EnqueueRequest) ([]string, error) {
	ch := make(chan *queueboxv1.WorkResponse, 1)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, errStreamEnded
	}
	s.sequence++
	s.answers[s.sequence] = ch
	err := s.wire.Send(&queueboxv1.WorkRequest{Sequence: s.sequence, Settlements: []*queueboxv1.SettleItem{settleItem(queue, set, next)}})
	s.mu.Unlock()
	if err != nil {
		return nil, errStreamEnded
	}
	select {
	case out, ok := <-ch:
		if !ok {
			return nil, errStreamEnded
		}
		if len(out.GetSettleResults()) != 1 {
			return nil, errors.New("S11: not one result for one settlement")
		}
		s.mu.Lock()
		delete(s.held, set.Token)
		s.mu.Unlock()
		return judged(set, out.GetSettleResults()[0])
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

func settleItem(queue string, set *Settle, next []*queueboxv1.EnqueueRequest) *queueboxv1.SettleItem {
	id := wireid.Message(set.Ref)
	switch set.Action {
	case "retry":
		return &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_Retry{Retry: &queueboxv1.RetryRequest{Queue: queue, MessageId: id, ClaimToken: set.Token, Error: "stress"}}}
	case "dead_letter":
		return &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_DeadLetter{DeadLetter: &queueboxv1.DeadLetterRequest{Queue: queue, MessageId: id, ClaimToken: set.Token, ReasonCode: "stress"}}}
	case "release":
		return &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_Release{Release: &queueboxv1.ReleaseRequest{Queue: queue, MessageId: id, ClaimToken: set.Token}}}
	}
	return &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_Complete{Complete: &queueboxv1.CompleteRequest{MessageId: id, ClaimToken: set.Token, FollowUps: next}}}
}

// judged notes the result of a settlement in the words of a unary answer.
func judged(set *Settle, res *queueboxv1.SettleResult) ([]string, error) {
	if e := res.GetError(); e != nil {
		switch reason := strings.TrimPrefix(e.GetReason().String(), "ERROR_REASON_"); reason {
		case "CLAIM_LOST":
			set.Verdict = Lost
		case "CLAIM_SETTLED":
			set.Verdict, set.Outcome = Settled, strings.ToLower(e.GetMetadata()["outcome"])
		default:
			return nil, status.Error(codes.Code(e.GetCode()), reason)
		}
		return nil, nil
	}
	set.Verdict, set.Outcome = Applied, strings.ToLower(strings.TrimPrefix(res.GetOutcome().String(), "SETTLE_OUTCOME_"))
	if res.GetAlreadySettled() {
		set.Verdict = Already
	}
	switch set.Action {
	case "complete":
		set.Facts = fmt.Sprint(res.GetCompleteTime().AsTime(), res.GetFollowUpMessageIds())
	case "retry", "release":
		set.Facts = set.Outcome + res.GetAvailableTime().AsTime().String()
	}
	return res.GetFollowUpMessageIds(), nil
}
