package server

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc/peer"
)

// bornListener remembers when each connection was made. The time travels in the remote
// address, which gRPC hands to every call: a Heartbeat stream must leave before its
// connection's time is up (T5), and gRPC does not tell its age.
type bornListener struct {
	net.Listener
	now func() time.Time
}

func (l bornListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return bornConn{Conn: conn, addr: bornAddr{Addr: conn.RemoteAddr(), born: l.now(), conn: conn}}, nil
}

type bornConn struct {
	net.Conn
	addr bornAddr
}

func (c bornConn) RemoteAddr() net.Addr { return c.addr }

type bornAddr struct {
	net.Addr
	born time.Time
	conn net.Conn
}

// born is when the connection of the call was made; false where that is not known.
func born(ctx context.Context) (time.Time, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return time.Time{}, false
	}
	addr, ok := p.Addr.(bornAddr)
	return addr.born, ok
}

// hangUp closes the connection of the call. gRPC has no way to end a stream whose
// caller does not read: the status would wait behind the answers that are not read.
func hangUp(ctx context.Context) {
	if p, ok := peer.FromContext(ctx); ok {
		if addr, ok := p.Addr.(bornAddr); ok {
			_ = addr.conn.Close()
		}
	}
}
