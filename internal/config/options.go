// Package config reads the settings of queuebox-server. The struct [Options] is the
// one table of options: from its tags come the flag, the QUEUEBOX_ variable, the key
// of the configuration file, the default, the help text and docs/configuration.md.
// A flag wins over a variable, a variable over the file, the file over the default.
//
// A stranger uses [NewLoader] as a kong resolver for a command that embeds Options,
// then calls [Loader.Finish].
package config

import "time"

// EnvPrefix starts the name of every variable that belongs to the server.
const EnvPrefix = "QUEUEBOX_"

// testEnvPrefix starts the variables that the tests of this repository use. The server
// ignores them, so that it can be started by a test.
const testEnvPrefix = EnvPrefix + "TEST_"

// Options are all settings of the server. The tag "secret" marks a value that is never
// printed; a secret has a companion with the suffix -file that names a file to read it
// from.
type Options struct {
	ConfigOption
	StorageOptions
	ConnectionOptions
	ListenOptions
	ServerOptions
	QueueOptions
	LogOptions
}

// ConfigOption names the configuration file. It is the one option that the file itself
// cannot hold.
type ConfigOption struct {
	Config string `placeholder:"PATH" group:"General" help:"YAML file with settings. Its keys are the flag names without the dashes in front."`
}

// StorageOptions say where messages are kept. The migrate command takes these and no
// other options of the database.
type StorageOptions struct {
	Storage               string `default:"sqlite://queuebox.db" placeholder:"URL" group:"Storage" secret:"" help:"Database: sqlite://relative/path, sqlite:///absolute/path, postgres://user:password@host/database, mysql://user:password@host/database (MariaDB too) or sqlserver://user:password@host?database=name. Flags can be seen in the list of processes, so give a password by the variable or by --storage-file."`
	StorageFile           string `placeholder:"PATH" group:"Storage" help:"File that holds the value of --storage."`
	AllowUnsafeDurability bool   `negatable:"" group:"Storage" help:"Start on a database that may lose messages that it has acknowledged, such as PostgreSQL with fsync off or MariaDB with innodb_flush_log_at_trx_commit 2."`
}

// ConnectionOptions shape the connections of a running server to its database.
type ConnectionOptions struct {
	ListenURL     string `name:"listen-url" placeholder:"URL" group:"Storage" secret:"" help:"PostgreSQL only: URL of the connection that waits for notifications, where --storage goes through a pooler in transaction mode, which loses them. Empty takes --storage."`
	ListenURLFile string `name:"listen-url-file" placeholder:"PATH" group:"Storage" help:"File that holds the value of --listen-url."`
	MaxConns      int    `default:"0" placeholder:"N" group:"Storage" help:"Most connections that this server opens to the database. 0 lets the backend choose."`
	AutoMigrate   bool   `negatable:"" group:"Storage" help:"Bring the schema of the database up to date at start. Without it a database with another schema stops the start and 'queuebox-server migrate' is to be run; SQLite always migrates itself."`
}

// ListenOptions say where the server is reached.
type ListenOptions struct {
	AddressOption
	MetricsListen string `default:"127.0.0.1:7421" placeholder:"HOST:PORT" group:"Network" help:"Address of the HTTP port with /metrics, /livez and /readyz. Empty or 'off' opens none. Other than loopback addresses are allowed with a warning: the page names queues, and never shows a message."`
	DebugListen   string `placeholder:"HOST:PORT" group:"Network" help:"Address of an HTTP port with profiles of the process under /debug/pprof/, for 'go tool pprof'. Loopback addresses only. Empty opens none."`
	Insecure      bool   `negatable:"" group:"Network" help:"Serve gRPC without encryption and without authentication on an address that others can reach. Only for a network that you trust whole."`
}

// AddressOption is the address of the service, which the healthcheck command needs too.
type AddressOption struct {
	Listen string `default:"127.0.0.1:7420" placeholder:"HOST:PORT" group:"Network" help:"Address of the gRPC service. Anything but a loopback address needs --insecure."`
}

// ServerOptions shape the work of the server.
type ServerOptions struct {
	MaxConnectionAge time.Duration `default:"30m" placeholder:"DURATION" group:"Network" help:"Close a connection gracefully after about this time, so that clients spread over replicas again. 0 never does."`
	DrainTimeout     time.Duration `default:"20s" placeholder:"DURATION" group:"Server" help:"How long a stop waits for running calls. A second signal ends the wait."`
	MaxWait          time.Duration `default:"20s" placeholder:"DURATION" group:"Server" help:"Longest time that a Claim may wait for messages, at most 20s; a longer wish is cut to it."`
	PollInterval     time.Duration `default:"1s" placeholder:"DURATION" group:"Server" help:"Longest time between two looks into a queue that somebody waits for, where no notification comes, 10ms to 1s."`
	MaxWaiters       int           `default:"10000" placeholder:"N" group:"Server" help:"Most Claim calls that wait at the same time."`
	MaxStreamBytes   Bytes         `default:"256MiB" placeholder:"SIZE" group:"Server" help:"Memory for the frames of all Work and Heartbeat streams that are not answered yet, and for deliveries that are not sent. From half of it on streams are not read until there is room, beyond it larger frames are refused and their streams end; half of it is for one connection at most. What is being received does not count, see operations.md."`
	JoinCalls        bool          `default:"true" negatable:"" group:"Server" help:"Join concurrent calls that enqueue, settle or renew, and those that claim from one queue, into one statement of the database. Without it each call is a transaction of its own, several times slower with many callers; for comparisons, see docs/architecture.md. Clients that join settlements themselves, as client/go does, go on."`
	MaxPayloadBytes  Bytes         `default:"1MiB" placeholder:"SIZE" group:"Server" help:"Largest payload of one message, at most 32MiB."`
	CreateQueues     bool          `default:"true" negatable:"" group:"Queues" help:"Create a queue at its first Enqueue. Without it a queue is made by CreateQueue alone."`
	MaxQueues        int           `default:"10000" placeholder:"N" group:"Queues" help:"Most queues that may exist. 0 sets no limit."`
	QueueLabels      int           `default:"100" placeholder:"N" group:"Queues" help:"Number of queues that get a metric label of their own; the others share the label '(other)'."`
}

// QueueOptions are the settings of a queue that is made without its own.
type QueueOptions struct {
	QueueLease              time.Duration `default:"30s" placeholder:"DURATION" group:"Defaults of new queues" help:"Lease of a claim that names none."`
	QueueMinLease           time.Duration `default:"1s" placeholder:"DURATION" group:"Defaults of new queues" help:"Shortest lease, at least 1ms."`
	QueueMaxLease           time.Duration `default:"12h" placeholder:"DURATION" group:"Defaults of new queues" help:"Longest lease, at most 168h."`
	QueueMaxAttempts        int           `default:"20" placeholder:"N" group:"Defaults of new queues" help:"Attempts after which a message is dead, in a queue that its first Enqueue makes; CreateQueue says it itself. 0 sets no limit."`
	QueueRetryMin           time.Duration `default:"1s" placeholder:"DURATION" group:"Defaults of new queues" help:"Delay of the first retry."`
	QueueRetryMax           time.Duration `default:"1h" placeholder:"DURATION" group:"Defaults of new queues" help:"Longest delay of a retry."`
	QueueRetryMultiplier    float64       `default:"2" placeholder:"FACTOR" group:"Defaults of new queues" help:"Factor from one retry delay to the next, 1 to 10."`
	QueueRetryJitter        float64       `default:"0.2" placeholder:"FRACTION" group:"Defaults of new queues" help:"Part of a retry delay that is drawn at random, 0 to 1."`
	QueueCompletedRetention time.Duration `default:"1h" placeholder:"DURATION" group:"Defaults of new queues" help:"How long a completed message is kept, at least 10m. After it the message is hidden and its idempotency key is free; docs/operations.md says when the row is deleted."`
	QueueDeadRetention      time.Duration `default:"0s" placeholder:"DURATION" group:"Defaults of new queues" help:"How long a dead message is kept, in the sense of --queue-completed-retention, in a queue that its first Enqueue makes; CreateQueue says it itself. 0 keeps it for ever."`
}

// ClientOptions say how the commands of an operator reach a server that runs. The server has
// no use for them, so they are no part of Options and no keys of its file.
type ClientOptions struct {
	Server          string `default:"127.0.0.1:7420" placeholder:"HOST:PORT" group:"Connection" help:"Address of the gRPC service of the server."`
	ServerTLS       bool   `name:"server-tls" negatable:"" group:"Connection" help:"Encrypt the connection, for a proxy with TLS in front of the server. The certificates that the system trusts are trusted."`
	ServerCA        string `name:"server-ca" placeholder:"PATH" group:"Connection" help:"PEM file of the certificates to trust instead. Means --server-tls."`
	ServerPlaintext bool   `negatable:"" group:"Connection" help:"Speak without encryption to another machine: everybody on the way can read and change what is sent."`
}

// LogOptions shape the log, which goes to standard error.
type LogOptions struct {
	LogLevel  string `default:"info" enum:"debug,info,warn,error" placeholder:"LEVEL" group:"Log" help:"Least level that is logged: debug, info, warn or error."`
	LogFormat string `default:"text" enum:"text,json" placeholder:"FORMAT" group:"Log" help:"Format of the log: text or json."`
}
