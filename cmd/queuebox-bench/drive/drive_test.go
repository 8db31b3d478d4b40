package drive

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPercentiles(t *testing.T) {
	all := make([]time.Duration, 0, 100)
	for i := 100; i > 0; i-- {
		all = append(all, time.Duration(i)*time.Millisecond)
	}
	require.Equal(t, Percentiles{Count: 100, P50: 51, P95: 96, P99: 100}, percentiles(all))
	require.Equal(t, 100*time.Millisecond, all[0], "what was measured stays as it was")
	require.Equal(t, Percentiles{}, percentiles(nil))
}

// TestMeterCountsWithinTheWindow: warm-up and end are not measured.
func TestMeterCountsWithinTheWindow(t *testing.T) {
	m := &Meter{}
	m.Done(5)
	m.Took(StepClaim, time.Now())
	m.Open()
	m.Done(2)
	m.Done(1)
	m.Took(StepEnqueue, time.Now())
	m.Close()
	m.Done(7)
	m.Took(StepEnqueue, time.Now())
	r := m.Result()
	require.EqualValues(t, 3, r.Messages)
	require.Positive(t, r.Seconds)
	require.Len(t, r.Steps, 1)
	require.Equal(t, 1, r.Steps[StepEnqueue].Count)
}

// TestBalanceKeepsTheBacklog: a producer waits for completions, a worker for what was enqueued.
func TestBalanceKeepsTheBacklog(t *testing.T) {
	b := newBalance(10)
	ctx := t.Context()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.NoError(t, b.reserve(ctx, 10))
	require.Error(t, b.reserve(ended, 1), "nothing was completed yet")
	require.Error(t, b.start(ended, 1), "nothing was enqueued yet")
	b.enqueued(10)
	require.NoError(t, b.start(ctx, 4))
	b.completed(4)
	require.NoError(t, b.reserve(ctx, 4))
	require.Error(t, b.start(ended, 7), "six are left to start")
	require.NoError(t, b.start(ctx, 6))
}

// TestStartsMeasureTheirOwnMessages: those of an earlier window are not taken for new ones.
func TestStartsMeasureTheirOwnMessages(t *testing.T) {
	m := &Meter{}
	m.Open()
	s := newStarts(m, 100)
	body := s.body(100)
	require.Len(t, body, 100)
	s.handle(body)
	s.handle(body) // a second delivery has no start of its own
	s.handle([]byte("99 x"))
	s.handle([]byte("xxx"))
	m.Close()
	require.Equal(t, 1, m.Result().Steps[StepStart].Count)
}

func TestCrowdEndsWithTheFirstFailure(t *testing.T) {
	broken := errors.New("broken")
	err := crowd(t.Context(), 3, func(ctx context.Context, i int) error {
		if i == 1 {
			return broken
		}
		<-ctx.Done()
		return ctx.Err()
	})
	require.ErrorIs(t, err, broken)
	ctx, cancel := context.WithCancel(t.Context())
	err = crowd(ctx, 3, func(ctx context.Context, i int) error {
		if i == 0 {
			cancel()
		}
		<-ctx.Done()
		return ctx.Err()
	})
	require.NoError(t, err, "the end of a window is no failure")
}

// events runs a spec against an echo server and returns what it said.
func events(t *testing.T, s Spec) []Event {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.Server = lis.Addr().String()
	require.NoError(t, lis.Close())
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { _ = ServeEcho(ctx, s.Server, s.Payload) })
	defer serving.Wait()
	defer cancel()
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", s.Server)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}, 10*time.Second, 10*time.Millisecond)
	var out bytes.Buffer
	require.NoError(t, Run(ctx, s, &out))
	var all []Event
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		var e Event
		require.NoError(t, json.Unmarshal(lines.Bytes(), &e))
		all = append(all, e)
	}
	return all
}

func TestWindowTellsBeginAndEnd(t *testing.T) {
	all := events(t, Spec{Load: "queuebox-unary-8", Do: Cycle, Queue: "q", Payload: 10, Warmup: 500 * time.Millisecond, Window: time.Second})
	require.Len(t, all, 2)
	require.Equal(t, EventBegin, all[0].Event)
	require.Equal(t, EventEnd, all[1].Event)
	r := all[1].Result
	require.Positive(t, r.Messages)
	require.GreaterOrEqual(t, r.Seconds, 1.0)
	require.Greater(t, all[1].CPU, all[0].CPU)
	for _, step := range []string{StepEnqueue, StepClaim, StepComplete} {
		require.Positive(t, r.Steps[step].Count, step)
	}
}

func TestFillSaysNothing(t *testing.T) {
	require.Empty(t, events(t, Spec{Load: "queuebox-batch-100", Do: Fill, Queue: "q", Count: 1500}))
}

// TestUnimplementedIsASkip: a server without Work streams does not fail the run.
func TestUnimplementedIsASkip(t *testing.T) {
	all := events(t, Spec{Load: "queuebox-stream", Do: Cycle, Queue: "q", Warmup: time.Minute})
	require.Len(t, all, 1)
	require.Equal(t, EventSkip, all[0].Event)
	require.Contains(t, all[0].Reason, "UNIMPLEMENTED")
}

func TestUnknownLoad(t *testing.T) {
	require.ErrorContains(t, Run(t.Context(), Spec{Load: "nobody"}, &bytes.Buffer{}), "nobody")
}
