package storagetest

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// operateVolumeRules use more messages than one call looks at.
func operateVolumeRules() []rule {
	return []rule{
		{name: "O7_a_redrive_filter_that_matches_few_of_many", clocks: settable, run: redriveFew},
		{name: "D6_a_purge_filter_that_matches_few_of_many", clocks: settable, run: purgeFew},
	}
}

// pass calls again until the end is reached, and checks what holds of every call.
func (e *env) pass(t *testing.T, limit int, call func(after int64) (storage.BatchResult, error)) (sum storage.BatchResult) {
	t.Helper()
	var after int64
	for calls := 0; ; calls++ {
		res, err := call(after)
		require.NoError(t, err)
		e.checkNow(t, res.Now)
		require.LessOrEqual(t, res.Count, limit, "in small batches")
		sum.Count += res.Count
		sum.Left += res.Left
		sum.Ready = sum.Ready || res.Ready
		if res.Next == 0 {
			return sum
		}
		require.NotEqual(t, after, res.Next, "each call gets on")
		require.Less(t, calls, 10_000, "a pass comes to an end")
		after = res.Next
	}
}

// operateStory makes messages that differ in everything that a filter looks at, and gives the
// filters with what each of them means among all messages.
func operateStory(t *testing.T, e *env) map[string]storage.ListMessagesParams {
	t.Helper()
	t0 := e.now
	finish := func(worker, text, code string, a storage.Action) storage.Ref {
		ref := e.one(t, priority(9))
		c := e.claimOneAs(t, worker, time.Hour)
		require.Equal(t, ref, c.Message.Ref)
		s := settlement(c, a)
		s.Error, s.ReasonCode = text, code
		require.Equal(t, storage.ItemApplied, e.settle(t, s)[0].Status)
		return ref
	}
	e.one(t)
	e.one(t, delay(time.Hour))
	finish("worker-1", `50% of "x_y" is 'wrong'`, "MALFORMED", storage.ActionDeadLetter)
	finish("worker-2", "Timeout", "SLOW", storage.ActionDeadLetter)
	e.advance(t, time.Second)
	t1 := e.now
	finish("worker-1", "timeout", "", storage.ActionDeadLetter)
	named := finish("worker-2", "timeout, again", "SLOW", storage.ActionRetry)
	finish("worker-1", "", "", storage.ActionComplete)
	e.cancel(t, e.one(t))
	e.advance(t, time.Second)
	t2 := e.now
	ref := e.one(t, priority(9), maxAttempts(1))
	c := e.claimOneAs(t, "worker-3", time.Second)
	e.advanceTo(t, c.Message.LeaseEnd)
	e.sweep(t, ref)
	e.one(t, expires(e.now.Add(-time.Second)))
	e.sweepAll(t, 100)
	last := finish("worker-3", "last", "LAST", storage.ActionDeadLetter)
	held := e.one(t, priority(9))
	require.Equal(t, held, e.claimOneAs(t, "worker-1", 10*time.Hour).Message.Ref)

	return map[string]storage.ListMessagesParams{
		"everything":              {},
		"dead":                    {States: []storage.State{storage.StateDead}},
		"dead and cancelled":      {States: []storage.State{storage.StateDead, storage.StateCancelled}},
		"completed and pending":   {States: []storage.State{storage.StateCompleted, storage.StatePending}},
		"rejected":                {DeadReasons: []storage.DeadReason{storage.DeadReasonRejected}},
		"two dead reasons":        {DeadReasons: []storage.DeadReason{storage.DeadReasonLeaseExpired, storage.DeadReasonExpired}},
		"pending, dead reasons":   {States: []storage.State{storage.StatePending}, DeadReasons: []storage.DeadReason{storage.DeadReasonRejected}},
		"a reason code":           {ReasonCodes: []string{"other", "SLOW"}},
		"by bytes":                {ReasonCodes: []string{"slow"}},
		"an error text":           {ErrorContains: "imeout"},
		"no wildcard":             {ErrorContains: "50%of"},
		"an underscore":           {ErrorContains: "x_y"},
		"a worker":                {WorkerID: "worker-1"},
		"from a time":             {MinCreateTime: t1},
		"before a time":           {MaxCreateTime: t1},
		"between":                 {MinCreateTime: t0, MaxCreateTime: t2},
		"positions":               only(last, held, named, storage.Ref{Position: 1 << 60}),
		"the same position twice": only(last, last),
		"two things":              {WorkerID: "worker-2", ErrorContains: "Time"},
		"another ordering key":    {OrderingKey: "no such key"},
		"processing":              {States: []storage.State{storage.StateProcessing}},
	}
}

// meant lists what a filter means, oldest first, in the states that count.
func (e *env) meant(t *testing.T, p storage.ListMessagesParams, states ...storage.State) []storage.Ref {
	t.Helper()
	p.Limit = 1000
	refs := []storage.Ref{}
	for _, m := range e.list(t, p) {
		if slices.Contains(states, m.State) {
			refs = append(refs, m.Ref)
		}
	}
	slices.Reverse(refs)
	return refs
}

func redriveFew(t *testing.T, e *env) {
	const n = 6000
	for range n / 1000 {
		e.dead(t, 1000)
	}
	ref := e.one(t)
	s := settlement(e.claimOne(t), storage.ActionDeadLetter)
	s.ReasonCode = "THE ONE"
	e.settle(t, s)
	e.dead(t, 10)
	p := storage.RedriveParams{Filter: storage.ListMessagesParams{QueueID: e.queue.ID, ReasonCodes: []string{"THE ONE"}}, Limit: 10}
	count := 0
	for {
		res, err := e.store.Redrive(t.Context(), p)
		require.NoError(t, err)
		count += res.Count
		if res.Next == 0 {
			break
		}
		require.Greater(t, res.Next, p.After, "a page that matched nothing gets on")
		p.After = res.Next
	}
	require.Equal(t, 1, count)
	require.NotZero(t, p.After, "the look of one call is bounded")
	require.Equal(t, ref, e.claimOne(t).Message.Ref)
	require.Equal(t, n+10, e.redriveAll(t, storage.RedriveParams{DryRun: true, Limit: 1_000_000}).Count)
}

func purgeFew(t *testing.T, e *env) {
	const n = 6000
	for range n / 1000 {
		e.many(t, 1000)
	}
	one := e.one(t, delay(time.Hour))
	s := e.now
	e.advance(t, time.Second)
	last := e.one(t, delay(time.Hour))
	p := storage.PurgeParams{Filter: storage.ListMessagesParams{QueueID: e.queue.ID, MinCreateTime: s.Add(e.tick)}, Limit: 10}
	calls, count := 0, 0
	for {
		res, err := e.store.Purge(t.Context(), p)
		require.NoError(t, err)
		calls++
		count += res.Count
		if res.Next == 0 {
			break
		}
		require.NotEqual(t, res.Next, p.After, "a page that matched nothing gets on")
		p.After = res.Next
	}
	require.Greater(t, calls, 1, "the look of one call is bounded")
	require.Equal(t, 1, count)
	e.requireGone(t, last)
	require.Equal(t, storage.StatePending, e.get(t, one).State)
	require.Equal(t, n+1, e.purgeAll(t, storage.PurgeParams{DryRun: true, Limit: 1_000_000}).Count)
}
