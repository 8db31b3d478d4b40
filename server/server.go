// Package server serves a storage.Store over gRPC. Start with [DefaultConfig], [New]
// and [Server.Serve]; [Server.HTTP] has the metrics and the probes.
//
// A handler decodes, validates, calls the storage and encodes, one RPC a file. What
// calls share stands beside them: errors.go (the one place that turns an error into a
// status), validate.go, catalog.go (queues by name), interceptors.go (one table for
// both kinds of calls). Waiting is in package dispatch.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/server/dispatch"
	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/observe"
)

// MaxPayloadLimit is the largest Config.MaxPayloadBytes.
const MaxPayloadLimit = 32 << 20

// Config of a Server. DefaultConfig has everything but the Store.
type Config struct {
	Store  storage.Store
	Logger *slog.Logger
	// Registry takes the metrics and is what /metrics shows.
	Registry *prometheus.Registry
	Version  string
	// CreateQueues lets an Enqueue make the queue that it names, with QueueDefaults, up
	// to MaxQueues (0: no limit; it holds for CreateQueue too).
	CreateQueues  bool
	MaxQueues     int
	QueueDefaults storage.QueueSettings
	// MaxPayloadBytes bounds the payload of a message and the result of a completion, up
	// to MaxPayloadLimit.
	MaxPayloadBytes int64
	// MaxWait cuts wait_ms. DrainTimeout is how long Serve goes on after its ctx ended.
	// PollInterval is the longest pause between two looks while somebody waits.
	MaxWait, DrainTimeout, PollInterval time.Duration
	// MaxWaiters bounds the claims that wait at a time.
	MaxWaiters int
	// MaxStreamBytes bounds what the frames of all streams take that are read and not answered
	// yet, and the deliveries that are not sent yet, in bytes.
	MaxStreamBytes int64
	// JoinCalls joins concurrent calls that enqueue, settle or renew, and those that wait to claim
	// from one queue, into one statement.
	JoinCalls bool
	// MaxConnectionAge is about the longest life of a connection, so that clients spread
	// over new servers; 0: no limit.
	MaxConnectionAge time.Duration
	// workPatience takes the place of the constant in tests; 0 leaves it.
	workPatience time.Duration
	// QueueLabels is the number of queues that get a metric label of their own.
	QueueLabels int
}

// DefaultQueueSettings are those of a queue that its first Enqueue makes.
func DefaultQueueSettings() storage.QueueSettings {
	return storage.QueueSettings{
		DefaultLease: 30 * time.Second,
		MinLease:     time.Second,
		MaxLease:     12 * time.Hour,
		MaxAttempts:  20,
		Retry: storage.RetryPolicy{
			Min: time.Second, Max: time.Hour, Multiplier: 2, Jitter: 0.2,
		},
		Ordering:           storage.OrderingSkipDead,
		CompletedRetention: time.Hour,
	}
}

// DefaultConfig returns a Config that needs only a Store.
func DefaultConfig() Config {
	return Config{
		Logger:           slog.New(slog.DiscardHandler),
		Registry:         prometheus.NewRegistry(),
		Version:          "dev",
		CreateQueues:     true,
		MaxQueues:        10_000,
		QueueDefaults:    DefaultQueueSettings(),
		MaxPayloadBytes:  1 << 20,
		MaxWait:          20 * time.Second,
		DrainTimeout:     20 * time.Second,
		PollInterval:     time.Second,
		MaxWaiters:       10_000,
		MaxStreamBytes:   256 << 20,
		JoinCalls:        true,
		MaxConnectionAge: 30 * time.Minute,
		QueueLabels:      100,
	}
}

func (c Config) validate() error {
	switch {
	case c.Store == nil:
		return errors.New("server config: Store is missing")
	case c.Logger == nil || c.Registry == nil:
		return errors.New("server config: Logger or Registry is missing")
	case c.MaxPayloadBytes < 1 || c.MaxPayloadBytes > MaxPayloadLimit:
		return fmt.Errorf("server config: MaxPayloadBytes is %d, not between 1 and %d", c.MaxPayloadBytes, MaxPayloadLimit)
	case c.MaxWait <= 0 || c.PollInterval <= 0 || c.DrainTimeout <= 0:
		return errors.New("server config: MaxWait, PollInterval and DrainTimeout must be above zero")
	case c.PollInterval > time.Second:
		return errors.New("server config: PollInterval is above one second, which the contract promises")
	case c.MaxStreamBytes < 1:
		return errors.New("server config: MaxStreamBytes is below 1")
	case c.MaxWaiters < 1 || c.MaxQueues < 0 || c.QueueLabels < 0 || c.MaxConnectionAge < 0:
		return errors.New("server config: MaxWaiters, MaxQueues, QueueLabels or MaxConnectionAge is out of range")
	}
	if err := checkSettings("queue defaults", c.QueueDefaults); err != nil {
		return err
	}
	// Last, since it asks the store.
	if most := c.Store.Capabilities().MaxPayload; most > 0 && c.MaxPayloadBytes > most {
		return fmt.Errorf("server config: MaxPayloadBytes is %d, but the database takes %d at most: make --max-payload-bytes smaller, "+
			"or that limit of the database larger (max_allowed_packet of MySQL and MariaDB)", c.MaxPayloadBytes, most)
	}
	return nil
}

// Server is one for a process. Make it with New; Serve runs once.
type Server struct {
	cfg     Config
	log     *slog.Logger
	api     *api
	grpc    *grpc.Server
	health  *health.Server
	metrics *metrics
	http    http.Handler
	served  atomic.Bool
	// readiness is the last answer of Store.Ready: nil while the server can serve.
	readiness atomic.Pointer[readiness]
}

type readiness struct{ err error }

var (
	errStarting = errors.New("starting")
	errDraining = errors.New("draining")
)

// New makes a Server. It does not call the Store yet.
func New(cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	backend := cfg.Store.Capabilities()
	m, err := newMetrics(cfg.Registry, cfg.QueueLabels, cfg.Version, backend.Name)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	store, err := observe.New(cfg.Store, cfg.Registry)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	s := &Server{cfg: cfg, log: cfg.Logger, metrics: m}
	s.readiness.Store(&readiness{errStarting})
	s.api = newAPI(cfg, store, m)
	if err := errors.Join(cfg.Registry.Register(waiterGauge(s.api.dispatch)), cfg.Registry.Register(m.joins)); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	calls := grpcprom.NewServerMetrics(grpcprom.WithServerHandlingTimeHistogram())
	if err := cfg.Registry.Register(calls); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	table := interceptors(callLog{cfg.Logger, s.api.now}, calls, s.api.errors, m.panics.Inc)
	s.grpc = grpc.NewServer(append(chains(table), s.options()...)...)
	s.grpc.RegisterService(describe(&queueboxv1.WorkerService_ServiceDesc), s.api)
	s.grpc.RegisterService(describe(&queueboxv1.ProducerService_ServiceDesc), s.api)
	s.grpc.RegisterService(describe(&queueboxv1.AdminService_ServiceDesc), s.api)
	s.health = health.NewServer()
	healthpb.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	calls.InitializeMetrics(s.grpc)
	s.http = s.handler()
	s.setHealth(healthpb.HealthCheckResponse_NOT_SERVING)
	return s, nil
}

func newAPI(cfg Config, store storage.Store, m *metrics) *api {
	now := time.Now //nolint:forbidigo // the local clock measures pauses; it is never compared with a column
	a := &api{
		cfg: cfg, store: store, log: cfg.Logger, now: now, metrics: m,
		errors:      &errorMapper{log: cfg.Logger, newID: randomID},
		answerBytes: max(7<<19, cfg.MaxPayloadBytes+1<<20),
		jitter:      rand.Float64,
	}
	a.life, a.end = context.WithCancel(context.Background())
	a.catalog = newCatalog(store, now, statementTimeout)
	a.clock = &dbClock{store: store, now: now, timeout: statementTimeout}
	a.stats = newStatsCache(store, now)
	a.full = newFullness(a.stats)
	a.keyed = newKeyedQueues()
	a.blocked = newBlockedCache(store, now, a.keyed)
	a.streams = newStreams()
	a.streamBytes = newStreamBytes(cfg.MaxStreamBytes, m.streamBytes)
	a.ends = newEnds()
	a.signals = newSignals(store, m, cfg.Logger, now)
	a.own = newOwn()
	a.own.store, a.own.upkeep = store, a.upkeep()
	a.own.placed, a.own.finished = a.ownPlaced, a.ownFinished
	a.join = a.newJoiner(store)
	m.joins.joiner = a.join
	a.dispatch = dispatch.New(dispatch.Config{
		Store: store,
		Resolve: func(ctx context.Context, name string) (storage.Queue, bool, error) {
			q, err := a.catalog.get(ctx, name)
			if errors.Is(err, storage.ErrQueueNotFound) {
				return storage.Queue{}, false, nil
			}
			return q, err == nil, err
		},
		Claims: a.signals.changed, Listening: a.signals.listening,
		Own:    a.own.wake,
		Logger: cfg.Logger, Metrics: m,
		PollInterval: cfg.PollInterval, MaxWait: cfg.MaxWait, MaxWaiters: cfg.MaxWaiters,
		ClaimsAlone: !cfg.JoinCalls, StatementTimeout: statementTimeout, MaxWireBytes: a.answerBytes,
		Now: now, Jitter: a.jitter,
	})
	return a
}

// options are those of the gRPC server beside the interceptors.
func (s *Server) options() []grpc.ServerOption {
	// A request that is a little too large is decoded, so that its caller gets
	// PAYLOAD_TOO_LARGE with the limit; one that is far too large gets what gRPC says. The
	// answer of a Claim may be larger than the 4 MiB that clients take by default only
	// where the payload limit is raised.
	recvLimit := int(s.cfg.MaxPayloadBytes) + 16<<20
	opts := make([]grpc.ServerOption, 0, 10)
	opts = append(opts,
		grpc.ForceServerCodecV2(newFrameCodec()),
		grpc.UnknownServiceHandler(unknownMethod),
		grpc.MaxRecvMsgSize(recvLimit),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		// Without these gRPC lets a fast client send up to 16 MiB ahead of what is read of each
		// stream. A message larger than a window still comes at once when it is read.
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		// Workers for handlers save the growth of a stack for each call.
		grpc.NumStreamWorkers(streamWorkers),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
	params := keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}
	if age := s.cfg.MaxConnectionAge; age > 0 {
		// gRPC tells the client to go away at this age, a tenth more or less, and the
		// client then opens its next stream on another connection. The open Heartbeat
		// streams are asked to leave after that (streamAge), and what is left then, waits
		// above all, has the grace.
		params.MaxConnectionAge = age * 8 / 10
		params.MaxConnectionAgeGrace = age*2/10 + s.cfg.MaxWait + 5*time.Second
	}
	return append(opts, grpc.KeepaliveParams(params))
}

const (
	// maxHeaderBytes bounds the metadata of a call.
	maxHeaderBytes = 64 << 10
	// maxStreams bounds the calls that run on one connection; a client opens another one
	// for more. Waiting claims count.
	maxStreams = 4096
	// streamWindow and connWindow bound what a client may send ahead of what is read of a stream
	// and of a connection: enough for 25 MB/s of a stream at 10 ms away. gRPC finds windows by a
	// PING for each message that comes while none is under way: for a caller alone that is as many
	// packets and wake-ups again as the call itself.
	streamWindow = 256 << 10
	connWindow   = 4 << 20
)

// streamWorkers is the number of goroutines that run handlers; calls beyond it get a
// goroutine of their own, whose stack grows three times on the way through a call: that was an
// eighth of all work of the server at 256 callers. A worker keeps some 16 KiB of stack.
const streamWorkers = 512

// HTTP serves /metrics, /livez and /readyz.
func (s *Server) HTTP() http.Handler { return s.http }

// Serve serves until ctx ends, then drains within Config.DrainTimeout and returns nil.
func (s *Server) Serve(ctx context.Context, lis net.Listener) error {
	if s.served.Swap(true) {
		return errors.New("serve: a Server serves once")
	}
	// What runs beside the calls lives on until the drain has ended.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	s.check(background)
	wg.Go(func() { s.watch(background) })
	wg.Go(func() { s.maintain(background) })
	wg.Go(func() { s.api.dispatch.Run(background) })
	wg.Go(func() { s.api.signals.run(background) })
	wg.Go(func() { s.api.upkeep().run(background) })
	wg.Go(func() { s.api.own.run(background) })
	defer func() { //nolint:contextcheck // what runs has to end before the store does, whoever has gone
		stop()
		s.api.join.Close()
		s.api.dispatch.Close()
		wg.Wait()
	}()

	failed := make(chan error, 1)
	go func() { failed <- s.grpc.Serve(bornListener{Listener: lis, now: s.api.now}) }()
	select {
	case err := <-failed:
		s.grpc.Stop()
		if err != nil {
			return fmt.Errorf("serve: %w", err)
		}
		return nil
	case <-ctx.Done():
	}
	s.drain(background)
	s.api.end()
	if err := <-failed; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// drain ends the service in three steps: claims and streams are told to go elsewhere
// while everything else is still served, since workers have leases to settle; then no
// new calls; then no calls.
func (s *Server) drain(ctx context.Context) {
	s.log.InfoContext(ctx, "draining", "timeout", s.cfg.DrainTimeout)
	ctx, cancel := context.WithTimeout(ctx, s.cfg.DrainTimeout)
	defer cancel()
	s.setReadiness(ctx, errDraining)
	s.api.dispatch.Drain()
	s.api.streams.drain()
	s.lameDuck(ctx)

	stopped := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-ctx.Done():
		s.log.WarnContext(ctx, "calls still run at the end of the drain timeout and are cut off")
		s.grpc.Stop()
		<-stopped
	}
	// What was claimed for callers that were sent elsewhere goes back before the end (C15).
	s.api.dispatch.Settle(ctx)
	s.log.InfoContext(ctx, "drained")
}

// lameDuckTime bounds how long a server that drains stays for the sake of leases. Its
// workers can settle through any other server, and a lease outlives this one.
const lameDuckTime = 5 * time.Second

// lameDuck waits until no lease that this server granted is left to settle.
func (s *Server) lameDuck(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, min(lameDuckTime, s.cfg.DrainTimeout*8/10))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for s.api.dispatch.Leases() > 0 || s.api.dispatch.Waiters() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
