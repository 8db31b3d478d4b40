package dispatch

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRunning: it is waited for while more begins and ends, which a sync.WaitGroup does not allow.
func TestRunning(t *testing.T) {
	t.Parallel()
	var r running
	r.wait(t.Context()) // nothing has begun
	r.begin()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	r.wait(ended)
	done := make(chan struct{})
	go func() {
		r.wait(t.Context())
		close(done)
	}()
	r.begin()
	r.end()
	require.Empty(t, done)
	r.end()
	<-done

	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10_000 {
				r.begin()
				r.end()
			}
		})
		wg.Go(func() {
			for range 10_000 {
				r.wait(t.Context())
			}
		})
	}
	wg.Wait()
	r.wait(t.Context())
}
