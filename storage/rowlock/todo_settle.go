package rowlock

import (
	"context"

	"github.com/queuebox/queuebox/storage"
)

// Settle is not built yet.
func (s *Store) Settle(context.Context, storage.SettleParams) (storage.SettleResult, error) {
	return storage.SettleResult{}, storage.ErrNotSupported
}

// Cancel is not built yet.
func (s *Store) Cancel(context.Context, storage.CancelParams) (storage.CancelResult, error) {
	return storage.CancelResult{}, storage.ErrNotSupported
}

// Revoke is not built yet.
func (s *Store) Revoke(context.Context, storage.RevokeParams) (storage.RevokeResult, error) {
	return storage.RevokeResult{}, storage.ErrNotSupported
}

// SweepKeys is not built yet.
func (s *Store) SweepKeys(context.Context, storage.SweepKeysParams) (storage.SweepKeysResult, error) {
	return storage.SweepKeysResult{}, storage.ErrNotSupported
}

// Blocked is not built yet.
func (s *Store) Blocked(context.Context, int32) (bool, error) { return false, storage.ErrNotSupported }
