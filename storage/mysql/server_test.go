package mysql_test

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/internal/testdb"
	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/mysql"
)

// private is a server of a test's own, which can be started with any option, stopped and
// killed.
type private struct {
	dir  string
	port int
	cmd  *exec.Cmd
	done chan struct{}
}

// newPrivate makes the data of a server. It needs the binary of MariaDB.
func newPrivate(t *testing.T) *private {
	t.Helper()
	bin := os.Getenv("QUEUEBOX_TEST_MARIADBD")
	if bin == "" {
		if testdb.Required("mysql") && os.Getenv(testdb.EnvMySQL) == "" {
			t.Fatal("mysql is required, but QUEUEBOX_TEST_MARIADBD is not set")
		}
		t.Skip("SKIPPED without QUEUEBOX_TEST_MARIADBD (run the tests under scripts/with-mariadb)")
	}
	install, err := exec.LookPath("mariadb-install-db")
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "queuebox-mariadb.") //nolint:usetesting // The user of the server may not enter a directory of t.
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	p := &private{dir: dir}
	if os.Geteuid() == 0 {
		u, err := user.Lookup("mysql")
		require.NoError(t, err)
		uid, err := strconv.Atoi(u.Uid)
		require.NoError(t, err)
		gid, err := strconv.Atoi(u.Gid)
		require.NoError(t, err)
		require.NoError(t, os.Chown(dir, uid, gid))
	}
	out, err := exec.CommandContext(t.Context(), install, "--no-defaults", "--user="+p.user(t), "--datadir="+filepath.Join(dir, "data"),
		"--tmpdir="+dir, "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve").CombinedOutput()
	require.NoError(t, err, string(out))
	return p
}

func (p *private) user(t *testing.T) string {
	t.Helper()
	if os.Geteuid() == 0 {
		return "mysql"
	}
	u, err := user.Current()
	require.NoError(t, err)
	return u.Username
}

// start starts the server, on the port that it had before.
func (p *private) start(t *testing.T, options ...string) {
	t.Helper()
	if p.port == 0 {
		lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		p.port = lis.Addr().(*net.TCPAddr).Port
		require.NoError(t, lis.Close())
	}
	args := append([]string{
		"--no-defaults", "--user=" + p.user(t), "--datadir=" + filepath.Join(p.dir, "data"), "--bind-address=127.0.0.1",
		"--port=" + strconv.Itoa(p.port), "--socket=" + filepath.Join(p.dir, "socket"), "--pid-file=" + filepath.Join(p.dir, "pid"),
		"--tmpdir=" + p.dir, "--skip-name-resolve", "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M", "--performance-schema=OFF",
	}, options...)
	log, err := os.Create(filepath.Join(p.dir, "server.log"))
	require.NoError(t, err)
	p.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), os.Getenv("QUEUEBOX_TEST_MARIADBD"), args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	require.NoError(t, p.cmd.Start())
	require.NoError(t, log.Close())
	done := make(chan struct{})
	p.done = done
	go func(cmd *exec.Cmd) {
		defer close(done)
		_ = cmd.Wait() // A killed server has no good end.
	}(p.cmd)
	t.Cleanup(func() { p.end(syscall.SIGKILL) })
	db := server(t, p.url("mysql"))
	require.Eventually(t, func() bool {
		select {
		case <-done:
			text, _ := os.ReadFile(filepath.Join(p.dir, "server.log"))
			require.FailNow(t, "the server does not start", string(text))
		default:
		}
		return db.PingContext(t.Context()) == nil
	}, time.Minute, 20*time.Millisecond, "the server starts")
	require.NoError(t, db.Close())
}

// end stops or kills the server, and waits for its end.
func (p *private) end(how syscall.Signal) {
	_ = p.cmd.Process.Signal(how)
	<-p.done
}

func (p *private) url(database string) string {
	u := url.URL{
		Scheme: "mysql", User: url.User("root"), Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)), Path: "/" + database, RawQuery: "tls=false",
	}
	return u.String()
}

// set sets global variables.
func (p *private) set(t *testing.T, text string) {
	t.Helper()
	db := server(t, p.url("mysql"))
	_, err := db.ExecContext(t.Context(), "SET GLOBAL "+text)
	require.NoError(t, err)
	require.NoError(t, db.Close())
}

// D9 and the other settings that Open looks at, on a real server: what it says of itself is
// what judge knows.
func TestD9SettingsOfARealServer(t *testing.T) {
	t.Parallel()
	p := newPrivate(t)
	p.start(t, "--log-bin=binlog", "--server-id=1", "--sync-binlog=1", "--binlog-format=ROW")
	c := mysql.Config{URL: p.url("queuebox"), Migrate: true}
	require.Contains(t, open(t, c).Capabilities().Durability, "durable")
	for _, s := range []struct{ set, back, name string }{
		{"innodb_flush_log_at_trx_commit = 2", "innodb_flush_log_at_trx_commit = 1", "innodb_flush_log_at_trx_commit is 2"},
		{"sync_binlog = 0", "sync_binlog = 1", "sync_binlog is 0"},
	} {
		p.set(t, s.set)
		_, err := mysql.Open(t.Context(), c)
		require.ErrorIs(t, err, storage.ErrUnsafeDurability)
		require.ErrorContains(t, err, s.name)
		unsafe := c
		unsafe.AllowUnsafeDurability = true
		require.Contains(t, open(t, unsafe).Capabilities().Durability, "UNSAFE")
		p.set(t, s.back)
	}
	for _, s := range []struct{ set, back, want string }{
		{"read_only = ON", "read_only = OFF", "read_only is ON"},
		{"binlog_format = 'STATEMENT'", "binlog_format = 'MIXED'", "binlog_format is STATEMENT"},
		{"max_allowed_packet = 1048576", "max_allowed_packet = 16777216", "max_allowed_packet is 1048576"},
	} {
		p.set(t, s.set)
		_, err := mysql.Open(t.Context(), mysql.Config{URL: c.URL})
		require.ErrorContains(t, err, s.want)
		p.set(t, s.back)
	}
	open(t, c)
	p.end(syscall.SIGTERM)
	p.start(t, "--sysdate-is-now", "--skip-innodb-doublewrite")
	_, err := mysql.Open(t.Context(), mysql.Config{URL: c.URL, AllowUnsafeDurability: true})
	require.ErrorContains(t, err, "sysdate-is-now")
	p.end(syscall.SIGTERM)
	p.start(t, "--skip-innodb-doublewrite")
	_, err = mysql.Open(t.Context(), mysql.Config{URL: c.URL})
	require.ErrorIs(t, err, storage.ErrUnsafeDurability)
	require.ErrorContains(t, err, "innodb_doublewrite is OFF")
}

// D1: nothing of what a server has as its defaults matters.
func TestD1DefaultsOfTheServerDoNotMatter(t *testing.T) {
	t.Parallel()
	p := newPrivate(t)
	p.start(t, "--transaction-isolation=SERIALIZABLE", "--sql-mode=ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES,NO_AUTO_VALUE_ON_ZERO",
		"--default-time-zone=+05:45", "--autocommit=0", "--completion-type=CHAIN", "--auto-increment-increment=7", "--auto-increment-offset=3",
		"--character-set-server=latin1", "--collation-server=latin1_german2_ci", "--skip-character-set-client-handshake",
		"--default-storage-engine=Aria", "--innodb-default-row-format=compact", "--innodb-rollback-on-timeout=ON",
		"--innodb-lock-wait-timeout=50", "--transaction-read-only=1", "--innodb-autoinc-lock-mode=2",
		"--log-bin=binlog", "--server-id=1", "--sync-binlog=1", "--binlog-format=MIXED", "--lower-case-table-names=1",
		"--init-connect=SET sql_select_limit = 1, unique_checks = 0, sql_safe_updates = 1")
	// What a server has a session do at its start, it has no superuser do.
	_, _, err := mysql.Migrate(t.Context(), mysql.Config{URL: p.url("queuebox")})
	require.NoError(t, err)
	var engine string
	require.NoError(t, server(t, p.url("queuebox")).QueryRowContext(t.Context(),
		"SELECT engine FROM information_schema.tables WHERE table_schema = 'queuebox' AND table_name = 'queuebox_version'").Scan(&engine))
	require.Equal(t, "InnoDB", engine, "also of the table that we do not make ourselves")
	s := open(t, mysql.Config{URL: role(t, p.url("queuebox"), grants)})
	before := time.Now().Add(-time.Minute)
	now, err := s.Now(t.Context())
	require.NoError(t, err)
	require.WithinRange(t, now, before, before.Add(2*time.Minute))
	story(t, s, "defaults")
	shared(t, s, "level")
}

// E8, C13: the largest payload that the store names passes, whatever its bytes become in a
// statement, as the result of a completion too.
func TestE8LargestPayload(t *testing.T) {
	t.Parallel()
	p := newPrivate(t)
	p.start(t) // max_allowed_packet is the default of the database
	s := open(t, mysql.Config{URL: p.url("queuebox"), Migrate: true})
	most := s.Capabilities().MaxPayload
	require.Greater(t, most, int64(7<<20))
	q := queue(t, s, "large")
	payload := bytes.Repeat([]byte("'"), int(most))
	enqueue(t, s, q.ID, 1, func(_ int, m *storage.NewMessage) { m.Payload = payload })
	claimed := claim(t, s, q.ID, 1, time.Hour)
	require.True(t, bytes.Equal(payload, claimed[0].Message.Payload))
	done := completions(claimed)
	done[0].Result = payload
	require.Equal(t, storage.ItemApplied, settle(t, s, done...)[0].Status)
	got, err := s.GetMessage(t.Context(), claimed[0].Message.Ref, true)
	require.NoError(t, err)
	require.True(t, bytes.Equal(payload, got.Result))
}

// D1, S13: a limit for the time of statements, which the server has for others, ends none of
// ours: a settlement waits for a row that somebody holds, longer than that.
func TestD1S13StatementTimeOfTheServer(t *testing.T) {
	t.Parallel()
	p := newPrivate(t)
	p.start(t)
	c := mysql.Config{URL: p.url("queuebox"), Migrate: true}
	_, _, err := mysql.Migrate(t.Context(), c)
	require.NoError(t, err)
	holder, err := server(t, c.URL).Conn(t.Context()) // before the limit is there
	require.NoError(t, err)
	defer func() { require.NoError(t, holder.Close()) }()
	p.set(t, "max_statement_time = 0.2")
	s := open(t, mysql.Config{URL: c.URL})
	q := queue(t, s, "limited")
	enqueue(t, s, q.ID, 1)
	claimed := claim(t, s, q.ID, 1, time.Hour)
	for _, text := range []string{"START TRANSACTION", "UPDATE queuebox.message SET worker_id = worker_id"} {
		_, err = holder.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	released := make(chan error, 1)
	time.AfterFunc(700*time.Millisecond, func() {
		_, err := holder.ExecContext(context.WithoutCancel(t.Context()), "ROLLBACK")
		released <- err
	})
	require.Equal(t, storage.ItemApplied, settle(t, s, completions(claimed)...)[0].Status)
	require.NoError(t, <-released)
}

// D3, E10: a server that is killed and comes back has everything, leases count on, and the
// store finds it again.
func TestD3E10TheServerIsKilledAndComesBack(t *testing.T) {
	t.Parallel()
	p := newPrivate(t)
	p.start(t)
	s := open(t, mysql.Config{URL: p.url("queuebox"), Migrate: true})
	q := queue(t, s, "killed")
	items := enqueue(t, s, q.ID, 3)
	claimed := claim(t, s, q.ID, 1, time.Hour)
	p.end(syscall.SIGKILL)
	_, err := s.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: q.ID}}})
	require.ErrorIs(t, err, storage.ErrUnavailable, "nothing was sent, so nothing is unknown")
	require.ErrorIs(t, s.Ready(t.Context()), storage.ErrUnavailable)
	p.start(t)
	require.Eventually(t, func() bool { return s.Ready(t.Context()) == nil }, soon, pollEvery)
	require.Equal(t, storage.ItemApplied, settle(t, s, completions(claimed)...)[0].Status)
	again := claim(t, s, q.ID, 10, time.Hour)
	require.Len(t, again, 2)
	require.Equal(t, items[1].Ref, again[0].Message.Ref)
	story(t, s, "after")
}

// A payload that is larger than its share of a statement once it is escaped goes another way;
// what the server does not take at all is told with the name of the setting.
func TestPayloadsAndTheLargestPacket(t *testing.T) {
	t.Parallel()
	p := newPrivate(t)
	p.start(t, "--max-allowed-packet=16M", "--innodb-log-file-size=96M")
	s := open(t, mysql.Config{URL: p.url("queuebox"), Migrate: true})
	q := queue(t, s, "large")
	for name, change := range map[string]func(m *storage.NewMessage){
		"plain": func(*storage.NewMessage) {},
		"keyed": func(m *storage.NewMessage) { m.IdempotencyKey, m.OrderingKey = "key", "key" },
	} {
		whole := bytes.Repeat([]byte{'\'', 0, '\\', '"', 0xff, '\n', 0x1a, 'x'}, 9<<20/8)
		m := storage.NewMessage{QueueID: q.ID, Payload: whole, WireBytes: int64(len(whole))}
		change(&m)
		_, err := s.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{m}})
		require.NoError(t, err, name)
		claimed := claim(t, s, q.ID, 1, time.Hour)
		require.Len(t, claimed, 1)
		require.True(t, bytes.Equal(whole, claimed[0].Message.Payload), name)
		st := completions(claimed)
		st[0].Result = whole[:7<<20] // hexadecimal on its way
		require.Equal(t, storage.ItemApplied, settle(t, s, st...)[0].Status)
		kept, err := s.GetMessage(t.Context(), claimed[0].Message.Ref, true)
		require.NoError(t, err)
		require.True(t, bytes.Equal(st[0].Result, kept.Result), name)

		m.Payload = make([]byte, 17<<20)
		if m.IdempotencyKey != "" {
			m.IdempotencyKey = "another"
		}
		_, err = s.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{m}})
		require.ErrorContains(t, err, "max_allowed_packet", name)
		require.NotErrorIs(t, err, storage.ErrUnavailable, "it never will")
		require.NotErrorIs(t, err, storage.ErrOutcomeUnknown)
		require.Empty(t, claim(t, s, q.ID, 1, time.Hour))
	}
	// Together they are more than a statement holds.
	enqueue(t, s, q.ID, 6)
	all := completions(claim(t, s, q.ID, 6, time.Hour))
	for i := range all {
		all[i].Result = bytes.Repeat([]byte{byte(i)}, 3<<20)
	}
	for i, item := range settle(t, s, all...) {
		require.Equal(t, storage.ItemApplied, item.Status)
		kept, err := s.GetMessage(t.Context(), all[i].Ref, true)
		require.NoError(t, err)
		require.True(t, bytes.Equal(all[i].Result, kept.Result))
	}
}
