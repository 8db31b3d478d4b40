package garbage

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestThePercentageMakesTheHeadroom(t *testing.T) {
	const mib = 1 << 20
	require.Equal(t, 1600, percentFor(4*mib, 64*mib))
	require.Equal(t, 200, percentFor(32*mib, 64*mib))
	require.Equal(t, least, percentFor(64*mib, 64*mib))
	require.Equal(t, least, percentFor(2000*mib, 64*mib), "a large heap is collected as by default")
	require.Equal(t, most, percentFor(0, 64*mib))
}

// TestTheUserHasTheLastWord: who sets GOGC knows why.
func TestTheUserHasTheLastWord(t *testing.T) {
	t.Setenv("GOGC", "75")
	require.False(t, Tune(Headroom))
}

// TestThePercentageFollowsTheHeap holds some memory and lets it go again.
func TestThePercentageFollowsTheHeap(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	require.True(t, Tune(Headroom))
	// collect runs collections until the percentage is as wanted: finalizers run beside.
	collect := func(ok func(percent int) bool) {
		require.Eventually(t, func() bool {
			runtime.GC()
			return ok(percentNow())
		}, 20e9, 1e6)
	}
	collect(func(percent int) bool { return percent > 400 })
	held := make([]byte, 2*Headroom)
	collect(func(percent int) bool { return percent == least })
	runtime.KeepAlive(held)
	held = nil
	collect(func(percent int) bool { return percent > 400 })
	_ = held
}

// percentNow is the percentage in force.
func percentNow() int {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	return int(s[0].Value.Uint64())
}
