package server

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/queuebox/queuebox/storage"
)

// clockTTL is how long a reading of the database clock is carried on by the local
// monotonic clock.
const clockTTL = time.Second

// dbClock tells the time of the database where an answer has no statement of its own
// to take it from (D11). Nothing is decided by it.
type dbClock struct {
	store   storage.Store
	now     func() time.Time
	timeout time.Duration
	flights singleflight.Group

	mu   sync.Mutex
	db   time.Time
	read time.Time
}

// seen notes a clock that a statement returned, read at about the local time read.
func (c *dbClock) seen(db, read time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !db.IsZero() && read.After(c.read) {
		c.db, c.read = db, read
	}
}

// since is a time of the database that none of the clocks of a call is before, which took so
// long and told now: what it made claimable is ready then or later (W7).
func since(now time.Time, took time.Duration) time.Time {
	if now.IsZero() {
		return time.Unix(0, 0) // it failed half-way
	}
	return now.Add(-took)
}

// get returns the database clock.
func (c *dbClock) get(ctx context.Context) (time.Time, error) {
	now := c.now()
	c.mu.Lock()
	db, read := c.db, c.read
	c.mu.Unlock()
	if age := now.Sub(read); !db.IsZero() && age < clockTTL {
		return db.Add(age), nil
	}
	done := c.flights.DoChan("", sheltered(func() (any, error) {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timeout)
		defer cancel()
		db, err := c.store.Now(call)
		if err == nil {
			c.seen(db, c.now())
		}
		return db, err
	}))
	select {
	case r := <-done:
		if r.Err != nil {
			return time.Time{}, r.Err
		}
		return r.Val.(time.Time), nil
	case <-ctx.Done():
		return time.Time{}, context.Cause(ctx)
	}
}
