package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/queuebox/queuebox/internal/config"
)

type healthcheckCmd struct {
	config.ConfigOption
	config.AddressOption
	Timeout time.Duration `default:"3s" placeholder:"DURATION" help:"How long to wait for an answer."`
}

// Run asks the health service for the state of the whole server.
func (c *healthcheckCmd) Run(a *app) error {
	address, err := dialAddress(c.Listen)
	if err != nil {
		return usageError{fmt.Errorf("listen: %w", err)}
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("healthcheck %s: %w", address, err)
	}
	defer func() { _ = conn.Close() }()
	answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		return fmt.Errorf("healthcheck %s: %s", address, status.Convert(err).Message())
	}
	if answer.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("healthcheck %s: %s", address, answer.GetStatus())
	}
	_, err = fmt.Fprintln(a.stdout, answer.GetStatus())
	return err
}

// dialAddress turns the address that a server listens on into one that reaches it from
// the same machine: a wildcard is no place to dial to.
func dialAddress(listen string) (string, error) {
	host, port, err := config.SplitAddress(listen)
	if err != nil {
		return "", err
	}
	switch host {
	case "", "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	return net.JoinHostPort(host, port), nil
}
