package sqlite_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/sqlite"
)

// TestD7_OtherSchemaVersion is refused at the start and makes a running store not ready.
func TestD7_OtherSchemaVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "q.db")
	s := openFile(t, path)
	require.NoError(t, s.Ready(t.Context()))

	outside := openOutside(t, path)
	_, err := outside.ExecContext(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, 1)")
	require.NoError(t, err)
	require.ErrorIs(t, s.Ready(t.Context()), storage.ErrSchema)

	_, err = sqlite.Open(t.Context(), sqlite.Config{Path: path})
	require.ErrorIs(t, err, storage.ErrSchema)
	require.ErrorContains(t, err, "999")

	_, err = outside.ExecContext(t.Context(), "DELETE FROM goose_db_version WHERE version_id = 999")
	require.NoError(t, err)
	require.NoError(t, s.Ready(t.Context()), "ready again when the version is back")
}

func TestOpen_RefusesWhatIsNotItsOwn(t *testing.T) {
	t.Run("a file that is no database stays as it was", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "notes.txt")
		text := []byte("these are my notes, and they are long enough to have a header of their own, which is no header of SQLite at all")
		require.NoError(t, os.WriteFile(path, text, 0o600))
		_, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
		require.ErrorIs(t, err, storage.ErrSchema)
		require.ErrorContains(t, err, "not a SQLite database")
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, text, after)
	})
	t.Run("the database of another program stays as it was", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "other.db")
		db, err := sql.Open("sqlite", path)
		require.NoError(t, err)
		_, err = db.ExecContext(t.Context(), "CREATE TABLE customer (id INTEGER PRIMARY KEY)")
		require.NoError(t, err)
		_, err = sqlite.Open(t.Context(), sqlite.Config{Path: path})
		require.ErrorIs(t, err, storage.ErrSchema)
		require.ErrorContains(t, err, "another program")
		var tables int
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM sqlite_schema").Scan(&tables))
		require.Equal(t, 1, tables)
		require.NoError(t, db.Close())
	})
	t.Run("a directory that is not there", func(t *testing.T) {
		_, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "no", "q.db")})
		require.ErrorIs(t, err, storage.ErrUnavailable)
		require.ErrorContains(t, err, "q.db")
	})
	t.Run("a directory as file", func(t *testing.T) {
		_, err := sqlite.Open(t.Context(), sqlite.Config{Path: t.TempDir()})
		require.ErrorIs(t, err, storage.ErrUnavailable)
	})
	t.Run("memory", func(t *testing.T) {
		_, err := sqlite.Open(t.Context(), sqlite.Config{Path: ":memory:"})
		require.ErrorContains(t, err, "a file is needed")
	})
	t.Run("a read-only directory", func(t *testing.T) {
		if os.Geteuid() == 0 {
			t.Skip("root may write everywhere")
		}
		dir := t.TempDir()
		require.NoError(t, os.Chmod(dir, 0o500))
		_, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "q.db")})
		require.ErrorIs(t, err, storage.ErrUnavailable)
	})
}

// TestOpen_ManyAtOnce opens one new file from many stores: one of them migrates, all work.
func TestOpen_ManyAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "q.db")
	var wg sync.WaitGroup
	errs := make([]error, 8)
	stores := make([]*sqlite.Store, len(errs))
	for i := range errs {
		wg.Go(func() { stores[i], errs[i] = sqlite.Open(t.Context(), sqlite.Config{Path: path}) })
	}
	wg.Wait()
	for i, err := range errs {
		require.NoError(t, err)
		require.NoError(t, stores[i].Ready(t.Context()))
	}
	for _, s := range stores {
		require.NoError(t, s.Close())
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1, "the last one to close moves the log into the file")
}

// TestD3_LockedFile: a write that cannot have the lock in time says so and changes nothing;
// afterwards everything goes on. A caller that leaves earlier does not wait.
func TestD3_LockedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "q.db")
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, BusyTimeout: 50 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	_, err = s.CreateQueue(t.Context(), "one", settings(), 0)
	require.NoError(t, err)

	release := hold(t, openOutside(t, path), storage.Ref{}, 0)
	_, err = s.CreateQueue(t.Context(), "two", settings(), 0)
	require.ErrorIs(t, err, storage.ErrUnavailable)
	_, err = s.GetQueue(t.Context(), "one")
	require.NoError(t, err, "readers go on")

	patient := openFile(t, path)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = patient.CreateQueue(ctx, "three", settings(), 0)
	require.ErrorIs(t, err, storage.ErrUnavailable)
	release()

	_, err = patient.CreateQueue(t.Context(), "three", settings(), 0)
	require.NoError(t, err)
	queues, err := s.ListQueues(t.Context(), "", 10)
	require.NoError(t, err)
	require.Len(t, queues, 2)
}

// TestD5_NeighbourGetsItsTurn: a store that writes without a break keeps no other process
// away from the file.
func TestD5_NeighbourGetsItsTurn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "q.db")
	greedy, modest := openFile(t, path), openFile(t, path)
	q, err := greedy.CreateQueue(t.Context(), "turns", settings(), 0)
	require.NoError(t, err)
	p := storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: q.ID, Payload: []byte("x")}}}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for ctx.Err() == nil {
				_, _ = greedy.Enqueue(ctx, p)
			}
		})
	}
	for range 50 {
		_, err := modest.Enqueue(t.Context(), p)
		require.NoError(t, err)
	}
	stop()
	wg.Wait()
}

// TestReady_FileIsGone: SQLite goes on in a file without a name, so Ready has to look.
func TestReady_FileIsGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "q.db")
	s := openFile(t, path)
	require.NoError(t, s.Ready(t.Context()))
	require.NoError(t, os.Rename(path, path+".away"))
	require.ErrorIs(t, s.Ready(t.Context()), storage.ErrUnavailable)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.ErrorIs(t, s.Ready(t.Context()), storage.ErrUnavailable)
	require.NoError(t, os.Rename(path+".away", path))
	require.NoError(t, s.Ready(t.Context()))
}

func TestClose(t *testing.T) {
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "q.db")})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "a second Close does nothing")
	_, err = s.GetQueue(t.Context(), "x")
	require.ErrorIs(t, err, storage.ErrUnavailable)
	require.ErrorIs(t, s.Listen(t.Context(), nil, nil), storage.ErrNotSupported)
}
