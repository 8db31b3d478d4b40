package cost

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/queuebox/queuebox/internal/garbage"
	"github.com/queuebox/queuebox/server"
)

// The roles of a child process, told by a variable.
const (
	roleVariable  = "QUEUEBOX_TEST_COST_ROLE"
	pauseVariable = "QUEUEBOX_TEST_COST_PAUSE"
	// plainVariable leaves the collector as Go has it.
	plainVariable = "QUEUEBOX_TEST_COST_PLAIN"
	// profilesVariable names a directory for profiles of the server process.
	profilesVariable = "QUEUEBOX_TEST_COST_PROFILES"
	roleServer       = "server"
	roleEcho         = "echo"
)

// addresses is the first line that a child prints.
type addresses struct{ GRPC, Control string }

// usage is what a child tells of itself.
type usage struct {
	CPU     time.Duration // user and system
	Mallocs uint64
	Bytes   uint64 // allocated, freed or not
	RSS     int64  // bytes
	Stacks  uint64
	Heap    uint64 // in use
}

// waiters is the number of claims that wait, as the server tells it.
func (p *process) waiters(tb testing.TB) int {
	tb.Helper()
	var n int
	for line := range strings.Lines(string(p.get(tb, "/metrics"))) {
		if rest, ok := strings.CutPrefix(line, "queuebox_waiting_claims "); ok {
			_, _ = fmt.Sscan(rest, &n)
		}
	}
	return n
}

// child is the main function of a child process. It ends when its standard input does.
func child(role string) int {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return complain(err)
	}
	control, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return complain(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	failed := make(chan error, 2)
	mux := controls()
	switch role {
	case roleServer:
		pause, _ := time.ParseDuration(os.Getenv(pauseVariable))
		cfg := server.DefaultConfig()
		cfg.Store = newMemory(pause)
		cfg.DrainTimeout = time.Second
		if os.Getenv(plainVariable) == "" {
			garbage.Tune(garbage.Headroom)
		}
		s, err := server.New(cfg)
		if err != nil {
			return complain(err)
		}
		mux.Handle("/metrics", s.HTTP())
		go func() { failed <- s.Serve(ctx, lis) }()
	case roleEcho:
		s := grpc.NewServer()
		s.RegisterService(&echoService, nil)
		go func() { failed <- s.Serve(lis) }()
	}
	go func() { failed <- http.Serve(control, mux) }()
	out, _ := json.Marshal(addresses{GRPC: lis.Addr().String(), Control: control.Addr().String()})
	fmt.Println(string(out))
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	select {
	case <-ended:
		return 0
	case err := <-failed:
		return complain(err)
	}
}

func complain(err error) int {
	_, _ = fmt.Fprintln(os.Stderr, err)
	return 1
}

// controls answers with the usage of the process, and with profiles.
func controls() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/usage", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("gc") {
			runtime.GC()
		}
		var u usage
		var ru syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
		u.CPU = time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
		var ms runtime.MemStats
		runtime.ReadMemStats(&ms)
		u.Mallocs, u.Bytes, u.Stacks, u.Heap = ms.Mallocs, ms.TotalAlloc, ms.StackInuse, ms.HeapInuse
		if statm, err := os.ReadFile("/proc/self/statm"); err == nil {
			var size, resident int64
			_, _ = fmt.Sscan(string(statm), &size, &resident)
			u.RSS = resident * int64(os.Getpagesize())
		}
		_ = json.NewEncoder(w).Encode(u)
	})
	mux.HandleFunc("/contention", func(http.ResponseWriter, *http.Request) {
		runtime.SetMutexProfileFraction(10)
		runtime.SetBlockProfileRate(10_000)
	})
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	return mux
}

// echoService answers a message with itself.
var echoService = grpc.ServiceDesc{
	ServiceName: "cost.Echo",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Echo",
		Handler: func(_ any, _ context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			in := new(wrapperspb.BytesValue)
			err := dec(in)
			return in, err
		},
	}},
}

// process is a child that runs.
type process struct {
	addresses
}

// start starts a child of a role and stops it with the test.
func start(tb testing.TB, role string, pause time.Duration) *process {
	tb.Helper()
	self, err := os.Executable()
	require.NoError(tb, err)
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), self, "-test.run=^$")
	cmd.Env = append(os.Environ(), roleVariable+"="+role, pauseVariable+"="+pause.String())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(tb, err)
	out, err := cmd.StdoutPipe()
	require.NoError(tb, err)
	require.NoError(tb, cmd.Start())
	tb.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(tb, err)
	p := &process{}
	require.NoError(tb, json.Unmarshal([]byte(line), &p.addresses))
	return p
}

// usage asks the child what it has used so far; with gc after a collection.
func (p *process) usage(tb testing.TB, gc bool) usage {
	tb.Helper()
	path := "/usage"
	if gc {
		path += "?gc"
	}
	var u usage
	require.NoError(tb, json.Unmarshal(p.get(tb, path), &u))
	return u
}

func (p *process) get(tb testing.TB, path string) []byte {
	tb.Helper()
	body, err := p.fetch(context.WithoutCancel(tb.Context()), path)
	require.NoError(tb, err)
	return body
}

func (p *process) fetch(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Control+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	return io.ReadAll(resp.Body)
}

// profile writes the profiles of the child's load into a directory, where one is asked for.
func (p *process) profile(tb testing.TB, name string, load func()) {
	tb.Helper()
	dir := os.Getenv(profilesVariable)
	if dir == "" {
		load()
		return
	}
	name = strings.NewReplacer("/", "-", "=", "-").Replace(name)
	p.get(tb, "/contention")
	done := make(chan struct{})
	var taken []byte
	var err error
	go func() {
		defer close(done)
		taken, err = p.fetch(context.WithoutCancel(tb.Context()), "/debug/pprof/profile?seconds=8")
	}()
	load()
	<-done
	require.NoError(tb, err)
	require.NoError(tb, os.WriteFile(dir+"/"+name+".cpu", taken, 0o600))
	for _, kind := range []string{"allocs", "mutex", "block"} {
		require.NoError(tb, os.WriteFile(dir+"/"+name+"."+kind, p.get(tb, "/debug/pprof/"+kind), 0o600))
	}
}

// heap writes what is alive in the child into the directory of the profiles, where one is asked
// for.
func (p *process) heap(tb testing.TB, name string) {
	tb.Helper()
	if dir := os.Getenv(profilesVariable); dir != "" {
		require.NoError(tb, os.WriteFile(dir+"/"+name+".heap", p.get(tb, "/debug/pprof/heap?gc=1"), 0o600))
	}
}
