package blackbox

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// workerOf names the server that a worker process works for: the tests run themselves once
// more, as a process that can be killed.
const workerOf = "BLACKBOX_WORKER_OF"

// delivery is what a worker process says of a message that it has got.
type delivery struct {
	ID      string
	Payload string
	Attempt int32
}

// workerProcess takes one message, says so, and works on it until it is killed. It renews
// nothing.
func workerProcess(addr string) int {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	worker, out := queueboxv1.NewWorkerServiceClient(conn), &queueboxv1.ClaimResponse{}
	// The lease of the worker before was granted by another server, which may be gone: W7 gives this
	// one 30 seconds to find its end.
	for err == nil && len(out.GetMessages()) == 0 {
		out, err = worker.Claim(ctx, &queueboxv1.ClaimRequest{Queue: "q", LeaseMs: 400, WaitMs: 20_000, WorkerId: fmt.Sprint(os.Getpid())})
	}
	if err != nil || len(out.GetMessages()) != 1 {
		fmt.Fprintln(os.Stderr, "claim:", out, err)
		return 1
	}
	m := out.GetMessages()[0].GetMessage()
	if json.NewEncoder(os.Stdout).Encode(delivery{m.GetMessageId(), string(m.GetPayload()), m.GetAttempt()}) != nil {
		return 1
	}
	<-ctx.Done()
	return 1
}

// killedAtWork starts a worker process, waits for its delivery, and kills it with SIGKILL.
func killedAtWork(t *testing.T, addr string) delivery {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), workerOf+"="+addr)
	cmd.Stderr = t.Output()
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait(), "it was killed")
	require.NoError(t, err)
	var d delivery
	require.NoError(t, json.Unmarshal(line, &d))
	return d
}

// TestC18O9APoisonMessageThatKillsItsWorkers: each worker that gets it is killed with SIGKILL.
// After exactly max_attempts deliveries it is dead with nobody calling anything, and its key
// goes on.
func TestC18O9APoisonMessageThatKillsItsWorkers(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		var servers []*Server
		for range db.Servers {
			servers = append(servers, db.Start(t, shortLeases))
		}
		c := servers[0].Client(t)
		const most = 3
		poison, err := c.Enqueue(within(t), &queueboxv1.EnqueueRequest{Queue: "q", OrderingKey: "key", MaxAttempts: most, Payload: []byte("poison")})
		require.NoError(t, err)
		next := enqueueOrdered(t, c, "key", "next")
		for attempt := int32(1); attempt <= most; attempt++ {
			d := killedAtWork(t, servers[int(attempt)%len(servers)].Addr)
			require.Equal(t, delivery{poison.GetMessageId(), "poison", attempt}, d)
		}
		dead := finished(t, c, poison.GetMessageId(), queueboxv1.MessageState_MESSAGE_STATE_DEAD)
		require.Equal(t, queueboxv1.DeadReason_DEAD_REASON_LEASE_EXPIRED, dead.GetDeadReason())
		require.EqualValues(t, most, dead.GetAttempt())
		require.EqualValues(t, 0, message(t, c, "q", next).GetAttempt(), "the key was held until then")
		got := claimWith(t, servers[len(servers)-1].Client(t), &queueboxv1.ClaimRequest{Queue: "q", MaxMessages: 10, LeaseMs: 60_000}).GetMessages()
		require.Len(t, got, 1, "the key has gone on by itself")
		require.Equal(t, next, got[0].GetMessage().GetMessageId())
	})
}

// TestW1APoisonMessageWakesTheWaiterOfItsKey: the sweep that ends a message wakes who waits for
// the next one, on every server.
func TestW1APoisonMessageWakesTheWaiterOfItsKey(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		a, b := everyServer(t, db, shortLeases)
		_, err := a.Enqueue(within(t), &queueboxv1.EnqueueRequest{Queue: "q", OrderingKey: "key", MaxAttempts: 1})
		require.NoError(t, err)
		next := enqueueOrdered(t, a, "key", "next")
		claimOne(t, a, "q", 300*time.Millisecond)
		got := claimSoon(t, b, "q", time.Minute)
		require.Equal(t, next, got.GetMessage().GetMessageId())
	})
}
