package main

import (
	"io"
	"log/slog"

	"github.com/queuebox/queuebox/internal/config"
)

// newLogger writes to standard error, so that the start block on standard output stays
// readable.
func newLogger(w io.Writer, o config.LogOptions) *slog.Logger {
	var level slog.Level
	// The option is one of a closed set, all of which slog knows.
	_ = level.UnmarshalText([]byte(o.LogLevel))
	options := &slog.HandlerOptions{Level: level}
	if o.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
