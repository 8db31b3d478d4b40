package drive

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The steps of a cycle.
const (
	StepEnqueue  = "enqueue"
	StepClaim    = "claim"
	StepComplete = "complete"
	// StepStart is from the call of enqueue to the start of the handler.
	StepStart = "enqueue-to-start"
)

// Meter counts while the window is open, and only then.
type Meter struct {
	open     atomic.Bool
	messages atomic.Int64
	begin    time.Time
	seconds  float64

	mu    sync.Mutex
	steps map[string][]time.Duration
}

// Open begins the window.
func (m *Meter) Open() {
	m.mu.Lock()
	m.steps = map[string][]time.Duration{}
	m.mu.Unlock()
	m.begin = time.Now()
	m.open.Store(true)
}

// Close ends it; only the first call does, which is that of a load that knows its last message.
func (m *Meter) Close() {
	if m.open.CompareAndSwap(true, false) {
		m.seconds = time.Since(m.begin).Seconds()
	}
}

// countdown returns what counts the messages of a burn-down. The window ends with the last of n,
// and so does the work, by end.
func countdown(n int, m *Meter, end func()) func(done int) {
	left := &atomic.Int64{}
	left.Store(int64(n))
	return func(done int) {
		m.Done(done)
		if left.Add(-int64(done)) <= 0 {
			m.Close()
			end()
		}
	}
}

// Done counts whole cycles.
func (m *Meter) Done(n int) {
	if m.open.Load() {
		m.messages.Add(int64(n))
	}
}

// Took records the time of one call that began at start.
func (m *Meter) Took(step string, start time.Time) {
	if !m.open.Load() {
		return
	}
	d := time.Since(start)
	m.mu.Lock()
	m.steps[step] = append(m.steps[step], d)
	m.mu.Unlock()
}

// Result is what was counted; the window must be closed.
func (m *Meter) Result() *Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &Result{Messages: m.messages.Load(), Seconds: m.seconds, Steps: map[string]Percentiles{}}
	for step, all := range m.steps {
		r.Steps[step] = percentiles(all)
	}
	return r
}

func percentiles(all []time.Duration) Percentiles {
	all = slices.Clone(all)
	slices.Sort(all)
	at := func(q float64) float64 {
		if len(all) == 0 {
			return 0
		}
		return float64(all[min(int(q*float64(len(all))), len(all)-1)].Microseconds()) / 1000
	}
	return Percentiles{Count: len(all), P50: at(0.5), P95: at(0.95), P99: at(0.99)}
}
