package server

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// frameCounter counts the HTTP/2 frames that come over a connection, by their type.
type frameCounter struct {
	net.Conn

	mu   sync.Mutex
	left []byte // of a frame whose end has not come yet
	seen map[byte]int
}

func (f *frameCounter) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = append(f.left, p[:n]...)
	for len(f.left) >= frameHeader {
		length := int(binary.BigEndian.Uint32(append([]byte{0}, f.left[:3]...)))
		if len(f.left) < frameHeader+length {
			break
		}
		kind, flags := f.left[3], f.left[4]
		if kind != framePing || flags&flagAck == 0 { // the answer to a PING of the client
			f.seen[kind]++
		}
		f.left = f.left[frameHeader+length:]
	}
	return n, err //nolint:wrapcheck // what the connection says
}

func (f *frameCounter) count(kind byte) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen[kind]
}

const (
	frameHeader  = 9
	frameHeaders = 1
	framePing    = 6
	frameWindow  = 8
	flagAck      = 1
)

// A call of a caller alone is a packet there and a packet back: no PING by which gRPC measures the
// line, and no window that is told anew for each message.
func TestCallsCostNoPing(t *testing.T) {
	h := serve(t)
	var frames *frameCounter
	conn, err := grpc.NewClient(h.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			frames = &frameCounter{Conn: c, seen: map[byte]int{}}
			return frames, err //nolint:wrapcheck // what the dialer says
		}))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	producer := queueboxv1.NewProducerServiceClient(conn)
	call := func() {
		_, err := producer.Enqueue(h.ctx(), &queueboxv1.EnqueueRequest{Queue: "q", Payload: []byte("x")})
		require.NoError(t, err)
	}
	call()
	windows := frames.count(frameWindow)
	for range 20 {
		call()
	}
	require.GreaterOrEqual(t, frames.count(frameHeaders), 2*21, "headers and trailers of every call were seen")
	require.Zero(t, frames.count(framePing))
	require.Equal(t, windows, frames.count(frameWindow))
}
