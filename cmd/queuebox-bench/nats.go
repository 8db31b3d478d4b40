package main

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/queuebox/queuebox/cmd/queuebox-bench/host"
)

// natsSystem is nats-server with JetStream on files.
type natsSystem struct{ session *session }

func (*natsSystem) missing(context.Context) error {
	if _, err := host.Program("nats-server"); err != nil {
		return fmt.Errorf("%w: Debian has it as apt-get install nats-server", err)
	}
	return nil
}

func (*natsSystem) version(ctx context.Context) string {
	path, err := host.Program("nats-server")
	if err != nil {
		return ""
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output() //nolint:gosec // the program that was found
	if err != nil {
		return "nats-server"
	}
	return strings.Replace(strings.TrimSpace(string(out)), ": v", " ", 1) + ", " + moduleVersion("github.com/nats-io/nats.go")
}

func (*natsSystem) prepare(context.Context, *instance) error { return nil }

func (n *natsSystem) start(ctx context.Context, i *instance) error {
	path, err := host.Program("nats-server")
	if err != nil {
		return err
	}
	address, err := host.FreeAddress(ctx)
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(address)
	store := filepath.Join(n.session.dir, "nats-"+i.database)
	//nolint:gosec,noctx // the program that was found; it ends with stop
	i.process, err = host.Start("nats-server", exec.Command(path, "--addr", "127.0.0.1", "--port", port, "--jetstream", "--store_dir", store))
	if err != nil {
		return err
	}
	i.address = "nats://" + address
	return i.process.WaitUntil(ctx, func(ctx context.Context) bool { return host.Answers(ctx, address) })
}

func (*natsSystem) stop(i *instance) {
	i.process.Stop(syscall.SIGINT, 10*time.Second)
	i.process = nil
}
