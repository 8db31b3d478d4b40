package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// moody is a store that does what it is asked for, or some of it, or nothing, and tells so.
type moody struct {
	mu   sync.Mutex
	done map[int64]int // how often a position was enqueued, settled or renewed
}

func (*moody) Capabilities() storage.Capabilities { return storage.Capabilities{OddKeyed: true} }

// mood is how a statement of n items ends: with an error before anything has happened, or with
// some that are held, and with an error after all has happened.
func (s *moody) mood(n int) (before error, held []bool, after error) {
	time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
	switch rand.IntN(12) {
	case 0:
		return fmt.Errorf("moody: %w", storage.ErrLocked), nil, nil
	case 1:
		return fmt.Errorf("moody: %w", storage.ErrRefused), nil, nil
	case 2:
		return fmt.Errorf("moody: %w", storage.ErrUnavailable), nil, nil
	case 3:
		if rand.IntN(2) == 0 {
			return fmt.Errorf("moody: %w", storage.ErrOutcomeUnknown), nil, nil
		}
		return nil, make([]bool, n), fmt.Errorf("moody: %w", storage.ErrOutcomeUnknown)
	case 4:
		panic("moody")
	case 5, 6:
		held = make([]bool, n)
		for i := range held {
			held[i] = rand.IntN(3) == 0
		}
		return nil, held, nil
	}
	return nil, make([]bool, n), nil
}

func (s *moody) note(position int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done[position]++
}

func (s *moody) times(position int64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done[position]
}

func (s *moody) Enqueue(_ context.Context, p storage.EnqueueParams) (storage.EnqueueResult, error) {
	before, held, after := s.mood(len(p.Messages))
	if before != nil {
		return storage.EnqueueResult{}, before
	}
	res := storage.EnqueueResult{Items: make([]storage.Enqueued, len(p.Messages)), Now: time.Now()}
	some := false
	for i := range held {
		if held[i] && p.FindHeld {
			res.Items[i].Status, some = storage.EnqueueHeld, true
		}
	}
	if some {
		return res, nil
	}
	for i := range p.Messages {
		s.note(int64(p.Messages[i].Priority))
		res.Items[i].Status = storage.EnqueueInserted
	}
	return res, after
}

func (s *moody) Settle(_ context.Context, p storage.SettleParams) (storage.SettleResult, error) {
	before, held, after := s.mood(len(p.Items))
	if before != nil {
		return storage.SettleResult{}, before
	}
	res := storage.SettleResult{Items: make([]storage.Settled, len(p.Items)), Now: time.Now()}
	for i := range p.Items {
		res.Items[i].Status = storage.ItemApplied
		switch {
		case held[i] && p.LockWait > 0:
			res.Items[i].Status = storage.ItemHeld
		case held[i]:
			res.Items[i].Status = storage.ItemUnknown
		default:
			s.note(p.Items[i].Ref.Position)
		}
	}
	return res, after
}

func (s *moody) Renew(_ context.Context, p storage.RenewParams) (storage.RenewResult, error) {
	before, held, after := s.mood(len(p.Items))
	if before != nil {
		return storage.RenewResult{}, before
	}
	res := storage.RenewResult{Items: make([]storage.Renewed, len(p.Items)), Now: time.Now()}
	for i := range p.Items {
		res.Items[i].Status = storage.ItemApplied
		switch {
		case held[i] && p.LockWait > 0:
			res.Items[i].Status = storage.ItemHeld
		case held[i]:
			res.Items[i].Status = storage.ItemUnknown
		default:
			s.note(p.Items[i].Ref.Position)
		}
	}
	return res, after
}

var errMoody = errors.New("a panic")

// TestJoin_D8_a_crowd_before_a_moody_database: callers come and leave at any moment, and statements
// fail in every way, at the end of the server too. Each call has an answer, nothing is done twice, what
// is told to be done was done, and what is told not to have happened has not.
func TestJoin_D8_a_crowd_before_a_moody_database(t *testing.T) {
	const callers, rounds = 40, 60
	s := &moody{done: map[int64]int{}}
	j := NewJoiner(t.Context(), JoinConfig{
		Store: s, StatementTimeout: 10 * time.Second, Now: time.Now, Metrics: &laneCounts{},
		Enqueued: func([]storage.NewMessage, storage.EnqueueResult) {},
		Settled:  func(storage.SettleResult, time.Duration) {},
		Renewed:  func(storage.RenewResult) {},
		Caught:   func(any) error { return errMoody },
	})
	var crowd sync.WaitGroup
	for i := range callers {
		crowd.Go(func() {
			for n := range rounds {
				ctx, leave := context.WithCancel(t.Context())
				if rand.IntN(2) == 0 {
					time.AfterFunc(time.Duration(rand.IntN(2000))*time.Microsecond, leave)
				}
				first := int64((i*rounds + n) * 10)
				crowdCall(ctx, t, j, s, first, 1+rand.IntN(4))
				leave()
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Millisecond)
		j.Close() // some come too late
		crowd.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		t.Fatal("somebody has no answer")
	}
}

// crowdCall makes one call of n items, which have the positions from first on, and judges its answer.
func crowdCall(ctx context.Context, t *testing.T, j *Joiner, s *moody, first int64, n int) {
	t.Helper()
	statuses := make([]storage.ItemStatus, n)
	var err error
	switch rand.IntN(3) {
	case 0:
		ms := make([]storage.NewMessage, n)
		for k := range ms {
			ms[k] = storage.NewMessage{QueueID: int32(rand.IntN(3)), Priority: int32(first) + int32(k)}
			if rand.IntN(3) == 0 {
				ms[k].IdempotencyKey = fmt.Sprint(first, k)
			}
			statuses[k] = storage.ItemApplied
		}
		_, err = j.Enqueue(ctx, nil, ms)
	case 1:
		items := make([]storage.Settlement, n)
		for k := range items {
			items[k].Ref.Position = first + int64(k)
			if rand.IntN(4) == 0 {
				items[k].FollowUps = make([]storage.NewMessage, 1)
			}
		}
		var out []storage.Settled
		out, _, err = j.Settle(ctx, nil, items)
		for k := range out {
			statuses[k] = out[k].Status
		}
	default:
		items := make([]storage.Renewal, n)
		for k := range items {
			items[k].Ref.Position = first + int64(k)
		}
		var res storage.RenewResult
		res, err = j.Renew(ctx, nil, items)
		for k := range res.Items {
			statuses[k] = res.Items[k].Status
		}
	}
	for k := range statuses {
		times := s.times(first + int64(k))
		switch {
		case errors.Is(err, storage.ErrOutcomeUnknown):
			if times > 1 {
				t.Errorf("done %d times, outcome unknown", times)
			}
		case err != nil:
			if times != 0 {
				t.Errorf("done %d times, though the answer is %v", times, err)
			}
		case statuses[k] == storage.ItemApplied:
			if times != 1 {
				t.Errorf("done %d times, though it was applied", times)
			}
		case statuses[k] == storage.ItemUnknown:
			if times != 0 {
				t.Errorf("done %d times, though nothing has happened", times)
			}
		default:
			t.Errorf("status %d", statuses[k])
		}
	}
}
