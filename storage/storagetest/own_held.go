package storagetest

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// ownHeldKeyOrder: a message cannot be placed yet, since a stranger has its idempotency key. What
// was committed after it in the same ordering key stays behind it; other keys go on.
func ownHeldKeyOrder(t *testing.T, e *env) {
	end := e.in.HoldIdempotencyKey(t, e.queue.ID, "key")
	release := sync.OnceFunc(func() { end(false) })
	defer release()
	e.enqueueOwn(t, e.message(ordered("order"), keyed("key", "content"), payload([]byte("first"))))
	e.enqueueOwn(t, e.message(ordered("order"), payload([]byte("second"))), e.message(ordered("other"), payload([]byte("other"))))
	for _, store := range []storage.Store{e.store, e.other} {
		_, err := store.Place(t.Context(), storage.PlaceParams{Limit: 100})
		require.ErrorIs(t, err, storage.ErrUnavailable, "one of them waits still")
	}
	c := e.claimOne(t)
	require.Equal(t, "other", string(c.Message.Payload))
	e.complete(t, c)
	e.claimNothing(t)
	release()
	require.Equal(t, 2, e.place(t).Placed)
	for _, want := range []string{"first", "second"} {
		c := e.claimOne(t)
		require.Equal(t, want, string(c.Message.Payload))
		e.complete(t, c)
	}
}

// ownHeldKey: while a stranger has the idempotency key of what a transaction of somebody's own has
// enqueued, servers look again and again whether they can place it. Who needs its ordering key
// does not wait with them.
func ownHeldKey(t *testing.T, e *env) {
	const slow = time.Second
	end := e.in.HoldIdempotencyKey(t, e.queue.ID, "key")
	release := sync.OnceFunc(func() { end(false) })
	defer release()
	e.enqueueOwn(t, e.message(ordered("order"), keyed("key", "content")))
	neighbour := e.through(e.other)
	stopped := make(chan struct{})
	stop := sync.OnceFunc(func() { close(stopped) })
	var placing sync.WaitGroup
	placing.Go(func() {
		for {
			select {
			case <-stopped:
				return
			default:
				_, _ = e.store.Place(t.Context(), storage.PlaceParams{Limit: 100})
			}
		}
	})
	defer placing.Wait()
	defer stop()
	for range 10 {
		began := time.Now()
		neighbour.one(t, ordered("order"))
		neighbour.complete(t, neighbour.claimOne(t))
		require.Less(t, time.Since(began), slow, "a neighbour waited with it")
	}
	stop()
	placing.Wait()
	release()
	require.Equal(t, 1, e.place(t).Placed)
}
