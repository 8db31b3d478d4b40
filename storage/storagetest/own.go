package storagetest

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/server/wireid"
	"github.com/queuebox/queuebox/storage"
)

// ownRules check E12: what somebody does in a transaction of his own, by the very
// statements that TransactionSQL returns.
func ownRules() []rule {
	rules := []rule{
		{name: "E12_statements_have_each_placeholder_once_and_in_order", clocks: settable, run: ownTexts},
		{name: "E12_enqueue/what_was_committed_is_placed_as_it_was_given", clocks: settable, run: ownEnqueue},
		{name: "E12_enqueue/a_delay_counts_from_the_statement_and_the_past_means_now", clocks: settable, run: ownDelays},
		{name: "E12_enqueue/limits_are_checked_by_the_statement", clocks: settable, run: ownLimits},
		{name: "E12_enqueue/a_rolled_back_transaction_leaves_nothing", clocks: settable, run: ownEnqueueRolledBack},
		{name: "E12_E1_enqueue/a_duplicate_vanishes", clocks: settable, run: ownDuplicate},
		{name: "E12_E3_enqueue/a_reused_key_becomes_a_dead_message_that_says_so", clocks: settable, run: ownReused},
		{name: "E12_enqueue/two_servers_place_each_message_once", clocks: bothClocks, run: ownPlacedOnce},
		{name: "E12_O5_enqueue/transactions_one_after_the_other_keep_their_order_within_a_key", clocks: bothClocks, run: ownOrder},
		{name: "E12_O5_enqueue/behind_one_that_cannot_be_placed_yet_its_ordering_key_waits", clocks: bothClocks, run: ownHeldKeyOrder, skip: needsHeldKeys},
		{name: "E12_E6_enqueue/what_waits_for_a_held_key_keeps_its_ordering_key_from_nobody", clocks: realClock, run: ownHeldKey, skip: needsHeldKeys},
		{name: "E12_O6_settle/a_key_goes_on_when_its_mark_is_finished", clocks: settable, run: ownKeyGoesOn},
		{name: "E12_O7_settle/a_dead_head_blocks_its_key", clocks: settable, run: ownBlocks},
		{name: "E12_outcome/is_read_by_token_from_the_mark_and_from_what_came_of_it", clocks: settable, run: ownOutcome},
		{name: "E12_settle/a_retry_without_an_attempt_left_is_dead", clocks: settable, run: ownLastAttempt},
		{name: "E12_S14_settle/a_retry_after_a_cancel_was_asked_for_is_cancelled", clocks: settable, run: ownCancelled},
		{name: "E12_E7_settle/a_retry_after_the_expire_time_is_dead", clocks: settable, run: ownExpired},
		{name: "E12_settle/a_retry_takes_its_delay_or_the_policy", clocks: settable, run: ownRetryDelay},
		{name: "E12_S9_settle/error_text_is_cut_between_characters", clocks: settable, run: ownErrorText},
		{name: "E12_finish/two_servers_finish_each_mark_once", clocks: bothClocks, run: ownFinishedOnce},
		{name: "E12_finish/a_row_that_somebody_holds_keeps_its_mark", clocks: settable, run: ownFinishHeld, skip: needsRowLocks},
		{name: "E12_a_transaction_that_commits_after_later_ones_is_found_at_once", clocks: bothClocks, run: ownLateCommit, skip: needsRowLocks},
		{name: "E12_an_open_transaction_slows_nobody", clocks: realClock, run: ownOpen, skip: needsRowLocks},
		{name: "E12_O1_O9_random_transactions", clocks: realClock, run: ownRandom},
	}
	for _, level := range []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE", "SNAPSHOT", "IMMEDIATE"} {
		at := func(name string, clocks clock, run func(*testing.T, *env, string)) rule {
			return rule{
				name: "E12_" + strings.ReplaceAll(strings.ToLower(level), " ", "_") + "/" + name, clocks: clocks,
				run: func(t *testing.T, e *env) { t.Helper(); run(t, e, level) },
				skip: func(in *Instance, _ storage.Capabilities) string {
					if in.Own != nil && !slices.Contains(in.Own.Levels, level) {
						return "the engine has no isolation level " + level
					}
					return ""
				},
			}
		}
		rules = append(rules,
			at("every_settlement_is_seen_from_the_commit_on_and_ends_as_Settle_ends", settable, ownSettle),
			at("a_rolled_back_mark_leaves_the_claim_as_it_was", settable, ownMarkRolledBack),
			at("S1_S2_R3_a_mark_without_the_claim_is_refused", settable, ownFence),
			at("the_lease_ends_while_the_transaction_is_open_and_COMMIT_settles", bothClocks, ownLeaseEnds),
			at("ROLLBACK_after_the_lease_end_makes_it_claimable", settable, ownRollbackLate),
			at("a_killed_session_leaves_the_claim_at_once", settable, ownKilled),
			at("S13_a_row_held_past_the_lease_end_is_refused", realClock, ownHeld),
		)
	}
	for i := range rules {
		skip := rules[i].skip
		rules[i].skip = func(in *Instance, c storage.Capabilities) string {
			if in.Own == nil {
				return "Instance.Own is nil: the backend has no statements for a transaction of somebody's own"
			}
			if skip == nil {
				return ""
			}
			return skip(in, c)
		}
	}
	return rules
}

// ownPayload is the payload limit in the statements of the suite.
const ownPayload = 1 << 20

// sqlOf returns the statement of a name for the queue of the test.
func (e *env) sqlOf(t require.TestingT, name string) string {
	got, err := e.store.TransactionSQL(storage.TransactionSQLParams{
		QueueID: e.queue.ID, QueueName: e.queue.Name, MaxPayloadBytes: ownPayload,
	})
	require.NoError(t, err)
	for _, s := range got.Statements {
		if s.Name == name {
			return s.SQL
		}
	}
	require.Fail(t, "no statement "+name)
	return ""
}

func (e *env) begin(t require.TestingT, level string) OwnSession { return e.in.Own.Begin(t, level) }

// anyLevel is the level of a test that does not care.
func (e *env) anyLevel() string { return e.in.Own.Levels[0] }

// mark runs a settling statement with the parameters that settlement uses.
func (e *env) mark(s OwnSession, t require.TestingT, c storage.Claimed, a storage.Action) ([][]string, error) {
	return e.markAs(s, t, settlement(c, a))
}

func (e *env) markAs(s OwnSession, t require.TestingT, item storage.Settlement) ([][]string, error) {
	name, args := markArgs(item)
	return s.Query(e.sqlOf(t, name), args...)
}

func markArgs(item storage.Settlement) (name string, args []any) {
	args = []any{wireid.Message(item.Ref), wireid.Token(item.Token)}
	switch item.Action {
	case storage.ActionComplete:
		return storage.TransactionComplete, append(args, item.Result)
	case storage.ActionRetry:
		var delay any
		if item.HasDelay {
			delay = item.Delay.Milliseconds()
		}
		return storage.TransactionRetry, append(args, delay, item.Error)
	default:
		return storage.TransactionDeadLetter, append(args, item.ReasonCode, item.Error)
	}
}

// marked marks a claim and commits.
func (e *env) marked(t *testing.T, item storage.Settlement) []string {
	t.Helper()
	s := e.begin(t, e.anyLevel())
	rows, err := e.markAs(s, t, item)
	require.NoError(t, err)
	require.Len(t, rows, 1, "the mark returns one row")
	require.NoError(t, s.Commit())
	return rows[0]
}

// appendOwn runs the enqueue statement for a message.
func (e *env) appendOwn(s OwnSession, t require.TestingT, m storage.NewMessage) error {
	var attributes, delay, available, expire any
	if m.Attributes != nil {
		attributes = jsonOf(m.Attributes)
	}
	if m.Delay > 0 {
		delay = m.Delay.Milliseconds()
	}
	if !m.AvailableTime.IsZero() {
		available = e.ownTime(m.AvailableTime)
	}
	if !m.ExpireTime.IsZero() {
		expire = e.ownTime(m.ExpireTime)
	}
	_, err := s.Query(e.sqlOf(t, storage.TransactionEnqueue), m.Payload, m.ContentType, attributes, m.IdempotencyKey,
		m.OrderingKey, m.Priority, delay, available, m.MaxAttempts, expire)
	return err
}

// ownTime is a time as the statements of the engine take it.
func (e *env) ownTime(at time.Time) any {
	if e.caps.Name == "postgres" {
		return at
	}
	return at.UnixMilli()
}

// enqueueOwn enqueues messages in one transaction and commits.
func (e *env) enqueueOwn(t *testing.T, ms ...storage.NewMessage) {
	t.Helper()
	s := e.begin(t, e.anyLevel())
	for _, m := range ms {
		require.NoError(t, e.appendOwn(s, t, m))
	}
	require.NoError(t, s.Commit())
}

// place places until nothing is left, and returns the sums.
func (e *env) place(t *testing.T) (sum storage.PlaceResult) {
	t.Helper()
	for {
		res, err := e.store.Place(t.Context(), storage.PlaceParams{Limit: 100})
		require.NoError(t, err, "place")
		e.checkNow(t, res.Now)
		sum.Placed += res.Placed
		sum.Duplicates += res.Duplicates
		sum.Reused += res.Reused
		sum.Refused += res.Refused
		sum.Ready = append(sum.Ready, res.Ready...)
		if !res.More {
			return sum
		}
	}
}

// finish finishes until nothing is left.
func (e *env) finishMarks(t *testing.T) (sum storage.FinishResult) {
	t.Helper()
	for {
		res, err := e.store.Finish(t.Context(), storage.FinishParams{Limit: 100})
		require.NoError(t, err, "finish")
		e.checkNow(t, res.Now)
		for _, f := range res.Finished {
			if f.Ref.QueueID == e.queue.ID {
				sum.Finished = append(sum.Finished, f)
			}
		}
		sum.Ready = append(sum.Ready, res.Ready...)
		if !res.More {
			return sum
		}
	}
}

// readOutcome runs the outcome statement; nil where it returns no row.
func (e *env) readOutcome(t *testing.T, c storage.Claimed) []string {
	t.Helper()
	s := e.begin(t, e.anyLevel())
	rows, err := s.Query(e.sqlOf(t, storage.TransactionOutcome), wireid.Message(c.Message.Ref), wireid.Token(c.Token))
	require.NoError(t, err)
	require.NoError(t, s.Commit())
	require.LessOrEqual(t, len(rows), 1)
	if len(rows) == 0 {
		return nil
	}
	return rows[0]
}

func ownTexts(t *testing.T, e *env) {
	got, err := e.store.TransactionSQL(storage.TransactionSQLParams{QueueID: e.queue.ID, QueueName: e.queue.Name, MaxPayloadBytes: 1})
	require.NoError(t, err)
	require.Equal(t, storage.TransactionContract, got.Version)
	names := make([]string, 0, len(got.Statements))
	for _, s := range got.Statements {
		names = append(names, s.Name)
		// How the engine writes the placeholder of a number.
		sign, numbered := "?", false
		switch e.caps.Name {
		case "postgres":
			sign, numbered = "$", true
		case "mssql":
			sign, numbered = "@p", true
		}
		at := 0
		for i := range s.Parameters {
			placeholder := sign
			if numbered {
				placeholder += strconv.Itoa(i + 1)
			}
			k := strings.Index(s.SQL[at:], placeholder)
			require.GreaterOrEqual(t, k, 0, "%s: %s after the ones before", s.Name, placeholder)
			at += k + len(placeholder)
		}
		require.Equal(t, len(s.Parameters), strings.Count(s.SQL, sign), s.Name)
		// What client libraries take for something else.
		require.NotContains(t, s.SQL, "%", s.Name)
		require.NotContains(t, s.SQL, ":", s.Name)
		if sign != "?" {
			require.NotContains(t, s.SQL, "?", s.Name)
		}
	}
	require.Subset(t, names, []string{
		storage.TransactionEnqueue, storage.TransactionComplete, storage.TransactionRetry,
		storage.TransactionDeadLetter, storage.TransactionOutcome,
	})
}
