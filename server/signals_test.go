package server

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/server/wireid"
	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/faults"
	"github.com/queuebox/queuebox/storage/sqlite"
)

// pulse is a Heartbeat stream of a test.
type pulse struct {
	t      *testing.T
	stream queueboxv1.WorkerService_HeartbeatClient
	seq    int64
}

func (h *harness) pulse() *pulse {
	h.t.Helper()
	stream, err := h.Heartbeat(h.ctx())
	require.NoError(h.t, err)
	return &pulse{t: h.t, stream: stream}
}

func (p *pulse) send(queue string, items ...*queueboxv1.RenewItem) {
	p.t.Helper()
	p.seq++
	require.NoError(p.t, p.stream.Send(&queueboxv1.HeartbeatRequest{Sequence: p.seq, Queue: queue, WorkerId: "w", Renewals: items}))
}

func (p *pulse) recv() *queueboxv1.HeartbeatResponse {
	p.t.Helper()
	out, err := p.stream.Recv()
	require.NoError(p.t, err)
	return out
}

// beat renews and requires that the answer comes next, without a signal before it.
func (p *pulse) beat(items ...*queueboxv1.RenewItem) *queueboxv1.HeartbeatResponse {
	p.t.Helper()
	p.send("q", items...)
	out := p.recv()
	require.Equal(p.t, p.seq, out.GetSequence(), "no signal: %v", out)
	return out
}

// signal requires that the next frame is a signal about these claims.
func (p *pulse) signal(lost bool, claims ...*queueboxv1.ClaimedMessage) {
	p.t.Helper()
	left := map[string]string{}
	for _, m := range claims {
		left[m.GetMessage().GetMessageId()] = m.GetClaimToken()
	}
	for len(left) > 0 {
		out := p.recv()
		require.Zero(p.t, out.GetSequence())
		require.Empty(p.t, out.GetResults())
		require.False(p.t, out.GetDraining())
		require.NotNil(p.t, out.GetServerTime(), "D11")
		require.NotEmpty(p.t, out.GetRevocations())
		for _, r := range out.GetRevocations() {
			require.Equal(p.t, lost, r.GetClaimLost())
			require.Equal(p.t, left[r.GetMessageId()], r.GetClaimToken(), "one of the claims, once")
			delete(left, r.GetMessageId())
		}
	}
}

func (h *harness) watchedClaims() int {
	h.server.api.signals.mu.Lock()
	defer h.server.api.signals.mu.Unlock()
	return h.server.api.signals.count
}

func TestT6RevokeClaimSignalsTheStreamsThatShowedTheClaim(t *testing.T) {
	h := serve(t)
	h.enqueue("q", "a")
	h.enqueue("q", "b")
	a, b := h.claim(), h.claim()
	holder, second, stranger, idle := h.pulse(), h.pulse(), h.pulse(), h.pulse()
	holder.beat(renewItem(a), renewItem(b))
	second.beat(renewItem(a))
	stranger.beat(renewItem(b))
	wrong := &queueboxv1.RenewItem{MessageId: a.GetMessage().GetMessageId(), ClaimToken: wireid.Token(storage.Token{1})}
	require.NotNil(t, stranger.beat(wrong).GetResults()[0].GetError(), "a token that it made up")
	idle.beat()
	require.Equal(t, 4, h.watchedClaims(), "the made-up token is not watched")

	_, err := h.revoke(a.GetMessage().GetMessageId(), true)
	require.NoError(t, err)
	holder.signal(true, a)
	second.signal(true, a)
	stranger.beat(renewItem(b))
	idle.beat()

	out := holder.beat(renewItem(a), renewItem(b))
	require.Equal(t, "REVOKED", out.GetResults()[0].GetError().GetMetadata()["cause"])
	require.NotNil(t, out.GetResults()[1].GetRenewed())
	require.Equal(t, 2, h.watchedClaims())
	body := h.scrape()
	require.True(t, containsLine(body, `queuebox_signals_total{signal="lost"} 2`))
	require.True(t, containsLine(body, `queuebox_watched_claims 2`))
}

func TestT6CancelAsksOverTheStreamOnce(t *testing.T) {
	h := serve(t)
	h.enqueue("q", "x")
	m := h.claim()
	p := h.pulse()
	p.beat(renewItem(m))
	cancel := func() {
		out, err := h.Cancel(h.ctx(), &queueboxv1.CancelRequest{Queue: "q", Target: &queueboxv1.CancelRequest_MessageId{MessageId: m.GetMessage().GetMessageId()}})
		require.NoError(t, err)
		require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_PROCESSING, out.GetState())
	}
	cancel()
	p.signal(false, m)
	require.True(t, p.beat(renewItem(m)).GetResults()[0].GetRenewed().GetCancelRequested(), "R6, and the lease holds")
	cancel()
	h.looked(2)
	p.beat(renewItem(m))
	_, err := h.Complete(h.ctx(), completeItem(m).GetComplete())
	require.NoError(t, err, "S14: Complete still completes")
	require.Zero(t, h.watchedClaims())
	h.looked(2)
	p.beat()
}

// looked waits until everything was looked at some times.
func (h *harness) looked(times int) {
	h.t.Helper()
	s := h.server.api.signals
	for range times {
		s.listening(false)
		require.Eventually(h.t, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return !s.due.IsZero()
		}, 10*time.Second, time.Millisecond)
	}
}

func TestT6AClaimIsForgotten(t *testing.T) {
	h := serve(t, func(c *Config) { c.QueueDefaults.MinLease = time.Millisecond })
	for range 4 {
		h.enqueue("q", "x")
	}
	a, b, c, d := h.claim(), h.claim(), h.claim(), h.claim()
	stays, goes := h.pulse(), h.pulse()
	stays.beat(renewItem(a), renewItem(b))
	goes.beat(renewItem(c))
	short := renewItem(d)
	short.LeaseMs = 1
	stays.beat(short)
	gone := func(n int, why string) {
		require.Eventually(t, func() bool { return h.watchedClaims() == n }, 10*time.Second, time.Millisecond, why)
	}
	gone(3, "not renewed for its lease")
	_, err := h.Release(h.ctx(), &queueboxv1.ReleaseRequest{Queue: "q", MessageId: a.GetMessage().GetMessageId(), ClaimToken: a.GetClaimToken()})
	require.NoError(t, err)
	gone(2, "settled")
	require.NoError(t, goes.stream.CloseSend())
	gone(1, "its stream has ended")
	stays.beat(renewItem(b))
}

// TestT6TheDatabaseFails: what could not be looked at is looked at again.
func TestT6TheDatabaseFails(t *testing.T) {
	h := serve(t)
	h.enqueue("q", "x")
	m := h.claim()
	p := h.pulse()
	p.beat(renewItem(m))
	h.faults.Inject(faults.Look, faults.Fault{Refuse: true, Times: 4})
	_, err := h.revoke(m.GetMessage().GetMessageId(), true)
	require.NoError(t, err)
	p.signal(true, m)
}

// TestT6TwoServersOnOneFile: without notifications another server's streams hear within
// about a second.
func TestT6TwoServersOnOneFile(t *testing.T) {
	h := serve(t)
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(filepath.Dir(h.path), filepath.Base(h.path))})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	h.enqueue("q", "x")
	m := h.claim()
	p := h.pulse()
	p.beat(renewItem(m))
	ref, err := wireid.ParseMessage(m.GetMessage().GetMessageId())
	require.NoError(t, err)
	start := time.Now()
	res, err := store.Revoke(t.Context(), storage.RevokeParams{Ref: ref})
	require.NoError(t, err)
	require.True(t, res.Revoked)
	p.signal(true, m)
	t.Logf("heard after %v", time.Since(start))
}

// TestT6AThousandAtOnce: many claims that end together are told in few frames.
func TestT6AThousandAtOnce(t *testing.T) {
	h := serve(t)
	const n = 300
	var batch []*queueboxv1.EnqueueRequest
	for range n {
		batch = append(batch, &queueboxv1.EnqueueRequest{Queue: "q", Payload: []byte("x")})
	}
	_, err := h.BatchEnqueue(h.ctx(), &queueboxv1.BatchEnqueueRequest{Requests: batch})
	require.NoError(t, err)
	out, err := h.Claim(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q", MaxMessages: n})
	require.NoError(t, err)
	require.Len(t, out.GetMessages(), n)
	p := h.pulse()
	var items []*queueboxv1.RenewItem
	for _, m := range out.GetMessages() {
		items = append(items, renewItem(m))
	}
	p.beat(items...)
	for _, m := range out.GetMessages() {
		_, err := h.revoke(m.GetMessage().GetMessageId(), true)
		require.NoError(t, err)
	}
	p.signal(true, out.GetMessages()...)
	require.Zero(t, h.watchedClaims())
	_, err = h.revoke(out.GetMessages()[0].GetMessage().GetMessageId(), true)
	requireReason(t, err, codes.FailedPrecondition, "MESSAGE_STATE")
}

// board is a signals over a storage of the test.
type board struct {
	*signals

	lost  map[storage.HeldClaim]bool
	looks atomic.Int64
	asked int
}

func newBoard(t *testing.T) *board {
	t.Helper()
	m, err := newMetrics(prometheus.NewRegistry(), 0, "", "")
	require.NoError(t, err)
	b := &board{lost: map[storage.HeldClaim]bool{}}
	b.signals = &signals{
		metrics: m, log: slog.New(slog.DiscardHandler), now: time.Now, wake: make(chan struct{}, 1),
		watched: map[storage.Ref]*watchedClaim{}, wanted: map[storage.Ref]struct{}{},
		look: func(_ context.Context, claims []storage.HeldClaim) (storage.RenewResult, error) {
			b.looks.Add(1)
			b.asked += len(claims)
			res := storage.RenewResult{Items: make([]storage.Renewed, len(claims)), Now: time.Now()}
			for i, c := range claims {
				res.Items[i].Status = storage.ItemApplied
				if b.lost[c] {
					res.Items[i] = storage.Renewed{Status: storage.ItemLost, Cause: storage.LostRevoked}
				}
			}
			return res, nil
		},
	}
	return b
}

func claimNumber(i int) storage.Renewal {
	return storage.Renewal{Ref: storage.Ref{QueueID: 1, Position: int64(i)}, Token: storage.Token{byte(i), byte(i >> 8), byte(i >> 16), 1}}
}

// renewed shows claims, which are all held, for an hour.
func renewed(w *watch, items ...storage.Renewal) {
	w.show(items)
	res := storage.RenewResult{Now: time.Now()}
	for range items {
		res.Items = append(res.Items, storage.Renewed{Status: storage.ItemApplied, LeaseEnd: res.Now.Add(time.Hour)})
	}
	w.shown(items, res, nil)
}

// TestT6AStreamThatShowsVeryMuchStaysBounded: tokens that hold nothing leave nothing, and of
// those that do a stream, and the server, watches so many and no more.
func TestT6AStreamThatShowsVeryMuchStaysBounded(t *testing.T) {
	b := newBoard(t)
	w := b.open()
	request := func(from int) []storage.Renewal {
		items := make([]storage.Renewal, maxBatchItems)
		for i := range items {
			items[i] = claimNumber(from + i)
		}
		return items
	}
	refused := storage.RenewResult{Items: slices.Repeat([]storage.Renewed{{Status: storage.ItemLost}}, maxBatchItems)}
	for i := range 100 {
		items := request(i * maxBatchItems)
		w.show(items)
		require.LessOrEqual(t, b.count, maxBatchItems)
		w.shown(items, refused, nil)
	}
	require.Zero(t, b.count)
	require.Empty(t, b.watched)
	streams := []*watch{w}
	for i := range 300 {
		if i >= 100 && i%10 == 0 {
			w = b.open()
			streams = append(streams, w)
		}
		renewed(w, request(i*maxBatchItems)...)
		require.LessOrEqual(t, w.count, maxWatched)
	}
	require.Equal(t, maxWatched, streams[0].count, "a stream that showed 100,000")
	for i := range 300 {
		w = b.open()
		streams = append(streams, w)
		renewed(w, request(i*maxBatchItems)...)
	}
	require.Equal(t, maxWatchedInAll, b.count)
	for _, w := range streams {
		w.close()
	}
	require.Zero(t, b.count)
	require.Empty(t, b.watched)
}

// TestT6LooksAreFew: while notices arrive nobody looks but every ten seconds, and without them
// about once a second, a thousand claims at a time.
func TestT6LooksAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.run(ctx)
		}()
		w := b.open()
		for i := range 10_000 {
			renewed(w, claimNumber(i))
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		n := b.looks.Swap(0)
		require.InDelta(t, 10*10/0.7, n, 20, "ten looks about every second")
		b.listening(true)
		time.Sleep(60*time.Second + time.Millisecond)
		synctest.Wait()
		n = b.looks.Swap(0)
		require.LessOrEqual(t, n, int64(80))
		require.GreaterOrEqual(t, n, int64(60))

		lost := claimNumber(77)
		b.lost[storage.HeldClaim{Ref: lost.Ref, Token: lost.Token}] = true
		b.changed([]storage.Ref{lost.Ref, {QueueID: 9, Position: 9}})
		synctest.Wait()
		require.EqualValues(t, 1, b.looks.Load(), "one look, at that claim alone")
		require.Len(t, told(w), 1)
		require.Nil(t, told(w))
		cancel()
		<-done
	})
}

// TestT6ARenewalUnderWay: what happens between the statement and its answer is not missed, and
// what the answer tells is not told twice.
func TestT6ARenewalUnderWay(t *testing.T) {
	b := newBoard(t)
	w := b.open()
	item := claimNumber(1)
	claim := storage.HeldClaim{Ref: item.Ref, Token: item.Token}
	lost := storage.RenewResult{Items: []storage.Renewed{{Status: storage.ItemLost}}, Now: time.Now()}
	w.show([]storage.Renewal{item})
	b.apply([]storage.HeldClaim{claim}, lost)
	require.Nil(t, told(w))
	w.shown([]storage.Renewal{item}, lost, nil)
	require.Nil(t, told(w), "the answer tells it")

	w.show([]storage.Renewal{item})
	b.apply([]storage.HeldClaim{claim}, lost)
	w.shown([]storage.Renewal{item}, storage.RenewResult{Items: []storage.Renewed{{Status: storage.ItemApplied, LeaseEnd: time.Now().Add(time.Hour)}}}, nil)
	require.True(t, told(w)[0].GetClaimLost(), "revoked after it was renewed")
	require.Zero(t, b.count)

	// A renewal of which nothing is known leaves a claim watched that was.
	renewed(w, item)
	w.show([]storage.Renewal{item, claimNumber(2)})
	w.shown([]storage.Renewal{item, claimNumber(2)}, storage.RenewResult{}, storage.ErrUnavailable)
	require.Equal(t, 1, b.count)
	// The same token on another message is another claim.
	b.apply([]storage.HeldClaim{{Ref: storage.Ref{QueueID: 1, Position: 5}, Token: item.Token}}, lost)
	require.Nil(t, told(w))
	b.apply([]storage.HeldClaim{claim}, lost)
	require.Len(t, told(w), 1)
}

// told is what a stream tells its worker now.
func told(w *watch) []*queueboxv1.Revocation {
	rs, _ := w.signal()
	return rs
}
