package mssql

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
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
