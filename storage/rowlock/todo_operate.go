package rowlock

import (
	"context"

	"github.com/queuebox/queuebox/storage"
)

// Explain is not built yet.
func (s *Store) Explain(context.Context, storage.Ref) (storage.Explanation, error) {
	return storage.Explanation{}, storage.ErrNotSupported
}

// Redrive is not built yet.
func (s *Store) Redrive(context.Context, storage.RedriveParams) (storage.BatchResult, error) {
	return storage.BatchResult{}, storage.ErrNotSupported
}

// Purge is not built yet.
func (s *Store) Purge(context.Context, storage.PurgeParams) (storage.BatchResult, error) {
	return storage.BatchResult{}, storage.ErrNotSupported
}
