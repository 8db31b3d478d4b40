package queuebox_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestImports_GRPCProtobufAndTheGeneratedCodeOnly holds the package to what a program may have
// to carry that uses it: no storage, no server, no driver.
func TestImports_GRPCProtobufAndTheGeneratedCodeOnly(t *testing.T) {
	const format = `{{if not .Standard}}{{.ImportPath}}{{end}}`
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", format, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	deps := strings.Fields(string(out))
	require.Contains(t, deps, "github.com/queuebox/queuebox/client/go")
	require.Contains(t, deps, "google.golang.org/grpc")

	// golang.org/x comes with gRPC.
	allowed := []string{"google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto/googleapis/rpc", "golang.org/x"}
	for _, dep := range deps {
		if dep == "github.com/queuebox/queuebox/client/go" || dep == "github.com/queuebox/queuebox/gen/queuebox/v1" {
			continue
		}
		ok := false
		for _, a := range allowed {
			ok = ok || dep == a || strings.HasPrefix(dep, a+"/")
		}
		require.True(t, ok, "the client must not depend on %s", dep)
	}

	// By itself it imports no more than this.
	out, err = exec.CommandContext(t.Context(), "go", "list", "-f", `{{join .Imports "\n"}}`, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	for dep := range strings.FieldsSeq(string(out)) {
		if strings.Contains(dep, ".") {
			require.NotContains(t, dep, "golang.org/x/")
		}
	}
}
