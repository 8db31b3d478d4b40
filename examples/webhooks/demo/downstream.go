package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
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
	calls    map[string]int // "queue delivery" -> calls
	accepted map[string]int // "queue delivery" -> calls that had their effect

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
	mux.HandleFunc("POST /{queue}", d.take)
	mux.HandleFunc("POST /{queue}/held/{name}", d.hold)
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
	d.mu.Lock()
	d.calls[effect(r)]++
	ok := d.calls[effect(r)] > failures[r.Header.Get("X-Github-Event")]
	if ok {
		d.accepted[effect(r)]++
	}
	d.mu.Unlock()
	if !ok {
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// effect names what a delivery does outside: queue and idempotency key, as a service that
// must do a thing once has to tell it.
func effect(r *http.Request) string {
	return r.PathValue("queue") + " " + r.Header.Get("X-Github-Delivery")
}

// hold has its effect at once and answers only when the demo says so: the worker is in the
// middle of its work till then.
func (d *downstream) hold(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		http.Error(w, "body", http.StatusBadRequest)
		return
	}
	d.mu.Lock()
	d.accepted[effect(r)]++
	d.mu.Unlock()
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

// doubles counts the deliveries of a queue that had their effect more than once.
func (d *downstream) doubles(queue string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for key, times := range d.accepted {
		if times > 1 && strings.HasPrefix(key, queue+" ") {
			n++
		}
	}
	return n
}
