package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// TestO9AnOrderedEnqueueOutlivesKeysThatVanish: the rows of keys go away as soon as nothing needs
// them, far more often than any sweep does it, while callers enqueue messages of these keys. None
// of them may be told that the database is away.
func TestO9AnOrderedEnqueueOutlivesKeysThatVanish(t *testing.T) {
	d := newDatabase(t, true)
	q := queue(t, d.store, "q")
	ctx, stop := context.WithCancel(t.Context())
	var vanishing, callers sync.WaitGroup
	for range 3 {
		s := d.session(t)
		vanishing.Go(func() {
			for ctx.Err() == nil {
				_, err := s.Exec(context.WithoutCancel(ctx), `
					WITH idle AS MATERIALIZED (
						SELECT k.key_id FROM queuebox.ordering_key k
						WHERE NOT EXISTS (SELECT 1 FROM queuebox.message m WHERE m.key_id = k.key_id)
						ORDER BY k.key_id FOR UPDATE
					)
					DELETE FROM queuebox.ordering_key k USING idle i
					WHERE k.key_id = i.key_id AND NOT EXISTS (SELECT 1 FROM queuebox.message m WHERE m.key_id = k.key_id)`)
				if err != nil {
					t.Log(err) // two of them may meet in another order
				}
				if _, err = s.Exec(context.WithoutCancel(ctx), "DELETE FROM queuebox.message"); err != nil {
					t.Log(err)
				}
			}
		})
	}
	failed := make(chan error, 1)
	for range 6 {
		callers.Go(func() {
			for range 150 {
				p := storage.EnqueueParams{}
				for k := range 5 {
					p.Messages = append(p.Messages, storage.NewMessage{
						QueueID: q.ID, Payload: []byte("x"), WireBytes: 100, OrderingKey: fmt.Sprint(k),
					})
				}
				if _, err := d.store.Enqueue(t.Context(), p); err != nil {
					select {
					case failed <- err:
					default:
					}
					return
				}
			}
		})
	}
	callers.Wait()
	stop()
	vanishing.Wait()
	select {
	case err := <-failed:
		require.NoError(t, err)
	default:
	}
}
