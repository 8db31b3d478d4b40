package cost

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

const (
	waiting   = 10_000
	streams   = 1000
	mostBytes = 250_000_000
)

// TestMemoryOfWaitersAndStreams opens 1,000 Heartbeat streams, each of which has renewed a
// lease, and lets 10,000 claims wait: 1,000 of them are Work streams, the others calls. The
// server process may take 250 MB for it, whatever it took on the way there.
func TestMemoryOfWaitersAndStreams(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector takes memory of its own; 'make test' runs this without it")
	}
	p := start(t, roleServer, 0)
	conns := dial(t, p.GRPC)
	idle := p.usage(t, true)
	held := hold(t, conns[0], streams)
	for i := range streams {
		stream, err := queueboxv1.NewWorkerServiceClient(conns[i%len(conns)]).Heartbeat(t.Context())
		require.NoError(t, err)
		require.NoError(t, stream.Send(&queueboxv1.HeartbeatRequest{Sequence: 1, Queue: queueName, WorkerId: "w", Renewals: held[i : i+1]}))
		resp, err := stream.Recv()
		require.NoError(t, err)
		require.Nil(t, resp.GetResults()[0].GetError())
	}
	open := p.usage(t, true)
	for i := range streams {
		stream, err := queueboxv1.NewWorkerServiceClient(conns[i%len(conns)]).Work(t.Context())
		require.NoError(t, err)
		require.NoError(t, stream.Send(&queueboxv1.WorkRequest{
			Start: &queueboxv1.WorkStart{Queue: "empty", WorkerId: "w"}, Credit: 100,
		}))
	}
	require.Eventually(t, func() bool { return p.waiters(t) == streams }, 15*time.Second, 50*time.Millisecond)
	work := p.usage(t, true)

	var wg sync.WaitGroup
	ctx, leave := context.WithCancel(t.Context())
	defer wg.Wait()
	defer leave()
	for i := range waiting - streams {
		wg.Go(func() {
			_, err := queueboxv1.NewWorkerServiceClient(conns[i%len(conns)]).Claim(ctx, &queueboxv1.ClaimRequest{
				Queue: "empty", WorkerId: "w", WaitMs: 20_000,
			})
			if err != nil && status.Code(err) != codes.Canceled && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	require.Eventually(t, func() bool { return p.waiters(t) == waiting }, 15*time.Second, 50*time.Millisecond)
	full := p.usage(t, false)
	p.heap(t, t.Name())
	t.Logf("resident: idle %d MiB, with %d Heartbeat streams %d MiB, with as many Work streams too %d MiB, with %d waiting claims in all %d MiB (heap %d MiB, stacks %d MiB)",
		idle.RSS>>20, streams, open.RSS>>20, work.RSS>>20, waiting, full.RSS>>20, full.Heap>>20, full.Stacks>>20)
	require.Less(t, full.RSS, int64(mostBytes))
}
