package blackbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// binary is built once for all tests of the process: building it takes longer than
// most of them. [Main] removes it.
var binary struct {
	once sync.Once
	dir  string
	path string
	err  error
}

// Binary returns the path of the built server.
func Binary(tb testing.TB) string {
	tb.Helper()
	binary.once.Do(func() { binary.err = build() })
	if binary.err != nil {
		tb.Fatal(binary.err)
	}
	return binary.path
}

func build() error {
	dir, err := os.MkdirTemp("", "queuebox-blackbox-")
	if err != nil {
		return fmt.Errorf("build of the server: %w", err)
	}
	binary.dir, binary.path = dir, filepath.Join(dir, "queuebox-server")
	args := []string{"build", "-o", binary.path}
	if raceEnabled {
		// As in the Makefile, so that what the tests were built of need not be built again.
		args = append(args, "-race", "-gcflags=modernc.org/sqlite/lib=-race=false", "-gcflags=github.com/microsoft/go-mssqldb=-race=false")
	}
	//nolint:gosec,noctx // the arguments are ours, and the build belongs to no single test
	out, err := exec.Command("go", append(args, "github.com/queuebox/queuebox/cmd/queuebox-server")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build of the server: %w\n%s", err, out)
	}
	return nil
}

// Main runs the tests of a package that uses [Binary] and removes the binary; the
// result is the exit code. TestMain calls it.
func Main(m *testing.M) int {
	code := m.Run()
	if binary.dir != "" {
		_ = os.RemoveAll(binary.dir)
	}
	return code
}

// environment is that of the tests without our own variables: the server reads
// QUEUEBOX_… as its configuration and refuses what it does not know.
func environment() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "QUEUEBOX_") {
			env = append(env, kv)
		}
	}
	return env
}
