package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/internal/config"
	"github.com/queuebox/queuebox/server"
	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/backends"
)

// requireOneLine wants the message that an operator can act on: one line, signed.
func requireOneLine(t *testing.T, text string) {
	t.Helper()
	require.True(t, strings.HasPrefix(text, "queuebox-server: "), text)
	require.Equal(t, 1, strings.Count(text, "\n"), text)
	require.True(t, strings.HasSuffix(text, "\n"), text)
}

func TestWrongUseIsExitCode2AndOneLine(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "storage")
	require.NoError(t, os.WriteFile(secret, []byte("sqlite://x.db"), 0o600))
	tests := []struct {
		name    string
		args    []string
		environ []string
		want    string
	}{
		{name: "unknown command", args: []string{"sevre"}, want: "unexpected argument sevre"},
		{name: "unknown flag", args: []string{"--stroage=x"}, want: `did you mean "--storage"?`},
		{name: "flag of another command", args: []string{"migrate", "--max-wait=1s"}, want: "unknown flag --max-wait"},
		{name: "unknown variable", environ: []string{"QUEUEBOX_STROAGE=x"}, want: "nearest known one is QUEUEBOX_STORAGE"},
		{name: "unknown variable at migrate", args: []string{"migrate"}, environ: []string{"QUEUEBOX_STROAGE=x"}, want: "nearest known one is QUEUEBOX_STORAGE"},
		{name: "address that others reach", args: []string{"--listen=0.0.0.0:0"}, want: "pass --insecure"},
		{name: "value out of range", args: []string{"--max-wait=1h"}, want: "max-wait: want"},
		{name: "secret in two places", args: []string{"--storage=sqlite://y.db", "--storage-file=" + secret}, want: "give one of them"},
		{name: "secret in two places at migrate", args: []string{"migrate", "--storage=sqlite://y.db", "--storage-file=" + secret}, want: "give one of them"},
		{name: "operator's command without its subcommand", args: []string{"queues"}, want: "(see queuebox-server queues --help)"},
		{name: "operator's command without its argument", args: []string{"messages", "get", "jobs"}, want: "(see queuebox-server messages get --help)"},
		{name: "unknown flag of an operator's command", args: []string{"queues", "update", "jobs", "--max-atempts=3"}, want: "(see queuebox-server queues update --help)"},
		{name: "flag of an operator before his command", args: []string{"--server=x:1", "queues", "list"}, want: "the flags of queues stand after it; see queuebox-server queues list --help)"},
		{name: "unknown variable at an operator's command", args: []string{"queues", "list"}, environ: []string{"QUEUEBOX_SEVER=x:1"}, want: "nearest known one is QUEUEBOX_SERVER"},
		{name: "another machine", args: []string{"queues", "list"}, environ: []string{"QUEUEBOX_SERVER=db.example.com:7420"}, want: "pass --server-tls"},
		{name: "purge of everything", args: []string{"purge", "jobs", "--yes"}, want: "give a filter"},
		{name: "body that is no text", args: []string{"enqueue", "jobs", "--payload=\xff"}, want: "is not valid UTF-8; a body of any bytes comes from --payload-file"},
		{name: "queue that is no text", args: []string{"purge", "jobs\xff", "--state=dead", "--yes"}, want: `the argument "jobs\xff" is not valid UTF-8`},
		{name: "unknown format", args: []string{"queues", "list", "-o", "yaml"}, want: `must be one of "table","json"`},
		{name: "unknown shell", args: []string{"completion", "tcsh"}, want: `must be one of "bash","zsh","fish"`},
		{name: "address of the healthcheck", args: []string{"healthcheck", "--listen=7420"}, want: "want HOST:PORT"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			var stdout, stderr bytes.Buffer
			require.Equal(t, exitUsage, run(tt.args, tt.environ, &stdout, &stderr))
			requireOneLine(t, stderr.String())
			require.Contains(t, stderr.String(), tt.want)
			require.Empty(t, stdout.String())
			left, err := os.ReadDir(".")
			require.NoError(t, err)
			require.Empty(t, left, "nothing was begun")
		})
	}
}

func TestVersion(t *testing.T) {
	for _, word := range []string{"version", "--version"} {
		var stdout, stderr bytes.Buffer
		// A server with a broken configuration can still be asked for its version.
		require.Zero(t, run([]string{word}, []string{"QUEUEBOX_NONSENSE=1"}, &stdout, &stderr), stderr.String())
		require.Regexp(t, `^queuebox-server \S+ \(go1\.\d+\S*, \w+/\w+\)\n$`, stdout.String())
	}
}

func TestHealthcheckOfNobody(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := lis.Addr().String()
	require.NoError(t, lis.Close())
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitFailure, run([]string{"healthcheck", "--listen", address}, nil, &stdout, &stderr))
	requireOneLine(t, stderr.String())
	require.Contains(t, stderr.String(), "healthcheck "+address)
}

func TestOperatorsCommandsOfNobody(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := lis.Addr().String()
	require.NoError(t, lis.Close())
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitFailure, run([]string{"queues", "list"}, []string{"QUEUEBOX_SERVER=" + address}, &stdout, &stderr))
	requireOneLine(t, stderr.String())
	require.Contains(t, stderr.String(), "no server answers at "+address)
	require.Contains(t, stderr.String(), "name another by --server HOST:PORT or the variable QUEUEBOX_SERVER")
	require.Empty(t, stdout.String())
}

// The variables of a server and of its operator are set on the same machine, in a container
// above all, and neither minds those of the other.
func TestServerAndOperatorShareAnEnvironment(t *testing.T) {
	t.Chdir(t.TempDir())
	var stdout, stderr bytes.Buffer
	require.Zero(t, run([]string{"migrate"}, []string{"QUEUEBOX_SERVER=127.0.0.1:1", "QUEUEBOX_SERVER_TLS=true"}, &stdout, &stderr), stderr.String())
	stderr.Reset()
	// The file of the server is none of the operator's business, not even a broken one.
	require.Equal(t, exitFailure, run([]string{"queues", "list"}, []string{"QUEUEBOX_LISTEN=:1", "QUEUEBOX_CONFIG=/nowhere", "QUEUEBOX_SERVER=127.0.0.1:1"}, &stdout, &stderr))
	require.Contains(t, stderr.String(), "no server answers at 127.0.0.1:1")
}

func TestCompletionComplainsOfNothing(t *testing.T) {
	for _, environ := range [][]string{
		{"QUEUEBOX_SERVER=127.0.0.1:1"}, {"QUEUEBOX_SERVER=127.0.0.1:1", "QUEUEBOX_NONSENSE=1"}, {"QUEUEBOX_SERVER=nonsense"},
	} {
		var stdout, stderr bytes.Buffer
		require.Zero(t, run([]string{"__complete", "queues", "get", ""}, environ, &stdout, &stderr))
		require.Empty(t, stderr.String()+stdout.String())
		require.Zero(t, run([]string{"__complete", "--max-wa"}, environ, &stdout, &stderr))
		require.Contains(t, stdout.String(), "--max-wait\t", "the options of serve, which is the default")
		require.Contains(t, stdout.String(), "--max-waiters\t")
	}
}

func TestDialAddress(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:7420": "127.0.0.1:7420", "0.0.0.0:1": "127.0.0.1:1", ":1": "127.0.0.1:1", "[::]:1": "[::1]:1", "example.org:1": "example.org:1",
	} {
		got, err := dialAddress(listen)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestStorageErrorsSayWhatToDoAndNoSecret(t *testing.T) {
	const postgres = "postgres://u:hunter2@db/q"
	tests := []struct {
		url  string
		err  error
		want string
	}{
		{postgres, fmt.Errorf("connect %s: refused: %w", postgres, storage.ErrUnavailable), "check that the database runs and that --storage names it"},
		{"mysql://u:hunter2@db/q", fmt.Errorf("%w: %w", storage.ErrUnavailable, denied{}), "denied; do this"},
		{"mysql://u:hunter2@db/q", fmt.Errorf("%w: %w", storage.ErrSchema, denied{}), "denied; do this"},
		{postgres, fmt.Errorf("fsync is off: %w", storage.ErrUnsafeDurability), "pass --allow-unsafe-durability"},
		{postgres, fmt.Errorf("version 1, want 2: %w", storage.ErrSchema), "run: queuebox-server migrate"},
		{"sqlite://other.db", fmt.Errorf("no tables of ours: %w", storage.ErrSchema), "give another file"},
		{"sqlite:///nowhere/q.db", errors.New("unable to open database file"), "check that the directory /nowhere exists"},
	}
	for _, tt := range tests {
		err := explainStorage(tt.url, serveSchemaHint(tt.url, tt.err), tt.err)
		require.ErrorIs(t, err, tt.err)
		require.ErrorContains(t, err, tt.want)
		require.NotContains(t, err.Error(), "hunter2")
		if errors.As(tt.err, new(denied)) {
			require.True(t, strings.HasSuffix(err.Error(), tt.want), "no other advice follows: %v", err)
		}
	}
}

// denied is an error of a store that says by itself what to do.
type denied struct{}

func (denied) Error() string  { return "denied; do this" }
func (denied) Advice() string { return "do this" }

func TestAWrongURLIsExitCode2AndSaysHowToWriteOne(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--storage=foo.db"}, "for the SQLite file write sqlite://foo.db\n"},
		{[]string{"migrate", "--storage=foo.db"}, "for the SQLite file write sqlite://foo.db\n"},
		{[]string{"--storage=sqlite://a%zz.db"}, "is written %25"},
		{[]string{"--storage=postgres://u:hunter2%@db/q"}, "special characters of a name or a password are percent-encoded"},
		{[]string{"--storage=oracle://u:hunter2@db/q"}, "is not one of sqlite, postgres"},
		{[]string{"--listen-url=oracle://u:hunter2@db/q"}, "listen-url"},
		{[]string{"--storage", "--insecure"}, "--storage needs a value (see queuebox-server serve --help)"},
		{[]string{"--listen=127.0.0.1:99999"}, "want a port of 0 to 65535"},
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, exitUsage, run(tt.args, nil, &stdout, &stderr), stderr.String())
		requireOneLine(t, stderr.String())
		require.Contains(t, stderr.String(), tt.want)
		require.NotContains(t, stderr.String(), "hunter2")
	}
}

func TestHelpListsWhatErrorsSendTo(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--help"}, "Options of a command: queuebox-server serve --help"},
		{[]string{"help"}, "Options of a command: queuebox-server serve --help"},
		{[]string{"help", "serve"}, "--max-wait=DURATION"},
		{[]string{"serve", "--help"}, "--max-wait=DURATION"},
		{[]string{"serve", "--help"}, "(default 127.0.0.1:7420, $QUEUEBOX_LISTEN)"},
		{[]string{"help", "migrate"}, "--storage=URL"},
	} {
		var stdout, stderr bytes.Buffer
		require.Zero(t, run(tt.args, nil, &stdout, &stderr))
		require.Contains(t, strings.Join(strings.Fields(stdout.String()), " "), tt.want) // lines break anywhere
		require.Empty(t, stderr.String())
	}
}

// The table of docs/operations.md is what an operator searches for the message that he got.
func TestTheMessagesOfTheOperationsPageAreReal(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	const url = "postgres://u@db/q"
	told := []string{
		explainListen("listen", "127.0.0.1:1", syscall.EADDRINUSE).Error(),
		explainStorage("sqlite://q.db", "", storage.ErrUnavailable).Error(),
		explainStorage(url, "", storage.ErrUnavailable).Error(),
		explainStorage(url, serveSchemaHint(url, backends.ErrNoSchema), backends.ErrNoSchema).Error(),
		explainStorage(url, serveSchemaHint(url, storage.ErrSchema), storage.ErrSchema).Error(),
		explainStorage(url, "", storage.ErrUnsafeDurability).Error(),
	}
	for _, args := range [][]string{{"--listen=:1"}, {"--stroage=x"}, {"--storage"}, {"--max-wait=1h"}, {"--storage=q.db"}} {
		var out, text bytes.Buffer
		require.Equal(t, exitUsage, run(args, nil, &out, &text))
		told = append(told, text.String())
	}
	var out, text bytes.Buffer
	require.Equal(t, exitUsage, run(nil, []string{"QUEUEBOX_STROAGE=x"}, &out, &text))
	told = append(told, text.String())

	_, table, _ := strings.Cut(string(page), "| message | what to do |")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(table, -1)
	require.Len(t, rows, 11, "a new row needs its message here")
	for _, row := range rows {
		parts := strings.Split(row[1], "…")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(strings.TrimSpace(parts[i]))
		}
		pattern := regexp.MustCompile(strings.Join(parts, ".*"))
		require.True(t, slices.ContainsFunc(told, pattern.MatchString), "no message is like %q", row[1])
	}
}

func TestListenErrorsSayWhatToDo(t *testing.T) {
	require.ErrorContains(t, explainListen("listen", "127.0.0.1:80", syscall.EACCES), "give one above 1023 by --listen")
	require.ErrorContains(t, explainListen("metrics-listen", "127.0.0.1:1", syscall.EADDRINUSE), "give another --metrics-listen")
	other := errors.New("no such host")
	require.ErrorIs(t, explainListen("listen", "nowhere:1", other), other)
}

func TestComplaintIsOneLine(t *testing.T) {
	var stderr bytes.Buffer
	require.Equal(t, 1, complain(&stderr, errors.New("connect:\n\tfirst\r\n\tsecond"), 1))
	require.Equal(t, "queuebox-server: connect: first second\n", stderr.String())
}

func TestStartBlock(t *testing.T) {
	b := &banner{
		version:      "v1.2.3",
		storage:      "postgres://u:***@db/q",
		capabilities: storage.Capabilities{Name: "postgres", Version: "17.2", Durability: "survives a crash of the machine"},
		grpc:         "127.0.0.1:7420",
		metrics:      "127.0.0.1:7421",
		settings:     []config.Setting{{Name: "listen", Value: "127.0.0.1:7420", Source: config.FromFlag}, {Name: "max-wait", Value: "3s", Source: config.FromEnv}},
	}
	var text bytes.Buffer
	require.NoError(t, b.write(&text, slog.New(slog.DiscardHandler), "text"))
	require.Equal(t, `QueueBox v1.2.3
  storage     postgres://u:***@db/q
  database    postgres 17.2
  durability  survives a crash of the machine
  gRPC        127.0.0.1:7420  (plain text, loopback only)
  metrics     http://127.0.0.1:7421/metrics, /livez, /readyz
  settings    max-wait=3s (environment)
  try         grpcurl -plaintext -d '{"queue":"hello","payload":"aGVsbG8="}' 127.0.0.1:7420 queuebox.v1.ProducerService/Enqueue
`, text.String())

	b.insecure, b.metrics, b.settings = true, "", nil
	text.Reset()
	require.NoError(t, b.write(&text, slog.New(slog.DiscardHandler), "text"))
	require.Contains(t, text.String(), "NO authentication")
	require.Contains(t, text.String(), "metrics     off\n")
	require.NotContains(t, text.String(), "settings")

	var record bytes.Buffer
	logger := newLogger(&record, config.LogOptions{LogLevel: "info", LogFormat: "json"})
	require.NoError(t, b.write(failingWriter{}, logger, "json"), "a log in JSON gets no block of text")
	var fields map[string]any
	require.NoError(t, json.Unmarshal(record.Bytes(), &fields))
	require.Equal(t, "started", fields["msg"])
	require.Equal(t, "postgres://u:***@db/q", fields["storage"])
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestDefaultsAreThoseOfTheServer keeps the table of options and the defaults of package
// server, which programs that embed it see, from drifting apart.
func TestDefaultsAreThoseOfTheServer(t *testing.T) {
	var c serveCmd
	parser, err := kong.New(&c)
	require.NoError(t, err)
	_, err = parser.Parse(nil)
	require.NoError(t, err)
	want := server.DefaultConfig()
	got := c.serverConfig(nil, want.Logger)
	require.NotNil(t, got.Registry)
	got.Registry, got.Version = want.Registry, want.Version
	require.Equal(t, want, got)
}

func TestLogLevel(t *testing.T) {
	var text bytes.Buffer
	logger := newLogger(&text, config.LogOptions{LogLevel: "warn", LogFormat: "text"})
	logger.Info("quiet")
	logger.Warn("loud")
	require.NotContains(t, text.String(), "quiet")
	require.Contains(t, text.String(), "loud")
}
