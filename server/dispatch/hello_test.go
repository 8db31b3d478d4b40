package dispatch

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// sentFor counts the notices about queues that leave the server while an announcement is made
// every 100 ms for so long.
func (f *fakeStore) sentFor(d *Dispatcher, long time.Duration) int {
	count := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.sent)
	}
	before := count()
	for until := time.Now().Add(long); time.Now().Before(until); {
		d.Announce(1, time.Now())
		time.Sleep(100 * time.Millisecond)
	}
	return count() - before
}

func (f *fakeStore) claimsSent() []storage.Ref {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.claims)
}

// TestW1AServerThatIsAloneTellsNobody: it tells until it can know that it is alone, and from the
// first hello of another one on until that has been silent for half a minute.
func TestW1AServerThatIsAloneTellsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.notifications = true
		m := &knownServers{}
		d := start(t, f, func(c *Config) { c.Metrics = m })
		synctest.Wait()
		require.Equal(t, 10, f.sentFor(d, time.Second), "others may be about to answer")
		time.Sleep(2 * time.Second)
		require.Zero(t, f.sentFor(d, 60*time.Second), "nobody answered")
		d.AnnounceClaim(storage.Ref{QueueID: 1, Position: 1})
		time.Sleep(time.Second)
		require.Empty(t, f.claimsSent())

		f.hello(7)
		require.Equal(t, 10, f.sentFor(d, time.Second))
		require.EqualValues(t, 1, m.known.Load())
		time.Sleep(18 * time.Second)
		f.hello(7)
		require.Equal(t, 280, f.sentFor(d, 28*time.Second), "heard again meanwhile")
		d.AnnounceClaim(storage.Ref{QueueID: 1, Position: 2})
		time.Sleep(3 * time.Second)
		require.Equal(t, []storage.Ref{{QueueID: 1, Position: 2}}, f.claimsSent())
		require.Zero(t, m.known.Load(), "forgotten")
		require.Zero(t, f.sentFor(d, 10*time.Second))
	})
}

// knownServers remembers how many servers are known.
type knownServers struct {
	noMetrics

	known atomic.Int64
}

func (m *knownServers) ServersKnown(n int) { m.known.Store(int64(n)) }

// TestW5WhoCannotKnowTells: without the notification connection, while it is new, and where
// nothing comes over it, the others are told, known or not.
func TestW5WhoCannotKnowTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.notifications = true
		d := start(t, f)
		time.Sleep(5 * time.Second)
		require.Zero(t, f.sentFor(d, time.Second))
		f.up(false)
		require.Equal(t, 300, f.sentFor(d, 30*time.Second), "the connection is down")
		f.up(true)
		require.Equal(t, 10, f.sentFor(d, time.Second), "it is new")
		time.Sleep(3 * time.Second)
		require.Zero(t, f.sentFor(d, time.Second))

		f.mu.Lock()
		f.mute = true
		f.mu.Unlock()
		time.Sleep(20 * time.Second)
		require.Equal(t, 300, f.sentFor(d, 30*time.Second), "hellos are lost, and those of others may be")
		f.mu.Lock()
		f.mute = false
		f.mu.Unlock()
		time.Sleep(5 * time.Second)
		require.Zero(t, f.sentFor(d, time.Second))
	})
}

// TestW1HellosAreFew: one every ten seconds, and not more than one a second whoever asks.
func TestW1HellosAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.notifications = true
		start(t, f)
		hellos := func() int {
			f.mu.Lock()
			defer f.mu.Unlock()
			return len(f.hellos)
		}
		time.Sleep(95 * time.Second)
		require.Equal(t, 10, hellos())
		for i := range 100 {
			f.hello(uint64(i + 2))
			time.Sleep(100 * time.Millisecond)
		}
		require.LessOrEqual(t, hellos(), 10+11)
		require.GreaterOrEqual(t, hellos(), 10+9)
		f.mu.Lock()
		defer f.mu.Unlock()
		for i, at := range f.hellos[1:] {
			require.GreaterOrEqual(t, at.Sub(f.hellos[i]), time.Second)
		}
	})
}

// TestW1AServerThatComesUpMissesNothing: one server is alone and tells nobody. What it enqueues
// before it hears of a new one is found there when its answer comes, and what it enqueues later
// is told.
func TestW1AServerThatComesUpMissesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{table: &table{tells: true, lag: 200 * time.Millisecond}, id: 1}
		h.a = h.server(t)
		time.Sleep(75 * time.Second) // and half way to its next hello
		notices := func() int {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.notices
		}
		enqueue := func() *row {
			r := h.add(0)
			h.a.ReadyAt(1, r.ready, r.ready)
			return r
		}
		before := notices()
		h.settle(enqueue())
		time.Sleep(time.Second)
		require.Equal(t, before, notices(), "alone")

		h.b = h.server(t)
		ch := begin(t.Context(), h.b, h.request(20*time.Second))
		time.Sleep(199 * time.Millisecond)
		r := enqueue()
		c := <-ch
		require.Equal(t, r.position, position(t, c))
		require.Equal(t, 400*time.Millisecond, c.took, "one hello there and one back")
		require.Equal(t, before, notices(), "it was not told")
		h.settle(r)

		for range 50 {
			ch = begin(t.Context(), h.b, h.request(20*time.Second))
			time.Sleep(307 * time.Millisecond)
			r = enqueue()
			c = <-ch
			require.Equal(t, r.position, position(t, c))
			require.Less(t, c.took, 320*time.Millisecond, "told")
			h.settle(r)
		}
	})
}

// TestW7ANewServerKeepsItsHintsBack: until all others have heard of it, its hints stay as far
// behind the clock as where nobody tells.
func TestW7ANewServerKeepsItsHintsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.notifications = true
		d := start(t, f)
		synctest.Wait()
		require.False(t, d.servers.areTold(), "it was just connected")
		time.Sleep(4 * time.Second)
		require.True(t, d.servers.areTold())
		time.Sleep(time.Minute)
		require.True(t, d.servers.areTold())
		f.mu.Lock()
		f.mute = true
		f.mu.Unlock()
		time.Sleep(helloHeard)
		require.False(t, d.servers.areTold(), "the others may have forgotten it")
	})
}
