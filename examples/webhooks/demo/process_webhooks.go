package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// crew is a running worker with the file of its counts.
type crew struct {
	*process
	counts string
}

// process starts the workers, runs the producer twice, and waits until nothing is left to do.
func (d *demo) process(ctx context.Context) error {
	// The workers come first, so that each of them waits when the deliveries arrive.
	crews, err := d.startWorkers(ctx)
	if err != nil {
		return err
	}
	for i, when := range []string{"first", "second"} {
		out, err := run(ctx, d.root, filepath.Join(d.tmp, "producer"), "-server", d.address, "-queue", queue)
		if err != nil {
			return err
		}
		d.say("producer, %s run: %s", when, out)
		want := fmt.Sprintf("%d new, 0 duplicates", len(d.deliveries))
		if i == 1 {
			want = fmt.Sprintf("0 new, %d duplicates", len(d.deliveries))
		}
		d.report.check(strings.HasSuffix(out, want), "the %s run of the producer makes %s, it said %q", when, want, out)
	}
	if err := d.awaitFinished(ctx, queue, len(d.deliveries)); err != nil {
		return err
	}
	for _, c := range crews {
		if err := c.stop(10 * time.Second); err != nil {
			return err
		}
		body, err := os.ReadFile(c.counts)
		if err != nil {
			return fmt.Errorf("counts of %s: %w", c.name, err)
		}
		counts := map[string]int{}
		if err := json.Unmarshal(body, &counts); err != nil {
			return fmt.Errorf("counts of %s: %w", c.name, err)
		}
		n := d.report.count(c.name, counts)
		d.say("%s stopped after %d completed deliveries", c.name, n)
	}
	return nil
}

// startWorkers starts one worker in each language that there is.
func (d *demo) startWorkers(ctx context.Context) ([]crew, error) {
	type command struct {
		name string
		args []string
	}
	commands := []command{{"go-worker", []string{filepath.Join(d.tmp, "worker"), "-concurrency", "3"}}}
	if d.python != "" {
		commands = append(commands, command{"python-worker", []string{d.python, "-B", filepath.Join(d.root, "examples", "webhooks", "worker.py")}})
	}
	crews := make([]crew, 0, len(commands))
	for _, c := range commands {
		counts := filepath.Join(d.tmp, c.name+".json")
		args := slices.Concat(c.args[1:], []string{
			"--server", d.address, "--queue", queue, "--worker-id", c.name,
			"--downstream", d.downstream.url + "/" + queue, "--counts", counts,
		})
		p, err := d.start(c.name, d.root, d.show(c.name), c.args[0], args...)
		if err != nil {
			return nil, err
		}
		crews = append(crews, crew{p, counts})
	}
	for _, c := range crews {
		if _, err := c.await(ctx, "ready"); err != nil {
			return nil, err
		}
		d.say("%s runs, pid %d", c.name, c.cmd.Process.Pid)
	}
	return crews, nil
}

// show prints what a worker does out of the ordinary, or everything with -v.
func (d *demo) show(name string) func(string) {
	return func(line string) {
		if d.verbose || !strings.HasPrefix(line, "completed") && line != "ready" {
			d.say("%-13s %s", name, line)
		}
	}
}

// awaitFinished waits until n messages of a queue are completed or dead, and shows the way.
func (d *demo) awaitFinished(ctx context.Context, name string, n int) error {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	last := -1
	for {
		all, err := d.messages(ctx, name)
		if err != nil {
			return err
		}
		finished := 0
		for _, m := range all {
			if s := m.GetState(); s == queueboxv1.MessageState_MESSAGE_STATE_COMPLETED || s == queueboxv1.MessageState_MESSAGE_STATE_DEAD {
				finished++
			}
		}
		if finished != last {
			d.say("%d of %d finished", finished, n)
			last = finished
		}
		if finished >= n {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d messages of %s finished: %w", finished, n, name, ctx.Err())
		}
	}
}

// messages lists a queue, oldest first.
func (d *demo) messages(ctx context.Context, name string) ([]*queueboxv1.Message, error) {
	var all []*queueboxv1.Message
	token := ""
	for {
		page, err := d.admin.ListMessages(ctx, &queueboxv1.ListMessagesRequest{Queue: name, PageSize: 20, PageToken: token})
		if err != nil {
			return nil, fmt.Errorf("list the messages of %s: %w", name, err)
		}
		all = append(all, page.GetMessages()...)
		token = page.GetNextPageToken()
		if token == "" {
			break
		}
	}
	slices.Reverse(all)
	return all, nil
}

// freeAddress returns a loopback address that nobody listens on at this moment.
func freeAddress(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	address := listener.Addr().String()
	return address, listener.Close()
}
