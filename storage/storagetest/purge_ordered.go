package storagetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// purgeOrderedRules check that an ordering key goes on when its messages are deleted (D6, O7).
func purgeOrderedRules() []rule {
	return []rule{
		{name: "O7_O9_the_next_one_follows_a_purged_head", clocks: bothClocks, run: purgeHead},
		{name: "O1_the_followers_of_a_claimed_head_go_and_it_stays", clocks: bothClocks, run: purgeFollowers},
		{name: "O7_the_purge_of_the_dead_one_unblocks_its_key", clocks: bothClocks, run: purgeBlocker},
		{name: "O7_the_purge_of_another_dead_one_does_not", clocks: settable, run: purgeNoBlocker},
		{name: "O4_O9_whole_keys_in_small_pages", clocks: settable, run: purgeKeys},
		{name: "O2_O9_a_held_head_is_left", clocks: settable, run: purgeHeldHead, skip: needsRowLocks},
	}
}

func purgeHead(t *testing.T, e *env) {
	refs := e.many(t, 4, ordered("a"))
	other := e.one(t, ordered("b"))
	sum := e.purgeAll(t, storage.PurgeParams{Filter: only(refs[0], refs[2])})
	require.Equal(t, 2, sum.Count)
	require.True(t, sum.Ready, "the next one is claimable")
	e.requireGone(t, refs[0], refs[2])
	e.checkKeys(t)
	e.completeNext(t, e.claimBoth(t, refs[1], other))
	e.claimKeyed(t, refs[3])

	// A delayed head holds its key as long as it is there.
	delayed := e.one(t, ordered("d"), delay(time.Hour))
	next := e.one(t, ordered("d"))
	e.claimNothing(t)
	e.purge(t, 1, only(delayed))
	e.claimKeyed(t, next)
}

// claimBoth claims two heads, which may be ready in either order, and gives the claim of the
// first.
func (e *env) claimBoth(t *testing.T, first, second storage.Ref) storage.Claimed {
	t.Helper()
	cs := e.claimN(t, 10)
	require.ElementsMatch(t, []storage.Ref{first, second}, refsOf(cs))
	if cs[0].Message.Ref != first {
		return cs[1]
	}
	return cs[0]
}

func purgeFollowers(t *testing.T, e *env) {
	refs := e.many(t, 3, ordered("a"))
	c := e.claimKeyed(t, refs[0])[0]
	sum := e.purgeAll(t, storage.PurgeParams{Filter: storage.ListMessagesParams{OrderingKey: "a"}})
	require.Equal(t, 2, sum.Count)
	require.False(t, sum.Ready)
	e.requireGone(t, refs[1:]...)
	late := e.one(t, ordered("a"))
	e.claimNothing(t)
	e.completeNext(t, c)
	e.claimKeyed(t, late)
}

func purgeBlocker(t *testing.T, e *env) {
	e = e.blocking(t)
	refs := e.three(t)
	e.claimNothing(t)
	e.checkKeys(t, "a")
	sum := e.purgeAll(t, storage.PurgeParams{Filter: storage.ListMessagesParams{States: []storage.State{storage.StateDead}}})
	require.Equal(t, 1, sum.Count)
	require.True(t, sum.Ready, "the next one is claimable")
	e.requireGone(t, refs[0])
	e.checkKeys(t)
	require.Equal(t, refs[1:], e.drain(t))
}

func purgeNoBlocker(t *testing.T, e *env) {
	refs := e.many(t, 4, ordered("a"))
	e.settle(t, settlement(e.claimKeyed(t, refs[0])[0], storage.ActionDeadLetter))
	e.setMode(t, storage.OrderingBlockOnDead)
	e.settle(t, settlement(e.claimKeyed(t, refs[1])[0], storage.ActionDeadLetter))
	e.purge(t, 1, only(refs[0]))
	e.claimNothing(t)
	e.checkKeys(t, "a")
	// Nor does one from behind it.
	e.purge(t, 1, only(refs[2]))
	e.claimNothing(t)
	e.purge(t, 1, only(refs[1]))
	require.Equal(t, refs[3:], e.drain(t))
}

func purgeKeys(t *testing.T, e *env) {
	a, b := e.many(t, 10, ordered("a")), e.many(t, 10, ordered("b"))
	elsewhere := e.on(e.newQueue(t, settings()))
	there := elsewhere.many(t, 2, ordered("a"))
	sum := e.purgeAll(t, storage.PurgeParams{Filter: storage.ListMessagesParams{OrderingKey: "a"}, Limit: 3})
	require.Equal(t, len(a), sum.Count)
	e.requireGone(t, a...)
	e.checkKeys(t)
	e.sweepKeys(t, 100)
	late := e.one(t, ordered("a"))
	e.claimKeyed(t, b[0], late)
	require.Equal(t, there, elsewhere.drain(t))
}

func purgeHeldHead(t *testing.T, e *env) {
	refs := e.many(t, 3, ordered("a"))
	release := e.in.Hold(t, refs[0], HoldUpdate)
	freed := false
	defer func() {
		if !freed {
			release()
		}
	}()
	sum := e.purgeAll(t, storage.PurgeParams{Filter: only(refs[0], refs[1])})
	require.Equal(t, [2]int{1, 1}, [2]int{sum.Count, sum.Left})
	require.Empty(t, e.claimN(t, 10), "it may be claimed at this moment")
	release()
	freed = true
	e.checkKeys(t)
	e.purge(t, 1, only(refs[0]))
	e.claimKeyed(t, refs[2])
}
