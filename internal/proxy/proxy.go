package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// Proxy forwards connections from a free port of 127.0.0.1 to one target.
type Proxy struct {
	target   string
	protocol func() protocol
	lis      net.Listener
	done     sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	links    map[*link]struct{}
	refuse   bool
	hole     bool
	delay    time.Duration
	cutter   *Cutter
	accepted int
	changed  chan struct{} // closed and made anew whenever hole or closed changes
}

// link is one connection of a client with its connection to the target.
type link struct {
	client, server net.Conn
	once           sync.Once
}

// cut closes both ends with a reset, as a crash or a firewall would, so that no
// side can mistake it for an orderly end.
func (l *link) cut() {
	l.once.Do(func() {
		for _, c := range []net.Conn{l.client, l.server} {
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
			_ = c.Close()
		}
	})
}

// Before starts a proxy before the database of a URL and returns the URL that leads through
// it; the proxy ends with the test.
func Before(tb testing.TB, raw string) (p *Proxy, through string) {
	tb.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		tb.Fatal("proxy: the URL cannot be parsed")
	}
	p = New(tb, u.Host)
	if u.Scheme == "mysql" {
		p.mu.Lock()
		p.protocol = newMySQL
		p.mu.Unlock()
	}
	u.Host = p.Addr()
	return p, u.String()
}

// New starts a proxy before target ("host:port"); it ends with the test. Where it cuts at
// statements, the target speaks as PostgreSQL does.
func New(tb testing.TB, target string) *Proxy {
	tb.Helper()
	p, err := Start(tb.Context(), target)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p
}

// Start starts a proxy before target ("host:port"); the caller closes it.
func Start(ctx context.Context, target string) (*Proxy, error) {
	lis, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy for %s: %w", target, err)
	}
	p := &Proxy{target: target, protocol: newPostgres, lis: lis, links: map[*link]struct{}{}, changed: make(chan struct{})}
	p.done.Go(p.accept)
	return p, nil
}

// Addr is where clients connect.
func (p *Proxy) Addr() string { return p.lis.Addr().String() }

// URL returns the given URL with its host replaced by this proxy.
func (p *Proxy) URL(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", errors.New("proxy: the URL cannot be parsed")
	}
	u.Host = p.Addr()
	return u.String(), nil
}

// Close cuts every connection and frees the port.
func (p *Proxy) Close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.closed = true
	p.signal()
	p.mu.Unlock()
	_ = p.lis.Close()
	p.Cut()
	p.done.Wait()
}

// Cut resets all present connections. New ones are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
}

// Refuse, while on, closes every new connection at once, as a target that is down
// would. Present connections stay; use Cut too.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// BlackHole, while on, keeps connections open, accepts new ones and forwards
// nothing in either direction: the half-open state that a lost route leaves. What
// was held back is forwarded when it is turned off.
func (p *Proxy) BlackHole(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hole != on {
		p.hole = on
		p.signal()
	}
}

// Delay holds back every piece of data, in both directions, for d.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Open tells how many connections are open, and Accepted how many were ever made.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Accepted tells how many connections clients have made since the start.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// signal wakes the copiers that wait for the end of a black hole; mu is held.
func (p *Proxy) signal() {
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) accept() {
	for {
		client, err := p.lis.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.accepted++
		refuse := p.refuse || p.closed
		p.mu.Unlock()
		if refuse {
			(&link{client: client, server: client}).cut()
			continue
		}
		p.done.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.target)
	if err != nil {
		(&link{client: client, server: client}).cut()
		return
	}
	l := &link{client: client, server: server}
	p.mu.Lock()
	closed, t := p.closed, newTap(p, l)
	if !closed {
		p.links[l] = struct{}{}
	}
	p.mu.Unlock()
	if closed {
		l.cut()
		return
	}
	defer func() {
		l.cut()
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
	}()
	var copiers sync.WaitGroup
	copiers.Go(func() { p.copy(server, client, t.request, l) })
	copiers.Go(func() { p.copy(client, server, t.answer, l) })
	copiers.Wait()
}

// copy forwards from src to dst. Before each piece is forwarded see looks at it;
// where see says no, the piece is swallowed.
func (p *Proxy) copy(dst, src net.Conn, see func([]byte) bool, l *link) {
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if !p.pass() {
				l.cut()
				return
			}
			if see(buf[:n]) {
				if _, werr := dst.Write(buf[:n]); werr != nil {
					l.cut()
					return
				}
			}
		}
		if err != nil {
			// An orderly end of one direction is passed on as such: a program that closes its
			// side may still read.
			if tcp, ok := dst.(*net.TCPConn); ok && errors.Is(err, io.EOF) {
				_ = tcp.CloseWrite()
			} else {
				l.cut()
			}
			return
		}
	}
}

// pass waits for the delay and for the end of a black hole; false: the proxy closed.
func (p *Proxy) pass() bool {
	p.mu.Lock()
	d := p.delay
	p.mu.Unlock()
	if d > 0 {
		time.Sleep(d)
	}
	for {
		p.mu.Lock()
		hole, closed, changed := p.hole, p.closed, p.changed
		p.mu.Unlock()
		if closed {
			return false
		}
		if !hole {
			return true
		}
		<-changed
	}
}
