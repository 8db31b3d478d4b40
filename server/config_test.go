package server

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// narrow is a store whose database takes less than a server may be set to.
type narrow struct{ storage.Store }

func (narrow) Capabilities() storage.Capabilities {
	return storage.Capabilities{Name: "narrow", MaxPayload: 2 << 20}
}

// C13: what the database could not take is refused by Enqueue, so a server with a larger limit
// than that of the database does not start.
func TestC13PayloadLimitBeyondTheDatabase(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Store, cfg.Logger, cfg.Registry = narrow{}, slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	require.NoError(t, cfg.validate())
	cfg.MaxPayloadBytes = 2 << 20
	require.NoError(t, cfg.validate())
	cfg.MaxPayloadBytes++
	_, err := New(cfg)
	require.ErrorContains(t, err, "the database takes 2097152 at most")
	require.ErrorContains(t, err, "--max-payload-bytes")
}
