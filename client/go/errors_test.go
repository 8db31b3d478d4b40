package queuebox

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

func TestErrors_EachReasonMatchesItsSentinelAndNoOther(t *testing.T) {
	sentinels := map[Reason]error{
		ReasonClaimLost:            ErrClaimLost,
		ReasonClaimSettled:         ErrClaimSettled,
		ReasonMessageNotFound:      ErrMessageNotFound,
		ReasonQueueNotFound:        ErrQueueNotFound,
		ReasonIdempotencyKeyReused: ErrIdempotencyKeyReused,
		ReasonPayloadTooLarge:      ErrPayloadTooLarge,
		ReasonLeaseOutOfRange:      ErrLeaseOutOfRange,
		ReasonQueueFull:            ErrQueueFull,
	}
	for number := range queueboxv1.ErrorReason_name {
		reason := reasonOf(queueboxv1.ErrorReason(number))
		if reason == "" {
			continue
		}
		t.Run(string(reason), func(t *testing.T) {
			err := fmt.Errorf("wrapped: %w", fromRPC("op", failure(t, codes.FailedPrecondition, reason, nil)))
			for r, sentinel := range sentinels {
				require.Equal(t, r == reason, errors.Is(err, sentinel), sentinel)
			}
			item := fromItem("op", &queueboxv1.ItemError{
				Code: int32(codes.FailedPrecondition), Reason: queueboxv1.ErrorReason(number), Message: "as the test wants",
			})
			require.Equal(t, fromRPC("op", failure(t, codes.FailedPrecondition, reason, nil)).Error(), item.Error(),
				"an item says what the unary call would have said")
		})
	}
}

func TestErrors_CarryReasonCauseDelayFieldsAndStatus(t *testing.T) {
	st, err := status.New(codes.FailedPrecondition, "text of the server").WithDetails(
		&errdetails.ErrorInfo{Reason: "OTHER", Domain: "proxy.example.com", Metadata: map[string]string{"cause": "OTHER"}},
		&errdetails.ErrorInfo{Reason: "CLAIM_LOST", Domain: errorDomain, Metadata: map[string]string{"cause": CauseRevoked}},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(3 * time.Second)},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "queue", Description: "too long"}}},
	)
	require.NoError(t, err)
	wrapped := fmt.Errorf("wrapped: %w", fromRPC("complete", st.Err()))
	var e *Error
	require.ErrorAs(t, wrapped, &e)
	require.Equal(t, ReasonClaimLost, e.Reason)
	require.Equal(t, CauseRevoked, e.Cause)
	require.Equal(t, 3*time.Second, e.RetryDelay)
	require.Equal(t, []FieldViolation{{Field: "queue", Description: "too long"}}, e.Violations)
	require.Equal(t, codes.FailedPrecondition, status.Code(wrapped))
	require.Len(t, e.GRPCStatus().Details(), 4)
	require.Equal(t, "queuebox: complete: CLAIM_LOST/REVOKED: text of the server", e.Error())
}

func TestErrors_OfTheConnectionMatchContextAndUnavailable(t *testing.T) {
	require.ErrorIs(t, fromRPC("claim", status.Error(codes.Unavailable, "x")), ErrUnavailable)
	require.ErrorIs(t, fromRPC("claim", status.FromContextError(context.DeadlineExceeded).Err()), context.DeadlineExceeded)
	require.ErrorIs(t, fromRPC("claim", status.Error(codes.Canceled, "x")), context.Canceled)
	require.ErrorIs(t, fromRPC("claim", failure(t, codes.Unavailable, ReasonStorageUnavailable, nil)), ErrUnavailable)
	require.ErrorIs(t, fromRPC("claim", failure(t, codes.Unimplemented, ReasonUnimplemented, nil)), ErrUnimplemented)
	require.NotErrorIs(t, fromRPC("claim", status.Error(codes.Unavailable, "x")), ErrClaimLost)
}
