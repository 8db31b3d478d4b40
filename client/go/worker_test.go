package queuebox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// running is a worker that a test started.
type running struct {
	stop  context.CancelFunc
	ended chan error
}

func runWorker(t *testing.T, c *Client, config WorkerConfig, handler Handler) *running {
	t.Helper()
	config.Queue = "q"
	if way, ok := ways.Load(c); ok {
		config.Delivery = way.(Delivery)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{stop: cancel, ended: make(chan error, 1)}
	w := NewWorker(c, config)
	go func() { r.ended <- w.Run(ctx, handler) }()
	return r
}

// end stops the worker and returns what Run returned and how long that took.
func (r *running) end() (time.Duration, error) {
	began := time.Now()
	r.stop()
	err := <-r.ended
	return time.Since(began), err
}

func TestK7_ClaimsOnlyForFreeSlotsAndHandlersRunBesideEachOther(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fake, c *Client) {
		f.put(50)
		var now, most atomic.Int32
		w := runWorker(t, c, WorkerConfig{Concurrency: 5}, func(_ context.Context, h *Handle) error {
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			// Different lengths, so that slots become free one by one.
			time.Sleep(time.Duration(len(h.Message().ID)+int(h.Message().ID[1]))*time.Second + time.Minute)
			now.Add(-1)
			return nil
		})
		time.Sleep(time.Hour)
		require.EqualValues(t, 5, most.Load())
		completed := f.seen("complete")
		require.Len(t, completed, 50)

		// Whenever more is asked for: what is asked for, and what was claimed and not settled, fit the slots.
		at, asked := f.asked()
		require.Equal(t, 5, asked[0])
		for i, n := range asked {
			require.LessOrEqual(t, n, 5)
			require.Positive(t, n)
			settled := 0
			for _, c := range completed {
				if c.at <= at[i] {
					settled++
				}
			}
			if ways, _ := ways.Load(c); ways == DeliverStream {
				sum := 0
				for _, n := range asked[:i+1] {
					sum += n
				}
				require.LessOrEqual(t, sum-settled, 5, "credit %d", i)
			}
		}
		took, err := w.end()
		require.NoError(t, err)
		require.Zero(t, took, "an idle worker stops at once")
	})
}

func TestK7_ABusyWorkerClaimsNothing(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fake, c *Client) {
		f.put(3)
		release := make(chan struct{})
		w := runWorker(t, c, WorkerConfig{Concurrency: 2}, func(context.Context, *Handle) error {
			<-release
			return nil
		})
		time.Sleep(10 * time.Minute)
		_, asked := f.asked()
		require.Equal(t, []int{2}, asked)
		close(release)
		time.Sleep(time.Second)
		require.Len(t, f.seen("complete"), 3)
		_, err := w.end()
		require.NoError(t, err)
	})
}

func TestK7_HowAHandlerEndsDecidesTheSettlement(t *testing.T) {
	broken := errors.New("downstream broken")
	cases := []struct {
		name    string
		handler Handler
		method  string
		check   func(t *testing.T, req any)
	}{
		{"nil completes", func(context.Context, *Handle) error { return nil }, "complete", nil},
		{"an error retries by the policy of the queue", func(context.Context, *Handle) error { return broken }, "retry", func(t *testing.T, req any) {
			require.Nil(t, req.(*queueboxv1.RetryRequest).DelayMs)
			require.Equal(t, "downstream broken", req.(*queueboxv1.RetryRequest).GetError())
		}},
		{"RetryAfter retries with its delay", func(context.Context, *Handle) error {
			return fmt.Errorf("wrapped: %w", RetryAfter(broken, time.Minute))
		}, "retry", func(t *testing.T, req any) {
			require.EqualValues(t, 60_000, req.(*queueboxv1.RetryRequest).GetDelayMs())
			require.Equal(t, "wrapped: downstream broken", req.(*queueboxv1.RetryRequest).GetError())
		}},
		{"RetryAfter without delay is at once", func(context.Context, *Handle) error { return RetryAfter(broken, 0) }, "retry", func(t *testing.T, req any) {
			require.NotNil(t, req.(*queueboxv1.RetryRequest).DelayMs)
			require.Zero(t, req.(*queueboxv1.RetryRequest).GetDelayMs())
		}},
		{"Reject dead-letters", func(context.Context, *Handle) error { return Reject("MALFORMED", broken) }, "dead-letter", func(t *testing.T, req any) {
			require.Equal(t, "MALFORMED", req.(*queueboxv1.DeadLetterRequest).GetReasonCode())
			require.Equal(t, "downstream broken", req.(*queueboxv1.DeadLetterRequest).GetError())
		}},
		{"a panic retries and its stack stays here", func(context.Context, *Handle) error { panic("boom") }, "retry", func(t *testing.T, req any) {
			require.Equal(t, "panic: boom", req.(*queueboxv1.RetryRequest).GetError())
		}},
		{"a handler that ends its goroutine retries", func(context.Context, *Handle) error { runtime.Goexit(); return nil }, "retry", nil},
		{"what the handler settled is left alone", func(ctx context.Context, h *Handle) error {
			_, err := h.Release(ctx, 0)
			return errors.Join(err, broken)
		}, "release", nil},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			var log strings.Builder
			inBubble(t, func(t *testing.T, f *fake, c *Client) {
				f.put(1)
				w := runWorker(t, c, WorkerConfig{}, tc.handler)
				time.Sleep(time.Second)
				_, err := w.end()
				require.NoError(t, err)
				calls := f.settlements()
				require.Len(t, calls, 1)
				require.Equal(t, tc.method, calls[0].method)
				if tc.check != nil {
					tc.check(t, calls[0].req)
				}
			}, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			if strings.Contains(tc.name, "panic") {
				require.Contains(t, log.String(), "worker_test.go", "the log has the stack")
			}
			switch tc.method {
			case "retry", "dead-letter":
				require.Contains(t, log.String(), `level=WARN msg="handler failed"`)
				require.Contains(t, log.String(), "outcome=")
			case "complete":
				require.Empty(t, log.String(), "success is no news")
			}
			if strings.HasPrefix(tc.name, "Reject") {
				require.Contains(t, log.String(), "reason_code=MALFORMED")
				require.Contains(t, log.String(), `error="downstream broken"`)
			}
		})
	}
}

func TestK7_ARefusedDeadLetterBecomesARetry(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fake, c *Client) {
		f.onSettle = func(_ context.Context, _ int, method string) (bool, error) {
			if method == "dead-letter" {
				return false, failure(t, codes.InvalidArgument, ReasonInvalidArgument, nil)
			}
			return true, nil
		}
		f.put(1)
		w := runWorker(t, c, WorkerConfig{}, func(context.Context, *Handle) error { return Reject(strings.Repeat("x", 300), nil) })
		time.Sleep(time.Second)
		_, err := w.end()
		require.NoError(t, err)
		require.Len(t, f.seen("dead-letter"), 1)
		require.Len(t, f.seen("retry"), 1)
	})
}

func TestK7_AHandlerWhoseSettlementsAreAllRefusedLetsItsLeaseRunOut(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fake, c *Client) {
		f.onSettle = func(context.Context, int, string) (bool, error) {
			return false, failure(t, codes.PermissionDenied, ReasonPermissionDenied, nil)
		}
		f.put(1)
		w := runWorker(t, c, WorkerConfig{}, func(context.Context, *Handle) error { return nil })
		time.Sleep(time.Minute)
		require.Empty(t, f.seen("renew"), "a lease that nobody works under is not kept alive")
		_, err := w.end()
		require.NoError(t, err)
	})
}

func TestK7_StopWaitsEightyPercentThenReleasesTheRest(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fake, c *Client) {
		f.put(4)
		var interrupted atomic.Int64
		w := runWorker(t, c, WorkerConfig{Concurrency: 4, StopTimeout: 10 * time.Second}, func(ctx context.Context, h *Handle) error {
			switch h.Message().ID {
			case "m1": // ends within the 80 %
				time.Sleep(time.Minute + 7*time.Second)
				return nil
			case "m2": // listens to its context
				<-ctx.Done()
				interrupted.Store(int64(time.Since(f.began)))
				if !errors.Is(context.Cause(ctx), ErrStopped) {
					return errors.New("wrong cause")
				}
				return ctx.Err()
			case "m3": // finishes when asked to
				<-ctx.Done()
				return nil
			default: // says itself what is to become of it
				<-ctx.Done()
				return RetryAfter(errors.New("checkpoint"), time.Second)
			}
		})
		time.Sleep(time.Minute)
		_, before := f.asked()
		f.put(1)
		took, err := w.end()
		require.NoError(t, err)
		require.Equal(t, 8*time.Second, took)
		require.Equal(t, time.Minute+8*time.Second, time.Duration(interrupted.Load()))
		_, after := f.asked()
		require.Equal(t, before, after, "no new claims")
		require.Len(t, f.ready, 1)

		became := map[string]string{}
		for _, s := range f.settlements() {
			became[s.req.(interface{ GetMessageId() string }).GetMessageId()] = s.method
		}
		require.Equal(t, map[string]string{"m1": "complete", "m2": "release", "m3": "complete", "m4": "retry"}, became)
		require.Equal(t, time.Minute+7*time.Second, f.seen("complete")[0].at)
		require.NotEmpty(t, f.seen("renew"), "leases are kept while the stop waits")
	})
}

// An orderly stop is told once, with what it gave back: a warning for each handler would be an alarm.
func TestK7_TheLogOfAStopIsNoAlarm(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fake, c *Client) {
		f.put(4)
		var log bytes.Buffer
		config := WorkerConfig{Concurrency: 4, StopTimeout: 10 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		w := runWorker(t, c, config, func(ctx context.Context, h *Handle) error {
			<-ctx.Done()
			if h.Message().ID == "m1" {
				panic("a defect stays one")
			}
			return fmt.Errorf("query: %w", ctx.Err())
		})
		time.Sleep(time.Minute)
		_, err := w.end()
		require.NoError(t, err)
		require.Len(t, f.seen("release"), 3)
		var told []string
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "level=INFO") {
				_, line, _ = strings.Cut(line, "msg=")
				told = append(told, strings.TrimSpace(line))
			} else {
				require.Contains(t, line, "a defect stays one")
			}
		}
		require.Equal(t, []string{
			`"worker stops: it waits for its handlers, then cancels them" queue=q handlers=4 wait=8s within=10s`,
			`"worker stopped" queue=q released=3 took=8s`,
		}, told)
	})
}

func TestK7_StopEndsWithinTheBudgetWhateverHandlersAndServerDo(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fake, c *Client) {
		f.put(3)
		deaf := make(chan struct{})
		w := runWorker(t, c, WorkerConfig{Concurrency: 3, StopTimeout: 10 * time.Second}, func(context.Context, *Handle) error {
			<-deaf // ignores its context
			return nil
		})
		time.Sleep(time.Minute)
		took, err := w.end()
		require.ErrorIs(t, err, ErrStopped)
		require.LessOrEqual(t, took, 10*time.Second)
		releases := f.seen("release")
		require.Len(t, releases, 3, "their messages go back, attempt-free")
		require.Equal(t, time.Minute+9*time.Second, releases[0].at)
		close(deaf)
		synctest.Wait()
		require.Len(t, f.settlements(), 3, "what a handler returns after that changes nothing")
	})
	t.Run("the server does not answer", func(t *testing.T) {
		bothWays(t, func(t *testing.T, f *fake, c *Client) {
			f.onSettle = func(ctx context.Context, _ int, _ string) (bool, error) {
				<-ctx.Done()
				return false, ctx.Err()
			}
			f.put(3)
			deaf := make(chan struct{})
			w := runWorker(t, c, WorkerConfig{Concurrency: 3, StopTimeout: 10 * time.Second}, func(ctx context.Context, h *Handle) error {
				if h.Message().ID != "m1" {
					<-deaf
				}
				<-ctx.Done()
				return ctx.Err()
			})
			time.Sleep(time.Minute)
			took, err := w.end()
			require.ErrorIs(t, err, ErrStopped)
			require.Equal(t, 10*time.Second, took)
			renewals := len(f.seen("renew"))
			time.Sleep(time.Minute)
			require.Len(t, f.seen("renew"), renewals, "leases without a worker run out")
			close(deaf)
		})
	})
}

func TestK7_AReleaseThatIsRefusedAtTheStopLetsTheLeaseRunOut(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fake, c *Client) {
		f.onSettle = func(context.Context, int, string) (bool, error) {
			return false, failure(t, codes.PermissionDenied, ReasonPermissionDenied, nil)
		}
		f.put(1)
		deaf := make(chan struct{})
		w := runWorker(t, c, WorkerConfig{StopTimeout: time.Second}, func(context.Context, *Handle) error {
			<-deaf
			return nil
		})
		time.Sleep(time.Minute)
		_, err := w.end()
		require.ErrorIs(t, err, ErrStopped)
		renewals := len(f.seen("renew"))
		time.Sleep(time.Minute)
		require.Len(t, f.seen("renew"), renewals)
		close(deaf)
	})
}

func TestK7_AMessageThatArrivesWithTheStopGoesBackUnseen(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		ctx, cancel := context.WithCancel(t.Context())
		var handled atomic.Bool
		w := NewWorker(c, WorkerConfig{Queue: "q"})
		r := newRun(w, func(context.Context, *Handle) error {
			handled.Store(true)
			return nil
		})
		defer close(r.quit)
		r.settling, r.endSettling = context.WithCancelCause(t.Context())
		r.handling, r.endHandling = context.WithCancelCause(t.Context())
		defer r.endSettling(nil)
		defer r.endHandling(nil)
		f.put(1)
		h := claimN(t, c, 1)[0]
		r.slots <- struct{}{}
		cancel()
		r.begin(ctx, h, true)
		r.tasks.Wait()
		require.False(t, handled.Load())
		require.Len(t, f.seen("release"), 1)
	})
}

func TestK7_AnErrorThatRepeatingCannotMendEndsTheRun(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onClaim = func(_ context.Context, n int, _ *queueboxv1.ClaimRequest) (*queueboxv1.ClaimResponse, error) {
			if n == 0 {
				return nil, failure(t, codes.Internal, ReasonInternal, nil)
			}
			return nil, failure(t, codes.PermissionDenied, ReasonPermissionDenied, nil)
		}
		w := runWorker(t, c, WorkerConfig{Delivery: DeliverPoll}, func(context.Context, *Handle) error { return nil })
		err := <-w.ended
		w.stop()
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, ReasonPermissionDenied, e.Reason)
		require.Len(t, f.seen("claim"), 2, "INTERNAL is waited out, missing rights are not")
	})
}

func TestK7_WhatIsNotTheServersLastWordIsWaitedOut(t *testing.T) {
	var healed atomic.Bool
	source := func(context.Context) (string, error) {
		if !healed.Load() {
			return "", errors.New("no token for the moment")
		}
		return "token", nil
	}
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onClaim = func(_ context.Context, n int, _ *queueboxv1.ClaimRequest) (*queueboxv1.ClaimResponse, error) {
			switch n {
			case 0:
				return nil, failure(t, codes.Internal, ReasonInternal, nil)
			case 1:
				return nil, failure(t, codes.ResourceExhausted, ReasonTooManyWaiters, nil)
			default:
				return nil, nil
			}
		}
		f.put(1)
		w := runWorker(t, c, WorkerConfig{Delivery: DeliverPoll}, func(context.Context, *Handle) error { return nil })
		time.Sleep(time.Minute)
		healed.Store(true)
		time.Sleep(10 * time.Second)
		require.Len(t, f.seen("complete"), 1)
		_, err := w.end()
		require.NoError(t, err)
	}, WithToken(source))
}

func TestK8_NoSecondRunBesideTheOldHandler(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fake, c *Client) {
		f.onRenew = func(_ context.Context, _ int, req *queueboxv1.BatchRenewRequest) (*queueboxv1.BatchRenewResponse, error) {
			resp := &queueboxv1.BatchRenewResponse{}
			for _, i := range req.GetItems() {
				if i.GetClaimToken() == "t1" {
					resp.Results = append(resp.Results, lostItem(CauseLeaseExpired))
				} else {
					resp.Results = append(resp.Results, f.renewed(false))
				}
			}
			return resp, nil
		}
		var (
			mu     sync.Mutex
			inside int
			tokens []string
		)
		f.put(1)
		w := runWorker(t, c, WorkerConfig{Concurrency: 3}, func(ctx context.Context, h *Handle) error {
			mu.Lock()
			inside++
			require.Equal(t, 1, inside, "one handler at a time")
			tokens = append(tokens, h.token)
			mu.Unlock()
			if h.token == "t1" {
				<-ctx.Done()
				time.Sleep(5 * time.Second) // cleans up slowly after the loss
			}
			mu.Lock()
			inside--
			mu.Unlock()
			return nil
		})
		time.Sleep(10 * time.Second) // the renewal has told the loss
		f.putAgain("m1")             // and the same worker is handed the message again
		time.Sleep(20 * time.Second)
		_, err := w.end()
		require.NoError(t, err)
		require.Equal(t, []string{"t1", "t2"}, tokens)
		calls := f.settlements()
		require.Len(t, calls, 1)
		require.Equal(t, "t2", calls[0].req.(*queueboxv1.CompleteRequest).GetClaimToken())
		require.GreaterOrEqual(t, calls[0].at, 14*time.Second)
	})
}

func TestK8_AMessageWhoseOldHandlerDoesNotEndGoesBack(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fake, c *Client) {
		f.onRenew = func(_ context.Context, _ int, req *queueboxv1.BatchRenewRequest) (*queueboxv1.BatchRenewResponse, error) {
			resp := &queueboxv1.BatchRenewResponse{}
			for _, i := range req.GetItems() {
				if i.GetClaimToken() == "t1" {
					resp.Results = append(resp.Results, lostItem(CauseSuperseded))
				} else {
					resp.Results = append(resp.Results, f.renewed(false))
				}
			}
			return resp, nil
		}
		hung := make(chan struct{})
		var runs atomic.Int32
		f.put(1)
		// A second worker of the same client: the rule is one of the process, not of a worker.
		first := runWorker(t, c, WorkerConfig{WorkerID: "one", StopTimeout: time.Second}, func(context.Context, *Handle) error {
			runs.Add(1)
			<-hung
			return nil
		})
		time.Sleep(11 * time.Second)
		second := runWorker(t, c, WorkerConfig{WorkerID: "two", StopTimeout: time.Second}, func(context.Context, *Handle) error {
			runs.Add(1)
			return nil
		})
		f.putAgain("m1")
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, runs.Load())
		releases := f.seen("release")
		require.Len(t, releases, 1)
		require.Equal(t, "t2", releases[0].req.(*queueboxv1.ReleaseRequest).GetClaimToken())
		require.EqualValues(t, 5000, releases[0].req.(*queueboxv1.ReleaseRequest).GetDelayMs())

		close(hung)
		synctest.Wait()
		f.putAgain("m1")
		time.Sleep(time.Second)
		require.EqualValues(t, 2, runs.Load(), "free again once the old handler has returned")
		for _, w := range []*running{first, second} {
			_, err := w.end()
			require.NoError(t, err)
		}
	})
}

func TestK3_TheContextOfAHandlerEndsWithTheClaim(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fake, c *Client) {
		f.onRenew = func(context.Context, int, *queueboxv1.BatchRenewRequest) (*queueboxv1.BatchRenewResponse, error) {
			return &queueboxv1.BatchRenewResponse{Results: []*queueboxv1.RenewResult{lostItem(CauseSuperseded)}}, nil
		}
		cause := make(chan error, 1)
		f.put(1)
		w := runWorker(t, c, WorkerConfig{}, func(ctx context.Context, _ *Handle) error {
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return nil // believes it is done
		})
		requireLost(t, <-cause, CauseSuperseded)
		_, err := w.end()
		require.NoError(t, err)
		require.Empty(t, f.settlements())
	})
}

func TestWorker_SurvivesAnOutage(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fake, c *Client) {
		var handled atomic.Int32
		w := runWorker(t, c, WorkerConfig{Concurrency: 2}, func(context.Context, *Handle) error {
			handled.Add(1)
			return nil
		})
		for range 5 {
			f.refuse.Store(true)
			f.cut()
			synctest.Wait() // until the fake knows it: what it sends on a broken stream is gone until its lease ends
			f.put(2)
			time.Sleep(5 * time.Minute)
			f.refuse.Store(false)
			time.Sleep(5 * time.Second) // tried at least every two seconds, and paused as long between claims
		}
		require.EqualValues(t, 10, handled.Load())
		_, err := w.end()
		require.NoError(t, err)
	})
}
