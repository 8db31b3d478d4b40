// Command queuebox-bench measures QueueBox and other queues on the same work, in turns, on one
// private PostgreSQL. docs/benchmarks.md says what it does and how to read it; `make bench-peers`
// runs it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/queuebox/queuebox/cmd/queuebox-bench/drive"
)

type commands struct {
	Run    runCmd    `cmd:"" default:"withargs" help:"Run the benchmark (the default)."`
	Report reportCmd `cmd:"" help:"Show a JSON report again: as table, and in Markdown and the charts where they are named."`
	Drive  driveCmd  `cmd:"" hidden:"" help:"Be the client of one window."`
	Echo   echoCmd   `cmd:"" hidden:"" help:"Be a gRPC server that answers at once."`
}

func main() {
	// SIGHUP too: a terminal that is closed must leave nothing behind.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	var c commands
	parsed := kong.Parse(&c,
		kong.Name("queuebox-bench"),
		kong.Description("Measures QueueBox and other queues on the same work, in turns, on one private PostgreSQL."),
		kong.BindTo(ctx, (*context.Context)(nil)))
	err := parsed.Run()
	if ctx.Err() != nil && err != nil {
		err = errors.New("interrupted; what was measured before is lost but for the measures that were done")
	}
	parsed.FatalIfErrorf(err)
}

// driveCmd is what this program starts of itself for each window.
type driveCmd struct {
	Spec string `arg:"" help:"What to do, as JSON."`
}

func (d *driveCmd) Run(ctx context.Context) error {
	var s drive.Spec
	if err := json.Unmarshal([]byte(d.Spec), &s); err != nil {
		return fmt.Errorf("spec: %w", err)
	}
	return drive.Run(ctx, s, os.Stdout)
}

type echoCmd struct {
	Listen  string `required:"" help:"Address."`
	Payload int    `help:"Bytes of the message that a claim gets." default:"100"`
}

func (e *echoCmd) Run(ctx context.Context) error { return drive.ServeEcho(ctx, e.Listen, e.Payload) }
