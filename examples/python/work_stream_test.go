//go:build unix

package python

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// The worker over a Work stream gets its message, settles it, and ends the stream in good order.
func TestT3WorkStreamInPython(t *testing.T) {
	f := newFixture(t)
	out, err := exec.CommandContext(t.Context(), f.python, "work_stream.py", f.server.Addr, "python", "1").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "work on hello attempt 1\nsettlements without an answer: 0\n", string(out))
	f.requireMessage(queueboxv1.MessageState_MESSAGE_STATE_COMPLETED, 1, "")
}

// Ctrl-C half-closes the stream: what was sent before is answered.
func TestT3WorkStreamInPythonStopsAtCtrlC(t *testing.T) {
	f := newFixture(t)
	cmd := exec.CommandContext(t.Context(), f.python, "work_stream.py", f.server.Addr, "python")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool {
		answer, err := queueboxv1.NewAdminServiceClient(f.conn).GetMessage(t.Context(), &queueboxv1.GetMessageRequest{Queue: "python", MessageId: f.id})
		return err == nil && answer.GetMessage().GetState() == queueboxv1.MessageState_MESSAGE_STATE_COMPLETED
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait(), "%s", &out)
	require.Equal(t, "work on hello attempt 1\nsettlements without an answer: 0\n", out.String())
}
