package dispatch

import (
	"container/heap"
	"slices"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// maxLeases bounds what is remembered for one queue. Beyond it the poll finds ended
// leases, up to a second later.
const maxLeases = 1 << 18

// leases remembers when the leases that this server granted or renewed end, in local
// time, so that a waiter is woken at that moment (W3). A lease that another server
// renewed or settled leaves an entry that wakes somebody for nothing, once.
//
// A lease that is over stays in the heap until it comes to its top, or until many are: to take each
// out by itself was a twentieth of all work of a server under batches.
type leases struct {
	byPosition map[int64]*lease
	heap       leaseHeap
}

type lease struct {
	position int64
	end      time.Time
	index    int
	// priority and place are those of a lease that this server granted; known says so.
	priority int32
	place    place
	known    bool
	over     bool
}

func (l *leases) len() int { return len(l.byPosition) }

// grant records a lease that this server has granted.
func (l *leases) grant(m *storage.Message, end time.Time) {
	if e := l.set(m.Ref.Position, end); e != nil {
		e.priority, e.place, e.known = m.Priority, placeOf(m), true
	}
}

// set records the end of the lease of a message; nil where there are too many.
func (l *leases) set(position int64, end time.Time) *lease {
	if e := l.byPosition[position]; e != nil {
		e.end = end
		heap.Fix(&l.heap, e.index)
		return e
	}
	if len(l.byPosition) >= maxLeases {
		return nil
	}
	if l.byPosition == nil {
		l.byPosition = map[int64]*lease{}
	}
	e := &lease{position: position, end: end}
	l.byPosition[position] = e
	heap.Push(&l.heap, e)
	return e
}

// drop forgets a message.
func (l *leases) drop(position int64) {
	if e := l.byPosition[position]; e != nil {
		e.over = true
		delete(l.byPosition, position)
		if len(l.heap) > 2*len(l.byPosition)+keepOver {
			l.sweep()
		}
	}
}

// keepOver is how many leases that are over may stay in the heap whatever its size.
const keepOver = 64

// sweep takes the leases that are over out of the heap.
func (l *leases) sweep() {
	l.heap = slices.DeleteFunc(l.heap, func(e *lease) bool { return e.over })
	for i, e := range l.heap {
		e.index = i
	}
	heap.Init(&l.heap)
}

// pop forgets all leases that have ended, and gives them.
func (l *leases) pop(now time.Time) (ended []*lease) {
	for next := l.first(); next != nil && !next.end.After(now); next = l.first() {
		ended = append(ended, next)
		l.drop(next.position)
	}
	return ended
}

// next is the earliest end, zero where there is none.
func (l *leases) next() time.Time {
	if first := l.first(); first != nil {
		return first.end
	}
	return time.Time{}
}

// first is the lease that ends first, nil where there is none.
func (l *leases) first() *lease {
	for len(l.heap) > 0 && l.heap[0].over {
		if over := len(l.heap) - len(l.byPosition); over > len(l.heap)/8 {
			l.sweep()
		} else {
			heap.Pop(&l.heap)
		}
	}
	if len(l.heap) == 0 {
		return nil
	}
	return l.heap[0]
}

type leaseHeap []*lease

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].end.Before(h[j].end) }

func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *leaseHeap) Push(x any) {
	e := x.(*lease)
	e.index = len(*h)
	*h = append(*h, e)
}

func (h *leaseHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}
