package postgres

import (
	"context"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// What the tests of this package look at from outside.

// SessionSettings is what a session runs under.
const SessionSettings = sessionSettings

// Statements gives the text of the statements whose plans are pinned.
func Statements() (map[string]string, error) {
	s, err := loadStatements("")
	return map[string]string{
		"own_incoming": s.own.incoming, "own_place": s.own.place, "own_take": s.own.take, "own_insert": s.own.insert,
		"own_refuse": s.own.refuse, "own_marked": s.own.marked, "own_marked_take": s.own.markedTake, "own_finish": s.own.finish,

		"claim": s.claim, "claim_ready": s.claimReady, "first_ready": s.firstReady, "claim_calls": s.claimCalls, "claim_replay": s.claimReplay, "claim_replayed": s.claimReplayed,
		"give_back": s.giveBack, "give_back_call": s.giveBackCall,
		"renew": s.renew, "renew_wait": s.renewWait, "settle": s.settle, "settle_wait": s.settleWait,
		"diagnose": s.diagnose, "complete": s.complete, "complete_one": s.completeOne, "enqueue": s.enqueue, "enqueue_one": s.enqueueOne, "enqueue_keys": s.enqueueKeys,
		"enqueue_keys_read": s.enqueueKeysRead, "enqueue_keyed": s.enqueueKeyed,
		"message_get": s.messageGet, "message_list": s.messageList, "blocked": s.blocked,
		"enqueue_ordered": s.enqueueOrdered, "take_names": s.takeNames, "complete_ordered": s.completeOrdered, "add_names": s.addNames, "lock_names": s.lockNames,
		"lock_keys": s.lockKeys, "promote": s.promote, "wait_row": s.waitRow, "lock_keys_free": s.lockKeysFree,
		"keys_look": s.keysLook, "lock_key_ids": s.lockKeyIDs, "remove_keys": s.removeKeys,
		"count_page": s.countPage, "count_queues": s.countQueues, "stats_get": s.statsGet,
		"claim_limited": s.claimLimited, "limit_lock": s.limitLock, "limit_fill": s.limitFill, "limit_state": s.limitState,
		"maintain_paces": s.maintainPaces, "maintain_slots": s.maintainSlots,
		"maintain_calls": s.maintainCalls, "sweep": s.sweep, "cancel": s.cancel,
		"retain_dead": s.retainDead, "retain_completed": s.retainCompleted, "retain_settlement": s.retainSettlement,
		"lock_completion": s.lockCompletion, "complete_follow_ups": s.completeFollowUps,
		"revoke": s.revoke, "explain": s.explain, "look": s.look,
		"pick_pending": s.pickPending, "pick_completed": s.pickCompleted, "pick_dead": s.pickDead, "redrive": s.redrive,
		"purge_pending": s.purgePending, "purge_completed": s.purgeCompleted, "purge_dead": s.purgeDead,
	}, err
}

// ConnectCause is what is told of an error of a connection attempt.
func ConnectCause(err error) error { return connectCause(err) }

// Vacuumer vacuums a store as its own loop does.
type Vacuumer struct{ v *vacuumer }

// Vacuum tells which tables were due, at so many dead rows, and vacuums them, without a rest since
// the last time.
func (v *Vacuumer) Vacuum(ctx context.Context, s *Store, rows int64) ([]string, error) {
	if v.v == nil {
		v.v = newVacuumer()
	}
	clear(v.v.rest)
	return s.vacuum(ctx, v.v, rows)
}

// CallOld makes snapshots old from another age on.
func (v *Vacuumer) CallOld(age time.Duration) { v.v.old = age }

// Rests tells for how long a table is left alone.
func (v *Vacuumer) Rests(table string) time.Duration { return time.Until(v.v.rest[table]) }

// SweepKeysAt is SweepKeys at a time of the process.
func (s *Store) SweepKeysAt(ctx context.Context, p storage.SweepKeysParams, now time.Time) (storage.SweepKeysResult, error) {
	return s.sweepKeysAt(ctx, p, now)
}

// SweepAt is Sweep at a time of the process.
func (s *Store) SweepAt(ctx context.Context, p storage.SweepParams, now time.Time) (storage.SweepResult, error) {
	return s.sweepAt(ctx, p, now)
}

// RememberAll makes the passes over messages and keys remember what they met however little that
// cost, and every key without a message go at once.
func (s *Store) RememberAll() {
	s.emptyMessages.costly, s.emptyKeys.costly, s.keyCost = 0, 0, 0
}

// KeepKeys makes no key go sooner, however long the look at it takes.
func (s *Store) KeepKeys() { s.keyCost = time.Hour }

// LeftOut tells how many stretches the passes over messages and keys leave out.
func (s *Store) LeftOut() (messages, keys int) {
	return len(s.emptyMessages.empty), len(s.emptyKeys.empty)
}
