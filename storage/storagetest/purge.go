package storagetest

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// purgeRules check that an operator can delete messages for good, and no claimed one (D6).
func purgeRules() []rule {
	return []rule{
		{name: "D6_E5_every_kind_goes_with_its_key_and_its_history", clocks: bothClocks, run: purgeAllKinds},
		{name: "D6_a_claimed_message_never_goes", clocks: bothClocks, run: purgeClaimed},
		{name: "D6_E12_a_marked_message_never_goes", clocks: settable, run: purgeMarked, skip: needsMarks},
		{name: "D6_S8_its_token_is_unknown_from_then_on", clocks: settable, run: purgeToken},
		{name: "D6_only_the_queue", clocks: settable, run: purgeQueue},
		{name: "D6_E5_a_key_that_names_a_newer_message_stays", clocks: settable, run: purgeKeyReused},
		{name: "D6_the_filter_means_what_it_means_in_a_list", clocks: settable, run: purgeFilters},
		{name: "D6_pages_of_any_size_delete_each_once", clocks: settable, run: purgePages},
		{name: "D6_a_held_row_is_left_and_nobody_waits", clocks: bothClocks, run: purgeHeld, skip: needsRowLocks},
	}
}

func (e *env) purgeAll(t *testing.T, p storage.PurgeParams) storage.BatchResult {
	t.Helper()
	p.Filter.QueueID = e.queue.ID
	if p.Limit == 0 {
		p.Limit = 100
	}
	return e.pass(t, p.Limit, func(after int64) (storage.BatchResult, error) {
		p.After = after
		return e.store.Purge(t.Context(), p)
	})
}

// purge deletes exactly so many.
func (e *env) purge(t *testing.T, want int, p storage.ListMessagesParams) {
	t.Helper()
	sum := e.purgeAll(t, storage.PurgeParams{Filter: p})
	require.Equal(t, want, sum.Count, "purged")
	require.Zero(t, sum.Left)
}

func (e *env) requireGone(t *testing.T, refs ...storage.Ref) {
	t.Helper()
	for _, ref := range refs {
		_, err := e.store.GetMessage(t.Context(), ref, true)
		require.ErrorIs(t, err, storage.ErrMessageNotFound, "%v", ref)
		require.Nil(t, e.in.Row(t, ref))
	}
}

func purgeAllKinds(t *testing.T, e *env) {
	const trace = "trace-purge"
	refs := e.finish(t, trace)
	keys := []string{"complete", "dead", "cancel", "pending", "delayed", "retried"}
	retried := e.enqueue(t, e.message(keyed(trace+"-key-retried", "content"), traced(trace)))[0]
	s := settlement(e.claimOne(t), storage.ActionRetry)
	s.Delay = time.Hour
	require.Equal(t, storage.ItemApplied, e.settle(t, s)[0].Status)
	pending := e.enqueue(t, e.message(keyed(trace+"-key-pending", "content"), traced(trace)))[0]
	delayed := e.enqueue(t, e.message(keyed(trace+"-key-delayed", "content"), traced(trace), delay(time.Hour)))[0]
	refs = append(refs, retried, pending, delayed)
	require.True(t, e.traces(t, trace))
	e.purge(t, len(refs), storage.ListMessagesParams{})
	e.requireGone(t, refs...)
	require.False(t, e.traces(t, trace), "neither the rows nor the keys are there")
	require.Equal(t, storage.ItemNotFound, e.settle(t, s)[0].Status, "nor the history")
	e.unchanged(t, func() { e.purge(t, 0, storage.ListMessagesParams{}) })
	for _, end := range keys {
		fresh := e.enqueueResult(t, e.message(keyed(trace+"-key-"+end, "other content")))[0]
		require.Equal(t, storage.EnqueueInserted, fresh.Status, "the key of the %s one is free", end)
	}
	require.Len(t, e.claimN(t, 10), len(keys))
}

func purgeClaimed(t *testing.T, e *env) {
	held, over := e.one(t), e.one(t)
	c := e.claimOneAs(t, "worker", time.Hour)
	require.Equal(t, held, c.Message.Ref)
	lost := e.claimOneAs(t, "worker", short)
	require.Equal(t, over, lost.Message.Ref)
	e.waitClock(t, lost.Message.LeaseEnd)
	e.unchanged(t, func() {
		e.purge(t, 0, storage.ListMessagesParams{})
		e.purge(t, 0, only(held, over))
		e.purge(t, 0, storage.ListMessagesParams{States: []storage.State{storage.StateProcessing}})
		sum := e.purgeAll(t, storage.PurgeParams{DryRun: true})
		require.Zero(t, sum.Count, "a dry run does not count them either")
	})
	e.complete(t, c)
	again := e.claimOne(t)
	require.Equal(t, over, again.Message.Ref)
	e.complete(t, again)
	e.purge(t, 2, storage.ListMessagesParams{})
	e.requireGone(t, held, over)
}

func purgeMarked(t *testing.T, e *env) {
	ref := e.one(t)
	e.claimOneAs(t, "worker", time.Hour)
	e.in.Mark(t, ref, e.clockNow(t))
	e.unchanged(t, func() {
		e.purge(t, 0, storage.ListMessagesParams{})
		e.purge(t, 0, storage.ListMessagesParams{States: []storage.State{storage.StateCompleted}})
	})
}

func purgeToken(t *testing.T, e *env) {
	for _, act := range actions {
		ref := e.one(t)
		c := e.claimOne(t)
		s := settlement(c, act.action)
		require.Equal(t, storage.ItemApplied, e.settle(t, s)[0].Status)
		e.purge(t, 1, only(ref))
		e.unchanged(t, func() {
			require.Equal(t, storage.ItemNotFound, e.settle(t, s)[0].Status, act.name)
			require.Equal(t, storage.ItemNotFound, e.renew(t, renewal(c, lease))[0].Status, act.name)
		})
	}
}

func purgeQueue(t *testing.T, e *env) {
	elsewhere := e.on(e.newQueue(t, settings()))
	there := elsewhere.one(t)
	refs := e.many(t, 3)
	before := elsewhere.liveRow(t, there)
	e.purge(t, 0, only(there))
	e.purge(t, 1, only(refs[1], there))
	e.requireGone(t, refs[1])
	e.purge(t, 2, storage.ListMessagesParams{})
	require.Equal(t, before, elsewhere.liveRow(t, there))
}

func purgeKeyReused(t *testing.T, e *env) {
	e = e.on(e.newQueue(t, retainSettings(time.Hour, time.Hour)))
	m := e.message(keyed("key", "content"))
	old := e.enqueue(t, m)[0]
	e.complete(t, e.claimOne(t))
	e.advance(t, time.Hour+2*e.tick)
	e.purge(t, 0, storage.ListMessagesParams{})
	fresh := e.enqueueResult(t, m)[0]
	require.Equal(t, storage.EnqueueInserted, fresh.Status)
	// With a longer retention the old one is seen again, and its key is not its own any more.
	_, err := e.store.UpdateQueue(t.Context(), e.queue.Name, retainSettings(100*time.Hour, time.Hour), 0)
	require.NoError(t, err)
	e.purge(t, 1, only(old))
	e.requireGone(t, old)
	got := e.enqueueResult(t, m)[0]
	require.Equal(t, storage.EnqueueDuplicate, got.Status, "the key names the newer message")
	require.Equal(t, fresh.Ref, got.Ref)
}

// purgeable are the states that Purge deletes.
var purgeable = []storage.State{storage.StatePending, storage.StateCompleted, storage.StateDead, storage.StateCancelled}

func purgeFilters(t *testing.T, e *env) {
	var names []string
	for name := range operateStory(t, e) {
		names = append(names, name)
	}
	slices.Sort(names)
	some := 0
	for _, name := range names {
		e := e.on(e.newQueue(t, settings()))
		p := operateStory(t, e)[name]
		want := e.meant(t, p, purgeable...)
		some += min(1, len(want))
		all := append(slices.Clone(purgeable), storage.StateProcessing)
		others := e.meant(t, storage.ListMessagesParams{}, all...)
		others = slices.DeleteFunc(others, func(ref storage.Ref) bool { return slices.Contains(want, ref) })
		e.unchanged(t, func() {
			sum := e.purgeAll(t, storage.PurgeParams{Filter: p, Limit: 2, DryRun: true})
			require.Equal(t, len(want), sum.Count, "%s: a dry run counts", name)
		})
		sum := e.purgeAll(t, storage.PurgeParams{Filter: p, Limit: 2})
		require.Equal(t, len(want), sum.Count, name)
		e.requireGone(t, want...)
		require.Equal(t, others, e.meant(t, storage.ListMessagesParams{}, all...), name)
	}
	require.Greater(t, some, len(names)/2, "most filters mean something, else this proves little")
}

func purgePages(t *testing.T, e *env) {
	for _, limit := range []int{1, 2, 7, 29, 30, 31, 1000} {
		refs := e.dead(t, 10)
		refs = append(refs, e.many(t, 10)...)
		for _, c := range e.claimN(t, 5) {
			e.complete(t, c)
		}
		for _, ref := range e.many(t, 10) {
			e.cancel(t, ref)
			refs = append(refs, ref)
		}
		require.Equal(t, 30, e.purgeAll(t, storage.PurgeParams{Limit: limit, DryRun: true}).Count, "pages of %d", limit)
		require.Equal(t, 30, e.purgeAll(t, storage.PurgeParams{Limit: limit}).Count, "pages of %d", limit)
		e.requireGone(t, refs...)
	}
}

func purgeHeld(t *testing.T, e *env) {
	for _, how := range []HoldKind{HoldLock, HoldUpdate} {
		refs := e.many(t, 3)
		release := e.in.Hold(t, refs[1], how)
		freed := false
		defer func() {
			if !freed {
				release()
			}
		}()
		began := time.Now()
		sum := e.purgeAll(t, storage.PurgeParams{})
		require.Less(t, time.Since(began), soon/2, "it waits for nobody")
		require.Equal(t, [2]int{2, 1}, [2]int{sum.Count, sum.Left})
		e.requireGone(t, refs[0], refs[2])
		require.Equal(t, storage.StatePending, e.get(t, refs[1]).State)
		release()
		freed = true
		e.purge(t, 1, storage.ListMessagesParams{})
		e.requireGone(t, refs[1])
	}
}
