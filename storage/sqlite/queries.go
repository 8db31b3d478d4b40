package sqlite

import (
	"embed"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

//go:embed queries/*.sql queries/parts/*.sql
var queryFiles embed.FS

// clockExpr is the storage clock as the statements spell it, in milliseconds. SQLite
// reads its clock once for each run of a statement, so that all rows of it agree, and
// anew for the next. The product is rounded before it is cut, since a fraction of a
// second is not exact in binary.
const clockExpr = "CAST(round(unixepoch('subsec') * 1000) AS INTEGER)"

// query names a file in queries/.
type query string

const (
	qNow           query = "now"
	qSchemaVersion query = "schema_version"

	qQueueGet     query = "queue_get"
	qQueueGetByID query = "queue_get_by_id"
	qQueueList    query = "queue_list"
	qQueueCount   query = "queue_count"
	qQueueInsert  query = "queue_insert"
	qQueueUpdate  query = "queue_update"
	qQueuePause   query = "queue_pause"
	qBlocked      query = "blocked"

	qEnqueueDraw    query = "enqueue_draw"
	qEnqueueInsert  query = "enqueue_insert"
	qIdempotencyGet query = "idempotency_get"
	qIdempotencyPut query = "idempotency_put"
	qMessageState   query = "message_state"
	qOrderingKeyGet query = "ordering_key_get"
	qOrderingKeyPut query = "ordering_key_put"

	qKeyRows    query = "key_rows"
	qKeyBlock   query = "key_block"
	qKeyUnblock query = "key_unblock"
	qKeyLook    query = "key_look"
	qKeyPage    query = "key_page"
	qKeyPark    query = "key_park"
	qKeyPromote query = "key_promote"
	qKeyDelete  query = "key_delete"

	qFirstReady        query = "first_ready"
	qClaimDue          query = "claim_due"
	qClaimPriority     query = "claim_priority"
	qClaimScan         query = "claim_scan"
	qClaimNextReady    query = "claim_next_ready"
	qClaimLease        query = "claim_lease"
	qClaimHeld         query = "claim_held"
	qClaimCallGet      query = "claim_call_get"
	qClaimCallPut      query = "claim_call_put"
	qClaimCallReplayed query = "claim_call_replayed"
	qGiveBack          query = "give_back"

	qLimitLeased    query = "limit_leased"
	qLimitTidy      query = "limit_tidy"
	qLimitSlot      query = "limit_slot"
	qLimitFill      query = "limit_fill"
	qLimitForget    query = "limit_forget"
	qLimitBucket    query = "limit_bucket"
	qLimitBucketPut query = "limit_bucket_put"

	qRenew query = "renew"
	qLook  query = "look"

	qSettleBegin       query = "settle_begin"
	qCompleteCopy      query = "complete_copy"
	qCompleteCopied    query = "complete_copied"
	qCompleteDelete    query = "complete_delete"
	qCompleteCopyRun   query = "complete_copy_run"
	qCompleteDeleteRun query = "complete_delete_run"
	qSettleHold        query = "settle_hold"
	qSettleRetry       query = "settle_retry"
	qSettleRelease     query = "settle_release"
	qSettleDead        query = "settle_dead"
	qSettleHistory     query = "settle_history"
	qExplainLive       query = "explain_live"
	qExplainFinished   query = "explain_finished"
	qExplainHistory    query = "explain_history"
	qExplainOthers     query = "explain_others"
	qExplainMessage    query = "explain_message"
	qExplainAhead      query = "explain_ahead"

	qCompleteFollowUps query = "complete_follow_ups"

	qSweepPage     query = "sweep_page"
	qSweepFind     query = "sweep_find"
	qSweepFindRefs query = "sweep_find_refs"
	qEndCopy       query = "end_copy"
	qCancelAsk     query = "cancel_ask"
	qRevokeHold    query = "revoke_hold"
	qRevokeReturn  query = "revoke_return"
	qRevokeDead    query = "revoke_dead"

	qRetainCompletedFind   query = "retain_completed_find"
	qRetainCompletedDelete query = "retain_completed_delete"
	qRetainDeadFind        query = "retain_dead_find"
	qRetainDeadDelete      query = "retain_dead_delete"
	qRetainKeyDelete       query = "retain_key_delete"
	qRetainHistoryDelete   query = "retain_history_delete"
	qRetainHistoryFind     query = "retain_history_find"

	qPageDead             query = "page_dead"
	qPageCompleted        query = "page_completed"
	qPagePending          query = "page_pending"
	qPickDead             query = "pick_dead"
	qPickCompleted        query = "pick_completed"
	qPickPending          query = "pick_pending"
	qRedriveCopy          query = "redrive_copy"
	qRedriveDelete        query = "redrive_delete"
	qPurgePendingDelete   query = "purge_pending_delete"
	qPurgeCompletedDelete query = "purge_completed_delete"
	qPurgeDeadDelete      query = "purge_dead_delete"
	qPurgeHistoryDelete   query = "purge_history_delete"

	qGetLive       query = "get_live"
	qGetCompleted  query = "get_completed"
	qGetDead       query = "get_dead"
	qListLive      query = "list_live"
	qListCompleted query = "list_completed"
	qListDead      query = "list_dead"
	qStatsLive     query = "stats_live"
	qStatsDelayed  query = "stats_delayed"
	qStatsParked   query = "stats_parked"
	qStatsFinished query = "stats_finished"
	qStatsMarked   query = "stats_marked"
	qStatsStored   query = "stats_stored"
	qCountDue      query = "count_due"
	qCountDone     query = "count_done"
	qCountPut      query = "count_put"
	qCountQueues   query = "count_queues"

	qMaintainCalls      query = "maintain_calls"
	qMaintainCallDelete query = "maintain_call_delete"
	qMaintainLiveToken  query = "maintain_live_token"
)

// The statements of the own transaction, those that the server runs and those that others do.
const (
	qOwnIncoming       query = "own_incoming"
	qOwnIncomingSome   query = "own_incoming_some"
	qOwnIncomingDelete query = "own_incoming_delete"
	qOwnRefuse         query = "own_refuse"
	qOwnReused         query = "own_reused"
	qOwnMarked         query = "own_marked"
	qOwnMarkedSome     query = "own_marked_some"
	qOwnMarkedDelete   query = "own_marked_delete"
	qOwnFinishComplete query = "own_finish_complete"
	qOwnFinishDead     query = "own_finish_dead"
	qOwnFinishRetry    query = "own_finish_retry"

	qOwnEnqueue    query = "own_enqueue"
	qOwnComplete   query = "own_complete"
	qOwnRetry      query = "own_retry"
	qOwnDeadLetter query = "own_dead_letter"
	qOwnOutcome    query = "own_outcome"
)

// ownClockExpr is the same clock as others can read it: not every build of SQLite knows
// subsec.
const ownClockExpr = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"

// loadQueries reads the statements, with the clock replaced where a test wants another.
func loadQueries(clock string) (map[query]string, error) {
	entries, err := queryFiles.ReadDir("queries")
	if err != nil {
		return nil, fmt.Errorf("read statements: %w", err)
	}
	queries := make(map[query]string, len(entries))
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		text, err := queryFiles.ReadFile("queries/" + e.Name())
		if err != nil {
			return nil, fmt.Errorf("read statement %s: %w", e.Name(), err)
		}
		whole, err := withParts(string(text))
		if err != nil {
			return nil, fmt.Errorf("read statement %s: %w", e.Name(), err)
		}
		name := query(strings.TrimSuffix(e.Name(), ".sql"))
		if clock != clockExpr {
			whole = strings.ReplaceAll(whole, ownClockExpr, clock)
		}
		queries[name] = strings.ReplaceAll(whole, clockExpr, clock)
	}
	return queries, nil
}

// part is where a statement has a text of queries/parts, which others have too.
var part = regexp.MustCompile(`\{\{([a-z_]+)\}\}`)

// withParts puts the parts in, without their comments.
func withParts(text string) (string, error) {
	var err error
	for part.MatchString(text) && err == nil {
		text = part.ReplaceAllStringFunc(text, func(name string) string {
			raw, missing := queryFiles.ReadFile("queries/parts/" + part.FindStringSubmatch(name)[1] + ".sql")
			err = errors.Join(err, missing)
			var b strings.Builder
			for line := range strings.Lines(string(raw)) {
				if !strings.HasPrefix(line, "--") {
					b.WriteString(line)
				}
			}
			return strings.TrimSpace(b.String())
		})
	}
	return text, err
}
