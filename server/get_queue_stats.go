package server

import (
	"context"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
)

// statsTTL is how long counts that were read are kept: they are taken every two seconds.
const statsTTL = 500 * time.Millisecond

// statsTimeout bounds the first count of a queue.
const statsTimeout = 30 * time.Second

// GetQueueStats tells the counts that one of the servers has taken; as_of_time says when.
func (a *api) GetQueueStats(ctx context.Context, req *queueboxv1.GetQueueStatsRequest) (*queueboxv1.GetQueueStatsResponse, error) {
	c := &check{}
	c.queue("queue", req.GetQueue())
	if err := c.err(); err != nil {
		return nil, err
	}
	q, err := a.catalog.id(ctx, req.GetQueue())
	if err != nil {
		return nil, err
	}
	st, err := a.stats.get(ctx, q.ID)
	if err != nil {
		return nil, err
	}
	now, err := a.serverTime(ctx)
	if err != nil {
		return nil, err
	}
	resp := &queueboxv1.GetQueueStatsResponse{
		ReadyCount:        st.Ready,
		DelayedCount:      st.Delayed,
		LeasedCount:       st.Leased,
		LeaseExpiredCount: st.LeaseExpired,
		CompletedCount:    st.Completed,
		DeadCount:         st.Dead,
		BlockedCount:      st.Blocked,
		WaitingClaims:     int32(a.dispatch.Waiting(q.ID)),
		ServerTime:        now,
		AsOfTime:          stamp(st.AsOf),
	}
	if !st.OldestReady.IsZero() {
		resp.OldestReadyAgeMs = max(0, st.AsOf.Sub(st.OldestReady).Milliseconds())
	}
	return resp, nil
}

// statsStore is what counts are read from.
type statsStore interface {
	StoredStats(ctx context.Context, queueID int32) (storage.QueueStats, error)
	Count(ctx context.Context, p storage.CountParams) (storage.CountResult, error)
}

// statsCache keeps counts for a moment and lets callers of the same moment share one read.
type statsCache struct {
	store   statsStore
	now     func() time.Time
	flights singleflight.Group

	mu   sync.Mutex
	byID map[int32]statsEntry
}

type statsEntry struct {
	stats storage.QueueStats
	read  time.Time
}

func newStatsCache(store statsStore, now func() time.Time) *statsCache {
	return &statsCache{store: store, now: now, byID: map[int32]statsEntry{}}
}

func (c *statsCache) get(ctx context.Context, queueID int32) (storage.QueueStats, error) {
	c.mu.Lock()
	e, ok := c.byID[queueID]
	c.mu.Unlock()
	if ok && c.now().Sub(e.read) < statsTTL {
		return e.stats, nil
	}
	done := c.flights.DoChan(strconv.Itoa(int(queueID)), sheltered(func() (any, error) {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), statsTimeout)
		defer cancel()
		st, err := c.store.StoredStats(call, queueID)
		if err == nil && st.AsOf.IsZero() {
			// Nobody has counted this queue yet: it is new, or the server is.
			if _, err = c.store.Count(call, storage.CountParams{Queues: []int32{queueID}}); err == nil {
				st, err = c.store.StoredStats(call, queueID)
			}
		}
		if err != nil {
			return storage.QueueStats{}, err
		}
		c.mu.Lock()
		c.byID[queueID] = statsEntry{stats: st, read: c.now()}
		c.mu.Unlock()
		return st, nil
	}))
	select {
	case r := <-done:
		return r.Val.(storage.QueueStats), r.Err
	case <-ctx.Done():
		return storage.QueueStats{}, context.Cause(ctx)
	}
}
