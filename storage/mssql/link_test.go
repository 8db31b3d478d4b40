package mssql

import (
	"context"
	"net"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage/mssql/internal/faketds"
)

// A connection is cut off where its request goes on for long after the ctx, and never else.
func TestWatch(t *testing.T) {
	watched := func(t *testing.T, do func(cancel, done func())) (cut time.Duration) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			l := &link{cut: func() { cut = time.Since(begun) }}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			do(cancel, l.watch(ctx))
			time.Sleep(time.Hour)
		})
		return cut
	}
	require.Equal(t, cancelGrace, watched(t, func(cancel, _ func()) { cancel() }))
	require.Zero(t, watched(t, func(cancel, done func()) {
		done()
		cancel()
	}), "the request has ended before its ctx")
	require.Zero(t, watched(t, func(cancel, done func()) {
		cancel()
		time.Sleep(cancelGrace - time.Nanosecond)
		done()
		done() // rows may be closed twice
	}), "the cancel was confirmed in time")
}

// Of the connections that were dialed for one login the driver uses one and closes the others.
func TestDialer_OneOfThemIsAlive(t *testing.T) {
	s := faketds.Start(t, nil)
	target, err := parseURL(s.URL())
	require.NoError(t, err)
	address := net.JoinHostPort(target.config.Host, strconv.FormatUint(target.config.Port, 10))
	d := &dialer{}
	var conns []net.Conn
	for range 3 {
		conn, err := d.DialContext(t.Context(), "tcp", address)
		require.NoError(t, err)
		conns = append(conns, conn)
	}
	require.True(t, d.alive())
	require.NoError(t, conns[0].Close())
	require.NoError(t, conns[2].Close())
	require.True(t, d.alive())
	require.NoError(t, conns[1].Close())
	require.False(t, d.alive())
}
