package ops

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// fake is a server whose answers the test writes.
type fake struct {
	queueboxv1.UnimplementedAdminServiceServer

	getQueue func(context.Context) (*queueboxv1.GetQueueResponse, error)
	stats    func() (*queueboxv1.GetQueueStatsResponse, error)
	redrive  func(*queueboxv1.RedriveMessagesRequest) (*queueboxv1.RedriveMessagesResponse, error)
	purge    func(*queueboxv1.PurgeMessagesRequest) (*queueboxv1.PurgeMessagesResponse, error)
	explain  func() (*queueboxv1.ExplainMessageResponse, error)
}

func (f *fake) GetQueue(ctx context.Context, _ *queueboxv1.GetQueueRequest) (*queueboxv1.GetQueueResponse, error) {
	return f.getQueue(ctx)
}

func (f *fake) GetQueueStats(context.Context, *queueboxv1.GetQueueStatsRequest) (*queueboxv1.GetQueueStatsResponse, error) {
	return f.stats()
}

func (f *fake) RedriveMessages(_ context.Context, r *queueboxv1.RedriveMessagesRequest) (*queueboxv1.RedriveMessagesResponse, error) {
	return f.redrive(r)
}

func (f *fake) PurgeMessages(_ context.Context, r *queueboxv1.PurgeMessagesRequest) (*queueboxv1.PurgeMessagesResponse, error) {
	return f.purge(r)
}

func (f *fake) ExplainMessage(context.Context, *queueboxv1.ExplainMessageRequest) (*queueboxv1.ExplainMessageResponse, error) {
	return f.explain()
}

func serveFake(t *testing.T, f *fake, options ...grpc.ServerOption) *bench {
	t.Helper()
	srv := grpc.NewServer(options...)
	queueboxv1.RegisterAdminServiceServer(srv, f)
	lis := listen(t)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(lis) }()
	t.Cleanup(func() {
		srv.Stop()
		require.NoError(t, <-served)
	})
	return at(t, lis.Addr().String())
}

func TestNobodyIsThere(t *testing.T) {
	lis := listen(t)
	b := at(t, lis.Addr().String())
	require.NoError(t, lis.Close())
	for _, args := range [][]string{
		{"queues", "list"},
		{"queues", "stats", "jobs"},
		{"messages", "list", "jobs"},
		{"enqueue", "jobs", "--payload=x"},
		{"watch"},
		{"explain", "jobs", "m"},
		{"redrive", "jobs", "--all-dead"},
		{"purge", "jobs", "--state=dead", "--yes"},
	} {
		err := b.run(args...).err
		requireFailure(t, err, "no server answers at "+b.addr)
		require.ErrorContains(t, err, "connection refused")
		require.ErrorContains(t, err, "--server HOST:PORT or the variable QUEUEBOX_SERVER")
		require.NotContains(t, err.Error(), "rpc error")
	}
}

func TestServersThatAreOther(t *testing.T) {
	empty := serveFake(t, &fake{})
	requireFailure(t, empty.run("queues", "list").err, "does not have this call: it is an older server, or no QueueBox server at all")

	slow := serveFake(t, &fake{getQueue: func(ctx context.Context) (*queueboxv1.GetQueueResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	requireFailure(t, slow.run("queues", "get", "jobs", "--timeout=50ms").err, "did not answer within 50ms")
	requireUsage(t, slow.run("queues", "get", "jobs", "--timeout=0").err, "--timeout: want more than 0")

	odd := serveFake(t, &fake{getQueue: func(context.Context) (*queueboxv1.GetQueueResponse, error) {
		return nil, status.Error(codes.Internal, "a\x1bb")
	}})
	requireFailure(t, odd.run("queues", "get", "jobs").err, `answered Internal: a\x1bb; is it a QueueBox server?`)
}

// What this build of the server does not have is told in a sentence of the server.
func TestACallThatTheServerDoesNotHaveYet(t *testing.T) {
	s := &session{server: "here:1"}
	st, err := status.New(codes.Unimplemented, "this server does not have AdminService.ExplainMessage yet; use a newer server").
		WithDetails(errorInfo("UNIMPLEMENTED"))
	require.NoError(t, err)
	require.EqualError(t, s.explain(st.Err()), "this server does not have AdminService.ExplainMessage yet; use a newer server (UNIMPLEMENTED)")
	st, err = status.New(codes.Internal, "internal error; give metadata.error_id to the operator of the server").
		WithDetails(errorInfo("INTERNAL", "error_id", "e-1"))
	require.NoError(t, err)
	require.EqualError(t, s.explain(st.Err()), "internal error; give metadata.error_id to the operator of the server (INTERNAL, error_id=e-1)")
}

func TestWhereAndHowToConnect(t *testing.T) {
	b := at(t, "127.0.0.1:1")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--server=queue.example.com:443"}, "is not this machine; pass --server-tls where a proxy encrypts, or --server-plaintext"},
		{[]string{"--server=7420"}, "want HOST:PORT"},
		{[]string{"--server=127.0.0.1:99999"}, "want a port of 0 to 65535"},
		{[]string{"--server-tls", "--server-plaintext"}, "give one of them"},
		{[]string{"--server-ca=/nowhere"}, "--server-ca: open /nowhere"},
	} {
		requireUsage(t, b.run(append([]string{"queues", "list"}, tt.args...)...).err, tt.want)
	}
	noPEM := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(noPEM, []byte("x"), 0o600))
	requireUsage(t, b.run("queues", "list", "--server-ca", noPEM).err, "holds no certificate in PEM")
}

func TestTLS(t *testing.T) {
	certificate, ca := selfSigned(t)
	b := serveFake(t, &fake{getQueue: func(context.Context) (*queueboxv1.GetQueueResponse, error) {
		return &queueboxv1.GetQueueResponse{Queue: &queueboxv1.Queue{Queue: "jobs"}}, nil
	}}, grpc.Creds(credentials.NewServerTLSFromCert(&certificate)))
	require.Equal(t, "jobs", b.object("queues", "get", "jobs", "--server-ca", ca)["queue"])
	requireFailure(t, b.run("queues", "get", "jobs", "--server-tls").err, "the encryption of the connection failed")
	requireFailure(t, b.run("queues", "get", "jobs").err, "no server answers at "+b.addr)
}

func selfSigned(t *testing.T) (certificate tls.Certificate, ca string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, ca
}

// A flag of these commands that had the name of an option of the server would be set by the
// variable of the server.
func TestNoFlagIsAnOptionOfTheServer(t *testing.T) {
	p := parser(t, &Env{}, nil)
	options := map[string]bool{}
	for _, o := range serverOptions() {
		options[o] = true
	}
	for _, leaf := range p.Model.Leaves(false) {
		for _, group := range leaf.AllFlags(false) {
			for _, f := range group {
				require.False(t, options[f.Name], "%s of %s", f.Name, leaf.Name)
			}
		}
	}
}
