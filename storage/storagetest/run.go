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

// group is a set of rules about one concern.
type group struct {
	name  string
	rules []rule
}

// section is a set of groups that share one database: to make one costs more than
// most groups take, and to compare one with all that every group left behind would
// cost more still.
type section struct {
	name   string
	groups []group
}

// sections is the suite, in the order in which it runs: case 1 first.
func sections() []section {
	return []section{
		{"claims", []group{
			{"case1", caseOneRules()},
			{"claim", claimRules()},
			{"order", orderRules()},
			{"claim_id", claimIDRules()},
			{"give_back", giveBackRules()},
			{"renew", renewRules()},
		}},
		{"settlements", []group{
			{"settle", settleRules()},
			{"repeat", repeatRules()},
		}},
		{"fences", []group{{"fence", fenceRules()}}},
		{"messages", []group{
			{"enqueue", enqueueRules()},
			{"admin", adminRules()},
			{"message", messageRules()},
		}},
		{"bytes", []group{{"round_trip", roundTripRules()}}},
		{"volume", []group{{"volume", volumeRules()}, {"explain_volume", explainVolumeRules()}, {"operate_volume", operateVolumeRules()}}},
		{"retention", []group{{"retention", retentionRules()}}},
		{"upkeep", []group{
			{"sweep", sweepRules()},
			{"cancel", cancelRules()},
			{"revoke", revokeRules()},
			{"look", lookRules()},
			{"first_ready", firstReadyRules()},
			{"explain", explainRules()},
			{"upkeep_race", upkeepRaceRules()},
		}},
		{"ordering", []group{
			{"ordering", orderingRules()},
			{"ordering_dead", orderingDeadRules()},
			{"ordering_settle", orderingSettleRules()},
			{"ordering_open", orderingOpenRules()},
			{"sweep_keys", sweepKeysRules()},
		}},
		{"follow_ups", []group{
			{"blocked", blockedRules()},
			{"follow_ups", followUpRules()},
			{"follow_ups_race", followUpRaceRules()},
		}},
		{"retain", []group{{"retain", retainRules()}}},
		{"own", []group{{"own_transaction", ownRules()}}},
		{"operate", []group{
			{"redrive", redriveRules()},
			{"purge", purgeRules()},
			{"redrive_ordered", redriveOrderedRules()},
			{"purge_ordered", purgeOrderedRules()},
			{"operate_race", operateRaceRules()},
			{"ordered_race", orderedRaceRules()},
		}},
		{"limits", []group{{"limit", limitRules()}}},
		{"counts", []group{{"count", countRules()}}},
		{"sessions", []group{
			{"held", heldRules()},
			{"joined", joinedRules()},
			{"notify", notifyRules()},
			{"outage", outageRules()},
		}},
		{"races", []group{
			{"race", raceRules()},
			{"ordering_race", orderingRaceRules()},
		}},
		{"model", []group{{"model", modelRules()}}},
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
	for _, s := range sections() {
		groups := s.on(c)
		if len(groups) == 0 {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			w := newWorld(t, b, c == settable)
			for _, g := range groups {
				t.Run(g.name, func(t *testing.T) { w.runGroup(t, g) })
			}
		})
	}
}

// on returns the groups that have rules for a clock, with those alone.
func (s section) on(c clock) []group {
	var groups []group
	for _, g := range s.groups {
		var rules []rule
		for _, r := range g.rules {
			if r.clocks&c != 0 {
				rules = append(rules, r)
			}
		}
		if len(rules) > 0 {
			groups = append(groups, group{g.name, rules})
		}
	}
	return groups
}

func (w *world) runGroup(t *testing.T, g group) {
	t.Helper()
	for _, r := range g.rules {
		t.Run(r.name, func(t *testing.T) {
			if r.skip != nil {
				if why := r.skip(w.in, w.caps); why != "" {
					t.Skipf("%s: %s", w.caps.Name, why)
				}
			}
			r.run(t, w.env(t))
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
