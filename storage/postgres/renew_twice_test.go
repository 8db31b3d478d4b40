package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// TestR5RenewOfOneClaimManyTimesInABatch checks R5: nobody else holds the row, so no item
// may say that somebody does, and none may wait.
func TestR5RenewOfOneClaimManyTimesInABatch(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "twice")
	enqueue(t, d.store, q.ID, 1)
	got := claim(t, d.store, q.ID, 1, time.Minute)
	p := storage.RenewParams{Items: make([]storage.Renewal, 1000)}
	for i := range p.Items {
		p.Items[i] = storage.Renewal{Ref: got[0].Message.Ref, Token: got[0].Token, Lease: time.Minute}
	}
	r, err := d.store.Renew(t.Context(), p)
	require.NoError(t, err)
	for i, item := range r.Items {
		require.Equal(t, storage.ItemApplied, item.Status, "item %d", i)
	}
}
