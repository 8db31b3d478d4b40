package mssql

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/mssql/internal/faketds"
)

func TestJudge(t *testing.T) {
	with := func(change func(s *server)) server {
		s := goodServer
		change(&s)
		return s
	}
	for name, s := range map[string]server{
		"SQL Server 2019":      goodServer,
		"SQL Server 2025":      with(func(s *server) { s.product = "17.0.1000.7" }),
		"Azure SQL":            with(func(s *server) { s.edition, s.product = editionAzureDatabase, "12.0.2000.8" }),
		"a managed instance":   with(func(s *server) { s.edition, s.product = editionAzureManaged, "12.0.2000.8" }),
		"level 130":            with(func(s *server) { s.compatibility = 130 }),
		"durability by choice": with(func(s *server) { s.delayed = 1 }),
	} {
		j, err := judge(s)
		require.NoError(t, err, name)
		require.Empty(t, j.unsafe, name)
		require.False(t, j.foreign, name)
		require.True(t, strings.HasPrefix(j.durability, "durable"), name)
	}
	for want, s := range map[string]server{
		"SQL Server 2019":       with(func(s *server) { s.product = "14.0.3456.2" }),
		"want at least 130":     with(func(s *server) { s.compatibility = 120 }),
		"QUOTED_IDENTIFIER":     with(func(s *server) { s.options &^= 256 }),
		"IMPLICIT_TRANSACTIONS": with(func(s *server) { s.options |= 2 }),
		"secondary replica":     with(func(s *server) { s.readOnly = true }),
	} {
		_, err := judge(s)
		require.ErrorContains(t, err, want)
	}
	_, err := judge(with(func(s *server) { s.readOnly = true }))
	require.ErrorIs(t, err, storage.ErrUnavailable)
}

func TestD9_ForcedDelayedDurability(t *testing.T) {
	forced := goodServer
	forced.delayed = delayedForced
	s := faketds.Start(t, func(r faketds.Request) faketds.Answer {
		if strings.Contains(r.Text, "SERVERPROPERTY") {
			return serverRow(forced)
		}
		return script(nil)(r)
	})
	_, err := Open(t.Context(), Config{URL: s.URL()})
	require.ErrorIs(t, err, storage.ErrUnsafeDurability)
	require.ErrorContains(t, err, "DELAYED_DURABILITY is FORCED")
	store, err := Open(t.Context(), Config{URL: s.URL(), AllowUnsafeDurability: true})
	require.NoError(t, err)
	require.Contains(t, store.Capabilities().Durability, "UNSAFE")
	require.NoError(t, store.Close())
}

func TestOpen_WarnsOfAnotherEngine(t *testing.T) {
	other := goodServer
	other.version, other.product = "Babelfish for PostgreSQL", "12.0.2000.8"
	s := faketds.Start(t, func(r faketds.Request) faketds.Answer {
		if strings.Contains(r.Text, "SERVERPROPERTY") {
			return serverRow(other)
		}
		return script(nil)(r)
	})
	var log strings.Builder
	store, err := Open(t.Context(), Config{URL: s.URL(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	require.NoError(t, store.Close())
	require.Contains(t, log.String(), "NOT MICROSOFT")
	require.Contains(t, log.String(), "level=WARN")
}

func TestD7_OpenRefusesOtherSchemas(t *testing.T) {
	for name, c := range map[string]struct {
		answer faketds.Answer
		want   error
	}{
		"none":     {failing(errNoTable, "Invalid object name 'queuebox.goose_db_version'."), storage.ErrNoSchema},
		"newer":    {rows([]string{"version"}, []any{int64(schemaVersion + 1)}), storage.ErrSchema},
		"none yet": {rows([]string{"version"}, []any{int64(0)}), storage.ErrSchema},
	} {
		t.Run(name, func(t *testing.T) {
			s := faketds.Start(t, func(r faketds.Request) faketds.Answer {
				if strings.Contains(r.Text, "goose_db_version") {
					return c.answer
				}
				return script(nil)(r)
			})
			_, err := Open(t.Context(), Config{URL: s.URL()})
			require.ErrorIs(t, err, c.want)
		})
	}
}
