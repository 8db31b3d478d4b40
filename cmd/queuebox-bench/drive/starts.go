package drive

import (
	"bytes"
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// starts measures from the call of enqueue to the start of the handler. Both are in one process,
// so its monotonic clock tells; the body of a message carries its number.
type starts struct {
	meter  *Meter
	number atomic.Int64
	called sync.Map // number -> time.Time
	// padding brings a body to its size.
	padding *bodies
}

func newStarts(m *Meter, size int) *starts { return &starts{meter: m, padding: newBodies(size, nil)} }

// body makes the payload of the next message, which is enqueued at once.
func (s *starts) body(size int) []byte {
	n := s.number.Add(1)
	text := strconv.AppendInt(nil, n, 10)
	text = append(text, ' ')
	if extra := size - len(text); extra > 0 {
		text = append(text, s.padding.bytes()[:extra]...)
	}
	s.called.Store(n, time.Now())
	return text
}

// handle is the start of a handler.
func (s *starts) handle(body []byte) {
	digits, _, _ := bytes.Cut(body, []byte{' '})
	n, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil {
		return // of an earlier window
	}
	if at, ok := s.called.LoadAndDelete(n); ok {
		s.meter.Took(StepStart, at.(time.Time)) //nolint:forcetypeassert // nothing else is stored
	}
}

// pacers is how many enqueues may be under way beside each other, so that a slow one does not
// make the next ones late.
const pacers = 32

// paced calls enqueue at an even rate until ctx ends.
func paced(ctx context.Context, rate int, enqueue func(context.Context) error, m *Meter) error {
	var next atomic.Int64
	begin := time.Now()
	return crowd(ctx, pacers, func(ctx context.Context, _ int) error {
		for {
			due := begin.Add(time.Duration(next.Add(1)) * time.Second / time.Duration(rate))
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(time.Until(due)):
			}
			start := time.Now()
			if err := enqueue(ctx); err != nil {
				return err
			}
			m.Took(StepEnqueue, start)
		}
	})
}
