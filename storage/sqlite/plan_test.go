package sqlite

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// plans says which index each statement must lean on. A statement that is not named here
// only must not scan a table.
var plans = map[query]string{
	qClaimPriority:     "message_ready",
	qClaimScan:         "message_ready (queue_id=? AND priority=? AND ready_time>? AND ready_time<?)",
	qFirstReady:        "message_ready (queue_id=? AND priority=? AND ready_time<?)",
	qClaimDue:          "message_delayed (queue_id=? AND ready_time<?)",
	qClaimNextReady:    "message_delayed",
	qClaimLease:        "SEARCH message USING INTEGER PRIMARY KEY",
	qClaimHeld:         "SEARCH message USING INTEGER PRIMARY KEY",
	qClaimCallGet:      "sqlite_autoindex_claim_call",
	qRenew:             "SEARCH message USING INTEGER PRIMARY KEY",
	qGiveBack:          "SEARCH message USING INTEGER PRIMARY KEY",
	qCompleteCopy:      "SEARCH m USING INTEGER PRIMARY KEY",
	qCompleteDelete:    "SEARCH message USING INTEGER PRIMARY KEY",
	qCompleteCopyRun:   "SEARCH m USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
	qCompleteDeleteRun: "SEARCH message USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
	qSettleHold:        "SEARCH m USING INTEGER PRIMARY KEY",
	qSettleRetry:       "SEARCH message USING INTEGER PRIMARY KEY",
	qSettleRelease:     "SEARCH message USING INTEGER PRIMARY KEY",
	qSettleDead:        "SEARCH message USING INTEGER PRIMARY KEY",
	qExplainHistory:    "SEARCH settlement USING PRIMARY KEY",
	qExplainOthers:     "SEARCH settlement USING PRIMARY KEY",
	qIdempotencyGet:    "SEARCH idempotency_key USING PRIMARY KEY",
	qListDead:          "dead_queue (queue_id=? AND rowid>? AND rowid<?)",
	qSweepPage:         "SEARCH message USING INTEGER PRIMARY KEY (rowid>?)",
	qSweepFind:         "SEARCH message USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
	qSweepFindRefs:     "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)",
	qKeyRows:           "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)",
	qKeyLook:           "SEARCH h USING INDEX message_head (key_id=?)",
	qKeyPage:           "SEARCH ordering_key USING INTEGER PRIMARY KEY (rowid>?)",
	qKeyPark:           "SEARCH message USING INTEGER PRIMARY KEY (rowid=?)",
	qKeyPromote:        "SEARCH message USING INTEGER PRIMARY KEY (rowid=?)",
	qKeyBlock:          "SEARCH ordering_key USING INTEGER PRIMARY KEY (rowid=?)",
	qKeyUnblock:        "SEARCH ordering_key USING INTEGER PRIMARY KEY (rowid=?)",
	qKeyDelete:         "SEARCH ordering_key USING INTEGER PRIMARY KEY (rowid=?)",
	qOrderingKeyGet:    "SEARCH m USING COVERING INDEX message_key (key_id=?)",
	qEndCopy:           "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)",
	qCancelAsk:         "SEARCH message USING INTEGER PRIMARY KEY (rowid=?)",
	qExplainMessage:    "SEARCH m USING INTEGER PRIMARY KEY",
	qExplainAhead:      "message_ready (queue_id=? AND priority=? AND ready_time<?)",
	qLook:              "SEARCH m USING INTEGER PRIMARY KEY",
	qRevokeHold:        "SEARCH message USING INTEGER PRIMARY KEY",
	qRevokeReturn:      "SEARCH message USING INTEGER PRIMARY KEY",
	qRevokeDead:        "SEARCH message USING INTEGER PRIMARY KEY",

	qRetainCompletedFind:   "completed_finish (queue_id=? AND finish_time<?)",
	qRetainCompletedDelete: "SEARCH completed USING INTEGER PRIMARY KEY (rowid=?)",
	qRetainDeadFind:        "dead_finish (queue_id=? AND state=? AND finish_time<?)",
	qRetainDeadDelete:      "SEARCH dead USING INTEGER PRIMARY KEY (rowid=?)",
	qRetainKeyDelete:       "SEARCH idempotency_key USING PRIMARY KEY (queue_id=? AND key=?)",
	qRetainHistoryFind:     "settlement_time (queue_id=? AND settle_time<?)",
	qRetainHistoryDelete:   "settlement_time (queue_id=? AND settle_time<?)",

	qPageDead:             "dead_queue (queue_id=? AND rowid>?)",
	qPageCompleted:        "SEARCH completed USING INTEGER PRIMARY KEY (rowid>?)",
	qPagePending:          "SEARCH message USING INTEGER PRIMARY KEY (rowid>?)",
	qPickDead:             "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)",
	qPickCompleted:        "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)",
	qPickPending:          "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)",
	qRedriveCopy:          "SEARCH d USING INTEGER PRIMARY KEY (rowid=?)",
	qRedriveDelete:        "SEARCH dead USING INTEGER PRIMARY KEY (rowid=?)",
	qPurgePendingDelete:   "SEARCH message USING INTEGER PRIMARY KEY (rowid=?)",
	qPurgeCompletedDelete: "SEARCH completed USING INTEGER PRIMARY KEY (rowid=?)",
	qPurgeDeadDelete:      "SEARCH dead USING INTEGER PRIMARY KEY (rowid=?)",
	qPurgeHistoryDelete:   "SEARCH settlement USING PRIMARY KEY (position=?)",

	qStatsFinished: "completed_finish (queue_id=? AND finish_time>?)",
	qStatsDelayed:  "COVERING INDEX message_delayed",
	qStatsLive:     "message_ready",
	qStatsParked:   "SEARCH m USING INDEX message_key (key_id=?)",

	qCompleteFollowUps: "SEARCH completed USING INTEGER PRIMARY KEY",

	qBlocked: "message_key (key_id=?)",

	qOwnComplete:       "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)",
	qOwnRetry:          "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)",
	qOwnDeadLetter:     "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)",
	qOwnOutcome:        "SEARCH s USING PRIMARY KEY (position=?)",
	qOwnMarked:         "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)",
	qOwnFinishComplete: "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)",
	qOwnFinishDead:     "SEARCH message USING INTEGER PRIMARY KEY (rowid=?)",
	qOwnFinishRetry:    "SEARCH message USING INTEGER PRIMARY KEY (rowid=?)",
	qStatsMarked:       "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)",
}

// mayScan are the statements that read a small table whole, and by which name: each queue
// has a retention of its own.
var mayScan = map[query]string{
	qQueueCount: "queue", qSchemaVersion: "goose_db_version",
	qRetainCompletedFind: "q", qRetainDeadFind: "q", qRetainHistoryFind: "q", qRetainHistoryDelete: "q",
}

// scans finds a walk over a whole table. A sort of the rows found is told apart where the
// order must come from the index.
var (
	scans = regexp.MustCompile(`\bSCAN (\w+)`)
	sorts = []query{
		qClaimScan, qClaimPriority, qClaimNextReady, qClaimDue, qListLive, qListCompleted, qListDead, qMaintainCalls, qQueueList, qSweepPage, qSweepFind,
		qPageDead, qPageCompleted, qPagePending,
	}
)

// tables finds a walk over one that may be large; incoming and marked are read from their
// start, since what is done is gone from there.
var tables = regexp.MustCompile(`SCAN (message|completed|dead|settlement|queue|ordering_key|idempotency_key|m|c|d|s|q)\n`)

// TestC12_Plans pins the plans on a database that has no statistics, and on such as were
// taken while it was empty, full of ready, of delayed and of leased messages.
func TestC12_Plans(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "q.db"))
	q, err := s.CreateQueue(t.Context(), "plans", storage.QueueSettings{CompletedRetention: time.Hour}, 0)
	require.NoError(t, err)
	checkPlans(t, s, "no statistics")
	// With a single queue the planner may as well walk over the queues.
	for i := range 50 {
		_, err := s.CreateQueue(t.Context(), fmt.Sprint("other ", i), storage.QueueSettings{}, 0)
		require.NoError(t, err)
	}
	analyse(t, s)
	checkPlans(t, s, "analysed empty")
	fill(t, s, q.ID, 2000, 0)
	fill(t, s, q.ID, 2000, time.Hour)
	analyse(t, s)
	checkPlans(t, s, "analysed full")
	_, err = s.Claim(t.Context(), storage.ClaimParams{QueueID: q.ID, Calls: []storage.ClaimCall{{Max: 2000, Lease: time.Hour}}})
	require.NoError(t, err)
	analyse(t, s)
	checkPlans(t, s, "analysed all leased")
}

func checkPlans(t *testing.T, s *Store, when string) {
	t.Helper()
	for name, text := range s.queries {
		plan := explainPlan(t, s, text)
		require.Contains(t, plan, plans[name], "%s, %s", name, when)
		for _, m := range scans.FindAllStringSubmatch(plan, -1) {
			// json_each, and its aliases j and h, is a list that the caller has bounded; few is
			// one that the statement bounds itself.
			if strings.HasPrefix(string(name), "own_") && !tables.MatchString("SCAN "+m[1]+"\n") || name == qStatsMarked && m[1] == "k" {
				continue // what a statement of theirs makes of its own parameters, and what waits to be finished
			}
			if !slices.Contains([]string{"j", "h", "json_each", "few", "CONSTANT"}, m[1]) && mayScan[name] != m[1] {
				t.Errorf("%s, %s: scans %s:\n%s", name, when, m[1], plan)
			}
		}
		if slices.Contains(sorts, name) {
			require.NotContains(t, plan, "TEMP B-TREE FOR ORDER BY", "%s, %s", name, when)
		}
	}
}

func explainPlan(t *testing.T, s *Store, text string) string {
	t.Helper()
	values := make([]any, 20)
	n := 0
	for n < len(values) && strings.Contains(text, fmt.Sprintf("?%d", n+1)) {
		n++
	}
	if n == 0 {
		n = strings.Count(bare(text), "?") // a statement for others counts its placeholders by their places
	}
	rows, err := openDB(t, s, false).QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+text, values[:n]...)
	require.NoError(t, err, text)
	defer func() { _ = rows.Close() }()
	var b strings.Builder
	for rows.Next() {
		var id, parent, unused int
		var detail string
		require.NoError(t, rows.Scan(&id, &parent, &unused, &detail))
		fmt.Fprintln(&b, detail)
	}
	require.NoError(t, rows.Err())
	return b.String()
}

func analyse(t *testing.T, s *Store) {
	t.Helper()
	_, err := openDB(t, s, false).ExecContext(t.Context(), "ANALYZE")
	require.NoError(t, err)
}

func openAt(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{Path: path})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// fill inserts messages with plain SQL, which is faster than Enqueue.
func fill(t *testing.T, s *Store, queueID int32, n int, delay time.Duration) {
	t.Helper()
	place := placeReady
	if delay > 0 {
		place = placeDelayed
	}
	_, err := openDB(t, s, false).ExecContext(t.Context(), `
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
		INSERT INTO message (position, queue_id, place, priority, ready_time, max_attempts, create_time, wire_bytes,
		                     content_type, idempotency_key, payload_bytes, payload)
		SELECT (SELECT last FROM position_sequence) + i, ?2, ?3, 0, `+clockExpr+` + ?4, 0, `+clockExpr+`, 200, '', '', 100, zeroblob(100)
		FROM n`, n, queueID, place, delay.Milliseconds())
	require.NoError(t, err)
	_, err = openDB(t, s, false).ExecContext(t.Context(), "UPDATE position_sequence SET last = last + ?", n)
	require.NoError(t, err)
}

// TestQueries_AreCommentedAndShareTheClock: every statement says what it promises, and spells
// the clock so that a test can replace it.
func TestQueries_AreCommentedAndShareTheClock(t *testing.T) {
	queries, err := loadQueries("42")
	require.NoError(t, err)
	for name, text := range queries {
		require.True(t, strings.HasPrefix(text, "-- "), "%s has no comment", name)
		require.NotContains(t, text, "unixepoch", "%s spells the clock in another way", name)
	}
}

// TestC12_CostOfAClaim compares the time of a claim of one ready message on an empty table
// with one among very many that are not claimable. The bound is far above the noise and far
// below a walk over them, which takes over 50 ms.
func TestC12_CostOfAClaim(t *testing.T) {
	if testing.Short() {
		t.Skip("fills 400,000 rows")
	}
	s := openAt(t, filepath.Join(t.TempDir(), "q.db"))
	q, err := s.CreateQueue(t.Context(), "cost", storage.QueueSettings{CompletedRetention: time.Hour}, 0)
	require.NoError(t, err)
	empty := costOfClaim(t, s, q.ID, nil)
	fill(t, s, q.ID, 300_000, time.Hour)
	delayed := costOfClaim(t, s, q.ID, nil)

	fill(t, s, q.ID, 100_000, 0)
	for range 100 {
		_, err = s.Claim(t.Context(), storage.ClaimParams{QueueID: q.ID, Calls: []storage.ClaimCall{{Max: 1000, Lease: time.Hour}}})
		require.NoError(t, err)
	}
	now, err := s.Now(t.Context())
	require.NoError(t, err)
	warmUp := costOfClaim(t, s, q.ID, nil)
	leased := costOfClaim(t, s, q.ID, []storage.ScanHint{{ReadyTime: now}})
	t.Logf("claim of one: empty %v, 300k delayed %v, 100k leased with a hint %v, without %v", empty, delayed, leased, warmUp)
	require.Less(t, delayed, 3*empty+20*time.Millisecond)
	require.Less(t, leased, 3*empty+20*time.Millisecond)
}

// costOfClaim is the median of some claims of one message each.
func costOfClaim(t *testing.T, s *Store, queueID int32, hints []storage.ScanHint) time.Duration {
	t.Helper()
	var took []time.Duration
	for range 11 {
		_, err := s.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: queueID}}})
		require.NoError(t, err)
		start := time.Now()
		c, err := s.Claim(t.Context(), storage.ClaimParams{
			QueueID: queueID, Calls: []storage.ClaimCall{{Max: 1, Lease: time.Hour}}, ScanFrom: hints,
		})
		took = append(took, time.Since(start))
		require.NoError(t, err)
		require.Len(t, c.Calls[0].Messages, 1)
	}
	slices.Sort(took)
	return took[len(took)/2]
}
