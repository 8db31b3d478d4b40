package mssql

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/internal/leaktest"
	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/mssql/internal/faketds"
	"github.com/queuebox/queuebox/storage/rowlock"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// script answers what Open asks, as a database does that can be worked with, and hands
// everything else to fn.
func script(fn func(r faketds.Request) faketds.Answer) func(faketds.Request) faketds.Answer {
	return func(r faketds.Request) faketds.Answer {
		switch {
		case strings.Contains(r.Text, "SERVERPROPERTY"):
			return serverRow(goodServer)
		case strings.Contains(r.Text, "goose_db_version"):
			return rows([]string{"version"}, []any{int64(schemaVersion)})
		case fn == nil:
			return faketds.Answer{}
		}
		return fn(r)
	}
}

var goodServer = server{
	edition: 3, product: "15.0.4188.2", version: "Microsoft SQL Server 2019", compatibility: 150, options: optionsNeeded,
}

func serverRow(s server) faketds.Answer {
	return rows([]string{"edition", "product", "version", "compatibility", "delayed_durability", "read_only", "options"},
		[]any{int32(s.edition), s.product, s.version, int32(s.compatibility), int32(s.delayed), s.readOnly, int32(s.options)})
}

func rows(columns []string, rows ...[]any) faketds.Answer {
	return faketds.Answer{Sets: []faketds.Set{faketds.Rows(columns, rows...)}}
}

// failing is an error after which XACT_ABORT has rolled back.
func failing(number int32, message string) faketds.Answer {
	return faketds.Answer{Error: faketds.Error{Number: number, State: 1, Message: message}, RolledBack: true}
}

// open opens a store on a fake, and forgets what Open asked.
func open(t *testing.T, fn func(r faketds.Request) faketds.Answer) (*rowlock.Store, *faketds.Server) {
	t.Helper()
	s := faketds.Start(t, script(fn))
	store, err := Open(t.Context(), Config{URL: s.URL()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	s.Forget()
	return store, s
}

// soon fails the test where fn hangs: the driver may ignore a ctx when it does.
func soon(t *testing.T, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("hangs")
	}
}

func TestOpen_AsksAndReadsTheClock(t *testing.T) {
	at := time.Date(2031, 2, 3, 4, 5, 6, 789123000, time.UTC)
	store, s := open(t, func(faketds.Request) faketds.Answer { return rows([]string{"now"}, []any{at}) })
	require.Equal(t, "15.0.4188.2", store.Capabilities().Version)
	require.True(t, store.Capabilities().RowLocks)
	require.False(t, store.Capabilities().Notifications)
	require.Equal(t, time.Microsecond, store.Capabilities().ClockTick)
	now, err := store.Now(t.Context())
	require.NoError(t, err)
	require.Equal(t, at, now)
	require.NoError(t, store.Ready(t.Context()))
	for _, r := range s.Requests() {
		require.Equal(t, faketds.RPC, r.Kind)
		require.Equal(t, procedure, r.Procedure)
		require.True(t, strings.HasPrefix(r.Text, settings), r.Text)
		require.Empty(t, r.Declared)
		require.Zero(t, r.Transaction)
	}
	require.Equal(t, settings+"SELECT "+clockExpr+" AS now", s.Requests()[0].Text)
}

func TestD3_NobodyListens(t *testing.T) {
	s := faketds.Start(t, nil)
	s.Stop()
	_, err := Open(t.Context(), Config{URL: s.URL()})
	require.ErrorIs(t, err, storage.ErrUnavailable)
	require.NotContains(t, err.Error(), "secret")
	require.NotContains(t, err.Error(), "someone")
}

func TestD3_AServerThatSaysNothing(t *testing.T) {
	hold := make(chan struct{})
	s := faketds.Start(t, func(faketds.Request) faketds.Answer { return faketds.Answer{Hold: hold} })
	defer s.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	soon(t, func() {
		_, err := Open(ctx, Config{URL: s.URL()})
		require.ErrorIs(t, err, storage.ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}
