package drive

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// connections is how many connections the callers of one process share.
const connections = 4

// stubs are the services over one connection.
type stubs struct {
	queueboxv1.ProducerServiceClient
	queueboxv1.WorkerServiceClient
}

func dial(address string) ([]stubs, func(), error) {
	conns := make([]*grpc.ClientConn, 0, connections)
	shut := func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}
	out := make([]stubs, connections)
	for i := range out {
		c, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
		if err != nil {
			shut()
			return nil, nil, fmt.Errorf("dial %s: %w", address, err)
		}
		conns = append(conns, c)
		out[i] = stubs{queueboxv1.NewProducerServiceClient(c), queueboxv1.NewWorkerServiceClient(c)}
	}
	return out, shut, nil
}

// missing turns the answer of a server that does not have a call into a skip.
func missing(err error) error {
	if status.Code(err) == codes.Unimplemented {
		return fmt.Errorf("%w: the server answers UNIMPLEMENTED: %s", ErrSkip, status.Convert(err).Message())
	}
	return err
}

// callers call the RPCs: the plain ones for single messages, the batch ones for more. Each
// enqueues a batch, claims as many and completes them.
type callers struct {
	callers, batch int

	spec   Spec
	stubs  []stubs
	shut   func()
	bodies *bodies
	number *atomic.Int64
}

func (c callers) open(_ context.Context, s Spec) (load, error) {
	var err error
	c.spec, c.bodies, c.number = s, newBodies(s.Payload, nil), &atomic.Int64{}
	c.stubs, c.shut, err = dial(s.Server)
	return &c, err
}

func (c *callers) close() { c.shut() }

func (c *callers) fill(ctx context.Context, n int) error {
	const most = 1000
	for ; n > 0; n -= most {
		if err := c.enqueue(ctx, c.stubs[0], min(n, most)); err != nil {
			return err
		}
	}
	return nil
}

func (c *callers) cycle(ctx context.Context, m *Meter) error {
	return crowd(ctx, c.callers, func(ctx context.Context, i int) error {
		s := c.stubs[i%len(c.stubs)]
		// A cycle that has begun is brought to its end: a lease that is left behind would block its
		// ordering key for half a minute, into the next window.
		call := context.WithoutCancel(ctx)
		for ctx.Err() == nil {
			start := time.Now()
			if err := c.enqueue(call, s, c.batch); err != nil {
				return err
			}
			m.Took(StepEnqueue, start)
			for left := c.batch; left > 0; {
				start = time.Now()
				claimed, err := s.Claim(call, &queueboxv1.ClaimRequest{Queue: c.spec.Queue, MaxMessages: int32(left), WaitMs: 1000, WorkerId: workerName(i)})
				if err != nil {
					return err
				}
				if len(claimed.GetMessages()) == 0 {
					select {
					case <-ctx.Done():
						return nil
					default:
						continue
					}
				}
				m.Took(StepClaim, start)
				start = time.Now()
				if err := c.complete(call, s, claimed.GetMessages()); err != nil {
					return err
				}
				m.Took(StepComplete, start)
				left -= len(claimed.GetMessages())
				m.Done(len(claimed.GetMessages()))
			}
		}
		return nil
	})
}

// burn works off n messages: the callers claim and complete, and enqueue nothing.
func (c *callers) burn(ctx context.Context, n int, begin func(), m *Meter) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := countdown(n, m, cancel)
	begin()
	return crowd(ctx, c.callers, func(ctx context.Context, i int) error {
		s := c.stubs[i%len(c.stubs)]
		for ctx.Err() == nil {
			start := time.Now()
			claimed, err := s.Claim(ctx, &queueboxv1.ClaimRequest{Queue: c.spec.Queue, MaxMessages: int32(c.batch), WaitMs: 1000, WorkerId: workerName(i)})
			if err != nil {
				return err
			}
			if len(claimed.GetMessages()) == 0 {
				continue
			}
			m.Took(StepClaim, start)
			start = time.Now()
			if err := c.complete(ctx, s, claimed.GetMessages()); err != nil {
				return err
			}
			m.Took(StepComplete, start)
			done(len(claimed.GetMessages()))
		}
		return nil
	})
}

func workerName(i int) string { return "worker-" + strconv.Itoa(i) }

func (c *callers) request() *queueboxv1.EnqueueRequest {
	r := &queueboxv1.EnqueueRequest{Queue: c.spec.Queue, Payload: c.bodies.bytes()}
	if c.spec.Keys > 0 {
		r.OrderingKey = "key-" + strconv.FormatInt(c.number.Add(1)%int64(c.spec.Keys), 10)
	}
	return r
}

func (c *callers) enqueue(ctx context.Context, s stubs, n int) error {
	if n == 1 {
		_, err := s.Enqueue(ctx, c.request())
		return err
	}
	request := &queueboxv1.BatchEnqueueRequest{Requests: make([]*queueboxv1.EnqueueRequest, n)}
	for i := range request.GetRequests() {
		request.Requests[i] = c.request()
	}
	_, err := s.BatchEnqueue(ctx, request)
	return err
}

func (c *callers) complete(ctx context.Context, s stubs, messages []*queueboxv1.ClaimedMessage) error {
	if len(messages) == 1 {
		_, err := s.Complete(ctx, completion(c.spec.Queue, messages[0]))
		return err
	}
	answer, err := s.BatchSettle(ctx, &queueboxv1.BatchSettleRequest{Items: completions(c.spec.Queue, messages)})
	if err != nil {
		return err
	}
	return settled(answer.GetResults())
}

func completion(queue string, m *queueboxv1.ClaimedMessage) *queueboxv1.CompleteRequest {
	return &queueboxv1.CompleteRequest{Queue: queue, MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken()}
}

func completions(queue string, messages []*queueboxv1.ClaimedMessage) []*queueboxv1.SettleItem {
	items := make([]*queueboxv1.SettleItem, len(messages))
	for i, m := range messages {
		items[i] = &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_Complete{Complete: completion(queue, m)}}
	}
	return items
}

var errNotSettled = errors.New("a message was not completed")

func settled(results []*queueboxv1.SettleResult) error {
	for _, r := range results {
		if r.GetError() != nil {
			return fmt.Errorf("%w: %s", errNotSettled, r.GetError().GetMessage())
		}
	}
	return nil
}

// latency enqueues at an even rate and lets waiting unary claims take the messages.
func (c *callers) latency(ctx context.Context, rate int, m *Meter) error {
	started := newStarts(m, c.spec.Payload)
	return crowd(ctx, c.callers+1, func(ctx context.Context, i int) error {
		if i == c.callers {
			return paced(ctx, rate, func(ctx context.Context) error {
				_, err := c.stubs[0].Enqueue(ctx, &queueboxv1.EnqueueRequest{Queue: c.spec.Queue, Payload: started.body(c.spec.Payload)})
				return err
			}, m)
		}
		s := c.stubs[i%len(c.stubs)]
		for ctx.Err() == nil {
			claimed, err := s.Claim(ctx, &queueboxv1.ClaimRequest{Queue: c.spec.Queue, MaxMessages: 1, WaitMs: 20_000, WorkerId: workerName(i)})
			if err != nil {
				return err
			}
			for _, message := range claimed.GetMessages() {
				started.handle(message.GetMessage().GetPayload())
				start := time.Now()
				if _, err := s.Complete(ctx, completion(c.spec.Queue, message)); err != nil {
					return err
				}
				m.Took(StepComplete, start)
				m.Done(1)
			}
		}
		return nil
	})
}
