package dispatch

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// TestC15ACrowdThatComesAndLeaves: hundreds of callers come at any moment and leave at any moment, of
// a statement too. Nobody hangs, and no message is lost to one who left, or handed to two.
func TestC15ACrowdThatComesAndLeaves(t *testing.T) {
	const callers, messages = 60, 600
	f := newFake()
	f.slow, f.slowAfter = 50*time.Microsecond, 50*time.Microsecond
	d := New(config(f))
	ctx := t.Context()
	var crowd sync.WaitGroup
	var left, got atomic.Int64
	seen := make([]atomic.Int64, messages)
	for i := range callers {
		crowd.Go(func() {
			for n := 0; ctx.Err() == nil && got.Load() < messages; n++ {
				r := request(time.Duration(rand.IntN(20)) * time.Millisecond)
				r.LeaseFor = func(storage.Queue) (time.Duration, error) { return time.Hour, nil }
				r.Max = 1 + rand.IntN(5)
				if i%3 == 0 {
					r.ClaimID, r.WorkerID = storage.ClaimID{byte(i), byte(n), byte(n >> 8)}, "w"
				}
				call, leave := context.WithCancel(ctx)
				if i%2 == 0 {
					time.AfterFunc(time.Duration(rand.IntN(1000))*time.Microsecond, leave)
				}
				a, err := d.Claim(call, r)
				leave()
				if err != nil {
					left.Add(1)
				}
				for k := range a.Messages {
					seen[a.Messages[k].Message.Ref.Position].Add(1)
					got.Add(1)
				}
			}
		})
	}
	for range messages {
		f.add(0)
		d.Wake(1)
		if rand.IntN(10) == 0 {
			time.Sleep(100 * time.Microsecond)
		}
	}
	done := make(chan struct{})
	go func() {
		crowd.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal("they hang, or a message is lost") // and so might Close
	}
	d.Close()
	require.Positive(t, left.Load())
	for position := range seen {
		require.EqualValues(t, 1, seen[position].Load(), "message %d", position)
	}
}
