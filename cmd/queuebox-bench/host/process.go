package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a program that runs beside the benchmark.
type Process struct {
	name   string
	cmd    *exec.Cmd
	output *tail
	exited chan struct{}
	err    error
}

// Start starts a program. It outlives the context of a window and ends with Stop. It gets a
// process group of its own, so that an interrupt at the terminal reaches the benchmark alone,
// which then ends the others in order.
func Start(name string, cmd *exec.Cmd) (*Process, error) {
	p := &Process{name: name, cmd: cmd, output: &tail{}, exited: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = p.output
	}
	cmd.Stderr = p.output
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// ID is the process id.
func (p *Process) ID() int { return p.cmd.Process.Pid }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Err says how the process ended, with the last lines that it wrote; nil where it ended well.
// It is known once Exited is closed.
func (p *Process) Err() error {
	if p.err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w\n%s", p.name, p.err, p.output)
}

// Stop asks the process to end with a signal and kills it when it has not within the patience.
func (p *Process) Stop(signal syscall.Signal, patience time.Duration) {
	if p == nil {
		return
	}
	if err := p.cmd.Process.Signal(signal); err != nil {
		<-p.exited
		return
	}
	select {
	case <-p.exited:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

// WaitUntil asks ready until it says yes; the end of the process is an error.
func (p *Process) WaitUntil(ctx context.Context, ready func(context.Context) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	for {
		if ready(ctx) {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended before it was ready: %w", p.name, errors.Join(p.Err(), errors.New(p.output.String())))
		case <-ctx.Done():
			return fmt.Errorf("%s was not ready in time: %w\n%s", p.name, ctx.Err(), p.output)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// FreeAddress returns an address of 127.0.0.1 on which nobody listened a moment ago.
func FreeAddress(ctx context.Context) (string, error) {
	lis, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("look for a free port: %w", err)
	}
	defer func() { _ = lis.Close() }()
	return lis.Addr().String(), nil
}

// Answers tells whether somebody listens at the address.
func Answers(ctx context.Context, address string) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// Program finds a program on the path and in the directories where Debian puts servers.
func Program(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/usr/local/bin"} {
		path := dir + "/" + name
		if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed", name)
}

// tail keeps the end of what a process wrote.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

var _ io.Writer = (*tail)(nil)

const tailBytes = 8 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(p)
	if extra := t.buf.Len() - tailBytes; extra > 0 {
		t.buf.Next(extra)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(t.buf.String())
}
