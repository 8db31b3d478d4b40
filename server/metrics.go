package server

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/queuebox/queuebox/server/dispatch"
	"github.com/queuebox/queuebox/storage"
)

// otherQueues is the label of all queues beyond Config.QueueLabels.
const otherQueues = "(other)"

// metrics are the server's own. docs/metrics.md says what to do when one moves.
type metrics struct {
	labels queueLabels

	enqueuedTotal  *prometheus.CounterVec
	duplicateTotal *prometheus.CounterVec
	claimedTotal   *prometheus.CounterVec
	settledTotal   *prometheus.CounterVec
	refusedTotal   *prometheus.CounterVec
	renewedTotal   *prometheus.CounterVec
	statements     *prometheus.CounterVec
	limitedTotal   *prometheus.CounterVec
	gaveBackTotal  *prometheus.CounterVec
	notifySent     *prometheus.CounterVec
	notifyReceived prometheus.Counter
	listenUp       prometheus.Gauge
	serversKnown   prometheus.Gauge
	ready          prometheus.Gauge
	panics         prometheus.Counter
	heartbeats     prometheus.Gauge
	workStreams    prometheus.Gauge
	streamBytes    prometheus.Gauge
	workDelivered  prometheus.Counter
	workReleased   prometheus.Counter
	slowReaders    prometheus.Counter
	watchedClaims  prometheus.Gauge
	signalsTotal   *prometheus.CounterVec
	sweptTotal     *prometheus.CounterVec
	retainedTotal  prometheus.Counter
	droppedTotal   prometheus.Counter
	cancelTotal    *prometheus.CounterVec
	revokeTotal    *prometheus.CounterVec
	redrivenTotal  *prometheus.CounterVec
	purgedTotal    *prometheus.CounterVec
	upkeepFailed   *prometheus.CounterVec
	placedTotal    *prometheus.CounterVec
	finishedTotal  *prometheus.CounterVec
	joins          *joinMetrics
}

func newMetrics(reg prometheus.Registerer, queueLabelLimit int, version, backend string) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		labels:         queueLabels{limit: queueLabelLimit, known: map[string]*queueSeries{}},
		joins:          newJoinMetrics(),
		enqueuedTotal:  counter("queuebox_messages_enqueued_total", "Messages inserted.", "queue"),
		duplicateTotal: counter("queuebox_enqueue_duplicates_total", "Enqueues answered with the message that holds their idempotency key.", "queue"),
		claimedTotal:   counter("queuebox_messages_claimed_total", "Messages delivered to workers, repeats of a claim included.", "queue"),
		settledTotal:   counter("queuebox_messages_settled_total", "Settlements applied, by outcome.", "queue", "outcome"),
		refusedTotal:   counter("queuebox_settlements_refused_total", "Settlements that changed nothing, by reason.", "queue", "reason"),
		renewedTotal:   counter("queuebox_renewals_total", "Renewals by result.", "result"),
		statements:     counter("queuebox_claim_statements_total", "Storage claims by what started them.", "cause"),
		limitedTotal:   counter("queuebox_claims_limited_total", "Storage claims that got less than they asked for by a limit of the queue.", "limit"),
		gaveBackTotal:  counter("queuebox_claims_given_back_total", "Claims returned because their caller went away before the answer.", "result"),
		notifySent:     counter("queuebox_notifications_sent_total", "Notifications to other servers.", "result"),
		sweptTotal:     counter("queuebox_swept_total", "Messages ended by the sweep, by what became of them.", "outcome"),
		cancelTotal:    counter("queuebox_cancels_total", "Calls of Cancel, by the state after the call.", "queue", "state"),
		revokeTotal:    counter("queuebox_revokes_total", "Calls of RevokeClaim, by what became of the message.", "queue", "result"),
		signalsTotal:   counter("queuebox_signals_total", "Signals to streams about claims.", "signal"),
		redrivenTotal:  counter("queuebox_redriven_total", "Dead messages that RedriveMessages returned to pending.", "queue"),
		purgedTotal:    counter("queuebox_purged_total", "Messages that PurgeMessages deleted.", "queue"),
		upkeepFailed:   counter("queuebox_upkeep_failures_total", "Failed calls of the background work.", "what"),
		placedTotal:    counter("queuebox_own_placed_total", "Messages that transactions of others enqueued, by what became of them.", "result"),
		finishedTotal:  counter("queuebox_own_finished_total", "Settlements that transactions of others marked and this server finished, by outcome.", "outcome"),
		retainedTotal: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "queuebox_retained_total", Help: "Rows deleted past their retention.",
		}),
		droppedTotal: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "queuebox_partitions_dropped_total", Help: "Partitions dropped whole past the retention of every queue.",
		}),
		notifyReceived: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "queuebox_notifications_received_total", Help: "Notifications received from the database.",
		}),
		listenUp: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "queuebox_listen_connected", Help: "1 while the notification connection stands.",
		}),
		serversKnown: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "queuebox_servers_known", Help: "Other servers on the same database that have said hello lately.",
		}),
		ready: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "queuebox_ready", Help: "1 while the server can serve: the database answers and its schema fits.",
		}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "queuebox_panics_total", Help: "Panics caught in calls.",
		}),
		heartbeats: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "queuebox_heartbeat_streams", Help: "Open Heartbeat streams.",
		}),
		streamBytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "queuebox_stream_bytes", Help: "About how much memory frames of streams take that are not answered, and deliveries that are not sent.",
		}),
		workStreams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "queuebox_work_streams", Help: "Open Work streams.",
		}),
		workDelivered: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "queuebox_work_delivered_total", Help: "Messages delivered over Work streams.",
		}),
		workReleased: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "queuebox_work_leases_ended_total", Help: "Leases ended because their Work stream ended, as its worker had asked for.",
		}),
		watchedClaims: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "queuebox_watched_claims", Help: "Claims that streams have shown and would hear of.",
		}),
		slowReaders: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "queuebox_streams_cut_total", Help: "Streams cut off because the caller did not read.",
		}),
	}
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "queuebox_build_info", Help: "Always 1; the labels tell version and storage.",
	}, []string{"version", "storage"})
	info.WithLabelValues(version, backend).Set(1)
	for _, c := range []prometheus.Collector{
		m.enqueuedTotal, m.duplicateTotal, m.claimedTotal, m.settledTotal, m.refusedTotal, m.renewedTotal, m.statements,
		m.limitedTotal, m.gaveBackTotal, m.notifySent, m.notifyReceived, m.listenUp, m.serversKnown, m.ready, m.panics, m.heartbeats, m.slowReaders, info,
		m.workStreams, m.streamBytes, m.workDelivered, m.workReleased,
		m.sweptTotal, m.retainedTotal, m.droppedTotal, m.cancelTotal, m.revokeTotal, m.redrivenTotal, m.purgedTotal,
		m.watchedClaims, m.signalsTotal, m.upkeepFailed,
		m.placedTotal, m.finishedTotal,
	} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	m.zero()
	return m, nil
}

// zero makes the series with closed label sets, so that a rate exists from the first
// event on. Those of a queue appear with its first call.
func (m *metrics) zero() {
	for _, c := range dispatch.Causes() {
		m.statements.WithLabelValues(string(c))
	}
	for _, l := range []string{"in_flight", "rate"} {
		m.limitedTotal.WithLabelValues(l)
	}
	for _, r := range []string{"ok", "lost"} {
		m.renewedTotal.WithLabelValues(r)
	}
	for _, r := range []string{"given_back", "kept", "failed"} {
		m.gaveBackTotal.WithLabelValues(r)
	}
	for _, r := range []string{"ok", "failed"} {
		m.notifySent.WithLabelValues(r)
	}
	for _, s := range []string{"lost", "stop_requested"} {
		m.signalsTotal.WithLabelValues(s)
	}
	for _, o := range []string{"lease_expired", "expired", "cancelled"} {
		m.sweptTotal.WithLabelValues(o)
	}
	m.placed(storage.PlaceResult{})
	for _, o := range []storage.Outcome{storage.OutcomeCompleted, storage.OutcomeRetried, storage.OutcomeDead, storage.OutcomeCancelled} {
		m.finishedTotal.WithLabelValues(outcomeLabel(o))
	}
	for _, w := range []string{"sweep", "keys", "retention", "place", "finish", "count"} {
		m.upkeepFailed.WithLabelValues(w)
	}
	m.queue("")
}

// queue returns the series of a queue.
func (m *metrics) queue(name string) *queueSeries { return m.labels.series(name, m.newQueueSeries) }

// queueSeries are those of one queue. They are found once: looking a series up by its labels
// costs several times as much as counting.
type queueSeries struct {
	enqueued, duplicate, claimed, redriven, purged prometheus.Counter
	settled                                        [storage.OutcomeCancelled + 1]prometheus.Counter
	refused                                        [storage.ItemKeyReused + 1]prometheus.Counter
	cancelled, revoked                             map[string]prometheus.Counter
}

func (m *metrics) newQueueSeries(label string) *queueSeries {
	s := &queueSeries{
		enqueued:  m.enqueuedTotal.WithLabelValues(label),
		duplicate: m.duplicateTotal.WithLabelValues(label),
		claimed:   m.claimedTotal.WithLabelValues(label),
		redriven:  m.redrivenTotal.WithLabelValues(label),
		purged:    m.purgedTotal.WithLabelValues(label),
		cancelled: map[string]prometheus.Counter{},
		revoked:   map[string]prometheus.Counter{},
	}
	for o := storage.OutcomeCompleted; o <= storage.OutcomeCancelled; o++ {
		s.settled[o] = m.settledTotal.WithLabelValues(label, outcomeLabel(o))
	}
	for _, st := range []storage.ItemStatus{storage.ItemSettled, storage.ItemLost, storage.ItemNotFound, storage.ItemUnknown, storage.ItemKeyReused} {
		s.refused[st] = m.refusedTotal.WithLabelValues(label, statusLabel(st))
	}
	for _, state := range []string{"cancelled", "asked", "finished"} {
		s.cancelled[state] = m.cancelTotal.WithLabelValues(label, state)
	}
	for _, result := range []string{"pending", "dead", "cancelled", "not_claimed"} {
		s.revoked[result] = m.revokeTotal.WithLabelValues(label, result)
	}
	return s
}

func (m *metrics) enqueued(queue string, duplicate bool) {
	if duplicate {
		m.queue(queue).duplicate.Inc()
		return
	}
	m.queue(queue).enqueued.Inc()
}

func (m *metrics) claimed(queue string, n int) {
	if n > 0 {
		m.queue(queue).claimed.Add(float64(n))
	}
}

func (m *metrics) settled(queue string, status storage.ItemStatus, outcome storage.Outcome, n int) {
	s := m.queue(queue)
	switch status {
	case storage.ItemApplied:
		if c := s.settled[outcome]; c != nil {
			c.Add(float64(n))
		}
	case storage.ItemSettled, storage.ItemLost, storage.ItemNotFound, storage.ItemUnknown, storage.ItemKeyReused:
		s.refused[status].Add(float64(n))
	case storage.ItemAlreadySettled, storage.ItemHeld:
	}
}

func (m *metrics) renewed(result string) { m.renewedTotal.WithLabelValues(result).Inc() }

func (m *metrics) signalled(lost bool) {
	if lost {
		m.signalsTotal.WithLabelValues("lost").Inc()
		return
	}
	m.signalsTotal.WithLabelValues("stop_requested").Inc()
}

func (m *metrics) swept(res storage.SweepResult) {
	m.sweptTotal.WithLabelValues("lease_expired").Add(float64(res.Dead))
	m.sweptTotal.WithLabelValues("expired").Add(float64(res.Expired))
	m.sweptTotal.WithLabelValues("cancelled").Add(float64(res.Cancelled))
}

func (m *metrics) retained(res storage.RetainResult) {
	m.retainedTotal.Add(float64(res.Deleted))
	m.droppedTotal.Add(float64(res.PartitionsDropped))
}

func (m *metrics) cancelled(queue string, state storage.State) {
	told := "finished"
	switch state {
	case storage.StateCancelled:
		told = "cancelled"
	case storage.StateProcessing, storage.StateSettling:
		told = "asked"
	case storage.StatePending, storage.StateCompleted, storage.StateDead:
	}
	m.queue(queue).cancelled[told].Inc()
}

func (m *metrics) revoked(queue string, res storage.RevokeResult) {
	told := "not_claimed"
	if res.Revoked {
		told = strings.ToLower(stateName(res.Message.State))
	}
	if c := m.queue(queue).revoked[told]; c != nil {
		c.Inc()
	}
}

func (m *metrics) redriven(queue string, n int) {
	m.queue(queue).redriven.Add(float64(n))
}

func (m *metrics) purged(queue string, n int) {
	m.queue(queue).purged.Add(float64(n))
}

func outcomeLabel(o storage.Outcome) string {
	switch o {
	case storage.OutcomeCompleted:
		return "completed"
	case storage.OutcomeRetried:
		return "retried"
	case storage.OutcomeDead:
		return "dead"
	case storage.OutcomeReleased:
		return "released"
	case storage.OutcomeCancelled:
		return "cancelled"
	case storage.OutcomeNone:
	}
	return "none"
}

func statusLabel(s storage.ItemStatus) string {
	switch s {
	case storage.ItemLost:
		return "claim_lost"
	case storage.ItemSettled:
		return "claim_settled"
	case storage.ItemNotFound:
		return "message_not_found"
	case storage.ItemUnknown, storage.ItemHeld:
		return "row_locked"
	case storage.ItemKeyReused:
		return "idempotency_key_reused"
	case storage.ItemApplied, storage.ItemAlreadySettled:
	}
	return "none"
}

// Statement and the next ones make metrics a dispatch.Metrics.
func (m *metrics) Statement(c dispatch.Cause) { m.statements.WithLabelValues(string(c)).Inc() }

// Limited counts a claim that a limit cut short.
func (m *metrics) Limited(l storage.Limit) {
	label := "rate"
	if l == storage.LimitInFlight {
		label = "in_flight"
	}
	m.limitedTotal.WithLabelValues(label).Inc()
}

// GaveBack counts one give-back.
func (m *metrics) GaveBack(n int, err error) {
	switch {
	case err != nil:
		m.gaveBackTotal.WithLabelValues("failed").Inc()
	case n == 0:
		m.gaveBackTotal.WithLabelValues("kept").Inc()
	default:
		m.gaveBackTotal.WithLabelValues("given_back").Add(float64(n))
	}
}

// NotifySent counts a notification.
func (m *metrics) NotifySent(err error) {
	if err != nil {
		m.notifySent.WithLabelValues("failed").Inc()
		return
	}
	m.notifySent.WithLabelValues("ok").Inc()
}

// NotifyReceived counts a notification.
func (m *metrics) NotifyReceived() { m.notifyReceived.Inc() }

// ServersKnown notes how many other servers are known.
func (m *metrics) ServersKnown(n int) { m.serversKnown.Set(float64(n)) }

// ListenUp notes the state of the notification connection.
func (m *metrics) ListenUp(up bool) { m.listenUp.Set(oneIf(up)) }

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// queueLabels gives the first queues that are used a label of their own, and all others
// one together: a queue name comes from callers, and series cost memory.
type queueLabels struct {
	limit int

	mu    sync.RWMutex
	known map[string]*queueSeries
	other *queueSeries
}

// series returns the series of a queue, made where it is the first time. The empty name stands
// for all queues without a label of their own.
func (l *queueLabels) series(name string, fresh func(label string) *queueSeries) *queueSeries {
	l.mu.RLock()
	s, full := l.known[name], len(l.known) >= l.limit && l.other != nil
	if s == nil && (full || name == "") {
		s = l.other
	}
	l.mu.RUnlock()
	if s != nil {
		return s
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.other == nil {
		l.other = fresh(otherQueues)
	}
	switch {
	case l.known[name] != nil:
		return l.known[name]
	case name == "" || len(l.known) >= l.limit:
		return l.other
	}
	s = fresh(name)
	l.known[name] = s
	return s
}

// placed counts what became of messages that transactions of others enqueued (E12).
func (m *metrics) placed(res storage.PlaceResult) {
	m.placedTotal.WithLabelValues("placed").Add(float64(res.Placed))
	m.placedTotal.WithLabelValues("duplicate").Add(float64(res.Duplicates))
	m.placedTotal.WithLabelValues("key_reused").Add(float64(res.Reused))
	m.placedTotal.WithLabelValues("refused").Add(float64(res.Refused))
}

// finished counts a settlement that a transaction of somebody else had marked.
func (m *metrics) finished(o storage.Outcome) { m.finishedTotal.WithLabelValues(outcomeLabel(o)).Inc() }
