package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// process is a program that the demo started. It is ended by its own id, whatever happens.
type process struct {
	name string
	cmd  *exec.Cmd
	// lines are what it has written so far, both streams.
	mu     sync.Mutex
	lines  []string
	change chan struct{} // closed and replaced with every line
	exited chan struct{}
	err    error // of Wait, once exited is closed
}

// start runs a program; show is told each line that it writes.
func start(name, dir string, show func(line string), path string, args ...string) (*process, error) {
	// No context: a killed demo process would not end the program in order. stop does.
	cmd := exec.Command(path, args...) //nolint:noctx,gosec // see above; the programs are those of this repository
	cmd.Dir = dir
	// The server reads QUEUEBOX_ variables and refuses those that it does not know.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "QUEUEBOX_") })
	// Ctrl-C on a terminal goes to the demo alone, which then ends its programs in order.
	cmd.SysProcAttr = ownGroup()
	p := &process{name: name, cmd: cmd, change: make(chan struct{}), exited: make(chan struct{})}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pipe for %s: %w", name, err)
	}
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		_, _ = read.Close(), write.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	_ = write.Close()
	go p.follow(read, show)
	return p, nil
}

// follow reads the output to its end and then waits for the exit.
func (p *process) follow(output io.ReadCloser, show func(line string)) {
	scanner := bufio.NewScanner(output)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		line := scanner.Text()
		p.mu.Lock()
		p.lines = append(p.lines, line)
		close(p.change)
		p.change = make(chan struct{})
		p.mu.Unlock()
		show(line)
	}
	_ = output.Close()
	p.err = p.cmd.Wait()
	close(p.exited)
}

// output returns what it has written so far.
func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

// await waits for a line that starts with the prefix and returns it.
func (p *process) await(ctx context.Context, prefix string) (string, error) {
	for {
		p.mu.Lock()
		change := p.change
		for _, line := range p.lines {
			if strings.HasPrefix(line, prefix) {
				p.mu.Unlock()
				return line, nil
			}
		}
		p.mu.Unlock()
		select {
		case <-change:
		case <-p.exited:
			return "", fmt.Errorf("%s ended (%v) without saying %q:\n%s", p.name, p.err, prefix, p.output()) //nolint:errorlint // may be nil
		case <-ctx.Done():
			return "", fmt.Errorf("%s did not say %q: %w\n%s", p.name, prefix, ctx.Err(), p.output())
		}
	}
}

// wait waits for a clean exit.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.exited:
		if p.err != nil {
			return fmt.Errorf("%s: %w\n%s", p.name, p.err, p.output())
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s did not end: %w\n%s", p.name, ctx.Err(), p.output())
	}
}

// stop asks it to end, and kills it when it does not within the grace.
func (p *process) stop(grace time.Duration) error {
	_ = resume(p.cmd.Process) // a stopped process takes no SIGTERM
	_ = terminate(p.cmd.Process)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
		_ = p.cmd.Process.Kill()
		<-p.exited
		return fmt.Errorf("%s had to be killed after %v\n%s", p.name, grace, p.output())
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w\n%s", p.name, p.err, p.output())
	}
	return nil
}

// run runs a program to its end and returns what it wrote.
func run(ctx context.Context, dir, path string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // the programs are those of this repository
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", path, strings.Join(args, " "), err, out.String())
	}
	return strings.TrimSpace(out.String()), nil
}
