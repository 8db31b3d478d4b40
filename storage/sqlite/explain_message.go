package sqlite

import (
	"context"

	"github.com/queuebox/queuebox/storage"
)

// Explain is not built yet.
func (s *Store) Explain(_ context.Context, _ storage.Ref) (storage.Explanation, error) {
	return storage.Explanation{}, storage.ErrNotSupported
}
