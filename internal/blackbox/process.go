package blackbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Options say how a server is started.
type Options struct {
	// Storage is the URL of the database.
	Storage string
	// Args stand after the flags that the harness sets.
	Args []string
	// Env stands beside the environment of the tests.
	Env []string
	// Addr and HTTPAddr are chosen where they are empty.
	Addr, HTTPAddr string
	// NotReady returns from Start once the process runs, without waiting for it to serve.
	NotReady bool
}

// Server is a server process.
type Server struct {
	// Addr is where it serves gRPC, HTTPAddr where it serves metrics and probes.
	Addr, HTTPAddr string

	tb     testing.TB
	opts   Options
	cmd    *exec.Cmd
	logs   *logs
	exited chan struct{}
	err    error
}

// Start starts a server and waits until it serves. It ends with the test, and the
// test fails where the server met a data race or a panic; where the test fails, its
// log is shown.
func Start(tb testing.TB, o Options) *Server {
	tb.Helper()
	if o.Addr == "" {
		o.Addr = FreeAddr(tb)
	}
	if o.HTTPAddr == "" {
		o.HTTPAddr = FreeAddr(tb)
	}
	s := &Server{Addr: o.Addr, HTTPAddr: o.HTTPAddr, tb: tb, opts: o, logs: &logs{}}
	tb.Cleanup(s.cleanup)
	s.Restart()
	return s
}

// Restart starts the process again, on the same addresses and database, after it
// ended.
func (s *Server) Restart() {
	s.tb.Helper()
	if err := s.start(); err != nil {
		s.tb.Fatal(err)
	}
	if !s.opts.NotReady {
		if err := s.WaitServing(30 * time.Second); err != nil {
			s.tb.Fatal(err)
		}
	}
}

func (s *Server) start() error {
	args := []string{"serve", "--storage", s.opts.Storage, "--listen", s.Addr, "--metrics-listen", s.HTTPAddr}
	if !slices.ContainsFunc(s.opts.Args, func(a string) bool { return strings.HasPrefix(a, "--drain-timeout") }) {
		// A drain waits for workers to settle what they hold; most tests leave leases behind.
		args = append(args, "--drain-timeout=500ms")
	}
	args = append(args, s.opts.Args...)
	//nolint:gosec,noctx // the binary and the flags are ours; the process may outlive the context of a subtest
	cmd := exec.Command(Binary(s.tb), args...)
	cmd.Env = append(environment(), s.opts.Env...)
	cmd.Stdout, cmd.Stderr = s.logs, s.logs
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start of the server: %w", err)
	}
	exited := make(chan struct{})
	s.cmd, s.exited = cmd, exited
	go func() {
		s.err = cmd.Wait()
		close(exited)
	}()
	return nil
}

// WaitServing waits until the server says that it is ready.
func (s *Server) WaitServing(limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for {
		if code, _, err := s.get(ctx, "/readyz"); err == nil && code == http.StatusOK {
			return nil
		}
		select {
		case <-s.exited:
			return fmt.Errorf("the server ended before it was ready: %w", s.err)
		case <-ctx.Done():
			return errors.New("the server was not ready in time")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// get reads a page of the HTTP port.
func (s *Server) get(ctx context.Context, path string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.HTTPAddr+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// Get reads a page of the HTTP port: its status and its body.
func (s *Server) Get(tb testing.TB, path string) (int, string) {
	tb.Helper()
	code, body, err := s.get(tb.Context(), path)
	if err != nil {
		tb.Fatalf("%s: %v", path, err)
	}
	return code, body
}

// Metric sums the samples of a metric whose labels hold all the given texts, such
// as `queue="a"`; false where there is none.
func (s *Server) Metric(tb testing.TB, name string, labels ...string) (float64, bool) {
	tb.Helper()
	_, body := s.Get(tb, "/metrics")
	sum, found := 0.0, false
lines:
	for line := range strings.Lines(body) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), name)
		if !ok || rest == "" || (rest[0] != '{' && rest[0] != ' ') {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue lines
			}
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			tb.Fatalf("metric %s: %v", name, err)
		}
		sum, found = sum+v, true
	}
	return sum, found
}

// Kill ends the process with SIGKILL and waits until it is gone.
func (s *Server) Kill() {
	s.Signal(syscall.SIGKILL)
	<-s.exited
}

// Signal sends a signal to the process, by its id.
func (s *Server) Signal(sig os.Signal) {
	s.tb.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.tb.Errorf("signal to the server: %v", err)
	}
}

// Pid is the process.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Exited is closed when the present process has ended.
func (s *Server) Exited() <-chan struct{} { return s.exited }

// ExitCode waits for the end of the process and returns its code; -1 where a signal
// ended it.
func (s *Server) ExitCode(limit time.Duration) (int, error) {
	select {
	case <-s.exited:
		return s.cmd.ProcessState.ExitCode(), nil
	case <-time.After(limit):
		return 0, errors.New("the server did not end in time")
	}
}

// Log is all that the server has written so far.
func (s *Server) Log() string { return s.logs.String() }

func (s *Server) cleanup() {
	if s.cmd == nil {
		return
	}
	s.Signal(syscall.SIGTERM)
	select {
	case <-s.exited:
	case <-time.After(5 * time.Second):
		s.Kill()
	}
	log := s.logs.String()
	for _, bad := range []string{"WARNING: DATA RACE", "panic:", "fatal error:", "panic recovered"} {
		if strings.Contains(log, bad) {
			s.tb.Errorf("the log of the server holds %q", bad)
		}
	}
	if s.tb.Failed() {
		lines := strings.Split(strings.TrimSpace(log), "\n")
		if n := len(lines); n > 150 {
			lines = append([]string{fmt.Sprintf("… %d lines before", n-150)}, lines[n-150:]...)
		}
		s.tb.Logf("log of the server at %s:\n%s", s.Addr, strings.Join(lines, "\n"))
	}
}

// Run runs a subcommand to its end and returns its output and exit code.
func Run(tb testing.TB, env []string, args ...string) (output string, code int) {
	tb.Helper()
	//nolint:gosec // the binary and the arguments are ours
	cmd := exec.CommandContext(tb.Context(), Binary(tb), args...)
	cmd.Env = append(environment(), env...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		tb.Fatalf("run of the server: %v", err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// handedOut remembers the ports of this process, so that tests that run beside each
// other never get the same one.
var handedOut sync.Map

// FreeAddr returns an address of 127.0.0.1 that nobody listens on. It stays below
// the range from which the system takes the ports of outgoing connections, so that
// a server can come back on it after it was killed.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	for range 1000 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(12000+rand.IntN(18000))) //nolint:gosec // any port will do
		if _, taken := handedOut.LoadOrStore(addr, true); taken {
			continue
		}
		lis, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", addr)
		if err != nil {
			continue
		}
		_ = lis.Close()
		return addr
	}
	tb.Fatal("no free port")
	return ""
}

// logs collects what a process writes.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
