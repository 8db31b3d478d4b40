package storagetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// inFlightRun is how long claimers run against a limit on the real clock.
const inFlightRun = 2 * time.Second

// claimAndEnd claims a few messages and ends the claims in some way, or leaves them to run
// out. It returns how many it got.
func (e *env) claimAndEnd(ctx context.Context, s storage.Store) (int, error) {
	d := time.Duration(20+rand.IntN(60)) * time.Millisecond
	res, err := s.Claim(ctx, storage.ClaimParams{QueueID: e.queue.ID, Calls: []storage.ClaimCall{
		call("a", 1+rand.IntN(4), d), call("b", 1+rand.IntN(4), d),
	}})
	if errors.Is(err, storage.ErrUnavailable) {
		return 0, nil // the wait for the lock of the limit is bounded
	}
	if err != nil {
		return 0, err
	}
	n := 0
	for _, out := range res.Calls {
		for _, c := range out.Messages {
			n++
			switch rand.IntN(6) {
			case 0: // the lease runs out
			case 1:
				_, err = s.Renew(ctx, storage.RenewParams{Items: []storage.Renewal{renewal(c, 2*d)}})
			case 2:
				_, err = s.GiveBack(ctx, storage.GiveBackParams{QueueID: e.queue.ID, Claims: held(c)})
			default:
				a := actions[rand.IntN(len(actions))]
				item := settlement(c, a.action)
				item.Delay = 0
				_, err = s.Settle(ctx, storage.SettleParams{Items: []storage.Settlement{item}})
			}
			if err != nil && !errors.Is(err, storage.ErrUnavailable) {
				return n, err
			}
		}
	}
	return n, nil
}

// fill keeps messages in the queue.
func (e *env) fill(ctx context.Context, s storage.Store) error {
	ms := make([]storage.NewMessage, 20)
	for i := range ms {
		ms[i] = e.message(maxAttempts(5))
	}
	_, err := s.Enqueue(ctx, storage.EnqueueParams{Messages: ms})
	if errors.Is(err, storage.ErrUnavailable) {
		err = nil
	}
	select {
	case <-time.After(10 * time.Millisecond):
	case <-ctx.Done():
	}
	return err
}

func inFlightRace(t *testing.T, e *env) {
	const limit, claimers = 7, 8
	e = e.limited(t, limit, 0)
	e.many(t, 500)
	ctx, cancel := context.WithTimeout(t.Context(), inFlightRun)
	defer cancel()
	var mu sync.Mutex
	got, most, looks := 0, 0, 0
	e.until(ctx, t, claimers+3, func(ctx context.Context, i int, s storage.Store) error {
		switch {
		case i < claimers:
			n, err := e.claimAndEnd(ctx, s)
			mu.Lock()
			defer mu.Unlock()
			got += n
			return err
		case i < claimers+2:
			n, err := e.in.Leased(ctx, e.queue.ID)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			most, looks = max(most, n), looks+1
			if n > limit {
				return errors.New("L1: more leases than the limit allows")
			}
			return nil
		default:
			return e.fill(ctx, s)
		}
	})
	t.Logf("%d claims, at most %d leases in %d looks", got, most, looks)
	require.GreaterOrEqual(t, most, limit-2, "the limit was reached, else this test proves nothing")
	require.Greater(t, looks, 20)
	require.Greater(t, got, 3*limit, "places are free again and again")
}

// A limit that is set while claims run holds from the first claim on that knows of it: the
// leases of those from before may be more, and never grow above what they were.
func inFlightSetUnderLoad(t *testing.T, e *env) {
	const limit, claimers = 5, 6
	e.many(t, 500)
	ctx, cancel := context.WithTimeout(t.Context(), inFlightRun)
	defer cancel()
	var mu sync.Mutex
	last := time.Time{}
	set := time.AfterFunc(inFlightRun/4, func() {
		s := e.queue.QueueSettings
		s.MaxInFlight = limit
		_, err := e.store.UpdateQueue(context.WithoutCancel(ctx), e.queue.Name, s, 0)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			last = time.Now()
		}
	})
	defer set.Stop()
	over, under := 0, 0
	e.until(ctx, t, claimers+2, func(ctx context.Context, i int, s storage.Store) error {
		switch {
		case i < claimers:
			_, err := e.claimAndEnd(ctx, s)
			return err
		case i == claimers:
			mu.Lock()
			at := last
			mu.Unlock()
			n, err := e.in.Leased(ctx, e.queue.ID)
			if err != nil {
				return err
			}
			// No lease of this test lasts longer than 160 ms and no statement 500.
			if at.IsZero() || time.Since(at) < 660*time.Millisecond {
				return nil
			}
			if under++; n > limit {
				over++
			}
			return nil
		default:
			return e.fill(ctx, s)
		}
	})
	require.Positive(t, under, "nobody looked")
	require.Zero(t, over, "L1: more leases than the limit allows, of %d looks", under)
}

// rateRun is how long claimers run against a rate on the real clock.
const rateRun = 4 * time.Second

func rateRace(t *testing.T, e *env) {
	rates := []float64{0.5, 1, 10, 1000}
	queues := make([]*env, len(rates))
	for i, r := range rates {
		queues[i] = e.limited(t, 0, r)
		for range int(r*rateRun.Seconds()+2*r+10)/1000 + 1 {
			queues[i].many(t, 1000)
		}
	}
	var mu sync.Mutex
	claims := make([][]time.Time, len(rates))
	ctx, cancel := context.WithTimeout(t.Context(), rateRun)
	defer cancel()
	e.until(ctx, t, 4*len(rates), func(ctx context.Context, i int, s storage.Store) error {
		k := i / 4
		res, err := s.Claim(ctx, storage.ClaimParams{QueueID: queues[k].queue.ID, Calls: []storage.ClaimCall{
			call("a", 1+rand.IntN(5+int(rates[k])/4), lease),
		}})
		if errors.Is(err, storage.ErrUnavailable) {
			return nil
		}
		if err != nil {
			return err
		}
		mu.Lock()
		for _, m := range res.Calls[0].Messages {
			claims[k] = append(claims[k], m.Message.LeaseEnd.Add(-lease))
		}
		mu.Unlock()
		if len(res.Calls[0].Messages) == 0 {
			time.Sleep(5 * time.Millisecond)
		}
		return nil
	})
	for k, rate := range rates {
		got := claims[k]
		slices.SortFunc(got, time.Time.Compare)
		t.Logf("rate %g: %d claims in %v", rate, len(got), rateRun)
		require.Greater(t, float64(len(got)), max(1, rate), "rate %g: more than the burst, else this test proves nothing", rate)
		// Every window that begins and ends with a claim; no other holds more.
		worst := 0.0
		for i := range got {
			for j := i; j < len(got); j++ {
				allowed := rate*got[j].Sub(got[i]).Seconds() + max(1, rate)
				worst = max(worst, float64(j-i+1)-allowed)
			}
		}
		require.LessOrEqual(t, worst, 1e-6, "L2: rate %g: a window sees %g claims too many", rate, worst)
	}
}
