package faults

import (
	"context"
	"time"

	"github.com/queuebox/queuebox/storage"
)

var _ storage.Store = (*Store)(nil)

// Capabilities are those of the store inside. It cannot be broken.
func (s *Store) Capabilities() storage.Capabilities { return s.inner.Capabilities() }

// Close closes the store inside. It cannot be broken.
func (s *Store) Close() error { return s.inner.Close() }

// Enqueue implements [storage.Store].
func (s *Store) Enqueue(ctx context.Context, p storage.EnqueueParams) (storage.EnqueueResult, error) {
	return through(ctx, s, Enqueue, func() (storage.EnqueueResult, error) { return s.inner.Enqueue(ctx, p) })
}

// Claim implements [storage.Store].
func (s *Store) Claim(ctx context.Context, p storage.ClaimParams) (storage.ClaimResult, error) {
	return through(ctx, s, Claim, func() (storage.ClaimResult, error) { return s.inner.Claim(ctx, p) })
}

// GiveBack implements [storage.Store].
func (s *Store) GiveBack(ctx context.Context, p storage.GiveBackParams) (storage.GiveBackResult, error) {
	return through(ctx, s, GiveBack, func() (storage.GiveBackResult, error) { return s.inner.GiveBack(ctx, p) })
}

// FirstReady implements [storage.Store].
func (s *Store) FirstReady(ctx context.Context, p storage.FirstReadyParams) (storage.FirstReadyResult, error) {
	return through(ctx, s, FirstReady, func() (storage.FirstReadyResult, error) { return s.inner.FirstReady(ctx, p) })
}

// Renew implements [storage.Store].
func (s *Store) Renew(ctx context.Context, p storage.RenewParams) (storage.RenewResult, error) {
	return through(ctx, s, Renew, func() (storage.RenewResult, error) { return s.inner.Renew(ctx, p) })
}

// Settle implements [storage.Store].
func (s *Store) Settle(ctx context.Context, p storage.SettleParams) (storage.SettleResult, error) {
	return through(ctx, s, Settle, func() (storage.SettleResult, error) { return s.inner.Settle(ctx, p) })
}

// Look implements [storage.Store].
func (s *Store) Look(ctx context.Context, claims []storage.HeldClaim) (storage.RenewResult, error) {
	return through(ctx, s, Look, func() (storage.RenewResult, error) { return s.inner.Look(ctx, claims) })
}

// Notify implements [storage.Store].
func (s *Store) Notify(ctx context.Context, n storage.Notice) error {
	return throughErr(ctx, s, Notify, func() error { return s.inner.Notify(ctx, n) })
}

// Listen implements [storage.Store].
func (s *Store) Listen(ctx context.Context, heard func(storage.Notice), up func(bool)) error {
	return throughErr(ctx, s, Listen, func() error { return s.inner.Listen(ctx, heard, up) })
}

// Now implements [storage.Store].
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	return through(ctx, s, Now, func() (time.Time, error) { return s.inner.Now(ctx) })
}

// Ready implements [storage.Store].
func (s *Store) Ready(ctx context.Context) error {
	return throughErr(ctx, s, Ready, func() error { return s.inner.Ready(ctx) })
}

// Maintain implements [storage.Store].
func (s *Store) Maintain(ctx context.Context) error {
	return throughErr(ctx, s, Maintain, func() error { return s.inner.Maintain(ctx) })
}

// CreateQueue implements [storage.Admin].
func (s *Store) CreateQueue(ctx context.Context, name string, q storage.QueueSettings, maxQueues int) (storage.Queue, error) {
	return through(ctx, s, CreateQueue, func() (storage.Queue, error) { return s.inner.CreateQueue(ctx, name, q, maxQueues) })
}

// GetQueue implements [storage.Admin].
func (s *Store) GetQueue(ctx context.Context, name string) (storage.Queue, error) {
	return through(ctx, s, GetQueue, func() (storage.Queue, error) { return s.inner.GetQueue(ctx, name) })
}

// GetQueueByID implements [storage.Admin].
func (s *Store) GetQueueByID(ctx context.Context, id int32) (storage.Queue, error) {
	return through(ctx, s, GetQueueByID, func() (storage.Queue, error) { return s.inner.GetQueueByID(ctx, id) })
}

// ListQueues implements [storage.Admin].
func (s *Store) ListQueues(ctx context.Context, after string, limit int) ([]storage.Queue, error) {
	return through(ctx, s, ListQueues, func() ([]storage.Queue, error) { return s.inner.ListQueues(ctx, after, limit) })
}

// UpdateQueue implements [storage.Admin].
func (s *Store) UpdateQueue(ctx context.Context, name string, q storage.QueueSettings, version int64) (storage.Queue, error) {
	return through(ctx, s, UpdateQueue, func() (storage.Queue, error) { return s.inner.UpdateQueue(ctx, name, q, version) })
}

// SetPaused implements [storage.Admin].
func (s *Store) SetPaused(ctx context.Context, name string, paused bool) (storage.Queue, error) {
	return through(ctx, s, SetPaused, func() (storage.Queue, error) { return s.inner.SetPaused(ctx, name, paused) })
}

// QueueStats implements [storage.Admin].
func (s *Store) QueueStats(ctx context.Context, queueID int32) (storage.QueueStats, error) {
	return through(ctx, s, QueueStats, func() (storage.QueueStats, error) { return s.inner.QueueStats(ctx, queueID) })
}

// Blocked implements [storage.Admin].
func (s *Store) Blocked(ctx context.Context, queueID int32) (bool, error) {
	return through(ctx, s, Blocked, func() (bool, error) { return s.inner.Blocked(ctx, queueID) })
}

// StoredStats implements [storage.Admin].
func (s *Store) StoredStats(ctx context.Context, queueID int32) (storage.QueueStats, error) {
	return through(ctx, s, StoredStats, func() (storage.QueueStats, error) { return s.inner.StoredStats(ctx, queueID) })
}

// Count implements [storage.Upkeep].
func (s *Store) Count(ctx context.Context, p storage.CountParams) (storage.CountResult, error) {
	return through(ctx, s, Count, func() (storage.CountResult, error) { return s.inner.Count(ctx, p) })
}

// GetMessage implements [storage.Admin].
func (s *Store) GetMessage(ctx context.Context, ref storage.Ref, payload bool) (storage.Message, error) {
	return through(ctx, s, GetMessage, func() (storage.Message, error) { return s.inner.GetMessage(ctx, ref, payload) })
}

// ListMessages implements [storage.Admin].
func (s *Store) ListMessages(ctx context.Context, p storage.ListMessagesParams) (storage.ListMessagesResult, error) {
	return through(ctx, s, ListMessages, func() (storage.ListMessagesResult, error) { return s.inner.ListMessages(ctx, p) })
}

func throughErr(ctx context.Context, s *Store, m Method, call func() error) error {
	_, err := through(ctx, s, m, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

// Sweep implements [storage.Store].
func (s *Store) Sweep(ctx context.Context, p storage.SweepParams) (storage.SweepResult, error) {
	return through(ctx, s, Sweep, func() (storage.SweepResult, error) { return s.inner.Sweep(ctx, p) })
}

// Retain implements [storage.Store].
func (s *Store) Retain(ctx context.Context, p storage.RetainParams) (storage.RetainResult, error) {
	return through(ctx, s, Retain, func() (storage.RetainResult, error) { return s.inner.Retain(ctx, p) })
}

// Cancel implements [storage.Store].
func (s *Store) Cancel(ctx context.Context, p storage.CancelParams) (storage.CancelResult, error) {
	return through(ctx, s, Cancel, func() (storage.CancelResult, error) { return s.inner.Cancel(ctx, p) })
}

// SweepKeys implements [storage.Upkeep].
func (s *Store) SweepKeys(ctx context.Context, p storage.SweepKeysParams) (storage.SweepKeysResult, error) {
	return through(ctx, s, SweepKeys, func() (storage.SweepKeysResult, error) { return s.inner.SweepKeys(ctx, p) })
}

// Explain implements [storage.Operator].
func (s *Store) Explain(ctx context.Context, p storage.Ref) (storage.Explanation, error) {
	return through(ctx, s, Explain, func() (storage.Explanation, error) { return s.inner.Explain(ctx, p) })
}

// Revoke implements [storage.Operator].
func (s *Store) Revoke(ctx context.Context, p storage.RevokeParams) (storage.RevokeResult, error) {
	return through(ctx, s, Revoke, func() (storage.RevokeResult, error) { return s.inner.Revoke(ctx, p) })
}

// Redrive implements [storage.Operator].
func (s *Store) Redrive(ctx context.Context, p storage.RedriveParams) (storage.BatchResult, error) {
	return through(ctx, s, Redrive, func() (storage.BatchResult, error) { return s.inner.Redrive(ctx, p) })
}

// Purge implements [storage.Operator].
func (s *Store) Purge(ctx context.Context, p storage.PurgeParams) (storage.BatchResult, error) {
	return through(ctx, s, Purge, func() (storage.BatchResult, error) { return s.inner.Purge(ctx, p) })
}

// Place implements [storage.Own].
func (s *Store) Place(ctx context.Context, p storage.PlaceParams) (storage.PlaceResult, error) {
	return through(ctx, s, Place, func() (storage.PlaceResult, error) { return s.inner.Place(ctx, p) })
}

// Finish implements [storage.Own].
func (s *Store) Finish(ctx context.Context, p storage.FinishParams) (storage.FinishResult, error) {
	return through(ctx, s, Finish, func() (storage.FinishResult, error) { return s.inner.Finish(ctx, p) })
}

// TransactionSQL is that of the store inside. It cannot be broken.
func (s *Store) TransactionSQL(p storage.TransactionSQLParams) (storage.TransactionSQL, error) {
	return s.inner.TransactionSQL(p)
}
