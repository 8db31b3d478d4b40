package storagetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// notifyRules check Notify and Listen.
func notifyRules() []rule {
	return []rule{
		{name: "W1_W5_T6_notifications_wake_the_other_stores", clocks: realClock, run: notifications, skip: needsNotifications},
		{name: "listen_without_notifications_says_so", clocks: realClock, run: noNotifications, skip: needsNoNotifications},
	}
}

func needsNotifications(_ *Instance, c storage.Capabilities) string {
	if !c.Notifications {
		return "Capabilities.Notifications is false: servers poll"
	}
	return ""
}

func needsNoNotifications(_ *Instance, c storage.Capabilities) string {
	if c.Notifications {
		return "Capabilities.Notifications is true"
	}
	return ""
}

// notifications checks Notify and Listen between two stores, over a connection that
// breaks where the instance can break it.
func notifications(t *testing.T, e *env) {
	other := e.other
	ctx, stop := context.WithCancel(t.Context())
	woken := make(chan storage.QueueReady, 100)
	claims := make(chan storage.Ref, 100)
	hellos := make(chan storage.Hello, 100)
	up := make(chan bool, 100)
	done := make(chan error, 1)
	go func() {
		done <- other.Listen(ctx, func(n storage.Notice) {
			for _, q := range n.Queues {
				woken <- q
			}
			for _, ref := range n.Claims {
				claims <- ref
			}
			if n.Hello.Server != 0 {
				hellos <- n.Hello
			}
		}, func(is bool) { up <- is })
	}()
	require.True(t, receive(t, up, "listening"), "connected")

	another := e.newQueue(t, settings())
	told := []storage.QueueReady{
		{QueueID: e.queue.ID}, {QueueID: another.ID, ReadyTime: time.Date(2031, 4, 5, 6, 7, 8, 987654000, time.UTC)},
	}
	require.NoError(t, e.store.Notify(t.Context(), storage.Notice{Queues: told}))
	got := []storage.QueueReady{receive(t, woken, "the first queue"), receive(t, woken, "the second queue")}
	require.ElementsMatch(t, told, got, "with the time that belongs to it (W7)")
	require.NoError(t, e.store.Notify(t.Context(), storage.Notice{}), "nothing to tell")

	ref := storage.Ref{QueueID: e.queue.ID, Position: 1<<62 + 1}
	require.NoError(t, e.store.Notify(t.Context(), storage.Notice{Claims: []storage.Ref{ref}}))
	require.Equal(t, ref, receive(t, claims, "a claim (T6)"))

	for _, hello := range []storage.Hello{{Server: 1}, {Server: 1<<64 - 1, Asks: true}} {
		require.NoError(t, e.store.Notify(t.Context(), storage.Notice{Hello: hello}))
		require.Equal(t, hello, receive(t, hellos, "a hello (W1)"))
		require.NoError(t, other.Notify(t.Context(), storage.Notice{Hello: hello}))
		require.Equal(t, hello, receive(t, hellos, "its own hello"))
	}

	if e.in.Sever != nil {
		e.sever(t)
		require.False(t, receive(t, up, "the loss of the connection"), "it tells that it is deaf")
		require.True(t, receive(t, up, "the new connection"), "it heals by itself")
		eventually(t, "a notification after the break", func() bool {
			return e.store.Notify(t.Context(), storage.Notice{Queues: told}) == nil
		})
		for receive(t, woken, "a queue after the break") != told[1] {
			continue
		}
	}
	stop()
	if err := receive(t, done, "the end of Listen"); err != nil {
		require.ErrorIs(t, err, context.Canceled)
	}
}

func noNotifications(t *testing.T, e *env) {
	err := e.store.Listen(t.Context(), func(storage.Notice) {}, func(bool) {})
	require.ErrorIs(t, err, storage.ErrNotSupported)
	require.NoError(t, e.store.Notify(t.Context(), storage.Notice{Queues: []storage.QueueReady{{QueueID: e.queue.ID}}}), "Notify does nothing")
}

// receive takes the next value of a channel.
func receive[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	select {
	case v := <-c:
		return v
	case <-ctx.Done():
		require.FailNow(t, "never came: "+what)
		panic("unreachable")
	}
}
