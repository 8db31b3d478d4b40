package postgres_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// C12: what an operator asks of one message seeks it, whatever the statistics were taken on.
func TestC12OperatorsPlansArePinned(t *testing.T) {
	const rows = 5000
	d := newDatabase(t, false)
	q := queue(t, d.store, "plans")
	for _, at := range []string{"empty", "full", "all leased"} {
		t.Run("analysed "+at, func(t *testing.T) {
			d.exec(t, "TRUNCATE queuebox.message, queuebox.completed, queuebox.dead, queuebox.settlement")
			switch at {
			case "full":
				d.fill(t, q.ID, rows, pendingShape)
			case "all leased":
				d.fill(t, q.ID, rows, leasedShape)
			}
			d.exec(t, "VACUUM ANALYZE queuebox.message")
			d.exec(t, "ANALYZE queuebox.completed, queuebox.dead, queuebox.settlement, queuebox.queue")
			p := newPlanner(t, d)
			d.fill(t, q.ID, rows, pendingShape)
			d.fill(t, q.ID, rows, leasedShape)
			position := d.lines(t, "SELECT max(position)::text FROM queuebox.message WHERE queue_id = $1 AND state = 1", q.ID)[0]
			for _, n := range []int{1, 1000} {
				ids, positions, tokens := d.held(t, q.ID, n)
				plan := p.explain(t, "look", ids, positions, tokens)
				pinned(t, "look", plan)
				t.Logf("look: %d claims, %d buffers", n, plan.buffers())
				require.LessOrEqual(t, plan.buffers(), 5*n+10, "look")
			}
			// The first message of the queue has none in front of it, the last one all of them.
			for _, which := range []string{"min", "max"} {
				position := d.lines(t, "SELECT "+which+"(position)::text FROM queuebox.message WHERE queue_id = $1 AND state = 0", q.ID)[0]
				plan := p.explain(t, "explain", fmt.Sprint(q.ID), position)
				pinned(t, "explain", plan)
				t.Logf("explain %s: %d buffers", which, plan.buffers())
				if which == "min" && at != "all leased" {
					require.LessOrEqual(t, plan.buffers(), 100, "explain")
				}
			}
			for _, refund := range []string{"true", "false"} {
				plan := p.explain(t, "revoke", fmt.Sprint(q.ID), position, refund)
				pinned(t, "revoke", plan)
				require.LessOrEqual(t, plan.buffers(), 100, "revoke")
			}
		})
	}
}
