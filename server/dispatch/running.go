package dispatch

import (
	"context"
	"sync"
)

// running counts what goes on. Other than a sync.WaitGroup it can be waited for while more begins:
// a stream that is cut during a drain gives rows back at the moment at which the last one ended.
type running struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n is 0 again
}

func (r *running) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n == 0 {
		r.none = make(chan struct{})
	}
	r.n++
}

func (r *running) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n--; r.n == 0 {
		close(r.none)
	}
}

// wait returns when nothing goes on, or ctx has ended.
func (r *running) wait(ctx context.Context) {
	r.mu.Lock()
	n, none := r.n, r.none
	r.mu.Unlock()
	if n == 0 {
		return
	}
	select {
	case <-none:
	case <-ctx.Done():
	}
}
