package rowlock

import (
	"context"

	"github.com/queuebox/queuebox/storage"
)

// CreateQueue is not built yet.
func (s *Store) CreateQueue(context.Context, string, storage.QueueSettings, int) (storage.Queue, error) {
	return storage.Queue{}, storage.ErrNotSupported
}

// GetQueue is not built yet.
func (s *Store) GetQueue(context.Context, string) (storage.Queue, error) {
	return storage.Queue{}, storage.ErrNotSupported
}

// GetQueueByID is not built yet.
func (s *Store) GetQueueByID(context.Context, int32) (storage.Queue, error) {
	return storage.Queue{}, storage.ErrNotSupported
}

// ListQueues is not built yet.
func (s *Store) ListQueues(context.Context, string, int) ([]storage.Queue, error) {
	return nil, storage.ErrNotSupported
}

// UpdateQueue is not built yet.
func (s *Store) UpdateQueue(context.Context, string, storage.QueueSettings, int64) (storage.Queue, error) {
	return storage.Queue{}, storage.ErrNotSupported
}

// SetPaused is not built yet.
func (s *Store) SetPaused(context.Context, string, bool) (storage.Queue, error) {
	return storage.Queue{}, storage.ErrNotSupported
}

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
