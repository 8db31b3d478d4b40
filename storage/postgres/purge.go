package postgres

import (
	"context"

	"github.com/queuebox/queuebox/storage"
)

// Purge is not built yet.
func (s *Store) Purge(_ context.Context, _ storage.PurgeParams) (storage.BatchResult, error) {
	return storage.BatchResult{}, storage.ErrNotSupported
}
