//go:build unix

// Package python holds the Python stubs and the worker written on them; what is Go here are
// the tests, which run that worker against the real server.
package python

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/blackbox"
	"github.com/queuebox/queuebox/internal/pythontest"
)

func TestMain(m *testing.M) { os.Exit(blackbox.Main(m)) }

// The stubs are those that the pinned compiler makes of proto/. Without that compiler the
// test is skipped out loud; CI has it.
func TestStubsAreCurrent(t *testing.T) {
	for _, tool := range []string{"protoc", "grpc_python_plugin"} {
		if _, err := exec.LookPath(tool); err != nil {
			pythontest.Missing(t, "no "+tool+" here: apt-get install protobuf-compiler libprotobuf-dev protobuf-compiler-grpc")
		}
	}
	out, err := exec.CommandContext(t.Context(), "../../scripts/generate-python", "--check").CombinedOutput()
	if err != nil && strings.Contains(string(out), "needs protoc 3.21") {
		pythontest.Missing(t, string(out))
	}
	require.NoError(t, err, "%s", out)
}

// A handler that takes longer than its lease keeps its claim, since the worker renews (K1).
func TestSlowHandlerKeepsItsClaim(t *testing.T) {
	f := newFixture(t)
	require.Equal(t, []string{"claimed, attempt 1", "completed attempt 1"}, f.run("slow"))
	f.requireMessage(queueboxv1.MessageState_MESSAGE_STATE_COMPLETED, 1, "")
}

// The first answer of every call is lost: the worker repeats the claim by its claim_id and
// gets the same lease (C14), renews again, and repeats the settlement with the same token
// (S5). The attempt is still the first, and the message is completed once.
func TestLostAnswersAreRepeated(t *testing.T) {
	f := newFixture(t)
	lines := f.run("lossy")
	require.Subset(t, lines, []string{"answer lost Claim", "answer lost BatchRenew", "answer lost BatchSettle"})
	require.Contains(t, lines, "claimed, attempt 1")
	require.Equal(t, "completed attempt 1", lines[len(lines)-1])
	f.requireMessage(queueboxv1.MessageState_MESSAGE_STATE_COMPLETED, 1, "")
}

// A handler that raises Reject dead-letters its message with the code.
func TestRejectDeadLetters(t *testing.T) {
	f := newFixture(t)
	require.Equal(t, []string{"claimed, attempt 1", "dead-letter attempt 1 no_use: nobody can use this"}, f.run("reject"))
	f.requireMessage(queueboxv1.MessageState_MESSAGE_STATE_DEAD, 1, "no_use")
}

// Any other exception retries.
func TestExceptionRetries(t *testing.T) {
	f := newFixture(t)
	require.Equal(t, []string{
		"claimed, attempt 1", "retry attempt 1 not today", "claimed, attempt 2", "completed attempt 2",
	}, f.run("retry"))
	f.requireMessage(queueboxv1.MessageState_MESSAGE_STATE_COMPLETED, 2, "")
}

// A worker that was stopped past its lease, while another one completed the message, learns
// that the claim is lost and reports no completion (K2, K3, S2).
func TestStoppedWorkerLosesItsClaim(t *testing.T) {
	f := newFixture(t)
	p := f.start("stopped")
	require.Equal(t, "claimed, attempt 1", p.line(t))
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))

	worker := queueboxv1.NewWorkerServiceClient(f.conn)
	claim, err := worker.Claim(t.Context(), &queueboxv1.ClaimRequest{Queue: "python", WorkerId: "other", LeaseMs: 60_000, WaitMs: 20_000})
	require.NoError(t, err)
	require.Len(t, claim.GetMessages(), 1)
	_, err = worker.Complete(t.Context(), &queueboxv1.CompleteRequest{
		Queue: "python", MessageId: f.id, ClaimToken: claim.GetMessages()[0].GetClaimToken(),
	})
	require.NoError(t, err)

	_, err = io.WriteString(p.stdin, "the work is done\n")
	require.NoError(t, err)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
	require.True(t, strings.HasPrefix(p.line(t), "lost attempt 1"))
	f.requireMessage(queueboxv1.MessageState_MESSAGE_STATE_COMPLETED, 2, "")
}

// fixture is a server with one message in the queue "python".
type fixture struct {
	t      *testing.T
	python string
	server *blackbox.Server
	conn   *grpc.ClientConn
	id     string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, python: pythontest.Find(t)}
	f.server = blackbox.Start(t, blackbox.Options{Storage: "sqlite://" + filepath.Join(t.TempDir(), "queuebox.db"), Args: []string{"--queue-retry-min", "100ms"}})
	conn, err := grpc.NewClient(f.server.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	f.conn = conn
	enqueued, err := queueboxv1.NewProducerServiceClient(conn).Enqueue(t.Context(), &queueboxv1.EnqueueRequest{Queue: "python", Payload: []byte("hello")})
	require.NoError(t, err)
	f.id = enqueued.GetMessageId()
	return f
}

func (f *fixture) requireMessage(state queueboxv1.MessageState, attempt int32, code string) {
	f.t.Helper()
	answer, err := queueboxv1.NewAdminServiceClient(f.conn).GetMessage(f.t.Context(), &queueboxv1.GetMessageRequest{Queue: "python", MessageId: f.id})
	require.NoError(f.t, err)
	require.Equal(f.t, state, answer.GetMessage().GetState())
	require.Equal(f.t, attempt, answer.GetMessage().GetAttempt())
	require.Equal(f.t, code, answer.GetMessage().GetReasonCode())
}

// script is a running scenario.
type script struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string
}

func (f *fixture) start(scenario string) *script {
	f.t.Helper()
	cmd := exec.CommandContext(f.t.Context(), f.python, "-B", "testdata/scenario.py", f.server.Addr, scenario)
	stdin, err := cmd.StdinPipe()
	require.NoError(f.t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(f.t, err)
	cmd.Stderr = os.Stderr
	require.NoError(f.t, cmd.Start())
	p := &script{cmd: cmd, stdin: stdin, lines: make(chan string, 100)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(p.lines)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			p.lines <- strings.TrimSpace(scanner.Text())
		}
	}()
	f.t.Cleanup(func() {
		_ = stdin.Close()
		<-done // the context of the test has ended by now, which kills a script that hangs
		_ = cmd.Wait()
	})
	return p
}

// line waits for the next line.
func (p *script) line(t *testing.T) string {
	t.Helper()
	select {
	case line, ok := <-p.lines:
		require.True(t, ok, "the script ended")
		return line
	case <-time.After(60 * time.Second):
		require.FailNow(t, "the script says nothing")
		return ""
	}
}

// run runs a scenario to its end and returns its lines.
func (f *fixture) run(scenario string) []string {
	f.t.Helper()
	p := f.start(scenario)
	timeout := time.After(60 * time.Second)
	var lines []string
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				return lines
			}
			lines = append(lines, line)
		case <-timeout:
			require.FailNow(f.t, "the script does not end", "%q", lines)
		}
	}
}
