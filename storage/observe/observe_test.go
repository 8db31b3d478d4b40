package observe

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/internal/leaktest"
	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/faults"
	"github.com/queuebox/queuebox/storage/sqlite"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func open(t *testing.T) (*Store, *faults.Store, *prometheus.Registry) {
	t.Helper()
	inner, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "queuebox.db")})
	require.NoError(t, err)
	broken := faults.Wrap(inner)
	reg := prometheus.NewRegistry()
	s, err := New(broken, reg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s, broken, reg
}

// count is the number of calls of a method with a result.
func count(t *testing.T, reg *prometheus.Registry, method, result string) uint64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, m := range families[0].GetMetric() {
		if m.GetLabel()[0].GetValue() == method && m.GetLabel()[1].GetValue() == result {
			return m.GetHistogram().GetSampleCount()
		}
	}
	t.Fatalf("no series for %s, %s", method, result)
	return 0
}

func TestResultsAreTold(t *testing.T) {
	s, broken, reg := open(t)
	require.Zero(t, count(t, reg, "Now", "ok"), "series begin at zero")
	_, err := s.Now(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, count(t, reg, "Now", "ok"))
	_, err = s.GetQueue(t.Context(), "none")
	require.ErrorIs(t, err, storage.ErrQueueNotFound)
	require.EqualValues(t, 1, count(t, reg, "GetQueue", "refused"))
	for result, fault := range map[string]faults.Fault{
		"unavailable": {Refuse: true, Times: 1},
		"unknown":     {Cut: true, Times: 1},
		"error":       {Err: errors.New("a defect"), Times: 1},
	} {
		broken.Inject(faults.Settle, fault)
		_, err = s.Settle(t.Context(), storage.SettleParams{})
		require.Error(t, err)
		require.EqualValues(t, 1, count(t, reg, "Settle", result))
	}
}

// TestEveryMethodIsMeasured calls each method of the interface that can fail.
func TestEveryMethodIsMeasured(t *testing.T) {
	s, broken, reg := open(t)
	broken.Inject(faults.Any, faults.Fault{Refuse: true})
	v := reflect.ValueOf(storage.Store(s))
	measured := 0
	for i := range v.NumMethod() {
		name := v.Type().Method(i).Name
		if name == "Capabilities" || name == "Close" || name == "Listen" || name == "TransactionSQL" {
			continue
		}
		args := make([]reflect.Value, v.Method(i).Type().NumIn())
		for k := range args {
			args[k] = reflect.Zero(v.Method(i).Type().In(k))
		}
		args[0] = reflect.ValueOf(context.WithoutCancel(t.Context()))
		out := v.Method(i).Call(args)
		err, _ := reflect.TypeAssert[error](out[len(out)-1])
		require.ErrorIs(t, err, storage.ErrUnavailable, name)
		require.EqualValues(t, 1, count(t, reg, name, "unavailable"), name)
		measured++
	}
	require.Len(t, methods, measured)
	families, err := reg.Gather()
	require.NoError(t, err)
	require.Len(t, families[0].GetMetric(), 5*measured, "one series for each method and result")
}
