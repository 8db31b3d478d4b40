package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/internal/blackbox"
	"github.com/queuebox/queuebox/internal/testdb"
)

// patience is how long a test waits for something that takes a moment.
const patience = 30 * time.Second

// asSignalHelper makes the test binary a process that waits for signals as the server
// does and never drains.
const asSignalHelper = "QUEUEBOX_TEST_SIGNAL_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(asSignalHelper) != "" {
		ctx, _ := untilSignal(slog.New(slog.NewTextHandler(os.Stderr, nil)))
		_, _ = os.Stdout.WriteString("waiting\n")
		<-ctx.Done()
		_, _ = os.Stdout.WriteString("draining\n")
		select {}
	}
	os.Exit(blackbox.Main(m))
}

// process is a started program with its output.
type process struct {
	cmd    *exec.Cmd
	stdout *bufio.Reader
	stderr *lockedBuffer
	exited chan error
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs a program in an empty directory, with no variables of ours but the given.
func start(t *testing.T, dir, path string, args, environ []string) *process {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "QUEUEBOX_") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(cmd.Env, environ...)
	p := &process{cmd: cmd, stderr: &lockedBuffer{}, exited: make(chan error, 1)}
	// A pipe of our own: Wait must not close it before the test has read it.
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = writer, p.stderr
	p.stdout = bufio.NewReader(reader)
	require.NoError(t, cmd.Start())
	require.NoError(t, writer.Close())
	go func() { p.exited <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = reader.Close()
	})
	return p
}

// line returns the next line of standard output.
func (p *process) line(t *testing.T) string {
	t.Helper()
	type result struct {
		text string
		err  error
	}
	got := make(chan result, 1)
	go func() {
		text, err := p.stdout.ReadString('\n')
		got <- result{text, err}
	}()
	select {
	case r := <-got:
		require.NoError(t, r.err, "the program ended: %s", p.stderr)
		return strings.TrimSuffix(r.text, "\n")
	case <-time.After(patience):
		require.FailNow(t, "no line came", p.stderr.String())
		return ""
	}
}

// wait returns the exit code.
func (p *process) wait(t *testing.T) int {
	t.Helper()
	select {
	case err := <-p.exited:
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return exit.ExitCode()
		}
		require.NoError(t, err)
		return 0
	case <-time.After(patience):
		require.FailNow(t, "the program does not end", p.stderr.String())
		return -1
	}
}

// block reads the start block and returns it with the two addresses.
func (p *process) block(t *testing.T) (text, grpc, metrics string) {
	t.Helper()
	var lines []string
	for {
		line := p.line(t)
		lines = append(lines, line)
		if strings.HasPrefix(strings.TrimSpace(line), "try") {
			break
		}
	}
	text = strings.Join(lines, "\n")
	find := func(pattern string) string {
		match := regexp.MustCompile(pattern).FindStringSubmatch(text)
		require.Len(t, match, 2, text)
		return match[1]
	}
	return text, find(`gRPC +(\S+)`), find(`metrics +http://([^/]+)/`)
}

// anyPort takes the place of the two default ports, which may be in use here.
var anyPort = []string{"QUEUEBOX_LISTEN=127.0.0.1:0", "QUEUEBOX_METRICS_LISTEN=127.0.0.1:0"}

func TestServerWithoutFlags(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir, blackbox.Binary(t), nil, anyPort)
	text, grpc, metrics := p.block(t)
	require.Contains(t, text, "sqlite://queuebox.db")
	require.Contains(t, text, "durability")
	require.FileExists(t, filepath.Join(dir, "queuebox.db"))

	require.Eventually(t, func() bool {
		code, _ := get(t, "http://"+metrics+"/readyz")
		return code == http.StatusOK
	}, patience, 10*time.Millisecond)
	code, _ := get(t, "http://"+metrics+"/livez")
	require.Equal(t, http.StatusOK, code)
	code, page := get(t, "http://"+metrics+"/metrics")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, page, "\nqueuebox_")
	require.Contains(t, page, "\ngo_goroutines ")

	check := start(t, dir, blackbox.Binary(t), []string{"healthcheck"}, []string{"QUEUEBOX_LISTEN=" + grpc})
	require.Zero(t, check.wait(t), check.stderr)

	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.Zero(t, p.wait(t), p.stderr)
	require.Contains(t, p.stderr.String(), "stopping")
	require.Contains(t, p.stderr.String(), "msg=stopped")

	check = start(t, dir, blackbox.Binary(t), []string{"healthcheck"}, []string{"QUEUEBOX_LISTEN=" + grpc})
	require.Equal(t, exitFailure, check.wait(t), "nobody is there any more")
}

// TestAnInterruptEndsAWatch sends the signal that Ctrl-C sends to the real program.
func TestAnInterruptEndsAWatch(t *testing.T) {
	server := start(t, t.TempDir(), blackbox.Binary(t), []string{"serve", "--metrics-listen=off"}, anyPort[:1])
	var grpc string
	for grpc == "" {
		if line := strings.Fields(server.line(t)); len(line) > 1 && line[0] == "gRPC" {
			grpc = line[1]
		}
	}
	environ := []string{"QUEUEBOX_SERVER=" + grpc}
	made := start(t, t.TempDir(), blackbox.Binary(t), []string{"queues", "create", "jobs"}, environ)
	require.Zero(t, made.wait(t), made.stderr)
	watch := start(t, t.TempDir(), blackbox.Binary(t), []string{"watch", "--every=10ms", "-o", "json"}, environ)
	require.Contains(t, watch.line(t), `{"queue":"jobs","readyCount":"0"`)
	require.NoError(t, watch.cmd.Process.Signal(os.Interrupt))
	require.Zero(t, watch.wait(t), watch.stderr)
	require.Empty(t, watch.stderr.String())
	require.NoError(t, server.cmd.Process.Signal(syscall.SIGTERM))
	require.Zero(t, server.wait(t), server.stderr)
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

// TestProfilesAreServedWhereTheyWereAskedFor: the port of the metrics never has them.
func TestProfilesAreServedWhereTheyWereAskedFor(t *testing.T) {
	p := start(t, t.TempDir(), blackbox.Binary(t), []string{"serve", "--debug-listen=127.0.0.1:0"}, anyPort)
	var metrics string
	for metrics == "" {
		if line := strings.Fields(p.line(t)); len(line) > 1 && line[0] == "metrics" {
			metrics, _, _ = strings.Cut(strings.TrimPrefix(line[1], "http://"), "/")
		}
	}
	told := regexp.MustCompile(`profiles can be taken.* listen=(\S+)`)
	require.Eventually(t, func() bool { return told.MatchString(p.stderr.String()) }, patience, 10*time.Millisecond)
	debug := told.FindStringSubmatch(p.stderr.String())[1]
	for _, profile := range []string{"heap", "goroutine", "mutex", "block", "allocs"} {
		code, body := get(t, "http://"+debug+"/debug/pprof/"+profile+"?debug=1")
		require.Equal(t, http.StatusOK, code, profile)
		require.NotEmpty(t, body)
	}
	code, _ := get(t, "http://"+debug+"/debug/pprof/cmdline")
	require.Equal(t, http.StatusNotFound, code, "the command line may hold a password")
	code, _ = get(t, "http://"+metrics+"/debug/pprof/heap")
	require.Equal(t, http.StatusNotFound, code)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.Zero(t, p.wait(t), p.stderr)
}

func TestInterruptDrainsToo(t *testing.T) {
	p := start(t, t.TempDir(), blackbox.Binary(t), []string{"serve"}, anyPort)
	p.block(t)
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	require.Zero(t, p.wait(t), p.stderr)
}

func TestLogInJSONIsWholeJSON(t *testing.T) {
	p := start(t, t.TempDir(), blackbox.Binary(t), []string{"--log-format=json", "--metrics-listen=off"}, anyPort[:1])
	require.Eventually(t, func() bool { return strings.Contains(p.stderr.String(), `"started"`) }, patience, 10*time.Millisecond)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.Zero(t, p.wait(t), p.stderr)
	rest, err := io.ReadAll(p.stdout)
	require.NoError(t, err)
	require.Empty(t, rest)
	for line := range strings.Lines(p.stderr.String()) {
		require.True(t, json.Valid([]byte(line)), line)
	}
}

// TestSecondSignalEndsAtOnce runs the signal handling beside a drain that never ends.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	p := start(t, t.TempDir(), self, nil, []string{asSignalHelper + "=1"})
	require.Equal(t, "waiting", p.line(t))
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, "draining", p.line(t))
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, exitFailure, p.wait(t))
	require.Contains(t, p.stderr.String(), "stopped before the drain ended")
}

func TestStartThatCannotSucceedEndsWithOneLine(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, taken.Close()) }()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))

	tests := []struct {
		name string
		args []string
		want string
		code int // exitFailure where it is not set
	}{
		{name: "port in use", args: []string{"--listen", taken.Addr().String()}, want: "stop that process or give another --listen"},
		{name: "metrics port in use", args: []string{"--metrics-listen", taken.Addr().String()}, want: "give another --metrics-listen"},
		{name: "directory that is not there", args: []string{"--storage=sqlite:///nowhere/queuebox.db"}, want: "check that the directory /nowhere exists"},
		{name: "directory that is a file", args: []string{"--storage=sqlite://" + file + "/queuebox.db"}, want: "check that the directory " + file + " exists"},
		{name: "database of another kind", args: []string{"--storage=oracle://u:hunter2@db/q"}, want: "is not one of sqlite, postgres", code: exitUsage},
		{name: "text that is no URL", args: []string{"--storage=host=db password=hunter2"}, want: "is not one of sqlite, postgres", code: exitUsage},
		{name: "path without a scheme", args: []string{"--storage=foo.db"}, want: "for the SQLite file write sqlite://", code: exitUsage},
		{name: "port that no machine has", args: []string{"--listen=127.0.0.1:9999999"}, want: "0 to 65535", code: exitUsage},
		{name: "flag without a value", args: []string{"--max-wait"}, want: "needs a value (see queuebox-server serve --help)", code: exitUsage},
		{name: "value out of range", args: []string{"--queue-min-lease=1m"}, want: "flag --queue-min-lease", code: exitUsage},
		{name: "database in memory", args: []string{"--storage=sqlite://:memory:"}, want: "memory would lose what was acknowledged", code: exitUsage},
		{name: "database that is away", args: []string{"--storage=postgres://u:hunter2@127.0.0.1:1/q?connect_timeout=2"}, want: "check that the database runs"},
		{name: "migration of a database that is away", args: []string{"migrate", "--storage=postgres://u:hunter2@127.0.0.1:1/q"}, want: "check that the database runs"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			environ := anyPort
			if tt.args[0] == "migrate" {
				environ = nil
			}
			p := start(t, t.TempDir(), blackbox.Binary(t), tt.args, environ)
			require.Equal(t, max(tt.code, exitFailure), p.wait(t))
			last := p.stderr.String()
			// Log records may stand before it, such as that of a connection that is tried again.
			if i := strings.Index(last, "queuebox-server: "); i > 0 {
				last = last[i:]
			}
			requireOneLine(t, last)
			require.Contains(t, last, tt.want)
			require.NotContains(t, p.stderr.String(), "hunter2")
		})
	}
}

// An operator who gives up on a database that does not answer is not told that it is away.
func TestASignalBeforeTheDatabaseAnswersEndsTheStart(t *testing.T) {
	for _, tt := range []struct {
		command, want string
		code          int
	}{
		{"serve", "stopped before the database had answered", 0},
		{"migrate", "queuebox-server: migrate was stopped; run it again", exitFailure},
	} {
		t.Run(tt.command, func(t *testing.T) {
			silent, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer func() { require.NoError(t, silent.Close()) }()
			environ := []string{"QUEUEBOX_STORAGE=postgres://u:hunter2@" + silent.Addr().String() + "/q?connect_timeout=300"}
			if tt.command == "serve" {
				environ = append(environ, anyPort...)
			}
			p := start(t, t.TempDir(), blackbox.Binary(t), []string{tt.command}, environ)
			conn, err := silent.Accept()
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
			require.Equal(t, tt.code, p.wait(t), p.stderr)
			require.Contains(t, p.stderr.String(), tt.want)
			require.NotContains(t, p.stderr.String(), "check that the database runs")
			require.NotContains(t, p.stderr.String(), "hunter2")
		})
	}
}

func TestMigrateTwice(t *testing.T) {
	dir := t.TempDir()
	first := start(t, dir, blackbox.Binary(t), []string{"migrate"}, nil)
	require.Zero(t, first.wait(t), first.stderr)
	require.Regexp(t, `^sqlite://queuebox\.db: schema version 0 -> [1-9]\d*$`, first.line(t))
	second := start(t, dir, blackbox.Binary(t), []string{"migrate"}, nil)
	require.Zero(t, second.wait(t), second.stderr)
	require.Regexp(t, `^sqlite://queuebox\.db: schema version [1-9]\d*, nothing to do$`, second.line(t))
}

// TestDatabasesAreMigratedOnRequest goes the way of an operator: a start that is refused,
// the command that the refusal names, and a start that works.
func TestDatabasesAreMigratedOnRequest(t *testing.T) {
	for engine, database := range map[string]func(testing.TB) string{
		"postgres": testdb.Postgres, "mysql": testdb.MySQL, "mssql": testdb.MSSQL,
	} {
		t.Run(engine, func(t *testing.T) { migratedOnRequest(t, engine, database(t)) })
	}
}

func migratedOnRequest(t *testing.T, engine, url string) {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "storage")
	require.NoError(t, os.WriteFile(secret, []byte(url+"\n"), 0o600))
	environ := append([]string{"QUEUEBOX_STORAGE_FILE=" + secret}, anyPort...)

	refused := start(t, t.TempDir(), blackbox.Binary(t), nil, environ)
	require.Equal(t, exitFailure, refused.wait(t), refused.stderr)
	require.Contains(t, refused.stderr.String(), "queuebox-server migrate")
	requireOneLine(t, refused.stderr.String())

	migrated := start(t, t.TempDir(), blackbox.Binary(t), []string{"migrate"}, environ[:1])
	require.Zero(t, migrated.wait(t), migrated.stderr)
	require.Contains(t, migrated.line(t), "schema version 0 -> ")

	p := start(t, t.TempDir(), blackbox.Binary(t), nil, environ)
	text, _, _ := p.block(t)
	require.Contains(t, text, "database    "+engine+" ")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.Zero(t, p.wait(t), p.stderr)
}
