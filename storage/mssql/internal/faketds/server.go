// Package faketds is a server that speaks TDS, the protocol of SQL Server, well enough for
// the driver to work with it for real: it logs in, runs batches, procedures and transactions, and
// is cancelled. It knows no SQL. A test scripts what is answered and reads what was sent. It is
// for tests only.
package faketds

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"unicode/utf16"
)

// Kind is what a request is.
type Kind string

// The kinds.
const (
	Login    Kind = "login"
	Batch    Kind = "batch"
	RPC      Kind = "rpc"
	Begin    Kind = "begin"
	Commit   Kind = "commit"
	Rollback Kind = "rollback"
)

// Request is what the driver sent.
type Request struct {
	Conn int // which connection, from 1
	Kind Kind
	// Reset says that the session is reset before the request is run.
	Reset bool
	// Transaction is the descriptor of the transaction that the request belongs to, 0 if none.
	Transaction uint64
	// Text is that of a batch or of sp_executesql; of a login the database.
	Text string
	// Procedure is the name of an RPC, Declared what sp_executesql is told of its parameters.
	Procedure string
	Declared  string
	Params    []Param
	// Isolation is the level that a begin asks for, as the protocol counts: 2 is READ COMMITTED.
	Isolation byte
}

// Param gives a parameter by name, without the @.
func (r Request) Param(name string) (Param, bool) {
	for _, p := range r.Params {
		if p.Name == name {
			return p, true
		}
	}
	return Param{}, false
}

// Server is a fake.
type Server struct {
	t        testing.TB
	listener net.Listener
	answer   func(Request) Answer
	wait     sync.WaitGroup

	mu       sync.Mutex
	requests []Request
	// attentions counts the cancelled requests.
	attentions int
	open       map[net.Conn]bool
	conns      int
	next       uint64 // descriptor of the next transaction
}

// Start starts a server that ends with t. answer is asked once for each request, from several
// goroutines; nil or an empty answer is the usual one: what was asked is done, and there are no
// rows.
func Start(t testing.TB, answer func(Request) Answer) *Server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // It ends with the test.
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, listener: listener, answer: answer, open: map[net.Conn]bool{}, next: 0x100}
	s.wait.Go(s.accept)
	t.Cleanup(s.Stop)
	return s
}

// URL is that of the server, in the form of --storage.
func (s *Server) URL() string {
	return "sqlserver://someone:secret@" + s.listener.Addr().String() + "?database=queuebox&encrypt=disable"
}

// Requests gives what was sent so far, but for logins.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Request
	for _, r := range s.requests {
		if r.Kind != Login {
			out = append(out, r)
		}
	}
	return out
}

// Forget drops what was sent so far.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}

// Attentions tells how many requests were cancelled.
func (s *Server) Attentions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attentions
}

// Conns tells how many connections there have been.
func (s *Server) Conns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

// Cut cuts all connections off, as a failover does, and goes on.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.open {
		_ = conn.Close()
	}
}

// Stop cuts all connections off and waits.
func (s *Server) Stop() {
	_ = s.listener.Close()
	s.Cut()
	s.wait.Wait()
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns++
		c := &connection{Server: s, conn: conn, id: s.conns}
		s.open[conn] = true
		s.mu.Unlock()
		s.wait.Go(func() {
			defer func() {
				_ = conn.Close()
				s.mu.Lock()
				delete(s.open, conn)
				s.mu.Unlock()
			}()
			if err := c.serve(); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, errDropped) {
				if _, broken := errors.AsType[*net.OpError](err); !broken {
					s.t.Errorf("fake SQL Server: connection %d: %v", c.id, err)
				}
			}
		})
	}
}

// The types of packets.
const (
	packetBatch       = 1
	packetRPC         = 3
	packetReply       = 4
	packetAttention   = 6
	packetTransaction = 14
	packetLogin       = 16
	packetPrelogin    = 18

	statusLast  = 1
	statusReset = 8

	headerSize = 8
	packetSize = 4096
)

// errDropped is the end that a script asked for.
var errDropped = errors.New("dropped")

// message is what one or more packets hold.
type message struct {
	kind  byte
	reset bool
	data  []byte
}

type connection struct {
	*Server
	conn net.Conn
	id   int
	tran uint64
	// incoming are the messages, read by a goroutine of their own, so that an attention is seen
	// while a request is answered.
	incoming chan message
	failed   error // why incoming was closed
}

func (c *connection) serve() error {
	c.incoming = make(chan message)
	done := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(c.incoming)
		for {
			m, err := read(c.conn)
			if err != nil {
				c.failed = err
				return
			}
			select {
			case c.incoming <- m:
			case <-done:
				return
			}
		}
	})
	defer reader.Wait()
	defer func() { _ = c.conn.Close() }()
	defer close(done)
	for m := range c.incoming {
		if err := c.handle(m); err != nil {
			return err
		}
	}
	return c.failed
}

func (c *connection) handle(m message) error {
	switch m.kind {
	case packetPrelogin:
		// VERSION, and ENCRYPTION not supported.
		return c.write([]byte{0, 0, 11, 0, 6, 1, 0, 17, 0, 1, 0xff, 15, 0, 0, 0, 0, 0, 2})
	case packetAttention:
		// It came after the answer: it is confirmed all the same.
		return c.confirm()
	}
	r, err := parse(m)
	if err != nil {
		return err
	}
	r.Conn = c.id
	c.mu.Lock()
	c.requests = append(c.requests, r)
	c.mu.Unlock()
	var a Answer
	if c.answer != nil {
		a = c.answer(r)
	}
	return c.reply(r, a)
}

// read reads a message.
func read(r io.Reader) (message, error) {
	var m message
	for first := true; ; first = false {
		var h [headerSize]byte
		if _, err := io.ReadFull(r, h[:]); err != nil {
			return m, err
		}
		if first {
			m.kind, m.reset = h[0], h[1]&statusReset != 0
		}
		size := int(binary.BigEndian.Uint16(h[2:]))
		if size < headerSize || h[0] != m.kind {
			return m, fmt.Errorf("a packet of type %d and %d bytes in a message of type %d", h[0], size, m.kind)
		}
		body := make([]byte, size-headerSize)
		if _, err := io.ReadFull(r, body); err != nil {
			return m, err
		}
		m.data = append(m.data, body...)
		if h[1]&statusLast != 0 {
			return m, nil
		}
	}
}

// write sends a reply, cut into packets.
func (c *connection) write(data []byte) error {
	var out bytes.Buffer
	for number := byte(1); ; number++ {
		n := min(len(data), packetSize-headerSize)
		status := byte(0)
		if n == len(data) {
			status = statusLast
		}
		out.Write([]byte{packetReply, status, byte((n + headerSize) >> 8), byte(n + headerSize), 0, 0, number, 0})
		out.Write(data[:n])
		data = data[n:]
		if status == statusLast {
			break
		}
	}
	_, err := c.conn.Write(out.Bytes())
	return err
}

// ucs2 is how the protocol writes texts.
func ucs2(s string) []byte {
	var out []byte
	for _, unit := range utf16.Encode([]rune(s)) {
		out = binary.LittleEndian.AppendUint16(out, unit)
	}
	return out
}

func fromUCS2(raw []byte) string {
	units := make([]uint16, len(raw)/2)
	for i := range units {
		units[i] = binary.LittleEndian.Uint16(raw[2*i:])
	}
	return string(utf16.Decode(units))
}
