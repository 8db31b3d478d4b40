package server

import (
	"container/heap"
	"sync"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// maxEnds bounds the ends that are remembered. The pass over all messages finds those
// beyond it.
const maxEnds = 1 << 16

// ends remembers when the leases end whose end is the end of their message: those on a
// last attempt, of a message that was cancelled, or of one that expires until then. The
// times are local. What another server renews or settles leaves an entry that makes a
// sweep look for nothing, once.
type ends struct {
	mu sync.Mutex
	// by is the present end of each; an entry of the heap that differs from it is stale.
	by   map[storage.Ref]time.Time
	heap endHeap
	// soon tells the sweep that the earliest end has changed.
	soon chan struct{}
}

type end struct {
	ref storage.Ref
	at  time.Time
}

func newEnds() *ends {
	return &ends{by: map[storage.Ref]time.Time{}, soon: make(chan struct{}, 1)}
}

// claimed notes the leases of an answer that end their message.
func (e *ends) claimed(ms []storage.Claimed, now, local time.Time) {
	for i := range ms {
		m := &ms[i].Message
		last := m.MaxAttempts > 0 && m.Attempt >= m.MaxAttempts
		if last || !m.ExpireTime.IsZero() && !m.ExpireTime.After(m.LeaseEnd) {
			e.set(m.Ref, local.Add(m.LeaseEnd.Sub(now)))
		}
	}
}

// set notes that the lease of a message ends, at a local time, and with it the message.
func (e *ends) set(ref storage.Ref, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, known := e.by[ref]; !known && len(e.by) >= maxEnds || len(e.heap) >= 4*maxEnds {
		return
	}
	e.by[ref] = at
	heap.Push(&e.heap, end{ref, at})
	if e.heap[0].ref == ref {
		select {
		case e.soon <- struct{}{}:
		default:
		}
	}
}

// renewed moves an end that is known; with cancelled it is one from now on.
func (e *ends) renewed(ref storage.Ref, at time.Time, cancelled bool) {
	e.mu.Lock()
	_, known := e.by[ref]
	e.mu.Unlock()
	if known || cancelled {
		e.set(ref, at)
	}
}

// drop forgets messages.
func (e *ends) drop(refs ...storage.Ref) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.by) == 0 {
		return
	}
	for _, ref := range refs {
		delete(e.by, ref)
	}
}

// take removes and returns up to limit messages whose lease is over, and the time of the
// next one, zero where there is none.
func (e *ends) take(now time.Time, limit int) (over []storage.Ref, next time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.heap) > 0 {
		first := e.heap[0]
		if at, ok := e.by[first.ref]; !ok || !at.Equal(first.at) {
			heap.Pop(&e.heap)
			continue
		}
		if first.at.After(now) || len(over) == limit {
			return over, first.at
		}
		heap.Pop(&e.heap)
		delete(e.by, first.ref)
		over = append(over, first.ref)
	}
	return over, time.Time{}
}

type endHeap []end

func (h endHeap) Len() int           { return len(h) }
func (h endHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h endHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *endHeap) Push(x any)        { *h = append(*h, x.(end)) }

func (h *endHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
