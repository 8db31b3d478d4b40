//go:build unix

package python

import (
	"os/exec"
	"testing"

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
