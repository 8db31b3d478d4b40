// Command demo shows QueueBox at work on webhook deliveries of GitHub's documented shape.
// From nothing it builds and starts a server on a SQLite file in a temporary directory, runs
// a producer twice, lets workers in Go and Python process the deliveries against a service
// that fails now and then, really stops two workers past their lease and wakes them, prints
// what became of each message, and checks all of it. It ends every program that it started.
//
//	go run ./examples/webhooks/demo
//
// It needs Go alone. Where no Python with grpcio is found it says so and goes on without;
// with QUEUEBOX_DEMO_REQUIRE_PYTHON=1 that is an error. QUEUEBOX_DEMO_PYTHON names the
// interpreter to take.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/queuebox/queuebox/examples/webhooks/internal/webhook"
	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

const (
	queue       = "webhooks"
	pausedQueue = "webhooks-paused"
	maxAttempts = 4
	// limit is the longest that the demo may take once everything is built.
	limit = 55 * time.Second
)

func main() {
	verbose := flag.Bool("v", false, "show every line of the workers")
	binary := flag.String("server", "", "path of a queuebox-server to run instead of building one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	d := &demo{verbose: *verbose, binary: *binary}
	d.restart()
	err := d.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		os.Exit(1)
	}
}

// demo is one run.
type demo struct {
	begin   time.Time
	verbose bool
	binary  string // of the server

	root   string // of the repository
	tmp    string
	python string // interpreter that can import grpc, or ""

	address    string
	admin      queueboxv1.AdminServiceClient
	downstream *downstream
	deliveries []webhook.Delivery
	report     report

	sayMu   sync.Mutex
	startMu sync.Mutex
	started []*process
}

// restart sets the clock of the progress lines to zero. It is compared with nothing else.
func (d *demo) restart() { d.begin = time.Now() } //nolint:forbidigo // see above

// say prints one line of progress.
func (d *demo) say(format string, args ...any) {
	d.sayMu.Lock()
	defer d.sayMu.Unlock()
	fmt.Fprintf(os.Stdout, "%5.1fs  %s\n", time.Since(d.begin).Seconds(), fmt.Sprintf(format, args...))
}

// title prints a heading.
func (d *demo) title(format string, args ...any) {
	d.sayMu.Lock()
	defer d.sayMu.Unlock()
	fmt.Fprintf(os.Stdout, "\n== %s\n", fmt.Sprintf(format, args...))
}

func (d *demo) run(ctx context.Context) (err error) {
	d.tmp, err = os.MkdirTemp("", "queuebox-demo-")
	if err != nil {
		return fmt.Errorf("temporary directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.tmp)) }()
	// Programs are ended in the reverse order of their start, the server last; only then is
	// the directory with its database removed.
	defer func() { err = errors.Join(err, d.stopAll()) }()

	d.title("Build")
	if err := d.build(ctx); err != nil {
		return err
	}
	d.say("built")
	d.restart()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	d.title("A server on an empty SQLite file")
	conn, err := d.serve(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	d.downstream, err = startDownstream(ctx)
	if err != nil {
		return err
	}
	defer d.downstream.close()

	d.title("Producer and workers")
	if err := d.process(ctx); err != nil {
		return err
	}
	d.title("The paused worker")
	if err := d.pausedWorker(ctx); err != nil {
		return err
	}
	d.title("What became of each message")
	if err := d.printMessages(ctx); err != nil {
		return err
	}
	return d.report.verdict(d)
}

// build makes the programs of the demo and looks for Python.
func (d *demo) build(ctx context.Context) error {
	mod, err := run(ctx, ".", "go", "env", "GOMOD")
	if err != nil {
		return fmt.Errorf("find the repository: %w", err)
	}
	d.root = filepath.Dir(mod)
	d.deliveries, err = webhook.Load(filepath.Join(d.root, "examples", "webhooks", "testdata"))
	if err != nil {
		return err
	}
	d.say("go build: server, producer, workers (the first build takes a while)")
	build := []string{
		// Without symbols for a debugger the linker is done sooner.
		"build", "-ldflags=-s -w", "-o", d.tmp + string(filepath.Separator),
		"./examples/webhooks/producer", "./examples/webhooks/worker", "./examples/webhooks/pausedworker",
	}
	if d.binary == "" {
		d.binary = filepath.Join(d.tmp, "queuebox-server")
		build = append(build, "./cmd/queuebox-server")
	}
	if _, err = run(ctx, d.root, "go", build...); err != nil {
		return fmt.Errorf("build: %w", err)
	}
	return d.findPython(ctx)
}

// findPython looks for an interpreter that can run the Python worker, by importing it.
func (d *demo) findPython(ctx context.Context) error {
	candidates := []string{"python3", "/usr/bin/python3"}
	if chosen := os.Getenv("QUEUEBOX_DEMO_PYTHON"); chosen != "" {
		candidates = []string{chosen}
	}
	for _, candidate := range candidates {
		path, err := exec.LookPath(candidate)
		if err != nil {
			continue
		}
		_, err = run(ctx, filepath.Join(d.root, "examples", "python"), path, "-B", "-c", "import queuebox_worker")
		if err == nil {
			d.python = path
			d.say("Python worker: %s", path)
			return nil
		}
	}
	const advice = "no python3 here can import grpc; this brings it: apt-get install python3-grpcio"
	if os.Getenv("QUEUEBOX_DEMO_REQUIRE_PYTHON") == "1" {
		return errors.New(advice)
	}
	d.say("Python worker left out: %s", advice)
	return nil
}

// serve starts the server on free ports and makes the two queues.
func (d *demo) serve(ctx context.Context) (*grpc.ClientConn, error) {
	var ports [2]string
	for i := range ports {
		port, err := freeAddress(ctx)
		if err != nil {
			return nil, err
		}
		ports[i] = port
	}
	d.address = ports[0]
	server, err := d.start("server", d.tmp, func(string) {}, d.binary, "serve",
		"--listen", ports[0], "--metrics-listen", ports[1], "--storage", "sqlite://"+filepath.Join(d.tmp, "queuebox.db"))
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(d.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	d.admin = queueboxv1.NewAdminServiceClient(conn)
	info, err := d.serverInfo(ctx, server)
	if err != nil {
		return conn, err
	}
	d.say("queuebox-server %s on %s, storage %s", info.GetVersion(), d.address, info.GetStorage())

	retry := &queueboxv1.RetryPolicy{MinBackoffMs: 200, MaxBackoffMs: 1000, Multiplier: 2, Jitter: 0.2}
	for _, q := range []*queueboxv1.Queue{
		{Queue: queue, DefaultLeaseMs: 10_000, MaxAttempts: maxAttempts, RetryPolicy: retry},
		// A lease below a second is allowed where a queue says so.
		{Queue: pausedQueue, DefaultLeaseMs: 1500, MinLeaseMs: 500, MaxAttempts: maxAttempts, RetryPolicy: retry},
	} {
		if _, err := d.admin.CreateQueue(ctx, &queueboxv1.CreateQueueRequest{Queue: q}); err != nil {
			return conn, fmt.Errorf("create queue %s: %w", q.GetQueue(), err)
		}
	}
	d.say("queues %s and %s made: at most %d attempts, retries after 0.2 s to 1 s", queue, pausedQueue, maxAttempts)
	return conn, nil
}

// serverInfo waits until the server answers, or has ended.
func (d *demo) serverInfo(ctx context.Context, server *process) (*queueboxv1.GetServerInfoResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	go func() {
		select {
		case <-server.exited:
			cancel()
		case <-ctx.Done():
		}
	}()
	info, err := d.admin.GetServerInfo(ctx, &queueboxv1.GetServerInfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return nil, fmt.Errorf("server does not answer: %w\n%s", err, server.output())
	}
	return info, nil
}

// start starts a program that stopAll ends.
func (d *demo) start(name, dir string, show func(string), path string, args ...string) (*process, error) {
	p, err := start(name, dir, show, path, args...)
	if err != nil {
		return nil, err
	}
	d.startMu.Lock()
	defer d.startMu.Unlock()
	d.started = append(d.started, p)
	return p, nil
}

// stopAll ends what still runs, newest first.
func (d *demo) stopAll() error {
	d.startMu.Lock()
	defer d.startMu.Unlock()
	var errs []error
	for _, p := range slices.Backward(d.started) {
		select {
		case <-p.exited: // whoever waited for it has judged its exit
		default:
			errs = append(errs, p.stop(10*time.Second))
		}
	}
	d.started = nil
	return errors.Join(errs...)
}
