package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/queuebox/queuebox/examples/webhooks/internal/webhook"
)

// pausedWorker tells the story that QueueBox is made for. Worker A claims a message and is
// stopped in the middle of its work for longer than its lease. Worker B gets the message and
// completes it. A wakes, believes that the message is its own, and completes it too.
//
// Worker C goes through the same with the Go client, which keeps it from trying.
func (d *demo) pausedWorker(ctx context.Context) error {
	out, err := run(ctx, d.root, filepath.Join(d.tmp, "producer"), "-server", d.address, "-queue", pausedQueue, "-event", "pull_request", "-limit", "2")
	if err != nil {
		return err
	}
	d.say("producer: %s", out)

	// C renews, so it is first: nothing else may end its lease before it is stopped.
	client, err := d.startPaused(ctx, "worker-C", "-client")
	if err != nil {
		return err
	}
	stub, err := d.startPaused(ctx, "worker-A")
	if err != nil {
		return err
	}
	for _, p := range []*process{stub, client} {
		if err := pause(p.cmd.Process); err != nil {
			return fmt.Errorf("stop %s: %w", p.name, err)
		}
		if err := awaitStopped(ctx, p); err != nil {
			return err
		}
		d.say("%-8s is in the middle of its work: SIGSTOP to pid %d", p.name, p.cmd.Process.Pid)
	}

	// B waits on the queue and is served when the leases are over.
	b, err := d.start("worker-B", d.root, func(line string) {
		if line != "ready" {
			d.say("worker-B %s", line)
		}
	}, filepath.Join(d.tmp, "worker"), "-server", d.address, "-queue", pausedQueue, "-worker-id", "worker-B",
		"-lease", "5s", "-downstream", d.downstream.url+"/"+pausedQueue, "-counts", filepath.Join(d.tmp, "worker-B.json"))
	if err != nil {
		return err
	}
	d.say("worker-B waits for a message")
	if err := d.awaitFinished(ctx, pausedQueue, 2); err != nil {
		return err
	}

	// The work of A and C ends well, but they cannot see it yet.
	close(d.downstream.release)
	for _, p := range []*process{stub, client} {
		d.say("%-8s wakes: SIGCONT", p.name)
		if err := resume(p.cmd.Process); err != nil {
			return fmt.Errorf("wake %s: %w", p.name, err)
		}
		if err := p.wait(ctx); err != nil {
			return err
		}
	}
	if err := b.stop(10 * time.Second); err != nil {
		return err
	}
	answer, err := stub.await(ctx, "Complete ")
	if err != nil {
		return err
	}
	d.report.check(strings.HasPrefix(answer, "Complete refused: code FailedPrecondition, reason CLAIM_LOST, cause SUPERSEDED"),
		"the server refuses the Complete of worker-A: %s", answer)
	d.report.check(!strings.Contains(client.output(), "Complete accepted"), "the Complete of worker-C is not accepted: %s", client.output())
	d.report.check(strings.Contains(client.output(), "claim lost") || strings.Contains(client.output(), "CLAIM_LOST"),
		"worker-C learns that its claim is lost: %s", client.output())
	return nil
}

// startPaused starts a worker that claims one message, and waits until it is at work.
func (d *demo) startPaused(ctx context.Context, name string, args ...string) (*process, error) {
	args = append(args, "-server", d.address, "-queue", pausedQueue, "-worker-id", name, "-downstream", d.downstream.url+"/"+pausedQueue+"/held/"+name)
	p, err := d.start(name, d.root, func(line string) { d.say("%-8s %s", name, line) }, filepath.Join(d.tmp, "pausedworker"), args...)
	if err != nil {
		return nil, err
	}
	if _, err := p.await(ctx, "claimed"); err != nil {
		return nil, err
	}
	return p, d.downstream.awaitHeld(ctx, name)
}

// awaitStopped waits until the kernel says that the process is stopped, where it can be
// asked. A signal is on its way for a moment.
func awaitStopped(ctx context.Context, p *process) error {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		if err != nil {
			return nil // no /proc here: the signal has to be enough
		}
		// The state follows the name of the program, which ends with the last parenthesis.
		if _, rest, ok := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')'):]), ") "); ok && strings.HasPrefix(rest, "T") {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%s does not stop: %w", p.name, ctx.Err())
		}
	}
}

// expected is what has to become of a delivery of the main queue.
func expected(delivery webhook.Delivery) (outcome string, attempts int32, code string) {
	if _, err := webhook.Parse(delivery.Event, delivery.ContentType, delivery.Body); err != nil {
		return "dead: rejected", 1, strings.SplitN(err.Error(), ":", 2)[0]
	}
	switch fails := failures[delivery.Event]; {
	case fails >= maxAttempts:
		return "dead: attempts exhausted", maxAttempts, ""
	default:
		return "completed", int32(fails) + 1, ""
	}
}
