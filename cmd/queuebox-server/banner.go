package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/queuebox/queuebox/internal/config"
	"github.com/queuebox/queuebox/storage"
)

// banner is what a person wants to see at start.
type banner struct {
	version      string
	storage      string
	capabilities storage.Capabilities
	grpc         string
	metrics      string // "" where the port is off
	insecure     bool
	settings     []config.Setting
}

// write prints one readable block. Programs that read the log get one record instead,
// since a block of text would break a log in JSON.
func (b *banner) write(w io.Writer, logger *slog.Logger, format string) error {
	if format == "json" {
		logger.LogAttrs(context.Background(), slog.LevelInfo, "started",
			slog.String("version", b.version), slog.String("storage", b.storage),
			slog.String("database", b.database()), slog.String("durability", b.capabilities.Durability),
			slog.String("grpc", b.grpc), slog.String("metrics", b.metrics), slog.String("settings", b.settingsText()))
		return nil
	}
	guard := "plain text, loopback only"
	if b.insecure {
		guard = "plain text, NO authentication (--insecure)"
	}
	metrics := "off"
	if b.metrics != "" {
		metrics = fmt.Sprintf("http://%s/metrics, /livez, /readyz", reachable(b.metrics))
		if reachable(b.metrics) != b.metrics {
			metrics += "  (listens on " + b.metrics + ")"
		}
	}
	lines := [][2]string{
		{"storage", b.storage},
		{"database", b.database()},
		{"durability", b.capabilities.Durability},
		{"gRPC", b.grpc + "  (" + guard + ")"},
		{"metrics", metrics},
	}
	if settings := b.settingsText(); settings != "" {
		lines = append(lines, [2]string{"settings", settings})
	}
	lines = append(lines, [2]string{"try", fmt.Sprintf(
		`grpcurl -plaintext -d '{"queue":"hello","payload":"aGVsbG8="}' %s queuebox.v1.ProducerService/Enqueue`, reachable(b.grpc))})

	var text strings.Builder
	fmt.Fprintf(&text, "QueueBox %s\n", b.version)
	for _, line := range lines {
		fmt.Fprintf(&text, "  %-11s %s\n", line[0], line[1])
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// reachable is an address that can be pasted: a wildcard is no place to dial to.
func reachable(listen string) string {
	if address, err := dialAddress(listen); err == nil {
		return address
	}
	return listen
}

func (b *banner) database() string {
	if b.capabilities.Version == "" || strings.Contains(strings.ToLower(b.capabilities.Version), b.capabilities.Name) {
		return b.capabilities.Version
	}
	return b.capabilities.Name + " " + b.capabilities.Version
}

// settingsText lists what was set and by what, but for the options that have a line of
// their own.
func (b *banner) settingsText() string {
	parts := make([]string, 0, len(b.settings))
	for _, s := range b.settings {
		switch s.Name {
		case "storage", "listen", "metrics-listen":
			continue
		}
		parts = append(parts, fmt.Sprintf("%s=%s (%s)", s.Name, s.Value, s.Source))
	}
	return strings.Join(parts, ", ")
}
