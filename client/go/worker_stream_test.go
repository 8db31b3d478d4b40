package queuebox

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// credits returns the credit of each frame that asked for some.
func (f *fake) credits() []int {
	_, n := f.asked()
	return n
}

// delivery is a message that a test delivers by itself.
func (f *fake) delivery(id string) *queueboxv1.WorkResponse {
	return &queueboxv1.WorkResponse{Deliveries: []*queueboxv1.ClaimedMessage{{
		Message: &queueboxv1.Message{MessageId: id, Attempt: 1}, ClaimToken: "token-" + id, LeaseRemainingMs: f.lease.Milliseconds(),
	}}}
}

func TestT6_ALossOnTheStreamEndsTheHandlerAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.put(2)
		causes := make(chan error, 1)
		w := runWorker(t, c, WorkerConfig{Concurrency: 2}, func(ctx context.Context, h *Handle) error {
			if h.Message().ID == "m2" {
				time.Sleep(time.Minute)
				return ctx.Err()
			}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil
		})
		time.Sleep(time.Second)
		f.signal(&queueboxv1.WorkResponse{Revocations: []*queueboxv1.Revocation{
			{MessageId: "unknown", ClaimToken: "unknown", ClaimLost: true},
			{MessageId: "m2", ClaimToken: "an older token", ClaimLost: true},
			{MessageId: "m1", ClaimToken: "t1", ClaimLost: true},
		}})
		before := time.Now()
		requireLost(t, <-causes, CauseSignal)
		require.Zero(t, time.Since(before))
		time.Sleep(2 * time.Minute)
		calls := f.settlements()
		require.Len(t, calls, 1, "K3: nothing is sent for the lost one, and the other goes on")
		require.Equal(t, "m2", calls[0].req.(*queueboxv1.CompleteRequest).GetMessageId())
		_, err := w.end()
		require.NoError(t, err)
	})
}

func TestT6_ASignalDuringTheSettlementIsIgnored(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onSettle = func(context.Context, int, string) (bool, error) {
			f.signal(&queueboxv1.WorkResponse{Revocations: []*queueboxv1.Revocation{{MessageId: "m1", ClaimToken: "t1", ClaimLost: true}}})
			time.Sleep(time.Second)
			return true, nil
		}
		f.put(1)
		ends := make(chan error, 1)
		w := runWorker(t, c, WorkerConfig{}, func(ctx context.Context, h *Handle) error {
			_, err := h.Complete(ctx)
			ends <- err
			return nil
		})
		require.NoError(t, <-ends)
		_, err := w.end()
		require.NoError(t, err)
	})
}

func TestT6_AStopThatIsAskedForIsKnownAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.put(1)
		asked := make(chan time.Time, 1)
		w := runWorker(t, c, WorkerConfig{}, func(ctx context.Context, h *Handle) error {
			<-h.CancelRequested()
			asked <- time.Now()
			return ctx.Err()
		})
		time.Sleep(time.Second)
		for range 2 { // said twice, heard once
			f.signal(&queueboxv1.WorkResponse{Revocations: []*queueboxv1.Revocation{{MessageId: "m1", ClaimToken: "t1"}}})
		}
		require.Equal(t, f.began.Add(time.Second), <-asked)
		time.Sleep(time.Second)
		require.Len(t, f.seen("complete"), 1, "the claim holds")
		_, err := w.end()
		require.NoError(t, err)
	})
}

func TestT5_ADrainingStreamIsReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onWork = func(n int, stream workServer) (bool, error) {
			if n > 0 {
				return false, nil
			}
			first, err := stream.Recv()
			if err != nil {
				return true, err
			}
			require.NotEmpty(t, first.GetStart().GetQueue())
			if err := stream.Send(&queueboxv1.WorkResponse{Draining: true}); err != nil {
				return true, err
			}
			// What was claimed before still comes.
			if err := stream.Send(f.delivery("late")); err != nil {
				return true, err
			}
			for err == nil {
				_, err = stream.Recv() // until the worker half-closes
			}
			return true, nil
		}
		f.put(3)
		w := runWorker(t, c, WorkerConfig{Concurrency: 2}, func(context.Context, *Handle) error { return nil })
		time.Sleep(time.Second)
		require.Len(t, f.seen("work"), 2)
		require.Len(t, f.seen("complete"), 4)
		_, err := w.end()
		require.NoError(t, err)
	})
}

func TestT5_AServerThatOnlyDrainsMakesNoLoopThatSpins(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onWork = func(_ int, stream workServer) (bool, error) {
			return true, stream.Send(&queueboxv1.WorkResponse{Draining: true})
		}
		w := runWorker(t, c, WorkerConfig{}, func(context.Context, *Handle) error { return nil })
		time.Sleep(time.Minute)
		require.Less(t, len(f.seen("work")), 100)
		require.Empty(t, f.seen("claim"), "it works as it should: nothing to fall back from")
		_, err := w.end()
		require.NoError(t, err)
	})
}

func TestK7_ANewStreamAsksForTheFreeSlotsOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.put(3)
		release := make(chan struct{})
		var running atomic.Int32
		w := runWorker(t, c, WorkerConfig{Concurrency: 5}, func(context.Context, *Handle) error {
			running.Add(1)
			<-release
			return nil
		})
		time.Sleep(10 * time.Second)
		require.EqualValues(t, 3, running.Load())
		require.Equal(t, []int{5}, f.credits())
		f.cut()
		time.Sleep(10 * time.Second)
		require.Equal(t, []int{5, 2}, f.credits())
		f.put(10)
		time.Sleep(10 * time.Second)
		require.EqualValues(t, 5, running.Load())
		close(release)
		time.Sleep(10 * time.Second)
		require.Len(t, f.seen("complete"), 13)
		_, err := w.end()
		require.NoError(t, err)
	})
}

func TestK7_AnIdleWorkerDoesNotAskForEachMessage(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		w := runWorker(t, c, WorkerConfig{Concurrency: 100}, func(context.Context, *Handle) error { return nil })
		for range 50 {
			f.put(1)
			time.Sleep(time.Second)
		}
		require.Len(t, f.seen("complete"), 50)
		require.Equal(t, []int{100, 25, 25}, f.credits())
		_, err := w.end()
		require.NoError(t, err)
	})
}

func TestK7_SlotsAreAskedForBeforeCreditRunsOut(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.put(90)
		release := make(chan struct{})
		var running atomic.Int32
		w := runWorker(t, c, WorkerConfig{Concurrency: 100}, func(context.Context, *Handle) error {
			if n := running.Add(1); n <= 90 {
				<-release
			}
			return nil
		})
		time.Sleep(time.Second)
		require.Equal(t, []int{100}, f.credits())
		// Ten are in hand. After five messages as many slots came free as are left.
		for range 10 {
			f.put(1)
			time.Sleep(time.Second)
		}
		require.Equal(t, []int{100, 5, 5}, f.credits())
		f.put(40)
		time.Sleep(time.Second)
		require.EqualValues(t, 140, running.Load(), "none of them waits for credit")
		close(release)
		_, err := w.end()
		require.NoError(t, err)
	})
}

func TestK7_SlotsThatAreFreedTogetherAreAskedForTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.put(4000)
		w := runWorker(t, c, WorkerConfig{Concurrency: 2000}, func(context.Context, *Handle) error {
			time.Sleep(time.Second)
			return nil
		})
		time.Sleep(time.Minute)
		require.Len(t, f.seen("complete"), 4000)
		require.Equal(t, 2000, f.credits()[0])
		// Two rounds of 2000 that end at one instant, each settled in a few calls. How the
		// goroutines interleave is not for a test to say, so far from one frame a slot is enough.
		require.Less(t, len(f.credits()), 1000)
		_, err := w.end()
		require.NoError(t, err)
	})
}

func TestK7_AServerThatDeliversMoreThanItMay(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onWork = func(_ int, stream workServer) (bool, error) {
			for i := range 6 {
				if err := stream.Send(f.delivery(strconv.Itoa(i))); err != nil {
					return true, err
				}
			}
			for {
				if _, err := stream.Recv(); err != nil {
					return true, nil //nolint:nilerr // half-closed
				}
			}
		}
		var most, running atomic.Int32
		w := runWorker(t, c, WorkerConfig{Concurrency: 2, StopTimeout: 100 * time.Second}, func(context.Context, *Handle) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			time.Sleep(30 * time.Second)
			return nil
		})
		time.Sleep(45 * time.Second) // two are done, two run, two wait
		took, err := w.end()
		require.NoError(t, err)
		require.EqualValues(t, 2, most.Load(), "never more handlers than slots")
		require.LessOrEqual(t, took, 20*time.Second)
		require.Len(t, f.seen("complete"), 4)
		require.Len(t, f.seen("release"), 2, "what had no slot when the worker stopped goes back unseen")
	})
}

func TestK7_WhatArrivesDuringTheStopGoesBackUnseen(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		closed := make(chan struct{})
		f.onWork = func(_ int, stream workServer) (bool, error) {
			for {
				if _, err := stream.Recv(); err != nil {
					break // half-closed
				}
			}
			close(closed)
			return true, stream.Send(f.delivery("late"))
		}
		w := runWorker(t, c, WorkerConfig{Concurrency: 2}, func(context.Context, *Handle) error {
			t.Error("it was handled")
			return nil
		})
		time.Sleep(time.Second)
		took, err := w.end()
		<-closed
		require.NoError(t, err)
		require.Zero(t, took)
		require.Len(t, f.seen("release"), 1)
	})
}

func TestK7_AStreamThatDoesNotEndIsNotWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onWork = func(_ int, stream workServer) (bool, error) {
			if err := stream.Send(&queueboxv1.WorkResponse{Sequence: 1}); err != nil {
				return true, err
			}
			<-stream.Context().Done()
			return true, nil
		}
		w := runWorker(t, c, WorkerConfig{StopTimeout: 10 * time.Second}, func(context.Context, *Handle) error { return nil })
		time.Sleep(time.Second)
		took, err := w.end()
		require.NoError(t, err)
		require.Equal(t, 500*time.Millisecond, took)
	})
}

func TestK7_TheStopDoesNotWaitForAConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.refuse.Store(true)
		w := runWorker(t, c, WorkerConfig{}, func(context.Context, *Handle) error { return nil })
		time.Sleep(time.Minute)
		took, err := w.end()
		require.NoError(t, err)
		require.Zero(t, took)
	})
}

func TestWorker_FallsBackWhereThereAreNoStreams(t *testing.T) {
	cases := map[string]struct {
		onWork  func(f *fake, n int, stream workServer) error
		streams int // until it falls back
		within  time.Duration
	}{
		"an older server": {func(*fake, int, workServer) error { return status.Error(codes.Unimplemented, "no such method") }, 1, time.Second},
		"a proxy that refuses them": {func(*fake, int, workServer) error {
			return status.Error(codes.Internal, "RST_STREAM")
		}, 3, time.Second},
		"a proxy that holds them back": {func(_ *fake, _ int, stream workServer) error {
			<-stream.Context().Done()
			return nil
		}, 3, 31 * time.Second},
		"a proxy that cuts them soon": {func(_ *fake, _ int, stream workServer) error {
			_ = stream.Send(&queueboxv1.WorkResponse{Sequence: 1})
			time.Sleep(time.Second)
			return status.Error(codes.Unavailable, "cut")
		}, 3, 10 * time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake, c *Client) {
				var healed atomic.Bool
				f.onWork = func(n int, stream workServer) (bool, error) {
					if healed.Load() {
						return false, nil
					}
					return true, tc.onWork(f, n, stream)
				}
				f.put(3)
				w := runWorker(t, c, WorkerConfig{Concurrency: 2}, func(context.Context, *Handle) error { return nil })
				time.Sleep(tc.within)
				require.Len(t, f.seen("complete"), 3)
				require.Len(t, f.seen("work"), tc.streams)
				require.NotEmpty(t, f.seen("claim"))

				// It tries again after a while, and stays with the stream where that works.
				healed.Store(true)
				time.Sleep(2 * minFallback)
				require.Greater(t, len(f.seen("work")), tc.streams)
				claims := len(f.seen("claim"))
				f.put(3)
				time.Sleep(time.Minute)
				require.Len(t, f.seen("complete"), 6)
				require.Len(t, f.seen("claim"), claims)
				_, err := w.end()
				require.NoError(t, err)
			})
		})
	}
}

func TestWorker_MaxBytesIsForClaims(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.put(1)
		w := runWorker(t, c, WorkerConfig{MaxBytes: 100}, func(context.Context, *Handle) error { return nil })
		time.Sleep(time.Second)
		require.Empty(t, f.seen("work"))
		require.EqualValues(t, 100, f.seen("claim")[0].req.(*queueboxv1.ClaimRequest).GetMaxBytes())
		_, err := w.end()
		require.NoError(t, err)
	})
}

func TestWorker_AStreamThatFallsSilentIsReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onWork = func(n int, stream workServer) (bool, error) {
			if n > 0 {
				return false, nil
			}
			if err := stream.Send(&queueboxv1.WorkResponse{Sequence: 1}); err != nil {
				return true, err
			}
			<-stream.Context().Done()
			return true, nil
		}
		w := runWorker(t, c, WorkerConfig{}, func(context.Context, *Handle) error { return nil })
		time.Sleep(2 * streamPatience)
		require.Len(t, f.seen("work"), 2)
		f.put(1)
		time.Sleep(time.Hour) // and one that is only idle is kept
		require.Len(t, f.seen("complete"), 1)
		require.Len(t, f.seen("work"), 2)
		require.Empty(t, f.seen("claim"))
		_, err := w.end()
		require.NoError(t, err)
	})
}

func TestWorker_AStreamThatIsRefusedForGoodEndsTheRun(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onWork = func(n int, _ workServer) (bool, error) {
			if n == 0 {
				return true, failure(t, codes.Internal, ReasonInternal, nil)
			}
			return true, failure(t, codes.InvalidArgument, ReasonLeaseOutOfRange, nil)
		}
		w := runWorker(t, c, WorkerConfig{}, func(context.Context, *Handle) error { return nil })
		err := <-w.ended
		w.stop()
		require.ErrorIs(t, err, ErrLeaseOutOfRange)
		require.Len(t, f.seen("work"), 2)
	})
}

func TestK9_ClosingTheClientEndsAWorkerOnItsStream(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.put(1)
		w := runWorker(t, c, WorkerConfig{Concurrency: 2}, func(ctx context.Context, _ *Handle) error {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), ErrClosed) {
				t.Error(context.Cause(ctx))
			}
			return nil
		})
		time.Sleep(time.Minute)
		require.NoError(t, c.Close())
		require.ErrorIs(t, <-w.ended, ErrClosed)
		w.stop()
		synctest.Wait()
	})
}
