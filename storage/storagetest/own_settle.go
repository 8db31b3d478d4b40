package storagetest

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/server/wireid"
	"github.com/queuebox/queuebox/storage"
)

// ownActions are the ways to settle in a transaction of one's own.
var ownActions = []storage.Action{storage.ActionComplete, storage.ActionRetry, storage.ActionDeadLetter}

func outcomeText(o storage.Outcome) string {
	return map[storage.Outcome]string{
		storage.OutcomeCompleted: "COMPLETED", storage.OutcomeRetried: "RETRIED", storage.OutcomeDead: "DEAD",
		storage.OutcomeCancelled: "CANCELLED", storage.OutcomeReleased: "RELEASED",
	}[o]
}

// requireMarked requires what everybody sees of a claim whose mark was committed: S5, S6,
// R5, and that nobody gets the message.
func (e *env) requireMarked(t *testing.T, c storage.Claimed, as storage.Action, outcome storage.Outcome) storage.Settled {
	t.Helper()
	same := e.settle(t, settlement(c, as))[0]
	require.Equal(t, storage.ItemAlreadySettled, same.Status, "S5: the same settlement")
	require.Equal(t, outcome, same.Outcome)
	for _, other := range actions {
		if other.action == as {
			continue
		}
		got := e.settle(t, settlement(c, other.action))[0]
		require.Equal(t, storage.ItemSettled, got.Status, "S6: %s", other.name)
		require.Equal(t, outcome, got.Outcome)
	}
	renewed := e.renew(t, renewal(c, lease))[0]
	require.Equal(t, storage.ItemSettled, renewed.Status, "S12: a late renewal")
	require.Equal(t, outcome, renewed.Outcome)
	require.Equal(t, outcomeText(outcome), e.readOutcome(t, c)[0])
	return same
}

func ownSettle(t *testing.T, e *env, level string) {
	for _, act := range actions[:3] {
		t.Run(act.name, func(t *testing.T) {
			e := e.on(e.newQueue(t, settings()))
			// A twin that Settle ends is what the mark must come to.
			e.many(t, 2)
			twin, mine := e.claimOne(t), e.claimOne(t)
			s := e.begin(t, level)
			rows, err := e.mark(s, t, mine, act.action)
			require.NoError(t, err)
			require.Len(t, rows, 1)
			require.Equal(t, outcomeText(act.outcome), rows[0][0])
			require.Equal(t, storage.StateProcessing, e.get(t, mine.Message.Ref).State, "nobody sees an open transaction")
			require.Empty(t, e.finishMarks(t).Finished, "nothing to finish yet")
			require.NoError(t, s.Commit())

			require.Equal(t, storage.ItemApplied, e.settle(t, settlement(twin, act.action))[0].Status)
			facts := e.settle(t, settlement(twin, act.action))[0]
			check := func(when string) {
				require.Equal(t, facts, e.requireMarked(t, mine, act.action, act.outcome), when)
				want, got := e.get(t, twin.Message.Ref), e.get(t, mine.Message.Ref)
				want.Ref, got.Ref = storage.Ref{}, storage.Ref{}
				require.Equal(t, want, got, "%s: the message is as the one that Settle ended", when)
				stats, err := e.store.QueueStats(t.Context(), e.queue.ID)
				require.NoError(t, err)
				require.Equal(t, [3]int64{2, 0, 0}, [3]int64{stats.Completed + stats.Dead + stats.Delayed, stats.Leased, stats.LeaseExpired}, when)
			}
			check("before it is finished")
			e.unchanged(t, func() {
				e.sweep(t, mine.Message.Ref)
				require.Empty(t, e.claimN(t, 10), "a settling message is nobody's")
			})
			done := e.finishMarks(t)
			require.Equal(t, []storage.FinishedMark{{Ref: mine.Message.Ref, Outcome: act.outcome}}, done.Finished)
			require.Empty(t, e.finishMarks(t).Finished, "once")
			check("after it is finished")
			if act.action == storage.ActionRetry {
				require.Equal(t, []storage.QueueReady{{QueueID: e.queue.ID, ReadyTime: facts.AvailableTime}}, done.Ready)
				e.advance(t, time.Minute)
				require.Len(t, e.claimN(t, 10), 2, "both come back")
			}
		})
	}
}

func ownMarkRolledBack(t *testing.T, e *env, level string) {
	e.one(t)
	c := e.claimOne(t)
	for _, a := range ownActions {
		e.unchanged(t, func() {
			s := e.begin(t, level)
			rows, err := e.mark(s, t, c, a)
			require.NoError(t, err)
			require.Len(t, rows, 1)
			require.NoError(t, s.Rollback())
		})
	}
	require.Equal(t, storage.ItemApplied, e.renew(t, renewal(c, lease))[0].Status, "the claim is as it was")
	require.Nil(t, e.readOutcome(t, c))
	e.complete(t, c)
}

// ownFence: id, state, token, lease, each by itself.
func ownFence(t *testing.T, e *env, level string) {
	other := e.on(e.newQueue(t, settings()))
	other.one(t)
	foreign := other.claimOne(t)
	e.many(t, 3)
	c, pending := e.claimOne(t), e.claimOneAs(t, "w", 2*lease)
	require.Equal(t, storage.ItemApplied, e.settle(t, settlementOf(pending.Message.Ref, pending.Token, storage.ActionRelease))[0].Status)
	over := e.claimOneAs(t, "w", time.Second)
	gone := storage.Claimed{Message: storage.Message{Ref: storage.Ref{QueueID: e.queue.ID, Position: 1 << 60}}, Token: c.Token}
	wrong := c
	wrong.Token[3] ^= 1
	none := c
	none.Token = storage.Token{}
	e.advance(t, time.Second)
	refused := map[string]storage.Claimed{
		"another queue": foreign, "no such message": gone, "wrong token": wrong, "no token": none,
		"not claimed": pending, "lease over": over,
	}
	e.unchanged(t, func() {
		for name, bad := range refused {
			for _, a := range ownActions {
				s := e.begin(t, level)
				rows, err := e.mark(s, t, bad, a)
				require.NoError(t, err, name)
				require.Empty(t, rows, name)
				require.NoError(t, s.Commit())
			}
		}
		for _, id := range [][2]string{
			{"", ""},
			{wireid.Message(c.Message.Ref), ""},
			{"", wireid.Token(c.Token)},
			{"m", "t"},
			{"nonsense", "nonsense"},
			{strings.ToUpper(wireid.Message(c.Message.Ref)), wireid.Token(c.Token)},
			{wireid.Message(c.Message.Ref) + "0", wireid.Token(c.Token)},
			{wireid.Message(c.Message.Ref), wireid.Token(c.Token)[1:]},
			{wireid.Token(c.Token), wireid.Message(c.Message.Ref)},
		} {
			s := e.begin(t, level)
			rows, err := s.Query(e.sqlOf(t, storage.TransactionComplete), id[0], id[1], nil)
			require.NoError(t, err)
			require.Empty(t, rows, "%q", id)
			require.NoError(t, s.Rollback())
		}
	})
	// The claim itself holds, once.
	s := e.begin(t, level)
	rows, err := e.mark(s, t, c, storage.ActionComplete)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	rows, err = e.mark(s, t, c, storage.ActionComplete)
	require.NoError(t, err)
	require.Empty(t, rows, "a second mark in the same transaction")
	require.NoError(t, s.Commit())
}

// tryClaim claims in a goroutine where a claim may wait for the whole database.
func (e *env) claimsNothing(t *testing.T, why string) {
	t.Helper()
	if e.caps.RowLocks {
		require.Empty(t, e.claimN(t, 10), why)
	}
}

func ownLeaseEnds(t *testing.T, e *env, level string) {
	e.one(t)
	c := e.claimOneAs(t, "w", 300*time.Millisecond)
	s := e.begin(t, level)
	rows, err := e.mark(s, t, c, storage.ActionComplete)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	e.waitClock(t, c.Message.LeaseEnd)
	e.claimsNothing(t, "the row lock holds the claim, not the lease")
	if e.caps.RowLocks {
		got := e.renew(t, renewal(c, lease))[0]
		require.Equal(t, storage.ItemUnknown, got.Status, "a renewal cannot know")
		e.sweep(t, c.Message.Ref)
	}
	require.NoError(t, s.Commit())
	e.claimNothing(t)
	e.requireMarked(t, c, storage.ActionComplete, storage.OutcomeCompleted)
	require.Len(t, e.finishMarks(t).Finished, 1)
	e.requireMarked(t, c, storage.ActionComplete, storage.OutcomeCompleted)
	require.Equal(t, storage.StateCompleted, e.get(t, c.Message.Ref).State)
}

func ownRollbackLate(t *testing.T, e *env, level string) {
	e.one(t)
	c := e.claimOneAs(t, "w", time.Second)
	s := e.begin(t, level)
	_, err := e.mark(s, t, c, storage.ActionDeadLetter)
	require.NoError(t, err)
	e.advance(t, 2*time.Second)
	e.claimsNothing(t, "held")
	require.NoError(t, s.Rollback())
	next := e.claimOne(t)
	require.Equal(t, c.Message.Ref, next.Message.Ref)
	require.EqualValues(t, 2, next.Message.Attempt)
	require.Empty(t, e.finishMarks(t).Finished)
}

func ownKilled(t *testing.T, e *env, level string) {
	e.one(t)
	c := e.claimOneAs(t, "w", time.Second)
	s := e.begin(t, level)
	_, err := e.mark(s, t, c, storage.ActionComplete)
	require.NoError(t, err)
	s.Kill()
	e.advance(t, time.Second)
	// The database notices the death of a session by itself.
	require.Eventually(t, func() bool {
		got := e.claimN(t, 1)
		return len(got) == 1 && got[0].Message.Attempt == 2
	}, soon, pollEvery)
	require.Empty(t, e.finishMarks(t).Finished)
}

// ownHeld: the mark waits for a row lock past the lease end.
func ownHeld(t *testing.T, e *env, level string) {
	for _, how := range []struct {
		name string
		kind HoldKind
	}{{"only_locked", HoldLock}, {"really_updated", HoldUpdate}} {
		t.Run(how.name, func(t *testing.T) {
			e := e.on(e.newQueue(t, settings()))
			e.one(t)
			c := e.claimOneAs(t, "w", 400*time.Millisecond)
			release := e.in.Hold(t, c.Message.Ref, how.kind)
			var (
				wg   sync.WaitGroup
				rows [][]string
				err  error
			)
			wg.Go(func() {
				s := e.begin(failLater{}, level)
				rows, err = e.mark(s, failLater{}, c, storage.ActionComplete)
				if err == nil && len(rows) > 0 {
					err = s.Commit()
					return
				}
				_ = s.Rollback()
			})
			e.waitsOrMoment(t)
			e.waitClock(t, c.Message.LeaseEnd)
			release()
			wg.Wait()
			require.Empty(t, rows, "refused")
			if err != nil {
				require.True(t, e.in.Own.Conflict(err), "lost, or a conflict that asks to begin again: %v", err)
			}
			require.Empty(t, e.finishMarks(t).Finished)
			next := e.claimOne(t)
			require.EqualValues(t, 2, next.Message.Attempt)
			e.complete(t, next)
		})
	}
}

// failLater lets a goroutine use a helper that requires; a failure there is a panic.
type failLater struct{}

func (failLater) Errorf(format string, _ ...any) { panic(format) }
func (failLater) FailNow()                       { panic("failed") }

// waitsOrMoment waits until somebody waits for a lock, where the backend can tell.
func (e *env) waitsOrMoment(t *testing.T) {
	t.Helper()
	if e.in.Waiting == nil {
		time.Sleep(50 * time.Millisecond) // the test is only surer with it
		return
	}
	require.Eventually(t, func() bool { return e.in.Waiting(t) }, soon, pollEvery)
}

func ownOutcome(t *testing.T, e *env) {
	for _, act := range actions {
		e.one(t)
		c := e.claimOne(t)
		require.Nil(t, e.readOutcome(t, c), "not settled")
		want := settlement(c, act.action)
		if act.action != storage.ActionRelease {
			row := e.marked(t, want)
			require.Equal(t, row, e.readOutcome(t, c), "from the mark")
			wrong := c
			wrong.Token[0] ^= 1
			require.Nil(t, e.readOutcome(t, wrong), "by token")
			e.finishMarks(t)
			require.Equal(t, row, e.readOutcome(t, c), "from what came of it")
			continue
		}
		require.Equal(t, storage.ItemApplied, e.settle(t, want)[0].Status)
		require.Equal(t, "RELEASED", e.readOutcome(t, c)[0], "what Settle did")
	}
}

func ownLastAttempt(t *testing.T, e *env) {
	ref := e.one(t, maxAttempts(1))
	c := e.claimOne(t)
	row := e.marked(t, settlement(c, storage.ActionRetry))
	require.Equal(t, []string{"DEAD", "ATTEMPTS_EXHAUSTED"}, row[:2])
	m := e.get(t, ref)
	require.Equal(t, storage.StateDead, m.State)
	require.Equal(t, storage.DeadReasonAttemptsExhausted, m.DeadReason)
	e.requireMarked(t, c, storage.ActionRetry, storage.OutcomeDead)
	e.finishMarks(t)
	e.requireDead(t, ref, storage.DeadReasonAttemptsExhausted, 1)
	e.requireMarked(t, c, storage.ActionRetry, storage.OutcomeDead)
}

func ownCancelled(t *testing.T, e *env) {
	for _, a := range ownActions {
		ref := e.one(t)
		c := e.claimOne(t)
		require.Equal(t, storage.StateProcessing, e.cancel(t, ref))
		row := e.marked(t, settlement(c, a))
		want := map[storage.Action]string{storage.ActionComplete: "COMPLETED", storage.ActionRetry: "CANCELLED", storage.ActionDeadLetter: "DEAD"}[a]
		require.Equal(t, want, row[0])
		state := e.get(t, ref).State
		require.Equal(t, state, e.cancel(t, ref), "a cancel finds the end that the mark made")
		e.finishMarks(t)
		require.Equal(t, state, e.get(t, ref).State)
		require.Nil(t, e.in.Row(t, ref))
	}
}

func ownExpired(t *testing.T, e *env) {
	ref := e.one(t, expires(e.now.Add(time.Second)))
	c := e.claimOne(t)
	e.advance(t, 2*time.Second)
	row := e.marked(t, settlement(c, storage.ActionRetry))
	require.Equal(t, []string{"DEAD", "EXPIRED"}, row[:2])
	e.finishMarks(t)
	e.requireDead(t, ref, storage.DeadReasonExpired, 1)
	// A completion after the expire time completes.
	e.one(t, expires(e.now.Add(time.Second)))
	c = e.claimOne(t)
	e.advance(t, 2*time.Second)
	require.Equal(t, "COMPLETED", e.marked(t, settlement(c, storage.ActionComplete))[0])
}

func ownRetryDelay(t *testing.T, e *env) {
	retry := func(c storage.Claimed, has bool, d time.Duration) storage.Settlement {
		return storage.Settlement{Ref: c.Message.Ref, Token: c.Token, Action: storage.ActionRetry, HasDelay: has, Delay: d}
	}
	e.one(t)
	c := e.claimOne(t)
	e.marked(t, retry(c, false, 0))
	sameTime(t, e.now.Add(time.Second), e.settle(t, settlement(c, storage.ActionRetry))[0].AvailableTime, "the policy, first attempt")
	sameTime(t, e.now.Add(time.Second), e.get(t, c.Message.Ref).ReadyTime, "GetMessage before the finish")
	e.finishMarks(t)
	sameTime(t, e.now.Add(time.Second), e.get(t, c.Message.Ref).ReadyTime, "GetMessage after it")
	e.claimNothing(t)
	e.advance(t, time.Second)
	c = e.claimOne(t)
	e.marked(t, retry(c, false, 0))
	e.finishMarks(t)
	sameTime(t, e.now.Add(2*time.Second), e.get(t, c.Message.Ref).ReadyTime, "the policy, second attempt")
	e.advance(t, 2*time.Second)
	c = e.claimOne(t)
	e.marked(t, retry(c, true, 0))
	e.finishMarks(t)
	c = e.claimOne(t)
	e.marked(t, retry(c, true, 250*time.Millisecond))
	// The delay counts from the settlement; what has passed meanwhile means now.
	at := e.now
	e.advance(t, time.Minute)
	done := e.finishMarks(t)
	sameTime(t, e.now, done.Ready[0].ReadyTime, "nothing becomes claimable in the past")
	sameTime(t, at.Add(250*time.Millisecond), e.settle(t, settlement(c, storage.ActionRetry))[0].AvailableTime, "the fact is that of the mark")
	require.EqualValues(t, 5, e.claimOne(t).Message.Attempt)
}

func ownErrorText(t *testing.T, e *env) {
	for _, text := range []string{
		"", "short", strings.Repeat("x", 2000), strings.Repeat("x", 2001), strings.Repeat("ü", 1001), "x" + strings.Repeat("ü", 1000),
		strings.Repeat("€", 667), "x" + strings.Repeat("€", 700), strings.Repeat("😀", 501), "xyz" + strings.Repeat("😀", 600),
	} {
		e.one(t)
		c := e.claimOne(t)
		e.marked(t, storage.Settlement{Ref: c.Message.Ref, Token: c.Token, Action: storage.ActionDeadLetter, Error: text, ReasonCode: "bad"})
		e.finishMarks(t)
		got := e.get(t, c.Message.Ref)
		require.True(t, strings.HasPrefix(text, got.LastError))
		require.LessOrEqual(t, len(got.LastError), 2000)
		if len(text) > 2000 {
			require.Greater(t, len(got.LastError), 1996)
		} else {
			require.Equal(t, text, got.LastError)
		}
		require.Equal(t, "bad", got.ReasonCode)
	}
	e.one(t)
	c := e.claimOne(t)
	for _, code := range []string{strings.Repeat("x", 256), "a\x00b"} {
		s := e.begin(t, e.anyLevel())
		_, err := e.markAs(s, t, storage.Settlement{Ref: c.Message.Ref, Token: c.Token, Action: storage.ActionDeadLetter, ReasonCode: code})
		require.Error(t, err)
		require.True(t, e.in.Own.Refused(err), "%v", err)
		require.NoError(t, s.Rollback())
	}
}

func ownFinishedOnce(t *testing.T, e *env) {
	const n = 60
	e.many(t, n)
	claimed := e.claimN(t, n)
	for _, c := range claimed {
		e.marked(t, settlement(c, storage.ActionComplete))
	}
	var (
		wg   sync.WaitGroup
		lock sync.Mutex
		seen = map[storage.Ref]int{}
	)
	for _, store := range []storage.Store{e.store, e.other, e.store, e.other} {
		wg.Go(func() {
			for range 20 {
				res, err := store.Finish(t.Context(), storage.FinishParams{Limit: 7})
				if err != nil {
					continue
				}
				lock.Lock()
				for _, f := range res.Finished {
					seen[f.Ref]++
				}
				lock.Unlock()
			}
		})
	}
	wg.Wait()
	for _, f := range e.finishMarks(t).Finished {
		seen[f.Ref]++
	}
	require.Len(t, seen, n)
	for ref, times := range seen {
		require.Equal(t, 1, times, "%v", ref)
	}
	stats, err := e.store.QueueStats(t.Context(), e.queue.ID)
	require.NoError(t, err)
	require.EqualValues(t, n, stats.Completed)
}

func ownFinishHeld(t *testing.T, e *env) {
	e.many(t, 3)
	claimed := e.claimN(t, 3)
	for _, c := range claimed {
		e.marked(t, settlement(c, storage.ActionComplete))
	}
	release := e.in.Hold(t, claimed[1].Message.Ref, HoldLock)
	require.Len(t, e.finishMarks(t).Finished, 2, "the others are finished")
	require.Equal(t, storage.StateCompleted, e.get(t, claimed[1].Message.Ref).State, "everybody sees the outcome all the same")
	release()
	require.Equal(t, claimed[1].Message.Ref, e.finishMarks(t).Finished[0].Ref)
}
