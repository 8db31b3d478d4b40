package rowlock

import (
	"context"

	"github.com/queuebox/queuebox/storage"
)

// Place is not built yet.
func (s *Store) Place(context.Context, storage.PlaceParams) (storage.PlaceResult, error) {
	return storage.PlaceResult{}, storage.ErrNotSupported
}

// Finish is not built yet.
func (s *Store) Finish(context.Context, storage.FinishParams) (storage.FinishResult, error) {
	return storage.FinishResult{}, storage.ErrNotSupported
}

// TransactionSQL is not built yet.
func (s *Store) TransactionSQL(storage.TransactionSQLParams) (storage.TransactionSQL, error) {
	return storage.TransactionSQL{}, storage.ErrNotSupported
}
