package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/postgres"
)

func isUnknown(err error) bool { return errors.Is(err, storage.ErrOutcomeUnknown) }

// listener collects what Listen tells.
type listener struct {
	wakes  chan int32
	claims chan storage.Ref
	ups    chan bool
}

func listen(t *testing.T, s storage.Store) listener {
	t.Helper()
	l := listener{wakes: make(chan int32, 1000), claims: make(chan storage.Ref, 2000), ups: make(chan bool, 100)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Listen(ctx, func(n storage.Notice) {
			for _, q := range n.Queues {
				l.wakes <- q.QueueID
			}
			for _, ref := range n.Claims {
				l.claims <- ref
			}
			if n.Hello.Server != 0 {
				t.Errorf("a hello that nobody said: %v", n.Hello)
			}
		}, func(up bool) { l.ups <- up }); err != nil {
			t.Errorf("listen: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return l
}

func queues(ids ...int32) storage.Notice {
	var n storage.Notice
	for _, id := range ids {
		n.Queues = append(n.Queues, storage.QueueReady{QueueID: id})
	}
	return n
}

func await[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(20 * time.Second):
		require.FailNow(t, "nothing came", what)
		panic("unreachable")
	}
}

func TestNotificationsReachAnotherServer(t *testing.T) {
	d := newDatabase(t, false)
	other := open(t, d.config)
	l := listen(t, other)
	require.True(t, await(t, l.ups, "up"))
	require.NoError(t, d.store.Notify(t.Context(), queues(3, 5)))
	require.EqualValues(t, 3, await(t, l.wakes, "3"))
	require.EqualValues(t, 5, await(t, l.wakes, "5"))
	many := make([]int32, 1200)
	for i := range many {
		many[i] = int32(2000000000 + i)
	}
	require.NoError(t, d.store.Notify(t.Context(), queues(many...)))
	for _, id := range many {
		require.Equal(t, id, await(t, l.wakes, "one of many"))
	}
	// Claims stand beside them, and are as many as need be.
	refs := make([]storage.Ref, 600)
	for i := range refs {
		refs[i] = storage.Ref{QueueID: 2000000000, Position: 1<<62 + int64(i)}
	}
	require.NoError(t, d.store.Notify(t.Context(), storage.Notice{Queues: []storage.QueueReady{{QueueID: 8}}, Claims: refs}))
	require.EqualValues(t, 8, await(t, l.wakes, "8"))
	for _, ref := range refs {
		require.Equal(t, ref, await(t, l.claims, "one of many"))
	}
	// What is not ours is no reason to stumble.
	d.exec(t, "SELECT pg_notify('queuebox', 'c,c1,c1:,c:1,c1:2:3,cx:1,c1:x')")
	d.exec(t, "SELECT pg_notify('queuebox', 'hello, 7, 7@, 7@x, @7')")
	d.exec(t, "SELECT pg_notify('queuebox', 'h,h?,h0,hx,h12345678123456789,h-1')")
	d.exec(t, "SELECT pg_notify('queuebox', '')")
	require.NoError(t, d.store.Notify(t.Context(), queues(9)))
	require.EqualValues(t, 9, await(t, l.wakes, "9"))
}

// W5: a killed notification connection heals by itself.
func TestW5KilledListenerHeals(t *testing.T) {
	d := newDatabase(t, false)
	l := listen(t, d.store)
	require.True(t, await(t, l.ups, "up"))
	d.lines(t, `SELECT pg_terminate_backend(pid)::text FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`)
	require.False(t, await(t, l.ups, "down"))
	require.True(t, await(t, l.ups, "up again"))
	require.NoError(t, d.store.Notify(t.Context(), queues(1)))
	require.EqualValues(t, 1, await(t, l.wakes, "after the cut"))
}

// W5: a connection on which nothing arrives any more is noticed, though nobody closed it.
func TestW5HalfOpenListenerIsNoticed(t *testing.T) {
	d := newDatabase(t, false)
	s, p := through(t, d)
	l := listen(t, s)
	require.True(t, await(t, l.ups, "up"))
	p.BlackHole(true)
	started := time.Now()
	require.False(t, await(t, l.ups, "down"))
	require.Less(t, time.Since(started), 10*time.Second, "about a second on a quiet machine")
	p.BlackHole(false)
	require.True(t, await(t, l.ups, "up again"))
	require.NoError(t, d.store.Notify(t.Context(), queues(1)))
	require.EqualValues(t, 1, await(t, l.wakes, "after the hole"))
}

func TestListenNeedsASession(t *testing.T) {
	d := newDatabase(t, false)
	s := open(t, postgres.Config{URL: d.url + "&pooler=transaction"})
	require.False(t, s.Capabilities().Notifications)
	require.ErrorIs(t, s.Listen(t.Context(), nil, nil), storage.ErrNotSupported)
	require.NoError(t, s.Notify(t.Context(), queues(1)))
	both := open(t, postgres.Config{URL: d.url + "&pooler=transaction", ListenURL: d.url})
	require.True(t, both.Capabilities().Notifications)
	l := listen(t, both)
	require.True(t, await(t, l.ups, "up"))
	require.NoError(t, both.Notify(t.Context(), queues(4)))
	require.EqualValues(t, 4, await(t, l.wakes, "beside a pooler"))
}
