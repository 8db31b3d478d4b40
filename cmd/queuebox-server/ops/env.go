package ops

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/mattn/go-isatty"
)

// Env is what commands run in.
type Env struct {
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// Ask: there is a person who can answer a question, on Stdin and Stderr.
	Ask bool
	// Bar: Stderr is a terminal, where a line can be drawn over.
	Bar bool
	// Piped: Stdin is no terminal, so that what it holds may be the payload.
	Piped bool
	// Pause is the first wait of a command that tries again; it grows twofold each time. Zero
	// takes 50 ms.
	Pause time.Duration
	// Begin returns the context of a command. It ends when the command is interrupted.
	Begin func() (context.Context, context.CancelFunc)
}

// NewEnv is the environment of a process.
func NewEnv(stdin *os.File, stdout, stderr io.Writer) *Env {
	in, errs := terminal(stdin), terminal(stderr)
	return &Env{Stdin: stdin, Stdout: stdout, Stderr: stderr, Ask: in && errs, Bar: errs, Piped: !in, Begin: untilSignal}
}

func terminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// untilSignal returns a context that ends with the first signal. A second signal has its
// usual effect and ends the process.
func untilSignal() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// noteInline writes a question to standard error.
func (e *Env) noteInline(format string, args ...any) {
	_, _ = fmt.Fprintf(e.Stderr, format, args...)
}

// pause waits before the next try, but not for somebody who wants to stop.
func (e *Env) pause(ctx context.Context, try int) {
	first := e.Pause
	if first == 0 {
		first = 50 * time.Millisecond
	}
	select {
	case <-ctx.Done():
	case <-time.After(first << try):
	}
}
