package host

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseStat(t *testing.T) {
	got, err := parseStat("42 (a (b) c) S 7 42 42 0 -1 4194560 100 200 0 0 100 20 3 4 20 0 1 0 1000 0 0")
	require.NoError(t, err)
	require.Equal(t, times{parent: 7, used: 1270 * time.Millisecond}, got)
	for _, bad := range []string{"", "42 (a) S 7", "42 (a) S x 42 42 0 -1 4194560 100 200 0 0 100 20 3 4 20"} {
		_, err := parseStat(bad)
		require.Error(t, err, bad)
	}
}

func TestBusyIsAllButIdle(t *testing.T) {
	got, err := busy("cpu  1 2 3 1000 2000 4 5 6 7 8\ncpu0 9 9 9 9 9 9 9 9 9 9\n")
	require.NoError(t, err)
	require.Equal(t, 210*time.Millisecond, got)
	for _, bad := range []string{"", "cpu 1 2 3", "cpu 1 x 3 4 5 6 7 8 9"} {
		_, err := busy(bad)
		require.Error(t, err, bad)
	}
}

func TestDescends(t *testing.T) {
	all := map[int]times{10: {parent: 1}, 11: {parent: 10}, 12: {parent: 11}, 20: {parent: 1}, 30: {parent: 31}, 31: {parent: 30}}
	require.True(t, descends(all, 12, 10))
	require.True(t, descends(all, 10, 10))
	require.False(t, descends(all, 20, 10))
	require.False(t, descends(all, 30, 10), "a circle ends")
}

func TestCPUOfThisProcess(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("SKIPPED: this system has no /proc")
	}
	before, err := CPU(os.Getpid())
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		now, err := CPU(os.Getpid())
		return err == nil && now > before
	}, 30*time.Second, time.Millisecond, "who asks again and again uses the processor")
	used, err := CPU(0)
	require.NoError(t, err)
	require.Zero(t, used, "no process has used nothing")
	_, err = CPU(1 << 30)
	require.Error(t, err)
}

// TestStopByPatience: a process that ignores the signal is killed, by its id.
func TestStopByPatience(t *testing.T) {
	p, err := Start("stubborn", exec.Command("sh", "-c", "trap '' TERM; echo ready >&2; while :; do sleep 1; done"))
	require.NoError(t, err)
	require.NoError(t, p.WaitUntil(t.Context(), func(context.Context) bool { return p.output.String() != "" }))
	p.Stop(syscall.SIGTERM, 50*time.Millisecond)
	select {
	case <-p.Exited():
	default:
		t.Fatal("it is still there")
	}
	require.ErrorContains(t, p.Err(), "ready", "what it wrote last is told")
	p.Stop(syscall.SIGTERM, time.Second) // it has ended already
}

func TestWaitUntilEndsWithTheProcess(t *testing.T) {
	p, err := Start("short", exec.Command("sh", "-c", "echo no such luck >&2; exit 3"))
	require.NoError(t, err)
	err = p.WaitUntil(t.Context(), func(context.Context) bool { return false })
	require.ErrorContains(t, err, "no such luck")
}

func TestTailKeepsTheEnd(t *testing.T) {
	var w tail
	for range 3000 {
		_, err := w.Write([]byte("line\n"))
		require.NoError(t, err)
	}
	_, err := w.Write([]byte("last\n"))
	require.NoError(t, err)
	require.LessOrEqual(t, len(w.String()), tailBytes)
	require.Contains(t, w.String(), "last")
}
