package ops

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/config"
)

func serverOptions() []string {
	var out []string
	for _, o := range config.Table() {
		out = append(out, o.Flag)
	}
	return out
}

func errorInfo(reason string, metadata ...string) *errdetails.ErrorInfo {
	info := &errdetails.ErrorInfo{Domain: "queuebox.dev", Reason: reason, Metadata: map[string]string{}}
	for i := 0; i < len(metadata); i += 2 {
		info.Metadata[metadata[i]] = metadata[i+1]
	}
	return info
}

// heap is a server with n messages that match, and a record of what it was asked for.
type heap struct {
	left  int64
	asked []*queueboxv1.RedriveMessagesRequest
	// before may answer in place of the heap.
	before func(call int) (*queueboxv1.RedriveMessagesResponse, error)
}

func (h *heap) redrive(r *queueboxv1.RedriveMessagesRequest) (*queueboxv1.RedriveMessagesResponse, error) {
	if r.GetDryRun() {
		n := h.left
		if r.GetMaxMessages() > 0 {
			n = min(n, int64(r.GetMaxMessages()))
		}
		return &queueboxv1.RedriveMessagesResponse{MessageCount: n, More: n < h.left}, nil
	}
	h.asked = append(h.asked, r)
	if h.before != nil {
		if resp, err := h.before(len(h.asked)); resp != nil || err != nil {
			return resp, err
		}
	}
	n := min(h.left, int64(r.GetMaxMessages()))
	h.left -= n
	return &queueboxv1.RedriveMessagesResponse{MessageCount: n, More: h.left > 0}, nil
}

func (h *heap) serve(t *testing.T) *bench {
	t.Helper()
	return serveFake(t, &fake{redrive: h.redrive, purge: func(r *queueboxv1.PurgeMessagesRequest) (*queueboxv1.PurgeMessagesResponse, error) {
		resp, err := h.redrive(&queueboxv1.RedriveMessagesRequest{Filter: r.GetFilter(), MaxMessages: r.GetMaxMessages(), DryRun: r.GetDryRun()})
		return &queueboxv1.PurgeMessagesResponse{MessageCount: resp.GetMessageCount(), More: resp.GetMore()}, err
	}})
}

func TestRedriveGoesOnUntilNothingMatches(t *testing.T) {
	h := &heap{left: 2500}
	b := h.serve(t)
	got := b.run("redrive", "jobs", "--error-contains=printer", "--spread=10m", "--max-attempts=3")
	require.NoError(t, got.err)
	require.Equal(t, "2,500 messages of queue jobs were redriven\n", got.stdout)
	require.Len(t, h.asked, 2, "a quick batch is followed by a larger one")
	for _, r := range h.asked {
		require.Equal(t, int64(600_000), r.GetSpreadMs())
		require.Equal(t, int32(3), r.GetMaxAttempts())
		require.Equal(t, "printer", r.GetFilter().GetErrorContains())
		require.Equal(t, []queueboxv1.MessageState{queueboxv1.MessageState_MESSAGE_STATE_DEAD}, r.GetFilter().GetStates())
	}
	lines := strings.Split(strings.TrimSpace(got.stderr), "\n")
	require.Len(t, lines, 2, "no terminal: a line a batch")
	require.Regexp(t, `^redriven 1,000 of 2,500, [\d,]+/s, \S+ left$`, lines[0])
	require.Regexp(t, `^redriven 2,500 of 2,500, [\d,]+/s$`, lines[1])
	require.NotContains(t, got.stderr, "\r")
}

func TestRedriveStopsAtMax(t *testing.T) {
	h := &heap{left: 5000}
	b := h.serve(t)
	got := b.run("redrive", "jobs", "--all-dead", "--max=1500", "-o", "json")
	require.NoError(t, got.err)
	require.JSONEq(t, `{"messageCount":"1500","more":true}`, got.stdout)
	require.Equal(t, int64(3500), h.left)
	require.Equal(t, int32(500), h.asked[1].GetMaxMessages())
}

// A worker that rejects what is redriven at once must not keep the command going for ever.
func TestRedriveDoesNotChaseWhatDiesAgain(t *testing.T) {
	h := &heap{left: 1500}
	h.before = func(int) (*queueboxv1.RedriveMessagesResponse, error) {
		return &queueboxv1.RedriveMessagesResponse{MessageCount: 1000, More: true}, nil
	}
	b := h.serve(t)
	got := b.run("redrive", "jobs", "--all-dead")
	require.NoError(t, got.err)
	require.Len(t, h.asked, 2)
	require.Contains(t, got.stderr, "more match; run the command again")
}

func TestDryRunMovesNothing(t *testing.T) {
	h := &heap{left: 1234}
	b := h.serve(t)
	require.Equal(t, "1,234 messages of queue jobs would be redriven\n", b.ok("redrive", "jobs", "--all-dead", "--dry-run"))
	require.Equal(t, "1,234 messages of queue jobs would be purged\n", b.ok("purge", "jobs", "--state=dead", "--dry-run"))
	require.Equal(t, "1234", b.object("purge", "jobs", "--state=dead", "--dry-run")["messageCount"])
	require.Equal(t, "10 messages of queue jobs would be purged\n", b.ok("purge", "jobs", "--state=dead", "--dry-run", "--max=10"))
	require.Empty(t, h.asked)
}

func TestPurgeWantsAFilterAndAYes(t *testing.T) {
	h := &heap{left: 12}
	b := h.serve(t)
	requireUsage(t, b.run("purge", "jobs", "--yes").err, "give a filter")
	requireUsage(t, b.run("redrive", "jobs", "--yes").err, "--all-dead for every dead message")
	requireUsage(t, b.run("purge", "jobs", "--state=dead").err, `this would be done to 12 messages of queue "jobs" and nobody is there to confirm it; pass --yes`)
	requireUsage(t, b.run("purge", "jobs", "--state=dead", "--max=-1").err, "--max: want 0 or more")
	require.Empty(t, h.asked)
	require.Equal(t, "12 messages of queue jobs were purged\n", b.ok("purge", "jobs", "--state=dead", "--yes"))
	require.Equal(t, "0 messages of queue jobs were purged\n", b.ok("purge", "jobs", "--state=dead"), "nothing to confirm")
}

func TestAPersonIsAsked(t *testing.T) {
	for answer, want := range map[string]int64{"y\n": 0, "YES\n": 0, "n\n": 12, "\n": 12, "yeah\n": 12, "": 12} {
		h := &heap{left: 12}
		b := h.serve(t)
		b.env.Ask, b.env.Stdin = true, strings.NewReader(answer)
		got := b.run("purge", "jobs", "--state=dead")
		require.Contains(t, got.stderr, "purge 12 messages of queue jobs? [y/N] ")
		require.Equal(t, want, h.left, "%q", answer)
		if want > 0 {
			requireFailure(t, got.err, "nothing was done")
		} else {
			require.NoError(t, got.err)
		}
	}
}

func TestABarOnATerminal(t *testing.T) {
	h := &heap{left: 3000}
	b := h.serve(t)
	b.env.Bar = true
	got := b.run("redrive", "jobs", "--all-dead")
	require.NoError(t, got.err)
	require.Regexp(t, `^\r\[########\.{16}\] redriven 1,000 of 3,000, [\d,]+/s`, got.stderr)
	require.True(t, strings.HasSuffix(got.stderr, "\r"), "the bar is taken away")
	require.NotContains(t, got.stderr, "\n")
}

func unavailable(t *testing.T) error {
	t.Helper()
	st, err := status.New(codes.Unavailable, "the server is shutting down; connect again").WithDetails(errorInfo("DRAINING"))
	require.NoError(t, err)
	return st.Err()
}

func TestALongRedriveOutlivesARestart(t *testing.T) {
	h := &heap{left: 2000}
	h.before = func(call int) (*queueboxv1.RedriveMessagesResponse, error) {
		if call == 2 || call == 3 {
			return nil, unavailable(t)
		}
		return nil, nil
	}
	b := h.serve(t)
	got := b.run("redrive", "jobs", "--all-dead")
	require.NoError(t, got.err)
	require.Equal(t, 2, strings.Count(got.stderr, "(DRAINING); trying again"))
	require.Zero(t, h.left)
}

func TestAnErrorInTheMiddleSaysWhatWasDone(t *testing.T) {
	h := &heap{left: 2000}
	h.before = func(call int) (*queueboxv1.RedriveMessagesResponse, error) {
		if call == 2 {
			return nil, status.Error(codes.PermissionDenied, "no")
		}
		return nil, nil
	}
	b := h.serve(t)
	requireFailure(t, b.run("redrive", "jobs", "--all-dead").err, "1,000 messages were redriven before")
}

func TestWhatOthersHoldIsNotWaitedForForEver(t *testing.T) {
	h := &heap{left: 20}
	h.before = func(int) (*queueboxv1.RedriveMessagesResponse, error) {
		return &queueboxv1.RedriveMessagesResponse{More: true}, nil
	}
	b := h.serve(t)
	requireFailure(t, b.run("redrive", "jobs", "--all-dead").err, "held by other transactions; run the command again; 0 messages were redriven before")
	require.Len(t, h.asked, batchTries)
}

// The batch that runs is finished, so that the number is right.
func TestAnInterruptEndsBetweenTwoBatches(t *testing.T) {
	h := &heap{left: 9000}
	ctx, cancel := context.WithCancel(t.Context())
	h.before = func(call int) (*queueboxv1.RedriveMessagesResponse, error) {
		if call == 2 {
			cancel()
		}
		return nil, nil
	}
	b := h.serve(t)
	b.env.Begin = func() (context.Context, context.CancelFunc) { return ctx, cancel }
	got := b.run("redrive", "jobs", "--all-dead", "-o", "json")
	requireFailure(t, got.err, "interrupted; run the command again to go on; 3,000 messages were redriven before")
	require.JSONEq(t, `{"messageCount":"3000","more":true}`, got.stdout)
	require.Equal(t, int64(6000), h.left)
}

func TestAServerThatCountsNoFurther(t *testing.T) {
	h := &heap{left: 2500}
	b := serveFake(t, &fake{redrive: func(r *queueboxv1.RedriveMessagesRequest) (*queueboxv1.RedriveMessagesResponse, error) {
		if r.GetDryRun() {
			return &queueboxv1.RedriveMessagesResponse{MessageCount: 1000, More: true}, nil
		}
		return h.redrive(r)
	}})
	require.Equal(t, "at least 1,000 messages of queue jobs would be redriven\n", b.ok("redrive", "jobs", "--all-dead", "--dry-run"))
	got := b.run("redrive", "jobs", "--all-dead")
	require.NoError(t, got.err)
	require.Zero(t, h.left, "what it counted is no end")
	require.Regexp(t, `^redriven 1,000, [\d,]+/s\n`, got.stderr)
}

func TestExplainAnswer(t *testing.T) {
	answer := &queueboxv1.ExplainMessageResponse{Blockers: []string{"the queue is paused", "a\x1b"}, BlockingMessageId: "m1", MessagesAhead: -1}
	b := serveFake(t, &fake{explain: func() (*queueboxv1.ExplainMessageResponse, error) { return answer, nil }})
	require.Equal(t, fmt.Sprintf("%-14s  no\n%-14s  the queue is paused\n%-14s  a\\x1b\n%-14s  m1\n%-14s  more than 10,000 messages\n",
		"claimable now", "held back", "held back", "behind message", "ahead of it"), b.ok("explain", "jobs", "m2"))
	require.Equal(t, []any{"the queue is paused", "a\x1b"}, b.object("explain", "jobs", "m2")["blockers"])
	answer = &queueboxv1.ExplainMessageResponse{Claimable: true}
	require.Equal(t, "claimable now  yes\nahead of it    0 messages\n", b.ok("explain", "jobs", "m2"))
}
