package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// lateLooks is a store in which a queue is made while a look is on its way that began before.
type lateLooks struct {
	storage.Admin

	looks    chan chan storage.Queue
	creating chan struct{}
	made     chan struct{}
}

// GetQueue answers when the test says what it has seen.
func (s *lateLooks) GetQueue(ctx context.Context, _ string) (storage.Queue, error) {
	seen := make(chan storage.Queue, 1) // whether or not it is waited for yet
	select {
	case s.looks <- seen:
	case <-ctx.Done():
		return storage.Queue{}, ctx.Err()
	}
	if q := <-seen; q.Name != "" {
		return q, nil
	}
	return storage.Queue{}, storage.ErrQueueNotFound
}

// CreateQueue meets a queue that somebody else has made.
func (s *lateLooks) CreateQueue(context.Context, string, storage.QueueSettings, int) (storage.Queue, error) {
	close(s.creating)
	<-s.made
	return storage.Queue{}, storage.ErrQueueExists
}

// A caller that another one was faster than looks once more, and takes no answer of a look that
// began before the queue was there.
func TestE13AQueueThatAnotherCallerMadeIsFound(t *testing.T) {
	store := &lateLooks{looks: make(chan chan storage.Queue), creating: make(chan struct{}), made: make(chan struct{})}
	c := newCatalog(store, time.Now, time.Minute)
	q := storage.Queue{ID: 7, Name: "q"}
	type answer struct {
		q   storage.Queue
		err error
	}
	first := make(chan answer, 1)
	go func() {
		q, _, err := c.create(t.Context(), "q", storage.QueueSettings{}, 0)
		first <- answer{q, err}
	}()
	seen := <-store.looks
	seen <- storage.Queue{} // so that it makes the queue
	<-store.creating
	go func() { _, _ = c.get(t.Context(), "q") }()
	stale := <-store.looks // begun before the queue is there
	close(store.made)
	select {
	case seen = <-store.looks: // the look of the first caller, which joined nobody
		seen <- q
	case <-time.After(10 * time.Second):
		stale <- storage.Queue{}
	}
	got := <-first
	require.NoError(t, got.err)
	require.Equal(t, q.ID, got.q.ID)
	select {
	case stale <- storage.Queue{}:
	default: // it was answered before
	}
}

// hungLooks is a store that does not answer.
type hungLooks struct{ storage.Admin }

func (hungLooks) GetQueue(ctx context.Context, _ string) (storage.Queue, error) {
	<-ctx.Done()
	return storage.Queue{}, storage.ErrUnavailable
}

// An enqueue finds its queue within the deadline of a statement. Where that strikes while the
// caller has time left, he hears that the database is away, and not of a deadline.
func TestD3DeadlineOfAStatementIsNoDeadlineOfTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{life: t.Context()}
		c := newCatalog(hungLooks{}, time.Now, 2*statementTimeout)
		call, cancel := a.statement(t.Context())
		defer cancel()
		_, _, err := c.create(call, "q", storage.QueueSettings{}, 0)
		require.ErrorIs(t, err, storage.ErrUnavailable)
		time.Sleep(2 * statementTimeout) // until the look has ended, too
	})
}
