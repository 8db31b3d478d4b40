package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/queuebox/queuebox/internal/config"
	"github.com/queuebox/queuebox/internal/garbage"
	"github.com/queuebox/queuebox/server"
	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/backends"
)

type serveCmd struct {
	config.Options
}

// Run serves until a signal comes, then drains.
func (c *serveCmd) Run(a *app) error {
	if err := a.loader.Finish(&c.StorageOptions, &c.ConnectionOptions); err != nil {
		return usageError{err}
	}
	if err := a.loader.Check(&c.Options); err != nil {
		return usageError{err}
	}
	if err := checkStorage(c.Storage, c.ListenURL); err != nil {
		return usageError{err}
	}
	logger := newLogger(a.stderr, c.LogOptions)
	ctx, stop := untilSignal(logger)
	defer stop()
	garbage.Tune(garbage.Headroom)
	if c.DebugListen == "" {
		// Nobody can ask for a profile of the memory, and its samples are a thirtieth of the work of
		// batches, whose pieces of memory are large.
		runtime.MemProfileRate = 0
	}

	// The ports come first: a port in use is the most common mistake, and it should
	// show before a database is touched.
	lis, err := listen(ctx, "listen", c.Listen)
	if err != nil {
		return err
	}
	defer func() { _ = lis.Close() }()
	var metrics, profiles net.Listener
	if !c.MetricsOff() {
		if metrics, err = listen(ctx, "metrics-listen", c.MetricsListen); err != nil {
			return err
		}
		defer func() { _ = metrics.Close() }()
	}
	if c.DebugListen != "" {
		if profiles, err = listen(ctx, "debug-listen", c.DebugListen); err != nil {
			return err
		}
		defer func() { _ = profiles.Close() }()
	}

	place := shownStorage(c.Storage)
	store, err := backends.Open(ctx, c.Storage, backends.Options{
		AllowUnsafeDurability: c.AllowUnsafeDurability,
		Migrate:               c.AutoMigrate,
		ListenURL:             c.ListenURL,
		MaxConns:              c.MaxConns,
		Logger:                logger,
	})
	if err != nil {
		if ctx.Err() != nil {
			logger.Info("stopped before the database had answered", slog.String("storage", place))
			return nil // that it did not answer is not its fault, and a stop is no failure
		}
		return explainStorage(c.Storage, serveSchemaHint(c.Storage, err), err)
	}
	defer closeStore(store, logger)

	srv, err := server.New(c.serverConfig(store, logger))
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	if err := c.banner(a, place, store, lis, metrics).write(a.stdout, logger, c.LogFormat); err != nil {
		return fmt.Errorf("standard output: %w", err)
	}
	c.warn(logger)
	var web []webPort
	if metrics != nil {
		web = append(web, webPort{"metrics", metrics, srv.HTTP()})
	}
	if profiles != nil {
		logger.Info("profiles can be taken", slog.String("listen", profiles.Addr().String()))
		web = append(web, webPort{"debug", profiles, profiling()})
	}
	return serve(ctx, srv, lis, web, logger)
}

// closeTimeout bounds how long the end of the process waits for the storage: a database
// that does not answer must not keep it beyond the drain timeout.
const closeTimeout = 2 * time.Second

func closeStore(store storage.Store, logger *slog.Logger) {
	closed := make(chan error, 1)
	go func() { closed <- store.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			logger.Warn("closing the storage", slog.Any("error", err))
		}
	case <-time.After(closeTimeout):
		logger.Warn("the storage does not close in time and is left to the end of the process", slog.Duration("timeout", closeTimeout))
	}
}

// serveSchemaHint tells the way out of a schema that this build does not work with.
// SQLite migrates itself, so that there only the file or the build can be the wrong one.
func serveSchemaHint(url string, err error) string {
	if errors.Is(err, backends.ErrNoSchema) {
		return "run: queuebox-server migrate (or start with --auto-migrate)"
	}
	if backends.File(url) != "" {
		return "give another file, or start the build that wrote this one"
	}
	return "run: queuebox-server migrate (or start with --auto-migrate); if the database has the larger version, start the newer build instead"
}

func listen(ctx context.Context, option, address string) (net.Listener, error) {
	var lc net.ListenConfig
	lis, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, explainListen(option, address, err)
	}
	return lis, nil
}

// webPort is a port that speaks HTTP.
type webPort struct {
	name    string
	lis     net.Listener
	handler http.Handler
}

// serve runs all ports and returns when the drain is over. The HTTP ports outlive the
// drain, so that /readyz can say no while running calls end.
func serve(ctx context.Context, srv *server.Server, lis net.Listener, ports []webPort, logger *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, len(ports))
	for _, port := range ports {
		web := &http.Server{
			Handler:           port.handler,
			ReadHeaderTimeout: 5 * time.Second,
			IdleTimeout:       2 * time.Minute,
			ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		}
		defer func() { _ = web.Close() }()
		go func() {
			if err := web.Serve(port.lis); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("%s port: %w", port.name, err)
				cancel()
			}
		}()
	}
	if err := srv.Serve(ctx, lis); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	select {
	case err := <-failed:
		return err
	default:
		logger.Info("stopped")
		return nil
	}
}

// serverConfig hands every option to the server that it works in.
func (c *serveCmd) serverConfig(store storage.Store, logger *slog.Logger) server.Config {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	cfg := server.DefaultConfig()
	cfg.Store = store
	cfg.Logger = logger
	cfg.Registry = registry
	cfg.Version = versionText()
	cfg.CreateQueues = c.CreateQueues
	cfg.JoinCalls = c.JoinCalls
	cfg.MaxQueues = c.MaxQueues
	cfg.QueueDefaults = c.queueDefaults()
	cfg.MaxPayloadBytes = int64(c.MaxPayloadBytes)
	cfg.MaxStreamBytes = int64(c.MaxStreamBytes)
	cfg.MaxWait = c.MaxWait
	cfg.DrainTimeout = c.DrainTimeout
	cfg.PollInterval = c.PollInterval
	cfg.MaxWaiters = c.MaxWaiters
	cfg.MaxConnectionAge = c.MaxConnectionAge
	cfg.QueueLabels = c.QueueLabels
	return cfg
}

func (c *serveCmd) queueDefaults() storage.QueueSettings {
	return storage.QueueSettings{
		DefaultLease: c.QueueLease,
		MinLease:     c.QueueMinLease,
		MaxLease:     c.QueueMaxLease,
		MaxAttempts:  int32(c.QueueMaxAttempts),
		Retry: storage.RetryPolicy{
			Min:        c.QueueRetryMin,
			Max:        c.QueueRetryMax,
			Multiplier: c.QueueRetryMultiplier,
			Jitter:     c.QueueRetryJitter,
		},
		Ordering:           storage.OrderingSkipDead,
		CompletedRetention: c.QueueCompletedRetention,
		DeadRetention:      c.QueueDeadRetention,
	}
}

func (c *serveCmd) banner(a *app, place string, store storage.Store, lis, metrics net.Listener) *banner {
	b := &banner{
		version:      versionText(),
		storage:      place,
		capabilities: store.Capabilities(),
		grpc:         lis.Addr().String(),
		insecure:     c.Insecure,
		settings:     a.loader.Settings(&c.Options),
	}
	if metrics != nil {
		b.metrics = metrics.Addr().String()
	}
	return b
}

// warn says at start what an operator should know to have switched on.
func (c *serveCmd) warn(logger *slog.Logger) {
	if c.Insecure {
		logger.Warn("serving without encryption and authentication: whoever reaches the port can read and settle every message",
			slog.String("listen", c.Listen))
	}
	if c.MetricsExposed() {
		logger.Warn("metrics can be read from other machines; they name queues and hold no message",
			slog.String("listen", c.MetricsListen))
	}
	if c.AllowUnsafeDurability {
		logger.Warn("starting on a database of unsafe durability is allowed: acknowledged messages may be lost")
	}
}
