package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/internal/proxy"
	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/postgres"
)

// logText is a log that may be read while it is written.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}

func (l *logText) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// What kept a connection from being made is told by the types of the errors alone.
func TestConnectErrorsSayWhyAndNoSecret(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for want, err := range map[string]error{
		"connection refused":          dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)),
		"no such host":                dial(&net.DNSError{Err: "no such host", Name: "db-hunter2", IsNotFound: true}),
		"timeout of the name service": &net.DNSError{Err: "i/o timeout", Name: "db-hunter2", IsTimeout: true},
		"the name service failed":     &net.DNSError{Err: "server misbehaving", Name: "db-hunter2", IsTemporary: true},
		"timeout":                     dial(os.ErrDeadlineExceeded),
		"timeout: context deadline":   dial(context.DeadlineExceeded),
		"no route to host":            dial(os.NewSyscallError("connect", syscall.EHOSTUNREACH)),
		"closed by the other side":    io.ErrUnexpectedEOF,
		"not made":                    errors.New("hunter2"),
	} {
		err := fmt.Errorf("user=u password=hunter2: %w", errors.Join(errors.New("hunter2"), err))
		got := postgres.ConnectCause(err)
		require.ErrorContains(t, got, "connection not made")
		require.ErrorContains(t, got, want)
		require.NotContains(t, got.Error(), "hunter2")
	}
	_, err := postgres.Open(t.Context(), postgres.Config{URL: "postgres://u:hunter2@127.0.0.1:1/q"})
	require.ErrorIs(t, err, storage.ErrUnavailable)
	require.ErrorContains(t, err, "connection not made: connection refused")
	require.NotContains(t, err.Error(), "hunter2")
}

func TestARoleWithoutRightsIsToldWhatToDo(t *testing.T) {
	d := newDatabase(t, false)
	u := d.role(t, "")
	for _, migrate := range []bool{false, true} {
		_, err := postgres.Open(t.Context(), postgres.Config{URL: u, Migrate: migrate})
		require.ErrorContains(t, err, "SQLSTATE 42501")
		require.ErrorContains(t, err, "docs/operations.md")
		require.NotContains(t, err.Error(), "not-a-secret")
	}
}

func TestAnEmptyDatabaseIsToldFromAnOtherVersion(t *testing.T) {
	d := newDatabase(t, false)
	d.exec(t, "UPDATE queuebox.goose_db_version SET version_id = 99 WHERE version_id = 1")
	_, err := postgres.Open(t.Context(), postgres.Config{URL: d.url})
	require.ErrorIs(t, err, storage.ErrSchema)
	require.NotErrorIs(t, err, postgres.ErrNoSchema)
	d.exec(t, "DROP SCHEMA queuebox CASCADE")
	_, err = postgres.Open(t.Context(), postgres.Config{URL: d.url})
	require.ErrorIs(t, err, postgres.ErrNoSchema)
	require.ErrorIs(t, err, storage.ErrSchema)
}

func TestARoleThatMayNotMakePartitionsIsToldOnce(t *testing.T) {
	d := newDatabase(t, false)
	for _, p := range d.lines(t, `SELECT inhrelid::regclass::text FROM pg_inherits
		WHERE inhparent = 'queuebox.completed'::regclass AND inhrelid::regclass::text NOT LIKE '%default'`) {
		d.exec(t, "DROP TABLE "+p)
	}
	var log logText
	s := open(t, postgres.Config{URL: d.role(t, grants), Logger: log.logger()})
	require.NoError(t, s.Maintain(t.Context()))
	require.NoError(t, s.Maintain(t.Context()))
	require.Equal(t, 1, log.count("level=WARN"))
	require.Equal(t, 1, log.count("run 'queuebox-server migrate' daily"))
}

// W5: an outage is told when it begins and when it ends, not at every try.
func TestW5AnOutageOfNotificationsIsToldOnceAndSoIsItsEnd(t *testing.T) {
	d := newDatabase(t, false)
	u, err := url.Parse(d.url)
	require.NoError(t, err)
	p := proxy.New(t, u.Host)
	by, err := p.URL(d.url)
	require.NoError(t, err)
	var log logText
	l := listen(t, open(t, postgres.Config{URL: by, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}))
	require.True(t, await(t, l.ups, "up"))
	require.Zero(t, log.count("notification connection"), "the first connection is no news")
	p.Refuse(true)
	p.Cut()
	require.False(t, await(t, l.ups, "down"))
	require.Eventually(t, func() bool { return log.count("level=DEBUG msg=\"notification connection lost\"") >= 3 },
		20*time.Second, 10*time.Millisecond, "it is tried again")
	p.Refuse(false)
	require.True(t, await(t, l.ups, "up again"))
	require.Equal(t, 1, log.count("level=WARN"))
	require.Equal(t, 1, log.count(`level=INFO msg="notification connection restored"`))
}
