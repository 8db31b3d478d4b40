package rowlock

import (
	"context"

	"github.com/queuebox/queuebox/storage"
)

// Enqueue is not built yet.
func (s *Store) Enqueue(context.Context, storage.EnqueueParams) (storage.EnqueueResult, error) {
	return storage.EnqueueResult{}, storage.ErrNotSupported
}

// Claim is not built yet.
func (s *Store) Claim(context.Context, storage.ClaimParams) (storage.ClaimResult, error) {
	return storage.ClaimResult{}, storage.ErrNotSupported
}

// GiveBack is not built yet.
func (s *Store) GiveBack(context.Context, storage.GiveBackParams) (storage.GiveBackResult, error) {
	return storage.GiveBackResult{}, storage.ErrNotSupported
}

// Renew is not built yet.
func (s *Store) Renew(context.Context, storage.RenewParams) (storage.RenewResult, error) {
	return storage.RenewResult{}, storage.ErrNotSupported
}

// Look is not built yet.
func (s *Store) Look(context.Context, []storage.HeldClaim) (storage.RenewResult, error) {
	return storage.RenewResult{}, storage.ErrNotSupported
}
