package server

import (
	"context"
	"errors"
	"sync"
	"time"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

const (
	// slowReader is how long one frame may wait to be sent before the stream is cut, and
	// its connection with it (T4).
	slowReader = 10 * time.Second
	// leaveTime is how long a caller that was told to go elsewhere may still use the
	// stream before it ends (T5).
	leaveTime = 2 * time.Second
)

// outbox sends the frames of one stream, one after the other, each as soon as the one
// before it is sent: answers and deliveries as they come, and between them what the watch of
// the stream has to tell.
type outbox[T any] struct {
	send       func(*T) error
	watch      *watch
	revocation func(rs []*queueboxv1.Revocation, clock time.Time) *T
	// answered, where it is not nil, hears the size of each frame that was sent.
	answered func(size int64)
	// frames is closed where nothing more is to be sent. signals come from the goroutine
	// that watches over the stream.
	frames  chan outgoing[T]
	signals chan *T
	// cut is closed when a frame waits to be sent for too long, stopped when nothing is
	// sent any more.
	cut     chan struct{}
	stopped chan struct{}
}

// outgoing is a frame to send, or the function that builds it when its turn has come. The
// error of Send goes to sent, where it is not nil; it must have room. size is what answered hears.
type outgoing[T any] struct {
	frame *T
	build func() *T
	sent  chan<- error
	size  int64
}

// newOutbox makes one for a stream; waiting is how many frames may wait for their turn.
func newOutbox[T any](w *watch, waiting int, send func(*T) error, revocation func([]*queueboxv1.Revocation, time.Time) *T) *outbox[T] {
	return &outbox[T]{
		send: send, watch: w, revocation: revocation,
		frames: make(chan outgoing[T], waiting), signals: make(chan *T, 1),
		cut: make(chan struct{}), stopped: make(chan struct{}),
	}
}

// run sends until frames is closed, ctx ends or the stream breaks. It calls Send, which may
// hang until the stream ends: whoever watches over the stream ends it when cut is closed.
func (o *outbox[T]) run(ctx context.Context) error {
	defer close(o.stopped)
	slow := time.AfterFunc(slowReader, sync.OnceFunc(func() { close(o.cut) }))
	slow.Stop()
	for {
		var next outgoing[T]
		select {
		case next.frame = <-o.signals:
		case <-o.watch.wake:
			rs, clock := o.watch.signal()
			if len(rs) == 0 {
				continue
			}
			next.frame = o.revocation(rs, clock)
		case f, ok := <-o.frames:
			if !ok {
				return nil
			}
			next = f
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := o.sendOne(next, slow); err != nil {
			return err
		}
	}
}

func (o *outbox[T]) sendOne(next outgoing[T], slow *time.Timer) (err error) {
	defer func() {
		// The interceptor that catches panics does not see this goroutine.
		if p := recover(); p != nil {
			o.watch.signals.metrics.panics.Inc()
			err = caught(p)
		}
		slow.Stop()
		if next.sent != nil {
			next.sent <- err
		}
		if o.answered != nil {
			o.answered(next.size)
		}
	}()
	if next.build != nil {
		next.frame = next.build()
	}
	slow.Reset(slowReader)
	return o.send(next.frame)
}

// errNotSent says that the stream ended before the turn of a frame had come.
var errNotSent = errors.New("the stream ended before the frame was sent")

// put hands a frame over and waits until it is sent; an error says that it was not. It is
// for an outbox in which no frame waits for its turn.
func (o *outbox[T]) put(ctx context.Context, f outgoing[T]) error {
	sent := make(chan error, 1)
	f.sent = sent
	select {
	case o.frames <- f:
		return <-sent
	case <-o.stopped:
	case <-ctx.Done():
	}
	return errNotSent
}

// cutOff ends a stream whose caller does not read.
func (a *api) cutOff(ctx context.Context) error {
	a.metrics.slowReaders.Inc()
	hangUp(ctx)
	return &apiError{
		reason: queueboxv1.ErrorReason_ERROR_REASON_TOO_MANY_WAITERS,
		text:   "the answers of this stream were not read for too long; read them, or open a new stream",
	}
}

// streamAge is when a stream of this connection should leave it: after gRPC told the
// client to open new streams elsewhere, and before the connection is closed.
func (a *api) streamAge(ctx context.Context) (time.Duration, bool) {
	at, ok := born(ctx)
	if !ok || a.cfg.MaxConnectionAge == 0 {
		return 0, false
	}
	return max(0, at.Add(a.cfg.MaxConnectionAge*9/10).Sub(a.now())), true
}
