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

// statsTTL is how old counts may be. To count costs time in proportion to the queue.
const statsTTL = 2 * time.Second

// statsTimeout bounds the counting of one queue.
const statsTimeout = 30 * time.Second

// GetQueueStats counts, a few seconds ago at most; as_of_time says when.
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

// statsCache keeps counts for a moment and lets callers of the same moment share one
// count.
type statsCache struct {
	store   storage.Admin
	now     func() time.Time
	flights singleflight.Group

	mu   sync.Mutex
	byID map[int32]statsEntry
}

type statsEntry struct {
	stats storage.QueueStats
	read  time.Time
}

func newStatsCache(store storage.Admin, now func() time.Time) *statsCache {
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
		st, err := c.store.QueueStats(call, queueID)
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
