package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// gathering is a store whose writer waits for the write lock, which the test holds, so that
// all calls that come meanwhile join one transaction.
type gathering struct {
	t       *testing.T
	s       *Store
	release func()
	calls   []<-chan error
}

func gather(t *testing.T) *gathering {
	t.Helper()
	s, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "q.db"), BusyTimeout: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	s.writer.groupTime = time.Hour
	g := &gathering{t: t, s: s}
	g.hold()
	return g
}

// hold takes the write lock of the file as another process does.
func (g *gathering) hold() {
	g.t.Helper()
	conn, err := openDB(g.t, g.s, false).Conn(g.t.Context())
	require.NoError(g.t, err)
	_, err = conn.ExecContext(g.t.Context(), "BEGIN IMMEDIATE")
	require.NoError(g.t, err)
	g.release = func() {
		_, err := conn.ExecContext(g.t.Context(), "ROLLBACK")
		require.NoError(g.t, err)
		require.NoError(g.t, conn.Close())
	}
}

// call adds a write, after those that were added before.
func (g *gathering) call(ctx context.Context, fn writing) <-chan error {
	return g.submit(&call{ctx: ctx, fn: fn, answer: make(chan error, 1)})
}

func (g *gathering) submit(k *call) <-chan error {
	g.t.Helper()
	answer := make(chan error, 1)
	before := g.arrived()
	go func() { answer <- g.s.submit("test", k) }()
	require.Eventually(g.t, func() bool { return g.arrived() > before }, time.Minute, time.Microsecond*100)
	g.calls = append(g.calls, answer)
	return answer
}

func (g *gathering) arrived() uint64 {
	g.s.writer.mu.Lock()
	defer g.s.writer.mu.Unlock()
	return g.s.writer.arrived
}

// creates writes a queue of that name.
func creates(name string) writing {
	return func(quiet context.Context, c *session) (verdict, error) {
		_, err := c.exec(quiet, qQueueInsert, append(args(name), settingsArgs(storage.QueueSettings{})...)...)
		return commit, err
	}
}

// then writes a queue and goes on with fn.
func then(name string, fn writing) writing {
	return func(quiet context.Context, c *session) (verdict, error) {
		if _, err := creates(name)(quiet, c); err != nil {
			return rollback, err
		}
		return fn(quiet, c)
	}
}

func (g *gathering) has(name string) bool {
	g.t.Helper()
	_, err := g.s.GetQueue(g.t.Context(), name)
	if !errors.Is(err, storage.ErrQueueNotFound) {
		assert.NoError(g.t, err)
	}
	return err == nil
}

// TestE10_GroupOfCallsIsOneTransaction: none of them is answered, and nobody sees what they
// wrote, before the COMMIT that they share.
func TestE10_GroupOfCallsIsOneTransaction(t *testing.T) {
	g := gather(t)
	first := g.call(t.Context(), creates("first"))
	last := g.call(t.Context(), then("last", func(quiet context.Context, c *session) (verdict, error) {
		q, err := c.queueBy(quiet, qQueueGet, "first")
		assert.Equal(t, "first", q.Name, "it shares the transaction: %v", err)
		assert.False(t, g.has("first"), "and that is not committed")
		assert.Empty(t, first, "nor answered")
		return commit, nil
	}))
	g.release()
	require.NoError(t, <-first)
	require.NoError(t, <-last)
	require.True(t, g.has("first"))
	require.True(t, g.has("last"))
}

// TestC10_CallThatFailsIsTakenBackAlone: its neighbours in the transaction are committed.
func TestC10_CallThatFailsIsTakenBackAlone(t *testing.T) {
	failure := errors.New("refused")
	for name, c := range map[string]struct {
		fn    func(cancel func()) (verdict, error)
		check func(t *testing.T, err error)
	}{
		"error": {
			func(func()) (verdict, error) { return commit, failure },
			func(t *testing.T, err error) { t.Helper(); require.ErrorIs(t, err, failure) },
		},
		"verdict": {
			func(func()) (verdict, error) { return rollback, nil },
			func(t *testing.T, err error) { t.Helper(); require.NoError(t, err) },
		},
		"panic": {
			func(func()) (verdict, error) { panic("boom") },
			func(t *testing.T, err error) { t.Helper(); require.ErrorContains(t, err, "boom") },
		},
		"ctx": {
			func(cancel func()) (verdict, error) { cancel(); return commit, nil },
			func(t *testing.T, err error) { t.Helper(); require.ErrorIs(t, err, storage.ErrUnavailable) },
		},
	} {
		for _, place := range []string{"first", "middle"} {
			t.Run(name+" "+place, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				g := gather(t)
				var before <-chan error
				if place == "middle" {
					before = g.call(t.Context(), creates("before"))
				}
				bad := g.call(ctx, then("bad", func(context.Context, *session) (verdict, error) { return c.fn(cancel) }))
				after := g.call(t.Context(), creates("after"))
				g.release()
				c.check(t, <-bad)
				require.NoError(t, <-after)
				require.False(t, g.has("bad"))
				require.True(t, g.has("after"))
				if before != nil {
					require.NoError(t, <-before)
					require.True(t, g.has("before"))
				}
				_, err := g.s.CreateQueue(t.Context(), "later", storage.QueueSettings{}, 0)
				require.NoError(t, err, "the writer goes on")
			})
		}
	}
}

// TestD8_CallerLeavesTheQueue: one whose turn has not come waits for nobody, and nothing of
// his happens.
func TestD8_CallerLeavesTheQueue(t *testing.T) {
	g := gather(t)
	ctx, cancel := context.WithCancel(t.Context())
	before := g.call(t.Context(), creates("before"))
	gone := g.call(ctx, creates("gone"))
	after := g.call(t.Context(), creates("after"))
	cancel()
	require.ErrorIs(t, <-gone, storage.ErrUnavailable)
	require.Empty(t, before)
	g.release()
	require.NoError(t, <-before)
	require.NoError(t, <-after)
	require.False(t, g.has("gone"))
}

// TestD8_CallerLeavesBeforeTheCommit that would answer him: the outcome is unknown to him, he
// does not wait for the calls that joined after his, and they are not cancelled.
func TestD8_CallerLeavesBeforeTheCommit(t *testing.T) {
	g := gather(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	gone := g.call(ctx, creates("gone"))
	after := g.call(t.Context(), func(context.Context, *session) (verdict, error) {
		cancel()
		assert.ErrorIs(t, <-gone, storage.ErrOutcomeUnknown)
		return commit, nil
	})
	g.release()
	require.NoError(t, <-after)
	require.True(t, g.has("gone"), "it was committed with the others")
}

// TestD8_CommitOfAGroupFails: the outcome is unknown to everybody who has written.
func TestD8_CommitOfAGroupFails(t *testing.T) {
	g := gather(t)
	first := g.call(t.Context(), creates("first"))
	second := g.call(t.Context(), func(quiet context.Context, c *session) (verdict, error) {
		// Ended behind the back of the writer, so that its COMMIT has nothing to commit.
		if err := c.control(quiet, "ROLLBACK"); err != nil {
			return rollback, err
		}
		return commit, c.control(quiet, "SAVEPOINT "+savepoint)
	})
	reader := g.call(t.Context(), func(context.Context, *session) (verdict, error) { return rollback, storage.ErrQueueExists })
	g.release()
	require.ErrorIs(t, <-first, storage.ErrOutcomeUnknown)
	require.ErrorIs(t, <-second, storage.ErrOutcomeUnknown)
	err := <-reader
	require.ErrorIs(t, err, storage.ErrUnavailable, "what it has read is not committed")
	require.NotErrorIs(t, err, storage.ErrQueueExists)
	_, err = g.s.CreateQueue(t.Context(), "after", storage.QueueSettings{}, 0)
	require.NoError(t, err)
}

// TestD8_TransactionIsLost: where SQLite ends the transaction by itself, nothing of it was
// committed, and that is no unknown outcome.
func TestD8_TransactionIsLost(t *testing.T) {
	g := gather(t)
	first := g.call(t.Context(), creates("first"))
	second := g.call(t.Context(), func(quiet context.Context, c *session) (verdict, error) {
		return rollback, c.control(quiet, "ROLLBACK")
	})
	third := g.call(t.Context(), creates("third"))
	g.release()
	err := <-first
	require.ErrorIs(t, err, storage.ErrUnavailable)
	require.NotErrorIs(t, err, storage.ErrOutcomeUnknown)
	require.Error(t, <-second)
	require.NoError(t, <-third, "the next transaction")
	require.False(t, g.has("first"))
}

// TestE10_GroupIsBounded: by calls, by time, and by a call that goes alone. Who comes behind
// the bound finds committed what came before it.
func TestE10_GroupIsBounded(t *testing.T) {
	for name, bound := range map[string]func(g *gathering){
		"calls": func(g *gathering) { g.s.writer.groupCalls = 1 },
		"time":  func(g *gathering) { g.s.writer.groupTime = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			g := gather(t)
			bound(g)
			first := g.call(t.Context(), creates("first"))
			second := g.call(t.Context(), func(context.Context, *session) (verdict, error) {
				assert.True(t, g.has("first"))
				return rollback, nil
			})
			g.release()
			require.NoError(t, <-first)
			require.NoError(t, <-second)
		})
	}
	t.Run("alone", func(t *testing.T) {
		g := gather(t)
		first := g.call(t.Context(), creates("first"))
		alone := g.submit(&call{ctx: t.Context(), alone: true, answer: make(chan error, 1), fn: then("alone",
			func(context.Context, *session) (verdict, error) {
				assert.True(t, g.has("first"))
				return commit, nil
			})})
		last := g.call(t.Context(), func(context.Context, *session) (verdict, error) {
			assert.True(t, g.has("alone"))
			return rollback, nil
		})
		g.release()
		require.NoError(t, <-first)
		require.NoError(t, <-alone)
		require.NoError(t, <-last)
	})
}

// TestO1_GroupKeepsTheOrderOfArrival: calls run, and their messages stand, in the order in
// which they came.
func TestO1_GroupKeepsTheOrderOfArrival(t *testing.T) {
	g := gather(t)
	var order []int
	for i := range 50 {
		g.call(t.Context(), then(fmt.Sprint("q", i), func(context.Context, *session) (verdict, error) {
			order = append(order, i)
			return verdict(i%3 > 0), nil
		}))
	}
	g.release()
	for _, answer := range g.calls {
		require.NoError(t, <-answer)
	}
	for i := range 50 {
		require.Equal(t, i, order[i])
		require.Equal(t, i%3 > 0, g.has(fmt.Sprint("q", i)))
	}
}

// TestC11_GroupThatWroteNothing does not commit: the log does not grow.
func TestC11_GroupThatWroteNothing(t *testing.T) {
	g := gather(t)
	frames := func() (n int) {
		row := openDB(g.t, g.s, true).QueryRowContext(t.Context(), "PRAGMA wal_checkpoint(NOOP)")
		var busy, done int
		require.NoError(t, row.Scan(&busy, &n, &done))
		return n
	}
	before := frames()
	for range 3 {
		g.call(t.Context(), then("nothing", func(context.Context, *session) (verdict, error) { return rollback, nil }))
	}
	g.release()
	for _, answer := range g.calls {
		require.NoError(t, <-answer)
	}
	require.Equal(t, before, frames())
}

// TestD5_TwoWritersOnOneFile: neither keeps the other from writing, however busy both are.
func TestD5_TwoWritersOnOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "q.db")
	stores := []*Store{openAt(t, path), openAt(t, path)}
	q, err := stores[0].CreateQueue(t.Context(), "q", storage.QueueSettings{MaxAttempts: 3}, 0)
	require.NoError(t, err)
	const callers, each = 8, 40
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for _, s := range stores {
		for range callers {
			wg.Go(func() {
				for range each {
					_, err := s.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: q.ID, WireBytes: 1}}})
					if err != nil {
						failed.Store(&err)
					}
				}
			})
		}
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		require.NoError(t, *err)
	}
	st, err := stores[0].QueueStats(t.Context(), q.ID)
	require.NoError(t, err)
	require.EqualValues(t, 2*callers*each, st.Ready)
}

// TestD5_WriterKnowsItsNeighbour: another process that writes, and neither itself nor readers.
func TestD5_WriterKnowsItsNeighbour(t *testing.T) {
	path := filepath.Join(t.TempDir(), "q.db")
	s := openAt(t, path)
	create := func(s *Store, name string) {
		_, err := s.CreateQueue(t.Context(), name, storage.QueueSettings{}, 0)
		require.NoError(t, err)
		_, err = s.GetQueue(t.Context(), name)
		require.NoError(t, err)
	}
	wrote := func() bool {
		s.writer.mu.Lock()
		defer s.writer.mu.Unlock()
		for s.writer.running {
			s.writer.idle.Wait()
		}
		return !s.writer.neighbour.wrote.IsZero()
	}
	create(s, "own")
	create(s, "too")
	require.False(t, wrote())
	create(openAt(t, path), "other")
	create(s, "after")
	require.True(t, wrote())
}

// TestD8_CloseWaitsForTheWriter: what a caller has left is still written before the file is
// closed.
func TestD8_CloseWaitsForTheWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "q.db")
	s, err := Open(t.Context(), Config{Path: path})
	require.NoError(t, err)
	s.writer.groupTime = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	entered, answered, closing := make(chan struct{}), make(chan error), make(chan struct{})
	go func() { answered <- s.write(ctx, "test", creates("left")) }()
	go func() {
		_ = s.write(t.Context(), "test", func(context.Context, *session) (verdict, error) {
			close(entered)
			<-closing
			return rollback, nil
		})
	}()
	<-entered
	cancel()
	err = <-answered
	close(closing)
	require.NoError(t, s.Close())
	again := openAt(t, path)
	_, found := again.GetQueue(t.Context(), "left")
	switch {
	case err == nil, errors.Is(err, storage.ErrOutcomeUnknown):
		require.NoError(t, found)
	default:
		require.ErrorIs(t, err, storage.ErrUnavailable)
		require.ErrorIs(t, found, storage.ErrQueueNotFound)
	}
}
