package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/queuebox/queuebox/storage"
)

// catalogTTL is how long the settings of a queue may be old. Its id never changes.
const catalogTTL = time.Second

// catalog remembers the queues by name. A queue that does not exist is not
// remembered: it may be made at any moment, by any server.
type catalog struct {
	store   storage.Admin
	now     func() time.Time
	timeout time.Duration
	flights singleflight.Group

	mu     sync.RWMutex
	byName map[string]catalogEntry
}

type catalogEntry struct {
	queue storage.Queue
	read  time.Time
}

func newCatalog(store storage.Admin, now func() time.Time, timeout time.Duration) *catalog {
	return &catalog{store: store, now: now, timeout: timeout, byName: map[string]catalogEntry{}}
}

// get returns a queue with settings at most a second old; storage.ErrQueueNotFound.
func (c *catalog) get(ctx context.Context, name string) (storage.Queue, error) {
	if q, ok := c.fresh(name); ok {
		return q, nil
	}
	return c.read(ctx, name)
}

// fresh returns what get would without asking anybody.
func (c *catalog) fresh(name string) (storage.Queue, bool) {
	c.mu.RLock()
	e, ok := c.byName[name]
	c.mu.RUnlock()
	return e.queue, ok && c.now().Sub(e.read) < catalogTTL
}

// id returns a queue of which only the id matters; storage.ErrQueueNotFound.
func (c *catalog) id(ctx context.Context, name string) (storage.Queue, error) {
	c.mu.RLock()
	e, ok := c.byName[name]
	c.mu.RUnlock()
	if ok {
		return e.queue, nil
	}
	return c.read(ctx, name)
}

// read asks the storage, once for all who ask at the same time. The statement runs
// under its own deadline, so that a caller that leaves fails nobody else.
func (c *catalog) read(ctx context.Context, name string) (storage.Queue, error) {
	done := c.flights.DoChan(name, sheltered(func() (any, error) {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timeout)
		defer cancel()
		read := c.now()
		q, err := c.store.GetQueue(call, name)
		if err != nil {
			return nil, err
		}
		c.put(q, read)
		return q, nil
	}))
	select {
	case r := <-done:
		if r.Err != nil {
			return storage.Queue{}, r.Err
		}
		return r.Val.(storage.Queue), nil
	case <-ctx.Done():
		return storage.Queue{}, context.Cause(ctx)
	}
}

// put remembers a queue that was read or changed at the local time read.
func (c *catalog) put(q storage.Queue, read time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byName[q.Name]; ok && e.queue.Version > q.Version {
		return
	}
	c.byName[q.Name] = catalogEntry{queue: q, read: read}
}

// create returns a queue, made with the given settings where it does not exist.
func (c *catalog) create(ctx context.Context, name string, s storage.QueueSettings, maxQueues int) (storage.Queue, bool, error) {
	q, err := c.get(ctx, name)
	if err == nil || !errors.Is(err, storage.ErrQueueNotFound) {
		return q, false, err
	}
	read := c.now()
	q, err = c.store.CreateQueue(ctx, name, s, maxQueues)
	if errors.Is(err, storage.ErrQueueExists) {
		// Another caller or server was faster. A look that began before it has not seen the queue,
		// so it is not this one's answer.
		c.flights.Forget(name)
		q, err = c.read(ctx, name)
		return q, false, err
	}
	if err != nil {
		return storage.Queue{}, false, err
	}
	c.put(q, read)
	return q, true, nil
}
