// Package garbage sets how often the collector of the Go runtime runs, for a process whose live
// heap is small beside what it allocates: by default the collector runs each time as much was
// allocated as is alive, and a server that keeps 5 MiB and allocates 200 MiB a second then
// collects forty times a second.
//
// [Tune] lets the process allocate a fixed headroom between two collections instead, where that
// is more. Memory stays bounded by the headroom above what the default would take, and a heap
// that is larger than the headroom is collected as by default. GOGC alone cannot say that: a
// percentage that suits 5 MiB takes gigabytes of a heap of 500 MiB.
package garbage

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// Headroom is what queuebox-server may allocate between two collections.
const Headroom = 64 << 20

// The bounds of the percentage: the default of the runtime, and what keeps the size of a nearly
// empty heap from mattering.
const (
	least = 100
	most  = 3200
)

// Tune makes the collector leave the headroom from now on. It returns false and does nothing
// where the user has set GOGC: then it is his to say. GOMEMLIMIT goes on to hold.
func Tune(headroom uint64) bool {
	if os.Getenv("GOGC") != "" {
		return false
	}
	t := &tuner{headroom: headroom, live: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}}
	t.set()
	t.watch()
	return true
}

// tuner sets the percentage after each collection.
type tuner struct {
	headroom uint64
	percent  int
	live     []metrics.Sample
}

// cycle is garbage; its finalizer runs after every collection, since it makes another one.
type cycle struct{ t *tuner }

func (t *tuner) watch() {
	runtime.SetFinalizer(&cycle{t}, func(c *cycle) {
		c.t.set()
		c.t.watch()
	})
}

func (t *tuner) set() {
	metrics.Read(t.live)
	percent := percentFor(t.live[0].Value.Uint64(), t.headroom)
	// The world stops for a moment where the percentage changes, so small changes are left out.
	if diff := percent - t.percent; diff > t.percent/8 || -diff > t.percent/8 {
		t.percent = percent
		debug.SetGCPercent(percent)
	}
}

// percentFor is the percentage of the live heap that makes the headroom.
func percentFor(live, headroom uint64) int {
	return int(min(max(headroom*100/max(live, 1), least), most))
}
