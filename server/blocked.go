package server

import (
	"context"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/queuebox/queuebox/storage"
)

// blockedTTL is how old the answer may be: all waits of a queue that end together ask once.
const blockedTTL = 200 * time.Millisecond

// blockedCache knows for a moment in which queues messages wait behind their ordering keys
// (C17).
type blockedCache struct {
	store   storage.Admin
	now     func() time.Time
	flights singleflight.Group

	mu   sync.Mutex
	byID map[int32]blockedEntry
}

type blockedEntry struct {
	blocked bool
	read    time.Time
}

func newBlockedCache(store storage.Admin, now func() time.Time) *blockedCache {
	return &blockedCache{store: store, now: now, byID: map[int32]blockedEntry{}}
}

// get asks the storage. Where that fails nobody is told more than that nothing is ready: the
// claim itself did not fail.
func (c *blockedCache) get(ctx context.Context, queueID int32) bool {
	c.mu.Lock()
	e, ok := c.byID[queueID]
	c.mu.Unlock()
	if ok && c.now().Sub(e.read) < blockedTTL {
		return e.blocked
	}
	done := c.flights.DoChan(strconv.Itoa(int(queueID)), sheltered(func() (any, error) {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), blockedTimeout)
		defer cancel()
		blocked, err := c.store.Blocked(call, queueID)
		if err == nil {
			c.mu.Lock()
			c.byID[queueID] = blockedEntry{blocked: blocked, read: c.now()}
			c.mu.Unlock()
		}
		return blocked, err
	}))
	select {
	case r := <-done:
		blocked, _ := r.Val.(bool)
		return r.Err == nil && blocked
	case <-ctx.Done():
		return false
	}
}

// blockedTimeout bounds the look: the caller's wait has ended, and its deadline is near.
const blockedTimeout = 100 * time.Millisecond
