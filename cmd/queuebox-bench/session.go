package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/queuebox/queuebox/cmd/queuebox-bench/host"
)

// session is what the windows of a run share.
type session struct {
	dir      string
	self     string
	server   string
	revision string
	machine  string
	payload  int
	postgres *host.Postgres
	counters *host.Counters
	progress io.Writer
	begun    time.Time
	node     *nodePeers
	// failures are the contenders that broke.
	failures []error
}

// openSession builds the server, unless one is named, and starts PostgreSQL. Everything is under
// one temporary directory, which close removes.
func openSession(ctx context.Context, server, source string, progress io.Writer) (_ *session, err error) {
	s := &session{progress: progress, begun: time.Now(), machine: machine()}
	s.node = &nodePeers{session: s}
	defer func() { //nolint:contextcheck // as in close
		if err != nil {
			s.close()
		}
	}()
	if s.self, err = os.Executable(); err != nil {
		return nil, fmt.Errorf("path of this program: %w", err)
	}
	if s.dir, err = os.MkdirTemp("", "queuebox-bench-"); err != nil {
		return nil, fmt.Errorf("temporary directory: %w", err)
	}
	source, err = sourceDir(source)
	if err != nil && server == "" {
		return nil, err
	}
	s.revision = revision(ctx, source)
	s.server = server
	if server == "" {
		s.say("building the server of %s", source)
		if s.server, err = buildServer(ctx, source, s.dir); err != nil {
			return nil, err
		}
	}
	if s.postgres, err = host.StartPostgres(ctx, s.dir); err != nil {
		return nil, err
	}
	s.say("PostgreSQL %s on %s", s.postgres.Version, s.machine)
	s.counters, err = host.NewCounters(ctx, s.postgres)
	return s, err
}

func (s *session) close() {
	if s.counters != nil {
		s.counters.Close(context.Background())
	}
	if s.postgres != nil {
		s.postgres.Stop()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// say tells a person how far it is.
func (s *session) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.progress, "%5.0fs  "+format+"\n", append([]any{time.Since(s.begun).Seconds()}, args...)...)
}

// sourceDir is the root of the main module: the one that was named, or the one around the
// working directory.
func sourceDir(named string) (string, error) {
	if named != "" {
		return named, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("working directory: %w", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.Contains("\n"+string(text), "\nmodule github.com/queuebox/queuebox\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("this is not within a clone of QueueBox: --source or --server-binary says where the server is")
		}
	}
}

// revision names what is built, as git does; unknown where there is no git.
func revision(ctx context.Context, source string) string {
	if source == "" {
		return "of --server-binary"
	}
	//nolint:gosec // git, on a path of ours
	out, err := exec.CommandContext(ctx, "git", "-C", source, "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// machine describes the processor, as far as the system tells.
func machine() string {
	name := runtime.GOARCH
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				name = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%d cores, %s, %s", runtime.NumCPU(), name, runtime.GOOS)
}

// moduleVersion is that of a module that is linked in.
func moduleVersion(path string) string {
	name := path[strings.LastIndexByte(path, '/')+1:]
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return name
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return name + " " + m.Version
		}
	}
	return name
}

// command is the client program of a system, to which the spec is added.
func (s *session) command(of system) []string {
	if f, ok := of.(foreign); ok {
		return f.command()
	}
	return []string{s.self, "drive"}
}

// settings are those of PostgreSQL, as they are printed.
func (*session) settings() []string { return host.Settings() }
