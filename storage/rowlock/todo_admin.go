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

// GetMessage is not built yet.
func (s *Store) GetMessage(context.Context, storage.Ref, bool) (storage.Message, error) {
	return storage.Message{}, storage.ErrNotSupported
}

// ListMessages is not built yet.
func (s *Store) ListMessages(context.Context, storage.ListMessagesParams) (storage.ListMessagesResult, error) {
	return storage.ListMessagesResult{}, storage.ErrNotSupported
}
