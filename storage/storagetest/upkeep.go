package storagetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// expires sets the expire time of a message.
func expires(at time.Time) func(*storage.NewMessage) {
	return func(m *storage.NewMessage) { m.ExpireTime = at }
}

// clockNow reads the storage clock.
func (e *env) clockNow(t *testing.T) time.Time {
	t.Helper()
	now, err := e.store.Now(t.Context())
	require.NoError(t, err)
	return now
}

// sweep looks at the messages of these references.
func (e *env) sweep(t *testing.T, refs ...storage.Ref) storage.SweepResult {
	t.Helper()
	res, err := e.store.Sweep(t.Context(), storage.SweepParams{Refs: refs, Limit: max(1, len(refs))})
	require.NoError(t, err, "sweep")
	e.checkNow(t, res.Now)
	return res
}

// sweepAll looks at every live message, in pages of limit, and returns the sums.
func (e *env) sweepAll(t *testing.T, limit int) (sum storage.SweepResult, pages int) {
	t.Helper()
	var after storage.Ref
	for {
		res, err := e.store.Sweep(t.Context(), storage.SweepParams{After: after, Limit: limit})
		require.NoError(t, err, "sweep")
		e.checkNow(t, res.Now)
		pages++
		sum.Dead += res.Dead
		sum.Expired += res.Expired
		sum.Cancelled += res.Cancelled
		for _, o := range res.Overdue {
			sum.AddOverdue(o.QueueID, o.ReadyTime)
		}
		require.LessOrEqual(t, res.Dead+res.Expired+res.Cancelled, limit, "no more than it looked at")
		if res.Next == (storage.Ref{}) {
			return sum, pages
		}
		require.Less(t, pages, 10_000, "a pass comes to its end")
		after = res.Next
	}
}

// cancel asks for the end of a message and returns the state after the call.
func (e *env) cancel(t *testing.T, ref storage.Ref) storage.State {
	t.Helper()
	return e.cancelBy(t, ref, storage.CancelParams{QueueID: e.queue.ID, Ref: ref})
}

func (e *env) cancelKey(t *testing.T, ref storage.Ref, key string) storage.State {
	t.Helper()
	return e.cancelBy(t, ref, storage.CancelParams{QueueID: e.queue.ID, IdempotencyKey: key})
}

func (e *env) cancelBy(t *testing.T, ref storage.Ref, p storage.CancelParams) storage.State {
	t.Helper()
	res, err := e.store.Cancel(t.Context(), p)
	require.NoError(t, err, "cancel")
	require.Equal(t, ref, res.Ref, "cancel names the message")
	e.checkNow(t, res.Now)
	return res.State
}

// requireDead requires the end that a sweep, or a settlement, made of a message.
func (e *env) requireDead(t *testing.T, ref storage.Ref, why storage.DeadReason, attempt int32) {
	t.Helper()
	require.Nil(t, e.in.Row(t, ref), "a dead message leaves the live rows")
	m := e.get(t, ref)
	require.Equal(t, storage.StateDead, m.State)
	require.Equal(t, why, m.DeadReason)
	require.Equal(t, attempt, m.Attempt, "the attempt stays counted")
	e.checkFinished(t, m)
}

func (e *env) requireCancelled(t *testing.T, ref storage.Ref, attempt int32) {
	t.Helper()
	require.Nil(t, e.in.Row(t, ref), "a cancelled message leaves the live rows")
	m := e.get(t, ref)
	require.Equal(t, storage.StateCancelled, m.State)
	require.Equal(t, storage.DeadReasonNone, m.DeadReason)
	require.Equal(t, attempt, m.Attempt)
	e.checkFinished(t, m)
}

func (e *env) checkFinished(t *testing.T, m storage.Message) {
	t.Helper()
	require.True(t, m.LeaseEnd.IsZero(), "no lease is left")
	require.Equal(t, []byte("payload"), m.Payload, "the payload is kept")
	if e.settable() {
		sameTime(t, e.now, m.FinishTime, "finish time")
	} else {
		require.False(t, m.FinishTime.IsZero())
	}
	require.Contains(t, refsOfMessages(e.list(t, storage.ListMessagesParams{States: []storage.State{m.State}, Limit: 100})), m.Ref)
}

func refsOfMessages(ms []storage.Message) []storage.Ref {
	refs := make([]storage.Ref, len(ms))
	for i, m := range ms {
		refs[i] = m.Ref
	}
	return refs
}

// requireLost requires that a claim can do nothing any more, says why, and that trying
// changes nothing.
func (e *env) requireLost(t *testing.T, c storage.Claimed, cause storage.LostCause) {
	t.Helper()
	e.unchanged(t, func() {
		for _, act := range actions {
			got := e.settle(t, settlement(c, act.action))[0]
			require.Equal(t, storage.ItemLost, got.Status, "S2: %s", act.name)
			require.Equal(t, cause, got.Cause, "S8: %s", act.name)
		}
		got := e.renew(t, renewal(c, lease))[0]
		require.Equal(t, storage.ItemLost, got.Status, "S2: renew")
		require.Equal(t, cause, got.Cause, "S8: renew")
	})
}
