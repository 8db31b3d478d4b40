package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/cmd/queuebox-bench/host"
	"github.com/queuebox/queuebox/cmd/queuebox-bench/report"
)

// programs are this one and the server, built once for all tests.
func programs(t *testing.T) (bench, server string) {
	t.Helper()
	if _, err := host.BinDir(); err != nil {
		if slices.Contains(strings.Split(os.Getenv("QUEUEBOX_TEST_REQUIRE"), ","), "postgres") {
			t.Fatalf("postgres is required by QUEUEBOX_TEST_REQUIRE, but %v", err)
		}
		t.Skipf("SKIPPED without postgres: %v", err)
	}
	dir := t.TempDir()
	bench = filepath.Join(dir, "queuebox-bench")
	out, err := exec.Command("go", "build", "-o", bench, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	server, err = buildServer(t.Context(), filepath.Join("..", ".."), dir)
	require.NoError(t, err)
	return bench, server
}

// TestQuickRun runs every contender of the smoke test that is installed here, and looks for what
// it must bring: whole cycles, costs, a report, and nothing left behind.
func TestQuickRun(t *testing.T) {
	bench, server := programs(t)
	dir, temp := t.TempDir(), t.TempDir()
	// PostgreSQL may run as another user, who needs a way to its directory.
	for path := temp; path != filepath.Dir(path) && path != os.TempDir(); path = filepath.Dir(path) {
		require.NoError(t, os.Chmod(path, 0o755))
	}
	cmd := exec.Command(bench, "--quick", "--server-binary="+server, "--json=r.json")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+temp)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())

	r, err := report.Load(filepath.Join(dir, "r.json"))
	require.NoError(t, err)
	m := r.Measure(report.Throughput)
	require.NotNil(t, m)
	for i := range m.Contenders {
		c := &m.Contenders[i]
		if c.Skipped != "" {
			t.Logf("SKIPPED %s: %s", c.Title, c.Skipped)
			require.Contains(t, stderr.String(), "SKIPPED "+c.Title, "a skip is loud")
			continue
		}
		require.Len(t, c.Windows, 1, c.Name)
		w := &c.Windows[0]
		require.Positive(t, w.Messages, c.Name)
		require.Positive(t, w.ClientCPU, c.Name)
		require.NotEmpty(t, c.Version, c.Name)
		require.Contains(t, string(out), c.Title)
	}
	for _, name := range []string{"queuebox-batch-100", "pgmq-delete-100"} {
		require.NotNil(t, m.Contender(name), "%s needs nothing but PostgreSQL", name)
		n, ok := m.Contender(name).Median(report.Statements)
		require.True(t, ok)
		require.Positive(t, n, name)
	}
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left, "a run leaves nothing in the temporary directory")
}

// TestInterruptLeavesNothing interrupts a run in the middle of a window.
func TestInterruptLeavesNothing(t *testing.T) {
	bench, server := programs(t)
	dir, temp := t.TempDir(), t.TempDir()
	for path := temp; path != filepath.Dir(path) && path != os.TempDir(); path = filepath.Dir(path) {
		require.NoError(t, os.Chmod(path, 0o755))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bench, "--quick", "--window=1m", "--contenders=queuebox-batch-100", "--server-binary="+server)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+temp)
	stderr := &lines{seen: make(chan string, 100)}
	cmd.Stderr = stderr
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for !strings.Contains(stderr.next(t, ended), "filling") {
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	var exit *exec.ExitError
	require.ErrorAs(t, <-ended, &exit, "an interrupted run is no success")
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left)
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) || err != nil {
			continue
		}
		require.NotContains(t, string(text), temp, "a process of the run is still there")
		require.NotContains(t, string(text), server, "a server of the run is still there")
	}
}

// TestTurns: every contender has one window a round, and not always the same one before it.
func TestTurns(t *testing.T) {
	var forth, back []int
	for i := range 3 {
		forth, back = append(forth, turn(i, 0, 3)), append(back, turn(i, 1, 3))
	}
	require.Equal(t, []int{0, 1, 2}, forth)
	require.Equal(t, []int{2, 1, 0}, back)
}

// lines hands on what a process writes.
type lines struct{ seen chan string }

func (l *lines) Write(p []byte) (int, error) {
	select {
	case l.seen <- string(p):
	default:
	}
	return len(p), nil
}

// next is what was written next; the test fails where the process ends instead.
func (l *lines) next(t *testing.T, ended <-chan error) string {
	t.Helper()
	select {
	case line := <-l.seen:
		return line
	case err := <-ended:
		t.Fatalf("the run ended early: %v", err)
		return ""
	}
}
