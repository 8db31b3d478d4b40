package storagetest

import (
	"testing"

	"github.com/queuebox/queuebox/storage"
)

// clock says on which clocks a test runs.
type clock int

const (
	// settable tests move the clock and compare times exactly.
	settable clock = 1 << iota
	// realClock tests run on the clock that production has, with short leases.
	realClock

	bothClocks = settable | realClock
)

// rule is one test. Its name starts with the ids of the rules that it checks.
type rule struct {
	name   string
	clocks clock
	run    func(t *testing.T, e *env)
	// skip returns why a backend of these abilities cannot run the test, or "".
	skip func(in *Instance, c storage.Capabilities) string
}

// group is a set of rules that share one database.
type group struct {
	name  string
	rules []rule
}

// groups is the suite, in the order in which it runs: case 1 first.
func groups() []group {
	return []group{
		{"case1", caseOneRules()},
		{"claim", claimRules()},
		{"order", orderRules()},
		{"claim_id", claimIDRules()},
		{"give_back", giveBackRules()},
		{"renew", renewRules()},
		{"settle", settleRules()},
		{"repeat", repeatRules()},
		{"fence", fenceRules()},
		{"enqueue", enqueueRules()},
		{"round_trip", roundTripRules()},
		{"admin", adminRules()},
		{"messages", messageRules()},
		{"retention", retentionRules()},
		{"races", raceRules()},
		{"held", heldRules()},
		{"outage", outageRules()},
		{"model", modelRules()},
	}
}

// Run runs the whole suite against a backend: on the settable clock, then what
// time and concurrency decide once more on the real clock.
func Run(t *testing.T, b Backend) {
	t.Helper()
	t.Run("settable_clock", func(t *testing.T) { runOn(t, b, settable) })
	t.Run("real_clock", func(t *testing.T) { runOn(t, b, realClock) })
}

func runOn(t *testing.T, b Backend, c clock) {
	t.Helper()
	for _, g := range groups() {
		var rules []rule
		for _, r := range g.rules {
			if r.clocks&c != 0 {
				rules = append(rules, r)
			}
		}
		if len(rules) == 0 {
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			w := newWorld(t, b, c == settable)
			for _, r := range rules {
				t.Run(r.name, func(t *testing.T) {
					if r.skip != nil {
						if why := r.skip(w.in, w.caps); why != "" {
							t.Skipf("%s: %s", w.caps.Name, why)
						}
					}
					r.run(t, w.env(t))
				})
			}
		})
	}
}

// needsRowLocks skips where another session cannot hold one row alone.
func needsRowLocks(_ *Instance, c storage.Capabilities) string {
	if !c.RowLocks {
		return "Capabilities.RowLocks is false: whoever writes holds the whole database"
	}
	return ""
}
