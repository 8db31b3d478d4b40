package server

import (
	"context"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// look tells what all streams hold, and how many connections they belong to.
func (b *streamBytes) look() (used int64, conns int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used, len(b.conns)
}

// TestT4StreamsThatAreNotReadShareOneBound: many streams of one client send frames of a megabyte
// and read no answer. What the server keeps of them is bounded over all, half of it for a
// connection, and others are served meanwhile.
func TestT4StreamsThatAreNotReadShareOneBound(t *testing.T) {
	const limit, streams = 16 << 20, 20
	h := serve(t, func(c *Config) { c.MaxStreamBytes = limit })
	h.enqueueMany(1)
	m := h.claim()
	// Refused one by one, so that the database has nothing to do with it.
	bad := &queueboxv1.ClaimedMessage{Message: m.GetMessage(), ClaimToken: "x"}
	large := &queueboxv1.WorkRequest{}
	for range 1000 {
		item := completeItem(bad)
		item.GetComplete().Result = make([]byte, 1000)
		large.Settlements = append(large.Settlements, item)
	}
	frame := frameBytes(large, 1000)
	require.Greater(t, frame, int64(1<<20))

	ctx, cancel := context.WithCancel(t.Context())
	hostile := queueboxv1.NewWorkerServiceClient(h.dial())
	var senders sync.WaitGroup
	defer senders.Wait()
	defer cancel()
	for i := range streams {
		senders.Go(func() {
			if i%2 == 0 {
				s, err := hostile.Work(ctx)
				if err != nil {
					return
				}
				_ = s.Send(&queueboxv1.WorkRequest{Start: &queueboxv1.WorkStart{Queue: "q"}})
				req := proto.CloneOf(large)
				for req.Sequence = 1; s.Send(req) == nil; req.Sequence++ {
				}
				return
			}
			s, err := hostile.Heartbeat(ctx)
			if err != nil {
				return
			}
			req := &queueboxv1.HeartbeatRequest{Queue: "q"}
			for range 1000 {
				req.Renewals = append(req.Renewals, renewItem(bad))
			}
			for req.Sequence = 1; s.Send(req) == nil; req.Sequence++ {
			}
		})
	}
	b := h.server.api.streamBytes
	var most int64
	h.eventually("they are not read any more", func() bool {
		used, _ := b.look()
		most = max(most, used)
		return used >= limit/4
	})
	for range 20 {
		// Others are answered: a call, and a stream of another connection.
		h.enqueueMany(1)
		used, _ := b.look()
		most = max(most, used)
	}
	w := h.work(h.ctx(), 0)
	w.Ask(&queueboxv1.WorkRequest{Sequence: 1, Renewals: []*queueboxv1.RenewItem{renewItem(m)}})
	require.LessOrEqual(t, most, int64(limit/2)+smallFrame, "what they sent at the same time counts too")
	cancel()
	h.eventually("all of it is given back", func() bool {
		used, conns := b.look()
		return used == 0 && conns == 0
	})
	require.True(t, h.metric("queuebox_stream_bytes 0"))
}

// TestT4AStreamWaitsForRoom is the bound by itself.
func TestT4AStreamWaitsForRoom(t *testing.T) {
	b := newStreamBytes(200, prometheus.NewGauge(prometheus.GaugeOpts{Name: "queuebox_x", Help: "Of a test."}))
	one, two, other := b.open("a"), b.open("a"), b.open("b")
	require.NoError(t, one.room(t.Context()))
	require.NoError(t, one.admit(60))
	require.NoError(t, other.room(t.Context()), "half of it is for one connection")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, two.room(ended), context.Canceled)
	waited := make(chan error, 1)
	go func() { waited <- two.room(t.Context()) }()
	other.take(50)
	require.ErrorIs(t, other.room(ended), context.Canceled, "half of all is held")
	other.close()
	one.give(20)
	require.NoError(t, <-waited)
	one.close()
	one.give(40)
	one.take(7)
	used, conns := b.look()
	require.Zero(t, used)
	require.Zero(t, conns)
}

// TestT4AFrameIsAdmittedOrRefused is the bound on what arrives: the other half of the limit is for
// frames that were being received when the first half was taken.
func TestT4AFrameIsAdmittedOrRefused(t *testing.T) {
	const mib = 1 << 20
	b := newStreamBytes(16*mib, prometheus.NewGauge(prometheus.GaugeOpts{Name: "queuebox_x", Help: "Of a test."}))
	one, two, other := b.open("a"), b.open("a"), b.open("b")
	require.NoError(t, one.admit(3*mib))
	require.NoError(t, two.admit(3*mib))
	require.NoError(t, two.admit(2*mib), "it came when there was no room, and fits into the other half")
	require.Error(t, two.admit(smallFrame+1), "half of all is for one connection")
	require.NoError(t, two.admit(smallFrame), "as much may wait to be read anyway")
	two.give(smallFrame)
	require.NoError(t, other.admit(8*mib))
	require.Error(t, b.open("c").admit(smallFrame+1))
	used, _ := b.look()
	require.EqualValues(t, 16*mib, used, "what was refused is not held")
	one.close()
	two.close()
	other.close()
	require.NoError(t, other.bytes.open("d").admit(20*mib), "where there is room any frame is admitted")
}

// heldStream is the server's side of a stream whose frames come when the test says so.
type heldStream[Req, Resp any] struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // that of the stream
	// receiving tells that a frame is waited for, which frames brings.
	receiving chan struct{}
	frames    chan *Req
	answers   chan *Resp
	ended     chan error
}

func holdStream[Req, Resp any](ctx context.Context, serve func(grpc.BidiStreamingServer[Req, Resp]) error) *heldStream[Req, Resp] {
	s := &heldStream[Req, Resp]{
		ctx: ctx, receiving: make(chan struct{}), frames: make(chan *Req), answers: make(chan *Resp, 10), ended: make(chan error, 1),
	}
	go func() { s.ended <- serve(s) }()
	return s
}

func (s *heldStream[Req, Resp]) Context() context.Context { return s.ctx }

func (s *heldStream[Req, Resp]) Send(resp *Resp) error {
	s.answers <- resp
	return nil
}

func (s *heldStream[Req, Resp]) Recv() (*Req, error) {
	select {
	case s.receiving <- struct{}{}:
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
	select {
	case req := <-s.frames:
		return req, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

// bring lets one frame arrive at a stream that receives, and waits until it receives again.
func (s *heldStream[Req, Resp]) bring(req *Req) *Resp {
	s.frames <- req
	<-s.receiving
	return <-s.answers
}

// TestT4FramesThatAreReceivedTogether: streams that receive their next frame all get a large one
// after others have taken the memory. None is kept, nothing in it was done, and its stream ends
// with an error that says so, while small frames are answered.
func TestT4FramesThatAreReceivedTogether(t *testing.T) {
	const limit, streams = 16 << 20, 10
	h := serve(t, func(c *Config) { c.MaxStreamBytes = limit })
	a := h.server.api
	h.enqueueMany(2)
	m := h.claim()
	complete := completeItem(m)
	complete.GetComplete().Result = make([]byte, smallFrame)
	large := &queueboxv1.WorkRequest{Sequence: 2, Settlements: []*queueboxv1.SettleItem{complete}, Credit: 1}
	renewals := &queueboxv1.HeartbeatRequest{Sequence: 2, Queue: "q"}
	for range 1000 {
		renewals.Renewals = append(renewals.Renewals, renewItem(m))
	}
	ctx, cancel := context.WithCancel(h.ctx())
	defer cancel()
	open := func() *heldStream[queueboxv1.WorkRequest, queueboxv1.WorkResponse] {
		w := holdStream(ctx, a.Work)
		<-w.receiving
		w.bring(&queueboxv1.WorkRequest{Start: &queueboxv1.WorkStart{Queue: "q", WorkerId: "w"}, Sequence: 1})
		return w
	}
	var works []*heldStream[queueboxv1.WorkRequest, queueboxv1.WorkResponse]
	var beats []*heldStream[queueboxv1.HeartbeatRequest, queueboxv1.HeartbeatResponse]
	for range streams {
		works = append(works, open())
		s := holdStream(ctx, a.Heartbeat)
		<-s.receiving
		s.bring(&queueboxv1.HeartbeatRequest{Sequence: 1})
		beats = append(beats, s)
	}
	patient := open()

	full := a.streamBytes.open("elsewhere")
	full.take(limit)
	before := h.dump()
	for i := range streams {
		works[i].frames <- large
		beats[i].frames <- renewals
		for _, ended := range []chan error{works[i].ended, beats[i].ended} {
			require.Positive(t, requireReason(t, a.errors.status(ctx, <-ended), codes.ResourceExhausted, "TOO_MANY_WAITERS").retry)
		}
	}
	used, _ := a.streamBytes.look()
	require.EqualValues(t, limit, used)
	require.Equal(t, before, h.dump())
	patient.frames <- &queueboxv1.WorkRequest{Sequence: 2, Renewals: []*queueboxv1.RenewItem{renewItem(m)}}
	answer := <-patient.answers
	require.Len(t, answer.GetRenewResults(), 1)
	require.NotNil(t, answer.GetRenewResults()[0].GetRenewed())
	full.close()
	large.Credit = 0 // a delivery might come before the answer
	require.Len(t, open().bring(large).GetSettleResults(), 1)
}

// TestT4AWaitingDelivererClaimsNothing: while there is no room for deliveries, nothing is leased.
func TestT4AWaitingDelivererClaimsNothing(t *testing.T) {
	h := serve(t, func(c *Config) { c.MaxStreamBytes = 10 })
	h.enqueueMany(3)
	w := h.work(h.ctx(), 0)
	w.Ask(&queueboxv1.WorkRequest{Sequence: 1})
	b := h.server.api.streamBytes
	full := b.open("elsewhere")
	full.take(10)
	before := h.dump()
	w.Write(&queueboxv1.WorkRequest{Credit: 3}) // which the reader is about to read
	h.eventually("it waits", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.freed != nil
	})
	require.Zero(t, h.server.api.dispatch.Waiters())
	require.Equal(t, before, h.dump())
	full.close()
	w.Take(3)
}
