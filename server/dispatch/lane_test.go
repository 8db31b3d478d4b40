package dispatch

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// laneCounts counts what a lane tells.
type laneCounts struct {
	mu             sync.Mutex
	refused, split int
}

func (*laneCounts) Joined(string, int, int) {}

func (c *laneCounts) Refused(string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused++
}

func (c *laneCounts) Split(string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.split++
}

// testLane is a lane whose statements a test answers.
type testLane struct {
	*lane[int]

	mu         sync.Mutex
	statements [][]int
	counts     laneCounts
	stacks     []string
	// do answers a statement; nil answers it at once.
	answer func(ctx context.Context, calls []int) ([]verdict, error)
}

func newTestLane(t *testing.T, change ...func(*laneConfig[int])) *testLane {
	t.Helper()
	l := &testLane{}
	cfg := laneConfig[int]{
		name: "test", flights: 1, timeout: 10 * time.Second, now: time.Now,
		statement: Size{Items: 100, Bytes: 1000}, waiting: Size{Items: 1000, Bytes: 1 << 20},
		caught:  func(p any) error { return fmt.Errorf("caught: %v", p) },
		metrics: &l.counts,
		run: func(ctx context.Context, calls []int, _ bool) ([]verdict, error) {
			l.mu.Lock()
			l.statements = append(l.statements, append([]int(nil), calls...))
			l.stacks = append(l.stacks, string(debug.Stack()))
			answer := l.answer
			l.mu.Unlock()
			if answer == nil {
				return nil, nil
			}
			return answer(ctx, calls)
		},
	}
	for _, c := range change {
		c(&cfg)
	}
	base, cancel := context.WithCancel(t.Context())
	l.lane = newLane(base, cfg)
	t.Cleanup(func() {
		l.close()
		cancel()
		l.wait()
	})
	return l
}

// busy keeps the lane busy with call 0 until free is called.
func (l *testLane) busy(t *testing.T) (free func()) {
	t.Helper()
	gate := make(chan struct{})
	before := l.answer
	l.answer = func(ctx context.Context, calls []int) ([]verdict, error) {
		if calls[0] == 0 {
			<-gate
			return nil, nil
		}
		if before != nil {
			return before(ctx, calls)
		}
		return nil, nil
	}
	go func() { _ = l.do(context.Background(), Share{}, Size{Items: 1}, 0) }()
	synctest.Wait()
	return func() { close(gate); synctest.Wait() }
}

// calls starts calls and collects their errors.
func (l *testLane) call(ctx context.Context, key Share, size Size, call int) <-chan error {
	ch := make(chan error, 1)
	go func() { ch <- l.do(ctx, key, size, call) }()
	synctest.Wait()
	return ch
}

func one(bytes int64) Size { return Size{Items: 1, Bytes: bytes} }

func TestLane_an_idle_lane_sends_at_once_from_the_goroutine_of_the_caller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(t)
		start := time.Now()
		for i := range 3 {
			require.NoError(t, l.do(t.Context(), Share{}, one(1), i))
		}
		require.Equal(t, [][]int{{0}, {1}, {2}}, l.statements)
		require.Zero(t, time.Since(start), "no timer and no lingering")
		for _, stack := range l.stacks {
			require.Contains(t, stack, ".do(", "no other goroutine is in between")
			require.NotContains(t, stack, ".serve(")
		}
	})
}

func TestLane_what_arrives_meanwhile_is_one_statement_in_the_order_of_arrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(t)
		free := l.busy(t)
		var want []int
		var answers []<-chan error
		for i := range 50 {
			want = append(want, i+1)
			answers = append(answers, l.call(t.Context(), Share{}, one(1), i+1))
		}
		require.Equal(t, 50, l.waits())
		free()
		for _, a := range answers {
			require.NoError(t, <-a)
		}
		require.Equal(t, [][]int{{0}, want}, l.statements)
		require.Zero(t, l.waits())
	})
}

func TestLane_a_statement_is_bounded_and_a_call_larger_than_it_goes_alone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(t)
		free := l.busy(t)
		for i, s := range []Size{{60, 1}, {40, 1}, {1, 1}, {1, 999}, {1, 1}, {1, 5000}, {300, 1}, {1, 1}} {
			l.call(t.Context(), Share{}, s, i+1)
		}
		free()
		require.Equal(t, [][]int{{0}, {1, 2}, {3, 4}, {5}, {6}, {7}, {8}}, l.statements)
	})
}

func TestLane_neither_a_connection_nor_a_queue_fills_a_statement(t *testing.T) {
	for name, other := range map[string]Share{"connection": {Queue: 1, Conn: "b"}, "queue": {Queue: 2, Conn: "a"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newTestLane(t)
				free := l.busy(t)
				for i := range 300 {
					l.call(t.Context(), Share{Queue: 1, Conn: "a"}, one(1), i+1)
				}
				for i := range 30 {
					l.call(t.Context(), other, one(1), 1001+i)
				}
				free()
				require.Len(t, l.statements[1], 100)
				others := 0
				for _, call := range l.statements[1] {
					if call > 1000 {
						others++
						require.Equal(t, 1000+others, call, "in a share the oldest is first")
					}
				}
				require.Equal(t, 30, others, "who came last is in the first statement all the same")
			})
		})
	}
}

func TestLane_large_calls_take_turns_with_small_ones_by_items(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(t)
		free := l.busy(t)
		for i := range 5 {
			l.call(t.Context(), Share{Conn: "batches"}, Size{Items: 90}, 1+i)
		}
		for i := range 50 {
			l.call(t.Context(), Share{Conn: "singles"}, one(0), 101+i)
		}
		free()
		require.Len(t, l.statements[1], 11, "a batch, and the share of the other")
		require.Equal(t, 1, l.statements[1][0])
	})
}

func TestLane_what_waits_is_bounded_and_one_connection_gets_half_of_it(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(t, func(c *laneConfig[int]) { c.waiting = Size{Items: 10, Bytes: 100} })
		free := l.busy(t)
		for i := range 5 {
			l.call(t.Context(), Share{Conn: "a", Queue: int32(i)}, one(1), i+1)
		}
		require.ErrorIs(t, <-l.call(t.Context(), Share{Conn: "a"}, one(1), 6), ErrLaneFull)
		b := l.call(t.Context(), Share{Conn: "b"}, Size{Items: 1, Bytes: 95}, 7)
		require.ErrorIs(t, <-l.call(t.Context(), Share{Conn: "b"}, one(1), 8), ErrLaneFull, "bytes are bounded too")
		require.ErrorIs(t, <-l.call(t.Context(), Share{Conn: "c"}, one(1), 9), ErrLaneFull)
		require.Equal(t, 3, l.counts.refused)
		free()
		require.NoError(t, <-b)
		require.NoError(t, <-l.call(t.Context(), Share{Conn: "a"}, one(1), 10), "there is room again")
	})
}

func TestD8_Lane_a_bad_call_fails_alone_after_an_error_that_proves_rollback(t *testing.T) {
	for _, proof := range []error{storage.ErrRefused, storage.ErrQueueNotFound, storage.ErrLocked} {
		t.Run(proof.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newTestLane(t)
				var mu sync.Mutex // halves run beside each other
				ran := map[int]int{}
				l.answer = func(_ context.Context, calls []int) ([]verdict, error) {
					if slices.Contains(calls, 33) {
						return nil, fmt.Errorf("the driver: %w", proof)
					}
					mu.Lock()
					defer mu.Unlock()
					for _, c := range calls {
						ran[c]++
					}
					return nil, nil
				}
				free := l.busy(t)
				var answers []<-chan error
				for i := range 64 {
					answers = append(answers, l.call(t.Context(), Share{Conn: i % 7}, one(1), i+1))
				}
				free()
				for i, a := range answers {
					if i+1 == 33 {
						require.ErrorIs(t, <-a, proof)
						continue
					}
					require.NoError(t, <-a)
					require.Equal(t, 1, ran[i+1], "exactly once")
				}
				require.LessOrEqual(t, len(l.statements), 1+1+2*6, "halves")
			})
		})
	}
}

func TestD8_Lane_after_an_error_without_proof_nothing_is_run_again(t *testing.T) {
	for _, err := range []error{storage.ErrOutcomeUnknown, storage.ErrUnavailable, storage.ErrSchema, errors.New("a defect")} {
		t.Run(err.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newTestLane(t)
				l.answer = func(context.Context, []int) ([]verdict, error) { return nil, err }
				free := l.busy(t)
				a, b := l.call(t.Context(), Share{}, one(1), 1), l.call(t.Context(), Share{}, one(1), 2)
				free()
				require.ErrorIs(t, <-a, err)
				require.ErrorIs(t, <-b, err)
				require.Equal(t, [][]int{{0}, {1, 2}}, l.statements)
			})
		})
	}
}

func TestLane_a_caller_who_leaves_before_his_statement_leaves_no_trace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(t)
		free := l.busy(t)
		ctx, cancel := context.WithCancel(t.Context())
		first := l.call(t.Context(), Share{}, one(1), 1)
		gone := l.call(ctx, Share{}, one(1), 2)
		only := l.call(ctx, Share{Conn: "alone in its share"}, one(1), 3)
		last := l.call(t.Context(), Share{}, one(1), 4)
		cancel()
		require.ErrorIs(t, <-gone, context.Canceled)
		require.ErrorIs(t, <-only, context.Canceled)
		require.Equal(t, 2, l.waits())
		free()
		require.NoError(t, <-first)
		require.NoError(t, <-last)
		require.Equal(t, [][]int{{0}, {1, 4}}, l.statements)
	})
}

func TestLane_a_caller_who_leaves_later_cancels_nobody_and_learns_what_became_of_it(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(t)
		l.answer = func(ctx context.Context, _ []int) ([]verdict, error) {
			select {
			case <-time.After(time.Second):
				return nil, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		free := l.busy(t)
		ctx, cancel := context.WithCancel(t.Context())
		gone, stays := l.call(ctx, Share{}, one(1), 1), l.call(t.Context(), Share{}, one(1), 2)
		free()
		cancel()
		require.NoError(t, <-gone, "it has happened")
		require.NoError(t, <-stays)
	})
}

func TestLane_a_panic_answers_all_of_its_statement_and_the_lane_lives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(t)
		l.answer = func(_ context.Context, calls []int) ([]verdict, error) {
			if calls[0] == 1 {
				panic("boom")
			}
			return nil, nil
		}
		free := l.busy(t)
		a, b := l.call(t.Context(), Share{}, one(1), 1), l.call(t.Context(), Share{}, one(1), 2)
		free()
		require.EqualError(t, <-a, "caught: boom")
		require.EqualError(t, <-b, "caught: boom")
		require.EqualError(t, l.do(t.Context(), Share{}, one(1), 1), "caught: boom", "of a call that runs its own statement too")
		require.NoError(t, l.do(t.Context(), Share{}, one(1), 3))
	})
}

func TestLane_a_hung_database_answers_everybody_in_time(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(t)
		l.answer = func(ctx context.Context, _ []int) ([]verdict, error) {
			<-ctx.Done()
			return nil, fmt.Errorf("%w: %w", storage.ErrOutcomeUnknown, ctx.Err())
		}
		start := time.Now()
		first := l.call(t.Context(), Share{}, one(1), 1)
		second := l.call(t.Context(), Share{}, one(1), 2)
		require.ErrorIs(t, <-first, storage.ErrOutcomeUnknown)
		require.ErrorIs(t, <-second, storage.ErrOutcomeUnknown, "it was sent")
		require.Equal(t, 20*time.Second, time.Since(start))

		l.call(t.Context(), Share{}, one(1), 3)
		free := make([]<-chan error, 0, 200)
		for i := range 200 {
			free = append(free, l.call(t.Context(), Share{}, one(1), 4+i))
		}
		for i, a := range free {
			err := <-a
			if i < 100 {
				require.ErrorIs(t, err, storage.ErrOutcomeUnknown)
			} else {
				require.ErrorIs(t, err, storage.ErrUnavailable, "it was never sent, and waits no third time")
			}
		}
		require.Equal(t, 40*time.Second, time.Since(start))
	})
}

func TestLane_the_end_of_the_server_answers_everybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(t)
		base, end := context.WithCancel(t.Context())
		l.base = base
		l.answer = func(ctx context.Context, _ []int) ([]verdict, error) {
			<-ctx.Done()
			return nil, storage.ErrOutcomeUnknown
		}
		runs, waits := l.call(t.Context(), Share{}, one(1), 1), l.call(t.Context(), Share{}, one(1), 2)
		l.close()
		require.ErrorIs(t, <-waits, storage.ErrUnavailable)
		end()
		require.ErrorIs(t, <-runs, storage.ErrOutcomeUnknown)
		l.wait()
		require.ErrorIs(t, l.do(t.Context(), Share{}, one(1), 3), storage.ErrUnavailable)
		require.Len(t, l.statements, 1)
	})
}

func TestE6_Lane_what_somebody_holds_waits_beside_the_lane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := newTestLane(t, func(c *laneConfig[int]) { c.flights, c.statement.Items = 2, 1 })
		slow.answer = func(_ context.Context, calls []int) ([]verdict, error) {
			time.Sleep(2 * time.Second)
			if calls[0] == 7 {
				return nil, fmt.Errorf("%w", storage.ErrLocked)
			}
			return nil, nil
		}
		l := newTestLane(t, func(c *laneConfig[int]) { c.slow = slow.lane })
		l.answer = func(_ context.Context, calls []int) ([]verdict, error) {
			out := make([]verdict, len(calls))
			for i, c := range calls {
				switch c {
				case 3:
					out[i] = alone // an item of it is held
				case 7, 8:
					return nil, storage.ErrLocked // as the whole statement
				}
			}
			return out, nil
		}
		free := l.busy(t)
		start := time.Now()
		var answers []<-chan error
		for i := range 8 {
			answers = append(answers, l.call(t.Context(), Share{}, one(1), i+1))
		}
		free()
		for i, a := range answers {
			if n := i + 1; n != 3 && n != 7 && n != 8 {
				require.NoError(t, <-a)
			}
		}
		require.Zero(t, time.Since(start), "no neighbour waits")
		require.NoError(t, l.do(t.Context(), Share{}, one(1), 9), "nor does who comes later")
		require.Zero(t, time.Since(start))
		require.NoError(t, <-answers[2])
		require.ErrorIs(t, <-answers[6], storage.ErrLocked)
		require.NoError(t, <-answers[7])
		require.Equal(t, 4*time.Second, time.Since(start), "two at a time")
	})
}

// Somebody holds what many calls of one statement need, and each part of it waits for a moment
// in vain. Who comes later waits for none of that.
func TestE6_Lane_no_neighbour_waits_while_a_locked_statement_is_split(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := newTestLane(t)
		l := newTestLane(t, func(c *laneConfig[int]) { c.slow = slow.lane })
		free := l.busy(t)
		var held []<-chan error
		for i := 1; i <= 100; i++ {
			held = append(held, l.call(t.Context(), Share{Queue: 1, Conn: i}, one(1), i))
		}
		l.mu.Lock()
		l.answer = func(_ context.Context, calls []int) ([]verdict, error) {
			if calls[0] > 100 {
				return nil, nil
			}
			time.Sleep(briefWait)
			return nil, storage.ErrLocked
		}
		l.mu.Unlock()
		free()
		synctest.Wait()
		began := time.Now()
		time.Sleep(lockWait)
		require.NoError(t, <-l.call(t.Context(), Share{Queue: 1, Conn: 101}, one(1), 101))
		require.Less(t, time.Since(began), 2*lockWait)
		for _, answer := range held {
			require.NoError(t, <-answer) // by the slow lane
		}
	})
}

func TestLane_calls_are_run_again_in_the_order_that_the_verdicts_say(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(t)
		l.answer = func(_ context.Context, calls []int) ([]verdict, error) {
			if len(calls) < 4 {
				return nil, nil
			}
			return []verdict{again, after, done, again}, nil
		}
		free := l.busy(t)
		for i := range 4 {
			l.call(t.Context(), Share{}, one(1), i+1)
		}
		free()
		require.Equal(t, [][]int{{0}, {1, 2, 3, 4}, {1, 4}, {2}}, l.statements)
	})
}

func TestLane_many_callers_come_and_go_and_each_is_answered_once(t *testing.T) {
	l := newTestLane(t, func(c *laneConfig[int]) { c.waiting = Size{Items: 40, Bytes: 1 << 20} })
	ran := map[int]int{}
	l.answer = func(_ context.Context, calls []int) ([]verdict, error) {
		for _, c := range calls {
			if c%97 == 0 && len(calls) > 1 {
				return nil, storage.ErrRefused
			}
		}
		for _, c := range calls {
			ran[c]++ // one statement at a time: the race detector watches
		}
		return nil, nil
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	answers := map[int]error{}
	for caller := range 64 {
		wg.Go(func() {
			for i := range 200 {
				n := 1 + caller*1000 + i
				ctx, cancel := context.WithCancel(t.Context())
				if i%5 == 0 {
					go cancel()
				}
				err := l.do(ctx, Share{Conn: caller % 8, Queue: int32(i % 3)}, one(int64(i)), n)
				cancel()
				mu.Lock()
				answers[n] = err
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	l.wait()
	require.Zero(t, l.waits())
	require.Empty(t, l.conns)
	require.Empty(t, l.shares)
	require.Len(t, answers, 64*200)
	for n, err := range answers {
		switch {
		case err == nil:
			require.Equal(t, 1, ran[n], n)
		case errors.Is(err, context.Canceled), errors.Is(err, ErrLaneFull):
			require.Zero(t, ran[n], n)
		default:
			t.Fatal(n, err)
		}
	}
}
