package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/queuebox/queuebox/cmd/queuebox-bench/drive"
	"github.com/queuebox/queuebox/cmd/queuebox-bench/host"
)

// instance is what one contender runs on: a database of its own, and a server where it has one.
type instance struct {
	// database is empty where the contender uses none.
	database string
	address  string
	process  *host.Process
}

// serverID is the process id of the server, 0 where there is none.
func (i *instance) serverID() int {
	if i.process == nil {
		return 0
	}
	return i.process.ID()
}

// system is a kind of instance.
type system interface {
	// missing says what would have to be installed; nil where everything is there.
	missing(ctx context.Context) error
	version(ctx context.Context) string
	// prepare makes database and schema, once.
	prepare(ctx context.Context, i *instance) error
	// start starts the server before a window, which stops after it: an idle server of one
	// contender must not stand in another's way.
	start(ctx context.Context, i *instance) error
	stop(i *instance)
}

// foreign is a system whose client is a program of its own.
type foreign interface{ command() []string }

// systems are all kinds, by name.
func (s *session) systems() map[string]system {
	node := s.node
	return map[string]system{
		"queuebox": &queueboxSystem{session: s},
		// The same server, each call a transaction of its own.
		"queuebox-unjoined": &queueboxSystem{session: s, extra: []string{"--no-join-calls"}},
		"echo":              &echoSystem{session: s},
		"nats":              &natsSystem{session: s},
		"graphile":          &nodeSystem{peers: node, program: "graphile.mjs", npmName: "graphile-worker"},
		"pgboss":            &nodeSystem{peers: node, program: "pgboss.mjs", npmName: "pg-boss"},
		"river":             &schemaSystem{session: s, named: moduleVersion("github.com/riverqueue/river"), schema: drive.PrepareRiver},
		"table":             &schemaSystem{session: s, named: "raw SQL after pgmq", schema: drive.PrepareTable},
	}
}

// queueboxSystem is the server of this tree on a database of its own.
type queueboxSystem struct {
	session *session
	extra   []string
}

func (*queueboxSystem) missing(context.Context) error { return nil }

func (q *queueboxSystem) version(context.Context) string {
	return "queuebox-server " + q.session.revision
}

func (q *queueboxSystem) prepare(ctx context.Context, i *instance) error {
	return q.session.postgres.CreateDatabase(ctx, i.database)
}

func (q *queueboxSystem) start(ctx context.Context, i *instance) error {
	address, err := host.FreeAddress(ctx)
	if err != nil {
		return err
	}
	arguments := append([]string{
		"serve", "--storage=" + q.session.postgres.URL(i.database), "--auto-migrate", "--listen=" + address,
		"--metrics-listen=off", "--log-level=error", "--drain-timeout=1s",
	}, q.extra...)
	//nolint:gosec,noctx // our own binary; it ends with stop
	i.process, err = host.Start("queuebox-server", exec.Command(q.session.server, arguments...))
	if err != nil {
		return err
	}
	i.address = address
	return i.process.WaitUntil(ctx, func(ctx context.Context) bool { return host.Answers(ctx, address) })
}

func (*queueboxSystem) stop(i *instance) {
	i.process.Stop(syscall.SIGTERM, 5*time.Second)
	i.process = nil
}

// echoSystem is a gRPC server without a database.
type echoSystem struct{ session *session }

func (*echoSystem) missing(context.Context) error            { return nil }
func (*echoSystem) version(context.Context) string           { return moduleVersion("google.golang.org/grpc") }
func (*echoSystem) prepare(context.Context, *instance) error { return nil }

func (e *echoSystem) start(ctx context.Context, i *instance) error {
	address, err := host.FreeAddress(ctx)
	if err != nil {
		return err
	}
	//nolint:gosec,noctx // this very program
	i.process, err = host.Start("echo server", exec.Command(e.session.self, "echo", "--listen="+address, "--payload="+strconv.Itoa(e.session.payload)))
	if err != nil {
		return err
	}
	i.address = address
	return i.process.WaitUntil(ctx, func(ctx context.Context) bool { return host.Answers(ctx, address) })
}

func (*echoSystem) stop(i *instance) {
	i.process.Stop(syscall.SIGTERM, 5*time.Second)
	i.process = nil
}

// schemaSystem is a queue that is only a schema: its clients speak to the database.
type schemaSystem struct {
	session *session
	named   string
	schema  func(ctx context.Context, url string) error
}

func (*schemaSystem) missing(context.Context) error    { return nil }
func (s *schemaSystem) version(context.Context) string { return s.named }

func (s *schemaSystem) prepare(ctx context.Context, i *instance) error {
	if err := s.session.postgres.CreateDatabase(ctx, i.database); err != nil {
		return err
	}
	return s.schema(ctx, s.session.postgres.URL(i.database))
}

func (*schemaSystem) start(context.Context, *instance) error { return nil }
func (*schemaSystem) stop(*instance)                         {}

// buildServer builds the server of the tree that this program belongs to.
func buildServer(ctx context.Context, source, dir string) (string, error) {
	path := dir + "/queuebox-server"
	//nolint:gosec // the go command, on paths of ours
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", path, "./cmd/queuebox-server")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build of the server in %s: %w\n%s", source, err, out)
	}
	return path, nil
}
