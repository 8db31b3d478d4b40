package rowlock

import (
	"context"

	"github.com/queuebox/queuebox/storage"
)

// QueueStats is not built yet.
func (s *Store) QueueStats(context.Context, int32) (storage.QueueStats, error) {
	return storage.QueueStats{}, storage.ErrNotSupported
}

// StoredStats is not built yet.
func (s *Store) StoredStats(context.Context, int32) (storage.QueueStats, error) {
	return storage.QueueStats{}, storage.ErrNotSupported
}
