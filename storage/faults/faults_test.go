package faults_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/faults"
	"github.com/queuebox/queuebox/storage/sqlite"
)

// open returns a store that can be broken, on a database with one queue.
func open(t *testing.T) (*faults.Store, storage.Queue) {
	t.Helper()
	inner, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "queuebox.db")})
	require.NoError(t, err)
	s := faults.Wrap(inner)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	q, err := s.CreateQueue(t.Context(), "orders", storage.QueueSettings{
		DefaultLease: time.Second, MinLease: time.Second, MaxLease: time.Hour, CompletedRetention: time.Hour, Ordering: storage.OrderingSkipDead,
	}, 0)
	require.NoError(t, err)
	return s, q
}

func enqueue(ctx context.Context, s storage.Store, q storage.Queue) error {
	_, err := s.Enqueue(ctx, storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: q.ID, Payload: []byte("x"), WireBytes: 50}}})
	return err
}

func ready(t *testing.T, s storage.Store, q storage.Queue) int64 {
	t.Helper()
	stats, err := s.QueueStats(t.Context(), q.ID)
	require.NoError(t, err)
	return stats.Ready
}

func TestNothingFailsUntilATestSaysSo(t *testing.T) {
	s, q := open(t)
	require.NoError(t, enqueue(t.Context(), s, q))
	require.EqualValues(t, 1, ready(t, s, q))
	require.Equal(t, "sqlite", s.Capabilities().Name)
	require.Equal(t, 1, s.Calls(faults.Enqueue))
	require.Equal(t, 3, s.Calls(faults.Any), "create queue, enqueue, stats")
}

func TestRefuse_MakesNoCall(t *testing.T) {
	s, q := open(t)
	s.Inject(faults.Enqueue, faults.Fault{Refuse: true, Times: 2})
	for range 2 {
		err := enqueue(t.Context(), s, q)
		require.ErrorIs(t, err, storage.ErrUnavailable)
		require.NotErrorIs(t, err, storage.ErrOutcomeUnknown)
	}
	require.EqualValues(t, 0, ready(t, s, q))
	require.NoError(t, enqueue(t.Context(), s, q), "two calls were struck, the third passes")
	require.EqualValues(t, 1, ready(t, s, q))
}

func TestLose_MakesTheCallAndCutDoesNot(t *testing.T) {
	s, q := open(t)
	s.Inject(faults.Enqueue, faults.Fault{Lose: true})
	require.ErrorIs(t, enqueue(t.Context(), s, q), storage.ErrOutcomeUnknown)
	require.EqualValues(t, 1, ready(t, s, q), "what the call did, it did")
	s.Inject(faults.Enqueue, faults.Fault{Cut: true})
	require.ErrorIs(t, enqueue(t.Context(), s, q), storage.ErrOutcomeUnknown)
	require.EqualValues(t, 1, ready(t, s, q))
	s.Clear(faults.Enqueue)
	require.NoError(t, enqueue(t.Context(), s, q))
}

func TestErr_AndAfterAndAny(t *testing.T) {
	s, q := open(t)
	broken := errors.New("broken")
	s.Inject(faults.Any, faults.Fault{Err: broken, After: 1, Times: 1})
	require.NoError(t, enqueue(t.Context(), s, q), "one call passes first")
	require.ErrorIs(t, s.Ready(t.Context()), broken)
	require.NoError(t, s.Ready(t.Context()))
	s.Inject(faults.Any, faults.Fault{Err: broken})
	s.Inject(faults.Ready, faults.Fault{})
	require.NoError(t, s.Ready(t.Context()), "the fault of the method itself goes first")
	require.ErrorIs(t, enqueue(t.Context(), s, q), broken)
	s.Clear()
	require.NoError(t, enqueue(t.Context(), s, q))
}

func TestHang_EndsWithItsContext(t *testing.T) {
	s, q := open(t)
	arrived := make(chan struct{})
	s.Inject(faults.Settle, faults.Fault{Hang: true, Strike: func() { close(arrived) }})
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the caller went away")
	done := make(chan error, 1)
	go func() {
		_, err := s.Settle(ctx, storage.SettleParams{})
		done <- err
	}()
	<-arrived
	cancel(gone)
	err := <-done
	require.ErrorIs(t, err, storage.ErrUnavailable)
	require.ErrorIs(t, err, gone)
	require.NoError(t, enqueue(t.Context(), s, q), "other methods go on")
}

func TestDelay_WaitsAndEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := faults.Wrap(nil)
		s.Inject(faults.Ready, faults.Fault{Delay: time.Minute, Refuse: true})
		start := time.Now()
		require.ErrorIs(t, s.Ready(t.Context()), storage.ErrUnavailable)
		require.Equal(t, time.Minute, time.Since(start))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start = time.Now()
		err := s.Ready(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
	})
}

func TestDelayAfter_LosesTheAnswerWhenTheContextEnds(t *testing.T) {
	s, q := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.Inject(faults.Enqueue, faults.Fault{DelayAfter: time.Hour})
	done := make(chan error, 1)
	go func() { done <- enqueue(ctx, s, q) }()
	require.Eventually(t, func() bool { return ready(t, s, q) == 1 }, 10*time.Second, 5*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, storage.ErrOutcomeUnknown, "the work is done and the caller cannot know it")
}
