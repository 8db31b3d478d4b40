package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	middleware "github.com/grpc-ecosystem/go-grpc-middleware/v2"
	grpcmeta "github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/selector"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalphapb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// requestIDHeader carries the request id in both directions.
const requestIDHeader = "x-request-id"

// interceptor is one row of the table: the same step for both kinds of calls.
type interceptor struct {
	name   string
	unary  grpc.UnaryServerInterceptor
	stream grpc.StreamServerInterceptor
}

// interceptors is the table, from the outside in. The order matters: metrics and
// logging see a panic as the error that recovery makes of it, and every error as the
// status that the caller gets. Authentication and limits will stand after the error
// mapping, so that their errors are mapped too.
func interceptors(log callLog, metrics *grpcprom.ServerMetrics, m *errorMapper, panicked func()) []interceptor {
	recoverWith := recovery.WithRecoveryHandlerContext(func(ctx context.Context, p any) error {
		panicked()
		return m.status(ctx, &apiError{reason: internalReason, text: internalText, cause: caught(p)})
	})
	// Methods that the server does not have come as streams, and their names from callers: a
	// series for each would grow without bound.
	counted := selector.MatchFunc(func(_ context.Context, c grpcmeta.CallMeta) bool { return served(c.Service, c.Method) })
	return []interceptor{
		{"request id", requestIDUnary, requestIDStream},
		{"metrics", metrics.UnaryServerInterceptor(), selector.StreamServerInterceptor(metrics.StreamServerInterceptor(), counted)},
		{"logging", log.unary, log.stream},
		{"recovery", recovery.UnaryServerInterceptor(recoverWith), recovery.StreamServerInterceptor(recoverWith)},
		{"error mapping", m.unary, m.stream},
	}
}

// served tells whether the server has a method that is a stream.
func served(service, method string) bool {
	for _, d := range []*grpc.ServiceDesc{
		&queueboxv1.WorkerService_ServiceDesc, &healthpb.Health_ServiceDesc,
		&reflectionpb.ServerReflection_ServiceDesc, &reflectionalphapb.ServerReflection_ServiceDesc,
	} {
		if d.ServiceName == service {
			return slices.ContainsFunc(d.Streams, func(s grpc.StreamDesc) bool { return s.StreamName == method })
		}
	}
	return false
}

// chains splits the table.
func chains(table []interceptor) []grpc.ServerOption {
	unary := make([]grpc.UnaryServerInterceptor, 0, len(table))
	stream := make([]grpc.StreamServerInterceptor, 0, len(table))
	for _, i := range table {
		unary = append(unary, i.unary)
		stream = append(stream, i.stream)
	}
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(unary...), grpc.ChainStreamInterceptor(stream...)}
}

func (m *errorMapper) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	if err != nil {
		return nil, m.status(ctx, err)
	}
	return resp, nil
}

func (m *errorMapper) stream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return m.status(ss.Context(), handler(srv, ss))
}

type requestIDKey struct{}

// requestID is the id of the call; empty outside of one.
func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// withRequestID takes the id that the caller sent, where it is fit for a log, or makes
// one.
func withRequestID(ctx context.Context) (context.Context, metadata.MD) {
	id := ""
	if sent := metadata.ValueFromIncomingContext(ctx, requestIDHeader); len(sent) == 1 && fitForLog(sent[0]) {
		id = sent[0]
	}
	if id == "" {
		id = randomID()
	}
	return context.WithValue(ctx, requestIDKey{}, id), metadata.MD{requestIDHeader: []string{id}}
}

func fitForLog(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func randomID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	var text [2 * len(b)]byte
	hex.Encode(text[:], b[:])
	return string(text[:])
}

func requestIDUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, header := withRequestID(ctx)
	// Fails only after the header was sent, and nothing sends it before.
	_ = grpc.SetHeader(ctx, header)
	return handler(ctx, req)
}

func requestIDStream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, header := withRequestID(ss.Context())
	_ = ss.SetHeader(header)
	return handler(srv, &middleware.WrappedServerStream{ServerStream: ss, WrappedContext: ctx})
}
