// Package pythontest finds the Python that tests of the Python worker run.
package pythontest

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Find returns an interpreter with grpcio and protobuf, or ends the test by Missing.
func Find(tb testing.TB) string {
	tb.Helper()
	for _, candidate := range []string{"python3", "/usr/bin/python3"} {
		if exec.CommandContext(tb.Context(), candidate, "-c", "import grpc, google.protobuf").Run() == nil { //nolint:gosec // one of the two names above
			return candidate
		}
	}
	Missing(tb, "no python3 with grpcio here: apt-get install python3-grpcio")
	return ""
}

// Missing skips the test out loud, or fails it where QUEUEBOX_TEST_REQUIRE names python.
func Missing(tb testing.TB, what string) {
	tb.Helper()
	if slices.Contains(strings.Split(os.Getenv("QUEUEBOX_TEST_REQUIRE"), ","), "python") {
		tb.Fatal(what)
	}
	tb.Skip(what)
}
