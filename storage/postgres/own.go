package postgres

import (
	"context"

	"github.com/queuebox/queuebox/storage"
)

// Place is not built yet.
func (s *Store) Place(_ context.Context, _ storage.PlaceParams) (storage.PlaceResult, error) {
	return storage.PlaceResult{}, storage.ErrNotSupported
}

// Finish is not built yet.
func (s *Store) Finish(_ context.Context, _ storage.FinishParams) (storage.FinishResult, error) {
	return storage.FinishResult{}, storage.ErrNotSupported
}

// TransactionSQL is not built yet.
func (s *Store) TransactionSQL(_ storage.TransactionSQLParams) (storage.TransactionSQL, error) {
	return storage.TransactionSQL{}, storage.ErrNotSupported
}
