package ops

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// A reason is told once, and the code of an earlier death stands alone.
func TestMessageRowReason(t *testing.T) {
	t.Parallel()
	for want, m := range map[string]*queueboxv1.Message{
		"":                       {},
		"rejected":               {DeadReason: queueboxv1.DeadReason_DEAD_REASON_REJECTED},
		"rejected/no_paper":      {DeadReason: queueboxv1.DeadReason_DEAD_REASON_REJECTED, ReasonCode: "no_paper"},
		"no_paper":               {ReasonCode: "no_paper"},
		"idempotency-key-reused": {DeadReason: queueboxv1.DeadReason_DEAD_REASON_IDEMPOTENCY_KEY_REUSED, ReasonCode: "IDEMPOTENCY_KEY_REUSED"},
	} {
		require.Equal(t, want, messageRow(m, time.Unix(0, 0))[7])
	}
}
