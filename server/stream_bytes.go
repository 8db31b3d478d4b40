package server

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
)

// itemBytes is about what an item of a frame takes beside its own bytes: its decoded form, and
// that of its answer.
const itemBytes = 1 << 10

// flightBytes is about what a frame takes besides, while it is being answered.
const flightBytes = 4 << 10

// smallFrame is what a frame may take that is never refused: as much as HTTP/2 lets a client send
// ahead of what is read anyway.
const smallFrame = streamWindow

// streamBytes bounds what the frames of all Work and Heartbeat streams take together, from when
// they are decoded until their answers are sent, and the deliveries that wait to be sent. Each
// stream bounds the number of its frames by itself, but there may be many streams, and frames are
// large. While half of the limit is taken, no stream is read, so that HTTP/2 holds its client back;
// there is room again when others are answered, or cut for not reading (T4). One connection gets
// half of all that at most.
//
// How large a frame is shows when it is there, and a stream that waits for its next one cannot be
// told from one that receives it: gRPC has no hook between the two. So many may receive large
// frames at a time, which the other half of the limit is for. What goes beyond it is refused as it
// arrives, and its stream ends, but for small frames. Not bounded here is what is being received.
type streamBytes struct {
	limit int64
	gauge prometheus.Gauge

	mu    sync.Mutex
	used  int64
	conns map[any]int64
	// freed is closed when there may be room again; nil while nobody waits for that.
	freed chan struct{}
}

func newStreamBytes(limit int64, gauge prometheus.Gauge) *streamBytes {
	return &streamBytes{limit: limit, gauge: gauge, conns: map[any]int64{}}
}

// open makes the account of a stream, which closes it when it ends.
func (b *streamBytes) open(conn any) *streamAccount { return &streamAccount{bytes: b, conn: conn} }

// streamAccount is the part of one stream.
type streamAccount struct {
	bytes *streamBytes
	conn  any
	// used and closed change under the lock of all.
	used   int64
	closed bool
}

// room waits until there is room for another frame, or ctx ends.
func (a *streamAccount) room(ctx context.Context) error {
	b := a.bytes
	for {
		b.mu.Lock()
		if a.hasRoom() {
			b.mu.Unlock()
			return nil
		}
		if b.freed == nil {
			b.freed = make(chan struct{})
		}
		freed := b.freed
		b.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hasRoom is for who has the lock.
func (a *streamAccount) hasRoom() bool {
	b := a.bytes
	return b.used < max(1, b.limit/2) && b.conns[a.conn] < max(1, b.limit/4)
}

// admit takes what a frame that was received needs, or refuses it: others took the room while it
// was being received. One that finds room is admitted whatever its size.
func (a *streamAccount) admit(n int64) error {
	b := a.bytes
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > smallFrame && !a.hasRoom() && (b.used+n > b.limit || b.conns[a.conn]+n > b.limit/2) {
		return &apiError{
			reason: queueboxv1.ErrorReason_ERROR_REASON_TOO_MANY_WAITERS,
			text: "the server has no memory left for this frame, of which nothing was done; send it again over a new stream, or as calls, " +
				"in smaller frames, and wait for answers before sending more",
		}
	}
	if !a.closed {
		a.add(n)
	}
	return nil
}

// take notes that so many bytes are held, give that they are not any more.
func (a *streamAccount) take(n int64) {
	a.bytes.mu.Lock()
	defer a.bytes.mu.Unlock()
	if !a.closed {
		a.add(n)
	}
}

func (a *streamAccount) give(n int64) {
	a.bytes.mu.Lock()
	defer a.bytes.mu.Unlock()
	if !a.closed {
		a.add(-n)
	}
}

// close gives back what is held, for good.
func (a *streamAccount) close() {
	a.bytes.mu.Lock()
	defer a.bytes.mu.Unlock()
	a.add(-a.used)
	a.closed = true
}

// add is for who has the lock.
func (a *streamAccount) add(n int64) {
	if n == 0 {
		return
	}
	b := a.bytes
	a.used += n
	b.used += n
	if b.conns[a.conn] += n; b.conns[a.conn] == 0 {
		delete(b.conns, a.conn)
	}
	b.gauge.Set(float64(b.used))
	if n < 0 && b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// frameBytes is about what a frame with so many items takes until it is answered.
func frameBytes(frame proto.Message, items int) int64 {
	if items == 0 {
		return 0 // it is answered with a few bytes, or not at all
	}
	return int64(proto.Size(frame)) + int64(items)*itemBytes + flightBytes
}

// deliveryBytes is about what messages take until they are sent.
func deliveryBytes(ms []storage.Claimed) int64 {
	n := int64(len(ms)) * itemBytes
	for i := range ms {
		n += int64(len(ms[i].Message.Payload))
	}
	return n
}
