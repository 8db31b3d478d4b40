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

// down is what a client sees of a server that cannot be reached.
var errDown = status.Error(codes.Unavailable, "no connection")

// endOf waits for the end of a handle's context and returns when that was, since began.
func endOf(h *Handle, began time.Time) time.Duration {
	<-h.Context().Done()
	return time.Since(began)
}

func requireLost(t *testing.T, err error, cause string) {
	t.Helper()
	require.ErrorIs(t, err, ErrClaimLost)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, cause, e.Cause)
}

func TestK1_RenewsFromTheMomentOfTheClaimAtAThirdOfTheLease(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.put(1)
		h := claimN(t, c, 1)[0]
		time.Sleep(5 * time.Minute)
		require.NoError(t, h.Context().Err())

		renewals := f.seen("renew")
		last := f.seen("claim")[0].at
		for _, r := range renewals {
			require.GreaterOrEqual(t, r.at-last, 9*time.Second)
			require.LessOrEqual(t, r.at-last, 10*time.Second)
			last = r.at
		}
		require.GreaterOrEqual(t, len(renewals), 29)
		_, err := h.Complete(t.Context())
		require.NoError(t, err)
	})
}

func TestK1_AllHandlesOfAQueueShareOneRequest(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		// Claimed over four seconds, so with different times to be renewed at.
		for range 5 {
			f.put(20)
			claimN(t, c, 20)
			time.Sleep(time.Second)
		}
		time.Sleep(2*time.Minute - 5*time.Second)
		renewals := f.seen("renew")
		require.LessOrEqual(t, len(renewals), 15, "some nine renewals of each handle, and few requests more")
		for _, r := range renewals[3:] {
			require.Len(t, r.req.(*queueboxv1.BatchRenewRequest).GetItems(), 100)
		}
	})
}

func TestK1_ARequestHoldsAtMostAThousandRenewals(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.put(2500)
		hs := claimN(t, c, 1000)
		hs = append(hs, claimN(t, c, 1000)...)
		hs = append(hs, claimN(t, c, 500)...)
		time.Sleep(10 * time.Second)
		renewed := map[string]bool{}
		for _, r := range f.seen("renew") {
			items := r.req.(*queueboxv1.BatchRenewRequest).GetItems()
			require.LessOrEqual(t, len(items), 1000)
			for _, i := range items {
				renewed[i.GetMessageId()] = true
				require.Zero(t, i.GetLeaseMs(), "0 repeats the length and is never out of range")
			}
		}
		require.Len(t, renewed, 2500)
		for _, h := range hs {
			require.NoError(t, h.Context().Err())
		}
	})
}

func TestK1_ARequestThatHangsDelaysNoOtherHandle(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		hangs := make(chan struct{})
		f.onRenew = func(ctx context.Context, n int, _ *queueboxv1.BatchRenewRequest) (*queueboxv1.BatchRenewResponse, error) {
			if n == 0 {
				close(hangs)
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, nil
		}
		f.put(1)
		claimN(t, c, 1)
		<-hangs
		f.setLease(3 * time.Second)
		f.put(1)
		short := claimN(t, c, 1)[0] // due after one second, and the first request hangs for five
		time.Sleep(4 * time.Second)
		require.NoError(t, short.Context().Err())
		renewals := f.seen("renew")
		require.Greater(t, len(renewals), 3)
		for _, r := range renewals[1:] {
			require.Len(t, r.req.(*queueboxv1.BatchRenewRequest).GetItems(), 1)
			require.Equal(t, "m2", r.req.(*queueboxv1.BatchRenewRequest).GetItems()[0].GetMessageId())
		}
	})
}

func TestK2_WithoutARenewalTheDeadlineCountsFromTheReceipt(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onRenew = func(context.Context, int, *queueboxv1.BatchRenewRequest) (*queueboxv1.BatchRenewResponse, error) {
			return nil, errDown
		}
		f.put(1)
		h := claimN(t, c, 1)[0]
		require.Equal(t, 29*time.Second, endOf(h, f.began), "30 s less the margin of 1 s")
		requireLost(t, context.Cause(h.Context()), CauseLocalDeadline)
		require.Greater(t, len(f.seen("renew")), 5, "a failed renewal is unknown: it goes on")

		_, err := h.Complete(t.Context())
		requireLost(t, err, CauseLocalDeadline)
		require.Empty(t, f.settlements())
	})
}

func TestK2_TheDeadlineCountsFromTheSendingOfTheLastAcceptedRenewal(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		var sent time.Duration
		f.onRenew = func(_ context.Context, n int, _ *queueboxv1.BatchRenewRequest) (*queueboxv1.BatchRenewResponse, error) {
			if n >= 3 {
				return nil, errDown
			}
			sent = time.Since(f.began)
			time.Sleep(4 * time.Second) // the answer is slow; the lease does not begin with it
			return nil, nil
		}
		f.put(1)
		h := claimN(t, c, 1)[0]
		require.Equal(t, sent+30*time.Second, endOf(h, f.began))
		requireLost(t, context.Cause(h.Context()), CauseLocalDeadline)
	})
}

func TestK2_AServerThatNeverAnswersEndsTheHandleAtTheDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onRenew = func(ctx context.Context, _ int, _ *queueboxv1.BatchRenewRequest) (*queueboxv1.BatchRenewResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		f.put(1)
		h := claimN(t, c, 1)[0]
		require.Equal(t, 29*time.Second, endOf(h, f.began))
		require.GreaterOrEqual(t, len(f.seen("renew")), 3)
	})
}

func TestK2_AnOutageShorterThanTheLeaseLosesNothing(t *testing.T) {
	for _, failure := range []error{errDown, status.Error(codes.Internal, "broken"), status.Error(codes.Unauthenticated, "old token")} {
		t.Run(status.Code(failure).String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake, c *Client) {
				f.onRenew = func(context.Context, int, *queueboxv1.BatchRenewRequest) (*queueboxv1.BatchRenewResponse, error) {
					if time.Since(f.began) < 25*time.Second {
						return nil, failure
					}
					return nil, nil
				}
				f.put(3)
				hs := claimN(t, c, 3)
				time.Sleep(2 * time.Minute)
				for _, h := range hs {
					_, err := h.Complete(t.Context())
					require.NoError(t, err)
				}
			})
		})
	}
}

func TestK2_AConnectionThatBreaksIsReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.put(1)
		h := claimN(t, c, 1)[0]
		for range 20 {
			time.Sleep(7 * time.Second)
			f.cut()
		}
		require.NoError(t, h.Context().Err())
	})
}

func TestK2_AnItemThatIsAnsweredWithAnErrorIsUnknown(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onRenew = func(_ context.Context, _ int, req *queueboxv1.BatchRenewRequest) (*queueboxv1.BatchRenewResponse, error) {
			resp := &queueboxv1.BatchRenewResponse{}
			for _, i := range req.GetItems() {
				result := f.renewed(false)
				if i.GetMessageId() == "m2" {
					result.Outcome = &queueboxv1.RenewResult_Error{Error: &queueboxv1.ItemError{
						Code: int32(codes.Unavailable), Reason: queueboxv1.ErrorReason_ERROR_REASON_STORAGE_UNAVAILABLE,
					}}
				}
				resp.Results = append(resp.Results, result)
			}
			return resp, nil
		}
		f.put(2)
		hs := claimN(t, c, 2)
		require.Equal(t, 29*time.Second, endOf(hs[1], f.began))
		requireLost(t, context.Cause(hs[1].Context()), CauseLocalDeadline)
		time.Sleep(time.Minute)
		require.NoError(t, hs[0].Context().Err())
	})
}

func TestK2_AnAnswerThatDoesNotFitTheRequestIsUnknown(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onRenew = func(context.Context, int, *queueboxv1.BatchRenewRequest) (*queueboxv1.BatchRenewResponse, error) {
			return &queueboxv1.BatchRenewResponse{Results: []*queueboxv1.RenewResult{f.renewed(false)}}, nil
		}
		f.put(2)
		for _, h := range claimN(t, c, 2) {
			require.Equal(t, 29*time.Second, endOf(h, f.began))
		}
	})
}

func TestK2_AQueueThatShortensItsLeasesShortensTheDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		var sent time.Duration
		f.onRenew = func(_ context.Context, n int, _ *queueboxv1.BatchRenewRequest) (*queueboxv1.BatchRenewResponse, error) {
			if n > 0 {
				return nil, errDown
			}
			sent = time.Since(f.began)
			f.setLease(6 * time.Second)
			return nil, nil
		}
		f.put(1)
		h := claimN(t, c, 1)[0]
		require.Equal(t, sent+6*time.Second, endOf(h, f.began))
	})
}

func TestK2_AReplayedClaimWithLittleLeftIsRenewedInTime(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.setLease(3 * time.Second)
		f.put(1)
		hs, err := c.Claim(t.Context(), ClaimOptions{Queue: "q", Lease: 30 * time.Second})
		require.NoError(t, err)
		f.setLease(30 * time.Second)
		time.Sleep(time.Minute)
		require.NoError(t, hs[0].Context().Err())
		require.LessOrEqual(t, f.seen("renew")[0].at, time.Second)
	})
}

func TestK3_ALostAnswerCancelsWithin100Milliseconds(t *testing.T) {
	for _, cause := range []string{CauseLeaseExpired, CauseSuperseded, CauseRevoked, CauseCancelled, CauseNotClaimed} {
		t.Run(cause, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake, c *Client) {
				var answered time.Duration
				f.onRenew = func(_ context.Context, _ int, req *queueboxv1.BatchRenewRequest) (*queueboxv1.BatchRenewResponse, error) {
					answered = time.Since(f.began)
					resp := &queueboxv1.BatchRenewResponse{}
					for _, i := range req.GetItems() {
						if i.GetMessageId() == "m2" {
							resp.Results = append(resp.Results, lostItem(cause))
						} else {
							resp.Results = append(resp.Results, f.renewed(false))
						}
					}
					return resp, nil
				}
				f.put(3)
				hs := claimN(t, c, 3)
				require.LessOrEqual(t, endOf(hs[1], f.began)-answered, 100*time.Millisecond)
				requireLost(t, context.Cause(hs[1].Context()), cause)

				for _, err := range settleAllWays(t.Context(), hs[1]) {
					requireLost(t, err, cause)
				}
				require.Empty(t, f.settlements(), "no settlement is sent after the loss is known")
				time.Sleep(time.Minute)
				require.NoError(t, hs[0].Context().Err())
				require.NoError(t, hs[2].Context().Err())
				for _, r := range f.seen("renew")[1:] {
					require.Len(t, r.req.(*queueboxv1.BatchRenewRequest).GetItems(), 2, "a lost claim is not renewed")
				}
			})
		})
	}
}

// settleAllWays tries every settlement and returns the errors.
func settleAllWays(ctx context.Context, h *Handle) []error {
	_, complete := h.Complete(ctx)
	_, retry := h.Retry(ctx, RetryOptions{})
	_, deadLetter := h.DeadLetter(ctx, "code", "text")
	_, release := h.Release(ctx, 0)
	return []error{complete, retry, deadLetter, release}
}

func TestK3_AMessageThatIsGoneOrSettledElsewhereIsALostClaim(t *testing.T) {
	for _, reason := range []queueboxv1.ErrorReason{
		queueboxv1.ErrorReason_ERROR_REASON_MESSAGE_NOT_FOUND, queueboxv1.ErrorReason_ERROR_REASON_CLAIM_SETTLED,
	} {
		t.Run(reason.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake, c *Client) {
				f.onRenew = func(context.Context, int, *queueboxv1.BatchRenewRequest) (*queueboxv1.BatchRenewResponse, error) {
					return &queueboxv1.BatchRenewResponse{Results: []*queueboxv1.RenewResult{
						{Outcome: &queueboxv1.RenewResult_Error{Error: &queueboxv1.ItemError{Code: int32(codes.NotFound), Reason: reason}}},
					}}, nil
				}
				f.put(1)
				h := claimN(t, c, 1)[0]
				require.LessOrEqual(t, endOf(h, f.began), 10*time.Second)
				cause := context.Cause(h.Context())
				require.ErrorIs(t, cause, ErrClaimLost)
				var e *Error
				require.ErrorAs(t, cause, &e)
				require.Equal(t, reasonOf(reason), e.Reason)
			})
		})
	}
}

func TestR6_ACancelRequestReachesTheHandleAndTheClaimHolds(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.onRenew = func(_ context.Context, n int, _ *queueboxv1.BatchRenewRequest) (*queueboxv1.BatchRenewResponse, error) {
			return &queueboxv1.BatchRenewResponse{Results: []*queueboxv1.RenewResult{f.renewed(n > 0)}}, nil
		}
		f.put(1)
		h := claimN(t, c, 1)[0]
		select {
		case <-h.CancelRequested():
		case <-time.After(20 * time.Second):
			require.Fail(t, "the second renewal carried the request")
		}
		time.Sleep(time.Minute) // it is asked for again and again
		require.NoError(t, h.Context().Err())
		_, err := h.Complete(t.Context())
		require.NoError(t, err)
	})
}

func TestK9_CloseEndsHandlesAndRenewals(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.put(2)
		hs := claimN(t, c, 2)
		require.NoError(t, c.Close())
		for _, h := range hs {
			require.ErrorIs(t, context.Cause(h.Context()), ErrClosed)
		}
		_, err := hs[0].Complete(t.Context())
		require.ErrorIs(t, err, ErrClosed)
		_, err = c.Claim(t.Context(), ClaimOptions{Queue: "q"})
		require.ErrorIs(t, err, ErrClosed)
		_, err = c.Enqueue(t.Context(), "q", NewMessage{})
		require.ErrorIs(t, err, ErrClosed)
		require.NoError(t, c.Close(), "a second Close does nothing")
	})
}

func TestK9_TheRenewerEndsWithItsLastHandle(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.put(2)
		for _, h := range claimN(t, c, 2) {
			_, err := h.Complete(t.Context())
			require.NoError(t, err)
		}
		synctest.Wait()
		r := c.renewer("q")
		r.mu.Lock()
		defer r.mu.Unlock()
		require.False(t, r.running)
		require.Empty(t, r.handles)
	})
}

func TestHandle_ContextKeepsTheValuesButNotTheEndOfTheClaimCall(t *testing.T) {
	type key struct{}
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.put(1)
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "value"), time.Second)
		hs, err := c.Claim(ctx, ClaimOptions{Queue: "q"})
		cancel()
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.NoError(t, hs[0].Context().Err())
		require.Equal(t, "value", hs[0].Context().Value(key{}))
		_, err = hs[0].Complete(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, context.Cause(hs[0].Context()), ErrAlreadySettled)
		require.NotErrorIs(t, context.Cause(hs[0].Context()), ErrClaimLost)
	})
}
