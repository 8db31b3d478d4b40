package queuebox

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// call is one request that the fake server saw, with the virtual time at which it arrived.
type call struct {
	method string
	at     time.Duration
	req    any
}

// fake is a WorkerService and ProducerService on an in-memory connection, so that a test in a
// synctest bubble sees real gRPC in virtual time. It hands out what is put into it and answers
// everything with success; a hook changes one kind of answer.
type fake struct {
	queueboxv1.UnimplementedWorkerServiceServer
	queueboxv1.UnimplementedProducerServiceServer

	began    time.Time
	listener *bufconn.Listener
	grpc     *grpc.Server
	arrived  chan struct{}
	// refuse makes new connections fail.
	refuse atomic.Bool

	mu     sync.Mutex
	calls  []call
	ready  []*queueboxv1.ClaimedMessage
	lease  time.Duration
	serial int
	conns  []net.Conn
	// streams take what is to be sent on the Work streams.
	streams []chan *queueboxv1.WorkResponse
	// denied is a queue that nobody may settle messages of.
	denied string
	// written holds the tokens that were settled, claimed what each claim_id was given.
	written map[string]bool
	claimed map[string][]*queueboxv1.ClaimedMessage

	// onWork takes a stream over; it is false where the fake shall go on with it.
	onWork   func(n int, stream workServer) (handled bool, err error)
	onClaim  func(ctx context.Context, n int, req *queueboxv1.ClaimRequest) (*queueboxv1.ClaimResponse, error)
	onRenew  func(ctx context.Context, n int, req *queueboxv1.BatchRenewRequest) (*queueboxv1.BatchRenewResponse, error)
	onSettle func(ctx context.Context, n int, method string) (write bool, err error)
	// onBatch answers a BatchSettle in the place of its items.
	onBatch func(ctx context.Context, n int, req *queueboxv1.BatchSettleRequest) (*queueboxv1.BatchSettleResponse, error)
	onPut   func(ctx context.Context, n int, req *queueboxv1.EnqueueRequest) (*queueboxv1.EnqueueResponse, error)
}

// inBubble runs a story in virtual time against a fake server.
func inBubble(t *testing.T, story func(t *testing.T, f *fake, c *Client), opts ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{
			began: time.Now(), listener: bufconn.Listen(1 << 20), grpc: grpc.NewServer(),
			arrived: make(chan struct{}, 1), lease: 30 * time.Second, written: make(map[string]bool),
			claimed: make(map[string][]*queueboxv1.ClaimedMessage),
		}
		queueboxv1.RegisterWorkerServiceServer(f.grpc, f)
		queueboxv1.RegisterProducerServiceServer(f.grpc, f)
		served := make(chan error, 1)
		go func() { served <- f.grpc.Serve(f.listener) }()

		c, err := Dial("passthrough:///fake", append([]Option{
			WithInsecure(), WithWorkerID("w"), WithDialOptions(grpc.WithContextDialer(f.dial)),
		}, opts...)...)
		require.NoError(t, err)
		defer func() {
			require.NoError(t, c.Close())
			f.grpc.Stop()
			require.NoError(t, <-served)
		}()
		story(t, f, c)
	})
}

func (f *fake) dial(ctx context.Context, _ string) (net.Conn, error) {
	if f.refuse.Load() {
		return nil, errors.New("connection refused")
	}
	conn, err := f.listener.DialContext(ctx)
	if err == nil {
		f.mu.Lock()
		f.conns = append(f.conns, conn)
		f.mu.Unlock()
	}
	return conn, err
}

// cut breaks every connection there is.
func (f *fake) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_ = c.Close()
	}
	f.conns = nil
}

// put makes n messages claimable.
func (f *fake) put(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range n {
		f.serial++
		f.offer("m" + strconv.Itoa(f.serial))
	}
}

// putAgain makes a message claimable that was claimed before.
func (f *fake) putAgain(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.serial++
	f.offer(id)
}

func (f *fake) offer(id string) {
	f.ready = append(f.ready, &queueboxv1.ClaimedMessage{
		Message:          &queueboxv1.Message{MessageId: id, Attempt: 1, Payload: []byte(id)},
		ClaimToken:       "t" + strconv.Itoa(f.serial),
		LeaseRemainingMs: f.lease.Milliseconds(),
	})
	select {
	case f.arrived <- struct{}{}:
	default:
	}
}

// note records a call and returns how many of its kind came before.
func (f *fake) note(method string, req any) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, c := range f.calls {
		if c.method == method {
			n++
		}
	}
	f.calls = append(f.calls, call{method: method, at: time.Since(f.began), req: req})
	return n
}

// seen returns the calls of the named methods so far.
func (f *fake) seen(methods ...string) []call {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []call
	for _, c := range f.calls {
		for _, m := range methods {
			if c.method == m {
				out = append(out, c)
			}
		}
	}
	return out
}

// settlements returns the settlements of all kinds.
func (f *fake) settlements() []call { return f.seen("complete", "retry", "dead-letter", "release") }

func (f *fake) Claim(ctx context.Context, req *queueboxv1.ClaimRequest) (*queueboxv1.ClaimResponse, error) {
	n := f.note("claim", req)
	if f.onClaim != nil {
		if resp, err := f.onClaim(ctx, n, req); resp != nil || err != nil {
			return resp, err
		}
	}
	wait := time.NewTimer(time.Duration(req.GetWaitMs()) * time.Millisecond)
	defer wait.Stop()
	for {
		f.mu.Lock()
		if got := f.claimed[req.GetClaimId()]; got != nil {
			f.mu.Unlock()
			return &queueboxv1.ClaimResponse{Messages: got, Replayed: true}, nil // C14
		}
		k := min(len(f.ready), int(max(req.GetMaxMessages(), 1)))
		got := f.ready[:k:k]
		f.ready = f.ready[k:]
		if k > 0 {
			f.claimed[req.GetClaimId()] = got
		}
		f.mu.Unlock()
		if k > 0 {
			return &queueboxv1.ClaimResponse{Messages: got}, nil
		}
		select {
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		case <-wait.C:
			return &queueboxv1.ClaimResponse{EmptyReason: queueboxv1.EmptyReason_EMPTY_REASON_NONE_READY}, nil
		case <-f.arrived:
		}
	}
}

func (f *fake) BatchRenew(ctx context.Context, req *queueboxv1.BatchRenewRequest) (*queueboxv1.BatchRenewResponse, error) {
	n := f.note("renew", req)
	if f.onRenew != nil {
		if resp, err := f.onRenew(ctx, n, req); resp != nil || err != nil {
			return resp, err
		}
	}
	resp := &queueboxv1.BatchRenewResponse{}
	for range req.GetItems() {
		resp.Results = append(resp.Results, f.renewed(false))
	}
	return resp, nil
}

// setLease is the length of what is granted from now on.
func (f *fake) setLease(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lease = d
}

func (f *fake) renewed(cancel bool) *queueboxv1.RenewResult {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &queueboxv1.RenewResult{Outcome: &queueboxv1.RenewResult_Renewed{Renewed: &queueboxv1.RenewResponse{
		LeaseRemainingMs: f.lease.Milliseconds(), CancelRequested: cancel,
	}}}
}

func lostItem(cause string) *queueboxv1.RenewResult {
	return &queueboxv1.RenewResult{Outcome: &queueboxv1.RenewResult_Error{Error: &queueboxv1.ItemError{
		Code: int32(codes.FailedPrecondition), Reason: queueboxv1.ErrorReason_ERROR_REASON_CLAIM_LOST,
		Message: "claim lost", Metadata: map[string]string{"cause": cause},
	}}}
}

// settle records a settlement and tells whether its token had been written before. The hook
// chooses whether this one is written, and the error to answer with; n counts those of its method.
func (f *fake) settle(ctx context.Context, method, token string, req any) (already bool, err error) {
	n := f.note(method, req)
	write := true
	if f.onSettle != nil {
		write, err = f.onSettle(ctx, n, method)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if q := req.(interface{ GetQueue() string }).GetQueue(); q != "" && q == f.denied {
		return false, status.Error(codes.PermissionDenied, "by the proxy")
	}
	already = f.written[token]
	if write {
		f.written[token] = true
	}
	return already, err
}

func (f *fake) Complete(ctx context.Context, req *queueboxv1.CompleteRequest) (*queueboxv1.CompleteResponse, error) {
	already, err := f.settle(ctx, "complete", req.GetClaimToken(), req)
	return &queueboxv1.CompleteResponse{AlreadySettled: already}, err
}

func (f *fake) Retry(ctx context.Context, req *queueboxv1.RetryRequest) (*queueboxv1.RetryResponse, error) {
	already, err := f.settle(ctx, "retry", req.GetClaimToken(), req)
	return &queueboxv1.RetryResponse{Outcome: queueboxv1.SettleOutcome_SETTLE_OUTCOME_RETRIED, AlreadySettled: already}, err
}

func (f *fake) DeadLetter(ctx context.Context, req *queueboxv1.DeadLetterRequest) (*queueboxv1.DeadLetterResponse, error) {
	already, err := f.settle(ctx, "dead-letter", req.GetClaimToken(), req)
	return &queueboxv1.DeadLetterResponse{AlreadySettled: already}, err
}

func (f *fake) Release(ctx context.Context, req *queueboxv1.ReleaseRequest) (*queueboxv1.ReleaseResponse, error) {
	already, err := f.settle(ctx, "release", req.GetClaimToken(), req)
	return &queueboxv1.ReleaseResponse{Outcome: queueboxv1.SettleOutcome_SETTLE_OUTCOME_RELEASED, AlreadySettled: already}, err
}

// BatchSettle settles each item as the unary call would.
func (f *fake) BatchSettle(ctx context.Context, req *queueboxv1.BatchSettleRequest) (*queueboxv1.BatchSettleResponse, error) {
	n := f.note("batch-settle", req)
	if f.onBatch != nil {
		if resp, err := f.onBatch(ctx, n, req); resp != nil || err != nil {
			return resp, err
		}
	}
	resp := &queueboxv1.BatchSettleResponse{}
	for _, item := range req.GetItems() {
		resp.Results = append(resp.Results, f.settleItem(ctx, item))
	}
	return resp, nil
}

func (f *fake) settleItem(ctx context.Context, item *queueboxv1.SettleItem) *queueboxv1.SettleResult {
	r := &queueboxv1.SettleResult{}
	var err error
	switch x := item.GetAction().(type) {
	case *queueboxv1.SettleItem_Complete:
		var resp *queueboxv1.CompleteResponse
		resp, err = f.Complete(ctx, x.Complete)
		r.ClaimToken, r.AlreadySettled, r.Outcome = x.Complete.GetClaimToken(), resp.GetAlreadySettled(), queueboxv1.SettleOutcome_SETTLE_OUTCOME_COMPLETED
	case *queueboxv1.SettleItem_Retry:
		var resp *queueboxv1.RetryResponse
		resp, err = f.Retry(ctx, x.Retry)
		r.ClaimToken, r.AlreadySettled, r.Outcome = x.Retry.GetClaimToken(), resp.GetAlreadySettled(), resp.GetOutcome()
	case *queueboxv1.SettleItem_DeadLetter:
		var resp *queueboxv1.DeadLetterResponse
		resp, err = f.DeadLetter(ctx, x.DeadLetter)
		r.ClaimToken, r.AlreadySettled, r.Outcome = x.DeadLetter.GetClaimToken(), resp.GetAlreadySettled(), queueboxv1.SettleOutcome_SETTLE_OUTCOME_DEAD
	case *queueboxv1.SettleItem_Release:
		var resp *queueboxv1.ReleaseResponse
		resp, err = f.Release(ctx, x.Release)
		r.ClaimToken, r.AlreadySettled, r.Outcome = x.Release.GetClaimToken(), resp.GetAlreadySettled(), resp.GetOutcome()
	}
	if err != nil {
		e := fromRPC("", err)
		r.Outcome = queueboxv1.SettleOutcome_SETTLE_OUTCOME_UNSPECIFIED
		r.Error = &queueboxv1.ItemError{
			Code: int32(e.Code()), Message: e.status.Message(), Metadata: e.Metadata,
			Reason: queueboxv1.ErrorReason(queueboxv1.ErrorReason_value["ERROR_REASON_"+string(e.Reason)]),
		}
	}
	return r
}

func (f *fake) Enqueue(ctx context.Context, req *queueboxv1.EnqueueRequest) (*queueboxv1.EnqueueResponse, error) {
	n := f.note("enqueue", req)
	if f.onPut != nil {
		if resp, err := f.onPut(ctx, n, req); resp != nil || err != nil {
			return resp, err
		}
	}
	return &queueboxv1.EnqueueResponse{MessageId: "m1"}, nil
}

// failure builds the error that a server answers.
func failure(t *testing.T, code codes.Code, reason Reason, metadata map[string]string) error {
	t.Helper()
	st, err := status.New(code, "as the test wants").WithDetails(
		&errdetails.ErrorInfo{Reason: string(reason), Domain: errorDomain, Metadata: metadata})
	require.NoError(t, err)
	return st.Err()
}

// bothWays tells a story twice: its workers get their messages over a stream, then by claims.
func bothWays(t *testing.T, story func(t *testing.T, f *fake, c *Client)) {
	t.Helper()
	for way, name := range map[Delivery]string{DeliverStream: "stream", DeliverPoll: "poll"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake, c *Client) {
				ways.Store(c, way)
				defer ways.Delete(c)
				story(t, f, c)
			})
		})
	}
}

// ways holds the delivery that a test wants, by client.
var ways sync.Map

// claimN claims n messages that the fake has.
func claimN(t *testing.T, c *Client, n int) []*Handle {
	t.Helper()
	hs, err := c.Claim(t.Context(), ClaimOptions{Queue: "q", Max: n, Wait: time.Second})
	require.NoError(t, err)
	require.Len(t, hs, n)
	return hs
}
