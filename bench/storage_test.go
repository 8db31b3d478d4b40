package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/queuebox/queuebox/internal/blackbox"
	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/backends"
)

// openQueue opens the storage in this process and makes the queue of the benchmark, whose
// completed messages are kept for so long. The storage is closed with b.
func openQueue(b *testing.B, db *blackbox.Database, conns int, kept time.Duration) (storage.Store, int32) {
	b.Helper()
	store, err := backends.Open(b.Context(), db.URL, backends.Options{Migrate: true, MaxConns: conns})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	q, err := store.CreateQueue(b.Context(), queueName, storage.QueueSettings{
		DefaultLease: 30 * time.Second, MinLease: time.Second, MaxLease: 12 * time.Hour, MaxAttempts: 20,
		Retry:    storage.RetryPolicy{Min: time.Second, Max: time.Hour, Multiplier: 2, Jitter: 0.2},
		Ordering: storage.OrderingSkipDead, CompletedRetention: kept,
	}, 0)
	if err != nil {
		b.Fatal(err)
	}
	return store, q.ID
}

// overStorage calls the storage in this process: what the server adds is left out, the
// joining of calls, too.
func overStorage(b *testing.B, db *blackbox.Database) func(int) cycler {
	b.Helper()
	store, queue := openQueue(b, db, 16, time.Hour)
	return func(int) cycler { return storeCycler{store: store, queue: queue} }
}

type storeCycler struct {
	store storage.Store
	queue int32
}

func (s storeCycler) enqueue(ctx context.Context, n int) error {
	p := storage.EnqueueParams{Messages: make([]storage.NewMessage, n)}
	for i := range p.Messages {
		p.Messages[i] = storage.NewMessage{QueueID: s.queue, Payload: payload, WireBytes: 300}
	}
	_, err := s.store.Enqueue(ctx, p)
	return err
}

func (s storeCycler) claim(ctx context.Context, n int) (batch, error) {
	out, err := s.store.Claim(ctx, storage.ClaimParams{
		QueueID: s.queue, Calls: []storage.ClaimCall{{Max: n, Lease: 30 * time.Second}}, MaxWireBytes: 7 << 19,
	})
	if err != nil {
		return nil, err
	}
	return storeBatch{s.store, out.Calls[0].Messages}, nil
}

type storeBatch struct {
	store storage.Store
	ms    []storage.Claimed
}

func (s storeBatch) size() int { return len(s.ms) }

func (s storeBatch) complete(ctx context.Context) error {
	p := storage.SettleParams{Items: make([]storage.Settlement, len(s.ms))}
	for i, m := range s.ms {
		p.Items[i] = storage.Settlement{Ref: m.Message.Ref, Token: m.Token, Action: storage.ActionComplete}
	}
	out, err := s.store.Settle(ctx, p)
	if err != nil {
		return err
	}
	for _, item := range out.Items {
		if item.Status != storage.ItemApplied {
			return fmt.Errorf("item status %d", item.Status)
		}
	}
	return nil
}
