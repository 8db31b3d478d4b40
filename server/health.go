package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/server/dispatch"
)

const (
	readyEvery    = time.Second
	readyTimeout  = 3 * time.Second
	maintainEvery = time.Minute
)

// watch follows the storage: a server whose database is away, or has a schema of
// another version, is not ready (D7), and says so within a second or so.
func (s *Server) watch(ctx context.Context) {
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.check(ctx)
		}
	}
}

func (s *Server) check(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	s.setReadiness(ctx, s.api.store.Ready(call))
}

// setReadiness publishes a change. A server that drains stays not ready.
func (s *Server) setReadiness(ctx context.Context, err error) {
	next := &readiness{err}
	var old *readiness
	for {
		old = s.readiness.Load()
		if errors.Is(old.err, errDraining) {
			return
		}
		if s.readiness.CompareAndSwap(old, next) {
			break
		}
	}
	switch {
	case err == nil && old.err != nil:
		s.log.InfoContext(ctx, "ready")
		s.setHealth(healthpb.HealthCheckResponse_SERVING)
	case err != nil && (old.err == nil || errors.Is(old.err, errStarting)):
		s.log.WarnContext(ctx, "not ready", "error", err)
		s.setHealth(healthpb.HealthCheckResponse_NOT_SERVING)
	}
}

func (s *Server) setHealth(status healthpb.HealthCheckResponse_ServingStatus) {
	s.metrics.ready.Set(oneIf(status == healthpb.HealthCheckResponse_SERVING))
	for _, service := range []string{
		"",
		queueboxv1.WorkerService_ServiceDesc.ServiceName,
		queueboxv1.ProducerService_ServiceDesc.ServiceName,
		queueboxv1.AdminService_ServiceDesc.ServiceName,
	} {
		s.health.SetServingStatus(service, status)
	}
}

// maintain does what a replica owes the database, at start and about once a minute.
func (s *Server) maintain(ctx context.Context) {
	for {
		call, cancel := context.WithTimeout(ctx, maintainEvery)
		err := s.api.store.Maintain(call)
		cancel()
		if err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "maintenance failed; it is tried again in a minute", "error", err)
		}
		timer := time.NewTimer(maintainEvery - time.Duration(s.api.jitter()*float64(maintainEvery/6)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// handler serves the metrics and the probes. The texts are for people.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.cfg.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		err := s.readiness.Load().err
		switch {
		case err == nil:
			_, _ = w.Write([]byte("ok\n"))
		case errors.Is(err, errDraining):
			http.Error(w, "draining", http.StatusServiceUnavailable)
		case errors.Is(err, errStarting):
			http.Error(w, "starting", http.StatusServiceUnavailable)
		default:
			http.Error(w, "not ready: "+classify(err).text, http.StatusServiceUnavailable)
		}
	})
	return mux
}

func waiterGauge(d *dispatch.Dispatcher) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "queuebox_waiting_claims", Help: "Claim calls that wait on this server.",
	}, func() float64 { return float64(d.Waiters()) })
}
