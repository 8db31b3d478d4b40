package queuebox

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// together settles handles beside each other, the first one alone before the others, and returns
// the errors in the order of the handles.
func together(ctx context.Context, hs []*Handle, settle func(ctx context.Context, i int, h *Handle) error) func() []error {
	errs := make([]error, len(hs))
	var wg sync.WaitGroup
	for i, h := range hs {
		wg.Go(func() { errs[i] = settle(ctx, i, h) })
		if i == 0 {
			synctest.Wait()
		}
	}
	synctest.Wait()
	return func() []error {
		wg.Wait()
		return errs
	}
}

func complete(ctx context.Context, _ int, h *Handle) error {
	_, err := h.Complete(ctx)
	return err
}

// held makes the first settlement take a second.
func (f *fake) held() {
	f.onSettle = func(_ context.Context, n int, _ string) (bool, error) {
		if n == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		return true, nil
	}
}

// sizes returns how many items each BatchSettle had.
func (f *fake) sizes() []int {
	var out []int
	for _, c := range f.seen("batch-settle") {
		out = append(out, len(c.req.(*queueboxv1.BatchSettleRequest).GetItems()))
	}
	return out
}

func TestS11_WhatIsSettledDuringACallFormsTheNextOne(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.held()
		f.put(2500)
		hs := append(append(claimN(t, c, 1000), claimN(t, c, 1000)...), claimN(t, c, 500)...)
		ends := make([]Settled, len(hs))
		wait := together(t.Context(), hs, func(ctx context.Context, i int, h *Handle) (err error) {
			switch i % 4 {
			case 0:
				ends[i], err = h.Complete(ctx)
			case 1:
				ends[i], err = h.Retry(ctx, RetryOptions{})
			case 2:
				ends[i], err = h.DeadLetter(ctx, "code", "text")
			case 3:
				ends[i], err = h.Release(ctx, 0)
			}
			return err
		})
		for i, err := range wait() {
			require.NoError(t, err)
			require.Equal(t, []Outcome{OutcomeCompleted, OutcomeRetried, OutcomeDead, OutcomeReleased}[i%4], ends[i].Outcome)
			require.ErrorIs(t, context.Cause(hs[i].Context()), ErrAlreadySettled)
		}
		require.Equal(t, []int{1000, 1000, 499}, f.sizes())
		require.Len(t, f.settlements(), 2500, "each was settled once")
	})
}

func TestS11_OneAloneIsAPlainCall(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.put(10)
		for _, h := range claimN(t, c, 10) {
			_, err := h.Complete(t.Context())
			require.NoError(t, err)
		}
		require.Empty(t, f.sizes())
		require.Len(t, f.seen("complete"), 10)
	})
}

func TestS11_AnItemThatIsRefusedFailsNoNeighbour(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onSettle = func(_ context.Context, n int, method string) (bool, error) {
			switch {
			case method == "dead-letter":
				return false, failure(t, codes.InvalidArgument, ReasonInvalidArgument, nil)
			case method == "retry":
				return false, failure(t, codes.FailedPrecondition, ReasonClaimLost, map[string]string{"cause": CauseSuperseded})
			case n == 0:
				time.Sleep(100 * time.Millisecond)
			}
			return true, nil
		}
		f.put(100)
		hs := claimN(t, c, 100)
		errs := together(t.Context(), hs, func(ctx context.Context, i int, h *Handle) (err error) {
			switch i {
			case 50:
				_, err = h.DeadLetter(ctx, strings.Repeat("x", 300), "")
			case 51:
				_, err = h.Retry(ctx, RetryOptions{})
			default:
				_, err = h.Complete(ctx)
			}
			return err
		})()
		for i, err := range errs {
			switch i {
			case 50:
				require.ErrorIs(t, err, ErrInvalidArgument)
			case 51:
				requireLost(t, err, CauseSuperseded)
				requireLost(t, context.Cause(hs[i].Context()), CauseSuperseded)
			default:
				require.NoError(t, err)
			}
		}
		require.Equal(t, []int{99}, f.sizes())
		time.Sleep(time.Minute)
		require.NoError(t, hs[50].Context().Err(), "the refused one is renewed again")
	})
}

func TestS5_ABatchWithoutAnswerIsRepeatedByEachHandleForItself(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onSettle = func(context.Context, int, string) (bool, error) {
			if time.Since(f.began) < 4*time.Second {
				time.Sleep(100 * time.Millisecond)
				return true, errDown // written, and the answer lost
			}
			return true, nil
		}
		f.onBatch = func(ctx context.Context, _ int, req *queueboxv1.BatchSettleRequest) (*queueboxv1.BatchSettleResponse, error) {
			if time.Since(f.began) < 4*time.Second {
				for _, item := range req.GetItems() {
					f.settleItem(ctx, item)
				}
				return nil, errDown
			}
			return nil, nil
		}
		f.setLease(3 * time.Second) // the local deadline is 2.7 s away, and the server is back after 4 s
		f.put(2)
		short := claimN(t, c, 2)
		f.setLease(30 * time.Second)
		f.put(20)
		long := claimN(t, c, 20)
		hs := slices.Concat(long[:10], short, long[10:])
		results := make([]Settled, len(hs))
		errs := together(t.Context(), hs, func(ctx context.Context, i int, h *Handle) (err error) {
			results[i], err = h.Complete(ctx)
			return err
		})()
		for i, err := range errs {
			if i == 10 || i == 11 {
				require.ErrorIs(t, err, ErrOutcomeUnknown)
				continue
			}
			require.NoError(t, err)
			require.True(t, results[i].AlreadySettled)
		}
	})
}

func TestS11_AnswersThatDoNotMatchAreAnErrorForAll(t *testing.T) {
	for name, answers := range map[string]func([]*queueboxv1.SettleResult) []*queueboxv1.SettleResult{
		"one too few":          func(r []*queueboxv1.SettleResult) []*queueboxv1.SettleResult { return r[1:] },
		"one too many":         func(r []*queueboxv1.SettleResult) []*queueboxv1.SettleResult { return append(r, r[0]) },
		"none":                 func([]*queueboxv1.SettleResult) []*queueboxv1.SettleResult { return nil },
		"in the wrong order":   func(r []*queueboxv1.SettleResult) []*queueboxv1.SettleResult { r[0], r[1] = r[1], r[0]; return r },
		"one of another claim": func(r []*queueboxv1.SettleResult) []*queueboxv1.SettleResult { r[2].ClaimToken = "other"; return r },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake, c *Client) {
				f.held()
				f.onBatch = func(ctx context.Context, n int, req *queueboxv1.BatchSettleRequest) (*queueboxv1.BatchSettleResponse, error) {
					if n > 0 {
						return nil, nil
					}
					resp := &queueboxv1.BatchSettleResponse{}
					for _, item := range req.GetItems() {
						resp.Results = append(resp.Results, f.settleItem(ctx, item))
					}
					resp.Results = answers(resp.GetResults())
					return resp, nil
				}
				f.put(6)
				results := make([]Settled, 6)
				errs := together(t.Context(), claimN(t, c, 6), func(ctx context.Context, i int, h *Handle) (err error) {
					results[i], err = h.Complete(ctx)
					return err
				})()
				for i, err := range errs {
					require.NoError(t, err)
					require.Equal(t, i > 0, results[i].AlreadySettled, "the first answers were not believed, so each asked again")
				}
			})
		})
	}
}

func TestSettle_ACallerThatLeavesCancelsNobodyElse(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.held()
		f.onBatch = func(context.Context, int, *queueboxv1.BatchSettleRequest) (*queueboxv1.BatchSettleResponse, error) {
			time.Sleep(time.Second)
			return nil, nil
		}
		f.put(6)
		hs := claimN(t, c, 6)
		errs := together(t.Context(), hs, func(ctx context.Context, i int, h *Handle) error {
			switch i {
			case 2: // leaves while it waits
				left, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
				ctx = left
			case 3: // leaves while the batch is under way
				left, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
				defer cancel()
				ctx = left
			}
			return complete(ctx, i, h)
		})()
		for i, err := range errs {
			switch i {
			case 2:
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.NotErrorIs(t, err, ErrOutcomeUnknown)
				require.NoError(t, hs[i].Context().Err(), "nothing was sent, so nothing is spent")
			case 3:
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, err, ErrOutcomeUnknown)
			default:
				require.NoError(t, err)
			}
		}
		require.Equal(t, []int{4}, f.sizes())
		time.Sleep(time.Minute)
		require.NotEmpty(t, f.seen("renew"), "the one that was not sent is renewed again")
		_, err := hs[2].Retry(t.Context(), RetryOptions{})
		require.NoError(t, err)
	})
}

func TestSettle_ABatchThatIsRefusedForItsSizeIsSplit(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.held()
		f.onBatch = func(_ context.Context, _ int, req *queueboxv1.BatchSettleRequest) (*queueboxv1.BatchSettleResponse, error) {
			if len(req.GetItems()) > 30 {
				return nil, status.Error(codes.ResourceExhausted, "grpc: received message larger than max")
			}
			return nil, nil
		}
		f.put(101)
		for _, err := range together(t.Context(), claimN(t, c, 101), complete)() {
			require.NoError(t, err)
		}
		require.Equal(t, []int{100, 50, 25, 25, 50, 25, 25}, f.sizes())
		require.Len(t, f.seen("complete"), 101)
	})
}

func TestSettle_AServerThatTakesNoBatchIsAskedOneByOne(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.held()
		f.onBatch = func(context.Context, int, *queueboxv1.BatchSettleRequest) (*queueboxv1.BatchSettleResponse, error) {
			return nil, status.Error(codes.Unimplemented, "unknown method")
		}
		f.put(9)
		for _, err := range together(t.Context(), claimN(t, c, 9), complete)() {
			require.NoError(t, err)
		}
		require.Len(t, f.seen("complete"), 9)
	})
}

func TestSettle_NoRightsOnOneQueueFailNotTheOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.denied = "secret"
		f.onBatch = func(_ context.Context, _ int, req *queueboxv1.BatchSettleRequest) (*queueboxv1.BatchSettleResponse, error) {
			for _, i := range req.GetItems() {
				if i.GetComplete().GetQueue() == f.denied {
					return nil, status.Error(codes.PermissionDenied, "by the proxy")
				}
			}
			return nil, nil
		}
		f.held()
		f.put(8)
		hs, err := c.Claim(t.Context(), ClaimOptions{Queue: "open", Max: 4})
		require.NoError(t, err)
		secret, err := c.Claim(t.Context(), ClaimOptions{Queue: "secret", Max: 4})
		require.NoError(t, err)
		hs = append(hs, secret...)
		errs := together(t.Context(), hs, complete)()
		for i, err := range errs[:4] {
			require.NoError(t, err, i)
		}
		for i, err := range errs[4:] {
			require.Equal(t, codes.PermissionDenied, status.Code(err), i)
			require.NoError(t, hs[4+i].Context().Err())
		}
	})
}

func TestSettle_ABatchIsBoundInBytesAndFollowUps(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.held()
		f.put(12)
		hs := claimN(t, c, 12)
		for i, err := range together(t.Context(), hs, func(ctx context.Context, i int, h *Handle) error {
			big := bytes.Repeat([]byte("x"), 800<<10)
			if i == 7 {
				big = append(bytes.Repeat(big, 2), make([]byte, 1<<20)...) // larger than a batch may be
			}
			_, err := h.Complete(ctx, WithResult(big))
			return err
		})() {
			require.NoError(t, err, i)
		}
		for _, call := range f.seen("batch-settle") {
			size := 0
			for _, item := range call.req.(*queueboxv1.BatchSettleRequest).GetItems() {
				size += len(item.GetComplete().GetResult())
			}
			require.LessOrEqual(t, size, maxSettleBytes)
		}
		require.Len(t, f.seen("complete"), 12)
	})
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.held()
		f.put(10)
		hs := claimN(t, c, 10)
		for i, err := range together(t.Context(), hs, func(ctx context.Context, _ int, h *Handle) error {
			_, err := h.Complete(ctx, WithFollowUps(make([]FollowUp, 400)...))
			return err
		})() {
			require.NoError(t, err, i)
		}
		require.Equal(t, []int{2, 2, 2, 2}, f.sizes(), "at most 1000 follow-ups in a call; the last one goes alone")
	})
}

func TestSettle_ACallThatHangsDelaysNoOtherHandleForLong(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onSettle = func(ctx context.Context, n int, _ string) (bool, error) {
			if n == 0 {
				<-ctx.Done()
				return false, ctx.Err()
			}
			return true, nil
		}
		f.put(50)
		hs := claimN(t, c, 50)
		wait := together(t.Context(), hs, complete)
		time.Sleep(settleStall)
		synctest.Wait()
		require.Equal(t, []int{49}, f.sizes())
		for _, h := range hs[1:] {
			require.ErrorIs(t, context.Cause(h.Context()), ErrAlreadySettled)
		}
		for _, err := range wait() {
			require.NoError(t, err)
		}
	})
}

func TestK3_WhatWaitedPastItsLocalDeadlineIsNotSent(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onSettle = func(ctx context.Context, _ int, _ string) (bool, error) {
			<-ctx.Done()
			return false, ctx.Err()
		}
		f.put(maxStalled + 1)
		hs := claimN(t, c, maxStalled+1)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for _, h := range hs {
			wg.Go(func() { _, _ = h.Complete(ctx) })
			time.Sleep(settleStall + time.Millisecond)
		}
		// Every call of the lane hangs now. A lease of the same length with little left comes.
		f.setLease(2 * time.Second)
		f.put(1)
		short, err := c.Claim(t.Context(), ClaimOptions{Queue: "q", Lease: 30 * time.Second})
		require.NoError(t, err)
		before := time.Now()
		_, err = short[0].Complete(t.Context())
		requireLost(t, err, CauseLocalDeadline)
		require.NotErrorIs(t, err, ErrOutcomeUnknown, "it was never sent")
		require.WithinRange(t, time.Now(), before.Add(1800*time.Millisecond), before.Add(1800*time.Millisecond+settleStall))
		requireLost(t, context.Cause(short[0].Context()), CauseLocalDeadline)
		cancel()
		wg.Wait()
		for _, s := range f.settlements() {
			require.NotEqual(t, short[0].token, s.req.(interface{ GetClaimToken() string }).GetClaimToken())
		}
	})
}

func TestK9_CloseAnswersTheSettlementsThatWait(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onSettle = func(ctx context.Context, _ int, _ string) (bool, error) {
			<-ctx.Done()
			return false, ctx.Err()
		}
		f.put(3)
		hs := claimN(t, c, 3)
		wait := together(t.Context(), hs, complete)
		require.NoError(t, c.Close())
		for i, err := range wait() {
			require.ErrorIs(t, err, ErrClosed)
			require.ErrorIs(t, context.Cause(hs[i].Context()), ErrClosed)
		}
	})
}

func TestSettle_MetadataOfTheCallerGoesWithNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.held()
		f.put(20)
		for _, err := range together(t.Context(), claimN(t, c, 20), func(ctx context.Context, i int, h *Handle) error {
			return complete(metadata.AppendToOutgoingContext(ctx, "caller", strconv.Itoa(i)), i, h)
		})() {
			require.NoError(t, err)
		}
		require.Empty(t, f.sizes())
	})
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.held()
		f.put(20)
		for _, err := range together(t.Context(), claimN(t, c, 20), complete)() {
			require.NoError(t, err)
		}
		require.Empty(t, f.sizes())
	}, WithSeparateSettlements())
}

func TestSettle_AServerThatHasNoRoomIsAskedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		busy := failure(t, codes.ResourceExhausted, ReasonTooManyWaiters, nil)
		f.onSettle = func(_ context.Context, n int, _ string) (bool, error) {
			if n == 0 {
				time.Sleep(100 * time.Millisecond)
				return false, busy
			}
			return true, nil
		}
		f.onBatch = func(_ context.Context, n int, _ *queueboxv1.BatchSettleRequest) (*queueboxv1.BatchSettleResponse, error) {
			if n == 0 {
				return nil, busy
			}
			return nil, nil
		}
		f.put(20)
		for _, err := range together(t.Context(), claimN(t, c, 20), complete)() {
			require.NoError(t, err)
		}
	})
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		busy := failure(t, codes.ResourceExhausted, ReasonTooManyWaiters, nil)
		f.onSettle = func(context.Context, int, string) (bool, error) { return false, busy }
		f.put(1)
		h := claimN(t, c, 1)[0]
		_, err := h.Complete(t.Context())
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		require.NotErrorIs(t, err, ErrOutcomeUnknown, "nothing was written")
		require.NoError(t, h.Context().Err())
		f.onSettle = nil
		_, err = h.Complete(t.Context())
		require.NoError(t, err, "the claim is held as before")
	})
}
