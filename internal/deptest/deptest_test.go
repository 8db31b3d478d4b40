package deptest_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/queuebox/queuebox"

// pkg is what `go list` says about a package.
type pkg struct {
	ImportPath string
	Name       string
	Standard   bool
	Imports    []string // of the files that are no tests
	Deps       []string // the same, over the whole tree
}

// list runs `go list` in the root of the repository.
func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Name,Standard,Imports,Deps"}, args...)...)
	cmd.Dir = "../.."
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	var packages []pkg
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p pkg
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		packages = append(packages, p)
	}
	require.NotEmpty(t, packages, "no package matches %v", args)
	return packages
}

// within tells whether a package is one of the trees or lies in one.
func within(path string, trees ...string) bool {
	return slices.ContainsFunc(trees, func(tree string) bool {
		return path == tree || strings.HasPrefix(path, tree+"/")
	})
}

// requireNone fails for every package that reaches one of the trees.
func requireNone(t *testing.T, packages []pkg, why string, trees ...string) {
	t.Helper()
	for _, p := range packages {
		for _, dep := range p.Deps {
			require.False(t, within(dep, trees...), "%s reaches %s: %s", p.ImportPath, dep, why)
		}
	}
}

func ours(suffix string) string { return module + "/" + suffix }

func TestStorageUsesTheStandardLibraryOnly(t *testing.T) {
	for _, p := range list(t, "-deps", "./storage") {
		require.True(t, p.Standard || p.ImportPath == ours("storage"), "package storage reaches %s", p.ImportPath)
	}
}

// drivers are the modules that speak to a database.
func drivers() []string {
	return []string{"github.com/jackc/pgx", "modernc.org/sqlite", "github.com/go-sql-driver/mysql", "github.com/microsoft/go-mssqldb", "github.com/pressly/goose"}
}

func TestServerKnowsNoBackend(t *testing.T) {
	packages := list(t, "./server/...")
	requireNone(t, packages, "the server works on storage.Store",
		append(drivers(), ours("storage/backends"), ours("storage/postgres"), ours("storage/sqlite"),
			ours("storage/mysql"), ours("storage/mssql"), ours("storage/rowlock"))...)
	for _, p := range packages {
		require.NotContains(t, p.Imports, "database/sql", p.ImportPath)
	}
}

func TestBackendsKnowNeitherWireNorEachOther(t *testing.T) {
	wire := []string{ours("gen"), ours("server"), ours("storage/backends"), "google.golang.org/grpc", "google.golang.org/protobuf"}
	own := map[string][]string{
		"postgres": {"github.com/jackc/pgx"},
		"sqlite":   {"modernc.org/sqlite"},
		"mysql":    {"github.com/go-sql-driver/mysql", ours("storage/rowlock")},
		"mssql":    {"github.com/microsoft/go-mssqldb", ours("storage/rowlock")},
	}
	for engine := range own {
		foreign := slices.Clone(wire)
		for other, theirs := range own {
			if other != engine {
				foreign = append(foreign, ours("storage/"+other))
				foreign = append(foreign, slices.DeleteFunc(slices.Clone(theirs), func(tree string) bool { return slices.Contains(own[engine], tree) })...)
			}
		}
		requireNone(t, list(t, "./storage/"+engine+"/..."), "a backend knows storage and its driver", foreign...)
	}
	// What two of them share knows neither of them, and no driver.
	requireNone(t, list(t, "./storage/rowlock/..."), "it is what engines share",
		append(append(wire, drivers()...), ours("storage/mysql"), ours("storage/mssql"))...)
	requireNone(t, list(t, "./storage/slowlane/..."), "it knows nothing of a database",
		append(append(wire, drivers()...), "database/sql", ours("storage/mysql"), ours("storage/mssql"), ours("storage/postgres"), ours("storage/rowlock"))...)
	for _, p := range list(t, "./...") {
		if !within(p.ImportPath, ours("storage/mysql"), ours("storage/mssql"), ours("storage/rowlock")) {
			require.NotContains(t, p.Imports, ours("storage/rowlock"), p.ImportPath)
		}
	}
}

// TestClientLinksNothingElseOfOurs is for the programs of others: whoever imports the
// client must not get a database driver or a server with it.
func TestClientLinksNothingElseOfOurs(t *testing.T) {
	for _, p := range list(t, "-deps", "./client/go") {
		if within(p.ImportPath, module) {
			require.True(t, within(p.ImportPath, ours("client/go"), ours("gen")), "client/go reaches %s", p.ImportPath)
			continue
		}
		require.True(t, p.Standard || strings.HasPrefix(p.ImportPath, "golang.org/x/") ||
			within(p.ImportPath, "google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto/googleapis/rpc"),
			"client/go reaches %s", p.ImportPath)
	}
}

// TestHelpersOfOwnTransactionsLinkTheirDriverAlone: pgx comes with pgxtx and with nothing else,
// and sqltx leaves the choice of a driver to the program.
func TestHelpersOfOwnTransactionsLinkTheirDriverAlone(t *testing.T) {
	requireNone(t, list(t, "./client/go/sqltx", "./client/go/internal/..."), "it knows no driver",
		append(drivers(), ours("storage"), ours("server"))...)
	requireNone(t, list(t, "./client/go/pgxtx"), "it knows pgx and the client",
		"modernc.org/sqlite", "github.com/go-sql-driver/mysql", "github.com/microsoft/go-mssqldb", "github.com/pressly/goose", ours("storage"), ours("server"))
	for _, p := range list(t, "./client/go/...") {
		if p.ImportPath != ours("client/go/pgxtx") {
			require.NotContains(t, p.Deps, "github.com/jackc/pgx/v5", p.ImportPath)
		}
	}
}

func TestOnlyCommandsAndTestsOpenABackend(t *testing.T) {
	for _, p := range list(t, "./...") {
		if within(p.ImportPath, ours("cmd"), ours("internal/testdb"), ours("internal/blackbox"), ours("bench")) {
			continue
		}
		require.NotContains(t, p.Imports, ours("storage/backends"), p.ImportPath)
	}
}

func TestNothingMadeForTestsReachesABinary(t *testing.T) {
	binaries := slices.DeleteFunc(list(t, "./..."), func(p pkg) bool { return p.Name != "main" })
	require.NotEmpty(t, binaries)
	requireNone(t, binaries, "it is made for tests",
		ours("storage/storagetest"), ours("storage/faults"), ours("internal/testdb"), ours("internal/blackbox"),
		ours("internal/proxy"), "github.com/stretchr/testify", "pgregory.net/rapid", "go.uber.org/goleak")
}

// TestPeersOfTheBenchmarkStayInTheirModule: cmd/queuebox-bench brings other queues along, and is a
// module of its own so that nobody else gets them.
func TestPeersOfTheBenchmarkStayInTheirModule(t *testing.T) {
	packages := list(t, "./...")
	requireNone(t, packages, "it belongs to the module cmd/queuebox-bench", "github.com/riverqueue/river", "github.com/nats-io", ours("cmd/queuebox-bench"))
	for _, p := range packages {
		require.False(t, within(p.ImportPath, ours("cmd/queuebox-bench")), "%s must be a module of its own", p.ImportPath)
	}
	text, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	require.NotContains(t, string(text), "riverqueue")
	require.NotContains(t, string(text), "nats-io")
}
