package server

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage/faults"
)

// TestT3CreditGivenOneByOneIsClaimedTogether: a worker asks for many messages in as many frames.
// What it has asked for by the time of a claim is claimed by that one, and none waits until the
// lease of another has run out, though the stream has more of them in hand than one that only
// renews may show.
func TestT3CreditGivenOneByOneIsClaimedTogether(t *testing.T) {
	const n = maxWatched + 2000
	h := serve(t)
	for left := n; left > 0; left -= 1000 {
		h.enqueueMany(min(left, 1000))
	}
	var claims atomic.Int64
	h.faults.Inject(faults.Claim, faults.Fault{Strike: func() { claims.Add(1) }})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // a busy machine takes more than one
	defer cancel()
	w := h.work(ctx, 0, func(s *queueboxv1.WorkStart) {
		s.ReleaseOnClose = true
		s.LeaseMs = time.Hour.Milliseconds()
	})
	go func() {
		for i := range n {
			if w.Send(&queueboxv1.WorkRequest{Sequence: int64(i + 1), Credit: 1}) != nil {
				return
			}
		}
	}()
	delivered, answered := 0, 0
	for delivered < n || answered < n {
		out, err := w.Recv()
		require.NoError(t, err)
		if out.GetSequence() > 0 {
			answered++
		}
		delivered += len(out.GetDeliveries())
	}
	require.Equal(t, n, delivered)
	require.Less(t, claims.Load(), int64(n/20))
}
