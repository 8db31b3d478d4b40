package sqlite

import (
	"context"

	"github.com/queuebox/queuebox/storage"
)

// SweepKeys is not built yet.
func (s *Store) SweepKeys(_ context.Context, _ storage.SweepKeysParams) (storage.SweepKeysResult, error) {
	return storage.SweepKeysResult{}, storage.ErrNotSupported
}
