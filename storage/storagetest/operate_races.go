package storagetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// operateRaceRules run Redrive and Purge against each other and against claims.
func operateRaceRules() []rule {
	return []rule{
		{name: "O7_D5_two_redrives_move_each_once", clocks: realClock, run: raceRedrives},
		{name: "O7_C1_redrive_against_claims", clocks: realClock, run: raceRedriveClaim},
		{name: "O7_D6_redrive_against_purge", clocks: realClock, run: raceRedrivePurge},
		{name: "D6_D5_two_purges_delete_each_once", clocks: realClock, run: racePurges},
		{name: "D6_C6_purge_against_claims", clocks: realClock, run: racePurgeClaim},
		{name: "D6_E1_purge_against_enqueues_of_the_same_key", clocks: realClock, run: racePurgeKey},
	}
}

// rawRedrive runs a pass outside the goroutine of the test.
func (e *env) rawRedrive(ctx context.Context, s storage.Store, limit int) (count int, err error) {
	p := storage.RedriveParams{Filter: storage.ListMessagesParams{QueueID: e.queue.ID}, Limit: limit}
	for {
		res, err := s.Redrive(ctx, p)
		count += res.Count
		if err != nil || res.Next == 0 {
			return count, err
		}
		p.After = res.Next
	}
}

// rawPurge runs a pass outside the goroutine of the test.
func (e *env) rawPurge(ctx context.Context, s storage.Store, limit int, states ...storage.State) (count int, err error) {
	p := storage.PurgeParams{Filter: storage.ListMessagesParams{QueueID: e.queue.ID, States: states}, Limit: limit}
	for {
		res, err := s.Purge(ctx, p)
		count += res.Count
		if err != nil || res.Next == 0 {
			return count, err
		}
		p.After = res.Next
	}
}

func raceRedrives(t *testing.T, e *env) {
	const n = 300
	for round := range 3 {
		refs := e.dead(t, n)
		counts := make([]int, 4)
		stores := []storage.Store{e.store, e.other}
		err := together(4, func(i int) (err error) {
			counts[i], err = e.rawRedrive(t.Context(), stores[i%2], 10+i)
			return err
		})
		require.NoError(t, err)
		require.Equal(t, n, counts[0]+counts[1]+counts[2]+counts[3], "round %d: each once, none left", round)
		got := map[storage.Ref]bool{}
		for _, c := range e.claimAs(t, "A", n, time.Hour) {
			require.EqualValues(t, 2, c.Message.Attempt)
			got[c.Message.Ref] = true
			e.complete(t, c)
		}
		for _, ref := range refs {
			require.True(t, got[ref])
		}
		e.claimNothing(t)
	}
}

func raceRedriveClaim(t *testing.T, e *env) {
	const n = 300
	refs := e.dead(t, n)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	taken := make([][]storage.Claimed, 2)
	stores := []storage.Store{e.store, e.other}
	err := together(3, func(i int) error {
		if i == 2 {
			_, err := e.rawRedrive(ctx, e.store, 7)
			return err
		}
		for {
			out, err := e.rawClaim(ctx, stores[i], call("A", 5, time.Hour))
			if err != nil {
				return err
			}
			taken[i] = append(taken[i], out.Messages...)
			stats, err := stores[i].QueueStats(ctx, e.queue.ID)
			if err != nil || stats.Leased == n {
				return err
			}
		}
	})
	require.NoError(t, err)
	seen := map[storage.Ref]bool{}
	for _, c := range append(taken[0], taken[1]...) {
		require.False(t, seen[c.Message.Ref], "C1: %v twice", c.Message.Ref)
		seen[c.Message.Ref] = true
		require.EqualValues(t, 2, c.Message.Attempt)
	}
	require.Len(t, seen, len(refs))
}

func raceRedrivePurge(t *testing.T, e *env) {
	for round := range 5 {
		const n = 100
		refs := e.dead(t, n)
		var redriven, purged int
		err := together(2, func(i int) (err error) {
			if i == 0 {
				redriven, err = e.rawRedrive(t.Context(), e.store, 3)
				return err
			}
			purged, err = e.rawPurge(t.Context(), e.other, 3, storage.StateDead)
			return err
		})
		require.NoError(t, err)
		t.Logf("round %d: %d redriven, %d purged", round, redriven, purged)
		require.Equal(t, n, redriven+purged, "round %d: each is one or the other", round)
		cs := e.claimAs(t, "A", n, time.Hour)
		require.Len(t, cs, redriven)
		for _, c := range cs {
			e.complete(t, c)
		}
		gone := 0
		for _, ref := range refs {
			if _, err := e.store.GetMessage(t.Context(), ref, false); err != nil {
				require.ErrorIs(t, err, storage.ErrMessageNotFound)
				gone++
			}
		}
		require.Equal(t, purged, gone)
	}
}

func racePurges(t *testing.T, e *env) {
	const n = 150
	refs := e.dead(t, n)
	for _, m := range []func(){
		func() { refs = append(refs, e.many(t, n)...) },
		func() {
			for _, c := range e.claimAs(t, "A", n/2, time.Hour) {
				e.complete(t, c)
			}
		},
	} {
		m()
	}
	counts := make([]int, 4)
	stores := []storage.Store{e.store, e.other}
	err := together(4, func(i int) (err error) {
		counts[i], err = e.rawPurge(t.Context(), stores[i%2], 10+i)
		return err
	})
	require.NoError(t, err)
	require.Equal(t, 2*n, counts[0]+counts[1]+counts[2]+counts[3], "each once")
	e.requireGone(t, refs...)
}

func racePurgeClaim(t *testing.T, e *env) {
	var purgedAll, claimedAll int
	for round := range 10 {
		const n = 60
		refs := e.many(t, n)
		var purged int
		var claims []storage.Claimed
		err := together(2, func(i int) (err error) {
			if i == 0 {
				purged, err = e.rawPurge(t.Context(), e.store, 3)
				return err
			}
			for range n {
				out, err := e.rawClaim(t.Context(), e.other, call("A", 2, time.Hour))
				if err != nil {
					return err
				}
				if len(out.Messages) == 0 {
					return nil
				}
				claims = append(claims, out.Messages...)
			}
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, n, purged+len(claims), "round %d: each was claimed or purged", round)
		for _, c := range claims {
			require.Equal(t, storage.StateProcessing, e.get(t, c.Message.Ref).State, "round %d: a claimed one is there", round)
			e.complete(t, c)
		}
		purgedAll, claimedAll = purgedAll+purged, claimedAll+len(claims)
		e.purge(t, len(claims), storage.ListMessagesParams{})
		e.requireGone(t, refs...)
	}
	t.Logf("%d purged, %d claimed", purgedAll, claimedAll)
}

func racePurgeKey(t *testing.T, e *env) {
	m := e.message(keyed("key", "content"))
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	const rounds = 60
	var inserted, purged int
	done := make(chan struct{})
	err := together(2, func(i int) error {
		if i == 0 {
			defer close(done)
			for range rounds {
				res, err := e.store.Enqueue(ctx, storage.EnqueueParams{Messages: []storage.NewMessage{m}})
				if err != nil {
					return err
				}
				if res.Items[0].Status == storage.EnqueueInserted {
					inserted++
				}
			}
			return nil
		}
		for {
			n, err := e.rawPurge(ctx, e.other, 10)
			if err != nil {
				return err
			}
			purged += n
			select {
			case <-done:
				return nil
			default:
			}
		}
	})
	require.NoError(t, err)
	t.Logf("%d inserted, %d purged", inserted, purged)
	left := e.claimN(t, 10)
	require.Len(t, left, inserted-purged, "what was inserted is there or was purged")
	require.LessOrEqual(t, len(left), 1, "E1: one message has the key")
	got := e.enqueueResult(t, m)[0]
	if len(left) == 1 {
		require.Equal(t, storage.EnqueueDuplicate, got.Status)
		require.Equal(t, left[0].Message.Ref, got.Ref)
	} else {
		require.Equal(t, storage.EnqueueInserted, got.Status)
	}
}
