package ops

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/config"
)

// maxAnswerBytes takes the largest payload that a server can be set to, with room for the rest.
const maxAnswerBytes = 36 << 20

// connection are the flags that every command has.
type connection struct {
	config.ClientOptions
	Timeout time.Duration `default:"30s" placeholder:"DURATION" group:"Connection" help:"How long one call may take. A command that makes many gives this much to each. Default ${default}."`
	Output  string        `short:"o" default:"table" enum:"table,json" placeholder:"FORMAT" help:"table is for people; json prints the answers of the server, one JSON object a line."`
}

// session is a connection in use by a command.
type session struct {
	*Env
	admin    queueboxv1.AdminServiceClient
	producer queueboxv1.ProducerServiceClient
	conn     *grpc.ClientConn
	server   string
	timeout  time.Duration
	json     bool
}

// open makes the connection; the first call finds out whether somebody is there.
func (c *connection) open(e *Env) (*session, error) {
	if err := c.Check(); err != nil {
		return nil, UsageError{err}
	}
	if c.Timeout <= 0 {
		return nil, UsageError{fmt.Errorf("--timeout: want more than 0, got %s", c.Timeout)}
	}
	transport, err := c.transport()
	if err != nil {
		return nil, UsageError{err}
	}
	conn, err := grpc.NewClient("dns:///"+c.Server,
		grpc.WithTransportCredentials(transport),
		grpc.WithUserAgent("queuebox-server-cli"),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes)))
	if err != nil {
		return nil, UsageError{fmt.Errorf("--server %s: %w", c.Server, err)}
	}
	return &session{
		Env: e, conn: conn, server: c.Server, timeout: c.Timeout, json: c.Output == "json",
		admin: queueboxv1.NewAdminServiceClient(conn), producer: queueboxv1.NewProducerServiceClient(conn),
	}, nil
}

func (c *connection) transport() (credentials.TransportCredentials, error) {
	if !c.ServerTLS && c.ServerCA == "" {
		return insecure.NewCredentials(), nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.ServerCA != "" {
		pem, err := os.ReadFile(c.ServerCA)
		if err != nil {
			return nil, fmt.Errorf("--server-ca: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--server-ca: %s holds no certificate in PEM", c.ServerCA)
		}
	}
	return credentials.NewTLS(cfg), nil
}

// with runs a command over a connection, until it returns or is interrupted.
func (c *connection) with(e *Env, run func(ctx context.Context, s *session) error) error {
	s, err := c.open(e)
	if err != nil {
		return err
	}
	defer func() { _ = s.conn.Close() }()
	ctx, stop := e.Begin()
	defer stop()
	return run(ctx, s)
}

// call makes one call within the time that it may take. Its error is fit to be shown.
func call[Req, Resp any](ctx context.Context, s *session,
	rpc func(context.Context, *Req, ...grpc.CallOption) (*Resp, error), req *Req,
) (*Resp, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	resp, err := rpc(ctx, req)
	if err != nil {
		return nil, s.explain(err)
	}
	return resp, nil
}
