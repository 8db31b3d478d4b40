package postgres

import (
	"embed"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

//go:embed queries/*.sql queries/parts/*.sql
var queryFiles embed.FS

// statements holds the text of every statement, one field a file of queries/.
type statements struct {
	own ownStatements
	// What has become of claims, and the operator's calls on one message.
	look, explain, revoke string
	// Ordering keys: their locks, and the head of each.
	enqueueOrdered, takeNames, completeOrdered, addNames, lockNames, lockNamesFree, lockKeys, lockKeysFree, promote, waitRow string
	keysLook, lockKeyIDs, removeKeys                                                                                         string
	// The operator's calls on many messages.
	pickPending, pickCompleted, pickDead, redrive string
	purgePending, purgeCompleted, purgeDead       string

	claim, claimReady, claimCalls, claimReplay, claimReplayed, giveBack, giveBackCall   string
	firstReady                                                                          string
	renew, renewWait, settle, settleWait, complete, completeOne, diagnose               string
	enqueue, enqueueOne, enqueueKeys, enqueueKeysLock, enqueueKeysRead, enqueueKeysTake string
	enqueueKeyed, findHeld                                                              string
	queueLock, queueCreate, queueGet, queueGetByID, queueList, queueUpdate              string
	queuePause, blocked, messageGet, messageList, notify, now, ready, durability        string
	// Limits of a queue (L1, L2).
	countPage, countTurn, countDone, countQueues, countPut, statsGet          string
	claimLimited, limitLock, limitFill, limitState, limitSet                  string
	maintainPaces, maintainSlots                                              string
	maintainCalls, partitions, vacuumDue                                      string
	sweep, cancel, keyPosition                                                string
	retainDead, retainCompleted, retainCompletedHour, retainHours, retainKeys string
	retainSettlement, retainSettlementHour                                    string
	lockCompletion, completeFollowUps                                         string
}

// skipLocked is what a statement says to pass over rows that somebody else holds.
const skipLocked = " SKIP LOCKED"

var clockCall = regexp.MustCompile(`\b(clock_timestamp|statement_timestamp)\(\)`)

var identifier = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// loadStatements reads the files. testClock, where set, is the schema whose functions
// stand in for the clock of the database.
func loadStatements(testClock string) (statements, error) {
	if testClock != "" && !identifier.MatchString(testClock) {
		return statements{}, fmt.Errorf("postgres: test clock %q is no plain name", testClock)
	}
	var s statements
	for name, text := range s.own.fields(map[string]*string{
		"claim": &s.claim, "claim_ready": &s.claimReady, "first_ready": &s.firstReady, "claim_calls": &s.claimCalls, "claim_replay": &s.claimReplay,
		"claim_replayed": &s.claimReplayed, "give_back": &s.giveBack, "give_back_call": &s.giveBackCall,
		"claim_limited": &s.claimLimited, "limit_lock": &s.limitLock, "limit_fill": &s.limitFill,
		"limit_state": &s.limitState, "limit_set": &s.limitSet,
		"count_page": &s.countPage, "count_turn": &s.countTurn, "count_done": &s.countDone,
		"count_queues": &s.countQueues, "count_put": &s.countPut, "stats_get": &s.statsGet,
		"maintain_paces": &s.maintainPaces, "maintain_slots": &s.maintainSlots,
		"renew": &s.renew, "settle": &s.settle, "complete": &s.complete, "complete_one": &s.completeOne, "diagnose": &s.diagnose,
		"enqueue": &s.enqueue, "enqueue_one": &s.enqueueOne, "enqueue_keys": &s.enqueueKeys, "enqueue_keys_lock": &s.enqueueKeysLock,
		"enqueue_keys_read": &s.enqueueKeysRead,
		"enqueue_keys_take": &s.enqueueKeysTake, "enqueue_keyed": &s.enqueueKeyed,
		"enqueue_ordered": &s.enqueueOrdered, "take_names": &s.takeNames, "complete_ordered": &s.completeOrdered,
		"add_names": &s.addNames, "lock_names": &s.lockNames,
		"find_held": &s.findHeld, "lock_completion": &s.lockCompletion, "complete_follow_ups": &s.completeFollowUps,
		"lock_keys": &s.lockKeys, "promote": &s.promote, "wait_row": &s.waitRow,
		"keys_look": &s.keysLook, "lock_key_ids": &s.lockKeyIDs, "remove_keys": &s.removeKeys,
		"queue_lock": &s.queueLock, "queue_create": &s.queueCreate, "queue_get": &s.queueGet,
		"queue_get_by_id": &s.queueGetByID, "queue_list": &s.queueList, "queue_update": &s.queueUpdate,
		"queue_pause": &s.queuePause, "blocked": &s.blocked,
		"message_get": &s.messageGet, "message_list": &s.messageList,
		"notify": &s.notify, "now": &s.now, "ready": &s.ready, "durability": &s.durability,
		"maintain_calls": &s.maintainCalls, "partitions": &s.partitions, "vacuum_due": &s.vacuumDue,
		"sweep": &s.sweep, "cancel": &s.cancel, "key_position": &s.keyPosition, "revoke": &s.revoke, "explain": &s.explain, "look": &s.look,
		"retain_dead": &s.retainDead, "retain_completed": &s.retainCompleted, "retain_settlement": &s.retainSettlement,
		"retain_completed_hour": &s.retainCompletedHour, "retain_settlement_hour": &s.retainSettlementHour,
		"retain_hours": &s.retainHours, "retain_keys": &s.retainKeys,
		"pick_pending": &s.pickPending, "pick_completed": &s.pickCompleted, "pick_dead": &s.pickDead, "redrive": &s.redrive,
		"purge_pending": &s.purgePending, "purge_completed": &s.purgeCompleted, "purge_dead": &s.purgeDead,
	}) {
		whole, err := statement(name)
		if err != nil {
			return statements{}, fmt.Errorf("postgres: statement %s: %w", name, err)
		}
		*text = whole
		if testClock != "" {
			*text = clockCall.ReplaceAllString(*text, testClock+".$1()")
		}
	}
	// The slow lane runs the same text, but waits for the row: the conditions of the
	// fence are then the same by construction.
	var err error
	if s.renewWait, err = waiting("renew", s.renew); err != nil {
		return statements{}, err
	}
	if s.settleWait, err = waiting("settle", s.settle); err != nil {
		return statements{}, err
	}
	if s.lockKeysFree, err = skipping("lock_keys", s.lockKeys); err != nil {
		return statements{}, err
	}
	if s.lockNamesFree, err = skipping("lock_names", s.lockNames); err != nil {
		return statements{}, err
	}
	if s.completeOrdered, err = ordering(s.complete, s.completeOrdered); err != nil {
		return statements{}, err
	}
	s.claimLimited, err = limited(s.claim, s.claimLimited)
	return s, err
}

// part is where a statement has a text of queries/parts, which others have too.
var part = regexp.MustCompile(`\{\{([a-z_]+)\}\}`)

// statement reads a file, with the parts that it names.
func statement(name string) (string, error) {
	raw, err := queryFiles.ReadFile("queries/" + name + ".sql")
	if err != nil {
		return "", err
	}
	text := part.ReplaceAllStringFunc(bare(string(raw)), func(name string) string {
		raw, missing := queryFiles.ReadFile("queries/parts/" + part.FindStringSubmatch(name)[1] + ".sql")
		err = errors.Join(err, missing)
		return bare(string(raw))
	})
	return text, err
}

// skipping turns a statement that waits for rows into one that passes over held ones.
func skipping(name, text string) (string, error) {
	const lock = "FOR UPDATE"
	if strings.Count(text, lock) != 1 || strings.Contains(text, skipLocked) {
		return "", fmt.Errorf("postgres: statement %s: want %s exactly once", name, lock)
	}
	return strings.Replace(text, lock, lock+skipLocked, 1), nil
}

// limited makes the claim of a queue with a limit: the same text, whose gate is open for it
// and which appends what the limit must know.
func limited(claim, more string) (string, error) {
	const closed, last = " AND NOT q.limited AS open", "\nSELECT gate.now"
	if strings.Count(claim, closed) != 1 || strings.Count(claim, last) != 1 {
		return "", fmt.Errorf("postgres: statement claim: want %q and %q exactly once", closed, last)
	}
	claim = strings.Replace(claim, closed, " AS open", 1)
	return strings.Replace(claim, last, more+last, 1), nil
}

// ordering makes the completion of messages with ordering keys: the same text, so that the fence
// is the same by construction, which hands the keys on and tells in which queues.
func ordering(complete, more string) (string, error) {
	const (
		gone, last = "RETURNING m.position\n", "\nSELECT "
		from       = "\nFROM removed r"
		tells      = ", (SELECT array_agg(DISTINCT p.queue_id) FROM promoted p)"
	)
	for _, once := range []string{gone, last, from} {
		if strings.Count(complete, once) != 1 {
			return "", fmt.Errorf("postgres: statement complete: want %q exactly once", once)
		}
	}
	complete = strings.Replace(complete, gone, "RETURNING m.position, m.key_id, m.place\n", 1)
	complete = strings.Replace(complete, from, tells+from, 1)
	return strings.Replace(complete, last, more+last, 1), nil
}

// waiting turns a statement that skips held rows into one that waits for them.
func waiting(name, text string) (string, error) {
	if strings.Count(text, skipLocked) != 1 {
		return "", fmt.Errorf("postgres: statement %s: want%s exactly once", name, skipLocked)
	}
	return strings.Replace(text, skipLocked, "", 1), nil
}

// bare drops the lines that are comments: they are for readers of the file.
func bare(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			b.WriteString(line)
		}
	}
	return strings.TrimSuffix(strings.TrimSpace(b.String()), ";")
}
