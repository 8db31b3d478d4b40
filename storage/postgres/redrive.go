package postgres

import (
	"context"

	"github.com/queuebox/queuebox/storage"
)

// Redrive is not built yet.
func (s *Store) Redrive(_ context.Context, _ storage.RedriveParams) (storage.BatchResult, error) {
	return storage.BatchResult{}, storage.ErrNotSupported
}
