package queuebox

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

func claimIDs(calls []call) []string {
	ids := make([]string, 0, len(calls))
	for _, c := range calls {
		ids = append(ids, c.req.(*queueboxv1.ClaimRequest).GetClaimId())
	}
	return ids
}

func TestK6_AClaimWithoutAnAnswerIsRepeatedUnderItsClaimID(t *testing.T) {
	errTooMany := failure(t, codes.ResourceExhausted, ReasonTooManyWaiters, nil)
	for name, lose := range map[string]func(f *fake, ctx context.Context) error{
		"unavailable":      func(*fake, context.Context) error { return errDown },
		"connection":       func(f *fake, _ context.Context) error { f.cut(); return errDown },
		"no answer":        func(_ *fake, ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"too many waiters": func(*fake, context.Context) error { return errTooMany },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake, c *Client) {
				f.onClaim = func(ctx context.Context, n int, _ *queueboxv1.ClaimRequest) (*queueboxv1.ClaimResponse, error) {
					if n < 7 {
						return nil, lose(f, ctx)
					}
					return nil, nil
				}
				f.put(1)
				hs, err := c.Claim(t.Context(), ClaimOptions{Queue: "q", Wait: time.Second, WorkerID: "me"})
				require.NoError(t, err)
				require.Len(t, hs, 1)
				calls := f.seen("claim")
				require.Len(t, calls, 8)
				for _, id := range claimIDs(calls) {
					require.Equal(t, claimIDs(calls)[0], id)
				}
				require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, claimIDs(calls)[0])
				require.Equal(t, "me", calls[0].req.(*queueboxv1.ClaimRequest).GetWorkerId())
			})
		})
	}
}

func TestC14_WhatALostAnswerCarriedComesWithTheRepeat(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		go func() {
			time.Sleep(5 * time.Second)
			f.put(3)
			f.cut() // the answer is on its way
		}()
		hs, err := c.Claim(t.Context(), ClaimOptions{Queue: "q", Max: 5, Wait: WaitForever})
		require.NoError(t, err)
		require.Len(t, hs, 3)
		require.Less(t, time.Since(f.began), 8*time.Second)
		for _, h := range hs {
			_, err := h.Complete(t.Context())
			require.NoError(t, err)
		}
	})
}

func TestK6_EachAnsweredClaimHasItsOwnClaimID(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		hs, err := c.Claim(t.Context(), ClaimOptions{Queue: "q", Wait: 50 * time.Second})
		require.NoError(t, err)
		require.Empty(t, hs)
		require.Equal(t, 50*time.Second, time.Since(f.began))
		calls := f.seen("claim")
		require.Len(t, calls, 3)
		seen := map[string]bool{}
		for i, wait := range []int64{20_000, 20_000, 10_000} {
			req := calls[i].req.(*queueboxv1.ClaimRequest)
			require.Equal(t, wait, req.GetWaitMs())
			require.False(t, seen[req.GetClaimId()])
			seen[req.GetClaimId()] = true
		}
	})
}

func TestClaim_WithoutAWaitAnswersAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		hs, err := c.Claim(t.Context(), ClaimOptions{Queue: "q"})
		require.NoError(t, err)
		require.Nil(t, hs)
		require.Zero(t, time.Since(f.began))
	})
}

func TestClaim_WaitForeverEndsWithTheMessageOrTheContext(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		go func() {
			time.Sleep(time.Hour)
			f.put(1)
		}()
		hs, err := c.Claim(t.Context(), ClaimOptions{Queue: "q", Wait: WaitForever})
		require.NoError(t, err)
		require.Len(t, hs, 1)
		require.Equal(t, time.Hour, time.Since(f.began))

		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		_, err = c.Claim(ctx, ClaimOptions{Queue: "q", Wait: WaitForever})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Hour+90*time.Second, time.Since(f.began))
	})
}

func TestT5_ADrainingServerIsAskedAgainAtOnceAndNotWithoutPause(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onClaim = func(context.Context, int, *queueboxv1.ClaimRequest) (*queueboxv1.ClaimResponse, error) {
			if time.Since(f.began) < 10*time.Second {
				return &queueboxv1.ClaimResponse{EmptyReason: queueboxv1.EmptyReason_EMPTY_REASON_DRAINING}, nil
			}
			return nil, nil
		}
		f.put(1)
		hs, err := c.Claim(t.Context(), ClaimOptions{Queue: "q", Wait: 20 * time.Second})
		require.NoError(t, err)
		require.Len(t, hs, 1)
		calls := f.seen("claim")
		require.LessOrEqual(t, calls[1].at, 25*time.Millisecond)
		require.Less(t, len(calls), 40)
	})
}

func TestClaim_AServerWithAShorterWaitIsAskedAgainWithoutAPause(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onClaim = func(context.Context, int, *queueboxv1.ClaimRequest) (*queueboxv1.ClaimResponse, error) {
			time.Sleep(2 * time.Second)
			return &queueboxv1.ClaimResponse{EmptyReason: queueboxv1.EmptyReason_EMPTY_REASON_NONE_READY}, nil
		}
		_, err := c.Claim(t.Context(), ClaimOptions{Queue: "q", Wait: time.Minute})
		require.NoError(t, err)
		require.Len(t, f.seen("claim"), 30)
	})
}

func TestClaim_ARefusalIsReturned(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onClaim = func(context.Context, int, *queueboxv1.ClaimRequest) (*queueboxv1.ClaimResponse, error) {
			return nil, failure(t, codes.InvalidArgument, ReasonLeaseOutOfRange, nil)
		}
		_, err := c.Claim(t.Context(), ClaimOptions{Queue: "q", Wait: WaitForever, Lease: -time.Second, Max: -3})
		require.ErrorIs(t, err, ErrLeaseOutOfRange)
		calls := f.seen("claim")
		require.Len(t, calls, 1)
		require.EqualValues(t, -1000, calls[0].req.(*queueboxv1.ClaimRequest).GetLeaseMs(), "the server judges what the caller gave")
		require.EqualValues(t, -3, calls[0].req.(*queueboxv1.ClaimRequest).GetMaxMessages())
	})
}

func TestClaim_MessageCarriesEverything(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onClaim = func(context.Context, int, *queueboxv1.ClaimRequest) (*queueboxv1.ClaimResponse, error) {
			return &queueboxv1.ClaimResponse{Messages: []*queueboxv1.ClaimedMessage{{
				Message: &queueboxv1.Message{
					MessageId: "m7", Queue: "q", Payload: []byte{0, 1}, ContentType: "a/b", Attributes: map[string]string{"k": "v"},
					IdempotencyKey: "i", OrderingKey: "o", Priority: -2, Attempt: 3, MaxAttempts: 3, LastError: "before",
				},
				ClaimToken: "t", LeaseRemainingMs: 1000,
			}}}, nil
		}
		hs, err := c.Claim(t.Context(), ClaimOptions{Queue: "q"})
		require.NoError(t, err)
		m := hs[0].Message()
		require.Equal(t, &Message{
			ID: "m7", Queue: "q", Payload: []byte{0, 1}, ContentType: "a/b", Attributes: map[string]string{"k": "v"},
			IdempotencyKey: "i", OrderingKey: "o", Priority: -2, Attempt: 3, MaxAttempts: 3, LastError: "before",
		}, m)
		require.True(t, m.LastAttempt())
	})
}

func TestE1_AKeyedEnqueueIsRepeatedAndAnUnkeyedOneIsNot(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onPut = func(_ context.Context, n int, _ *queueboxv1.EnqueueRequest) (*queueboxv1.EnqueueResponse, error) {
			switch n {
			case 0, 1:
				return nil, errDown
			case 2:
				f.cut()
				return nil, errDown
			case 3:
				return &queueboxv1.EnqueueResponse{MessageId: "m9", Duplicate: true}, nil
			default:
				return nil, errDown
			}
		}
		got, err := c.Enqueue(t.Context(), "q", NewMessage{Payload: []byte("x"), IdempotencyKey: "k"})
		require.NoError(t, err)
		require.Equal(t, Enqueued{MessageID: "m9", Duplicate: true}, got)
		require.Len(t, f.seen("enqueue"), 4)

		_, err = c.Enqueue(t.Context(), "q", NewMessage{Payload: []byte("x")})
		require.ErrorIs(t, err, ErrUnavailable)
		require.Len(t, f.seen("enqueue"), 5, "sent once, whatever became of it")

		_, err = c.Enqueue(t.Context(), "q", NewMessage{IdempotencyKey: "k"})
		require.ErrorIs(t, err, ErrUnavailable)
		require.Len(t, f.seen("enqueue"), 5+enqueueTries)
	})
}

func TestEnqueue_ARefusalIsNotRepeated(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onPut = func(context.Context, int, *queueboxv1.EnqueueRequest) (*queueboxv1.EnqueueResponse, error) {
			return nil, failure(t, codes.AlreadyExists, ReasonIdempotencyKeyReused, nil)
		}
		_, err := c.Enqueue(t.Context(), "q", NewMessage{IdempotencyKey: "k"})
		require.ErrorIs(t, err, ErrIdempotencyKeyReused)
		require.Len(t, f.seen("enqueue"), 1)
	})
}

func TestEnqueue_WaitsForAServerThatStarts(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.refuse.Store(true)
		go func() {
			time.Sleep(10 * time.Second)
			f.refuse.Store(false)
		}()
		_, err := c.Enqueue(t.Context(), "q", NewMessage{})
		require.NoError(t, err)
		require.Less(t, time.Since(f.began), 13*time.Second, "the connection is tried every two seconds at least")

		f.refuse.Store(true)
		f.cut()
		synctest.Wait() // the client has seen the end of its connection
		_, err = c.Enqueue(t.Context(), "q", NewMessage{})
		require.ErrorIs(t, err, context.DeadlineExceeded, "30 s without a deadline of the caller")
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
		require.Len(t, f.seen("enqueue"), 1)
	})
}
