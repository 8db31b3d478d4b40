package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// failures says how often the downstream refuses a delivery of an event before it takes it.
// What never works ends when its attempts are used up.
var failures = map[string]int{
	"release":           2,
	"workflow_run":      1,
	"deployment_status": 1,
	"commit_comment":    never,
}

const (
	never = 1 << 30
	// workTime is how long a delivery takes, so that there is something to share.
	workTime = 60 * time.Millisecond
)

// downstream is the service behind the workers. It fails where failures says so, the same
// way in every run, and holds the deliveries of the paused workers until they are released.
type downstream struct {
	url    string
	server *http.Server

	mu       sync.Mutex
	calls    map[string]int // delivery -> calls
	accepted map[string]int // delivery -> calls answered with 204

	arrived chan string   // path of a held delivery
	release chan struct{} // closed when the held ones may end
}

func startDownstream(ctx context.Context) (*downstream, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("downstream: %w", err)
	}
	d := &downstream{
		url:      "http://" + listener.Addr().String(),
		calls:    map[string]int{},
		accepted: map[string]int{},
		arrived:  make(chan string, 16),
		release:  make(chan struct{}),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /deliveries", d.take)
	mux.HandleFunc("POST /hold/{name}", d.hold)
	d.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = d.server.Serve(listener) }()
	return d, nil
}

func (d *downstream) close() { _ = d.server.Close() }

// take answers one delivery after a little work.
func (d *downstream) take(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		http.Error(w, "body", http.StatusBadRequest)
		return
	}
	select {
	case <-time.After(workTime):
	case <-r.Context().Done():
		return
	}
	id, event := r.Header.Get("X-Github-Delivery"), r.Header.Get("X-Github-Event")
	d.mu.Lock()
	d.calls[id]++
	ok := d.calls[id] > failures[event]
	if ok {
		d.accepted[id]++
	}
	d.mu.Unlock()
	if !ok {
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// hold answers only when the demo says so: the worker is in the middle of its work till then.
func (d *downstream) hold(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		http.Error(w, "body", http.StatusBadRequest)
		return
	}
	d.arrived <- r.PathValue("name")
	select {
	case <-d.release:
		w.WriteHeader(http.StatusNoContent)
	case <-r.Context().Done():
	}
}

// awaitHeld waits until the named delivery is in the middle of its work.
func (d *downstream) awaitHeld(ctx context.Context, name string) error {
	select {
	case got := <-d.arrived:
		if got != name {
			return fmt.Errorf("%s called the downstream, not %s", got, name)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s never called the downstream: %w", name, ctx.Err())
	}
}

// doubles counts the deliveries that the downstream accepted more than once.
func (d *downstream) doubles() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, times := range d.accepted {
		if times > 1 {
			n++
		}
	}
	return n
}
