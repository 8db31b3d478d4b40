package postgres

import (
	"context"

	"github.com/queuebox/queuebox/storage"
)

// Revoke is not built yet.
func (s *Store) Revoke(_ context.Context, _ storage.RevokeParams) (storage.RevokeResult, error) {
	return storage.RevokeResult{}, storage.ErrNotSupported
}
