package storagetest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// orderingOpenRules check O2: a claim whose transaction is open while its key changes.
func orderingOpenRules() []rule {
	return []rule{
		{name: "O2_an_earlier_place_appears_while_a_claim_that_commits_is_open", clocks: settable, run: func(t *testing.T, e *env) { orderingOpenClaim(t, e, true) }},
		{name: "O2_an_earlier_place_appears_while_a_claim_that_rolls_back_is_open", clocks: settable, run: func(t *testing.T, e *env) { orderingOpenClaim(t, e, false) }},
		{name: "O2_a_message_is_enqueued_while_a_claim_of_its_key_is_open", clocks: settable, run: orderingOpenEnqueue},
	}
}

// openToken is that of a claim of another session.
var openToken = storage.Token{15: 0x0C}

// openClaim claims a head in another session; end ends that transaction, and so does the test.
func (e *env) openClaim(t *testing.T, ref storage.Ref) (end func(commit bool)) {
	t.Helper()
	finish := e.in.HoldClaim(t, ref, openToken, e.now.Add(lease))
	ended := false
	end = func(commit bool) {
		if !ended {
			ended = true
			finish(commit)
		}
	}
	t.Cleanup(func() { end(false) })
	return end
}

// besideOpen runs a write while another session has something open: to its end, where one row
// is all that the other one holds, or until the other one has ended.
func (e *env) besideOpen(t *testing.T, end func(), write func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- write() }()
	if e.caps.RowLocks {
		require.NoError(t, receive(t, done, "the write does not wait for the row"))
		require.Empty(t, e.claimN(t, 10), "nothing of the key beside a claim that may commit")
		end()
		return
	}
	end()
	require.NoError(t, receive(t, done, "the write"))
}

func orderingOpenClaim(t *testing.T, e *env, commit bool) {
	t.Helper()
	refs := e.three(t)
	end := e.openClaim(t, refs[1])
	e.besideOpen(t, func() { end(commit) }, func() error {
		_, err := e.store.Redrive(t.Context(), storage.RedriveParams{Filter: storage.ListMessagesParams{QueueID: e.queue.ID}, Limit: 10})
		return err
	})
	e.sweepKeys(t, 100)
	e.checkKeys(t)
	want := refs
	if commit {
		e.claimNothing(t)
		require.True(t, e.settleReady(t, settlementOf(refs[1], openToken, storage.ActionComplete)))
		e.checkKeys(t)
		want = []storage.Ref{refs[0], refs[2]}
	}
	require.Equal(t, want, e.drain(t))
}

func orderingOpenEnqueue(t *testing.T, e *env) {
	for _, commit := range []bool{true, false} {
		ref := e.one(t, ordered("a"))
		end := e.openClaim(t, ref)
		var later []storage.Ref
		e.besideOpen(t, func() { end(commit) }, func() error {
			for range 2 {
				res, err := e.other.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{e.message(ordered("a"))}})
				if err != nil {
					return err
				}
				later = append(later, res.Items[0].Ref)
			}
			return nil
		})
		e.checkKeys(t)
		if commit {
			e.claimNothing(t)
			require.True(t, e.settleReady(t, settlementOf(ref, openToken, storage.ActionComplete)))
			require.Equal(t, later, e.drain(t))
			continue
		}
		require.Equal(t, slices.Concat([]storage.Ref{ref}, later), e.drain(t))
	}
}
