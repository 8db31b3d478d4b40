package server

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// callLog writes one line for each finished call. What the line says is gathered only where the
// level is logged, which for a call that went well is rare: the logging interceptor of
// go-grpc-middleware gathers it first, a quarter of all that a call cost the server.
type callLog struct {
	log *slog.Logger
	now func() time.Time
}

func (l callLog) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	began := l.now()
	resp, err := handler(ctx, req)
	l.finished(ctx, info.FullMethod, "unary", req, began, err)
	return resp, err
}

func (l callLog) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	began := l.now()
	err := handler(srv, ss)
	l.finished(ss.Context(), info.FullMethod, "bidi_stream", nil, began, err)
	return err
}

func (l callLog) finished(ctx context.Context, fullMethod, kind string, req any, began time.Time, err error) {
	code := status.Code(err)
	service, method := methodOf(fullMethod)
	level := callLevel(code)
	if service == healthpb.Health_ServiceDesc.ServiceName {
		level = slog.LevelDebug // health checks come every second and say nothing
	}
	if !l.log.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 16)
	add := func(key, value string) { attrs = append(attrs, slog.String(key, value)) }
	add("request_id", requestID(ctx))
	add("protocol", "grpc")
	add("grpc.component", "server")
	add("grpc.service", service)
	add("grpc.method", method)
	add("grpc.method_type", kind)
	if p, ok := peer.FromContext(ctx); ok {
		add("peer.address", p.Addr.String())
	}
	add("grpc.start_time", began.Format(time.RFC3339))
	if d, ok := ctx.Deadline(); ok {
		add("grpc.request.deadline", d.Format(time.RFC3339))
	}
	if err != nil {
		attrs = append(attrs, subject(req)...)
	}
	add("grpc.code", code.String())
	if err != nil {
		add("grpc.error", err.Error())
		attrs = append(attrs, errorFields(err)...)
	}
	attrs = append(attrs, slog.Float64("grpc.time_ms", float64(l.now().Sub(began).Microseconds())/1000))
	l.log.LogAttrs(ctx, level, "finished call", attrs...)
}

// callLevel says how loud a finished call is: what the caller did wrong is told, what
// the server or the database did wrong is louder.
func callLevel(code codes.Code) slog.Level {
	switch code {
	case codes.OK, codes.Canceled, codes.DeadlineExceeded:
		return slog.LevelDebug
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return slog.LevelError
	case codes.Unavailable, codes.ResourceExhausted:
		return slog.LevelWarn
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.FailedPrecondition,
		codes.Aborted, codes.OutOfRange, codes.Unimplemented, codes.Unauthenticated:
		return slog.LevelInfo
	}
	return slog.LevelInfo
}

// subject names what a refused call was about, for the log. Tokens and payloads are
// never in it, nor is a name that no rule allows.
func subject(req any) []slog.Attr {
	var f []slog.Attr
	add := func(key, value string) {
		if value != "" && len(value) <= maxNameBytes {
			f = append(f, slog.String(key, value))
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
func errorFields(err error) []slog.Attr {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			f := []slog.Attr{slog.String("reason", info.GetReason())}
			for _, key := range []string{"cause", "outcome", "field"} {
				if v := info.GetMetadata()[key]; v != "" {
					f = append(f, slog.String(key, v))
				}
			}
			return f
		}
	}
	return nil
}

// methodOf splits the full name of a method.
func methodOf(fullMethod string) (service, method string) {
	service, method, ok := strings.Cut(strings.TrimPrefix(fullMethod, "/"), "/")
	if !ok {
		return "unknown", service
	}
	return service, method
}
