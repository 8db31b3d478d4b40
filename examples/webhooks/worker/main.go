// Command worker processes webhook deliveries with the Go client: it hands each one to a
// downstream service, tries again later when that fails, sets useless bodies aside with a
// code, and counts what it completed.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	queuebox "github.com/queuebox/queuebox/client/go"
	"github.com/queuebox/queuebox/examples/webhooks/internal/webhook"
)

func main() {
	var o options
	flag.StringVar(&o.server, "server", "127.0.0.1:7420", "address of queuebox-server")
	flag.StringVar(&o.queue, "queue", "webhooks", "queue to work")
	flag.StringVar(&o.workerID, "worker-id", "go-worker", "name of this worker")
	flag.StringVar(&o.downstream, "downstream", "", "URL that each delivery is posted to")
	flag.StringVar(&o.counts, "counts", "", "file for the counts, written at the end")
	flag.DurationVar(&o.lease, "lease", 10*time.Second, "lease of a claim; it is renewed while the work goes on")
	flag.IntVar(&o.concurrency, "concurrency", 4, "deliveries at the same time")
	flag.Parse()

	// SIGTERM ends the claims; what is running is finished, or released where it takes too long.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

type options struct {
	server, queue, workerID, downstream, counts string
	lease                                       time.Duration
	concurrency                                 int
}

func run(ctx context.Context, o options, out io.Writer) error {
	client, err := queuebox.Dial(o.server)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = client.Close() }()

	p := &processor{
		downstream: webhook.Downstream{URL: o.downstream, Client: &http.Client{Timeout: 30 * time.Second}},
		out:        out,
		completed:  map[string]int{},
	}
	worker := queuebox.NewWorker(client, queuebox.WorkerConfig{
		Queue:       o.queue,
		WorkerID:    o.workerID,
		Concurrency: o.concurrency,
		Lease:       o.lease,
		StopTimeout: 5 * time.Second,
	})
	fmt.Fprintln(out, "ready")
	if err := worker.Run(ctx, p.handle); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("work: %w", err)
	}
	return p.save(o.counts)
}

// processor is the business of this worker.
type processor struct {
	downstream webhook.Downstream
	out        io.Writer

	mu        sync.Mutex
	completed map[string]int // "event repository" -> deliveries
}

// handle processes one delivery. What it returns is what becomes of the message: nil
// completes it, Reject dead-letters it, any other error retries it after the backoff of the
// queue. Here it completes by itself, so that it counts only what the server accepted.
func (p *processor) handle(ctx context.Context, h *queuebox.Handle) error {
	m := h.Message()
	event, err := webhook.Parse(m.Attributes[webhook.AttributeEvent], m.ContentType, m.Payload)
	if reject, ok := errors.AsType[*webhook.RejectError](err); ok {
		p.say("dead-letter %s: %s", m.Attributes[webhook.AttributeEvent], reject)
		return queuebox.Reject(reject.Code, reject)
	}
	if err := p.downstream.Post(ctx, m.IdempotencyKey, event.Name, m.Payload); err != nil {
		p.say("retry %s %s, attempt %d: %v", event.Name, event.Repository, m.Attempt, err)
		return err
	}
	if _, err := h.Complete(ctx); err != nil {
		// The claim is lost: somebody else has the message now, and will count it.
		p.say("not completed %s %s, attempt %d: %v", event.Name, event.Repository, m.Attempt, err)
		return err
	}
	p.say("completed %s, %s %s, attempt %d", m.ID, event.Name, event.Repository, m.Attempt)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.completed[event.Name+" "+event.Repository]++
	return nil
}

func (p *processor) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format+"\n", args...)
}

// save writes the counts for whoever started this worker.
func (p *processor) save(file string) error {
	if file == "" {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	body, err := json.Marshal(p.completed)
	if err != nil {
		return fmt.Errorf("encode the counts: %w", err)
	}
	if err := os.WriteFile(file, body, 0o600); err != nil {
		return fmt.Errorf("save the counts: %w", err)
	}
	return nil
}
