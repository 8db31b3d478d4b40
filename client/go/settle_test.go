package queuebox

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

func TestK4_RenewalStopsBeforeTheSettlementIsSent(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onSettle = func(ctx context.Context, n int, _ string) (bool, error) {
			if n < 3 {
				<-ctx.Done() // 5 s each: past the time of the next renewal
				return false, ctx.Err()
			}
			return true, nil
		}
		f.put(1)
		h := claimN(t, c, 1)[0]
		time.Sleep(15 * time.Second)
		before := len(f.seen("renew"))
		_, err := h.Complete(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.Len(t, f.seen("renew"), before)
		require.Len(t, f.seen("complete"), 4)
	})
}

func TestS12_ARenewalAnsweredDuringTheSettlementIsIgnored(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		sent := make(chan struct{})
		settled := make(chan struct{})
		f.onRenew = func(_ context.Context, _ int, _ *queueboxv1.BatchRenewRequest) (*queueboxv1.BatchRenewResponse, error) {
			close(sent)
			<-settled
			return &queueboxv1.BatchRenewResponse{Results: []*queueboxv1.RenewResult{lostItem(CauseNotClaimed)}}, nil
		}
		f.put(1)
		h := claimN(t, c, 1)[0]
		<-sent
		f.onSettle = func(context.Context, int, string) (bool, error) {
			close(settled)
			time.Sleep(time.Millisecond) // everything that needs no time has happened by then
			require.NoError(t, h.Context().Err(), "the late answer about the lease must not look like a loss")
			return true, nil
		}
		_, err := h.Complete(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, context.Cause(h.Context()), ErrAlreadySettled)
	})
}

func TestK5_TheSecondSettlementIsALocalError(t *testing.T) {
	ways := map[string]func(context.Context, *Handle) error{
		"complete":    func(ctx context.Context, h *Handle) error { _, err := h.Complete(ctx); return err },
		"retry":       func(ctx context.Context, h *Handle) error { _, err := h.Retry(ctx, RetryOptions{}); return err },
		"dead-letter": func(ctx context.Context, h *Handle) error { _, err := h.DeadLetter(ctx, "c", "e"); return err },
		"release":     func(ctx context.Context, h *Handle) error { _, err := h.Release(ctx, 0); return err },
	}
	for name, first := range ways {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake, c *Client) {
				f.put(1)
				h := claimN(t, c, 1)[0]
				require.NoError(t, first(t.Context(), h))
				for _, err := range settleAllWays(t.Context(), h) {
					require.ErrorIs(t, err, ErrAlreadySettled)
				}
				calls := f.settlements()
				require.Len(t, calls, 1)
				require.Equal(t, name, calls[0].method)
			})
		})
	}
}

func TestK5_OfConcurrentSettlementsOneIsSent(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.put(1)
		h := claimN(t, c, 1)[0]
		answers := make(chan error, 20)
		for range 20 {
			go func() {
				_, err := h.Complete(t.Context())
				answers <- err
			}()
		}
		won := 0
		for range 20 {
			if err := <-answers; err == nil {
				won++
			} else {
				require.ErrorIs(t, err, ErrAlreadySettled)
			}
		}
		require.Equal(t, 1, won)
		require.Len(t, f.settlements(), 1)
	})
}

func TestS5_ASettlementWhoseAnswerIsLostIsRepeatedWithTheSameToken(t *testing.T) {
	for name, lose := range map[string]func(f *fake, ctx context.Context) error{
		"unavailable": func(*fake, context.Context) error { return errDown },
		"connection":  func(f *fake, _ context.Context) error { f.cut(); return errDown },
		"internal":    func(*fake, context.Context) error { return status.Error(codes.Internal, "broken") },
		"no answer":   func(_ *fake, ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake, c *Client) {
				f.onSettle = func(ctx context.Context, n int, _ string) (bool, error) {
					if n < 3 {
						return true, lose(f, ctx) // written, and the answer is lost
					}
					return true, nil
				}
				f.put(1)
				h := claimN(t, c, 1)[0]
				settled, err := h.Complete(t.Context())
				require.NoError(t, err)
				require.True(t, settled.AlreadySettled)
				require.Equal(t, OutcomeCompleted, settled.Outcome)
				calls := f.settlements()
				require.GreaterOrEqual(t, len(calls), 4)
				for _, call := range calls {
					require.Equal(t, "t1", call.req.(*queueboxv1.CompleteRequest).GetClaimToken())
				}
			})
		})
	}
}

func TestS5_WithoutAnAnswerTheOutcomeIsUnknownAtTheLocalDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onSettle = func(context.Context, int, string) (bool, error) { return false, errDown }
		f.put(1)
		h := claimN(t, c, 1)[0]
		_, err := h.Complete(t.Context())
		require.ErrorIs(t, err, ErrOutcomeUnknown)
		require.ErrorIs(t, err, ErrUnavailable)
		require.NotErrorIs(t, err, ErrClaimLost, "it may have been written")
		calls := f.settlements()
		last := calls[len(calls)-1].at
		// The last try begins before the local deadline; gRPC repeats it twice within a second.
		require.LessOrEqual(t, last, 30*time.Second)
		require.Greater(t, last, 20*time.Second, "it is tried until then")
		require.ErrorIs(t, context.Cause(h.Context()), ErrOutcomeUnknown)
	})
}

func TestS5_TheEndOfTheCallersContextEndsTheRepeating(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onSettle = func(context.Context, int, string) (bool, error) { return false, errDown }
		f.put(1)
		h := claimN(t, c, 1)[0]
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := h.Complete(ctx)
		require.ErrorIs(t, err, ErrOutcomeUnknown)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(f.began), 2*time.Second)
	})
}

func TestSettle_AContextThatHasEndedSpendsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.put(1)
		h := claimN(t, c, 1)[0]
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := h.Complete(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, f.settlements())
		_, err = h.Complete(t.Context())
		require.NoError(t, err)
	})
}

func TestSettle_ARefusedSettlementLeavesTheHandleAsItWas(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onSettle = func(_ context.Context, _ int, method string) (bool, error) {
			switch method {
			case "dead-letter":
				return false, failure(t, codes.InvalidArgument, ReasonInvalidArgument, nil)
			case "complete":
				return false, failure(t, codes.AlreadyExists, ReasonIdempotencyKeyReused, nil)
			}
			return true, nil
		}
		f.put(1)
		h := claimN(t, c, 1)[0]
		_, err := h.DeadLetter(t.Context(), strings.Repeat("x", 256), "")
		require.ErrorIs(t, err, ErrInvalidArgument)
		_, err = h.Complete(t.Context(), WithFollowUps(FollowUp{NewMessage: NewMessage{IdempotencyKey: "taken"}}))
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, ReasonIdempotencyKeyReused, e.Reason, "S10: nothing changed")
		time.Sleep(time.Minute)
		require.NoError(t, h.Context().Err(), "it is renewed again")
		_, err = h.Retry(t.Context(), RetryOptions{})
		require.NoError(t, err)
	})
}

func TestSettle_ARefusalAfterALostAnswerIsNotTakenForOne(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onSettle = func(_ context.Context, n int, _ string) (bool, error) {
			if n < 3 { // what gRPC repeats by itself
				return true, errDown
			}
			return false, failure(t, codes.PermissionDenied, ReasonPermissionDenied, nil)
		}
		f.put(1)
		h := claimN(t, c, 1)[0]
		_, err := h.Complete(t.Context())
		require.ErrorIs(t, err, ErrOutcomeUnknown)
		_, err = h.Retry(t.Context(), RetryOptions{})
		require.ErrorIs(t, err, ErrOutcomeUnknown, "the first may have been written: there is no second")
		require.Empty(t, f.seen("retry"))
	})
}

func TestS6_ADifferentSettlementTellsTheRecordedOutcome(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onSettle = func(context.Context, int, string) (bool, error) {
			return false, failure(t, codes.FailedPrecondition, ReasonClaimSettled, map[string]string{"outcome": "RETRIED"})
		}
		f.put(1)
		_, err := claimN(t, c, 1)[0].Complete(t.Context())
		require.ErrorIs(t, err, ErrClaimSettled)
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, OutcomeRetried, e.Outcome)
		require.Equal(t, codes.FailedPrecondition, status.Code(err))
		require.Len(t, f.settlements(), 1)
	})
}

func TestS8_ALostClaimIsNotRepeated(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onSettle = func(context.Context, int, string) (bool, error) {
			return false, failure(t, codes.FailedPrecondition, ReasonClaimLost, map[string]string{"cause": CauseSuperseded})
		}
		f.put(1)
		h := claimN(t, c, 1)[0]
		_, err := h.Complete(t.Context())
		requireLost(t, err, CauseSuperseded)
		requireLost(t, context.Cause(h.Context()), CauseSuperseded)
		require.Len(t, f.settlements(), 1)
	})
}

func TestS3_WhatASettlementSays(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.put(6)
		hs := claimN(t, c, 6)
		ctx := t.Context()
		_, err := hs[0].Complete(ctx, WithResult([]byte("out")), WithFollowUps(
			FollowUp{NewMessage: NewMessage{Payload: []byte("a"), OrderingKey: "o", IdempotencyKey: "i", Delay: time.Second}},
			FollowUp{Queue: "other", NewMessage: NewMessage{Priority: 3}},
		))
		require.NoError(t, err)
		for i, o := range []RetryOptions{{Error: "no\xff"}, {Delay: 1500 * time.Microsecond}, {Delay: AtOnce}} {
			_, err = hs[1+i].Retry(ctx, o)
			require.NoError(t, err)
		}
		_, err = hs[4].DeadLetter(ctx, "code", "text")
		require.NoError(t, err)
		_, err = hs[5].Release(ctx, time.Second)
		require.NoError(t, err)

		require.Equal(t, []byte("out"), f.seen("complete")[0].req.(*queueboxv1.CompleteRequest).GetResult())
		follow := f.seen("complete")[0].req.(*queueboxv1.CompleteRequest).GetFollowUps()
		require.Len(t, follow, 2)
		require.True(t, proto.Equal(follow[0], &queueboxv1.EnqueueRequest{
			Queue: hs[0].Message().Queue, Payload: []byte("a"), OrderingKey: "o", IdempotencyKey: "i", DelayMs: 1000,
		}))
		require.True(t, proto.Equal(follow[1], &queueboxv1.EnqueueRequest{Queue: "other", Priority: 3}))
		retries := f.seen("retry")
		policy, rounded, atOnce := retries[0].req.(*queueboxv1.RetryRequest), retries[1].req.(*queueboxv1.RetryRequest), retries[2].req.(*queueboxv1.RetryRequest)
		require.Nil(t, policy.DelayMs, "unset takes the policy of the queue")
		require.Equal(t, "no\uFFFD", policy.GetError())
		require.EqualValues(t, 2, rounded.GetDelayMs())
		require.NotNil(t, atOnce.DelayMs)
		require.Zero(t, atOnce.GetDelayMs())
		dead := f.seen("dead-letter")[0].req.(*queueboxv1.DeadLetterRequest)
		require.Equal(t, "code", dead.GetReasonCode())
		require.Equal(t, "text", dead.GetError())
		require.EqualValues(t, 1000, f.seen("release")[0].req.(*queueboxv1.ReleaseRequest).GetDelayMs())
	})
}

func TestK2_AProcessThatWasPausedPastTheDeadlineSendsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.put(1)
		h := claimN(t, c, 1)[0]
		synctest.Wait()
		// A paused process wakes with its timers late: here the goroutine of the renewer is
		// kept from running while the time passes.
		h.renewer.mu.Lock()
		h.deadline = time.Now()
		h.renewer.mu.Unlock()
		_, err := h.Complete(t.Context())
		requireLost(t, err, CauseLocalDeadline)
		require.Empty(t, f.settlements())
		requireLost(t, context.Cause(h.Context()), CauseLocalDeadline)
	})
}
