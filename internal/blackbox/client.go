package blackbox

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// Client holds the stubs of one connection.
type Client struct {
	queueboxv1.ProducerServiceClient
	queueboxv1.WorkerServiceClient

	Admin  queueboxv1.AdminServiceClient
	Health healthpb.HealthClient
	Conn   *grpc.ClientConn
}

// Dial connects to a server, with the limits that gRPC has by default: what such a
// client cannot receive the server must not send. It connects again soon after a
// server was killed.
func Dial(tb testing.TB, addr string, opts ...grpc.DialOption) *Client {
	tb.Helper()
	opts = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 100 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}),
	}, opts...)
	conn, err := grpc.NewClient(addr, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return &Client{
		ProducerServiceClient: queueboxv1.NewProducerServiceClient(conn),
		WorkerServiceClient:   queueboxv1.NewWorkerServiceClient(conn),
		Admin:                 queueboxv1.NewAdminServiceClient(conn),
		Health:                healthpb.NewHealthClient(conn),
		Conn:                  conn,
	}
}

// Client connects to the server.
func (s *Server) Client(tb testing.TB) *Client {
	tb.Helper()
	return Dial(tb, s.Addr)
}

// Domain of every google.rpc.ErrorInfo.
const Domain = "queuebox.dev"

// Want is what an error must look like.
type Want struct {
	Code   codes.Code
	Reason string
	// Field that a BadRequest must name; every INVALID_ARGUMENT must name some field.
	Field string
	// Metadata that the ErrorInfo must hold.
	Metadata map[string]string
}

// CheckStatus compares an error with what it must look like: code, ErrorInfo,
// BadRequest, RetryInfo. Nil: it is right.
func CheckStatus(err error, want Want) error {
	if err == nil {
		return fmt.Errorf("got OK, want %v %s", want.Code, want.Reason)
	}
	st, ok := status.FromError(err)
	if !ok {
		return fmt.Errorf("not a status: %w", err)
	}
	var (
		info   *errdetails.ErrorInfo
		bad    *errdetails.BadRequest
		retry  *errdetails.RetryInfo
		fields []string
	)
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.BadRequest:
			bad = d
			for _, v := range d.GetFieldViolations() {
				fields = append(fields, v.GetField())
			}
		case *errdetails.RetryInfo:
			retry = d
		}
	}
	switch {
	case st.Code() != want.Code:
		return fmt.Errorf("code %v, want %v: %w", st.Code(), want.Code, err)
	case info == nil:
		return fmt.Errorf("no ErrorInfo: %w", err)
	case info.GetReason() != want.Reason || info.GetDomain() != Domain:
		return fmt.Errorf("reason %s of %s, want %s: %w", info.GetReason(), info.GetDomain(), want.Reason, err)
	case st.Code() == codes.InvalidArgument && (bad == nil || len(fields) == 0):
		return fmt.Errorf("no BadRequest: %w", err)
	case want.Field != "" && !slices.Contains(fields, want.Field):
		return fmt.Errorf("fields %q, want %q: %w", fields, want.Field, err)
	case (st.Code() == codes.Unavailable || st.Code() == codes.ResourceExhausted) && retry.GetRetryDelay().AsDuration() <= 0:
		return fmt.Errorf("no RetryInfo: %w", err)
	case st.Message() == "":
		return fmt.Errorf("no text for people: %w", err)
	}
	for k, v := range want.Metadata {
		if info.GetMetadata()[k] != v {
			return fmt.Errorf("metadata %v, want %s = %s: %w", maps.Collect(maps.All(info.GetMetadata())), k, v, err)
		}
	}
	return nil
}

// CheckItem compares the error of an item of a batch with what it must look like.
func CheckItem(e *queueboxv1.ItemError, want Want) error {
	reason := strings.TrimPrefix(e.GetReason().String(), "ERROR_REASON_")
	switch {
	case e == nil:
		return fmt.Errorf("no error, want %v %s", want.Code, want.Reason)
	case codes.Code(e.GetCode()) != want.Code || reason != want.Reason:
		return fmt.Errorf("item %v, want %v %s", e, want.Code, want.Reason)
	}
	for k, v := range want.Metadata {
		if e.GetMetadata()[k] != v {
			return fmt.Errorf("item %v, want %s = %s", e, k, v)
		}
	}
	return nil
}

// RequireStatus fails the test where the error is not what it must be.
func RequireStatus(tb testing.TB, err error, want Want) {
	tb.Helper()
	if problem := CheckStatus(err, want); problem != nil {
		tb.Fatal(problem)
	}
}

// RequireItem fails the test where the error of an item is not what it must be.
func RequireItem(tb testing.TB, e *queueboxv1.ItemError, want Want) {
	tb.Helper()
	if problem := CheckItem(e, want); problem != nil {
		tb.Fatal(problem)
	}
}
