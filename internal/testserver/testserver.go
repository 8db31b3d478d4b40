// Package testserver serves gRPC from within a test, as the program does: for tests of what
// speaks to a server. Tests of whole processes are in package blackbox.
package testserver

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/server"
)

// Anywhere is the address of a free port.
const Anywhere = "127.0.0.1:0"

// Serve starts a server at an address and returns the address, for [Anywhere] has none yet.
// stop ends the server as SIGTERM would and waits for it; the end of the test does so by itself.
func Serve(t *testing.T, config server.Config, at string) (addr string, stop func()) {
	t.Helper()
	s, err := server.New(config)
	require.NoError(t, err)
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", at)
	require.NoError(t, err)
	// The context of the test ends before its cleanups, which may still need the server.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, lis) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	return lis.Addr().String(), stop
}
