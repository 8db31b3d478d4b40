package server

import (
	"context"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
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
	h.eventually("they have what one connection may have", func() bool {
		used, _ := b.look()
		most = max(most, used)
		return used >= limit/2
	})
	for range 20 {
		// Others are answered: a call, and a stream of another connection.
		h.enqueueMany(1)
		used, _ := b.look()
		most = max(most, used)
	}
	w := h.work(h.ctx(), 0)
	w.Ask(&queueboxv1.WorkRequest{Sequence: 1, Renewals: []*queueboxv1.RenewItem{renewItem(m)}})
	require.LessOrEqual(t, most, int64(limit/2)+streams*frame, "each goes beyond it by the frame that it reads at most")
	cancel()
	h.eventually("all of it is given back", func() bool {
		used, conns := b.look()
		return used == 0 && conns == 0
	})
	require.True(t, h.metric("queuebox_stream_bytes 0"))
}

// TestT4AStreamWaitsForRoom is the bound by itself.
func TestT4AStreamWaitsForRoom(t *testing.T) {
	b := newStreamBytes(100, prometheus.NewGauge(prometheus.GaugeOpts{Name: "queuebox_x", Help: "Of a test."}))
	one, two, other := b.open("a"), b.open("a"), b.open("b")
	require.NoError(t, one.room(t.Context()))
	one.take(60)
	require.NoError(t, other.room(t.Context()), "half of it is for one connection")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, two.room(ended), context.Canceled)
	waited := make(chan error, 1)
	go func() { waited <- two.room(t.Context()) }()
	other.take(50)
	require.ErrorIs(t, other.room(ended), context.Canceled, "all of it is held")
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
