package storagetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// caseOneRules are the story that every backend tells first: a worker that slept
// through its lease cannot touch the claim of the next one.
func caseOneRules() []rule {
	return []rule{
		{name: "S1_S2_C3_C4_case_1_stale_worker_cannot_complete_the_claim_of_the_next", clocks: settable, run: caseOne},
		{name: "S1_S2_C3_C4_case_1_the_same_on_the_real_clock", clocks: realClock, run: caseOneReal},
	}
}

func caseOne(t *testing.T, e *env) {
	// The clock of the story: 0 now, the lease of A ends at 200.
	start := e.now
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	ref := e.one(t, payload([]byte("E-41")))

	a := e.claimOneAs(t, "A", 200*time.Second)
	require.Equal(t, ref, a.Message.Ref)
	require.EqualValues(t, 1, a.Message.Attempt)
	require.True(t, at(200).Equal(a.Message.LeaseEnd))

	e.advanceTo(t, at(150))
	e.claimNothing(t)
	e.advanceTo(t, at(200).Add(-e.tick))
	e.claimNothing(t)

	e.advanceTo(t, at(200))
	b := e.claimOneAs(t, "B", 200*time.Second)
	require.Equal(t, ref, b.Message.Ref)
	require.NotEqual(t, a.Token, b.Token, "C4: a token never seen before")
	require.EqualValues(t, 2, b.Message.Attempt)
	require.Equal(t, []byte("E-41"), b.Message.Payload)

	row := e.liveRow(t, ref)
	e.unchanged(t, func() {
		got := e.settle(t, settlement(a, storage.ActionComplete))[0]
		require.Equal(t, storage.ItemLost, got.Status)
		require.Equal(t, storage.LostSuperseded, got.Cause)
		renewed := e.renew(t, renewal(a, lease))[0]
		require.Equal(t, storage.ItemLost, renewed.Status)
		require.Equal(t, storage.LostSuperseded, renewed.Cause)
	})
	require.Equal(t, row, e.liveRow(t, ref), "the row of B is byte for byte unchanged")

	e.complete(t, b)
	require.Nil(t, e.in.Row(t, ref), "a completed message leaves the live rows")
	done := e.get(t, ref)
	require.Equal(t, storage.StateCompleted, done.State)
	require.EqualValues(t, 2, done.Attempt)

	// A wakes once more, after all is over.
	e.unchanged(t, func() {
		got := e.settle(t, settlement(a, storage.ActionComplete))[0]
		require.Equal(t, storage.ItemLost, got.Status)
	})
}

func caseOneReal(t *testing.T, e *env) {
	ref := e.one(t, payload([]byte("E-41")))
	a := e.claimOneAs(t, "A", 300*time.Millisecond)

	// Until the lease is over B gets nothing. The look and the clock are two
	// statements, so only a look that ended before the lease did says anything.
	var b storage.Claimed
	eventually(t, "B gets the message of A", func() bool {
		got := e.claimAs(t, "B", 1, time.Minute)
		if len(got) == 0 {
			return false
		}
		b = got[0]
		now, err := e.store.Now(t.Context())
		require.NoError(t, err)
		require.False(t, now.Before(a.Message.LeaseEnd), "C3: not before the lease of A is over")
		return true
	})
	require.Equal(t, ref, b.Message.Ref)
	require.NotEqual(t, a.Token, b.Token)
	require.EqualValues(t, 2, b.Message.Attempt)

	row := e.liveRow(t, ref)
	e.unchanged(t, func() {
		for _, act := range actions {
			got := e.settle(t, settlement(a, act.action))[0]
			require.Equal(t, storage.ItemLost, got.Status, act.name)
			require.Equal(t, storage.LostSuperseded, got.Cause, act.name)
		}
		require.Equal(t, storage.ItemLost, e.renew(t, renewal(a, lease))[0].Status)
	})
	require.Equal(t, row, e.liveRow(t, ref))
	e.complete(t, b)
	require.Equal(t, storage.StateCompleted, e.get(t, ref).State)
}
