// Package observe is a storage.Store around a storage.Store that measures every call.
// It changes no argument, no result and no error.
package observe

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/queuebox/queuebox/storage"
)

// Results of a call, the values of the label "result".
const (
	resultOK          = "ok"
	resultRefused     = "refused"     // a sentinel that is an answer, like ErrQueueNotFound
	resultUnavailable = "unavailable" // nothing changed
	resultUnknown     = "unknown"     // the commit may have happened
	resultError       = "error"       // a defect, or a wrong schema
)

// Store measures the calls of another one.
type Store struct {
	next storage.Store
	// seconds has the series of each method, by result: to look one up by its labels costs
	// more than to observe.
	seconds map[string]map[string]prometheus.Observer
	now     func() time.Time
}

var _ storage.Store = (*Store)(nil)

// The measured methods, the values of the label "method".
var methods = []string{
	"Enqueue", "Claim", "GiveBack", "FirstReady", "Renew", "Settle", "Look", "Notify", "Now", "Ready", "Maintain",
	"CreateQueue", "GetQueue", "GetQueueByID", "ListQueues", "UpdateQueue", "SetPaused", "QueueStats", "StoredStats", "Count", "Blocked", "GetMessage", "ListMessages",
	"Sweep", "Retain", "Cancel", "SweepKeys", "Explain", "Revoke", "Redrive", "Purge", "Place", "Finish",
}

// New returns a Store that measures next and registers its metrics with reg.
func New(next storage.Store, reg prometheus.Registerer) (*Store, error) {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "queuebox_storage_seconds",
		Help:    "Duration of calls to the storage by method and result.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"method", "result"})
	if err := reg.Register(seconds); err != nil {
		return nil, err
	}
	if err := reg.Register(newVacuum(next)); err != nil {
		return nil, err
	}
	series := map[string]map[string]prometheus.Observer{}
	for _, m := range methods {
		series[m] = map[string]prometheus.Observer{}
		for _, r := range []string{resultOK, resultRefused, resultUnavailable, resultUnknown, resultError} {
			series[m][r] = seconds.WithLabelValues(m, r)
		}
	}
	return &Store{next: next, seconds: series, now: time.Now}, nil //nolint:forbidigo // measures how long calls take
}

func resultOf(err error) string {
	switch {
	case err == nil:
		return resultOK
	case errors.Is(err, storage.ErrOutcomeUnknown):
		return resultUnknown
	case errors.Is(err, storage.ErrUnavailable):
		return resultUnavailable
	case errors.Is(err, storage.ErrQueueNotFound), errors.Is(err, storage.ErrQueueExists),
		errors.Is(err, storage.ErrQueueLimit), errors.Is(err, storage.ErrVersionMismatch),
		errors.Is(err, storage.ErrMessageNotFound), errors.Is(err, storage.ErrNotSupported):
		return resultRefused
	}
	return resultError
}

// observe measures one call that began at start. err is a pointer, since it is set
// when the call has ended.
func (s *Store) observe(method string, start time.Time, err *error) {
	s.seconds[method][resultOf(*err)].Observe(s.now().Sub(start).Seconds())
}

// Capabilities is not measured: it asks nobody.
func (s *Store) Capabilities() storage.Capabilities { return s.next.Capabilities() }

// Close is not measured.
func (s *Store) Close() error { return s.next.Close() }

// Listen is not measured: it runs as long as the server does.
func (s *Store) Listen(ctx context.Context, heard func(storage.Notice), up func(bool)) error {
	return s.next.Listen(ctx, heard, up)
}

// Enqueue measures the call of the same name, as do all that follow.
func (s *Store) Enqueue(ctx context.Context, p storage.EnqueueParams) (res storage.EnqueueResult, err error) {
	defer s.observe("Enqueue", s.now(), &err)
	return s.next.Enqueue(ctx, p)
}

// Claim is measured.
func (s *Store) Claim(ctx context.Context, p storage.ClaimParams) (res storage.ClaimResult, err error) {
	defer s.observe("Claim", s.now(), &err)
	return s.next.Claim(ctx, p)
}

// GiveBack is measured.
func (s *Store) GiveBack(ctx context.Context, p storage.GiveBackParams) (res storage.GiveBackResult, err error) {
	defer s.observe("GiveBack", s.now(), &err)
	return s.next.GiveBack(ctx, p)
}

// FirstReady is measured.
func (s *Store) FirstReady(ctx context.Context, p storage.FirstReadyParams) (res storage.FirstReadyResult, err error) {
	defer s.observe("FirstReady", s.now(), &err)
	return s.next.FirstReady(ctx, p)
}

// Renew is measured.
func (s *Store) Renew(ctx context.Context, p storage.RenewParams) (res storage.RenewResult, err error) {
	defer s.observe("Renew", s.now(), &err)
	return s.next.Renew(ctx, p)
}

// Settle is measured.
func (s *Store) Settle(ctx context.Context, p storage.SettleParams) (res storage.SettleResult, err error) {
	defer s.observe("Settle", s.now(), &err)
	return s.next.Settle(ctx, p)
}

// Look is measured.
func (s *Store) Look(ctx context.Context, claims []storage.HeldClaim) (res storage.RenewResult, err error) {
	defer s.observe("Look", s.now(), &err)
	return s.next.Look(ctx, claims)
}

// Notify is measured.
func (s *Store) Notify(ctx context.Context, n storage.Notice) (err error) {
	defer s.observe("Notify", s.now(), &err)
	return s.next.Notify(ctx, n)
}

// Now is measured.
func (s *Store) Now(ctx context.Context) (t time.Time, err error) {
	defer s.observe("Now", s.now(), &err)
	return s.next.Now(ctx)
}

// Ready is measured.
func (s *Store) Ready(ctx context.Context) (err error) {
	defer s.observe("Ready", s.now(), &err)
	return s.next.Ready(ctx)
}

// Maintain is measured.
func (s *Store) Maintain(ctx context.Context) (err error) {
	defer s.observe("Maintain", s.now(), &err)
	return s.next.Maintain(ctx)
}

// CreateQueue is measured.
func (s *Store) CreateQueue(ctx context.Context, name string, set storage.QueueSettings, maxQueues int) (q storage.Queue, err error) {
	defer s.observe("CreateQueue", s.now(), &err)
	return s.next.CreateQueue(ctx, name, set, maxQueues)
}

// GetQueue is measured.
func (s *Store) GetQueue(ctx context.Context, name string) (q storage.Queue, err error) {
	defer s.observe("GetQueue", s.now(), &err)
	return s.next.GetQueue(ctx, name)
}

// GetQueueByID is measured.
func (s *Store) GetQueueByID(ctx context.Context, id int32) (q storage.Queue, err error) {
	defer s.observe("GetQueueByID", s.now(), &err)
	return s.next.GetQueueByID(ctx, id)
}

// ListQueues is measured.
func (s *Store) ListQueues(ctx context.Context, after string, limit int) (qs []storage.Queue, err error) {
	defer s.observe("ListQueues", s.now(), &err)
	return s.next.ListQueues(ctx, after, limit)
}

// UpdateQueue is measured.
func (s *Store) UpdateQueue(ctx context.Context, name string, set storage.QueueSettings, version int64) (q storage.Queue, err error) {
	defer s.observe("UpdateQueue", s.now(), &err)
	return s.next.UpdateQueue(ctx, name, set, version)
}

// SetPaused is measured.
func (s *Store) SetPaused(ctx context.Context, name string, paused bool) (q storage.Queue, err error) {
	defer s.observe("SetPaused", s.now(), &err)
	return s.next.SetPaused(ctx, name, paused)
}

// QueueStats is measured.
func (s *Store) QueueStats(ctx context.Context, queueID int32) (st storage.QueueStats, err error) {
	defer s.observe("QueueStats", s.now(), &err)
	return s.next.QueueStats(ctx, queueID)
}

// Blocked is measured.
func (s *Store) Blocked(ctx context.Context, queueID int32) (blocked bool, err error) {
	defer s.observe("Blocked", s.now(), &err)
	return s.next.Blocked(ctx, queueID)
}

// StoredStats is measured.
func (s *Store) StoredStats(ctx context.Context, queueID int32) (st storage.QueueStats, err error) {
	defer s.observe("StoredStats", s.now(), &err)
	return s.next.StoredStats(ctx, queueID)
}

// Count is measured.
func (s *Store) Count(ctx context.Context, p storage.CountParams) (res storage.CountResult, err error) {
	defer s.observe("Count", s.now(), &err)
	return s.next.Count(ctx, p)
}

// GetMessage is measured.
func (s *Store) GetMessage(ctx context.Context, ref storage.Ref, payload bool) (m storage.Message, err error) {
	defer s.observe("GetMessage", s.now(), &err)
	return s.next.GetMessage(ctx, ref, payload)
}

// ListMessages is measured.
func (s *Store) ListMessages(ctx context.Context, p storage.ListMessagesParams) (res storage.ListMessagesResult, err error) {
	defer s.observe("ListMessages", s.now(), &err)
	return s.next.ListMessages(ctx, p)
}

// Sweep is measured.
func (s *Store) Sweep(ctx context.Context, p storage.SweepParams) (res storage.SweepResult, err error) {
	defer s.observe("Sweep", s.now(), &err)
	return s.next.Sweep(ctx, p)
}

// Retain is measured.
func (s *Store) Retain(ctx context.Context, p storage.RetainParams) (res storage.RetainResult, err error) {
	defer s.observe("Retain", s.now(), &err)
	return s.next.Retain(ctx, p)
}

// Cancel is measured.
func (s *Store) Cancel(ctx context.Context, p storage.CancelParams) (res storage.CancelResult, err error) {
	defer s.observe("Cancel", s.now(), &err)
	return s.next.Cancel(ctx, p)
}

// SweepKeys is measured.
func (s *Store) SweepKeys(ctx context.Context, p storage.SweepKeysParams) (res storage.SweepKeysResult, err error) {
	defer s.observe("SweepKeys", s.now(), &err)
	return s.next.SweepKeys(ctx, p)
}

// Explain is measured.
func (s *Store) Explain(ctx context.Context, p storage.Ref) (res storage.Explanation, err error) {
	defer s.observe("Explain", s.now(), &err)
	return s.next.Explain(ctx, p)
}

// Revoke is measured.
func (s *Store) Revoke(ctx context.Context, p storage.RevokeParams) (res storage.RevokeResult, err error) {
	defer s.observe("Revoke", s.now(), &err)
	return s.next.Revoke(ctx, p)
}

// Redrive is measured.
func (s *Store) Redrive(ctx context.Context, p storage.RedriveParams) (res storage.BatchResult, err error) {
	defer s.observe("Redrive", s.now(), &err)
	return s.next.Redrive(ctx, p)
}

// Purge is measured.
func (s *Store) Purge(ctx context.Context, p storage.PurgeParams) (res storage.BatchResult, err error) {
	defer s.observe("Purge", s.now(), &err)
	return s.next.Purge(ctx, p)
}

// Place is measured.
func (s *Store) Place(ctx context.Context, p storage.PlaceParams) (res storage.PlaceResult, err error) {
	defer s.observe("Place", s.now(), &err)
	return s.next.Place(ctx, p)
}

// Finish is measured.
func (s *Store) Finish(ctx context.Context, p storage.FinishParams) (res storage.FinishResult, err error) {
	defer s.observe("Finish", s.now(), &err)
	return s.next.Finish(ctx, p)
}

// TransactionSQL is not measured: it asks nobody.
func (s *Store) TransactionSQL(p storage.TransactionSQLParams) (storage.TransactionSQL, error) {
	return s.next.TransactionSQL(p)
}
