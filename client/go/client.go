package queuebox

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"google.golang.org/grpc"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// Client speaks to one QueueBox server, or to many behind one name. It is safe for use by several
// goroutines; a process needs one. Leases of all its handles are renewed together, so two clients
// in one process cost twice the renewals, and a Worker keeps K8 only within its client.
type Client struct {
	conn     *grpc.ClientConn
	worker   queueboxv1.WorkerServiceClient
	producer queueboxv1.ProducerServiceClient
	logger   *slog.Logger
	workerID string

	// life ends with Close. It is the context of what the client does on its own: renewals,
	// and nothing that a caller waits for.
	life   context.Context //nolint:containedctx // the lifetime of the client is not that of a call
	finish context.CancelCauseFunc

	mu       sync.Mutex
	closed   bool
	renewers map[string]*renewer
	tasks    sync.WaitGroup

	// running holds the messages that handlers work on (K8), with what is closed in the end
	// where somebody waits for that.
	runningMu sync.Mutex
	running   map[runningKey]chan struct{}

	settler *settler
	// separate is set where settlements are not joined.
	separate bool

	transactions transactions
}

// Dial makes a client of the server at target, a gRPC target such as "127.0.0.1:7420" or
// "dns:///queuebox.example.com:7420". It does not connect yet: the first call does,
// and waits where the server is not there. The log tells so (see WithLogger). A target other than
// this host needs credentials or WithInsecure. Close ends what Dial began.
func Dial(target string, opts ...Option) (*Client, error) {
	s := settings{logger: slog.Default(), maxAnswerBytes: DefaultMaxAnswerBytes}
	for _, o := range opts {
		o(&s)
	}
	if s.workerID == "" {
		s.workerID = defaultWorkerID()
	}
	options, err := s.dialOptions(target)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, fmt.Errorf("queuebox: dial %q: %w", target, err)
	}
	life, finish := context.WithCancelCause(context.Background())
	c := &Client{
		conn:     conn,
		worker:   queueboxv1.NewWorkerServiceClient(conn),
		producer: queueboxv1.NewProducerServiceClient(conn),
		logger:   s.logger,
		workerID: s.workerID,
		life:     life,
		finish:   finish,
		renewers: make(map[string]*renewer),
		running:  make(map[runningKey]chan struct{}),
		separate: s.separate,
	}
	c.settler = newSettler(c)
	c.start(c.watch)
	return c, nil
}

// Conn returns the connection, for calls that the client has no method for: the generated stubs
// of AdminService work on it. It ends with Close.
func (c *Client) Conn() grpc.ClientConnInterface { return c.conn }

// Close ends all renewals, cancels the contexts of the handles that are still held with ErrClosed
// as cause, and closes the connection. Their leases run out. Stop workers before. A second call
// does nothing.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.mu.Unlock()

	c.finish(ErrClosed)
	err := c.conn.Close()
	c.tasks.Wait()
	if err != nil {
		return fmt.Errorf("queuebox: close: %w", err)
	}
	return nil
}

// start runs f beside everything else and tells whether the client was still open. Close waits
// for f, which must end when c.life does.
func (c *Client) start(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.tasks.Go(f)
	return true
}

// renewer returns the one renewer of a queue.
func (c *Client) renewer(queue string) *renewer {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.renewers[queue]
	if r == nil {
		r = &renewer{client: c, queue: queue, handles: make(map[*Handle]struct{}), wake: make(chan struct{}, 1)}
		c.renewers[queue] = r
	}
	return r
}

// newUUID returns a random UUID, version 4.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// defaultWorkerID names host and process for operators and adds a random part: process numbers
// repeat, in containers above all.
func defaultWorkerID() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "worker"
	}
	if len(host) > 200 {
		host = host[:200]
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), newUUID()[:8])
}
