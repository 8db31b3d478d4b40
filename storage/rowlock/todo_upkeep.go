package rowlock

import (
	"context"

	"github.com/queuebox/queuebox/storage"
)

// Maintain is not built yet.
func (s *Store) Maintain(context.Context) error { return storage.ErrNotSupported }

// Sweep is not built yet.
func (s *Store) Sweep(context.Context, storage.SweepParams) (storage.SweepResult, error) {
	return storage.SweepResult{}, storage.ErrNotSupported
}

// Retain is not built yet.
func (s *Store) Retain(context.Context, storage.RetainParams) (storage.RetainResult, error) {
	return storage.RetainResult{}, storage.ErrNotSupported
}
