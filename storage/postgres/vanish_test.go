package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// TestO9AnOrderedEnqueueOutlivesKeysThatVanish: the rows of keys go away as soon as nothing needs
// them, far more often than any sweep does it, while callers enqueue messages of these keys, by
// themselves and with a completion. None of them may be told that the database is away.
func TestO9AnOrderedEnqueueOutlivesKeysThatVanish(t *testing.T) {
	d := newDatabase(t, true)
	q, other := queue(t, d.store, "q"), queue(t, d.store, "other")
	ctx, stop := context.WithCancel(t.Context())
	var vanishing, callers sync.WaitGroup
	for range 3 {
		s := d.session(t)
		vanishing.Go(func() {
			for ctx.Err() == nil {
				for _, sql := range []string{
					"BEGIN",
					`SELECT set_config('queuebox.keys', (SELECT string_agg(k.key_id::text, ',') FROM (
						SELECT k.key_id FROM queuebox.ordering_key k FOR UPDATE SKIP LOCKED) k), true)`,
					s.statements["remove_keys"],
					"COMMIT",
					fmt.Sprint("DELETE FROM queuebox.message WHERE queue_id = ", q.ID),
				} {
					if _, err := s.Exec(context.WithoutCancel(ctx), sql); err != nil {
						t.Log(err)
					}
				}
			}
		})
	}
	failed := make(chan error, 1)
	for w := range 8 {
		callers.Go(func() {
			for range 150 {
				p := storage.EnqueueParams{}
				for k := range 5 {
					p.Messages = append(p.Messages, storage.NewMessage{
						QueueID: q.ID, Payload: []byte("x"), WireBytes: 100, OrderingKey: fmt.Sprint(k),
					})
				}
				var err error
				if w < 6 {
					_, err = d.store.Enqueue(t.Context(), p)
				} else {
					err = d.completeWith(t.Context(), storage.NewMessage{QueueID: other.ID, WireBytes: 100, OrderingKey: fmt.Sprint(w)}, p.Messages)
				}
				if err != nil {
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

// completeWith enqueues a message, claims one of its queue, and completes that with follow-ups.
func (d *database) completeWith(ctx context.Context, m storage.NewMessage, followUps []storage.NewMessage) error {
	if _, err := d.store.Enqueue(ctx, storage.EnqueueParams{Messages: []storage.NewMessage{m}}); err != nil {
		return err
	}
	r, err := d.store.Claim(ctx, storage.ClaimParams{
		QueueID: m.QueueID, Calls: []storage.ClaimCall{{Max: 1, Lease: time.Minute}},
	})
	if err != nil || len(r.Calls[0].Messages) == 0 {
		return err
	}
	items := completions(r.Calls[0].Messages)
	items[0].FollowUps = followUps
	out, err := d.store.Settle(ctx, storage.SettleParams{Items: items})
	if err == nil && out.Items[0].Status != storage.ItemApplied {
		err = fmt.Errorf("the completion ended with status %d", out.Items[0].Status)
	}
	return err
}
