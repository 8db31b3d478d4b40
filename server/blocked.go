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

// keyedQueues knows in which queues there are ordering keys. The sweep of the keys sees them
// all, again and again, so that whoever waits in a queue without keys costs nothing more (W4).
// What another server has made within the last pass may be missing.
type keyedQueues struct {
	mu           sync.Mutex
	seen, before map[int32]struct{}
	// passed: a whole pass has ended; until then every queue may have keys.
	passed bool
}

func newKeyedQueues() *keyedQueues {
	return &keyedQueues{seen: map[int32]struct{}{}, before: map[int32]struct{}{}}
}

// see notes queues that have keys.
func (k *keyedQueues) see(ids ...int32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range ids {
		k.seen[id] = struct{}{}
	}
}

// pass says that the sweep has been through all keys. What it did not see is forgotten with
// the end of the next pass.
func (k *keyedQueues) pass() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.before, k.seen, k.passed = k.seen, map[int32]struct{}{}, true
}

// has tells whether a queue may have keys.
func (k *keyedQueues) has(id int32) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, now := k.seen[id]
	_, before := k.before[id]
	return now || before || !k.passed
}

// blockedCache knows for a moment in which queues messages wait behind their ordering keys
// (C17).
type blockedCache struct {
	store   storage.Admin
	now     func() time.Time
	keyed   *keyedQueues
	flights singleflight.Group

	mu   sync.Mutex
	byID map[int32]blockedEntry
}

type blockedEntry struct {
	blocked bool
	read    time.Time
}

func newBlockedCache(store storage.Admin, now func() time.Time, keyed *keyedQueues) *blockedCache {
	return &blockedCache{store: store, now: now, keyed: keyed, byID: map[int32]blockedEntry{}}
}

// get asks the storage. Where that fails nobody is told more than that nothing is ready: the
// claim itself did not fail.
func (c *blockedCache) get(ctx context.Context, queueID int32) bool {
	if !c.keyed.has(queueID) {
		return false
	}
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
