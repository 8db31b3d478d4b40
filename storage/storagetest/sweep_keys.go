package storagetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// sweepKeysRules check the upkeep of ordering keys: idle ones go, and nothing else changes.
func sweepKeysRules() []rule {
	return []rule{
		{name: "O9_idle_keys_go_and_nothing_else_changes", clocks: bothClocks, run: sweepKeysIdle},
		{name: "O9_idle_keys_may_stay_for_a_while", clocks: bothClocks, run: sweepKeysIdleFor},
		{name: "O9_a_whole_pass_by_pages", clocks: settable, run: sweepKeysPages},
		{name: "O7_a_blocked_key_stays", clocks: settable, run: sweepKeysBlocked},
	}
}

// sweepKeys looks at every ordering key, in pages of limit, and returns the sums.
func (e *env) sweepKeys(t *testing.T, limit int) (sum storage.SweepKeysResult, pages int) {
	t.Helper()
	var after int64
	for {
		res, err := e.store.SweepKeys(t.Context(), storage.SweepKeysParams{After: after, Limit: limit})
		require.NoError(t, err, "sweep keys")
		e.checkNow(t, res.Now)
		pages++
		require.LessOrEqual(t, res.Removed, limit, "no more than it looked at")
		sum.Removed += res.Removed
		for _, id := range res.Ready {
			if !slices.Contains(sum.Ready, id) {
				sum.Ready = append(sum.Ready, id)
			}
		}
		if res.Next == 0 {
			return sum, pages
		}
		require.Greater(t, res.Next, after, "a pass goes on")
		after = res.Next
	}
}

func sweepKeysIdle(t *testing.T, e *env) {
	e.sweepKeys(t, 100) // what other tests left behind
	refs := e.enqueue(t, e.message(ordered("a")), e.message(ordered("a")), e.message(ordered("b")), e.message(ordered("c"), delay(time.Hour)))
	cs := e.claimKeyed(t, refs[0], refs[2])
	e.unchanged(t, func() {
		sum, _ := e.sweepKeys(t, 100)
		require.Zero(t, sum.Removed, "all are in use")
		require.Empty(t, sum.Ready)
	})
	e.complete(t, cs[1])
	rows := []map[string]string{e.liveRow(t, refs[0]), e.liveRow(t, refs[1]), e.liveRow(t, refs[3])}
	sum, _ := e.sweepKeys(t, 100)
	require.Equal(t, 1, sum.Removed, "the one whose only message is done")
	for i, ref := range []storage.Ref{refs[0], refs[1], refs[3]} {
		require.Equal(t, rows[i], e.liveRow(t, ref))
	}
	require.Equal(t, "b", e.get(t, refs[2]).OrderingKey, "a finished message still names it")
	e.unchanged(t, func() {
		sum, _ := e.through(e.other).sweepKeys(t, 100)
		require.Zero(t, sum.Removed, "once")
	})
	// A key that went away comes back.
	again := e.many(t, 2, ordered("b"))
	e.completeNext(t, e.claimKeyed(t, again[0])[0])
	e.completeNext(t, cs[0])
	e.checkKeys(t)
	e.claimN(t, 10)
}

// sweepKeysIdleFor: with IdleFor a backend may keep idle keys or not; nobody sees a difference.
func sweepKeysIdleFor(t *testing.T, e *env) {
	e.sweepKeys(t, 100) // what other tests left behind
	sweep := func() (removed int) {
		res, err := e.store.SweepKeys(t.Context(), storage.SweepKeysParams{Limit: 100, IdleFor: time.Hour})
		require.NoError(t, err)
		return res.Removed
	}
	refs := e.many(t, 2, ordered("a"))
	cs := e.claimKeyed(t, refs[0])
	require.Zero(t, sweep(), "in use")
	e.completeNext(t, cs[0])
	e.complete(t, e.claimKeyed(t, refs[1])[0])
	removed := sweep()
	require.LessOrEqual(t, removed, 1)
	again := e.many(t, 2, ordered("a"))
	e.completeNext(t, e.claimKeyed(t, again[0])[0])
	e.checkKeys(t)
	e.complete(t, e.claimKeyed(t, again[1])[0])
	sum, _ := e.sweepKeys(t, 100)
	require.Equal(t, 1, sum.Removed, "and goes when it may not stay")
}

func sweepKeysPages(t *testing.T, e *env) {
	e.sweepKeys(t, 100) // what other tests left behind
	_, before := e.sweepKeys(t, 3)
	var refs []storage.Ref
	for i := range 10 {
		refs = append(refs, e.one(t, ordered(fmt.Sprint("key ", i))))
		e.one(t, ordered(fmt.Sprint("used ", i)), delay(time.Hour))
	}
	for _, c := range e.claimKeyed(t, refs...) {
		e.complete(t, c)
	}
	sum, pages := e.sweepKeys(t, 3)
	require.Equal(t, 10, sum.Removed)
	require.GreaterOrEqual(t, pages, before+5, "the limit bounds what is looked at")
	e.unchanged(t, func() {
		sum, _ := e.sweepKeys(t, 3)
		require.Zero(t, sum.Removed)
	})
}

func sweepKeysBlocked(t *testing.T, e *env) {
	e.sweepKeys(t, 100) // of what other tests left
	e = e.blocking(t)
	ref := e.one(t, ordered("a"))
	e.settle(t, settlement(e.claimKeyed(t, ref)[0], storage.ActionDeadLetter))
	e.unchanged(t, func() { e.sweepKeys(t, 100) })
	behind := e.one(t, ordered("a"))
	e.claimNothing(t)
	e.unchanged(t, func() { e.sweepKeys(t, 100) })
	e.checkKeys(t, "a")
	require.Equal(t, storage.StatePending, e.get(t, behind).State)
}
