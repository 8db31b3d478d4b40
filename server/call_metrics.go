package server

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// callMetrics counts the calls of the gRPC server under the names that dashboards for gRPC
// know. The series of every method are found once, at start: to look them up by their labels
// cost more than the rest of a call's bookkeeping.
type callMetrics struct {
	started  *prometheus.CounterVec
	handled  *prometheus.CounterVec
	received *prometheus.CounterVec
	sent     *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	now      func() time.Time

	// methods are those that the server has, by their full name. It does not change once the
	// server serves.
	methods map[string]*methodMetrics
	// other stands for all that it does not have: their names come from callers.
	other *methodMetrics
}

// methodMetrics are the series of one method.
type methodMetrics struct {
	started, received, sent prometheus.Counter
	handled                 [codes.Unauthenticated + 1]prometheus.Counter // by code
	seconds                 prometheus.Observer
}

func newCallMetrics(reg prometheus.Registerer, now func() time.Time) (*callMetrics, error) {
	labels := []string{"grpc_type", "grpc_service", "grpc_method"}
	withCode := []string{"grpc_type", "grpc_service", "grpc_method", "grpc_code"}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &callMetrics{
		started:  counter("grpc_server_started_total", "Calls begun.", labels...),
		handled:  counter("grpc_server_handled_total", "Calls ended, by code.", withCode...),
		received: counter("grpc_server_msg_received_total", "Requests and frames of streams received.", labels...),
		sent:     counter("grpc_server_msg_sent_total", "Answers and frames of streams sent.", labels...),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "grpc_server_handling_seconds", Help: "Duration of calls.", Buckets: prometheus.DefBuckets,
		}, labels),
		now: now, methods: map[string]*methodMetrics{},
	}
	for _, c := range []prometheus.Collector{m.started, m.handled, m.received, m.sent, m.seconds} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	m.other = m.series("bidi_stream", "(other)", "(other)")
	return m, nil
}

// learn makes the series of all methods of a server.
func (m *callMetrics) learn(s *grpc.Server) {
	for service, info := range s.GetServiceInfo() {
		for _, method := range info.Methods {
			m.methods["/"+service+"/"+method.Name] = m.series(callType(method.IsClientStream, method.IsServerStream), service, method.Name)
		}
	}
}

func callType(client, server bool) string {
	switch {
	case client && server:
		return "bidi_stream"
	case client:
		return "client_stream"
	case server:
		return "server_stream"
	}
	return "unary"
}

func (m *callMetrics) series(labels ...string) *methodMetrics {
	s := &methodMetrics{
		started:  m.started.WithLabelValues(labels...),
		received: m.received.WithLabelValues(labels...),
		sent:     m.sent.WithLabelValues(labels...),
		seconds:  m.seconds.WithLabelValues(labels...),
	}
	for code := range s.handled {
		s.handled[code] = m.handled.WithLabelValues(append(labels, codes.Code(code).String())...)
	}
	return s
}

func (m *callMetrics) of(fullMethod string) *methodMetrics {
	if s := m.methods[fullMethod]; s != nil {
		return s
	}
	return m.other
}

// ended counts the end of a call.
func (s *methodMetrics) ended(err error, d time.Duration) {
	code := callCode(err)
	if int(code) >= len(s.handled) {
		code = codes.Unknown
	}
	s.handled[code].Inc()
	s.seconds.Observe(d.Seconds())
}

// callCode is the code that the caller gets.
func callCode(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	}
	return codes.Unknown
}

func (m *callMetrics) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	s := m.of(info.FullMethod)
	began := m.now()
	s.started.Inc()
	s.received.Inc()
	resp, err := handler(ctx, req)
	if err == nil {
		s.sent.Inc()
	}
	s.ended(err, m.now().Sub(began))
	return resp, err
}

func (m *callMetrics) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	s := m.of(info.FullMethod)
	began := m.now()
	s.started.Inc()
	err := handler(srv, countedStream{ss, s})
	s.ended(err, m.now().Sub(began))
	return err
}

// countedStream counts the frames of a stream.
type countedStream struct {
	grpc.ServerStream

	series *methodMetrics
}

func (s countedStream) SendMsg(m any) error {
	err := s.ServerStream.SendMsg(m)
	if err == nil {
		s.series.sent.Inc()
	}
	return err
}

func (s countedStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		s.series.received.Inc()
	}
	return err
}

// methodOf splits the full name of a method.
func methodOf(fullMethod string) (service, method string) {
	service, method, ok := strings.Cut(strings.TrimPrefix(fullMethod, "/"), "/")
	if !ok {
		return "unknown", service
	}
	return service, method
}
