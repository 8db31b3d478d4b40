package server

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/peer"

	"github.com/queuebox/queuebox/server/dispatch"
	"github.com/queuebox/queuebox/storage"
)

// newJoiner makes what joins concurrent calls. It ends with the life of the api.
func (a *api) newJoiner(store storage.Store) *dispatch.Joiner {
	return dispatch.NewJoiner(a.life, dispatch.JoinConfig{
		Store: store, Off: !a.cfg.JoinCalls, StatementTimeout: statementTimeout,
		Enqueued: func(ms []storage.NewMessage, res storage.EnqueueResult) {
			a.clock.seen(res.Now, a.now())
			a.announce(ms, res)
		},
		Settled: func(res storage.SettleResult, took time.Duration) {
			a.clock.seen(res.Now, a.now())
			a.ready(res.Ready, since(res.Now, took))
		},
		Renewed: func(res storage.RenewResult) { a.clock.seen(res.Now, a.now()) },
		Caught: func(p any) error {
			a.metrics.panics.Inc()
			return caught(p)
		},
		Metrics: a.metrics.joins, Now: a.now,
	})
}

// connection tells the connection of a call from others, so that each has its turn in the
// joined statements. Calls of which it is not known share one.
func connection(ctx context.Context) any {
	if p, ok := peer.FromContext(ctx); ok {
		if addr, ok := p.Addr.(bornAddr); ok {
			return addr.conn
		}
	}
	return nil
}

// joinMetrics are those of the joined statements.
type joinMetrics struct {
	items   *prometheus.HistogramVec
	calls   *prometheus.CounterVec
	refused *prometheus.CounterVec
	split   *prometheus.CounterVec
	waiting *prometheus.Desc
	joiner  *dispatch.Joiner
	byLane  map[string]laneSeries
}

// laneSeries are those of one lane. They are found once, as those of a queue.
type laneSeries struct {
	items prometheus.Observer
	calls prometheus.Counter
}

func newJoinMetrics() *joinMetrics {
	m := &joinMetrics{
		items: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "queuebox_joined_items",
			Help:    "Messages in one joined statement, by lane; the count is that of the statements.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024},
		}, []string{"lane"}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "queuebox_joined_calls_total", Help: "Calls that the joined statements hold, by lane.",
		}, []string{"lane"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "queuebox_joined_refused_total", Help: "Calls refused because too much waited in their lane.",
		}, []string{"lane"}),
		split: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "queuebox_joined_splits_total", Help: "Joined statements run again in halves, since one of their calls failed them.",
		}, []string{"lane"}),
		waiting: prometheus.NewDesc("queuebox_joined_waiting", "Messages that wait for a joined statement, by lane.", []string{"lane"}, nil),
		byLane:  map[string]laneSeries{},
	}
	for _, lane := range dispatch.LaneNames() {
		m.byLane[lane] = laneSeries{items: m.items.WithLabelValues(lane), calls: m.calls.WithLabelValues(lane)}
		m.refused.WithLabelValues(lane)
		m.split.WithLabelValues(lane)
	}
	return m
}

// Joined and the next ones make joinMetrics a dispatch.LaneMetrics.
func (m *joinMetrics) Joined(lane string, calls, items int) {
	s := m.byLane[lane]
	s.items.Observe(float64(items))
	s.calls.Add(float64(calls))
}

// Refused counts a call for which there was no room.
func (m *joinMetrics) Refused(lane string) { m.refused.WithLabelValues(lane).Inc() }

// Split counts a statement that is run again in halves.
func (m *joinMetrics) Split(lane string) { m.split.WithLabelValues(lane).Inc() }

// Describe and Collect make it a collector, which asks the lanes what waits there.
func (m *joinMetrics) Describe(to chan<- *prometheus.Desc) {
	m.items.Describe(to)
	m.calls.Describe(to)
	m.refused.Describe(to)
	m.split.Describe(to)
	to <- m.waiting
}

// Collect implements prometheus.Collector.
func (m *joinMetrics) Collect(to chan<- prometheus.Metric) {
	m.items.Collect(to)
	m.calls.Collect(to)
	m.refused.Collect(to)
	m.split.Collect(to)
	m.joiner.Waiting(func(lane string, items int) {
		to <- prometheus.MustNewConstMetric(m.waiting, prometheus.GaugeValue, float64(items), lane)
	})
}
