package queuebox

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// DefaultMaxAnswerBytes is the largest answer that a client takes unless WithMaxAnswerBytes says
// otherwise: what the largest payload that a server can be set to takes, with room for the rest.
const DefaultMaxAnswerBytes = 36 << 20

// TokenSource returns the bearer token for one call. It is asked for every call, so it should
// keep what it has and fetch only what ran out. It may be called by several goroutines at once.
type TokenSource func(ctx context.Context) (string, error)

// Option changes how Dial connects.
type Option func(*settings)

// settings is what the options fill in.
type settings struct {
	transport      credentials.TransportCredentials
	insecure       bool
	token          TokenSource
	perRPC         []credentials.PerRPCCredentials
	dial           []grpc.DialOption
	logger         *slog.Logger
	workerID       string
	maxAnswerBytes int
	separate       bool
}

// WithTLS encrypts the connection. A nil config takes the certificates that the system trusts
// and the name of the host from the target.
func WithTLS(config *tls.Config) Option {
	return func(s *settings) { s.transport = credentials.NewTLS(config.Clone()) }
}

// WithTransportCredentials takes any transport credentials of gRPC, where WithTLS is not enough.
func WithTransportCredentials(c credentials.TransportCredentials) Option {
	return func(s *settings) { s.transport = c }
}

// WithInsecure allows a connection without encryption to a host other than this one. Everybody
// on the way reads payloads, claim tokens and bearer tokens, and may use them.
func WithInsecure() Option {
	return func(s *settings) { s.insecure = true }
}

// WithToken sends "authorization: Bearer <token>" with every call.
func WithToken(source TokenSource) Option {
	return func(s *settings) { s.token = source }
}

// WithPerRPCCredentials takes any per-call credentials of gRPC, where WithToken is not enough.
func WithPerRPCCredentials(c credentials.PerRPCCredentials) Option {
	return func(s *settings) { s.perRPC = append(s.perRPC, c) }
}

// WithDialOptions adds options of gRPC: interceptors, a stats handler, a dialer. They come after
// those of the client and so win over them.
func WithDialOptions(options ...grpc.DialOption) Option {
	return func(s *settings) { s.dial = append(s.dial, options...) }
}

// WithLogger sets where the client writes what nobody's return value tells: a server that cannot
// be reached, repeated claims, failed renewals, lost claims, and what the handlers of a worker
// return, retries, dead letters and panics with their stack. The default is what slog.Default is
// at Dial; nil drops it. Payloads and tokens are never logged, the text of a handler's error is.
func WithLogger(logger *slog.Logger) Option {
	return func(s *settings) {
		if logger == nil {
			logger = slog.New(slog.DiscardHandler)
		}
		s.logger = logger
	}
}

// WithWorkerID sets the name under which claims are made that name none. The default is made of
// host, process and a random part, so that it is unique: the server takes two claims of one
// worker_id for claims of the same worker.
func WithWorkerID(id string) Option {
	return func(s *settings) { s.workerID = id }
}

// WithMaxAnswerBytes sets the largest answer taken, in bytes. It must be at least the payload
// limit of the server plus 1 MiB; a smaller one makes claims fail whose leases then run out.
func WithMaxAnswerBytes(n int) Option {
	return func(s *settings) { s.maxAnswerBytes = n }
}

// WithSeparateSettlements sends each settlement as a call of its own, under the context of its
// caller, for interceptors that need to see it so. By default the settlements that handles make
// while a call is under way go into one BatchSettle, which costs a fraction; a settlement whose
// context carries outgoing metadata of gRPC goes alone in any case.
func WithSeparateSettlements() Option {
	return func(s *settings) { s.separate = true }
}

// dialOptions returns what gRPC needs for target, or an error that says what is missing.
func (s *settings) dialOptions(target string) ([]grpc.DialOption, error) {
	if err := checkTarget(target); err != nil {
		return nil, err
	}
	local := loopback(target)
	transport := s.transport
	if transport == nil {
		if !local && !s.insecure {
			return nil, fmt.Errorf("queuebox: dial %q: this is not a loopback address, so the connection needs credentials: "+
				"pass WithTLS(nil), or WithInsecure() where everybody on the way may read and change what is sent", target)
		}
		transport = insecure.NewCredentials()
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithConnectParams(connectParams()),
		grpc.WithKeepaliveParams(keepaliveParams()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(s.maxAnswerBytes)),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connWindow),
	}
	if s.token != nil {
		// A token may cross a plain connection only where the caller took that on himself.
		options = append(options, grpc.WithPerRPCCredentials(bearer{source: s.token, plain: local || s.insecure}))
	}
	for _, c := range s.perRPC {
		options = append(options, grpc.WithPerRPCCredentials(c))
	}
	return append(options, s.dial...), nil
}

// streamWindow and connWindow are how much a server may send before it is read. See the options of
// the server for why they are not left to gRPC, which finds them by PINGs. WithDialOptions can set
// others.
const (
	streamWindow = 1 << 20
	connWindow   = 4 << 20
)

// bearer sends a token with each call.
type bearer struct {
	source TokenSource
	plain  bool
}

func (b bearer) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, err := b.source(ctx)
	if err != nil {
		return nil, fmt.Errorf("token: %w", err)
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

func (b bearer) RequireTransportSecurity() bool { return !b.plain }

// checkTarget refuses what gRPC would take for the name of a host, and look up for ever.
func checkTarget(target string) error {
	scheme, _, found := strings.Cut(target, "://")
	switch {
	case target == "":
		return errors.New(`queuebox: dial: the target is missing; write HOST:PORT, such as "127.0.0.1:7420"`)
	case found && (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https")):
		return fmt.Errorf(`queuebox: dial %q: gRPC knows no such scheme; write HOST:PORT, such as "127.0.0.1:7420", and pass WithTLS(nil) in place of https`, target)
	}
	return nil
}

// loopback tells whether target can only be this host. A name other than localhost is not looked
// up: what it means may change after the look.
func loopback(target string) bool {
	address := target
	if u, err := url.Parse(target); err == nil && strings.Contains(target, ":") {
		switch u.Scheme {
		case "unix", "unix-abstract":
			return true
		case "dns", "passthrough":
			address = strings.TrimPrefix(u.Path, "/")
			if address == "" {
				address = u.Opaque
			}
		case "ipv4", "ipv6":
			for one := range strings.SplitSeq(u.Opaque, ",") {
				if !loopbackHost(one) {
					return false
				}
			}
			return u.Opaque != ""
		}
	}
	return loopbackHost(address)
}

// loopbackHost tells it for one host, with or without a port.
func loopbackHost(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
