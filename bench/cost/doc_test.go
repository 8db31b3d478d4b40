// Package cost measures what a call costs in the server itself: CPU time, allocations and
// memory of the server process, with a storage in memory that costs next to nothing, beside an
// echo server with the defaults of gRPC. Both are processes of their own, this test binary
// started again, and are driven in turns within one run, so that a noisy machine is noisy to
// both. See "In the server" in docs/benchmarks.md.
package cost

import (
	"os"
	"testing"

	"github.com/queuebox/queuebox/internal/leaktest"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(child(role))
	}
	leaktest.Main(m)
}
