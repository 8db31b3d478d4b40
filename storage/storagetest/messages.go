package storagetest

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// messageRules check GetMessage and ListMessages.
func messageRules() []rule {
	return []rule{
		{name: "a_message_in_every_state", clocks: settable, run: messageStates},
		{name: "S8_unknown_messages_are_told", clocks: bothClocks, run: messageUnknown},
		{name: "a_list_is_newest_first_over_all_states", clocks: settable, run: listAll},
		{name: "a_list_keeps_what_every_filter_allows", clocks: settable, run: listFilters},
		{name: "pages_are_stable_under_writes", clocks: settable, run: listStable},
		{name: "a_list_gives_payloads_only_where_asked", clocks: bothClocks, run: listPayload},
	}
}

func messageStates(t *testing.T, e *env) {
	created := e.now
	ref := e.one(t, payload([]byte("body")), keyed("key", "content"), maxAttempts(5))
	m := e.get(t, ref)
	sameTime(t, created, m.CreateTime, "create time")
	sameTime(t, created, m.ReadyTime, "ready time")
	m.CreateTime, m.ReadyTime = time.Time{}, time.Time{}
	if len(m.Attributes) == 0 {
		m.Attributes = nil
	}
	if len(m.Result) == 0 {
		m.Result = nil
	}
	require.Equal(t, storage.Message{
		Ref: ref, IdempotencyKey: "key", Payload: []byte("body"), PayloadBytes: 4, MaxAttempts: 5, State: storage.StatePending,
	}, m)

	e.claimOneAs(t, "A", 10*time.Second)
	m = e.get(t, ref)
	require.Equal(t, storage.StateProcessing, m.State)
	require.EqualValues(t, 1, m.Attempt)
	require.Equal(t, "A", m.WorkerID)
	sameTime(t, e.now.Add(10*time.Second), m.LeaseEnd, "lease end")
	e.advance(t, 11*time.Second)
	m = e.get(t, ref)
	require.Equal(t, storage.StateProcessing, m.State, "the end of a lease alone changes no row")
	c := e.claimOneAs(t, "B", 10*time.Second)
	require.Equal(t, "B", e.get(t, ref).WorkerID)
	require.Equal(t, storage.ItemApplied, e.settle(t, settlement(c, storage.ActionRetry))[0].Status)
	m = e.get(t, ref)
	require.Equal(t, storage.StatePending, m.State)
	require.EqualValues(t, 2, m.Attempt)
	require.Equal(t, "B", m.WorkerID, "the worker that last held it")
	require.True(t, m.LeaseEnd.IsZero(), "no lease")
	require.Equal(t, storage.DeadReasonNone, m.DeadReason)
}

func messageUnknown(t *testing.T, e *env) {
	ref := e.one(t)
	other := e.newQueue(t, settings())
	for _, unknown := range []storage.Ref{
		{},
		{QueueID: e.queue.ID},
		{QueueID: e.queue.ID, Position: -1},
		{QueueID: e.queue.ID, Position: ref.Position + 1<<40},
		{QueueID: 1 << 30, Position: ref.Position},
		{QueueID: -1, Position: ref.Position},
		{QueueID: other.ID, Position: ref.Position},
	} {
		_, err := e.store.GetMessage(t.Context(), unknown, true)
		require.ErrorIs(t, err, storage.ErrMessageNotFound, "%v", unknown)
	}
}

// list reads all pages.
func (e *env) list(t require.TestingT, p storage.ListMessagesParams) []storage.Message {
	if h, ok := t.(interface{ Helper() }); ok {
		h.Helper()
	}
	p.QueueID = e.queue.ID
	var all []storage.Message
	for range 10000 {
		res, err := e.store.ListMessages(background(t), p)
		require.NoError(t, err, "list messages")
		require.LessOrEqual(t, len(res.Messages), p.Limit)
		all = append(all, res.Messages...)
		if res.Next == 0 {
			return all
		}
		require.NotEmpty(t, res.Messages, "a page that is not the last has messages")
		require.Equal(t, res.Messages[len(res.Messages)-1].Ref.Position, res.Next)
		p.Before = res.Next
	}
	require.FailNow(t, "the pages have no end")
	return nil
}

func messageRefs(ms []storage.Message) []storage.Ref {
	refs := []storage.Ref{}
	for _, m := range ms {
		refs = append(refs, m.Ref)
	}
	return refs
}

// newest returns refs in the opposite order.
func newest(refs ...storage.Ref) []storage.Ref {
	out := append([]storage.Ref{}, refs...)
	slices.Reverse(out)
	return out
}

func listAll(t *testing.T, e *env) {
	require.Empty(t, e.list(t, storage.ListMessagesParams{Limit: 10}))
	e.on(e.newQueue(t, settings())).many(t, 3)
	refs := e.many(t, 23)
	for i, c := range e.claimN(t, 15) {
		if i < 12 {
			require.Equal(t, storage.ItemApplied, e.settle(t, settlement(c, actions[i%4].action))[0].Status)
		}
	}
	for _, limit := range []int{1, 2, 5, 22, 23, 24, 1000} {
		got := e.list(t, storage.ListMessagesParams{Limit: limit, Payload: true})
		require.Equal(t, newest(refs...), messageRefs(got), "pages of %d", limit)
		for _, m := range got {
			require.Equal(t, e.get(t, m.Ref), m, "a list tells what GetMessage tells")
		}
	}
}

func listFilters(t *testing.T, e *env) {
	t0 := e.now
	pending := e.one(t)
	delayed := e.one(t, delay(time.Hour), priority(-1))
	e.advance(t, time.Second)
	t1 := e.now
	completed := e.one(t, priority(9))
	e.complete(t, e.claimOneAs(t, "worker-1", time.Hour))
	rejected := e.one(t, priority(9))
	s := settlement(e.claimOneAs(t, "worker-2", time.Hour), storage.ActionDeadLetter)
	s.ReasonCode, s.Error = "MALFORMED", `50% of "x_y" is 'wrong'`
	e.settle(t, s)
	e.advance(t, time.Second)
	t2 := e.now
	exhausted := e.one(t, priority(9), maxAttempts(1))
	s = settlement(e.claimOneAs(t, "worker-1", time.Hour), storage.ActionRetry)
	s.Error = "Timeout"
	require.Equal(t, storage.OutcomeDead, e.settle(t, s)[0].Outcome)
	leased := e.one(t, priority(9))
	require.Equal(t, leased, e.claimOneAs(t, "worker-2", time.Hour).Message.Ref)
	retried := e.one(t, priority(9))
	s = settlement(e.claimOneAs(t, "worker-1", time.Hour), storage.ActionRetry)
	s.Delay, s.Error = time.Hour, "timeout, again"
	require.Equal(t, retried, s.Ref)
	e.settle(t, s)
	e.advance(t, time.Second)

	states := func(ss ...storage.State) storage.ListMessagesParams { return storage.ListMessagesParams{States: ss} }
	for name, c := range map[string]struct {
		p    storage.ListMessagesParams
		want []storage.Ref
	}{
		"pending":    {states(storage.StatePending), newest(pending, delayed, retried)},
		"processing": {states(storage.StateProcessing), newest(leased)},
		"completed":  {states(storage.StateCompleted), newest(completed)},
		"dead":       {states(storage.StateDead), newest(rejected, exhausted)},
		"cancelled":  {states(storage.StateCancelled), newest()},
		"two states": {states(storage.StateDead, storage.StateProcessing), newest(rejected, exhausted, leased)},
		"all states": {
			states(storage.StatePending, storage.StateProcessing, storage.StateCompleted, storage.StateDead, storage.StateCancelled),
			newest(pending, delayed, completed, rejected, exhausted, leased, retried),
		},
		"rejected": {storage.ListMessagesParams{DeadReasons: []storage.DeadReason{storage.DeadReasonRejected}}, newest(rejected)},
		"two dead reasons": {
			storage.ListMessagesParams{DeadReasons: []storage.DeadReason{storage.DeadReasonRejected, storage.DeadReasonAttemptsExhausted}},
			newest(rejected, exhausted),
		},
		"a dead reason nobody has": {storage.ListMessagesParams{DeadReasons: []storage.DeadReason{storage.DeadReasonExpired}}, newest()},
		"a reason code":            {storage.ListMessagesParams{ReasonCodes: []string{"other", "MALFORMED"}}, newest(rejected)},
		"a reason code by bytes":   {storage.ListMessagesParams{ReasonCodes: []string{"malformed"}}, newest()},
		"an error text":            {storage.ListMessagesParams{ErrorContains: "imeout"}, newest(exhausted, retried)},
		"an error text by bytes":   {storage.ListMessagesParams{ErrorContains: "Timeout"}, newest(exhausted)},
		"a percent sign":           {storage.ListMessagesParams{ErrorContains: "50% of"}, newest(rejected)},
		"no wildcard":              {storage.ListMessagesParams{ErrorContains: "5%of"}, newest()},
		"an underscore":            {storage.ListMessagesParams{ErrorContains: "x_y"}, newest(rejected)},
		"no wildcard either":       {storage.ListMessagesParams{ErrorContains: "t_meout"}, newest()},
		"quotes":                   {storage.ListMessagesParams{ErrorContains: `is 'wrong'`}, newest(rejected)},
		"a worker":                 {storage.ListMessagesParams{WorkerID: "worker-2"}, newest(rejected, leased)},
		"from a create time":       {storage.ListMessagesParams{MinCreateTime: t1}, newest(completed, rejected, exhausted, leased, retried)},
		"before a create time":     {storage.ListMessagesParams{MaxCreateTime: t1}, newest(pending, delayed)},
		"between create times":     {storage.ListMessagesParams{MinCreateTime: t1, MaxCreateTime: t2}, newest(completed, rejected)},
		"at the first tick":        {storage.ListMessagesParams{MinCreateTime: t0, MaxCreateTime: t0.Add(e.tick)}, newest(pending, delayed)},
		"positions": {
			storage.ListMessagesParams{Positions: []int64{leased.Position, pending.Position, completed.Position, 1 << 60}},
			newest(pending, completed, leased),
		},
		"all that is set must match": {
			storage.ListMessagesParams{
				States: []storage.State{storage.StateDead, storage.StatePending}, ErrorContains: "imeout", WorkerID: "worker-1", MinCreateTime: t2,
				Positions: []int64{exhausted.Position, rejected.Position},
			},
			newest(exhausted),
		},
		"a state and a dead reason": {
			storage.ListMessagesParams{
				States: []storage.State{storage.StatePending}, DeadReasons: []storage.DeadReason{storage.DeadReasonRejected},
			},
			newest(),
		},
	} {
		for _, limit := range []int{1, 100} {
			c.p.Limit = limit
			require.Equal(t, c.want, messageRefs(e.list(t, c.p)), "%s, pages of %d", name, limit)
		}
	}
}

func listStable(t *testing.T, e *env) {
	refs := e.many(t, 30)
	p := storage.ListMessagesParams{QueueID: e.queue.ID, Limit: 7}
	var got []storage.Ref
	for page := 0; ; page++ {
		res, err := e.store.ListMessages(t.Context(), p)
		require.NoError(t, err)
		got = append(got, messageRefs(res.Messages)...)
		if res.Next == 0 {
			break
		}
		p.Before = res.Next
		// Between the pages messages come, move and finish.
		e.many(t, 3)
		cs := e.claimN(t, 2)
		e.complete(t, cs[0])
		require.Equal(t, storage.ItemApplied, e.settle(t, settlement(cs[1], storage.ActionDeadLetter))[0].Status)
	}
	require.Equal(t, newest(refs...), got, "each old message on exactly one page")
}

func listPayload(t *testing.T, e *env) {
	e.many(t, 3, payload([]byte("body")))
	cs := e.claimAs(t, "A", 2, time.Hour)
	e.complete(t, cs[0])
	require.Equal(t, storage.ItemApplied, e.settle(t, settlement(cs[1], storage.ActionDeadLetter))[0].Status)
	for _, m := range e.list(t, storage.ListMessagesParams{Limit: 10}) {
		require.Nil(t, m.Payload)
		require.EqualValues(t, 4, m.PayloadBytes)
	}
	for _, m := range e.list(t, storage.ListMessagesParams{Limit: 10, Payload: true}) {
		require.Equal(t, []byte("body"), m.Payload)
	}
}
