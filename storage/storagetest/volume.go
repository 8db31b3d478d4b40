package storagetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// volumeRules use as many messages as one call may have. They have a database of
// their own, since what they leave behind makes it dear to compare the whole of it.
func volumeRules() []rule {
	return []rule{
		{name: "E9_1000_messages_over_many_queues", clocks: bothClocks, run: enqueueThousand},
		{name: "S3_S5_R5_1000_items_in_one_batch", clocks: bothClocks, run: settleThousand},
		{name: "O8_C12_thousands_of_one_key_stand_in_nobodys_way", clocks: bothClocks, run: orderingCrowd},
		{name: "C2_all_of_2500_delayed_messages_are_found_while_there_is_more", clocks: settable, run: claimDelayed},
	}
}

func enqueueThousand(t *testing.T, e *env) {
	other := e.on(e.newQueue(t, settings()))
	var ms []storage.NewMessage
	for i := range 1000 {
		from := e
		if i%2 == 1 {
			from = other
		}
		if i%3 == 0 {
			ms = append(ms, from.message(keyed("key-"+string(rune('a'+i%26))+time.Duration(i).String(), "content")))
			continue
		}
		ms = append(ms, from.message())
	}
	refs := e.enqueue(t, ms...)
	var evens []storage.Ref
	for i := 0; i < len(refs); i += 2 {
		evens = append(evens, refs[i])
	}
	require.Equal(t, evens, refsOf(e.claimN(t, 1000)))
	require.Len(t, other.claimN(t, 1000), 500)
}

func settleThousand(t *testing.T, e *env) {
	const n = 1000
	refs := e.many(t, n)
	cs := e.claimAs(t, "A", n, time.Hour)
	require.Equal(t, refs, refsOf(cs))
	renewals := make([]storage.Renewal, n)
	settlements := make([]storage.Settlement, n)
	for i, c := range cs {
		renewals[i] = renewal(c, time.Hour)
		settlements[i] = settlement(c, actions[i%4].action)
	}
	for i, got := range e.renew(t, renewals...) {
		require.Equal(t, storage.ItemApplied, got.Status, "item %d", i)
	}
	for i, got := range e.settle(t, settlements...) {
		require.Equal(t, storage.ItemApplied, got.Status, "item %d", i)
		require.Equal(t, actions[i%4].outcome, got.Outcome, "item %d", i)
	}
	for i, got := range e.settle(t, settlements...) {
		require.Equal(t, storage.ItemAlreadySettled, got.Status, "item %d", i)
		require.Equal(t, actions[i%4].outcome, got.Outcome, "item %d", i)
	}
}

func claimDelayed(t *testing.T, e *env) {
	// Whatever bound a claim sets to the delayed rows that it moves, coming back while
	// More is true finds them all.
	const n = 2500
	e.many(t, n, delay(time.Second))
	e.advance(t, time.Second)
	got := 0
	for range n {
		res := e.claimResult(t, storage.ClaimParams{Calls: []storage.ClaimCall{call("A", 1000, time.Hour)}})
		got += len(res.Calls[0].Messages)
		if !res.More {
			break
		}
	}
	require.Equal(t, n, got)
	e.claimNothing(t)
}

// orderingCrowd: however many wait behind a head, others come in one claim, and the key goes
// on message by message. That it costs nothing, the tests of each backend count.
func orderingCrowd(t *testing.T, e *env) {
	const n = 3000
	head := e.one(t, ordered("crowd"), priority(9))
	var crowd []storage.Ref
	for range n / 1000 {
		crowd = append(crowd, e.many(t, 1000, ordered("crowd"), priority(9))...)
	}
	c := e.claimKeyed(t, head)[0]
	others := e.enqueue(t, e.message(ordered("a")), e.message(), e.message(ordered("b")))
	res := e.claimResult(t, storage.ClaimParams{Calls: []storage.ClaimCall{call("A", 10, time.Hour)}})
	require.Equal(t, others, refsOf(res.Calls[0].Messages))
	require.False(t, res.More, "nothing else is ready")
	st, err := e.store.QueueStats(t.Context(), e.queue.ID)
	require.NoError(t, err)
	require.EqualValues(t, n, st.Blocked)
	require.EqualValues(t, 4, st.Leased)
	require.Zero(t, st.Ready+st.Delayed)
	for _, ref := range crowd[:20] {
		e.completeNext(t, c)
		c = e.claimKeyed(t, ref)[0]
	}
}
