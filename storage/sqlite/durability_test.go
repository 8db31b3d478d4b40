package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/sqlite"
)

// TestD9_UnsafeDurabilityStopsTheStart names the setting, unless it is allowed.
func TestD9_UnsafeDurabilityStopsTheStart(t *testing.T) {
	for _, level := range []string{"NORMAL", "off"} {
		t.Run(level, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "q.db")
			_, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Synchronous: level})
			require.ErrorIs(t, err, storage.ErrUnsafeDurability)
			require.ErrorContains(t, err, "synchronous="+strings.ToUpper(level))

			s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Synchronous: level, AllowUnsafeDurability: true})
			require.NoError(t, err)
			require.Contains(t, s.Capabilities().Durability, "may be lost")
			require.NoError(t, s.Close())
		})
	}
	for _, level := range []string{"", "FULL", "extra"} {
		t.Run("safe "+level, func(t *testing.T) {
			s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "q.db"), Synchronous: level})
			require.NoError(t, err)
			require.Contains(t, s.Capabilities().Durability, "survives")
			require.NoError(t, s.Close())
		})
	}
}

const writerEnv = "QUEUEBOX_TEST_SQLITE_WRITER"

// runAsWriter is the child of TestD4: it enqueues, claims and completes for ever, and
// prints what was acknowledged.
func runAsWriter() bool {
	path := os.Getenv(writerEnv)
	if path == "" {
		return false
	}
	if err := writeForEver(path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

func writeForEver(path string) error {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		return err
	}
	q, err := s.GetQueue(ctx, "crash")
	if err != nil {
		return err
	}
	// Beside each other, so that they share transactions.
	failed := make(chan error)
	for range 4 {
		go func() { failed <- writeCycles(ctx, s, q) }()
	}
	return <-failed
}

func writeCycles(ctx context.Context, s *sqlite.Store, q storage.Queue) error {
	for {
		messages := make([]storage.NewMessage, 10)
		for i := range messages {
			messages[i] = storage.NewMessage{QueueID: q.ID, Payload: []byte("payload"), WireBytes: 100}
		}
		e, err := s.Enqueue(ctx, storage.EnqueueParams{Messages: messages})
		if err != nil {
			return err
		}
		for _, it := range e.Items {
			fmt.Println("enqueued", it.Ref.Position)
		}
		c, err := s.Claim(ctx, storage.ClaimParams{QueueID: q.ID, Calls: []storage.ClaimCall{{Max: 5, Lease: time.Hour}}})
		if err != nil {
			return err
		}
		var p storage.SettleParams
		for _, m := range c.Calls[0].Messages {
			fmt.Println("claimed", m.Message.Ref.Position)
			p.Items = append(p.Items, storage.Settlement{Ref: m.Message.Ref, Token: m.Token, Action: storage.ActionComplete})
		}
		r, err := s.Settle(ctx, p)
		if err != nil {
			return err
		}
		for i, it := range r.Items {
			if it.Status == storage.ItemApplied {
				fmt.Println("completed", p.Items[i].Ref.Position)
			}
		}
	}
}

// TestD4_E10_KilledWriterLosesNothing kills a writing process with SIGKILL, some times over
// one file, and finds everything that it had acknowledged.
func TestD4_E10_KilledWriterLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "q.db")
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	require.NoError(t, err)
	q, err := s.CreateQueue(t.Context(), "crash", settings(), 0)
	require.NoError(t, err)
	require.NoError(t, s.Close())

	acknowledged := map[string]map[int64]bool{"enqueued": {}, "claimed": {}, "completed": {}}
	for round := range 5 {
		killWriter(t, path, 150+97*round, acknowledged)
	}

	s = openFile(t, path)
	require.NotEmpty(t, acknowledged["completed"])
	for position := range acknowledged["enqueued"] {
		m, err := s.GetMessage(t.Context(), storage.Ref{QueueID: q.ID, Position: position}, true)
		require.NoError(t, err)
		require.Equal(t, "payload", string(m.Payload))
		if acknowledged["claimed"][position] {
			require.EqualValues(t, 1, m.Attempt)
		}
		if acknowledged["completed"][position] {
			require.Equal(t, storage.StateCompleted, m.State)
		}
	}
}

// killWriter lets a writer acknowledge some lines and kills it.
func killWriter(t *testing.T, path string, lines int, acknowledged map[string]map[int64]bool) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), writerEnv+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	sc := bufio.NewScanner(out)
	for n := 0; sc.Scan(); n++ {
		if n == lines {
			require.NoError(t, cmd.Process.Kill())
		}
		what, number, ok := strings.Cut(sc.Text(), " ")
		position, err := strconv.ParseInt(number, 10, 64)
		if !ok || err != nil {
			continue // the line that the kill cut
		}
		acknowledged[what][position] = true
	}
	require.Error(t, cmd.Wait(), "the writer was killed")
}
