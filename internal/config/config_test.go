package config_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/internal/config"
)

// load parses as the serve command does.
func load(t *testing.T, args, environ []string) (*config.Options, *config.Loader, error) {
	t.Helper()
	var options config.Options
	loader := config.NewLoader(environ)
	parser, err := kong.New(&options, kong.Resolvers(loader), kong.Exit(func(int) { t.Error("parser exits") }))
	require.NoError(t, err)
	if _, err := parser.Parse(args); err != nil {
		return nil, nil, err
	}
	if err := loader.Finish(&options.StorageOptions, &options.ConnectionOptions); err != nil {
		return nil, nil, err
	}
	return &options, loader, loader.Check(&options)
}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "queuebox.yaml")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestDefaults(t *testing.T) {
	o, loader, err := load(t, nil, nil)
	require.NoError(t, err)
	require.Equal(t, "sqlite://queuebox.db", o.Storage)
	require.Equal(t, "127.0.0.1:7420", o.Listen)
	require.Equal(t, "127.0.0.1:7421", o.MetricsListen)
	require.True(t, o.CreateQueues)
	require.False(t, o.Insecure)
	require.False(t, o.AutoMigrate)
	require.Equal(t, config.Bytes(1<<20), o.MaxPayloadBytes)
	require.Equal(t, 20*time.Second, o.MaxWait)
	require.Equal(t, 30*time.Second, o.QueueLease)
	require.Equal(t, time.Hour, o.QueueCompletedRetention)
	require.Empty(t, loader.Settings(o), "nothing was set")
}

func TestPrecedence(t *testing.T) {
	file := write(t, "max-wait: 5s\nmax-waiters: 7\npoll-interval: 200ms\ncreate-queues: false\nmetrics-listen: ''\n")
	o, loader, err := load(t,
		[]string{"--config", file, "--max-wait=3s"},
		[]string{"QUEUEBOX_MAX_WAIT=4s", "QUEUEBOX_MAX_WAITERS=8", "QUEUEBOX_TEST_POSTGRES=ignored", "PATH=/bin"})
	require.NoError(t, err)
	require.Equal(t, 3*time.Second, o.MaxWait, "the flag wins over variable and file")
	require.Equal(t, 8, o.MaxWaiters, "the variable wins over the file")
	require.Equal(t, 200*time.Millisecond, o.PollInterval, "the file wins over the default")
	require.False(t, o.CreateQueues)
	require.True(t, o.MetricsOff(), "an empty value in the file is a value")
	require.Equal(t, 20*time.Second, o.DrainTimeout, "the default stays where nobody set one")

	require.Equal(t, []config.Setting{
		{Name: "config", Value: file, Source: config.FromFlag},
		{Name: "metrics-listen", Value: "", Source: config.FromFile},
		{Name: "max-wait", Value: "3s", Source: config.FromFlag},
		{Name: "poll-interval", Value: "200ms", Source: config.FromFile},
		{Name: "max-waiters", Value: "8", Source: config.FromEnv},
		{Name: "create-queues", Value: "false", Source: config.FromFile},
	}, loader.Settings(o))
}

func TestSwitchIsTurnedOffByFlag(t *testing.T) {
	o, _, err := load(t, []string{"--no-create-queues"}, []string{"QUEUEBOX_CREATE_QUEUES=true"})
	require.NoError(t, err)
	require.False(t, o.CreateQueues)
}

func TestFileNamedByVariable(t *testing.T) {
	o, _, err := load(t, nil, []string{"QUEUEBOX_CONFIG=" + write(t, "max-wait: 5s")})
	require.NoError(t, err)
	require.Equal(t, 5*time.Second, o.MaxWait)
}

// TestEveryOptionInEveryWay sets each option by its variable and by its key, so that no
// row of the table can be without effect.
func TestEveryOptionInEveryWay(t *testing.T) {
	secret := write(t, "postgres://host/db\n")
	other := map[string]string{
		"config": write(t, ""), "storage": "sqlite://other.db", "storage-file": secret, "listen-url": "postgres://h/d",
		"listen-url-file": secret, "max-conns": "3", "auto-migrate": "true", "allow-unsafe-durability": "true",
		"listen": "127.0.0.1:1", "metrics-listen": "off", "debug-listen": "127.0.0.1:2", "insecure": "true", "max-connection-age": "1m", "drain-timeout": "1s",
		"max-wait": "1s", "poll-interval": "20ms", "max-waiters": "1", "max-stream-bytes": "16MiB", "max-payload-bytes": "2KiB", "create-queues": "false", "join-calls": "false",
		"max-queues": "1", "queue-labels": "1", "queue-lease": "2s", "queue-min-lease": "2s", "queue-max-lease": "1m",
		"queue-max-attempts": "1", "queue-retry-min": "2s", "queue-retry-max": "2s", "queue-retry-multiplier": "3",
		"queue-retry-jitter": "0.5", "queue-completed-retention": "10m", "queue-dead-retention": "1h", "log-level": "debug",
		"log-format": "json",
	}
	for _, option := range config.Table() {
		t.Run(option.Flag, func(t *testing.T) {
			value, ok := other[option.Flag]
			require.True(t, ok, "give this test a value for the new option")
			delete(other, option.Flag)

			byVariable, loader, err := load(t, nil, []string{option.Env + "=" + value})
			require.NoError(t, err)
			require.NotEmpty(t, loader.Settings(byVariable))
			byFlag, _, err := load(t, []string{"--" + option.Flag + "=" + value}, nil)
			require.NoError(t, err)
			require.Equal(t, byFlag, byVariable)
			untouched, _, err := load(t, nil, nil)
			require.NoError(t, err)
			require.NotEqual(t, untouched, byVariable)
			if option.InFile {
				file := write(t, option.Flag+": "+value)
				byFile, _, err := load(t, []string{"--config", file}, nil)
				require.NoError(t, err)
				byFile.Config = ""
				require.Equal(t, byVariable, byFile)
			}
		})
	}
	require.Empty(t, other, "no such options")
}

func TestUnknownNamesAndBadValues(t *testing.T) {
	tests := []struct {
		name    string
		args    []string
		environ []string
		file    string
		want    string
	}{
		{name: "flag", args: []string{"--max-wiat=3s"}, want: `unknown flag --max-wiat, did you mean "--max-wait"?`},
		{name: "variable", environ: []string{"QUEUEBOX_MAX_WIAT=3s"}, want: `unknown environment variable QUEUEBOX_MAX_WIAT; the nearest known one is QUEUEBOX_MAX_WAIT$`},
		{name: "variable in lower case", environ: []string{"QUEUEBOX_storage=x"}, want: `QUEUEBOX_storage; the nearest known one is QUEUEBOX_STORAGE$`},
		{name: "key", file: "max-wiat: 3s", want: `queuebox.yaml: unknown key "max-wiat"; the nearest known one is "max-wait"$`},
		{name: "key with underscores", file: "max_waiters: 3", want: `unknown key "max_waiters"; the nearest known one is "max-waiters"$`},
		{name: "key that is nested", file: "storage:\n  url: x", want: `line 2: storage: want a plain value`},
		{name: "key twice", file: "max-wait: 3s\nmax-wait: 4s", want: `max-wait.*(twice|already defined)`},
		{name: "key without a value", file: "max-wait:", want: `max-wait has no value`},
		{name: "file that names a file", file: "config: other.yaml", want: `cannot name another`},
		{name: "file of two documents", file: "max-wait: 3s\n---\nmax-wait: 3s", want: `more than one document`},
		{name: "file that is a list", file: "- max-wait", want: `line 1: want 'name: value' lines`},
		{name: "file that is no YAML", file: "a: [", want: `not YAML`},
		{name: "file that is not there", args: []string{"--config=/nowhere/queuebox.yaml"}, want: `configuration file: open /nowhere/queuebox.yaml`},
		{name: "value of a flag", args: []string{"--max-wait=soon"}, want: `--max-wait`},
		{name: "value of a variable", environ: []string{"QUEUEBOX_MAX_WAIT=soon"}, want: `^QUEUEBOX_MAX_WAIT: .*soon`},
		{name: "value of a key", file: "max-wait: soon", want: `^max-wait in the configuration file: .*soon`},
		{name: "value out of a set", environ: []string{"QUEUEBOX_LOG_LEVEL=loud"}, want: `QUEUEBOX_LOG_LEVEL: must be one of debug,info,warn,error, got "loud"`},
		{name: "size", args: []string{"--max-payload-bytes=1MB"}, want: `want a size such as 65536, 64KiB or 1MiB, got "1MB"`},
		{name: "size out of range", args: []string{"--max-payload-bytes=33MiB"}, want: `max-payload-bytes: want 1 to 32MiB, got 33MiB \(flag --max-payload-bytes\)$`},
		{name: "wait out of range", args: []string{"--max-wait=21s"}, want: `max-wait: want more than 0 and at most 20s, got 21s \(flag --max-wait\)$`},
		{name: "wait out of range by a variable", environ: []string{"QUEUEBOX_MAX_WAIT=21s"}, want: `got 21s \(QUEUEBOX_MAX_WAIT\)$`},
		{name: "wait out of range by a key", file: "max-wait: 21s", want: `got 21s \(key in the configuration file\)$`},
		{name: "poll too often", args: []string{"--poll-interval=1ms"}, want: `poll-interval: want`},
		{name: "lease out of range", args: []string{"--queue-lease=13h"}, want: `queue-lease: want queue-min-lease to queue-max-lease, got 13h0m0s \(flag --queue-lease\); queue-min-lease is 1s \(default\); queue-max-lease is 12h0m0s \(default\)$`},
		{name: "jitter out of range", args: []string{"--queue-retry-jitter=1.5"}, want: `queue-retry-jitter: want 0 to 1`},
		{name: "multiplier that no queue may have", args: []string{"--queue-retry-multiplier=99"}, want: `queue-retry-multiplier: want 1 to 10`},
		{name: "retention below the floor", args: []string{"--queue-completed-retention=9m"}, want: `queue-completed-retention: want 10m or more`},
		{name: "empty storage", args: []string{"--storage="}, want: `storage: is empty`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			args := tt.args
			if tt.file != "" {
				args = append(args, "--config", write(t, tt.file))
			}
			_, _, err := load(t, args, tt.environ)
			require.Error(t, err)
			require.Regexp(t, tt.want, err.Error())
		})
	}
}

func TestSecretFromFile(t *testing.T) {
	const url = "postgres://u:hunter2@db/queuebox"
	file := write(t, url+"\n")

	o, loader, err := load(t, nil, []string{"QUEUEBOX_STORAGE_FILE=" + file})
	require.NoError(t, err)
	require.Equal(t, url, o.Storage)
	for _, s := range loader.Settings(o) {
		require.NotContains(t, s.Value, "hunter2")
	}

	o, _, err = load(t, []string{"--storage-file", file}, []string{"QUEUEBOX_STORAGE=sqlite://x.db"})
	require.NoError(t, err)
	require.Equal(t, url, o.Storage, "a flag wins over a variable, whichever of the two forms it has")

	o, _, err = load(t, []string{"--storage=sqlite://x.db"}, []string{"QUEUEBOX_STORAGE_FILE=" + file})
	require.NoError(t, err)
	require.Equal(t, "sqlite://x.db", o.Storage)

	_, _, err = load(t, []string{"--storage-file", file, "--storage=sqlite://x.db"}, nil)
	require.EqualError(t, err, "both storage and storage-file are set; give one of them")

	_, _, err = load(t, []string{"--storage-file", write(t, "\n")}, nil)
	require.ErrorContains(t, err, "is empty")

	_, _, err = load(t, []string{"--listen-url-file", "/nowhere/url"}, nil)
	require.ErrorContains(t, err, "listen-url-file: open /nowhere/url")
}

func TestMaskURL(t *testing.T) {
	for raw, want := range map[string]string{
		"":                                     "",
		"sqlite://queuebox.db":                 "sqlite://queuebox.db",
		"sqlite:///var/lib/queuebox/q.db":      "sqlite:///var/lib/queuebox/q.db",
		"postgres://db/queuebox":               "postgres://db/queuebox",
		"postgres://u@db:5432/queuebox":        "postgres://u@db:5432/queuebox",
		"postgres://u:hunter2@db:5432/q?a=b":   "postgres://u:***@db:5432/q?a=b",
		"postgres://u:@db/q":                   "postgres://u:***@db/q",
		"postgres://u:p%40ss@db/q":             "postgres://u:***@db/q",
		"postgres://db/q?user=u&password=x&a":  "postgres://db/q?user=u&password=***&a",
		"postgres://db/q?sslpassword=x&a=b":    "postgres://db/q?sslpassword=***&a=b",
		"postgres://db/q?pass%77ord=x":         "postgres://db/q?pass%77ord=***",
		"postgres:u:hunter2@db/q":              "***",
		"mysql://u:hunter2@db:3306/q?tls=true": "mysql://u:***@db:3306/q?tls=true",
		"mysql://u:hunter2@tcp(db:3306)/q":     "***",
		"u:hunter2@tcp(db:3306)/q":             "***",
		"mariadb://u:p@/q?socket=/run/s":       "mariadb://u:***@/q?socket=/run/s",
		"sqlserver://u:p@db/sql?database=q":    "sqlserver://u:***@db/sql?database=q",
		"sqlserver://db?password=x&database=q": "sqlserver://db?password=***&database=q",
		"server=db;user id=u;password=hunter2": "***",
		"host=db password=hunter2":             "***",
		"postgres://u:hunter2@db:port/queubox": "***",
	} {
		require.Equal(t, want, config.MaskURL(raw), raw)
	}
}

func TestLoopbackRule(t *testing.T) {
	tests := []struct {
		args []string
		want string // "" is accepted
	}{
		{args: []string{"--listen=127.0.0.1:7420"}},
		{args: []string{"--listen=127.8.9.1:0"}},
		{args: []string{"--listen=[::1]:7420"}},
		{args: []string{"--listen=localhost:7420"}},
		{args: []string{"--listen=:7420"}, want: "no encryption and no authentication"},
		{args: []string{"--listen=0.0.0.0:7420"}, want: "pass --insecure"},
		{args: []string{"--listen=[::]:7420"}, want: "pass --insecure"},
		{args: []string{"--listen=192.0.2.1:7420"}, want: "pass --insecure"},
		{args: []string{"--listen=example.org:7420"}, want: "pass --insecure"},
		{args: []string{"--listen=localhost.example.org:7420"}, want: "pass --insecure"},
		{args: []string{"--listen=0.0.0.0:7420", "--insecure"}},
		{args: []string{"--listen=7420"}, want: `want HOST:PORT such as 127.0.0.1:7420, got "7420"`},
		{args: []string{"--metrics-listen=7421"}, want: "metrics-listen: want HOST:PORT"},
		{args: []string{"--listen=127.0.0.1:99999"}, want: `listen: want a port of 0 to 65535, got "127.0.0.1:99999"`},
		{args: []string{"--metrics-listen=127.0.0.1:http"}, want: "metrics-listen: want a port of 0 to 65535"},
		{args: []string{"--metrics-listen=0.0.0.0:7421"}},
		{args: []string{"--debug-listen=127.0.0.1:7422"}},
		{args: []string{"--debug-listen=0.0.0.0:7422"}, want: "take profiles there"},
		{args: []string{"--debug-listen=0.0.0.0:7422", "--insecure"}, want: "take profiles there"},
		{args: []string{"--debug-listen=7422"}, want: "debug-listen: want HOST:PORT"},
	}
	for _, tt := range tests {
		t.Run(tt.args[0], func(t *testing.T) {
			_, _, err := load(t, tt.args, nil)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestMetricsAddress(t *testing.T) {
	for _, tt := range []struct {
		args         []string
		off, exposed bool
	}{
		{},
		{args: []string{"--metrics-listen=off"}, off: true},
		{args: []string{"--metrics-listen="}, off: true},
		{args: []string{"--metrics-listen=0.0.0.0:7421"}, exposed: true},
		{args: []string{"--metrics-listen=0.0.0.0:7421", "--insecure"}},
	} {
		o, _, err := load(t, tt.args, nil)
		require.NoError(t, err)
		require.Equal(t, tt.off, o.MetricsOff(), tt.args)
		require.Equal(t, tt.exposed, o.MetricsExposed(), tt.args)
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]config.Bytes{"0": 0, "17": 17, "1KiB": 1024, "3 MiB": 3 << 20, "1GiB": 1 << 30} {
		var b config.Bytes
		require.NoError(t, b.UnmarshalText([]byte(text)), text)
		require.Equal(t, want, b)
		var again config.Bytes
		require.NoError(t, again.UnmarshalText([]byte(b.String())))
		require.Equal(t, b, again)
	}
	for _, text := range []string{"", "x", "-1", "1.5MiB", "KiB", "9223372036854775807KiB", "1MB"} {
		var b config.Bytes
		require.Error(t, b.UnmarshalText([]byte(text)), text)
	}
}

// TestDocsPage keeps the page and the table in step.
func TestDocsPage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "configuration.md"))
	require.NoError(t, err)
	require.Equal(t, config.Page(), string(page), "run make generate")
}

func TestTheFileHoldsNoOptionOfTheOperatorsCommands(t *testing.T) {
	_, _, err := load(t, []string{"--config", write(t, "server: 127.0.0.1:1\n")}, nil)
	require.ErrorContains(t, err, `unknown key "server"`)
	_, _, err = load(t, nil, []string{"QUEUEBOX_SERVER=127.0.0.1:1", "QUEUEBOX_SERVER_CA=/ca.pem"})
	require.NoError(t, err, "the variables of both may be set on one machine")
}

func TestHowAnotherMachineIsReached(t *testing.T) {
	for _, o := range []config.ClientOptions{
		{Server: "127.0.0.1:1"}, {Server: "localhost:1"}, {Server: "[::1]:1"}, {Server: "db:1", ServerTLS: true}, {Server: "db:1", ServerCA: "ca"}, {Server: "db:1", ServerPlaintext: true},
	} {
		require.NoError(t, o.Check())
	}
	for _, o := range []config.ClientOptions{{Server: "db:1"}, {Server: "db"}, {Server: ""}, {Server: "db:1", ServerTLS: true, ServerPlaintext: true}} {
		require.Error(t, o.Check())
	}
}

func TestOptionsOfAClientWithoutACommandLine(t *testing.T) {
	require.Equal(t, config.ClientOptions{Server: "127.0.0.1:7420"}, config.NewLoader(nil).Client())
	require.Equal(t, config.ClientOptions{Server: "db:1", ServerTLS: true}, config.NewLoader([]string{"QUEUEBOX_SERVER=db:1", "QUEUEBOX_SERVER_TLS=true"}).Client())
	require.Empty(t, config.NewLoader([]string{"QUEUEBOX_SEVER=db:1"}).Client())
}
