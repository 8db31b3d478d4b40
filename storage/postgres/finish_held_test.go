package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// E12: a mark is not finished while somebody has the ordering key of its message. The others are.
func TestE12AHeldOrderingKeyKeepsItsOwnMarksAlone(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "held")
	enqueue(t, d.store, q.ID, 3, under("a", "b", ""))
	enqueue(t, d.store, q.ID, 1, under("a"))
	claimed := claim(t, d.store, q.ID, 10, time.Minute)
	require.Len(t, claimed, 3)
	d.exec(t, `WITH m AS (
			UPDATE queuebox.message SET state = 3, lease_end = 'infinity', outcome = 1, mark_action = 1, mark_dead_reason = 0, settle_time = now()
			WHERE state = 1 RETURNING queue_id, position)
		INSERT INTO queuebox.marked (queue_id, position) SELECT queue_id, position FROM m`)
	s := d.session(t)
	s.end(t, "BEGIN")
	s.run(t, "lock_names", []int32{q.ID}, []string{"a"})
	finished := func() (refs []storage.Ref) {
		r, err := d.store.(storage.Own).Finish(context.WithoutCancel(t.Context()), storage.FinishParams{Limit: 100})
		require.NoError(t, err)
		for _, f := range r.Finished {
			refs = append(refs, f.Ref)
		}
		return refs
	}
	require.ElementsMatch(t, claimedRefs(claimed)[1:], finished())
	require.Empty(t, finished())
	s.end(t, "COMMIT")
	require.Equal(t, claimedRefs(claimed)[:1], finished())
	require.Len(t, claim(t, d.store, q.ID, 10, time.Minute), 1, "the key goes on")
}
