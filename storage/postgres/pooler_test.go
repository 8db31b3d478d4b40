package postgres_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/postgres"
	"github.com/queuebox/queuebox/storage/storagetest"
)

// W6: everything works without a session, with the settings of each transaction inside it.
func TestW6TransactionModeWithoutPooler(t *testing.T) {
	d := newDatabase(t, false)
	story(t, open(t, postgres.Config{URL: d.url + "&pooler=transaction"}), "sessionless")
}

// pgbouncer starts a transaction-mode pooler with few server connections before the
// database of d, and returns the URL of it.
func pgbouncer(t *testing.T, d *database) string {
	t.Helper()
	binary, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Skip("SKIPPED: pgbouncer is not installed, so the transaction-mode pooler is not tested")
	}
	u, err := url.Parse(d.url)
	require.NoError(t, err)
	dir := t.TempDir()
	if os.Getuid() == 0 {
		// It refuses root, and drops to this user itself.
		for at := dir; at != os.TempDir() && len(at) > 1; at = filepath.Dir(at) {
			_ = os.Chmod(at, 0o755)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	require.NoError(t, l.Close())
	config := filepath.Join(dir, "pgbouncer.ini")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `[databases]
* = host=%s port=%s user=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
`, u.Hostname(), u.Port(), u.User.Username(), port), 0o644))
	args := []string{config}
	if os.Getuid() == 0 {
		args = []string{"-u", "nobody", config}
	}
	command := exec.CommandContext(t.Context(), binary, args...)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, 20*time.Second, 20*time.Millisecond, "pgbouncer does not listen")
	u.Host = address
	q := u.Query()
	q.Set("pooler", "transaction")
	u.RawQuery = q.Encode()
	return u.String()
}

// W6: behind a real pooler, with more clients than server connections.
func TestW6PgBouncer(t *testing.T) {
	d := newDatabase(t, false)
	s := open(t, postgres.Config{URL: pgbouncer(t, d), MaxConns: 20})
	const stories = 8
	var removed atomic.Int64
	t.Run("at once", func(t *testing.T) {
		for i := range stories {
			name := fmt.Sprintf("pooled %d", i)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				removed.Add(int64(storyBeside(t, s, name)))
			})
		}
	})
	// A key that another story's sweep was just looking at is left for the next one.
	for after := int64(0); ; {
		swept, err := s.SweepKeys(t.Context(), storage.SweepKeysParams{After: after, Limit: 100})
		require.NoError(t, err)
		removed.Add(int64(swept.Removed))
		if after = swept.Next; after == 0 {
			break
		}
	}
	require.EqualValues(t, stories, removed.Load(), "the key of every story is gone, once")
	// Callers that leave in the middle of their statement are the pooler's hardest time.
	q := queue(t, s, "leaving")
	enqueue(t, s, q.ID, 50)
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*200*time.Microsecond)
			defer cancel()
			_, _ = s.Claim(ctx, storage.ClaimParams{QueueID: q.ID, Calls: []storage.ClaimCall{{Max: 1, Lease: time.Hour}}})
		})
	}
	wg.Wait()
	require.NoError(t, s.Ready(t.Context()))
	story(t, s, "after them")
	// Migrate works through it too.
	_, _, err := postgres.Migrate(t.Context(), postgres.Config{URL: pgbouncer(t, d)})
	require.NoError(t, err)
}

// TestConformancePgBouncer runs the whole suite once more behind the pooler, where
// QUEUEBOX_TEST_POOLER_SUITE asks for it: it takes as long as the first time.
func TestConformancePgBouncer(t *testing.T) {
	if os.Getenv("QUEUEBOX_TEST_POOLER_SUITE") == "" {
		t.Skip("SKIPPED: QUEUEBOX_TEST_POOLER_SUITE is not set")
	}
	storagetest.Run(t, storagetest.Backend{
		New: func(t *testing.T, clock bool) *storagetest.Instance {
			t.Helper()
			d := newDatabase(t, clock)
			d.config.URL, d.config.ListenURL, d.config.Migrate = pgbouncer(t, d), d.url, false
			d.store = open(t, d.config)
			return d.instance(clock)
		},
	})
}
