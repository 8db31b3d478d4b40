package sqlite_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/sqlite"
)

// TestE10_NothingIsAcknowledgedIntoAFileThatWasMoved: SQLite goes on in a file that was
// moved or replaced, and nobody would find what is written there.
func TestE10_NothingIsAcknowledgedIntoAFileThatWasMoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "q.db")
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	q, err := s.CreateQueue(t.Context(), "q", storage.QueueSettings{}, 0)
	require.NoError(t, err)
	enqueue := func() error {
		_, err := s.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{
			{QueueID: q.ID, Payload: []byte("x"), WireBytes: 100},
		}})
		return err
	}
	require.NoError(t, enqueue())
	require.NoError(t, os.Rename(path, path+".moved"))
	require.ErrorIs(t, enqueue(), storage.ErrUnavailable, "the file is gone from its path")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.ErrorIs(t, enqueue(), storage.ErrUnavailable, "another file lies there")
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Rename(path+".moved", path))
	require.NoError(t, enqueue(), "it is back, and nothing of the refused ones is in it")
	stats, err := s.QueueStats(t.Context(), q.ID)
	require.NoError(t, err)
	require.EqualValues(t, 2, stats.Ready)
}
