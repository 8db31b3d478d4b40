package server

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage/faults"
)

var allDead = &queueboxv1.MessageFilter{States: []queueboxv1.MessageState{queueboxv1.MessageState_MESSAGE_STATE_DEAD}}

// dead makes n dead messages in the queue "q".
func (h *harness) dead(n int) {
	h.t.Helper()
	for left := n; left > 0; {
		some := min(left, 250)
		req := &queueboxv1.BatchEnqueueRequest{}
		for range some {
			req.Requests = append(req.Requests, &queueboxv1.EnqueueRequest{Queue: "q"})
		}
		_, err := h.BatchEnqueue(h.ctx(), req)
		require.NoError(h.t, err)
		got, err := h.Claim(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q", MaxMessages: int32(some)})
		require.NoError(h.t, err)
		settle := &queueboxv1.BatchSettleRequest{}
		for _, m := range got.GetMessages() {
			settle.Items = append(settle.Items, &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_DeadLetter{
				DeadLetter: &queueboxv1.DeadLetterRequest{
					Queue: "q", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(), Error: "broken", ReasonCode: "R",
				},
			}})
		}
		_, err = h.BatchSettle(h.ctx(), settle)
		require.NoError(h.t, err)
		left -= len(got.GetMessages())
	}
}

func (h *harness) redrive(req *queueboxv1.RedriveMessagesRequest) *queueboxv1.RedriveMessagesResponse {
	h.t.Helper()
	req.Queue = "q"
	out, err := h.RedriveMessages(h.ctx(), req)
	require.NoError(h.t, err)
	return out
}

// TestO7RedriveWakesAWaiter: whoever waits for messages gets what is redriven at once.
func TestO7RedriveWakesAWaiter(t *testing.T) {
	h := serve(t)
	const n = 3
	best := time.Hour
	for range n {
		h.dead(1)
		wait := h.waitIn(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q", WaitMs: 20_000})
		began := time.Now()
		out := h.redrive(&queueboxv1.RedriveMessagesRequest{Filter: allDead})
		require.EqualValues(t, 1, out.GetMessageCount())
		require.False(t, out.GetMore())
		next := <-wait
		require.NoError(t, next.err)
		require.Len(t, next.out.GetMessages(), 1)
		best = min(best, time.Since(began))
		_, err := h.Complete(h.ctx(), completeItem(next.out.GetMessages()[0]).GetComplete())
		require.NoError(t, err)
	}
	require.Less(t, best, 900*time.Millisecond, "not at the next poll")
	require.True(t, containsLine(h.scrape(), `queuebox_redriven_total{queue="q"} 3`))
	require.Contains(t, h.log.String(), "messages redriven")
	require.NotContains(t, h.log.String(), "broken")
}

// TestRedriveSpread: the messages of a call have their times in the span, evenly, whatever the
// pages are; a call that is cut at max_messages has those of the span for itself.
func TestRedriveSpread(t *testing.T) {
	h := serve(t)
	const n = 600
	h.dead(n)
	began := time.Now()
	out := h.redrive(&queueboxv1.RedriveMessagesRequest{Filter: allDead, SpreadMs: 3_600_000, MaxMessages: n - 1})
	require.EqualValues(t, n-1, out.GetMessageCount())
	require.True(t, out.GetMore())
	page := ""
	var times []time.Time
	for {
		res, err := h.ListMessages(h.ctx(), &queueboxv1.ListMessagesRequest{Queue: "q", PageSize: 1000, PageToken: page, Filter: &queueboxv1.MessageFilter{
			States: []queueboxv1.MessageState{queueboxv1.MessageState_MESSAGE_STATE_PENDING},
		}})
		require.NoError(t, err)
		for _, m := range res.GetMessages() {
			times = append(times, m.GetAvailableTime().AsTime())
		}
		if page = res.GetNextPageToken(); page == "" {
			break
		}
	}
	require.Len(t, times, n-1)
	last, first := times[0], times[n-2]
	require.WithinDuration(t, began, first, 10*time.Second, "the oldest one is ready now")
	require.InDelta(t, time.Hour.Seconds(), last.Sub(first).Seconds(), 30, "the newest one at the end of the span")
	for i := 1; i < len(times); i++ {
		require.Less(t, times[i-1].Sub(times[i]), 30*time.Second, "evenly: %d", i)
		require.False(t, times[i-1].Before(times[i]), "in their order")
	}
}

// TestBatchesAnswerBeforeTheDeadline: what was done stays done and is told, with more = true.
func TestBatchesAnswerBeforeTheDeadline(t *testing.T) {
	for _, what := range []faults.Method{faults.Redrive, faults.Purge} {
		t.Run(string(what), func(t *testing.T) {
			h := serve(t)
			const n = 2500
			h.dead(n)
			h.faults.Inject(what, faults.Fault{DelayAfter: 400 * time.Millisecond})
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			count, more, err := h.batch(ctx, what, false)
			require.NoError(t, err, "no DEADLINE_EXCEEDED")
			require.True(t, more)
			require.Positive(t, count)
			require.Less(t, count, int64(n))
			h.faults.Clear()
			dry, more, err := h.batch(h.ctx(), what, true)
			require.NoError(t, err)
			require.False(t, more)
			require.Equal(t, n-count, dry, "the rest is there")
			rest, more, err := h.batch(h.ctx(), what, false)
			require.NoError(t, err)
			require.False(t, more)
			require.Equal(t, n-count, rest)
		})
	}
}

func (h *harness) batch(ctx context.Context, what faults.Method, dryRun bool) (int64, bool, error) {
	if what == faults.Purge {
		out, err := h.PurgeMessages(ctx, &queueboxv1.PurgeMessagesRequest{Queue: "q", Filter: allDead, DryRun: dryRun})
		return out.GetMessageCount(), out.GetMore(), err
	}
	out, err := h.RedriveMessages(ctx, &queueboxv1.RedriveMessagesRequest{Queue: "q", Filter: allDead, DryRun: dryRun})
	return out.GetMessageCount(), out.GetMore(), err
}

// TestD3BatchesTellWhatWasDone: an error after some messages were moved answers with their
// number; one before that is an error, and nothing changed.
func TestD3BatchesTellWhatWasDone(t *testing.T) {
	for _, what := range []faults.Method{faults.Redrive, faults.Purge} {
		t.Run(string(what), func(t *testing.T) {
			h := serve(t)
			const n = 800
			h.dead(n)
			before := h.dump()
			h.faults.Inject(what, faults.Fault{Refuse: true})
			_, _, err := h.batch(h.ctx(), what, false)
			requireReason(t, err, codes.Unavailable, "STORAGE_UNAVAILABLE")
			_, _, err = h.batch(h.ctx(), what, true)
			requireReason(t, err, codes.Unavailable, "STORAGE_UNAVAILABLE")
			require.Equal(t, before, h.dump())
			h.faults.Inject(what, faults.Fault{After: 2, Refuse: true})
			count, more, err := h.batch(h.ctx(), what, false)
			require.NoError(t, err)
			require.True(t, more)
			require.Positive(t, count)
			require.Less(t, count, int64(n))
			require.Contains(t, h.log.String(), "ended early")
			h.faults.Clear()
			rest, more, err := h.batch(h.ctx(), what, false)
			require.NoError(t, err)
			require.False(t, more)
			require.Equal(t, n-count, rest)
		})
	}
}

// TestBatchesEndWithTheServer: a server that drains does not wait for the end of a long call.
func TestBatchesEndWithTheServer(t *testing.T) {
	h := serve(t, func(c *Config) { c.DrainTimeout = 20 * time.Second })
	h.dead(1500)
	arrived := make(chan struct{}, 100)
	h.faults.Inject(faults.Redrive, faults.Fault{DelayAfter: 300 * time.Millisecond, Strike: func() { arrived <- struct{}{} }})
	type answer struct {
		count int64
		more  bool
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		count, more, err := h.batch(h.ctx(), faults.Redrive, false)
		done <- answer{count, more, err}
	}()
	<-arrived
	go h.stop()
	got := <-done
	require.NoError(t, got.err)
	require.True(t, got.more)
	require.Positive(t, got.count)
	require.Less(t, got.count, int64(1500))
}

// TestBatchesMore: more says whether another message matches, exactly, where max_messages cut
// the call.
func TestBatchesMore(t *testing.T) {
	h := serve(t)
	h.dead(10)
	for _, c := range []struct {
		limit int32
		count int64
		more  bool
	}{{9, 9, true}, {10, 10, false}, {11, 10, false}, {0, 10, false}} {
		for _, filter := range []*queueboxv1.MessageFilter{allDead, {ReasonCodes: []string{"R"}}} {
			out := h.redrive(&queueboxv1.RedriveMessagesRequest{Filter: filter, MaxMessages: c.limit, DryRun: true})
			require.Equal(t, c.count, out.GetMessageCount(), fmt.Sprint(c))
			require.Equal(t, c.more, out.GetMore(), fmt.Sprint(c))
		}
	}
	out, err := h.PurgeMessages(h.ctx(), &queueboxv1.PurgeMessagesRequest{Queue: "q", Filter: allDead, MaxMessages: 4})
	require.NoError(t, err)
	require.EqualValues(t, 4, out.GetMessageCount())
	require.True(t, out.GetMore())
	out, err = h.PurgeMessages(h.ctx(), &queueboxv1.PurgeMessagesRequest{Queue: "q", Filter: allDead, MaxMessages: 6})
	require.NoError(t, err)
	require.EqualValues(t, 6, out.GetMessageCount())
	require.False(t, out.GetMore())
	require.True(t, containsLine(h.scrape(), `queuebox_purged_total{queue="q"} 10`))
	require.Equal(t, 2, strings.Count(h.log.String(), "messages purged"))
}
