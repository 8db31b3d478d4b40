package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// D2, C10: the cancel request of a caller that left can meet the next statement on his
// connection. Whoever runs that one does not hear of it.
func TestD2StrayCancelIsRepeatedOnce(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "stray")
	for _, key := range []string{"", "key"} {
		d.failing(t, "57014", 1)
		_, err := d.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: q.ID, IdempotencyKey: key}}})
		require.NoError(t, err)
		require.Equal(t, 2, d.tries(t))
		d.failing(t, "57014", 1000)
		_, err = d.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: q.ID, IdempotencyKey: key + "x"}}})
		require.ErrorIs(t, err, storage.ErrUnavailable)
		require.Equal(t, 2, d.tries(t), "once, since a statement timeout looks the same")
	}
}
