package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// untilSignal returns a context that ends at the first SIGINT or SIGTERM. The second one
// ends the process at once: an operator who asks twice does not want to wait for the
// drain. What is cut then is safe, since leases run out by themselves.
func untilSignal(logger *slog.Logger) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case s := <-signals:
			logger.Info("stopping; a second signal stops at once", slog.String("signal", s.String()))
			cancel()
		case <-ctx.Done():
		}
		s := <-signals
		logger.Warn("stopped before the drain ended", slog.String("signal", s.String()))
		os.Exit(exitFailure)
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel()
	}
}
