package observe

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/queuebox/queuebox/storage"
)

// vacuum tells what the storage has vacuumed, where it does: asked when the metrics are read.
type vacuum struct {
	store                                       storage.Vacuumer // nil where it does not
	total, seconds, last, allowed, dead, oldest *prometheus.Desc
}

func newVacuum(next storage.Store) *vacuum {
	v := &vacuum{
		total:   prometheus.NewDesc("queuebox_vacuums_total", "Vacuums of tables that this server made, by result.", []string{"result"}, nil),
		seconds: prometheus.NewDesc("queuebox_vacuum_seconds_total", "Time that they took.", nil, nil),
		last: prometheus.NewDesc("queuebox_vacuum_last_timestamp_seconds",
			"When the last one was done, in seconds since 1970; 0 where none was.", nil, nil),
		allowed: prometheus.NewDesc("queuebox_vacuum_tables", "Tables that the role of this server may vacuum.", nil, nil),
		dead:    prometheus.NewDesc("queuebox_vacuum_dead_rows", "Dead rows of those tables, as was seen last.", nil, nil),
		oldest: prometheus.NewDesc("queuebox_vacuum_oldest_snapshot_seconds",
			"For how long the transaction has been open whose snapshot keeps dead rows, as was seen last; 0 where none is seen.", nil, nil),
	}
	v.store, _ = next.(storage.Vacuumer)
	return v
}

// Describe implements prometheus.Collector.
func (v *vacuum) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{v.total, v.seconds, v.last, v.allowed, v.dead, v.oldest} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (v *vacuum) Collect(ch chan<- prometheus.Metric) {
	var st storage.VacuumStats
	if v.store != nil {
		st = v.store.Vacuums()
	}
	for result, n := range map[string]int64{"done": st.Done, "in_vain": st.InVain, "timed_out": st.TimedOut, "failed": st.Failed} {
		ch <- prometheus.MustNewConstMetric(v.total, prometheus.CounterValue, float64(n), result)
	}
	ch <- prometheus.MustNewConstMetric(v.seconds, prometheus.CounterValue, st.Took.Seconds())
	last := 0.0
	if !st.Last.IsZero() {
		last = float64(st.Last.UnixMilli()) / 1000
	}
	ch <- prometheus.MustNewConstMetric(v.last, prometheus.GaugeValue, last)
	ch <- prometheus.MustNewConstMetric(v.allowed, prometheus.GaugeValue, float64(st.Tables))
	ch <- prometheus.MustNewConstMetric(v.dead, prometheus.GaugeValue, float64(st.Dead))
	ch <- prometheus.MustNewConstMetric(v.oldest, prometheus.GaugeValue, st.OldestSnapshot.Seconds())
}
