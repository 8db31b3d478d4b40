package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/internal/proxy"
	"github.com/queuebox/queuebox/storage"
)

// C10: one call of a claim is a repeat, and its answer cannot be read; what the other call
// got in the meantime goes back.
func TestC10AClaimThatFailsHalfwayLeavesNothingLeased(t *testing.T) {
	d := newDatabase(t, false)
	s, p := through(t, d)
	q := queue(t, s, "halfway")
	first := storage.ClaimCall{Max: 1, Lease: time.Hour, WorkerID: "w", ClaimID: storage.ClaimID{1}}
	second := storage.ClaimCall{Max: 2, Lease: time.Hour, WorkerID: "v", ClaimID: storage.ClaimID{2}}
	enqueue(t, s, q.ID, 1)
	r, err := s.Claim(t.Context(), storage.ClaimParams{QueueID: q.ID, Calls: []storage.ClaimCall{first}})
	require.NoError(t, err)
	held := r.Calls[0].Messages[0]
	both := storage.ClaimParams{QueueID: q.ID, Calls: []storage.ClaimCall{first, second}}
	_, err = s.Claim(t.Context(), both) // prepares the statements
	require.NoError(t, err)

	items := enqueue(t, s, q.ID, 2)
	before := []map[string]string{d.row(t, items[0].Ref), d.row(t, items[1].Ref)}
	cut := p.CutAt(proxy.BeforeRequest, func(st proxy.Statement) bool { return strings.Contains(st.SQL, "replayed = true") })
	_, err = s.Claim(t.Context(), both)
	require.Error(t, err)
	require.True(t, cut.Struck())
	for i, item := range items {
		now := d.row(t, item.Ref)
		require.Equal(t, "0", now["state"], "pending again")
		require.Equal(t, before[i]["attempt"], now["attempt"], "attempt refunded")
	}
	require.Equal(t, "1", d.row(t, held.Message.Ref)["state"], "the repeat's own claim stays")

	r, err = s.Claim(t.Context(), both)
	require.NoError(t, err)
	require.Equal(t, storage.ClaimReplayed, r.Calls[0].Status)
	require.Equal(t, held.Token, r.Calls[0].Messages[0].Token)
	require.Equal(t, storage.ClaimServed, r.Calls[1].Status)
	require.Len(t, r.Calls[1].Messages, 2)
}
