package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	middleware "github.com/grpc-ecosystem/go-grpc-middleware/v2"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
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
func interceptors(log *slog.Logger, metrics *grpcprom.ServerMetrics, m *errorMapper, panicked func()) []interceptor {
	recoverWith := recovery.WithRecoveryHandlerContext(func(ctx context.Context, p any) error {
		panicked()
		return m.status(ctx, &apiError{reason: internalReason, text: internalText, cause: caught(p)})
	})
	logged := []logging.Option{
		logging.WithLogOnEvents(logging.FinishCall),
		logging.WithLevels(callLevel),
		logging.WithErrorFields(errorFields),
		logging.WithFieldsFromContext(func(ctx context.Context) logging.Fields {
			return logging.Fields{"request_id", requestID(ctx)}
		}),
	}
	logger := callLogger(log)
	return []interceptor{
		{"request id", requestIDUnary, requestIDStream},
		{"metrics", metrics.UnaryServerInterceptor(), metrics.StreamServerInterceptor()},
		{"logging", logging.UnaryServerInterceptor(logger, logged...), logging.StreamServerInterceptor(logger, logged...)},
		{"recovery", recovery.UnaryServerInterceptor(recoverWith), recovery.StreamServerInterceptor(recoverWith)},
		{"error mapping", m.unary, m.stream},
	}
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
		logging.AddFields(ctx, subject(req))
		return nil, m.status(ctx, err)
	}
	return resp, nil
}

// subject names what a refused call was about, for the log. Tokens and payloads are
// never in it, nor is a name that no rule allows.
func subject(req any) logging.Fields {
	var f logging.Fields
	add := func(key, value string) {
		if value != "" && len(value) <= maxNameBytes {
			f = append(f, key, value)
		}
	}
	if r, ok := req.(interface{ GetQueue() string }); ok {
		add("queue", r.GetQueue())
	}
	if r, ok := req.(interface{ GetMessageId() string }); ok {
		add("message_id", r.GetMessageId())
	}
	if r, ok := req.(interface{ GetWorkerId() string }); ok {
		add("worker_id", r.GetWorkerId())
	}
	return f
}

// errorFields are the reason of a refused call and what its metadata says of it, so that
// a log can be searched for lost claims.
func errorFields(err error) logging.Fields {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			f := logging.Fields{"reason", info.GetReason()}
			for _, key := range []string{"cause", "outcome", "field"} {
				if v := info.GetMetadata()[key]; v != "" {
					f = append(f, key, v)
				}
			}
			return f
		}
	}
	return nil
}

func (m *errorMapper) stream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return m.status(ss.Context(), handler(srv, ss))
}

// callLevel says how loud a finished call is: what the caller did wrong is told, what
// the server or the database did wrong is louder.
func callLevel(code codes.Code) logging.Level {
	switch code {
	case codes.OK, codes.Canceled, codes.DeadlineExceeded:
		return logging.LevelDebug
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return logging.LevelError
	case codes.Unavailable, codes.ResourceExhausted:
		return logging.LevelWarn
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.FailedPrecondition,
		codes.Aborted, codes.OutOfRange, codes.Unimplemented, codes.Unauthenticated:
		return logging.LevelInfo
	}
	return logging.LevelInfo
}

// callLogger writes finished calls. Health checks come every second and say nothing.
func callLogger(log *slog.Logger) logging.Logger {
	return logging.LoggerFunc(func(ctx context.Context, level logging.Level, msg string, fields ...any) {
		l := slog.Level(level)
		for i := 0; i+1 < len(fields); i += 2 {
			if fields[i] == logging.ServiceFieldKey && fields[i+1] == "grpc.health.v1.Health" {
				l = slog.LevelDebug
			}
		}
		log.Log(ctx, l, msg, fields...) //nolint:sloglint // the middleware's constant, "finished call"
	})
}

type requestIDKey struct{}

// requestID is the id of the call; empty outside of one.
func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// withRequestID takes the id that the caller sent, where it is fit for a log, or makes
// one.
func withRequestID(ctx context.Context) (context.Context, string) {
	id := ""
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		if sent := md.Get(requestIDHeader); len(sent) == 1 && fitForLog(sent[0]) {
			id = sent[0]
		}
	}
	if id == "" {
		id = randomID()
	}
	return context.WithValue(ctx, requestIDKey{}, id), id
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
	return hex.EncodeToString(b[:])
}

func requestIDUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, id := withRequestID(ctx)
	// Fails only after the header was sent, and nothing sends it before.
	_ = grpc.SetHeader(ctx, metadata.Pairs(requestIDHeader, id))
	return handler(ctx, req)
}

func requestIDStream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, id := withRequestID(ss.Context())
	_ = ss.SetHeader(metadata.Pairs(requestIDHeader, id))
	return handler(srv, &middleware.WrappedServerStream{ServerStream: ss, WrappedContext: ctx})
}
